"""Driving an agent from code, with an agent that is not ours and with ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.agent_process import AgentProcess, Refused
from replay.artefacts import WireLine
from replay.failures import AgentGone, CannotStart, ScriptError
from tests.unit.replay_kit.driven import OWN_AGENT, SDK_AGENT, running


def test_a_prompt_gives_its_text_and_stop_reason(tmp_path: Path) -> None:
    passed: list[WireLine] = []
    with AgentProcess(SDK_AGENT, tmp_path / "run", on_line=passed.append) as agent:
        agent.initialize()
        session = agent.new_session()
        first, second = session.prompt("say hello there"), session.prompt("say bye")
    assert (first.text, first.thoughts, first.stop_reason, first.tool_calls) == ("hello there", "", "end_turn", [])
    assert second.text == "bye"
    assert tuple(passed) == agent.artefacts.wire
    assert [line.sender for line in passed[:4]] == ["client", "agent", "client", "agent"]
    assert agent.artefacts.status == 0
    assert running(tmp_path / "run") == []


def test_permissions_are_answered_in_order_and_then_cancelled(tmp_path: Path) -> None:
    with AgentProcess(SDK_AGENT, tmp_path / "run", permissions=["allow_once", "reject_once"]) as agent:
        agent.initialize()
        session = agent.new_session()
        answers = [session.prompt(f"ask call-{number}") for number in range(3)]
    assert [answer.text for answer in answers] == ["call-0:yes", "call-1:no", "call-2:cancelled"]
    assert [(call.id, call.title) for call in answers[0].tool_calls] == [("call-0", "Write call-0")]


def test_an_error_is_raised_with_its_code(tmp_path: Path) -> None:
    with AgentProcess(SDK_AGENT, tmp_path / "run") as agent:
        agent.initialize()
        session = agent.new_session()
        with pytest.raises(Refused, match="session/prompt was answered with error -32050: on purpose") as caught:
            session.prompt("fail on purpose")
        assert caught.value.error.code == -32050
        with pytest.raises(Refused):
            session.set_mode("nowhere")
        with pytest.raises(Refused):
            agent.new_session(cwd="not/absolute")
        assert session.prompt("say still there").text == "still there"


def test_prompts_overlap_and_can_be_cancelled(tmp_path: Path) -> None:
    with AgentProcess(SDK_AGENT, tmp_path / "run") as agent:
        agent.initialize()
        slow, quick = agent.new_session(), agent.new_session()
        hanging = slow.start("hang")
        slow.wait_for("agent_message_chunk", "hanging")
        assert quick.prompt([{"type": "text", "text": "say quick"}]).text == "quick"
        slow.cancel()
        assert hanging.wait().stop_reason == "cancelled"


def test_capabilities_that_are_offered_are_served(tmp_path: Path) -> None:
    with AgentProcess(SDK_AGENT, tmp_path / "run", capabilities={"fs": {"readTextFile": True}},
                      files={"a.txt": "unsaved"}) as agent:
        agent.initialize()
        session = agent.new_session()
        assert session.prompt(f"read {agent.workspace / 'a.txt'}").text == "unsaved"
        session.prompt("touch made")
        agent.wait_for_file("made")
    assert [file.path for file in agent.artefacts.files] == ["made"]


def test_an_agent_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    with AgentProcess(SDK_AGENT, tmp_path / "run") as agent:
        agent.initialize()
        session = agent.new_session()
        session.prompt("complain of everything")
        with pytest.raises(AgentGone) as caught:
            session.prompt("exit 7")
        assert "of everything" in str(caught.value)
    assert agent.artefacts.status == 7


def test_a_test_that_fails_leaves_no_process(tmp_path: Path) -> None:
    def fail() -> None:
        with AgentProcess(SDK_AGENT, tmp_path / "run") as agent:
            agent.initialize()
            session = agent.new_session()
            session.start("hang")
            session.wait_for("agent_message_chunk", "hanging")
            assert running(tmp_path / "run") != []
            raise KeyError("the test's own")

    with pytest.raises(KeyError):
        fail()
    assert running(tmp_path / "run") == []


def test_what_is_used_wrongly_is_said(tmp_path: Path) -> None:
    agent = AgentProcess(SDK_AGENT, tmp_path / "run")
    with pytest.raises(ScriptError, match="use `with AgentProcess"):
        agent.initialize()
    with pytest.raises(ScriptError, match="not closed yet"):
        _ = agent.artefacts
    with pytest.raises(CannotStart, match="no-such-agent"), AgentProcess(["no-such-agent"], tmp_path / "other"):
        pass


def test_our_agent_replays_for_it_and_leaves_its_logs(tmp_path: Path) -> None:
    script = tmp_path / "model.script"
    script.write_text('call\n  tool w write {"file_path": "a.txt", "content": "x"}\ncall\n  say "Written."\n')
    with AgentProcess(OWN_AGENT, tmp_path / "first", env={"ACP_MODEL": f"scripted/{script}"}) as agent:
        agent.initialize()
        answer = agent.new_session().prompt("Write.")
    assert (answer.text, [call.status for call in answer.tool_calls]) == ("Written.", ["completed"])
    [log] = agent.artefacts.logs
    with AgentProcess(OWN_AGENT, tmp_path / "second", recording=log.path.parent) as again:
        again.initialize()
        assert again.new_session().prompt("Write.").text == "Written."
    assert again.close() is again.artefacts
    assert json.loads(again.artefacts.receipt or b"")["unbound"] == []

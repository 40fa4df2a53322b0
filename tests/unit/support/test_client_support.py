"""The test client on a puppet: waits end, laws bite, nothing is left behind."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import policies, processes
from tests.support.client import AgentProcess, Failed

PUPPET = Path(__file__).parents[2] / "support" / "puppet_agent.py"


@pytest.fixture
def puppet(tmp_path: Path) -> Iterator[AgentProcess]:
    process = AgentProcess([sys.executable, str(PUPPET)], cwd=tmp_path, home=tmp_path / "home", timeout=20)
    process.start()
    yield process
    process.abandon()


def opened(process: AgentProcess) -> str:
    process.initialize()
    return process.new_session()


def test_a_conversation_is_recorded_in_order_and_judged_at_its_end(puppet: AgentProcess) -> None:
    session = opened(puppet)
    assert puppet.prompt(session, "hello")["result"] == {"stopReason": "end_turn"}
    assert puppet.text(session) == "hello"
    assert puppet.close() == 0
    assert [entry.sender for entry in puppet.transcript] == ["client", "agent"] * 2 + ["client", "agent", "agent"]
    assert puppet.call_methods() == ["initialize", "session/new", "session/prompt"]


def test_errors_of_the_agent_are_frames_like_any_other(puppet: AgentProcess) -> None:
    assert puppet.call("foo/bar")["error"]["code"] == -32601
    assert puppet.close() == 0


@pytest.mark.parametrize(
    ("policy", "said"), [(policies.allow, "allowed"), (policies.reject, "refused"), (policies.cancel, "refused")],
)
def test_permission_is_answered_by_policy(puppet: AgentProcess, policy: policies.Policy, said: str) -> None:
    puppet.answers["session/request_permission"] = policy
    session = opened(puppet)
    puppet.prompt(session, "ask")
    assert puppet.text(session) == said
    puppet.close()


def test_a_permission_may_be_answered_by_hand_and_late(puppet: AgentProcess) -> None:
    puppet.answers["session/request_permission"] = policies.silent
    session = opened(puppet)
    request = puppet.start_prompt(session, "ask")
    question = puppet.wait_for_request("session/request_permission")
    puppet.respond(question, **policies.allow(question))
    puppet.wait_for_update("tool_call_update", status="completed", session=session)
    puppet.response(request)
    puppet.close()


def test_a_question_the_test_has_no_answer_for_fails_the_test(puppet: AgentProcess) -> None:
    puppet.answers["session/request_permission"] = policies.script([])
    session = opened(puppet)
    puppet.prompt(session, "ask")
    with pytest.raises(Failed, match="one question too many"):
        puppet.close()


def test_output_that_is_not_protocol_breaks_law_1(puppet: AgentProcess) -> None:
    puppet.prompt(opened(puppet), "print hello")
    with pytest.raises(Failed, match="law 1: a stdout line is not a JSON object"):
        puppet.close()


def test_a_test_may_say_why_its_transcript_is_unlawful(puppet: AgentProcess) -> None:
    puppet.unlawful = "the puppet was told to print"
    puppet.prompt(opened(puppet), "print hello")
    assert puppet.close() == 0


def test_a_request_left_unanswered_breaks_law_2_unless_the_agent_was_killed(puppet: AgentProcess) -> None:
    puppet.start_prompt(opened(puppet), "silence")
    with pytest.raises(Failed, match="law 2: request 3 was never answered"):
        puppet.close()


def test_a_killed_agent_owes_nothing(puppet: AgentProcess) -> None:
    session = opened(puppet)
    puppet.start_prompt(session, "silence")
    puppet.kill()
    puppet.judge()
    assert puppet.process.returncode == -signal.SIGKILL


def test_a_process_that_is_left_behind_is_found_and_ended(puppet: AgentProcess) -> None:
    puppet.prompt(opened(puppet), "orphan")
    with pytest.raises(Failed, match="law 6: the agent left a process behind: sleep 60"):
        puppet.close()
    assert processes.wait_until_gone(puppet.mark) == []


def test_a_wait_that_fails_shows_what_was_awaited_the_frames_and_stderr(puppet: AgentProcess) -> None:
    session = opened(puppet)
    puppet.prompt(session, "complain it hurts")
    puppet.wait_for_stderr("it hurts")
    puppet.start_prompt(session, "exit 3")
    with pytest.raises(Failed) as caught:
        puppet.wait_for(lambda frame: False, "what never comes")
    report = str(caught.value)
    assert "waited for what never comes (the agent closed stdout" in report
    assert '"method":"session/prompt"' in report
    assert "it hurts" in report
    assert puppet.wait() == 3


def test_the_environment_holds_no_settings_no_secrets_and_another_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ACP_REPLAY_DIR", "acp_model", "OPENAI_API_KEY", "SOME_TOKEN", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "from outside")
    with AgentProcess([sys.executable, str(PUPPET)], cwd=tmp_path, home=tmp_path / "home",
                      environ={"ACP_IDS": "random"}) as puppet:
        session = opened(puppet)
        puppet.prompt(session, "environ")
        environ = json.loads(puppet.text(session))
    assert "from outside" not in environ.values()
    assert environ["ACP_IDS"] == "random"
    assert environ["HOME"] == str(tmp_path / "home")


def test_raw_bytes_count_as_the_lines_they_form(puppet: AgentProcess) -> None:
    puppet.send_bytes(b'{"jsonrpc":"2.0","id":1,')
    puppet.send_bytes(b'"method":"initialize","params":{"protocolVersion":1}}\n{"jsonrpc":"2.0","id":2')
    puppet.response(1)
    puppet.send_bytes(b',"method":"x"}')
    assert puppet.close() == 0
    assert puppet.call_methods() == ["initialize", "x"]


def test_a_client_that_does_not_read_can_start_reading_again(puppet: AgentProcess) -> None:
    session = opened(puppet)
    puppet.stop_reading()
    request = puppet.start_prompt(session, "flood 100")
    puppet.resume_reading()
    puppet.response(request)
    assert len(puppet.text(session)) == 1_000_000
    puppet.close()


def test_leaving_the_context_judges_and_an_error_inside_wins(tmp_path: Path) -> None:
    def run(text: str, error: Exception | None = None) -> None:
        with AgentProcess([sys.executable, str(PUPPET)], cwd=tmp_path, home=tmp_path) as puppet:
            puppet.prompt(opened(puppet), text)
            if error is not None:
                raise error

    run("hello")
    with pytest.raises(Failed, match="law 1"):
        run("print hello")
    with pytest.raises(KeyError):
        run("print hello", KeyError("the test's own"))

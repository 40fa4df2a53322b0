"""What an attacker with fresh eyes once got through; each by the way it was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.processes import marked
from tests.wire.recordings import Json, call, hang, says, script, text, tool
from tests.wire.runs import LIVE, directory_of, root_log

ASK = {"ACP_REPLAY_TOOLS": "live", "ACP_PERMISSION_MODE": "ask"}


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_text_that_comes_with_its_blocks_end_alone_is_shown_too(agent: Workbench, tmp_path: Path, kind: str) -> None:
    silent: list[Json] = [
        {"type": "block-start", "index": 0, "blockType": kind}, {"type": f"{kind}-delta", "index": 0, "text": "do"},
        {"type": "block-end", "index": 0, "block": {"type": kind, "text": "done"}},
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": "all"}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]  # fmt: skip
    process = agent(replay=script(tmp_path / "replay", silent))
    process.initialize()
    session = process.new_session()
    process.prompt(session, "Go.")
    shown = [(update["sessionUpdate"].split("_")[1], update["content"]["text"])
             for update in process.updates(session) if update["sessionUpdate"].endswith("_chunk")]
    assert shown == [("message" if kind == "text" else "thought", "do"),
                     ("message" if kind == "text" else "thought", "ne"), ("message", "all")]


@pytest.mark.parametrize("policy", [policies.allow_always, policies.reject_always])
def test_a_recorded_always_holds_in_the_replay_too(agent: Workbench, tmp_path: Path, policy: policies.Policy) -> None:
    replay = script(tmp_path / "replay", call(tool("a", "bash", command="echo 1", description="d"),
                                              tool("b", "bash", command="echo 1", description="d")), says("Done."))
    process = agent(replay=replay, environ=ASK)
    process.answers["session/request_permission"] = policy
    process.initialize()
    session = process.new_session()
    process.prompt(session, "Go.")
    recorded = [event["type"] for event in root_log(agent, session).events]
    recording = directory_of(agent, session)
    process.close()
    again = agent(replay=recording, environ={"ACP_PERMISSION_MODE": "ask"})
    again.initialize()
    second = again.new_session()
    again.prompt(second, "Go.")
    assert not [entry for entry in again.transcript if entry.frame.get("method") == "session/request_permission"]
    assert [event["type"] for event in root_log(agent, second).events] == recorded


def test_what_a_command_leaves_running_ends_with_it_whatever_group_it_is_in(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", call(tool("a", "bash", command="setsid sleep 311 & echo hi", description="d")),
                    says("Done."))
    process = agent(replay=replay, environ=LIVE)
    process.initialize()
    process.prompt(process.new_session(), "Go.")
    assert [name for name in marked(process.mark).values() if "sleep" in name] == []


def test_a_ready_file_does_not_follow_a_link_out_of_the_workspace(agent: Workbench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (agent.workspace / "link").symlink_to(outside)
    process = agent(replay=script(tmp_path / "replay", hang("link/x")))
    process.initialize()
    session = process.new_session()
    answer = process.response(process.start_prompt(session, "Go."))
    assert "leads out of" in answer["error"]["message"]
    assert list(outside.iterdir()) == []


def test_a_working_directory_with_a_name_too_long_is_a_failure_like_any_other(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", call(tool("a", "bash", command="true", description="d", workdir="a" * 5000)),
                    call(text("Done.")))
    process = agent(replay=replay, environ=LIVE)
    process.initialize()
    session = process.new_session()
    process.prompt(session, "Go.")
    (result,) = [event for event in root_log(agent, session).events if event["type"] == "tool/result"]
    assert "cannot run in" in str(result["data"])


def test_a_call_without_an_id_has_one_on_the_wire(agent: Workbench, tmp_path: Path) -> None:
    process = agent(replay=script(tmp_path / "replay", call(tool("", "todo_write", todos=[])), says("Done.")))
    process.initialize()
    session = process.new_session()
    process.prompt(session, "Go.")
    ids = {update["toolCallId"] for update in process.updates(session) if "toolCallId" in update}
    assert ids == {"call"}

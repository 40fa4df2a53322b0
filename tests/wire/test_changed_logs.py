"""Logs that something else removes, replaces or cuts while an agent has them open: told in that turn, nothing runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.wire.moves import recording, stop_reason
from tests.wire.recordings import call, says, tool
from tests.wire.runs import LIVE, data, root_log

RUNS = call(tool("c", "bash", command="touch ran", description="Run"))


def remove(log: Path) -> None:
    shutil.rmtree(log.parent)


def replace(log: Path) -> None:
    shutil.copy(log, log.with_name("copy"))
    log.with_name("copy").replace(log)


def cut(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 10)


Change = Callable[[Path], None]

CHANGES: dict[Change, str] = {
    remove: "it was removed", replace: "another file was put in its place", cut: "something else changed it",
}


def log_of(bench: Workbench, session: str) -> Path:
    (log,) = bench.store.glob(f"--*--/{session}/session.jsonl")
    return log


def refused(running: AgentProcess, session: str, words: str) -> str:
    """Send a prompt that must fail because of the log; what is told."""
    since = running.position
    message: str = running.prompt(session, words)["error"]["message"]
    assert running.text(session, since=since) == "", "the model was called although its request was not stored"
    return message


@pytest.mark.parametrize("change", CHANGES)
def test_a_prompt_whose_log_was_changed_fails_and_the_session_can_be_loaded_again(
    agent: Workbench, change: Change,
) -> None:
    agent.unlawful_logs = "a log is changed from outside"
    running = agent(replay=recording(agent, *map(says, ("one", "two", "three", "four"))), environ=LIVE)
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, "1")) == "end_turn"
    log = log_of(agent, session)
    change(log)
    left = log.read_bytes() if log.exists() else None
    for words in ("2", "3"):
        told = refused(running, session, words)
        assert told.startswith(f"{log}: the session log cannot be written: ")
        assert CHANGES[change] in told
    assert "error" in running.call("session/close", {"sessionId": session}), "what is lost is not told"
    assert (log.read_bytes() if log.exists() else None) == left, "something was glued on"
    params = {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []}
    answer = running.call("session/load", params)
    if change is remove:
        assert session in answer["error"]["message"]
        assert not log.parent.exists()
        return
    assert "result" in answer
    assert stop_reason(running.prompt(session, "Again.")) == "end_turn"
    assert running.close() == 0
    reasons = [end["reason"]["kind"] for end in data(root_log(agent, session), "turn/end")]
    assert reasons == (["interrupted", "completed"] if change is cut else ["completed", "completed"])


@pytest.mark.parametrize("change", CHANGES)
def test_a_command_whose_start_cannot_be_stored_does_not_run(agent: Workbench, change: Change) -> None:
    agent.unlawful_logs = "a log is changed from outside"
    running = agent(replay=recording(agent, RUNS, says("after")), environ=LIVE | {"ACP_PERMISSION_MODE": "ask"})
    running.answers["session/request_permission"] = policies.silent
    running.initialize()
    session = running.new_session()
    prompt = running.start_prompt(session, "go")
    question = running.wait_for_request("session/request_permission")
    change(log_of(agent, session))
    running.respond(question, **policies.choose("allow_once")(question))
    told = running.response(prompt)["error"]["message"]
    assert CHANGES[change] in told
    assert not (agent.workspace / "ran").exists(), "the command ran although its start was not stored"
    assert running.close() == 1
    assert CHANGES[change] in running.stderr
    assert "Traceback" not in running.stderr


def test_a_log_that_comes_back_takes_all_that_happened_meanwhile(agent: Workbench, tmp_path: Path) -> None:
    running = agent(replay=recording(agent, *map(says, ("one", "two", "three"))), environ=LIVE)
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, "1")) == "end_turn"
    log = log_of(agent, session)
    log.parent.rename(tmp_path / "away")
    assert "put it back" in refused(running, session, "2")
    (tmp_path / "away").rename(log.parent)
    assert stop_reason(running.prompt(session, "3")) == "end_turn"
    assert running.close() == 0
    stored = root_log(agent, session)
    assert [end["reason"]["kind"] for end in data(stored, "turn/end")] == ["completed", "error", "completed"]
    assert [json.dumps(said).count('"2"') for said in data(stored, "user/message")] == [0, 1, 0]

"""How the agent ends: orderly, whatever it was doing, or killed, with a log that knows what had begun."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.wire.moves import opened, recording, stop_reason
from tests.wire.recordings import Log, call, hang, override, says, text, tool, write
from tests.wire.runs import LIVE, data, end_of, failures, order, results, root_log

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
STUBBORN = "trap '' TERM INT HUP; setsid sleep 600 & touch started; sleep 600; touch survived"
"""A command that does not want to end, with a child that left its process group."""


def end_of_input(running: AgentProcess) -> None:
    running.end_input()


def by_signal(number: signal.Signals) -> Callable[[AgentProcess], None]:
    return lambda running: running.signal(number)


WAYS = [pytest.param(end_of_input, id="end of input"),
        *(pytest.param(by_signal(number), id=number.name) for number in SIGNALS)]


def bash(call_id: str, command: str) -> list[dict[str, object]]:
    return call(tool(call_id, "bash", command=command, description="d"))


def wait_for_file(running: AgentProcess, name: str) -> None:
    running.wait_until((running.cwd / name).exists, f"the file {name}")


class Busy:
    """An agent with a session in each state that can be interrupted: `streaming`, `running`, `asking`."""

    def __init__(self, bench: Workbench) -> None:
        directory = write(
            bench.store.parent / "busy", Log("streams").turn("go", says("-")),
            Log("runs", created=2000).turn("go", bash("run", STUBBORN), says("unreachable")),
            Log("asks", created=3000).turn("go", bash("ask", "touch allowed"), says("understood")),
        )
        self.agent = agent = bench(replay=override(directory, hang("hanging")),
                                   environ=LIVE | {"ACP_PERMISSION_MODE": "ask"})
        agent.answers["session/request_permission"] = policies.silent
        agent.initialize()
        self.streaming, self.running, self.asking = (agent.new_session() for _ in range(3))
        self.prompts = [agent.start_prompt(self.streaming, "go")]
        wait_for_file(agent, "hanging")
        agent.call("session/set_mode", {"sessionId": self.running, "modeId": "full-access"})
        self.prompts.append(agent.start_prompt(self.running, "go"))
        wait_for_file(agent, "started")
        self.prompts.append(agent.start_prompt(self.asking, "go"))
        agent.wait_for_request("session/request_permission")
        self.queued = agent.start_prompt(self.streaming, "queued")

    def end(self, way: Callable[[AgentProcess], None]) -> list[str]:
        """End the agent and judge it; returns how the prompts were answered, the queued one last."""
        way(self.agent)
        assert self.agent.wait() == 0
        self.agent.judge()
        return [stop_reason(self.agent.response(one)) for one in [*self.prompts, self.queued]]


@pytest.mark.parametrize("way", WAYS)
def test_an_idle_agent_ends_at_once_and_says_nothing_more(
    agent: Workbench, way: Callable[[AgentProcess], None],
) -> None:
    running, session = opened(agent, says("fine"))
    running.prompt(session, "go")
    received = len(running.received)
    way(running)
    assert running.wait() == 0
    assert len(running.received) == received
    assert running.stderr == ""


def test_an_agent_nobody_speaks_to_ends_with_its_input(agent: Workbench) -> None:
    running = agent()
    assert running.close() == 0
    assert running.received == []


def test_at_the_end_of_input_work_gets_two_seconds_and_open_questions_are_refused(agent: Workbench) -> None:
    busy = Busy(agent)
    assert busy.end(end_of_input) == ["cancelled", "cancelled", "end_turn", "cancelled"]
    assert end_of(root_log(agent, busy.asking)) == {"kind": "completed"}
    assert results(root_log(agent, busy.asking)) == ['Error: the user rejected tool "bash"']
    assert busy.agent.text(busy.asking) == "understood"
    check_interrupted(agent, busy)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_everything_at_once_and_still_answers_and_stores_it(
    agent: Workbench, number: signal.Signals,
) -> None:
    busy = Busy(agent)
    assert busy.end(by_signal(number)) == ["cancelled"] * 4
    asking = root_log(agent, busy.asking)
    assert end_of(asking) == {"kind": "aborted", "reason": {"kind": "disposed"}}
    assert data(asking, "approval/decided")[0]["outcome"] == "cancelled"
    assert failures(asking) == [True]
    check_interrupted(agent, busy)


def check_interrupted(bench: Workbench, busy: Busy) -> None:
    """What is the same however the agent was told to end. That nothing runs any more was judged before."""
    streaming, running = root_log(bench, busy.streaming), root_log(bench, busy.running)
    for log in (streaming, running):
        assert end_of(log) == {"kind": "aborted", "reason": {"kind": "disposed"}}
    answer = data(streaming, "assistant/message")[0]
    assert answer["interrupted"] is True
    assert answer["message"]["content"] == [{"type": "text", "text": "partial"}]
    assert results(running) == ["Error: tool call aborted"]
    for name in ("survived", "allowed"):
        assert not (bench.workspace / name).exists()


def test_requests_that_were_read_before_the_end_of_input_are_finished(agent: Workbench) -> None:
    wait = "touch started; until [ -e go ]; do sleep 0.01; done; echo finished"
    running, session = opened(agent, bash("c", wait), says("done"), **LIVE)
    first, second = running.start_prompt(session, "go"), running.start_prompt(session, "on")
    wait_for_file(running, "started")
    running.end_input()
    (agent.workspace / "go").touch()
    assert stop_reason(running.response(first)) == "end_turn"
    assert "error" in running.response(second)  # the recording holds no call for it
    assert running.wait() == 0
    assert results(root_log(agent, session)) == ["finished\n"]


def test_a_second_signal_does_not_wait_for_work_that_will_not_end(agent: Workbench) -> None:
    running, session = opened(agent, hang("hanging"))
    prompt = running.start_prompt(session, "go")
    wait_for_file(running, "hanging")
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert stop_reason(running.response(prompt)) == "cancelled"


# ---------------------------------------------------------------- killed


def test_what_the_model_is_asked_is_on_disk_before_it_is_asked(agent: Workbench) -> None:
    agent.open_turns = "the agent is killed"
    running, session = opened(agent, says("first"), hang("hanging"))
    running.prompt(session, "one")
    running.start_prompt(session, "two")
    wait_for_file(running, "hanging")
    running.kill()
    log = root_log(agent, session)
    sent = data(log, "request/sent")
    assert [(part["turn"], part["step"], part["purpose"], part["ordinal"]) for part in sent] == [
        (1, 1, "main", 0), (2, 1, "main", 1)]
    assert data(log, "user/message")[-1]["content"] == [{"type": "text", "text": "two"}]
    assert order(log, "turn/start", "turn/end") == ["turn/start", "turn/end", "turn/start"]


def test_a_tool_call_is_on_disk_before_the_tool_runs(agent: Workbench) -> None:
    agent.open_turns = "the agent is killed"
    os.mkfifo(agent.workspace / "gate")
    running, session = opened(agent, bash("c", "touch started; read line < gate"), **LIVE)
    running.start_prompt(session, "go")
    wait_for_file(running, "started")
    running.signal(signal.SIGKILL)
    open_gate(agent.workspace / "gate")
    running.wait()
    log = root_log(agent, session)
    assert [part["callId"] for part in data(log, "tool/call")] == ["c"]
    assert order(log, "request/sent", "assistant/message", "tool/call", "tool/result", "step/end") == [
        "request/sent", "assistant/message", "tool/call"]


def open_gate(fifo: Path) -> None:
    """Let whoever reads from it go on."""
    with fifo.open("w") as gate:
        gate.write("go\n")


def test_an_answered_prompt_is_stored_whole_even_if_the_agent_is_killed_right_after(agent: Workbench) -> None:
    running, session = opened(agent, call(text(*["many "] * 5000)))
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    running.kill()
    log = root_log(agent, session)
    assert end_of(log) == {"kind": "completed"}
    assert len(data(log, "assistant/chunk")) == 5003


def test_a_log_with_a_torn_last_line_is_still_a_recording_up_to_there(agent: Workbench) -> None:
    running, session = opened(agent, says("first"), says("second"))
    running.prompt(session, "one")
    running.close()
    (file,) = agent.store.rglob("session.jsonl")
    whole = file.read_bytes()
    directory = recording(agent)
    (directory / "replay.override.json").unlink()
    (directory / "session.jsonl").write_bytes(whole + whole.splitlines()[-1][:25])
    again = agent(replay=directory)
    again.initialize()
    second = again.new_session()
    assert stop_reason(again.prompt(second, "one")) == "end_turn"
    assert again.text(second) == "first"

"""One writer at a time: a session that a live process has open is refused elsewhere, naming that process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.wire.kills import accept, place_of
from tests.wire.moves import stop_reason
from tests.wire.recordings import Log, call, hang, override, says, tool, write
from tests.wire.runs import LIVE

HELD = -32600


def family(directory: Path) -> Path:
    """A recording of four turns, the second of which has a child."""
    parent = Log("parent").turn("1", says("one"))
    child = tool("s", "subagent", description="Spawn", prompt="Task.")
    parent.turn("2", call(child), says("two")).turn("3", says("three")).turn("4", says("four"))
    return write(directory, parent, parent.spawned("child", "s").turn("Task.", says("from the child")))


class Office:
    """Agents on one store, and the params of requests about one session."""

    def __init__(self, bench: Workbench, kind: str) -> None:
        self.bench = bench
        self.place: StorePlace = place_of(bench, kind)
        self.replay = family(bench.store.parent / "replay")
        self.session = ""

    def agent(self) -> AgentProcess:
        running = self.bench(replay=self.replay, environ=LIVE | self.place.environ)
        running.initialize()
        return running

    def holder(self) -> AgentProcess:
        """An agent that has the session open after two turns."""
        running = self.agent()
        self.session = running.new_session()
        for prompt in "12":
            assert stop_reason(running.prompt(self.session, prompt)) == "end_turn"
        return running

    @property
    def params(self) -> dict[str, Any]:
        return {"sessionId": self.session, "cwd": str(self.bench.workspace), "mcpServers": []}


def refused(answer: dict[str, Any], holder: AgentProcess) -> None:
    """An error that names the process that has the session open."""
    error = answer["error"]
    assert error["code"] == HELD, error
    assert str(holder.pid) in error["message"], error


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_is_open_elsewhere_is_refused_naming_who_has_it(agent: Workbench, kind: str) -> None:
    office = Office(agent, kind)
    holder = office.holder()
    before = office.place.content()
    other = office.agent()
    for _ in range(2):
        refused(other.call("session/load", office.params), holder)
        refused(other.call("session/resume", office.params), holder)
        refused(other.call("session/delete", {"sessionId": office.session}), holder)
    assert other.call("session/prompt", {"sessionId": office.session, "prompt": []})["error"]["code"] != 0
    assert office.place.content() == before
    assert stop_reason(holder.prompt(office.session, "3")) == "end_turn"
    assert holder.text(office.session) == "onetwothree"


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_would_write_is_refused_too_and_reading_is_free_meanwhile(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    office = Office(agent, kind)
    holder = office.holder()
    other, before = office.agent(), office.place.content()
    listed = other.call("session/list", {})["result"]["sessions"]
    assert [one["sessionId"] for one in listed] == [office.session]
    for words in (["delete", office.session], ["repair", office.session]):
        done = sessions(agent, office.place, *words)
        assert done.returncode == 1, (words, done)
        assert str(holder.pid) in done.stderr, (words, done.stderr)
    assert office.session in sessions(agent, office.place, "list").stdout
    assert "from the child" in sessions(agent, office.place, "show", office.session).stdout
    for words in (["export", office.session], ["pack", office.session, str(tmp_path / "pack")]):
        done = sessions(agent, office.place, *words)
        assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (tmp_path / "pack").glob("*.jsonl")) == ["session.1.jsonl", "session.jsonl"]
    assert office.place.content() == before
    assert stop_reason(holder.prompt(office.session, "3")) == "end_turn"


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_can_be_loaded_when_its_holder_was_killed_closed_it_or_ended(agent: Workbench, kind: str) -> None:
    office = Office(agent, kind)
    holder, other = office.holder(), office.agent()
    refused(other.call("session/load", office.params), holder)
    holder.kill()
    accept(other.call("session/load", office.params))
    assert stop_reason(other.prompt(office.session, "3")) == "end_turn"
    third = office.agent()
    refused(third.call("session/load", office.params), other)
    accept(other.call("session/close", {"sessionId": office.session}))
    accept(third.call("session/load", office.params))
    refused(other.call("session/load", office.params), third)
    assert stop_reason(third.prompt(office.session, "4")) == "end_turn"
    third.close()
    accept(other.call("session/load", office.params))
    assert other.text(office.session).endswith("onetwothreefour")
    agent.open_turns = "a session that was loaded is compared with several transcripts"


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_outlives_its_killed_agent_does_not_keep_the_session_open(agent: Workbench, kind: str) -> None:
    agent.open_turns = "an agent is killed in the middle of its turn"
    office = Office(agent, kind)
    waiting = "until [ -e go ]; do sleep 0.01; done"
    orphan = f"(env -i PATH=$PATH setsid sh -c 'echo $$ > pid; mv pid started; {waiting}' &)"
    command = f"{orphan}; {waiting}"  # without a mark, a group or a parent that tells whose it is
    waits = tool("w", "bash", command=command, description="Wait")
    office.replay = write(agent.store.parent / "waiting", Log("waiting").turn("1", call(waits)).turn("2", says("two")))
    holder, other = office.agent(), office.agent()
    office.session = holder.new_session()
    holder.start_prompt(office.session, "1")
    holder.wait_until((agent.workspace / "started").exists, "the command to start")
    holder.process.kill()
    holder.process.wait()
    accept(other.call("session/load", office.params))
    assert stop_reason(other.prompt(office.session, "2")) == "end_turn"
    os.kill(int((agent.workspace / "started").read_text()), 0)
    (agent.workspace / "go").touch()
    holder.abandon()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_load_takes_nothing_and_a_session_that_was_only_made_is_nobodys(agent: Workbench, kind: str) -> None:
    office = Office(agent, kind)
    holder, other = office.holder(), office.agent()
    fresh = holder.new_session()
    answer = other.call("session/load", office.params | {"sessionId": fresh})
    assert answer["error"]["code"] == -32002, "nothing of it is stored"
    refused(other.call("session/load", office.params), holder)
    own = other.new_session()
    assert own not in (office.session, fresh)
    refused(holder_refuses(holder, office), holder)
    other.close()
    assert office.place.listed() == [office.session]


def holder_refuses(holder: AgentProcess, office: Office) -> dict[str, Any]:
    """What another, newly started agent hears while the holder lives."""
    newcomer = office.agent()
    try:
        return newcomer.call("session/load", office.params)
    finally:
        newcomer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_of_many_that_load_at_once_exactly_one_gets_the_session(agent: Workbench, kind: str) -> None:
    agent.open_turns = "a session that was loaded is compared with several transcripts"
    office = Office(agent, kind)
    office.holder().kill()
    contenders = [office.agent() for _ in range(6)]
    start = threading.Barrier(len(contenders))
    answers: dict[int, dict[str, Any]] = {}

    def contend(running: AgentProcess) -> None:
        start.wait()
        answers[running.pid] = running.call("session/load", office.params)

    together([lambda running=running: contend(running) for running in contenders])  # type: ignore[misc]  # bound early
    winners = [running for running in contenders if "result" in answers[running.pid]]
    assert len(winners) == 1, answers
    for running in contenders:
        if running is not winners[0]:
            error = answers[running.pid]["error"]
            assert error["code"] == HELD
            assert str(winners[0].pid) in error["message"] or "another process" in error["message"], error
    assert stop_reason(winners[0].prompt(office.session, "3")) == "end_turn"


def together(work: list[Callable[[], None]]) -> None:
    """Run all at once and wait for all."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_with_a_running_turn_is_refused_in_its_own_process_and_in_others(
    agent: Workbench, kind: str,
) -> None:
    office = Office(agent, kind)
    office.replay = override(write(agent.store.parent / "hanging", Log("hanging")), hang("ready"), says("after"))
    holder, other = office.agent(), office.agent()
    office.session = holder.new_session()
    prompt = holder.start_prompt(office.session, "go")
    holder.wait_until((agent.workspace / "ready").exists, "the turn to hang")
    before = json.dumps(office.place.content(), default=repr)
    assert holder.call("session/load", office.params)["error"]["code"] == HELD
    refused(other.call("session/load", office.params), holder)
    assert json.dumps(office.place.content(), default=repr) == before
    holder.cancel(office.session)
    assert stop_reason(holder.response(prompt)) == "cancelled"
    assert stop_reason(holder.prompt(office.session, "go on")) == "end_turn"

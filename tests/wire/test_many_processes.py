"""Twenty agents at once on one store, while somebody else holds a lock on it: nothing is lost, nothing fails."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.log_laws import check_store_laws
from tests.support.reopen import StorePlace
from tests.wire.kills import accept, place_of
from tests.wire.moves import recording, stop_reason
from tests.wire.recordings import says
from tests.wire.runs import data

AGENTS = 20
HELD_FOR = 3.0
"""Seconds for which a stranger holds the lock."""


@contextmanager
def held(place: StorePlace) -> Iterator[None]:
    """Hold for a while what a process that works on the store could wait for."""
    with ExitStack() as locks:
        lock_database(place.path, locks) if place.kind == "sqlite" else lock_directories(place.path, locks)
        release = threading.Timer(HELD_FOR, locks.close)
        release.start()
        yield
        release.join()


def lock_database(database: Path, locks: ExitStack) -> None:
    connection = locks.enter_context(closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)))
    connection.execute("BEGIN EXCLUSIVE")


def lock_directories(root: Path, locks: ExitStack) -> None:
    for directory in (root, *(one for one in root.rglob("*") if one.is_dir())):
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        locks.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)


def start_all(bench: Workbench, place: StorePlace, count: int) -> dict[str, AgentProcess]:
    """Agents, by the session that each has made. Nothing of a session is stored before its first prompt."""
    replay = recording(bench, says("first ", "answer ", "in ", "pieces"), says("second ", "answer"))
    agents = [bench(replay=replay, environ=place.environ | {"ACP_REPLAY_SESSIONS": "repeat"}) for _ in range(count)]
    for running in agents:
        running.initialize()
    return {running.new_session(): running for running in agents}


def prompt_all(agents: dict[str, AgentProcess]) -> None:
    """Each agent prompts twice, all at the same time."""
    for text in ("one", "two"):
        asked = [(running, running.start_prompt(session, text)) for session, running in agents.items()]
        for running, prompt in asked:
            assert stop_reason(running.response(prompt)) == "end_turn"


def check_all(bench: Workbench, place: StorePlace, sessions: set[str], into: Path) -> None:
    """Everything is stored, complete and lawful, and can be listed and loaded."""
    logs = place.export(into)
    assert set(logs) == sessions
    problems = check_store_laws(into)
    assert not problems, problems
    for (log,) in logs.values():
        assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["completed"] * 2
        answers = [answer["message"]["content"][0]["text"] for answer in data(log, "assistant/message")]
        assert answers == ["first answer in pieces", "second answer"]
    (running,) = start_all(bench, place, 1).values()
    for session in sorted(sessions)[:2]:
        accept(running.call("session/load", {"sessionId": session, "cwd": str(bench.workspace), "mcpServers": []}))
        assert running.text(session) == "first answer in piecessecond answer"
    running.close()


@pytest.mark.parametrize(("kind", "used"), [("jsonl", False), ("jsonl", True), ("sqlite", False), ("sqlite", True)])
def test_twenty_agents_at_once_lose_nothing_while_a_stranger_holds_a_lock(
    agent: Workbench, tmp_path: Path, kind: str, used: bool,
) -> None:
    """The store is new (they all want to make it), or somebody worked in it before."""
    agent.open_turns = "a session that was loaded is compared with several transcripts"
    place = place_of(agent, kind)
    first: dict[str, AgentProcess] = {}
    if used:
        first = start_all(agent, place, 1)
        prompt_all(first)
        for running in first.values():
            running.close()
    elif kind == "jsonl":
        place.path.mkdir(mode=0o700)
    agents = start_all(agent, place, AGENTS)
    with held(place):
        prompt_all(agents)
    for running in agents.values():
        running.end_input()
    for running in agents.values():
        assert running.close() == 0
        assert running.stderr == ""
    check_all(agent, place, {*first, *agents}, tmp_path / "end")

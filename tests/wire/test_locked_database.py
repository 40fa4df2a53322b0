"""A database that somebody else holds locked: waited for, but not by those who have no time any more."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.images import PNG, encoded
from tests.support.log_laws import Log
from tests.wire.moves import stop_reason
from tests.wire.runs import data
from tests.wire.scripted import Stage, of_kind

NOTICES: dict[str, Any] = {"session": {"notices": {}}}
A_SECOND = 1.0
CLOSING = 10.0
"""Seconds after which an agent has ended that cannot store anything: its own patience at the end, and a reserve."""


@contextmanager
def locked(stage: Stage) -> Iterator[None]:
    """Nobody can write, everybody can read."""
    with closing(sqlite3.connect(stage.place.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def ends(log: Log) -> list[str]:
    return [end["reason"]["kind"] for end in data(log, "turn/end")]


def begun(bench: Workbench, tmp_path: Path) -> tuple[Stage, AgentProcess, str]:
    """An agent with a session that has a turn."""
    stage = Stage(bench, "sqlite", tmp_path)
    running = stage.start(NOTICES)
    session = running.new_session()
    assert stop_reason(running.prompt(session, "one")) == "end_turn"
    return stage, running, session


IMAGE: dict[str, Any] = {"type": "image", "mimeType": "image/png", "data": encoded(PNG)}


@pytest.mark.parametrize("content", [[], [IMAGE]], ids=["text", "image"])
def test_a_cancel_is_answered_within_a_second_and_what_is_missing_is_stored_later(
    agent: Workbench, tmp_path: Path, content: list[dict[str, Any]],
) -> None:
    stage, running, session = begun(agent, tmp_path)
    since = running.position
    with locked(stage):
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "two"}, *content]}
        prompt = running.request("session/prompt", params)
        assert running.call("session/list", {})["result"]["sessions"], "readers must not wait"
        before = time.monotonic()
        running.notify("session/cancel", {"sessionId": session})
        answer = running.response(prompt)
        took = time.monotonic() - before
        assert stop_reason(answer) == "cancelled"
        assert took < A_SECOND, f"the cancel took {took:.1f} s"
        assert running.text(session, since=since) == "", "the model was called although its request was not stored"
        (notice,) = of_kind(running.updates(session), "notice")
        assert (notice["severity"], notice["title"]) == ("error", "The session cannot be stored")
        assert "database is locked" in notice["description"]
    assert stop_reason(running.prompt(session, "three")) == "end_turn"
    assert running.close() == 0
    expected = ["completed", "completed"] if content else ["completed", "aborted", "completed"]
    assert ends(stage.log(session, "end")) == expected
    stage.judge()


def test_the_end_of_input_does_not_wait_for_the_lock_for_long(agent: Workbench, tmp_path: Path) -> None:
    agent.open_turns = "the end of the second turn cannot be stored"
    stage, running, session = begun(agent, tmp_path)
    with locked(stage):
        running.start_prompt(session, "two")
        assert running.call("session/list", {})["result"]["sessions"]
        before = time.monotonic()
        assert running.close() == 1
        took = time.monotonic() - before
    assert took < CLOSING, f"the end took {took:.1f} s"
    assert "database is locked" in running.stderr
    assert ends(stage.log(session, "end")) == ["completed"]

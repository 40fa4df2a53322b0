"""Notices: what a user should know now. Only for clients that show them, and no part of any history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support.reopen import KINDS
from tests.wire.scripted import Json, Stage, kinds, of_kind

NOTICES: Json = {"session": {"notices": {}}}

FALTERS = """\
call
  throw RATE_LIMIT "slow down" status 429 retry-after 100
call
  say "Hal"
  throw SERVER "it fell over"
call repeat
  say "Here."
"""


@pytest.mark.parametrize("kind", KINDS)
def test_each_retry_of_a_model_call_is_told_with_its_reason_and_never_again(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    stage = Stage(agent, kind, tmp_path, FALTERS)
    first = stage.start(NOTICES)
    session = first.new_session()
    assert first.prompt(session, "Hi")["result"] == {"stopReason": "end_turn"}
    told = of_kind(first.updates(session), "notice")
    assert [(one["severity"], one["title"], one["description"]) for one in told] == [
        ("warning", "The model call failed and is made again",
         "slow down (RATE_LIMIT). Attempt 2 of at most 6 begins at once."),
        ("warning", "The model call failed and is made again",
         "it fell over (SERVER). Attempt 3 of at most 6 begins at once."),
    ]
    first.close()
    second = stage.start(NOTICES)
    stage.opening(second, "load", session)
    second.prompt(session, "More")
    assert of_kind(second.updates(session), "notice") == []
    stage.judge()


def test_a_wait_before_a_retry_is_told_when_it_begins(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path, FALTERS)
    first = stage.start(NOTICES)
    session = first.new_session()
    first.prompt(session, "Hi")
    first.close()
    log = next(agent.store.glob("--*--/*"))
    (log / "session.jsonl").write_text((log / "session.jsonl").read_text().replace('"delayMs":0', '"delayMs":300'))
    replay = stage.start(NOTICES, ACP_REPLAY_DIR=str(log), ACP_REPLAY_PACE="recorded")
    again = replay.new_session()
    replay.prompt(again, "Hi")
    assert [one["description"].partition(". ")[2] for one in of_kind(replay.updates(again), "notice")] == [
        "Attempt 2 of at most 6 begins in 0.3 s.", "Attempt 3 of at most 6 begins in 0.3 s."]


@pytest.mark.parametrize("capabilities", [{}, {"session": {}}, {"session": {"notices": None}}])
def test_a_client_that_shows_no_notices_gets_none(agent: Workbench, tmp_path: Path, capabilities: Json) -> None:
    running = Stage(agent, "jsonl", tmp_path, FALTERS).start(capabilities)
    session = running.new_session()
    running.prompt(session, "Hi")
    assert "notice" not in kinds(running.updates())


@pytest.mark.parametrize("text", ["Hi", "/rename X"])
def test_a_session_that_cannot_be_stored_is_told_beside_the_error(agent: Workbench, tmp_path: Path, text: str) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory")
    running = Stage(agent, "jsonl", tmp_path).start(NOTICES, ACP_SESSION_STORE=f"jsonl:{blocked}/sessions")
    session = running.new_session()
    error = running.prompt(session, text)["error"]
    assert error["code"] == -32603
    (notice,) = of_kind(running.updates(session), "notice")
    assert (notice["severity"], notice["title"]) == ("error", "The session cannot be stored")
    assert str(blocked) in notice["description"]
    assert running.close() == 1

"""A turn that its process did not end is closed as the format says, once, and the session goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.session import codec
from acp_agent.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    Completed,
    Event,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCall,
    TurnEnd,
    TurnStart,
)
from acp_agent.session.repair import closing
from acp_agent.session.state import SessionState
from tests.support.repair_laws import repair_problems
from tests.support.turn_laws import turn_laws
from tests.unit.session.test_session_state import LOGS, answer, result, user
from tests.unit.session.test_settled_state import read


def state_of(*entries: Any) -> SessionState:
    """The state after these bodies, each at its seq times ten; messages are appended to the history."""
    state = SessionState()
    for seq, body in enumerate(entries):
        surface: Any = "append" if hasattr(body, "message") or hasattr(body, "role") else UNSET
        state.apply(Event(seq, 10 * seq, body, UNSET, surface))
    return state


def plain(events: Sequence[Event]) -> list[Any]:
    return [json.loads(codec.encode_event(event)) for event in events]


def started(call: str) -> ToolCall:
    return ToolCall(1, 1, CallId(call), "read", "{}")


def texts(events: Sequence[Event]) -> list[str]:
    return [row["data"]["message"]["content"][0]["content"][0]["text"] for row in plain(events)
            if row["type"] == "tool/result"]


OPEN = (TurnStart(1), StepStart(1, 1), user("go"))


def test_nothing_is_closed_where_nothing_is_open() -> None:
    assert closing(state_of()) == []
    assert closing(state_of(*OPEN, StepEnd(1, 1), TurnEnd(1, Completed()))) == []


def test_a_turn_between_steps_is_only_ended() -> None:
    assert plain(closing(state_of(*OPEN, StepEnd(1, 1)))) == [
        {"type": "turn/end", "seq": 4, "time": 30, "data": {"turn": 1, "reason": {"kind": "interrupted"}}}]


def test_a_step_without_calls_is_ended_with_its_turn() -> None:
    assert [(event.seq, event.time, event.body.type) for event in closing(state_of(*OPEN))] == [
        (3, 20, "step/end"), (4, 20, "turn/end")]


def test_each_open_call_gets_one_result_that_says_whether_it_was_started() -> None:
    events = closing(state_of(*OPEN, answer("a", "b", "c"), started("a"), result("a"), started("b")))
    unknown, never, *rest = plain(events)
    assert unknown["seq"], never["seq"] == (7, 8)
    assert (unknown["data"]["error"]["code"], unknown["sourceEventSeqs"]) == ("TOOL_OUTCOME_UNKNOWN", [6])
    assert unknown["data"]["message"]["id"] == "interrupted-tool-result-b-7"
    assert never["data"]["error"]["code"] == "TOOL_NOT_STARTED"
    assert "sourceEventSeqs" not in never
    assert [row["type"] for row in rest] == ["step/end", "turn/end"]
    first, second = texts(events)
    assert "unknown" in first
    assert "before retrying" in first
    assert "never started" in second
    assert "may be retried" in second


def test_a_call_whose_question_was_open_was_not_allowed_to_run() -> None:
    asked = ApprovalAsked("q", "read", CallId("a"), "why")
    events = closing(state_of(*OPEN, answer("a"), started("a"), asked))
    question, refused, *_ = plain(events)
    assert (question["type"], question["data"]) == ("approval/decided", {"id": "q", "outcome": "cancelled"})
    assert (refused["data"]["error"]["code"], refused["sourceEventSeqs"]) == ("TOOL_NOT_STARTED", [4])
    assert "never started" in texts(events)[0]


def test_a_call_whose_question_was_decided_may_have_run() -> None:
    asked, decided = ApprovalAsked("q", "read", CallId("a"), "why"), ApprovalDecided("q", "approved")
    events = closing(state_of(*OPEN, answer("a"), started("a"), asked, decided))
    assert [event.body.type for event in events] == ["tool/result", "step/end", "turn/end"]
    assert "unknown" in texts(events)[0]


@pytest.mark.parametrize("path", LOGS, ids=[f"{path.parent.name}/{path.name}" for path in LOGS])
def test_a_recorded_log_cut_at_any_event_is_closed_as_the_format_says(path: Path) -> None:
    header, events = read(path)
    own = 0 if header.seed_length is UNSET else header.seed_length
    states = SessionState(own)
    every = max(1, len(events) // 60)
    for count, event in enumerate(events, 1):
        states.apply(event)
        if count % every or count <= own or states.open_questions:
            continue
        added = closing(states)
        before = plain(events[:count])
        assert repair_problems(before, before + plain(added)) == [], f"cut after {count}"
        again = SessionState(own)
        for one in [*events[:count], *added]:
            again.apply(one)
        assert closing(again) == []
        assert not again.open_turn


def test_what_is_closed_is_lawful() -> None:
    surface: SurfaceOp = "append"
    bodies: list[Any] = [*OPEN, answer("a", "b"), started("a")]
    events = [Event(seq, seq, body, [] if seq == 3 else UNSET, surface if seq in (2, 3) else UNSET)
              for seq, body in enumerate(bodies)]
    state = SessionState()
    for event in events:
        state.apply(event)
    assert list(turn_laws(plain([*events, *closing(state)]))) == []

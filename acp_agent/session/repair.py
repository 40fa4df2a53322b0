"""Closing a turn that its process did not end: never cut off, always balanced (format reference 3.8).

What is added says what is known and no more. A call that nobody started certainly did nothing. Of a started one
nobody knows what it did, with one exception: a call whose permission question was still open had not been allowed
to run. It is told like one that never started, and its question is closed as cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from acp_agent.ids import CallId, MessageId
from acp_agent.session.events import (
    ApprovalDecided,
    Event,
    Interrupted,
    Source,
    StepEnd,
    TextBlock,
    ToolContent,
    ToolError,
    ToolResult,
    ToolResultBlock,
    TurnEnd,
)
from acp_agent.session.log import SessionLog
from acp_agent.session.state import OpenCall, SessionState

_NOT_STARTED = ToolError("ToolNotStartedError", "TOOL_NOT_STARTED")
_NOT_STARTED_TEXT = (
    "Error: the agent was stopped before this tool call ran. It never started and had no effect; it may be retried."
)
_UNKNOWN = ToolError("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN")
_UNKNOWN_TEXT = (
    "Error: the agent was stopped while this tool call was under way, so its outcome is unknown: it may have had all "
    "of its effects, some or none. Check what it did before retrying it."
)


def closing(state: SessionState) -> list[Event]:
    """The events that close the open turn; none when no turn is open. They happen when the newest event did."""
    return list(_closing(state)) if state.open_turn else []


def _closing(state: SessionState) -> Iterator[Event]:
    seq, time = state.count, state.time
    for question in state.open_questions:
        yield Event(seq, time, ApprovalDecided(question, "cancelled"))
        seq += 1
    asking = frozenset(state.open_questions.values())
    for call_id, call in state.open_calls.items():
        yield _result(state, seq, call, started=call.seq is not None and call_id not in asking)
        seq += 1
    if state.open_step:
        yield Event(seq, time, StepEnd(state.turn, state.open_step))
        seq += 1
    yield Event(seq, time, TurnEnd(state.turn, Interrupted()))


def _result(state: SessionState, seq: int, call: OpenCall, *, started: bool) -> Event:
    call_id: CallId = call.block.id
    text, error = (_UNKNOWN_TEXT, _UNKNOWN) if started else (_NOT_STARTED_TEXT, _NOT_STARTED)
    block = ToolResultBlock(call_id, (TextBlock(text),), is_error=True)
    message = ToolContent(
        Source("tool", call_id=call_id), (block,), "user", MessageId(f"interrupted-tool-result-{call_id}-{seq}")
    )
    cites = UNSET if call.seq is None else [call.seq]
    return Event(seq, state.time, ToolResult(state.turn, state.open_step, message, error), cites, "append")


async def repair(log: SessionLog) -> list[Event]:
    """Close a restored log's open turn and store that; returns what was added. Raises `StoreError`."""
    events = closing(log.state)
    if events:
        log.complete(events)
        await log.sync()
    return events

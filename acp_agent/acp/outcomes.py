"""How a turn's end reads on the wire."""

from __future__ import annotations

from acp_agent.acp.schema import StopReason
from acp_agent.errors import AgentError, TurnFailed
from acp_agent.loop.turn import MAX_TURN_REQUESTS
from acp_agent.session.events import Aborted, Blocked, Completed, Failed, Interrupted, MaxTokens, TurnOutcome


def stop_reason(outcome: TurnOutcome | None) -> StopReason | None:
    """Why a turn stopped, where it did not fail: a failed turn is never a stop reason (ACP)."""
    match outcome:
        case Completed():
            return "end_turn"
        case MaxTokens():
            return "max_tokens"
        case Blocked():
            return "refusal"
        case Failed() if outcome.error.code == MAX_TURN_REQUESTS:
            return "max_turn_requests"
        case Aborted():
            return "cancelled"
        case Failed() | Interrupted() | None:
            return None


def failure(outcome: TurnOutcome | None) -> AgentError | None:
    """Why a turn failed, where it did."""
    if isinstance(outcome, Failed) and outcome.error.code != MAX_TURN_REQUESTS:
        return TurnFailed(f"the turn failed: {outcome.error.message}", code=outcome.error.code)
    return TurnFailed("the turn was interrupted") if isinstance(outcome, Interrupted) else None

"""The ACP methods that make a session and work in it: each decodes its params, hands the work on, and waits.

Up to its first await a handler runs in the order in which requests were read, so admission happens there.
"""

from __future__ import annotations

from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw

from acp_agent.acp.content import prompt_text
from acp_agent.acp.offer import check_surroundings, mode_state
from acp_agent.acp.schema import (
    AuthenticateParams,
    Empty,
    NewSessionParams,
    NewSessionResult,
    PromptParams,
    PromptResult,
    SessionParams,
    SetModeParams,
    StopReason,
)
from acp_agent.errors import InvalidParams, TurnFailed
from acp_agent.loop.turn import MAX_TURN_REQUESTS
from acp_agent.rpc.connection import NotificationHandler
from acp_agent.rpc.dispatch import Handler, RequestContext
from acp_agent.session.events import Aborted, Blocked, Completed, Failed, MaxTokens, TurnOutcome
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import QueuedPrompt
from acp_agent.tools.permission import Mode

T = TypeVar("T")

class Handlers:
    """One connection's methods over one process's sessions."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    def methods(self) -> dict[str, Handler]:
        """Requests by method name."""
        return {
            "authenticate": self.authenticate,
            "session/new": self.new_session,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
        }

    def notifications(self) -> dict[str, NotificationHandler]:
        """Notifications by method name."""
        return {"session/cancel": self.cancel}

    async def authenticate(self, raw: Raw, _context: RequestContext) -> Empty:
        """There is nothing to log in to, so every method id is unknown."""
        params = _decode(raw, AuthenticateParams)
        raise InvalidParams(f"unknown authentication method {params.method_id!r}; none is offered")

    async def new_session(self, raw: Raw, _context: RequestContext) -> NewSessionResult:
        """Create a session; nothing is stored before its first event."""
        params = _decode(raw, NewSessionParams)
        check_surroundings(params.additional_directories, params.mcp_servers)
        session = self._manager.create(params.cwd)
        return NewSessionResult(session.place.session, mode_state(session))

    async def prompt(self, raw: Raw, context: RequestContext) -> PromptResult:
        """Queue a prompt and wait for its turn's end."""
        params = _decode(raw, PromptParams)
        text = prompt_text(params.prompt)
        session = await self._manager.ready(params.session_id)
        if session is None:
            return PromptResult("cancelled")
        admitted = session.admit(text)
        admitted.answered = anyio.Event()
        context.after_reply(admitted.answered.set)
        context.on_cancel(lambda: session.cancel_prompt(admitted))
        await admitted.done.wait()
        return PromptResult(stop_reason(admitted))

    async def set_mode(self, raw: Raw, _context: RequestContext) -> Empty:
        """Change a session's permission mode, also in the middle of a turn."""
        params = _decode(raw, SetModeParams)
        session = None
        while session is None:  # a cancel meanwhile is nothing to a mode
            session = await self._manager.ready(params.session_id)
        try:
            mode = Mode(params.mode_id)
        except ValueError:
            known = ", ".join(Mode)
            raise InvalidParams(f"modeId: unknown mode {params.mode_id!r}; expected one of {known}") from None
        session.set_mode(mode)
        with anyio.CancelScope(shield=True):
            await session.log.write()
        return Empty()

    def cancel(self, raw: Raw) -> None:
        """Stop a session's turn and its queue; an idle or unknown session is left alone."""
        self._manager.cancel(msgspec.json.decode(raw, type=SessionParams).session_id)


def stop_reason(prompt: QueuedPrompt) -> StopReason:
    """How a turn's outcome reads on the wire. Raises for a failed turn: that is never a stop reason (ACP)."""
    if prompt.error is not None:
        raise prompt.error
    return _stop_reason(prompt.outcome)


def _stop_reason(outcome: TurnOutcome | None) -> StopReason:
    match outcome:
        case Completed():
            return "end_turn"
        case MaxTokens():
            return "max_tokens"
        case Blocked():
            return "refusal"
        case Failed() if outcome.error.code == MAX_TURN_REQUESTS:
            return "max_turn_requests"
        case Failed():
            raise TurnFailed(f"the turn failed: {outcome.error.message}", code=outcome.error.code)
        case Aborted():
            return "cancelled"
        case _:
            raise TurnFailed("the turn was interrupted")


def _decode(raw: Raw, kind: type[T]) -> T:
    return msgspec.json.decode(raw, type=kind)

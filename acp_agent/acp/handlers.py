"""The ACP methods but `initialize`: each decodes its params, hands the work on, and waits.

Up to its first await a handler runs in the order in which requests were read, so admission happens there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import anyio
import msgspec
from msgspec import UNSET, Raw

from acp_agent.acp.content import prompt_text
from acp_agent.acp.schema import (
    AuthenticateParams,
    CancelParams,
    Empty,
    ModeState,
    NewSessionParams,
    NewSessionResult,
    PromptParams,
    PromptResult,
    ServerProbe,
    SessionMode,
    SetModeParams,
    StdioServer,
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

MODES = (
    SessionMode(Mode.READ_ONLY.value, "Read only", "Reads files; changes nothing and runs nothing."),
    SessionMode(Mode.ASK.value, "Ask", "Asks before it changes a file or runs a command."),
    SessionMode(Mode.ACCEPT_EDITS.value, "Accept edits", "Changes files freely; asks before it runs a command."),
    SessionMode(Mode.FULL_ACCESS.value, "Full access", "Never asks, and is not confined to the directory."),
)


class Handlers:
    """One connection's methods over one process's sessions."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    def methods(self) -> dict[str, Handler]:
        """Requests by method name, `initialize` apart."""
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
        if params.additional_directories is not UNSET and params.additional_directories:
            raise InvalidParams("additionalDirectories: more than one root is not supported; send none")
        _check_servers(params.mcp_servers or ())
        session = self._manager.create(params.cwd)
        return NewSessionResult(session.place.session, ModeState(session.mode.value, MODES))

    async def prompt(self, raw: Raw, context: RequestContext) -> PromptResult:
        """Queue a prompt and wait for its turn's end."""
        params = _decode(raw, PromptParams)
        session = self._manager.get(params.session_id)
        admitted = session.admit(prompt_text(params.prompt))
        admitted.answered = anyio.Event()
        context.after_reply(admitted.answered.set)
        context.on_cancel(lambda: session.cancel_prompt(admitted))
        await admitted.done.wait()
        return PromptResult(stop_reason(admitted))

    async def set_mode(self, raw: Raw, _context: RequestContext) -> Empty:
        """Change a session's permission mode, also in the middle of a turn."""
        params = _decode(raw, SetModeParams)
        session = self._manager.get(params.session_id)
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
        session = self._manager.find(msgspec.json.decode(raw, type=CancelParams).session_id)
        if session is not None:
            session.cancel()


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


def _check_servers(servers: Sequence[Raw]) -> None:
    """Every entry must be a transport that is advertised: stdio needs no advertising (ACP digest 6.1)."""
    for at, entry in enumerate(servers):
        try:
            probe = _decode(entry, ServerProbe)
            if probe.type == "stdio":
                _decode(entry, StdioServer)
                continue
        except msgspec.ValidationError as error:
            raise InvalidParams(f"mcpServers[{at}]: {error}") from None
        raise InvalidParams(f"mcpServers[{at}] ({probe.name}): the transport {probe.type!r} is not supported")



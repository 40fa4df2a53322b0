"""The ACP methods that make a session and work in it: each decodes its params, hands the work on, and waits.

Up to its first await a handler runs in the order in which requests were read, so admission happens there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw

from acp_agent.acp import outcomes
from acp_agent.acp.auth import Authentication
from acp_agent.acp.content import prompt_parts
from acp_agent.acp.offer import mode_state, surroundings
from acp_agent.acp.options import config_options, set_option
from acp_agent.acp.schema import (
    AuthenticateParams,
    Empty,
    NewSessionParams,
    NewSessionResult,
    OptionsResult,
    OptionsUpdate,
    PromptParams,
    PromptResult,
    SessionParams,
    SetModeParams,
    SetOptionParams,
    StopReason,
    TextContent,
    Update,
)
from acp_agent.acp.seeing_through import see_through
from acp_agent.acp.trace import trace_of
from acp_agent.errors import InvalidParams, TurnFailed
from acp_agent.ids import SessionId
from acp_agent.rpc.connection import NotificationHandler
from acp_agent.rpc.dispatch import Handler, RequestContext
from acp_agent.session.commands import called
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import QueuedPrompt, Session
from acp_agent.tools.permission import Mode

T = TypeVar("T")

class Handlers:
    """One connection's methods over one process's sessions."""

    def __init__(
        self, manager: SessionManager, tell: Callable[[SessionId, Update], None], auth: Authentication | None = None
    ) -> None:
        """`tell` sends an update; without `auth` there is nothing to log in to."""
        self._manager = manager
        self._tell = tell
        self._auth = auth

    def methods(self) -> dict[str, Handler]:
        """Requests by method name."""
        return {
            "authenticate": self.authenticate,
            **({} if self._auth is None else {"logout": self.logout}),
            "session/new": self.new_session,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_config_option,
        }

    def notifications(self) -> dict[str, NotificationHandler]:
        """Notifications by method name."""
        return {"session/cancel": self.cancel}

    async def authenticate(self, raw: Raw, _context: RequestContext) -> Empty:
        """Look for the key that sessions need. Where they need none, every method id is unknown."""
        params = _decode(raw, AuthenticateParams)
        if self._auth is None:
            raise InvalidParams(f"methodId: unknown authentication method {params.method_id!r}; none is offered")
        self._auth.authenticate(params.method_id)
        return Empty()

    async def logout(self, _raw: Raw, _context: RequestContext) -> Empty:
        """Forget the key; offered only where there is one to forget."""
        assert self._auth is not None  # else the method is not served
        self._auth.log_out()
        return Empty()

    async def new_session(self, raw: Raw, context: RequestContext) -> NewSessionResult:
        """Create a session; nothing is stored before its first event."""
        params = _decode(raw, NewSessionParams)
        if self._auth is not None:
            self._auth.require()
        around = surroundings(params.additional_directories, params.mcp_servers)
        session = self._manager.create(params.cwd, around)
        context.after_reply(session.begin)
        return NewSessionResult(session.place.session, mode_state(session), config_options(session))

    async def prompt(self, raw: Raw, context: RequestContext) -> PromptResult:
        """Queue a prompt and wait for its turn's end."""
        params = _decode(raw, PromptParams)
        parts = prompt_parts(params.prompt)
        command = called(_first_text(params.prompt))
        session = await self._manager.ready(params.session_id)
        if session is None:
            return PromptResult("cancelled")
        admitted = session.admit(parts, command=command, trace=trace_of(params.meta))
        admitted.answered = anyio.Event()
        context.after_reply(admitted.answered.set)
        context.on_cancel(lambda: session.cancel_prompt(admitted))
        await admitted.done.wait()
        return PromptResult(stop_reason(admitted))

    async def set_mode(self, raw: Raw, context: RequestContext) -> Empty:
        """Change a session's permission mode, also in the middle of a turn."""
        params = _decode(raw, SetModeParams)
        session = await self._open(params.session_id)
        try:
            mode = Mode(params.mode_id)
        except ValueError:
            known = ", ".join(Mode)
            raise InvalidParams(f"modeId: unknown mode {params.mode_id!r}; expected one of {known}") from None
        see_through(context)
        if mode is not session.mode:
            session.set_mode(mode)
            self._tell(params.session_id, OptionsUpdate(config_options(session)))
        with anyio.CancelScope(shield=True):
            await session.log.write()
        return Empty()

    async def set_config_option(self, raw: Raw, context: RequestContext) -> OptionsResult:
        """Choose a mode, a model or a thought level, also in the middle of a turn: the next call is made so."""
        params = _decode(raw, SetOptionParams)
        session = await self._open(params.session_id)
        see_through(context)
        set_option(session, params)
        options = config_options(session)
        with anyio.CancelScope(shield=True):
            await session.log.write()
        return OptionsResult(options)

    async def _open(self, session_id: SessionId) -> Session:
        """The session, once it is open. A cancel meanwhile is nothing to a setting."""
        session = await self._manager.ready(session_id, stoppable=False)
        assert session is not None  # only what can be stopped is
        return session

    def cancel(self, raw: Raw) -> None:
        """Stop a session's turn and its queue; an idle or unknown session is left alone."""
        self._manager.cancel(msgspec.json.decode(raw, type=SessionParams).session_id)


def stop_reason(prompt: QueuedPrompt) -> StopReason:
    """How a turn's outcome reads on the wire. Raises for a failed turn: that is never a stop reason (ACP)."""
    if prompt.error is not None:
        raise prompt.error
    reason = outcomes.stop_reason(prompt.outcome)
    if reason is None:
        raise outcomes.failure(prompt.outcome) or TurnFailed("the turn came to no end")
    return reason


def _first_text(blocks: Sequence[Raw]) -> str:
    """The text that a prompt begins with; empty where it begins with something else."""
    try:
        return msgspec.json.decode(blocks[0], type=TextContent).text
    except msgspec.ValidationError:
        return ""


def _decode(raw: Raw, kind: type[T]) -> T:
    return msgspec.json.decode(raw, type=kind)

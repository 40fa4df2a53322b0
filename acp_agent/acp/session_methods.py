"""The ACP methods over stored sessions: load, resume, fork, list, close, delete.

Each decodes its params, has the manager begin the work, and waits for it: the work itself runs where a cancelled
request cannot tear it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from acp_agent.acp.auth import Authentication
from acp_agent.acp.offer import mode_state, surroundings
from acp_agent.acp.options import config_options
from acp_agent.acp.schema import (
    Empty,
    ListedSession,
    ListParams,
    ListResult,
    LoadParams,
    NewSessionResult,
    OpenedResult,
    ResumeParams,
    SessionParams,
)
from acp_agent.acp.seeing_through import see_through
from acp_agent.rpc.dispatch import Handler, RequestContext
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import Session
from acp_agent.session.work import Opening, Work
from acp_agent.stores.base import SessionSummary

T = TypeVar("T")


class SessionMethods:
    """One connection's methods over one process's stored sessions."""

    def __init__(
        self, manager: SessionManager, warn: Callable[[str], None], auth: Authentication | None = None
    ) -> None:
        """`warn` is told of sessions that a list has to leave out; without `auth` nothing needs a login."""
        self._auth = auth
        self._manager = manager
        self._warn = warn
        self._warned: set[str] = set()

    def methods(self) -> dict[str, Handler]:
        """Requests by method name."""
        return {
            "session/load": self.load,
            "session/resume": self.resume,
            "session/fork": self.fork,
            "session/list": self.list,
            "session/close": self.close,
            "session/delete": self.delete,
        }

    async def load(self, raw: Raw, context: RequestContext) -> OpenedResult:
        """Open a stored session and show the client its whole history first."""
        params = msgspec.json.decode(raw, type=LoadParams)
        self._require_login()
        around = surroundings(params.additional_directories, params.mcp_servers)
        return await self._opened(self._manager.load(params.session_id, params.cwd, around, show=True), context)

    async def resume(self, raw: Raw, context: RequestContext) -> OpenedResult:
        """Open a stored session; the client knows its history."""
        params = msgspec.json.decode(raw, type=ResumeParams)
        self._require_login()
        around = surroundings(params.additional_directories, params.mcp_servers)
        return await self._opened(self._manager.load(params.session_id, params.cwd, around, show=False), context)

    async def _opened(self, opening: Opening[Session], context: RequestContext) -> OpenedResult:
        context.after_reply(lambda: self._manager.opened(opening))
        session = await _result(opening.work, context)
        return OpenedResult(mode_state(session), config_options(session))

    def _require_login(self) -> None:
        if self._auth is not None:
            self._auth.require()

    async def fork(self, raw: Raw, context: RequestContext) -> NewSessionResult:
        """A new session with another one's ended turns; the client knows them."""
        params = msgspec.json.decode(raw, type=ResumeParams)
        self._require_login()
        around = surroundings(params.additional_directories, params.mcp_servers)
        session = await _result(self._manager.fork(params.session_id, params.cwd, around), context)
        context.after_reply(session.begin)
        return NewSessionResult(session.place.session, mode_state(session), config_options(session))

    async def list(self, raw: Raw, _context: RequestContext) -> ListResult:
        """A page of the stored root sessions. What cannot be listed is named on stderr."""
        params = msgspec.json.decode(raw, type=ListParams)
        page = await self._manager.list(_given(params.cwd), _given(params.cursor))
        for refused in page.refused:
            self._leave_out(f"the session {refused.name} is not listed: {refused.reason}")
        listed = tuple(entry for summary in page.sessions if (entry := self._entry(summary)) is not None)
        return ListResult(listed, UNSET if page.cursor is None else page.cursor)

    def _entry(self, summary: SessionSummary) -> ListedSession | None:
        if summary.cwd is UNSET:
            self._leave_out(f"the session {summary.id} is not listed: it has no working directory; load it by its id")
            return None
        title = UNSET if summary.title is None else summary.title
        return ListedSession(summary.id, summary.cwd, title, _iso(summary.updated_at))

    def _leave_out(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            self._warn(why)

    async def close(self, raw: Raw, context: RequestContext) -> Empty:
        """Cancel what runs in a session, and free it once its prompts are answered. This cannot be called off."""
        params = msgspec.json.decode(raw, type=SessionParams)
        see_through(context)
        await self._manager.close(params.session_id).result()
        return Empty()

    async def delete(self, raw: Raw, context: RequestContext) -> Empty:
        """Delete a session, closing it first; it may be gone already. This cannot be called off."""
        params = msgspec.json.decode(raw, type=SessionParams)
        see_through(context)
        await self._manager.delete(params.session_id).result()
        return Empty()


async def _result(work: Work[T], context: RequestContext) -> T:
    context.on_cancel(work.call_off)
    return await work.result()


def _given(value: str | UnsetType | None) -> str | None:
    return None if value is UNSET else value


def _iso(moment: int) -> str | UnsetType:
    """Epoch milliseconds as ISO 8601; unset where they are no date."""
    try:
        text = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return UNSET
    return text.replace("+00:00", "Z")

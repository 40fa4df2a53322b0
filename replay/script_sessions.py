"""The sessions of a script: made, opened again, forked, listed, closed and deleted, each known by its names."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from replay import steps
from replay.asking import Asking
from replay.client_side import ClientSide
from replay.exchange import Exchange
from replay.failures import ScriptError
from replay.waits import OpenSession, Waits

CURSOR = "{{cursor}}"
"""Stands for where the last page of a list said that the next one begins."""

AnySessionStep = (
    steps.NewSession | steps.NewSessionExpectError | steps.LoadSession | steps.ResumeSession | steps.ForkSession
    | steps.CloseSession | steps.DeleteSession | steps.ListSessions
)  # fmt: skip


class _Made(Struct, frozen=True, rename="camel"):
    session_id: str


class _Page(Struct, frozen=True, rename="camel"):
    next_cursor: str | None = None


class ScriptSessions:
    """What a script calls its sessions. The latest is the one that was made or opened last, of those that were not
    deleted.
    """

    def __init__(self, asking: Asking, exchange: Exchange, client: ClientSide, waits: Waits) -> None:
        self._asking = asking
        self._exchange = exchange
        self._client = client
        self._waits = waits
        self._named: dict[str, OpenSession] = {}
        self._known: dict[str, OpenSession] = {}
        self._cursor: str | None = None

    def find(self, name: str | UnsetType) -> OpenSession:
        """The session of a name; without one the latest. Raises `ScriptError`."""
        session = self._latest if name is UNSET else self._named.get(name)
        if session is None:
            raise ScriptError("no session was made for it")
        return session

    @property
    def _latest(self) -> OpenSession | None:
        return next(reversed(self._known.values()), None)

    def all(self) -> list[OpenSession]:
        """Every session, the latest last."""
        return list(self._known.values())

    def fill(self, text: str) -> str:
        """`text` with `{{session}}` and `{{session:NAME}}` filled in. Raises `ScriptError`."""
        def named(found: re.Match[str]) -> str:
            session = self._named.get(found[1]) if found[1] else self._latest
            if session is None:
                raise ScriptError(f"no session was made for {found[0]}")
            return session.id

        return re.sub(r"\{\{session(?::([^{}]+))?\}\}", named, text)

    # -- steps

    def do(self, step: AnySessionStep) -> None:
        """Do one step. Raises `RunFailed`."""
        match step:
            case steps.NewSession():
                self._name(step.session, self._made(step, "session/new", self._places(step)))
            case steps.NewSessionExpectError():
                self._asking.call(step, "session/new", self._places(step), refused=True, code=step.code)
            case steps.LoadSession():
                self._open(step, "session/load")
            case steps.ResumeSession():
                self._open(step, "session/resume")
            case steps.ForkSession():
                self._fork(step)
            case steps.CloseSession():
                self._end(step, "session/close")
            case steps.DeleteSession():
                self._end(step, "session/delete")
            case steps.ListSessions():
                self._list(step)

    def _places(
        self, step: steps.SessionOptions | steps.OpenStored | steps.ForkSession, **first: str,
    ) -> dict[str, Any]:
        """What a session is made or opened with."""
        params: dict[str, Any] = {**first, "cwd": step.cwd, "mcpServers": step.mcp_servers}
        if step.additional_directories is not UNSET:
            params["additionalDirectories"] = step.additional_directories
        expanded: dict[str, Any] = self._asking.expanded(params)
        return expanded

    def _made(self, step: steps.NewSession | steps.ForkSession, method: str, params: Any) -> OpenSession:
        made: _Made = self._asking.result(method, self._asking.call(step, method, params), _Made)
        return OpenSession(made.session_id)

    def _name(self, name: str | UnsetType, session: OpenSession) -> None:
        self._known.pop(session.id, None)
        self._known[session.id] = session
        if name is not UNSET:
            self._named[name] = session

    def _id(self, step: steps.StoredSession) -> str:
        return self.find(step.session).id if step.session_id is UNSET else step.session_id

    def _open(self, step: steps.LoadSession | steps.ResumeSession, method: str) -> None:
        session = self._id(step)
        params = self._places(step, sessionId=session)
        self._asking.call(step, method, params, refused=step.expect_error, code=step.code)
        if not step.expect_error:
            self._name(step.name, self._known.get(session) or OpenSession(session))

    def _fork(self, step: steps.ForkSession) -> None:
        source = self.find(step.source).id if step.source_id is UNSET else step.source_id
        params = self._places(step, sessionId=source)
        if step.expect_error:
            self._asking.call(step, "session/fork", params, refused=True, code=step.code)
            return
        ended = self._waits.ended_turns(source)
        session = self._made(step, "session/fork", params)
        session.inherited = ended
        self._name(step.session, session)

    def _end(self, step: steps.CloseSession | steps.DeleteSession, method: str) -> None:
        session = self._id(step)
        request = self._exchange.request(method, {"sessionId": session})
        self._client.cancelled(session)
        self._asking.answer(step, method, request, refused=step.expect_error, code=step.code)
        if isinstance(step, steps.DeleteSession) and not step.expect_error:
            self._known.pop(session, None)

    # -- lists

    def _list(self, step: steps.ListSessions) -> None:
        params: dict[str, Any] = {} if step.cwd is UNSET else {"cwd": self._asking.expanded(step.cwd)}
        cursor = None if step.cursor is UNSET else self._filled(step.cursor)
        seen = {cursor}
        pages = 0
        while True:
            page = self._page(step, params if cursor is None else params | {"cursor": cursor})
            pages += 1
            cursor = None if page is None else page.next_cursor
            if cursor is None or not step.follow_cursor or pages == step.pages:
                return
            if cursor in seen:
                raise self._asking.failed(f"session/list gave the cursor {cursor!r} twice: its pages never end")
            seen.add(cursor)

    def _page(self, step: steps.ListSessions, params: dict[str, Any]) -> _Page | None:
        method = "session/list"
        raw = self._asking.call(step, method, params, refused=step.expect_error, code=step.code)
        if step.expect_error:
            return None
        page: _Page = self._asking.result(method, raw, _Page)
        self._cursor = page.next_cursor
        return page

    def _filled(self, cursor: str) -> str:
        if CURSOR not in cursor:
            return cursor
        if self._cursor is None:
            raise ScriptError(f"no page of a list said where {CURSOR} would be")
        return cursor.replace(CURSOR, self._cursor)

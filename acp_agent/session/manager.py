"""All sessions of a process: makes them, opens stored ones, finds them, ends them.

What takes effect at once happens in the call; what has to wait is handed back as `Work` that runs in the process's task
group. Work on one session is done in the order it was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio

from acp_agent.errors import SessionBusy, SessionNotFound, StoreError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.directory import absolute, working_directory
from acp_agent.session.events import Event, SessionHeader
from acp_agent.session.fork import discard, fork_root
from acp_agent.session.loading import give_up, load_root, refuse_child
from acp_agent.session.log import SessionLog
from acp_agent.session.retelling import PastChildren, PastSight, Retelling
from acp_agent.session.session import Place, Services, Session, View
from acp_agent.session.surroundings import Surroundings
from acp_agent.session.work import Opening, Openings, Order, Work
from acp_agent.stores.base import Page, SessionSummary
from acp_agent.subagents.inprocess import InProcessDelegation
from acp_agent.subagents.views import ViewFactory

T = TypeVar("T")

NOTHING = Surroundings()


class RootView(View, PastSight, Protocol):
    """The client's side of a root session."""


class RootViews(ViewFactory, PastChildren, Protocol):
    """The client's side of one root session and its children."""

    @property
    def root(self) -> RootView:
        """The root session's own view."""
        ...

    def begin(self) -> None:
        """Told when the client knows of the session."""
        ...

class RootViewMaker(Protocol):
    """Makes the views of new root sessions."""

    def __call__(self, place: Place) -> RootViews: ...


class SessionManager:
    """The active root sessions by id."""

    def __init__(self, services: Services, views: RootViewMaker) -> None:
        self._services = services
        self._views = views
        self._sessions: dict[SessionId, Session] = {}
        self._leaving: dict[SessionId, Session] = {}
        """Not active any more, but not closed yet."""
        self._openings = Openings[Session]()
        self._order = Order()
        self._works: dict[Work[Any], bool] = {}
        """What is under way, and whether it can be called off."""

    # -- making and opening

    def create(self, cwd: str, around: Surroundings = NOTHING) -> Session:
        """A new root session. Raises `InvalidParams` for a directory that cannot be worked in.

        The one who asks calls `Session.begin` after telling the client of it.
        """
        directory = working_directory(cwd)
        services = self._services
        made = services.clock.created_at()
        header = SessionHeader(id=services.ids.session(), created_at=made, cwd=str(directory))
        log = SessionLog(header, services.store.create(header, header.id), services.clock)
        session, _ = self._open(log, directory, around)
        self._add(session, around)
        return session

    def load(
        self, session_id: SessionId, cwd: str, around: Surroundings = NOTHING, *, show: bool
    ) -> Opening[Session]:
        """Begin to open a stored root session; `show` has its history shown to the client before the work is done.

        The one who asks calls `opened` after telling the client what came of it. Raises `InvalidParams`; the work
        raises `SessionBusy` for a session that is open here, and what `load_root` raises.
        """
        directory = working_directory(cwd)
        opening = Opening[Session](session_id, lambda one: self._start(
            lambda: self._load(one, directory, around, show), stoppable=True))  # fmt: skip
        self._openings.add(opening)
        return opening

    def opened(self, opening: Opening[Session]) -> None:
        """The client knows what came of an opening: those who wait for the session go on."""
        self._openings.remove(opening)
        opening.answer()
        if opening.session_id in self._sessions:
            self._sessions[opening.session_id].begin()

    def fork(self, source_id: SessionId, cwd: str, around: Surroundings = NOTHING) -> Work[Session]:
        """Begin to make a new root session with the ended turns of another, active or stored, in any directory.

        The one who asks calls `Session.begin` after telling the client of it.

        Raises `InvalidParams`; the work raises what `fork_root` raises.
        """
        directory = working_directory(cwd)
        return self._start(lambda: self._fork(source_id, directory, around), stoppable=True)

    async def _load(
        self, opening: Opening[Session], directory: Path, around: Surroundings, show: bool
    ) -> Session:
        session_id = opening.session_id
        async with self._order.of(session_id):
            opening.leads_to = self._sessions.get(session_id)
            if opening.leads_to is not None:
                raise SessionBusy(f"session {session_id!r} is open already; close it first (session/close)",
                                  sessionId=session_id)  # fmt: skip
            loaded = await load_root(self._services, session_id, directory)
            try:
                session = await self._activate(loaded.log, directory, around, loaded.history, show, loaded.children,
                                               loaded.descendants)
            except BaseException:
                await give_up(loaded.log)
                raise
            opening.leads_to = session
            return session

    async def _fork(self, source_id: SessionId, directory: Path, around: Surroundings) -> Session:
        services = self._services
        async with self._order.of(source_id):
            source = self._sessions.get(source_id) or self._leaving.get(source_id)
            forked = await fork_root(services, source_id, source, directory)
        try:
            session = await self._activate(forked.log, directory, around, forked.inherited, show=False)
        except BaseException:
            await discard(services.store, forked.log)
            raise
        if (event := forked.choices) is not None:
            session.at_first(lambda: session.view.event(event))
        return session

    async def _activate(
        self, log: SessionLog, directory: Path, around: Surroundings, history: deque[Event], show: bool,
        children: dict[CallId, int] | None = None, descendants: Sequence[SessionSummary] = (),
    ) -> Session:
        session, views = self._open(log, directory, around, children)
        retelling = Retelling(self._services, views, descendants)
        await retelling.root(log.header.id, directory, history, views.root, show=show)
        self._add(session, around)
        return session

    def _add(self, session: Session, around: Surroundings) -> None:
        """Make a session active. Its servers are started when the client knows of it: it may be told of their failures.
        """
        self._sessions[session.place.session] = session
        if not around.servers or not self._services.serves:
            return
        from acp_agent.mcp.servers import McpServers

        def failed(name: str, reason: str) -> None:
            self._services.warn(f"session {session.place.session}: the MCP server {name} is not available: {reason}")
            session.view.notice("warning", f"The MCP server {name} is not available", reason)

        def unusable(name: str, what: str) -> None:
            self._services.warn(f"session {session.place.session}: the MCP server {name}: {what}")
            session.view.notice("warning", f"Tools of the MCP server {name} cannot be used", what)

        servers = McpServers(around.servers, session.place.cwd, session.keep_image, changed=session.toolbox.changed,
                             failed=failed, unusable=unusable)
        session.toolbox.equip(servers)
        session.at_first(lambda: servers.start(self._services.spawn))

    def _open(
        self, log: SessionLog, directory: Path, around: Surroundings, children: dict[CallId, int] | None = None
    ) -> tuple[Session, RootViews]:
        header = log.header
        further = tuple(path for path in around.directories if path != directory)
        place = Place(header.id, header.id, (), directory, header.delegation_depth, further)
        views = self._views(place)
        session = Session(self._services, place, log, views.root)
        session.at_first(views.begin)
        session.delegation = InProcessDelegation(self._services, session, views, children)
        return session, views

    # -- finding

    def get(self, session_id: SessionId) -> Session:
        """An active session. Raises `SessionNotFound`."""
        try:
            return self._sessions[session_id]
        except KeyError:
            raise SessionNotFound(session_id, active=True) from None

    async def ready(self, session_id: SessionId, *, stoppable: bool = True) -> Session | None:
        """An active session, or one that is being opened once the client knows of it; returns at once if it is not.

        None when the session was cancelled meanwhile: that means those who wait too, if they are `stoppable`. Raises
        `SessionNotFound`.
        """
        opening = self._openings.newest(session_id)
        if opening is None:
            return self.get(session_id)
        if opening.ends:
            raise SessionNotFound(session_id, active=True)
        while not await opening.wait():
            if stoppable:
                return None
        if opening.leads_to is None:
            raise SessionNotFound(session_id, active=True)
        return opening.leads_to

    def cancel(self, session_id: SessionId) -> None:
        """Stop a session's turn and all prompts that were sent before; an idle or unknown session is left alone."""
        self._openings.cancel(session_id)
        if session_id in self._sessions:
            self._sessions[session_id].cancel()

    async def list(self, cwd: str | None, cursor: str | None) -> Page:
        """A page of the stored root sessions (see `Store.list`). Raises `InvalidParams`."""
        return await self._services.store.list(cwd=None if cwd is None else str(absolute(cwd)), cursor=cursor)

    # -- ending

    def close(self, session_id: SessionId) -> Work[None]:
        """Cancel a session's turn and its queue, and give it up once every prompt is answered.

        It is not active any more when this returns. Raises `SessionNotFound`, as does the work for a session that was
        being opened and could not be.
        """
        if session_id not in self._sessions and self._openings.newest(session_id) is None:
            raise SessionNotFound(session_id, active=True)
        before = self._end_begins(session_id)
        return self._start(lambda: self._close(session_id, before))

    def _end_begins(self, session_id: SessionId) -> Opening[Session] | None:
        """Nothing can be asked of the session from now on; or, where it is being opened, once that was answered."""
        opening = self._openings.newest(session_id)
        if opening is None:
            self._leave(session_id)
        else:
            opening.ends = True
        return opening

    def _leave(self, session_id: SessionId) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._leaving[session_id] = session

    async def _close(self, session_id: SessionId, before: Opening[Session] | None) -> None:
        async with self._order.of(session_id):
            if not await self._close_if_open(session_id, before):
                raise SessionNotFound(session_id, active=True)

    async def _close_if_open(self, session_id: SessionId, before: Opening[Session] | None) -> bool:
        if before is not None:
            await before.answered.wait()
        self._leave(session_id)
        session = self._leaving.get(session_id)
        if session is None:
            return False
        try:
            await session.aclose("user")
        finally:
            del self._leaving[session_id]
        return True

    def delete(self, session_id: SessionId) -> Work[None]:
        """Close a root session if it is active, and delete it with its descendants; an unknown one is gone already.

        The work raises `SessionHeld`, `InvalidParams` for a child's id, and `StoreError`.
        """
        before = self._end_begins(session_id)
        return self._start(lambda: self._delete(session_id, before))

    async def _delete(self, session_id: SessionId, before: Opening[Session] | None) -> None:
        store = self._services.store
        async with self._order.of(session_id):
            with suppress(StoreError):  # what cannot be stored is not going to be missed
                await self._close_if_open(session_id, before)
            try:
                await store.delete(session_id)
            except SessionNotFound:
                return
            except StoreError:
                await refuse_child(store, session_id)
                raise

    def _start(self, deed: Callable[[], Awaitable[T]], *, stoppable: bool = False) -> Work[T]:
        work = Work(deed)

        async def run() -> None:
            try:
                await work.run()
            finally:
                del self._works[work]

        self._works[work] = stoppable
        self._services.spawn(run)
        return work

    def cancel_all(self, cause: str) -> None:
        """Stop every turn."""
        for session in self._sessions.values():
            session.cancel(cause)

    async def aclose(self) -> None:
        """End every session, all at once: openings are called off, turns are cancelled, logs stored.

        Raises `StoreError` for the first log that could not be stored, after all others were.
        """
        for work, stoppable in list(self._works.items()):
            if stoppable:
                work.call_off()
        for work in list(self._works):
            await work.done()
        failures: list[StoreError] = []

        async def close(session: Session) -> None:
            try:
                await session.aclose()
            except StoreError as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            for session in self._sessions.values():
                group.start_soon(close, session)
        self._sessions.clear()
        if failures:
            raise failures[0]

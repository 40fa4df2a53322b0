"""All sessions of a process: creates them, finds them, ends them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import anyio
from msgspec import UNSET

from acp_agent.errors import InvalidParams, SessionNotFound, StoreError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.events import SessionHeader
from acp_agent.session.log import SessionLog
from acp_agent.session.session import Place, Services, Session, View
from acp_agent.subagents.inprocess import InProcessDelegation
from acp_agent.subagents.views import ViewFactory


class RootViews(ViewFactory, Protocol):
    """The client's side of one root session and its children."""

    @property
    def root(self) -> View:
        """The root session's own view."""
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

    def create(self, cwd: str) -> Session:
        """A new root session. Raises `InvalidParams` for a directory that cannot be worked in."""
        directory = working_directory(cwd)
        services = self._services
        made = services.clock.created_at()
        header = SessionHeader(id=services.ids.session(), created_at=made, cwd=str(directory))
        log = SessionLog(header, services.store.create(header, header.id), services.clock)
        return self._open(header, log, directory)

    async def resume(self, session_id: SessionId) -> Session:
        """Continue a stored root session. Raises `SessionNotFound` or `LogDamaged`."""
        services = self._services
        stored = await services.store.load(session_id)
        header = stored.header
        log = SessionLog(header, await services.store.resume(stored), services.clock)
        log.seed(stored.events)
        return self._open(
            header, log, working_directory("" if header.cwd is UNSET else header.cwd), await self._children(session_id)
        )

    async def _children(self, session_id: SessionId) -> dict[CallId, int]:
        """How many children each delegating call of a stored session made: the next one's index goes on from there."""
        made: dict[CallId, int] = {}
        async for header in self._services.store.headers():
            if header.parent_session == session_id and header.spawn is not UNSET:
                made[header.spawn.call_id] = max(made.get(header.spawn.call_id, 0), header.spawn.index + 1)
        return made

    def _open(
        self, header: SessionHeader, log: SessionLog, directory: Path, children: dict[CallId, int] | None = None
    ) -> Session:
        place = Place(header.id, header.id, (), directory, header.delegation_depth)
        views = self._views(place)
        session = Session(self._services, place, log, views.root)
        session.delegation = InProcessDelegation(self._services, session, views, children)
        self._sessions[header.id] = session
        return session

    def get(self, session_id: SessionId) -> Session:
        """An active session. Raises `SessionNotFound`."""
        try:
            return self._sessions[session_id]
        except KeyError:
            raise SessionNotFound(session_id) from None

    def find(self, session_id: SessionId) -> Session | None:
        """An active session, or None."""
        return self._sessions.get(session_id)

    def cancel_all(self, cause: str) -> None:
        """Stop every turn."""
        for session in self._sessions.values():
            session.cancel(cause)

    async def aclose(self) -> None:
        """End every session, all at once: turns are cancelled, logs stored.

        Raises `StoreError` for the first log that could not be stored, after all others were.
        """
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


def working_directory(cwd: str) -> Path:
    """A session's directory. Raises `InvalidParams` naming what is wrong with it."""
    if not os.path.isabs(cwd):  # noqa: PTH117  # Path("") would read as "."
        raise InvalidParams(f"cwd must be an absolute path, got {cwd!r}", cwd=cwd)
    directory = Path(cwd)
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise InvalidParams(f"cwd {cwd!r} {what}", cwd=cwd)
    if not os.access(directory, os.R_OK | os.X_OK):
        raise InvalidParams(f"cwd {cwd!r} cannot be entered", cwd=cwd)
    return directory

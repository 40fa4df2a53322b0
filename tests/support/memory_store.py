"""A session store in memory, for tests about what is stored when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from acp_agent.errors import SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, SessionHeader
from acp_agent.stores.base import StoredLog


class MemoryStore:
    """Logs in memory. Every operation goes to the journal; `broken` makes writing fail."""

    def __init__(self, journal: list[str] | None = None) -> None:
        self.journal = [] if journal is None else journal
        self.stored: dict[SessionId, tuple[SessionHeader, list[Event]]] = {}
        self.open: dict[SessionId, MemoryAppender] = {}
        self.broken = False

    def create(self, header: SessionHeader, root: SessionId) -> MemoryAppender:
        return MemoryAppender(self, header, [])

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        await self.open[source_id].write()
        events = self.stored[source_id][1][:cut]
        self.open[session_id].events.extend(events)
        return events

    async def load(self, session_id: SessionId) -> StoredLog:
        if session_id not in self.stored:
            raise SessionNotFound(session_id)
        header, events = self.stored[session_id]
        return StoredLog(header, list(events))

    async def resume(self, log: StoredLog) -> MemoryAppender:
        return MemoryAppender(self, log.header, list(log.events))

    def exists(self, session_id: SessionId) -> bool:
        return session_id in self.stored or session_id in self.open

    def spill_directory(self, session_id: SessionId) -> Path:
        return Path("/nonexistent") / session_id

    async def headers(self) -> AsyncIterator[SessionHeader]:
        for header, _ in self.stored.values():
            yield header

    async def aclose(self) -> None:
        for appender in list(self.open.values()):
            await appender.aclose()


class MemoryAppender:
    """The writer of one log in memory."""

    def __init__(self, store: MemoryStore, header: SessionHeader, events: list[Event]) -> None:
        self.header = header
        self.events = events
        self._store = store
        store.open[header.id] = self

    def append(self, event: Event) -> None:
        if event.seq != len(self.events):
            raise StoreError(f"event {event.seq} where {len(self.events)} was expected")
        self.events.append(event)
        self._store.journal.append(event.body.type)

    async def write(self) -> None:
        self._write("write")

    async def sync(self) -> None:
        self._write("sync")

    def _write(self, name: str) -> None:
        if self._store.broken:
            raise StoreError("the disk is full")
        self._store.journal.append(name)
        if self.events:
            self._store.stored[self.header.id] = (self.header, list(self.events))

    async def aclose(self) -> None:
        if self._store.open.pop(self.header.id, None) is not None:
            self._write("sync")

"""The store contract: where session logs live.

The stored unit is the logical event; how events are packed into rows is the store's business. A store
never invents, drops or reorders events: what was appended is what is read back, equal struct for struct.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from acp_agent.ids import SessionId
from acp_agent.session.events import Event, SessionHeader


class StoredLog(Struct, frozen=True):
    """A session as read from a store. `events` are numbered from 0 without gaps."""

    header: SessionHeader
    events: Sequence[Event]


class Appender(Protocol):
    """The one writer of one session's log. Obtained from `Store.create` or `Store.resume`."""

    def append(self, event: Event) -> None:
        """Take the next event (its seq must be the next one). In memory until `write`."""
        ...

    async def write(self) -> None:
        """Hand everything taken so far to the operating system: it survives a killed process.

        Raises `StoreError` when it cannot; what was not written is kept and tried again by the next call.
        """
        ...

    async def sync(self) -> None:
        """`write`, then wait until the storage device has it."""
        ...

    async def aclose(self) -> None:
        """`sync` and give up the log. Safe to call twice."""
        ...


class Store(Protocol):
    """Session logs by session id."""

    def create(self, header: SessionHeader, root: SessionId) -> Appender:
        """A writer for a new session; nothing is stored before its first event is written.

        Returns without waiting and settles the session's place, so that children created in one order are
        stored in that order.

        `root` is the session at the top of the tree (the session itself, for a root).
        """
        ...

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        """Begin the log of `session_id`, fresh from `create`, with the first `cut` events of `source_id`.

        Both are open for writing. The events are copied as they are stored, and returned.
        """
        ...

    async def load(self, session_id: SessionId) -> StoredLog:
        """Read a session for continuation: repairs a torn last line, refuses anything else that is damaged.

        Raises `SessionNotFound`, or `LogDamaged` naming file and line.
        """
        ...

    async def resume(self, log: StoredLog) -> Appender:
        """A writer that continues a loaded session."""
        ...

    def exists(self, session_id: SessionId) -> bool:
        """Whether a session with this id is stored."""
        ...

    def spill_directory(self, session_id: SessionId) -> Path:
        """Where a session's tools may leave output too long for the log. Made on first use by the caller."""
        ...

    def headers(self) -> AsyncIterator[SessionHeader]:
        """The headers of all stored sessions, roots and children."""
        ...

    async def aclose(self) -> None:
        """Free what the store holds."""
        ...

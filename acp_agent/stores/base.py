"""The store contract: where session logs live.

The stored unit is the logical event; how events are packed into rows is the store's business. A store
never invents, drops or reorders events: what was appended is what is read back, equal struct for struct.

A root session and all its descendants form a tree that is opened, exported and deleted as one. One process at a
time may write to a tree; any number may read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import Chunk, Event, SessionHeader, SpawnKey

PAGE = 50
"""Sessions on one page of a list."""


class StoredLog(Struct, frozen=True):
    """A session as read from a store. `events` are numbered from 0 without gaps.

    `projected` says that their numbers do not stand in the log: it is a recording to replay, and cannot be continued.
    """

    header: SessionHeader
    events: Sequence[Event]
    projected: bool = False


class Continuation(Struct, frozen=True):
    """A session opened for writing.

    `settled` are its events without what matters only while an answer streams: of the chunks only `finish` is
    among them, and citations (`source_event_seqs`) are left out. `count` is the number of all events, and `time` the
    newest one's. `torn` says whether an unfinished last record was cut off.
    """

    header: SessionHeader
    root: SessionId
    settled: Sequence[Event]
    count: int
    time: int
    torn: bool
    appender: Appender


class SessionSummary(Struct, frozen=True):
    """What a list says of a session, told without reading its log.

    `created_at` and `updated_at` (the newest event's time) are epoch milliseconds. `seeded` tells only *that* events
    were inherited; how many comes with the log.
    """

    id: SessionId
    created_at: int
    updated_at: int
    cwd: str | UnsetType = UNSET
    title: str | None = None
    seeded: bool = False
    parent: SessionId | None = None
    spawn: SpawnKey | None = None
    depth: int = 0


class Refusal(Struct, frozen=True):
    """A session that cannot be listed: what it is called, as far as that is known, and why."""

    name: str
    reason: str


class Page(Struct, frozen=True):
    """A part of a list, and the cursor that the next part begins at; None ends the list.

    `refused` are sessions met on the way that cannot be read.
    """

    sessions: Sequence[SessionSummary]
    cursor: str | None
    refused: Sequence[Refusal] = ()


class Tree(Struct, frozen=True):
    """A root session's logs outside any store, root first, children in the order of their creation, its blobs, and the
    output of its tools that was too long for the logs.
    """

    logs: Sequence[Path]
    blobs: Mapping[BlobId, Path]
    outputs: Sequence[Path] = ()


class RepairReport(Struct, frozen=True):
    """What a repair did, or would do. `backup` holds what was there before; None when nothing was wrong, and for a dry
    run. Without `changes` nothing was wrong.
    """

    session: SessionId
    kept: int
    changes: Sequence[str]
    backup: Path | None


class Appender(Protocol):
    """The one writer of one session's log. Obtained from `Store.create` or `Store.load`."""

    def append(self, event: Event) -> None:
        """Take the next event (its seq must be the next one). In memory until `write`."""
        ...

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        """Take a batch of a model's stream: as `append` of an event for each chunk, numbered from `first` on."""
        ...

    async def write(self) -> None:
        """Hand everything taken so far to the operating system: it survives a killed process.

        A run of deltas that later ones may still join can stay behind until it ends: how a log is packed must not
        depend on when it was written. Whatever law 4 asks to be stored ends such a run.

        Raises `StoreError` when it cannot; what was not written is kept and tried again by the next call.
        """
        ...

    async def sync(self) -> None:
        """`write`, then wait until the storage device has it."""
        ...

    async def aclose(self) -> None:
        """`sync` and give up the log; the last one of a tree gives up the tree. Safe to call twice."""
        ...


class Store(Protocol):
    """Session logs by session id. Every session id is data: none is used as a path or a query unchecked."""

    def create(self, header: SessionHeader, root: SessionId) -> Appender:
        """A writer for a new session; nothing is stored before its first event is written.

        Returns without waiting and settles the session's place, so that children created in one order are
        stored in that order. The first write raises `StoreError` when the id is taken.

        `root` is the session at the top of the tree (the session itself, for a root).
        """
        ...

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        """Begin the log of `session_id`, fresh from `create`, with the first `cut` events of `source_id`, and give it
        those of the source's blobs that are sound.

        The source may be open here, open elsewhere or just stored; it is not changed. The events are copied as they
        are stored, and returned. Raises `SessionNotFound`, `LogDamaged`, and `StoreError` when the source has fewer
        events.
        """
        ...

    async def load(self, session_id: SessionId) -> Continuation:
        """Open a session for writing: a torn last record is cut off, anything else that is damaged is refused.

        Raises `SessionNotFound`, `LogDamaged` naming file and line, `SessionHeld` naming who writes to it, and
        `StoreError` when it is open here.
        """
        ...

    async def inspect(self, session_id: SessionId) -> StoredLog:
        """Read a session without writing anything, whoever writes to it. Raises `SessionNotFound`, `LogDamaged`."""
        ...

    async def read_from(self, session_id: SessionId, seq: int) -> Sequence[Event]:
        """Exactly the events from `seq` on; none when there are fewer. Raises as `inspect` does."""
        ...

    async def list(self, *, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE) -> Page:
        """The root sessions, newest `created_at` first, then by id; of one working directory when `cwd` is given.

        A cursor stays good whatever is created, updated and deleted meanwhile, in any process: nothing is shown
        twice, nothing that was there all the time is missed. Raises `BadCursor`.
        """
        ...

    async def tree(self, session_id: SessionId) -> Sequence[SessionSummary]:
        """The root of a session's tree, then all its descendants in the order of their creation.

        Raises `SessionNotFound`. A damaged descendant is left out.
        """
        ...

    async def delete(self, session_id: SessionId) -> None:
        """Delete a root session with its descendants, blobs and spilled output.

        Raises `SessionNotFound`, `SessionHeld`, and `StoreError` for a descendant or a session that is open here.
        """
        ...

    def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        """The exact log, header line first, in pieces of whole lines. Raises `SessionNotFound`, `LogDamaged`."""
        ...

    async def adopt(self, tree: Tree) -> SessionId:
        """Take in a root session from outside, all of it or nothing, event for event; returns its id.

        Raises `LogDamaged` for a log that could not be continued, and `StoreError` for an id that is taken and for a
        tree that is not one.
        """
        ...

    async def repair(self, session_id: SessionId, *, dry_run: bool = False) -> RepairReport:
        """Make a damaged session readable again: back up what is there, keep all that is sound. A dry run only tells
        what would be done; it needs no lock.

        Raises `SessionNotFound`, `SessionHeld`, `LogDamaged` for what cannot be repaired.
        """
        ...

    async def put_blob(self, session_id: SessionId, data: bytes) -> BlobId:
        """Keep binary content for a session open here, under its digest. Raises `StoreError`."""
        ...

    async def blob(self, session_id: SessionId, blob: BlobId) -> bytes:
        """Binary content of a session or of any other in its tree. Raises `BlobNotFound`."""
        ...

    async def blobs(self, session_id: SessionId) -> Sequence[BlobId]:
        """All binary content of a session's tree, sorted."""
        ...

    async def outputs(self, session_id: SessionId) -> Sequence[Path]:
        """The files that a stored tree's tools left in its spill directory, sorted."""
        ...

    def exists(self, session_id: SessionId) -> bool:
        """Whether a session with this id is stored, or about to be by this process."""
        ...

    def spill_directory(self, session_id: SessionId) -> Path:
        """Where the tools of a session open here may leave output too long for the log. Made by the caller."""
        ...

    async def aclose(self) -> None:
        """Free what the store holds."""
        ...

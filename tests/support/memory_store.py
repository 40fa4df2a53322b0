"""The store contract as plainly as it can be kept, in memory: for tests of what is stored when, and as the model that
the real stores are compared with.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from acp_agent.errors import BadCursor, BlobNotFound, LogDamaged, SessionHeld, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session import codec
from acp_agent.session.events import (
    KNOWN_TYPES,
    AssistantChunk,
    Chunk,
    EndSeed,
    Event,
    Finish,
    Opaque,
    SessionHeader,
    SessionTitle,
    TurnEnd,
)
from acp_agent.stores import outputs
from acp_agent.stores.base import PAGE, Continuation, Page, RepairReport, SessionSummary, StoredLog, Tree


class MemoryLog:
    """One stored session. `place` orders the sessions of a tree; `adopted` is the text of the first `skip` events and
    of the header, where the session came from outside.
    """

    def __init__(self, header: SessionHeader, root: SessionId, place: int) -> None:
        self.header = header
        self.root = root
        self.place = place
        self.events: list[Event] = []
        self.adopted = codec.encode_header(header)
        self.skip = 0

    def text(self) -> bytes:
        """The exact log."""
        return self.adopted + codec.pack(self.events[self.skip :])

    def check(self) -> None:
        """Raises `LogDamaged` for a log that cannot be continued."""
        file = f"memory:{self.header.id}"
        for at, event in enumerate(self.events):
            if isinstance(event.body, Opaque) and event.body.type not in KNOWN_TYPES and event.ignorable is not True:
                raise LogDamaged(f"unknown event type {event.body.type!r} at seq {at}", file=file)
        cut, count = self.header.seed_length, len(self.events)
        if cut is UNSET or cut == 0:
            return
        around = [type(event.body) for event in self.events[cut - 1 : cut + 1]]
        if cut > count or around not in ([TurnEnd, EndSeed], [TurnEnd]):
            raise LogDamaged(f"seedLength {cut} of {count} events is no boundary", file=file)

    @property
    def time(self) -> int:
        """The newest event's time."""
        return self.events[-1].time if self.events else self.header.created_at

    def summary(self) -> SessionSummary:
        """What a list says."""
        header = self.header
        titles = [event.body.title for event in self.events if isinstance(event.body, SessionTitle)]
        return SessionSummary(
            id=header.id, created_at=header.created_at, updated_at=self.time, cwd=header.cwd,
            title=titles[-1] if titles else None, seeded=bool(header.seed_length),
            parent=None if header.parent_session is UNSET else header.parent_session,
            spawn=None if header.spawn is UNSET else header.spawn, depth=header.delegation_depth,
        )  # fmt: skip


class MemoryDisk:
    """What is stored: stores that share a disk are like processes that share a directory."""

    def __init__(self, spill: Path = Path("/nonexistent")) -> None:
        self.logs: dict[SessionId, MemoryLog] = {}
        self.blobs: dict[SessionId, dict[BlobId, bytes]] = {}
        self.holders: dict[SessionId, MemoryStore] = {}
        self.places = itertools.count()
        self.spill = spill

    def log(self, session_id: SessionId) -> MemoryLog:
        """A stored session. Raises `SessionNotFound`."""
        try:
            return self.logs[session_id]
        except KeyError:
            raise SessionNotFound(session_id) from None

    def tree(self, root: SessionId) -> list[MemoryLog]:
        """The stored sessions of a tree, in their order."""
        logs = [log for log in self.logs.values() if log.root == root]
        return sorted(logs, key=lambda log: (log.header.id != root, log.place))


class MemoryStore:
    """Every operation on a log goes to the journal; `broken` makes writing fail."""

    def __init__(self, journal: list[str] | None = None, disk: MemoryDisk | None = None) -> None:
        self.journal = [] if journal is None else journal
        self.disk = disk or MemoryDisk()
        self.open: dict[SessionId, MemoryAppender] = {}
        self.broken = False

    # -- writing

    def create(self, header: SessionHeader, root: SessionId) -> MemoryAppender:
        appender = MemoryAppender(self, MemoryLog(header, root, next(self.disk.places)))
        self.open.setdefault(header.id, appender)
        return appender

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        if source_id in self.open:
            await self.open[source_id].write()
        source, target = self.disk.log(source_id), self.open[session_id]
        source.check()
        if cut > len(source.events):
            raise StoreError(f"session {source_id!r} has {len(source.events)} events, not {cut}")
        target.events.extend(source.events[:cut])
        kept = self.disk.blobs.get(source.root, {})
        if kept:
            self.disk.blobs.setdefault(target.log.root, {}).update(kept)
        return source.events[:cut]

    async def load(self, session_id: SessionId) -> Continuation:
        if session_id in self.open:
            raise StoreError(f"session {session_id!r} is open here")
        log = self.disk.log(session_id)
        log.check()
        self.hold(log.root)
        appender = self.open[session_id] = MemoryAppender(self, log)
        events = log.events
        settled = [
            msgspec.structs.replace(event, source_event_seqs=UNSET)
            for event in events
            if not isinstance(event.body, AssistantChunk) or isinstance(event.body.chunk, Finish)
        ]
        return Continuation(log.header, log.root, settled, len(events), log.time, False, appender)

    def hold(self, root: SessionId) -> None:
        """Become the one writer of a tree. Raises `SessionHeld`."""
        if self.disk.holders.setdefault(root, self) is not self:
            raise SessionHeld(root, "another store")

    def release(self, root: SessionId) -> None:
        """Give up a tree if nothing of it is open any more."""
        if root not in self.open_roots():
            if self.disk.holders.get(root) is self:
                del self.disk.holders[root]
            if root not in self.disk.logs:
                self.disk.blobs.pop(root, None)

    def open_roots(self) -> set[SessionId]:
        """The trees of which something is open here."""
        return {appender.log.root for appender in self.open.values()}

    # -- reading

    async def inspect(self, session_id: SessionId) -> StoredLog:
        log = self.disk.log(session_id)
        log.check()
        return StoredLog(log.header, list(log.events))

    async def read_from(self, session_id: SessionId, seq: int) -> Sequence[Event]:
        return (await self.inspect(session_id)).events[seq:]

    async def list(self, *, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE) -> Page:
        after = (0, "")
        if cursor is not None:
            try:
                after = msgspec.json.decode(cursor.encode(), type=tuple[int, str])
            except (msgspec.MsgspecError, UnicodeEncodeError):
                raise BadCursor(cursor) from None
        roots = sorted((-log.header.created_at, log.header.id) for log in self.disk.logs.values()
                       if log.root == log.header.id and cwd in (None, log.header.cwd))
        found = [key for key in roots if cursor is None or key > after]
        shown = found[:limit]
        following = msgspec.json.encode(shown[-1]).decode() if len(found) > limit else None
        return Page([self.disk.logs[SessionId(name)].summary() for _, name in shown], following)

    async def tree(self, session_id: SessionId) -> Sequence[SessionSummary]:
        return [log.summary() for log in self.disk.tree(self.disk.log(session_id).root)]

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        yield self.disk.log(session_id).text()

    def exists(self, session_id: SessionId) -> bool:
        return session_id in self.disk.logs or session_id in self.open

    # -- whole trees

    async def delete(self, session_id: SessionId) -> None:
        if session_id in self.open_roots() or session_id in self.open:
            raise StoreError(f"session {session_id!r} is open here")
        log = self.disk.log(session_id)
        if log.root != session_id:
            raise StoreError(f"session {session_id!r} is a descendant of {log.root!r}: delete that")
        self.hold(session_id)
        for one in self.disk.tree(session_id):
            del self.disk.logs[one.header.id]
        shutil.rmtree(self.spill_directory(session_id), ignore_errors=True)
        self.release(session_id)

    async def adopt(self, tree: Tree) -> SessionId:
        if not tree.logs:
            raise StoreError("a tree without logs")
        root: SessionId | None = None
        logs: dict[SessionId, MemoryLog] = {}
        for path in tree.logs:
            log = _log_from(path, root, next(self.disk.places))
            root = log.root
            parent = log.header.parent_session
            if log.header.id in logs or self.exists(log.header.id) or (parent is not UNSET and parent not in logs):
                raise StoreError(f"{path}: taken, or without its parent")
            if parent is UNSET and logs:
                raise StoreError(f"{path}: a second root")
            logs[log.header.id] = log
        try:
            blobs = {name: path.read_bytes() for name, path in tree.blobs.items()}
        except OSError as error:
            raise StoreError(f"a blob cannot be read: {error}") from None
        if any(digest(data) != name for name, data in blobs.items()):
            raise StoreError("a blob is not what its name says")
        assert root is not None
        self.disk.logs.update(logs)
        self.disk.blobs[root] = blobs
        outputs.copy(tree.outputs, self.spill_directory(root))
        return root

    async def repair(self, session_id: SessionId, *, dry_run: bool = False) -> RepairReport:
        log = self.disk.log(session_id)
        self.hold(log.root)
        self.release(log.root)
        log.check()
        return RepairReport(session_id, len(log.events), (), None)

    # -- blobs

    async def put_blob(self, session_id: SessionId, data: bytes) -> BlobId:
        if session_id not in self.open:
            raise StoreError(f"session {session_id!r} is not open here")
        name = digest(data)
        self.disk.blobs.setdefault(self.open[session_id].log.root, {})[name] = data
        return name

    async def blob(self, session_id: SessionId, blob: BlobId) -> bytes:
        try:
            return self._blobs(session_id)[blob]
        except KeyError:
            raise BlobNotFound(session_id, blob) from None

    async def blobs(self, session_id: SessionId) -> Sequence[BlobId]:
        return sorted(self._blobs(session_id))

    def _blobs(self, session_id: SessionId) -> dict[BlobId, bytes]:
        opened = self.open.get(session_id)
        root = (opened.log if opened else self.disk.log(session_id)).root
        return self.disk.blobs.get(root, {})

    async def outputs(self, session_id: SessionId) -> Sequence[Path]:
        return outputs.files(self.spill_directory(session_id))

    def spill_directory(self, session_id: SessionId) -> Path:
        return self.disk.spill / hashlib.sha256(session_id.encode()).hexdigest()

    async def aclose(self) -> None:
        for appender in list(self.open.values()):
            await appender.aclose()


class MemoryAppender:
    """The writer of one log. `events` are all it has, those not yet written too."""

    def __init__(self, store: MemoryStore, log: MemoryLog) -> None:
        self.log = log
        self.events = list(log.events)
        self._store = store
        self._stored = store.disk.logs.get(log.header.id) is log
        self._closed = False

    def append(self, event: Event) -> None:
        if event.seq != len(self.events):
            raise StoreError(f"event {event.seq} where {len(self.events)} was expected")
        self.events.append(event)
        self._store.journal.append(event.body.type)

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        for seq, chunk in enumerate(chunks, first):
            self.append(Event(seq, time, AssistantChunk(turn, step, chunk)))

    async def write(self) -> None:
        self._write("write")

    async def sync(self) -> None:
        self._write("sync")

    def _write(self, name: str) -> None:
        store, log = self._store, self.log
        if store.broken:
            raise StoreError("the disk is full")
        store.journal.append(name)
        if self.events and not self._stored:
            session_id = log.header.id
            if session_id in store.disk.logs or store.open.get(session_id) is not self:
                raise StoreError(f"the id {session_id!r} is taken")
            store.hold(log.root)
            store.disk.logs[session_id] = log
            self._stored = True
        log.events.extend(self.events[len(log.events) :])

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._write("sync")
        finally:
            if self._store.open.get(self.log.header.id) is self:
                del self._store.open[self.log.header.id]
            self._store.release(self.log.root)


def digest(data: bytes) -> BlobId:
    """The name of binary content."""
    return BlobId(hashlib.sha256(data).hexdigest())


def _log_from(path: Path, root: SessionId | None, place: int) -> MemoryLog:
    """A log from outside; its own root when `root` is None."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogDamaged(f"it cannot be read: {error}", file=str(path)) from None
    lines, torn = codec.split_lines(data)
    if not lines:
        raise LogDamaged("there is no complete line", file=str(path))
    header = codec.decode_header(lines[0], str(path))
    if root is None and header.parent_session is not UNSET:
        raise StoreError(f"{path}: a tree begins with its root")
    log = MemoryLog(header, root or header.id, place)
    reader = codec.Reader(str(path))
    log.events = [event for line in lines[1:] for event in reader.read(line)]
    log.adopted, log.skip = data.removesuffix(torn), len(log.events)
    log.check()
    return log

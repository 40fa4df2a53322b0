"""The SQLite store: all sessions in one database file, one row an event.

What a session's data means is checked when it is read, as for a log file; what is stored is kept as it stands.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import NoReturn, TypeVar

from acp_agent.errors import BlobNotFound, LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import Event, SessionHeader
from acp_agent.stores import outputs, sqlite_listing, sqlite_places, sqlite_reading, sqlite_repair
from acp_agent.stores.base import PAGE, Continuation, Page, RepairReport, SessionSummary, StoredLog, Tree
from acp_agent.stores.cursors import decode_cursor
from acp_agent.stores.files import in_thread
from acp_agent.stores.mending import Mended
from acp_agent.stores.sqlite_adopting import read_tree, store_tree
from acp_agent.stores.sqlite_appender import SqliteAppender
from acp_agent.stores.sqlite_blobs import (
    all_blobs,
    copy_blobs,
    drop_tree,
    read_blob,
    size_of_tree,
    store_blob,
)
from acp_agent.stores.sqlite_database import Database
from acp_agent.stores.sqlite_errors import DiskFull, explained, no_room_to_delete, not_open, open_here
from acp_agent.stores.sqlite_exporting import Exporter
from acp_agent.stores.sqlite_trees import OpenTree, OpenTrees, lock_directory, output_directory

_T = TypeVar("_T")


class SqliteStore:
    """Session logs as rows of the database `file`, which is made when the first session is stored.

    What lies beside it lies beside the real file, as SQLite's own files do, whatever links lead there: so those who
    came different ways meet at the same locks.
    """

    def __init__(self, file: Path) -> None:
        file = Path(os.path.realpath(file))
        self._file = file
        self._database = Database(file)
        self._trees = OpenTrees(file)
        self._open: dict[SessionId, SqliteAppender] = {}
        self._appenders: set[SqliteAppender] = set()
        """Those that are open, and those that wait to be refused because another one has their id."""
        self._loading: set[SessionId] = set()

    # -- sessions open for writing

    def create(self, header: SessionHeader, root: SessionId) -> SqliteAppender:
        self._database.check()
        tree = self._trees.enter(root)
        ordinal = 0 if header.id == root else tree.next_ordinal()
        appender = SqliteAppender(self._database, header, tree, ordinal, 0, self._closed)
        appender.taken = header.id in self._open or header.id in self._loading
        self._appenders.add(appender)
        if not appender.taken:
            self._open[header.id] = appender
        return appender

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        writer, source = self._opened(session_id), self._open.get(source_id)
        if source is not None:
            await source.write()
        records, events = await self._database.reading(
            lambda connection: sqlite_reading.read_prefix(connection, self._file, source_id, cut),
            lambda: _not_found(source_id),
        )
        root, tree = await self._root(source_id), writer.tree
        if root != tree.root and await self.blobs(source_id):
            tree.has_blobs = True
            await self._write_to(tree, lambda connection: copy_blobs(connection, root, tree.root))
        writer.begin_with(records)
        return events

    async def load(self, session_id: SessionId) -> Continuation:
        if session_id in self._open or session_id in self._loading:
            raise open_here(session_id)
        self._loading.add(session_id)
        try:
            return await self._load(session_id)
        finally:
            self._loading.discard(session_id)

    async def _load(self, session_id: SessionId) -> Continuation:
        root = await self._root(session_id)
        tree = self._trees.enter(root)
        try:
            await self._database.writing(tree.hold)
            settled = await self._database.reading(
                lambda connection: sqlite_reading.settle(connection, self._file, session_id),
                lambda: _not_found(session_id),
            )
        except BaseException:
            self._trees.leave(tree)
            raise
        tree.stored = True
        appender = SqliteAppender(self._database, settled.header, tree, None, settled.count, self._closed)
        self._appenders.add(appender)
        self._open[session_id] = appender
        return Continuation(settled.header, root, settled.events, settled.count, settled.time, False, appender)

    def _closed(self, appender: SqliteAppender) -> None:
        self._appenders.discard(appender)
        if self._open.get(appender.header.id) is appender:
            del self._open[appender.header.id]
        self._trees.leave(appender.tree)

    # -- reading

    async def inspect(self, session_id: SessionId) -> StoredLog:
        return await self._database.reading(
            lambda connection: sqlite_reading.read_log(connection, self._file, session_id),
            lambda: _not_found(session_id),
        )

    async def read_from(self, session_id: SessionId, seq: int) -> Sequence[Event]:
        return await self._database.reading(
            lambda connection: sqlite_reading.read_from(connection, self._file, session_id, seq),
            lambda: _not_found(session_id),
        )

    async def list(self, *, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE) -> Page:
        after = None if cursor is None else decode_cursor(cursor)
        return await self._database.reading(
            lambda connection: sqlite_listing.page(connection, self._file, cwd, after, limit), lambda: Page((), None)
        )

    async def tree(self, session_id: SessionId) -> Sequence[SessionSummary]:
        return await self._database.reading(
            lambda connection: sqlite_listing.tree(connection, self._file, session_id), lambda: _not_found(session_id)
        )

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        exporter = Exporter(self._file, session_id)
        await self._database.reading(exporter.check, lambda: _not_found(session_id))
        while (piece := await self._database.reading(exporter.piece, lambda: _not_found(session_id))) is not None:
            if piece:
                yield piece

    def exists(self, session_id: SessionId) -> bool:
        return session_id in self._open or self._database.read_here(
            lambda connection: sqlite_places.is_taken(connection, session_id), lambda: False
        )

    # -- whole trees

    async def delete(self, session_id: SessionId) -> None:
        root = await self._top(session_id)
        if root != session_id:
            raise StoreError(f"session {session_id!r} is a child in the tree of {root!r}, and is deleted with it",
                             sessionId=session_id)
        async with self._alone(root) as tree:
            found = await self._drop(tree)
            await self._database.sync(self._database.commits)
            await in_thread(lambda: shutil.rmtree(output_directory(self._file, root), ignore_errors=True))
            await in_thread(lambda: _remove_if_empty(output_directory(self._file, root).parent))
        if not found:
            raise SessionNotFound(session_id)

    async def _drop(self, tree: OpenTree) -> bool:
        """Delete all rows of a tree; whether there were any. On a full disk the log's old room is used, if it will do.
        """
        def drop(connection: Connection) -> bool:
            return drop_tree(connection, tree.root)

        try:
            return await self._write_to(tree, drop)
        except DiskFull:
            await self._database.writing(self._database.empty_log)
        try:
            return await self._write_to(tree, drop)
        except DiskFull:
            size = await self._size(tree.root)
            raise no_room_to_delete(self._file, tree.root, size) from None

    async def _size(self, root: SessionId) -> int | None:
        with contextlib.suppress(StoreError):  # on a disk that is full to the last byte it cannot even be read
            return await self._database.reading(lambda connection: size_of_tree(connection, root), lambda: None)
        return None

    async def adopt(self, tree: Tree) -> SessionId:
        with explained(self._file, "given a session"):
            read = await in_thread(lambda: read_tree(tree))
        async with self._alone(read.root) as own:
            directory = output_directory(self._file, read.root)
            stored = False

            def store(connection: Connection) -> None:
                nonlocal stored
                store_tree(connection, self._file, read)
                stored = True
                outputs.copy(tree.outputs, directory)

            try:
                await self._write_to(own, store)
            except BaseException:
                if stored:  # what was there before is not another session's
                    shutil.rmtree(directory, ignore_errors=True)
                    _remove_if_empty(directory.parent)
                raise
            await self._database.sync(self._database.commits)
        return read.root

    async def repair(self, session_id: SessionId, *, dry_run: bool = False) -> RepairReport:
        root = await self._root(session_id)
        if dry_run:
            log = await self._mended(session_id)
            return RepairReport(session_id, log.kept, log.changes, None)
        async with self._alone(root) as tree:
            await self._database.writing(tree.hold)
            log = await self._mended(session_id)
            if not log.changes:
                return RepairReport(session_id, log.kept, log.changes, None)
            backup = await self._database.reading(
                lambda connection: sqlite_repair.back_up(connection, self._file), lambda: _not_found(session_id)
            )
            await self._write_to(tree, lambda connection: sqlite_repair.replace_events(connection, session_id, log))
            await self._database.sync(self._database.commits)
        return RepairReport(session_id, log.kept, log.changes, backup)

    async def _mended(self, session_id: SessionId) -> Mended:
        return await self._database.reading(
            lambda connection: sqlite_repair.mended(connection, self._file, session_id), lambda: _not_found(session_id)
        )

    # -- binary content

    async def put_blob(self, session_id: SessionId, data: bytes) -> BlobId:
        tree, blob = self._opened(session_id).tree, BlobId(sha256(data).hexdigest())
        tree.has_blobs = True
        await self._write_to(tree, lambda connection: store_blob(connection, tree.root, blob, data))
        await self._database.sync(self._database.commits)
        return blob

    async def blob(self, session_id: SessionId, blob: BlobId) -> bytes:
        try:
            root = await self._root(session_id)
        except SessionNotFound:
            raise BlobNotFound(session_id, blob) from None
        data = await self._database.reading(lambda connection: read_blob(connection, root, blob), lambda: None)
        if data is None:
            raise BlobNotFound(session_id, blob)
        if sha256(data).hexdigest() != blob:
            raise LogDamaged(f"session {session_id!r}: the content {blob!r} is not what was stored: its digest is "
                             "another one; bring back a copy", file=str(self._file))
        return data

    async def blobs(self, session_id: SessionId) -> Sequence[BlobId]:
        root = await self._root(session_id)
        return await self._database.reading(lambda connection: all_blobs(connection, root), tuple)

    async def outputs(self, session_id: SessionId) -> Sequence[Path]:
        root = await self._root(session_id)
        return await in_thread(lambda: outputs.files(output_directory(self._file, root)))

    def spill_directory(self, session_id: SessionId) -> Path:
        return output_directory(self._file, self._opened(session_id).tree.root)

    # -- the end

    async def aclose(self) -> None:
        failures: list[StoreError] = []
        for appender in list(self._appenders):
            try:
                await appender.aclose()
            except StoreError as error:
                failures.append(error)
        await self._database.aclose()
        await in_thread(lambda: _remove_if_empty(lock_directory(self._file)))
        if failures:
            raise failures[0]

    # -- helpers

    def _opened(self, session_id: SessionId) -> SqliteAppender:
        try:
            return self._open[session_id]
        except KeyError:
            raise not_open(session_id) from None

    async def _root(self, session_id: SessionId) -> SessionId:
        """The root of the tree of a session that is open here or stored. Raises `SessionNotFound`."""
        if session_id in self._open:
            return self._open[session_id].tree.root
        return await self._database.reading(
            lambda connection: sqlite_places.root_of(connection, self._file, session_id),
            lambda: _not_found(session_id),
        )

    async def _top(self, session_id: SessionId) -> SessionId:
        """The same, or the session itself where its root is none, or where only parts of it are left."""
        if session_id in self._open:
            return self._open[session_id].tree.root
        return await self._database.reading(
            lambda connection: sqlite_places.top_of(connection, self._file, session_id),
            lambda: _not_found(session_id),
        )

    async def _write_to(self, tree: OpenTree, work: Callable[[Connection], _T]) -> _T:
        """One transaction on a tree, which is held from then on."""
        def run() -> _T:
            tree.hold()
            return self._database.transact(work)

        return await self._database.writing(run)

    @asynccontextmanager
    async def _alone(self, root: SessionId) -> AsyncIterator[OpenTree]:
        """A tree that nothing here has open. Raises `StoreError`."""
        if self._trees.is_open(root):
            raise open_here(root)
        tree = self._trees.enter(root)
        try:
            yield tree
        finally:
            self._trees.leave(tree)


def _not_found(session_id: SessionId) -> NoReturn:
    raise SessionNotFound(session_id)


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()

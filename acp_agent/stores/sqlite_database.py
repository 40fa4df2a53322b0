"""The SQLite store's connections and threads: one thread writes, a few read, and the event loop waits for neither."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio

from acp_agent.errors import StoreError
from acp_agent.stores import sqlite_schema
from acp_agent.stores.files import in_thread, sync_data, sync_directories
from acp_agent.stores.patience import Patience
from acp_agent.stores.sqlite_errors import DatabaseLocked, explained
from acp_agent.stores.sqlite_schema import Found, look, open_for_reading, open_for_writing

_T = TypeVar("_T")
Reading = Callable[[sqlite3.Connection], _T]

_PAUSE = 0.02
"""Seconds between two tries to write to a database that is locked."""

_READERS = 3
"""Reads at the same time: a list is not to wait until a long log is read."""


class Database:
    """One database file. Nothing is opened before it is needed; `writing` makes the file, reading never does."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.commits = 0
        """Transactions committed so far; `sync` is told up to which of them."""
        self._synced = 0
        self._syncing = anyio.Lock()
        self._looked = False
        self._closed = False
        self._writer: _Writer | None = None
        self._writing = ThreadPoolExecutor(1, "sqlite-write")
        self._reading = ThreadPoolExecutor(_READERS, "sqlite-read")
        self._own = threading.local()
        self._readers: list[sqlite3.Connection] = []
        """Every thread's reading connection, the event loop's among them."""

    # -- writing

    async def writing(self, work: Callable[[], _T]) -> _T:
        """Run `work` on the one thread that may call `transact`; a cancelled caller still waits until it is done.

        A lock that another process holds is waited for as long as the caller is not cancelled and its patience lasts;
        then `work` is tried again as a whole, and others' work in between. Who has once waited in vain waits no more.
        """
        patience = Patience(sqlite_schema.BUSY_SECONDS)
        while True:
            try:
                return await self._on(self._writing, work)
            except DatabaseLocked:
                if patience.ended():
                    patience.used_up()
                    raise
            await anyio.sleep(_PAUSE)

    def transact(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` in a transaction: committed as a whole or not at all. Raises `StoreError`."""
        with explained(self.file, "written"):
            connection = self._open_writer().connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException as error:
                self._undo(connection, error)
                raise
            self.commits += 1
            return result

    def empty_log(self) -> None:
        """Give the disk back what the write-ahead log takes, as far as others let it. Raises `StoreError`."""
        with explained(self.file, "written"), contextlib.suppress(sqlite3.OperationalError):
            self._open_writer().connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open_writer(self) -> _Writer:
        writer = self._writer
        if writer is None:
            writer = self._writer = _Writer(open_for_writing(self.file), self.file)
        elif not writer.is_in_place():
            raise StoreError(f"{self.file}: the session database was removed or replaced while it was in use; put it "
                             f"back, or start again", file=str(self.file))
        return writer

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Leave no transaction open, and begin with a new connection where this one may have become useless."""
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _LASTING:
            self._close_writer()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # -- the device

    async def sync(self, commit: int) -> None:
        """Wait until the device has everything up to `commit` (a value of `commits`). Raises `StoreError`.

        Commits are ordered but not synced; one sync serves all who wait at the same time.
        """
        async with self._syncing:
            if self._synced < commit:
                upto = self.commits
                with explained(self.file, "synced"):
                    await in_thread(self._sync_log)
                self._synced = upto

    def _sync_log(self) -> None:
        """The write-ahead log has every commit that was not synced into the main file when that log began anew."""
        writer = self._writer
        if writer is not None:
            writer.sync()
            return
        with contextlib.suppress(FileNotFoundError):  # removed: everything is in the main file, and that is synced
            log = os.open(f"{self.file}-wal", os.O_RDWR | os.O_CLOEXEC)
            try:
                sync_data(log)
            finally:
                os.close(log)

    # -- reading

    async def reading(self, work: Reading[_T], missing: Callable[[], _T]) -> _T:
        """Run `work` on a reading thread, in one snapshot of the database; `missing` if there is no database.

        Raises `StoreError`.
        """
        return await self._on(self._reading, lambda: self.read_here(work, missing))

    def read_here(self, work: Reading[_T], missing: Callable[[], _T]) -> _T:
        """The same on the calling thread: for short reads of the event loop itself."""
        with explained(self.file, "read"):
            connection = self._reader()
            if connection is None:
                return missing()
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _reader(self) -> sqlite3.Connection | None:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = open_for_reading(self.file)
            if connection is not None:
                self._own.connection = connection
                self._readers.append(connection)
        return connection

    def check(self) -> None:
        """Refuse a file that cannot become the database. Short, and looks only once. Raises `StoreError`."""
        if not self._looked:
            with explained(self.file, "opened"):
                self._looked = look(self.file) is Found.OURS

    # -- the end

    async def aclose(self) -> None:
        """Move the log into the main file and close everything. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        await in_thread(self._end)

    def _end(self) -> None:
        self._reading.shutdown()
        for connection in self._readers:
            connection.close()
        self._readers.clear()
        self._writing.shutdown()
        self._close_writer()

    async def _on(self, threads: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        if self._closed:
            raise StoreError(f"{self.file}: the session store was closed", file=str(self.file))
        future = asyncio.get_running_loop().run_in_executor(threads, work)
        with anyio.CancelScope(shield=True):
            await asyncio.wait([future])
        return future.result()


_LASTING = frozenset({
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
})  # fmt: skip
"""Failures (primary result codes) that a connection may not get over by itself when their cause is gone."""


class _Writer:
    """The writing connection, which file it has open, and that file's write-ahead log for syncing."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self.connection = connection
        self._file = file
        self._place = file.stat()
        self._log: int | None = None
        self._closing = threading.Lock()
        """The log must not be closed by the writing thread while another one syncs it."""

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._place, self._file.stat())
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """Raises `OSError`."""
        with self._closing:
            if self._log is None:
                self._log = os.open(f"{self._file}-wal", os.O_RDWR | os.O_CLOEXEC)
                sync_directories(self._file.parent, 1)
            sync_data(self._log)

    def close(self) -> None:
        """The last connection of all processes moves the log into the main file, syncs that and removes the log."""
        with self._closing:
            if self._log is not None:
                os.close(self._log)
                self._log = None
            self.connection.close()

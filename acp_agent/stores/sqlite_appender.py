"""The writer of one session's log in the SQLite store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from sqlite3 import Connection

import anyio

from acp_agent.errors import StoreError
from acp_agent.session.codec import Record
from acp_agent.session.events import AssistantChunk, Chunk, Event, SessionHeader
from acp_agent.stores.patience import Patience
from acp_agent.stores.sqlite_blobs import drop_unused_blobs
from acp_agent.stores.sqlite_database import Database
from acp_agent.stores.sqlite_errors import id_taken
from acp_agent.stores.sqlite_places import check_free
from acp_agent.stores.sqlite_rows import insert_events, insert_session, title_of
from acp_agent.stores.sqlite_trees import OpenTree

CLOSING_SECONDS = 5.0
"""How long a log that is given up waits for a lock: what it still has is either told already not to be stored, or the
end of a turn, which the next one to open it can close.
"""


class SqliteAppender:
    """Takes events in memory and stores them, all or none, in one transaction for each `write`.

    A new session's row appears in the transaction of its first events.
    """

    def __init__(
        self, database: Database, header: SessionHeader, tree: OpenTree, ordinal: int | None, stored: int,
        closed: Callable[[SqliteAppender], None],
    ) -> None:
        """`ordinal` is a new session's place in its tree (see `OpenTree`), None for one that is stored; `stored` are
        the events stored already. `closed` is told once.
        """
        self.header = header
        self.tree = tree
        self.taken = False
        """Whether another log of this id is open here already."""
        self._database = database
        self._ordinal = ordinal
        self._next = self._stored = stored
        self._pending: list[Event | Record] = []
        self._commit = 0
        self._told_closed = closed
        self._closed = False

    def append(self, event: Event) -> None:
        self._check(event.seq)
        self._next += 1
        self._pending.append(event)

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        self._check(first)
        self._next += len(chunks)
        self._pending += [
            Event(seq, time, AssistantChunk(turn, step, chunk)) for seq, chunk in enumerate(chunks, first)
        ]

    def _check(self, seq: int) -> None:
        if self._closed:
            raise StoreError(f"session {self.header.id!r}: it is closed, and takes no more events")
        if seq != self._next:
            raise StoreError(f"session {self.header.id!r}: event {seq} where {self._next} was expected")

    def begin_with(self, records: Sequence[Record]) -> None:
        """Have a new log begin with these records, the first ones of another."""
        if self._next:
            raise StoreError(f"session {self.header.id!r}: it has events already and cannot begin with another's")
        self._pending.extend(records)
        self._next = len(records)

    async def write(self) -> None:
        if not self._closed:
            await self._write()

    async def sync(self) -> None:
        if not self._closed:
            await self._write()
            await self._database.sync(self._commit)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True), Patience(CLOSING_SECONDS).rules():
            try:
                await self._write()
                await self._database.sync(self._commit)
            finally:
                await self._forget_blobs()
                self._told_closed(self)

    async def _forget_blobs(self) -> None:
        """Leave no content behind of a tree that is given up before it had a session."""
        tree, database = self.tree, self._database
        if tree.has_blobs and not tree.stored and tree.users == 1:
            with contextlib.suppress(StoreError):
                await database.writing(
                    lambda: database.transact(lambda connection: drop_unused_blobs(connection, tree.root))
                )

    async def _write(self) -> None:
        if self._pending:
            await self._database.writing(self._store)

    # -- on the writing thread

    def _store(self) -> None:
        batch = self._pending[:]
        if not batch:
            return
        if self.taken:
            raise id_taken(self._database.file, self.header.id)
        self.tree.hold()
        try:
            self._database.transact(lambda connection: self._insert(connection, batch))
        except StoreError:
            self.tree.let_go_if_new()
            raise
        self.tree.stored = True
        del self._pending[: len(batch)]
        self._ordinal = None
        self._stored += len(batch)
        self._commit = self._database.commits

    def _insert(self, connection: Connection, batch: Sequence[Event | Record]) -> None:
        session_id, last = self.header.id, batch[-1].time
        title = next((title for event in reversed(batch) if (title := title_of(event)) is not None), None)
        if self._ordinal is not None:
            check_free(connection, self._database.file, session_id, tree_open=self.tree.stored)
            insert_session(connection, self.header, self.tree.place(connection, self._ordinal), None, title, last)
        else:
            self._check_next(connection)
            connection.execute("UPDATE sessions SET updated_at = ?, title = coalesce(?, title) WHERE id = ?",
                               (last, title, session_id))
        insert_events(connection, session_id, batch)

    def _check_next(self, connection: Connection) -> None:
        ((stored,),) = connection.execute(
            "SELECT coalesce(max(seq), -1) + 1 FROM events WHERE session_id = ?", (self.header.id,)
        )
        if stored != self._stored:
            raise StoreError(f"{self._database.file}: session {self.header.id!r} has {stored} stored events, but "
                             f"{self._stored} were stored from here: something else wrote to it, or deleted it")

"""A session of the SQLite store as the log it would be in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

from acp_agent.ids import SessionId
from acp_agent.session.codec import Packer, Record
from acp_agent.stores.pace import Pace
from acp_agent.stores.sqlite_errors import damaged
from acp_agent.stores.sqlite_places import find
from acp_agent.stores.sqlite_reading import EVENTS, check_end, counted
from acp_agent.stores.sqlite_rows import RowReader

PIECE = 1 << 18
"""Bytes of data after which a piece of an export ends."""


class Exporter:
    """Gives a session's log in pieces, each read by itself, so that nobody waits for whoever takes them slowly.

    Checked as a whole before, so that there is no piece of a damaged log. A log only grows, so the pieces are those of
    the log as it was then. Events of unknown types are given as they stand: a newer version may read them.
    """

    def __init__(self, file: Path, session_id: SessionId) -> None:
        self._file = file
        self._session_id = session_id
        self._reader = self._new_reader()
        self._begun = False
        self._count = 0
        self._packer = Packer()

    def _new_reader(self) -> RowReader:
        return RowReader(self._file, self._session_id, refuse_unknown=False)

    def check(self, connection: Connection) -> None:
        """Look through all of it; comes first. Raises `SessionNotFound` and `LogDamaged`."""
        find(connection, self._file, self._session_id)
        reader = self._new_reader()
        self._count = counted(connection, self._file, self._session_id)
        for _ in self._records(connection, reader):
            pass
        check_end(connection, self._file, self._session_id)

    def piece(self, connection: Connection) -> bytes | None:
        """The next lines, perhaps none; None after the last ones. Raises `SessionNotFound` and `LogDamaged`."""
        stored = find(connection, self._file, self._session_id)
        if not self._begun:
            self._begun = True
            return stored.line
        if self._reader.next == self._count:
            return None
        size = 0
        for record, length in self._records(connection, self._reader):
            self._packer.add_record(record)
            size += length
            if size >= PIECE:
                break
        return self._packer.take_all() if self._reader.next == self._count else self._packer.take()

    def _records(self, connection: Connection, reader: RowReader) -> Iterator[tuple[Record, int]]:
        """The records that `reader` comes to, checked, each with the length of its data."""
        pace = Pace()
        for row in connection.execute(EVENTS, (self._session_id, reader.next, self._count)):
            record = reader.record(row)
            reader.event(record)
            if b"\n" in row[3]:
                raise damaged(self._file, self._session_id, record.seq, "its data is not in one line")
            yield record, len(row[3])
            pace.breathe()
        if reader.next != self._count:
            raise damaged(self._file, self._session_id, reader.next, "it has vanished")

"""Making a damaged session of the SQLite store readable again: looked through, backed up, then replaced at once."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

import msgspec

from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.stores.files import sync_directories
from acp_agent.stores.mending import Found, Mended, found_record, mend
from acp_agent.stores.sqlite_errors import bad_header
from acp_agent.stores.sqlite_places import find
from acp_agent.stores.sqlite_reading import missing_end
from acp_agent.stores.sqlite_rows import RECORD_COLUMNS, RowReader, insert_events, title_of


def mended(connection: Connection, file: Path, session_id: SessionId) -> Mended:
    """What can be made of a session's rows. Raises `SessionNotFound`, and `LogDamaged` when that is nothing."""
    header = find(connection, file, session_id).header
    found = list(_found(connection, file, session_id))
    if not found:
        raise bad_header(file, session_id, "it has no events, so there is nothing to keep")
    log = mend(header, found, f"{file}, session {session_id!r}")
    missing = missing_end(connection, session_id)
    if missing is None or log.changes:
        return log
    return msgspec.structs.replace(log, changes=[f"event {len(log.records)}: {missing}; left out"])


def _found(connection: Connection, file: Path, session_id: SessionId) -> Iterator[Found]:
    reader = RowReader(file, session_id)
    for row in connection.execute(f"SELECT {RECORD_COLUMNS} FROM events WHERE session_id = ? ORDER BY seq",
                                  (session_id,)):
        place = f"row {row[0]}"
        if b"\n" in row[3]:
            yield Found(place, reason="has data that is not in one line")
            continue
        try:
            yield found_record(place, reader.any_record(row), str(file))
        except LogDamaged as error:
            yield Found(place, reason=f"is not a record: {error.message.removeprefix(f'{file}: ')}")


def back_up(connection: Connection, file: Path) -> Path:
    """Copy the whole database as it is to a new file beside it, for its owner alone. Raises `OSError`."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while True:
        backup = file.with_name(f"{file.name}-{stamp}" + (f"-{number}" if number else "") + ".backup")
        try:
            os.close(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            break
        except FileExistsError:
            number += 1
    try:
        target = sqlite3.connect(backup)
        try:
            connection.backup(target)
        finally:
            target.close()
        sync_directories(backup.parent, 1)
    except BaseException:
        backup.unlink()
        raise
    return backup


def replace_events(connection: Connection, session_id: SessionId, log: Mended) -> None:
    """Put mended events in the place of what a session has."""
    title = next((title for record in reversed(log.records) if (title := title_of(record)) is not None), None)
    connection.execute("DELETE FROM events WHERE session_id = ?", (session_id,))
    insert_events(connection, session_id, log.records)
    connection.execute("UPDATE sessions SET title = ?, updated_at = coalesce(?, created_at) WHERE id = ?",
                       (title, log.records[-1].time if log.records else None, session_id))

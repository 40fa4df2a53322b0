"""Reading sessions from the SQLite store. Every function is for a reading thread: one connection, one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection, DataError

import msgspec
from msgspec import UNSET, Struct

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.codec import Record
from acp_agent.session.events import AssistantChunk, Event, Finish, SessionHeader
from acp_agent.session.seed import check_seed
from acp_agent.stores.base import StoredLog
from acp_agent.stores.pace import Pace
from acp_agent.stores.sqlite_errors import bad_header, damaged
from acp_agent.stores.sqlite_places import find
from acp_agent.stores.sqlite_rows import RECORD_COLUMNS, RowReader, chunks_of

# ---------------------------------------------------------------- whole logs


def read_log(connection: Connection, file: Path, session_id: SessionId) -> StoredLog:
    """Every event. Raises `SessionNotFound` and `LogDamaged`."""
    stored = find(connection, file, session_id)
    events = list(_events(connection, file, session_id, 0, None))
    check_end(connection, file, session_id)
    length = stored.header.seed_length
    if length is not UNSET:
        types = [event.body.type for event in events[max(length - 1, 0) : length + 1]]
        before = types.pop(0) if length and types else None
        _check_seed(file, stored.header, len(events), before, types[0] if types else None)
    return StoredLog(stored.header, events)


def read_from(connection: Connection, file: Path, session_id: SessionId, seq: int) -> list[Event]:
    """The events from `seq` on. The whole log is looked through for gaps."""
    find(connection, file, session_id)
    counted(connection, file, session_id)
    check_end(connection, file, session_id)
    return list(_events(connection, file, session_id, max(seq, 0), None))


def read_prefix(
    connection: Connection, file: Path, session_id: SessionId, cut: int
) -> tuple[list[Record], list[Event]]:
    """The first `cut` events, as they are stored and as they are. Raises `StoreError` when there are fewer."""
    find(connection, file, session_id)
    reader, pace = RowReader(file, session_id), Pace()
    records: list[Record] = []
    events: list[Event] = []
    for row in connection.execute(EVENTS, (session_id, 0, cut)):
        record = reader.record(row)
        events.append(reader.event(record))
        records.append(record)
        pace.breathe()
    if len(records) < cut:
        raise StoreError(f"{file}: session {session_id!r} cannot be forked at event {cut}: it has {len(records)} "
                         "events", sessionId=session_id)
    return records, events


EVENTS = f"SELECT {RECORD_COLUMNS} FROM events WHERE session_id = ? AND seq >= ? AND seq < ? ORDER BY seq"
_END = 2**63 - 1


def _events(connection: Connection, file: Path, session_id: SessionId, start: int, end: int | None) -> Iterator[Event]:
    reader, pace = RowReader(file, session_id, start), Pace()
    for row in connection.execute(EVENTS, (session_id, start, _END if end is None else end)):
        yield reader.event(reader.record(row))
        pace.breathe()


def counted(connection: Connection, file: Path, session_id: SessionId) -> int:
    """How many events there are. Raises `LogDamaged` where one is missing."""
    count, first, last = connection.execute(
        "SELECT count(*), coalesce(min(seq), 0), coalesce(max(seq), -1) FROM events WHERE session_id = ?", (session_id,)
    ).fetchone()
    if first == 0 and last == count - 1:
        return int(count)
    missing = connection.execute(
        "SELECT min(place) FROM (SELECT row_number() OVER (ORDER BY seq) - 1 AS place, seq FROM events "
        "WHERE session_id = ?) WHERE place <> seq", (session_id,)
    ).fetchone()[0]
    raise damaged(file, session_id, missing, f"it is missing; {count} events are stored and the last one is {last}")


def check_end(connection: Connection, file: Path, session_id: SessionId) -> None:
    """Raises `LogDamaged` where a session's row speaks of events that are not there any more."""
    missing = missing_end(connection, session_id)
    if missing is None:
        return
    count = counted(connection, file, session_id)
    if count:
        raise damaged(file, session_id, count, missing)
    raise bad_header(file, session_id, missing)


def missing_end(connection: Connection, session_id: SessionId) -> str | None:
    """How a session's row contradicts the end of what is stored of it; None when it does not.

    A row's `updated_at` is the newest event's time, or `created_at` where there never was one.
    """
    ((title, created_at, updated_at),) = connection.execute(
        "SELECT title, created_at, updated_at FROM sessions WHERE id = ?", (session_id,)
    )
    newest = connection.execute(
        "SELECT time FROM events WHERE session_id = ? ORDER BY seq DESC LIMIT 1", (session_id,)
    ).fetchone()
    if newest is None:
        return None if title is None and updated_at == created_at else "all of its events are missing"
    return None if newest[0] == updated_at else (
        f"it is missing, with all that follow: the newest event stored is of time {newest[0]}, but the session was "
        f"written to at {updated_at}")


def _check_seed(file: Path, header: SessionHeader, count: int, before: str | None, at: str | None) -> None:
    try:
        check_seed(header, count, before, at, str(file))
    except LogDamaged as error:
        raise bad_header(file, header.id, error.message.removeprefix(f"{file}: ")) from None


# ---------------------------------------------------------------- for continuation


class Settled(Struct):
    """What `stores.base.Continuation` says of a session."""

    header: SessionHeader
    events: list[Event]
    count: int
    time: int


SLICE, SMALL_SLICE = 1024, 256
"""Events that are looked at together; the small number while somebody wants the interpreter."""

_RANGE = "session_id = ? AND seq >= ? AND seq < ?"
_OTHERS = f"SELECT {RECORD_COLUMNS} FROM events WHERE {_RANGE} AND type <> 'assistant/chunk' ORDER BY seq"
_CHUNKS = (
    # Most of a log are chunks that nobody asks for again: to fetch each by itself would take longer than to check it.
    "SELECT count(*), group_concat(data, char(10)) FROM "
    f"(SELECT data FROM events WHERE {_RANGE} AND type = 'assistant/chunk' ORDER BY seq)"
)
_THESE = f"SELECT {RECORD_COLUMNS} FROM events WHERE session_id = ? AND seq IN (SELECT value FROM json_each(?))"


def settle(connection: Connection, file: Path, session_id: SessionId) -> Settled:
    """A session for continuation. Raises `SessionNotFound` and `LogDamaged`."""
    header = find(connection, file, session_id).header
    reader, pace = RowReader(file, session_id), Pace()
    count = _expected(connection, file, session_id)
    events: list[Event] = []
    end = 0
    while end < count:
        start, end = end, min(end + (SLICE if pace.calm else SMALL_SLICE), count)
        found = _settled_at_once(connection, reader, start, end)
        events += _settled_slowly(connection, file, session_id, start, end) if found is None else found
        pace.breathe()
    length = header.seed_length
    if length is not UNSET:
        _check_seed(file, header, count, _type_at(connection, session_id, length - 1),
                    _type_at(connection, session_id, length))
    time = header.created_at
    if count:
        ((time,),) = connection.execute("SELECT time FROM events WHERE session_id = ? AND seq = ?",
                                        (session_id, count - 1))
    return Settled(header, events, count, time)


def _expected(connection: Connection, file: Path, session_id: SessionId) -> int:
    """How many events there are if none is missing. Raises `LogDamaged` where the first one is."""
    ((first, last),) = connection.execute(
        "SELECT (SELECT min(seq) FROM events WHERE session_id = ?1), "
        "(SELECT max(seq) FROM events WHERE session_id = ?1)", (session_id,)
    )
    count = 0 if last is None else int(last) + 1 if first == 0 else counted(connection, file, session_id)
    check_end(connection, file, session_id)
    return count


def _settled_at_once(connection: Connection, reader: RowReader, start: int, end: int) -> list[Event] | None:
    """The settled events of a part of a log; None where events are missing or chunks unusual. Raises `LogDamaged`."""
    place = reader.session_id, start, end
    # Not a comprehension: a traceback would keep its cursor, and with that the snapshot.
    events = list(map(reader.settled, connection.execute(_OTHERS, place)))
    try:
        ((number, data),) = connection.execute(_CHUNKS, place)
    except DataError:
        return None  # together they are longer than a text can be
    if len(events) + number != end - start:
        return None
    if not number:
        return events
    chunks = chunks_of(data, number)
    if chunks is None:
        return None
    finishes = [at for at, body in enumerate(chunks) if type(body.chunk) is Finish]
    if finishes:
        others = {event.seq for event in events}
        seqs = [seq for seq in range(start, end) if seq not in others]
        rows = connection.execute(_THESE, (reader.session_id, str([seqs[at] for at in finishes])))
        events += map(reader.settled, rows)
        events.sort(key=_seq)
    return events


_seq = attrgetter("seq")


def _settled_slowly(connection: Connection, file: Path, session_id: SessionId, start: int, end: int) -> list[Event]:
    """The same, row by row. Raises `LogDamaged`."""
    events = list(_events(connection, file, session_id, start, end))
    if len(events) != end - start:
        counted(connection, file, session_id)
    return [
        msgspec.structs.replace(event, source_event_seqs=UNSET) for event in events
        if not isinstance(event.body, AssistantChunk) or isinstance(event.body.chunk, Finish)
    ]


def _type_at(connection: Connection, session_id: SessionId, seq: int) -> str | None:
    row = connection.execute("SELECT type FROM events WHERE session_id = ? AND seq = ?", (session_id, seq)).fetchone()
    return None if row is None else row[0].decode(errors="replace")

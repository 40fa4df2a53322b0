"""Events and headers as rows of the SQLite store, and back. Rows are read as bytes where they hold text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.session.codec import Record, decode_header, encode_header, to_event, to_record
from acp_agent.session.events import BODIES, KNOWN_TYPES, AssistantChunk, Event, SessionHeader, SessionTitle, SurfaceOp
from acp_agent.session.records import check_utf8, decode_at_once
from acp_agent.stores.sqlite_errors import bad_header, damaged
from acp_agent.text import scrub_surrogates

# ---------------------------------------------------------------- events: writing

_encode = msgspec.json.Encoder().encode
_Row: TypeAlias = tuple[str, int, str, int, str]
_COLUMNS = "session_id, seq, type, time, data"
_SIZES = (256, 64, 16, 4, 1)
"""Rows that one statement inserts: few statements, for each of them is prepared once, and few calls, for each of
them gives up the interpreter and has to get it back."""

_INSERTS = {
    size: f"INSERT INTO events ({_COLUMNS}) VALUES " + ", ".join(["(?, ?, ?, ?, ?)"] * size) for size in _SIZES
}
_INSERT_WHOLE = (f"INSERT INTO events ({_COLUMNS}, source_event_seqs, surface_op, ignorable) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?)")


def insert_events(connection: Connection, session_id: SessionId, events: Iterable[Event | Record]) -> None:
    """Store events, one a row; their order and numbers are the caller's matter."""
    plain: list[_Row] = []
    chunk_type = AssistantChunk.type
    for event in events:
        if event.source_event_seqs is UNSET and event.surface_op is UNSET and event.ignorable is UNSET:
            if type(event) is Event and type(event.body) is AssistantChunk:
                plain.append((session_id, event.seq, chunk_type, event.time, _chunk_text(event)))
            else:
                plain.append(_row(session_id, _record(event)))
            if len(plain) == _SIZES[0]:
                _insert_plain(connection, plain)
                plain = []
        else:
            record = _record(event)
            connection.execute(_INSERT_WHOLE, (*_row(session_id, record), *_extras(record)))
    _insert_plain(connection, plain)


def _insert_plain(connection: Connection, rows: list[_Row]) -> None:
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start:start + size]))
            connection.execute(_INSERTS[size], values)
            start += size


def _chunk_text(event: Event) -> str:
    """The `data` of the most frequent events, the short way."""
    try:
        return _encode(event.body).decode()
    except UnicodeEncodeError:
        return bytes(to_record(event).data).decode()


def _record(event: Event | Record) -> Record:
    return to_record(event) if isinstance(event, Event) else event


def _row(session_id: SessionId, record: Record) -> _Row:
    return session_id, record.seq, record.type, record.time, bytes(record.data).decode()


def _extras(record: Record) -> tuple[str | None, str | None, int | None]:
    return (
        None if record.source_event_seqs is UNSET else _encode(record.source_event_seqs).decode(),
        None if record.surface_op is UNSET else _encode(record.surface_op).decode(),
        None if record.ignorable is UNSET else int(record.ignorable),
    )


def title_of(event: Event | Record) -> str | None:
    """The title an event gives its session, if it is such an event."""
    if isinstance(event, Event):
        return event.body.title if isinstance(event.body, SessionTitle) else None
    if event.type != SessionTitle.type:
        return None
    try:
        return _title(event.data)
    except msgspec.MsgspecError:
        return None


_decode_title = msgspec.json.Decoder(SessionTitle).decode


def _title(data: Raw) -> str:
    return _decode_title(data).title


# ---------------------------------------------------------------- events: reading

RECORD_COLUMNS = "seq, type, time, data, source_event_seqs, surface_op, ignorable"
_names = {name.encode(): name for name in KNOWN_TYPES | frozenset(BODIES)}
_seqs = msgspec.json.Decoder(list[int]).decode
_surface_op = msgspec.json.Decoder(SurfaceOp).decode
_APPEND: SurfaceOp = "append"


class RowReader(Struct):
    """Turns the rows of one session into events: numbered from `next` on, without gaps."""

    file: Path
    session_id: SessionId
    next: int = 0
    refuse_unknown: bool = True

    def record(self, row: Sequence[Any]) -> Record:
        """The record of a row of `RECORD_COLUMNS` that is the next one. Raises `LogDamaged`."""
        seq = row[0]
        if seq < self.next:
            raise damaged(self.file, self.session_id, seq, f"it stands where event {self.next} was expected")
        if seq > self.next:
            raise damaged(self.file, self.session_id, self.next, f"it is missing; the next one stored is {seq}")
        self.next = seq + 1
        return self.any_record(row)

    def any_record(self, row: Sequence[Any]) -> Record:
        """The record of a row wherever it stands."""
        seq, kind, time, data, seqs, op, ignorable = row
        try:
            return Record(
                _names.get(kind) or kind.decode(), seq, time, Raw(data), UNSET if seqs is None else _seqs(seqs),
                UNSET if op is None else _APPEND if op == b'"append"' else _surface_op(op),
                UNSET if ignorable is None else _truth(ignorable),
            )
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise damaged(self.file, self.session_id, seq, str(error)) from None

    def event(self, record: Record) -> Event:
        """The event of a record. Raises `LogDamaged`."""
        try:
            return to_event(record, file=str(self.file), refuse_unknown=self.refuse_unknown)
        except LogDamaged as error:
            message = error.message.removeprefix(f"{self.file}: ")
            raise damaged(self.file, self.session_id, record.seq, message) from None

    def settled(self, row: Sequence[Any]) -> Event:
        """The event of a row of `RECORD_COLUMNS` wherever it stands, without its citations. Raises `LogDamaged`."""
        seq, kind, time, data, seqs, op, ignorable = row
        decode = _bodies.get(kind)
        if decode is not None and ignorable is None and (op is None or op == b'"append"'):
            try:
                if seqs is not None:
                    _seqs(seqs)
                check_utf8(data)
                return Event(seq, time, decode(data), UNSET, UNSET if op is None else _APPEND)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass  # whatever it is, the thorough way tells it
        event = self.event(self.any_record(row))
        return Event(seq, time, event.body, UNSET, event.surface_op, event.ignorable)


_bodies = {name.encode(): msgspec.json.Decoder(body).decode for name, body in BODIES.items()}
_chunks = msgspec.json.Decoder(AssistantChunk).decode_lines


def chunks_of(data: bytes, count: int) -> list[AssistantChunk] | None:
    """The chunks in the data of so many rows, a line each; None if one of them is unusual or damaged."""
    found = decode_at_once(_chunks, data)
    return found if found is not None and len(found) == count else None


def _truth(value: int) -> bool:
    if value not in (0, 1):
        raise msgspec.ValidationError(f"ignorable is {value}, neither 0 nor 1")
    return value == 1


# ---------------------------------------------------------------- headers

HEADER_COLUMNS = ("id, root, number, version, created_at, cwd, parent_session, seed_length, origin, delegation_depth, "
                  "agent_preset, spawn_call_id, spawn_index, extra")
_INSERT_SESSION = (f"INSERT INTO sessions ({HEADER_COLUMNS}, title, updated_at) "
                   "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
_KEYS = frozenset({"type", *SessionHeader.__struct_encode_fields__})


class Place(Struct, frozen=True):
    """Where a session stands: in the tree of `root`, as its `number`-th session; the root itself is 0."""

    root: SessionId
    number: int


class SessionRow(Struct, frozen=True):
    """A stored session without its events. `line` is its header as a log's first line, newline included."""

    header: SessionHeader
    place: Place
    line: bytes


def insert_session(
    connection: Connection, header: SessionHeader, place: Place, extra: str | None, title: str | None, updated_at: int,
) -> None:
    """Store a header. `extra` is a JSON object of the keys that `SessionHeader` does not know."""
    spawn = header.spawn
    connection.execute(_INSERT_SESSION, [
        header.id, place.root, place.number, header.version, header.created_at, _text(header.cwd),
        _text(header.parent_session), _value(header.seed_length), _text(header.origin), header.delegation_depth,
        _text(header.agent_preset), *((None, None) if spawn is UNSET else (spawn.call_id, spawn.index)), extra,
        None if title is None else scrub_surrogates(title), updated_at,
    ])  # fmt: skip


def _text(value: str | UnsetType) -> str | None:
    """A text as a log's file has it: lone surrogates, which UTF-8 cannot hold, are U+FFFD."""
    return None if value is UNSET else str(scrub_surrogates(value))


def _value(value: int | UnsetType) -> int | None:
    return None if value is UNSET else value


def extra_keys(line: bytes) -> str | None:
    """What a header line holds beside the known keys, as a JSON object in the line's order; None for nothing."""
    extra = {key: value for key, value in _raw_object(line).items() if key not in _KEYS}
    return _encode(extra).decode() if extra else None


_raw_object = msgspec.json.Decoder(dict[str, Raw]).decode


class _Spawn(Struct):
    call_id: Any = msgspec.field(name="callId")
    index: Any


def session_row(file: Path, row: Sequence[Any]) -> SessionRow:
    """A stored session from its `HEADER_COLUMNS`. Raises `LogDamaged`."""
    session_id, root, number, version, created_at, *rest = row
    try:
        name, top = SessionId(session_id.decode()), SessionId(root.decode())
        columns = dict(zip(_OPTIONAL, (_decoded(value) for value in rest[:6]), strict=True))
        call_id, index, extra = _decoded(rest[6]), rest[7], rest[8]
        if call_id is not None:
            columns["spawn"] = _Spawn(call_id, index)
        known = {"type": "session", "version": version, "id": name, "createdAt": created_at}
        known |= {key: value for key, value in columns.items() if value is not None}
        header = decode_header(_encode(known), str(file))
        line = encode_header(header)
        if extra is not None:
            beside = {key: value for key, value in _raw_object(extra).items() if key not in _KEYS}
            line = line[:-2] + b"," + _encode(beside)[1:] + b"\n" if beside else line
            decode_header(line[:-1], str(file))
        wrong = wrong_place(name, top, number, is_child=header.parent_session is not UNSET)
        if wrong is not None:
            raise LogDamaged(wrong, file=str(file), line=1)
    except (LogDamaged, msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = error.message.removeprefix(f"{file}:1: ") if isinstance(error, LogDamaged) else str(error)
        raise bad_header(file, _readable(session_id), message) from None
    return SessionRow(header, Place(top, number), line)


def wrong_place(session_id: SessionId, root: SessionId, number: int, *, is_child: bool) -> str | None:
    """What is wrong with a session's place: a root is the first of its own tree, and all others have parents."""
    if (session_id == root) == (number == 0) and (number == 0 or (number > 0 and is_child)):
        return None
    where = f"number {number}" if number else "its root"
    return f"its row places it in the tree of {root!r} as {where}, where it cannot be"


_OPTIONAL = ("cwd", "parentSession", "seedLength", "origin", "delegationDepth", "agentPreset")


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _readable(session_id: bytes) -> SessionId:
    return SessionId(session_id.decode(errors="replace"))


"""Rows of a log as events (format reference 1.3, 1.6): checked, numbered, and for a continuation only what settled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged, ProjectedLog
from acp_agent.session.events import AssistantChunk, Event, Finish, Opaque, SurfaceOp
from acp_agent.session.records import (
    MAX_SAFE,
    TOO_DEEP,
    Record,
    UnreadableBody,
    check_utf8,
    decode_at_once,
    decode_body,
    is_time,
    no_time,
    to_record,
)
from acp_agent.session.rows import PACKED_TYPES, TOOL, TextRun, ToolRun, delta
from acp_agent.session.settling import (
    GAP_BITS,
    PACKED_LINES,
    ChunkLine,
    EventLine,
    RowLine,
    SettlingLine,
    settling_decoder,
)


class _Line(Struct, rename="camel"):
    """A body line. Complete records have `seq` and `time`; projected ones have neither."""

    type: str
    seq: int | UnsetType = UNSET
    time: int | UnsetType = UNSET
    seq0: int | UnsetType = UNSET
    time0: int | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


class _PackedLine(Struct, forbid_unknown_fields=True):
    """A packed row has these keys and no others (reference 1.6)."""

    type: str
    data: Raw
    seq0: int | UnsetType = UNSET
    time0: int | UnsetType = UNSET


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_packed = msgspec.json.Decoder(_PackedLine).decode
_text_run = msgspec.json.Decoder(TextRun).decode
_tool_run = msgspec.json.Decoder(ToolRun).decode


class Reader:
    """Turns body lines into numbered events. One reader reads one log, in order, line by line.

    Every method raises `LogDamaged` naming file and line, for the same lines and with the same words.
    """

    def __init__(self, file: str, *, first_line: int = 2, first_seq: int = 0, refuse_unknown: bool = True) -> None:
        """The first line read is `first_line` of the file, and its first event is numbered `first_seq`.

        `refuse_unknown` refuses event types that are neither known nor ignorable (reference 1.3).
        """
        self._file = file
        self._line = first_line - 1
        self._next = first_seq
        self._time = 0
        self._refuse_unknown = refuse_unknown
        self._complete: bool | None = None

    @property
    def count(self) -> int:
        """How many logical events there are up to here: the next one's number."""
        return self._next

    @property
    def projected(self) -> bool:
        """Whether the records read so far are projected ones."""
        return self._complete is False

    @property
    def time(self) -> int:
        """When the newest event read so far happened; 0 before the first and in a projected log's records."""
        return self._time

    def check_continuable(self) -> None:
        """Raises `ProjectedLog` when what was read is a recording whose records have no numbers."""
        if self.projected:
            raise ProjectedLog(file=self._file, line=2)

    def read(self, line: bytes) -> Iterator[Event]:
        """The events of the next line: one, or the members of a packed row."""
        self._line += 1
        for event, _ in self._events(line):
            yield event

    def records(self, line: bytes) -> Iterator[Record]:
        """The events of the next line as they are stored; a packed row's members as they would be stored singly."""
        self._line += 1
        for event, data in self._events(line):
            if data is None:
                yield to_record(event)
            else:
                yield Record(event.body.type, event.seq, event.time, data, event.source_event_seqs, event.surface_op,
                             event.ignorable)

    def settled(self, line: bytes) -> Event | None:
        """The event of the next line, checked as by `read`, if it matters to a continuation.

        None for chunks other than finish, packed or not; citations (`source_event_seqs`) are left out.
        """
        for event in self.settle(line + b"\n"):
            return event
        return None

    def settle(self, lines: bytes) -> list[Event]:
        """What `settled` gives of the next lines, each with its newline: some kilobytes at once are the fastest."""
        events = self._settled_at_once(lines)
        if events is not None:
            return events
        events = []
        for line in lines[:-1].split(b"\n"):
            found = self._settled_at_once(line + b"\n")
            if found is None:
                event = self._settled_slowly(line)
                found = [] if event is None else [event]
            events += found
        return events

    def _settled_at_once(self, lines: bytes) -> list[Event] | None:
        """The events of lines that are what logs are made of; None, and nothing is counted, where one is not."""
        rows = decode_at_once(settling_decoder(), lines)
        return None if rows is None else self._counted(rows)

    def _counted(self, rows: list[SettlingLine]) -> list[Event] | None:
        """Count rows in, if their sound parts make a sound whole."""
        following, time = self._next, self._time
        events: list[Event] = []
        add = events.append
        row: Any  # told apart by exact class: this is the hot path
        for row in rows:
            if row.seq != following:
                return None
            kind = type(row)
            if kind is ChunkLine:
                following += 1
                if type(row.data.chunk) is not Finish:
                    continue
                body = row.data
            elif kind in PACKED_LINES:
                count = len(row.data.pieces)
                if not _is_sound(row, count):
                    return None
                following += count
                continue
            else:
                following += 1
                body = row.data
                if type(body) is Raw:
                    body = Opaque(kind.kind, body.copy())
            add(Event(row.seq, row.time, body, UNSET, row.surface_op, row.ignorable))
        if rows:
            if self._complete is False:
                return None
            last = rows[-1]
            time = last.time if isinstance(last, EventLine) else last.time + sum(last.data.dt)
            self._complete = True
            self._line += len(rows)
            self._next, self._time = following, time
        return events

    def _settled_slowly(self, line: bytes) -> Event | None:
        self._line += 1
        found = None
        for event, _ in self._events(line):
            body = event.body
            if not isinstance(body, AssistantChunk) or isinstance(body.chunk, Finish):
                found = msgspec.structs.replace(event, source_event_seqs=UNSET)
        return found

    def _events(self, line: bytes) -> Iterator[tuple[Event, Raw | None]]:
        """The events of one line, each with its data as it stands where it stands alone."""
        try:
            check_utf8(line)
            row = _decode_line(line)
            self._check_uniform(row)
            if row.type in PACKED_TYPES:
                for event in self._unpack(_decode_packed(line)):
                    yield event, None
            else:
                yield self._single(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, UnreadableBody) as error:
            raise self._damaged(str(error)) from None
        except RecursionError:
            raise self._damaged(TOO_DEEP) from None

    def _damaged(self, message: str) -> LogDamaged:
        return LogDamaged(message, file=self._file, line=self._line)

    def _check_uniform(self, row: _Line) -> None:
        packed = row.type in PACKED_TYPES
        seq, time = (row.seq0, row.time0) if packed else (row.seq, row.time)
        complete = seq is not UNSET
        if complete != (time is not UNSET):
            raise self._damaged("a record has only one of seq and time")
        if self._complete is None:
            self._complete = complete
        elif self._complete != complete:
            raise self._damaged("some records carry seq and time and some do not; a log is one or the other")
        if complete and seq != self._next:
            raise self._damaged(f"seq {seq} where {self._next} was expected")
        if time is not UNSET and not is_time(time):
            raise self._damaged(no_time(time))

    def _single(self, row: _Line) -> tuple[Event, Raw]:
        time = 0 if row.time is UNSET else row.time
        if row.data is UNSET:
            raise self._damaged(f"the {row.type} record has no data")
        body = decode_body(row.type, row.data, self._next, ignorable=row.ignorable is True,
                           refuse_unknown=self._refuse_unknown)
        seq = self._take(1, time)
        return Event(seq, time, body, row.source_event_seqs, row.surface_op, row.ignorable), row.data

    def _take(self, count: int, time: int) -> int:
        """Number the next events; `time` is the last one's."""
        seq = self._next
        self._next += count
        self._time = time
        return seq

    def _unpack(self, row: _PackedLine) -> Iterator[Event]:
        run = _tool_run(row.data) if row.type == TOOL else _text_run(row.data)
        payload = run.args if isinstance(run, ToolRun) else run.texts
        if not payload:
            raise self._damaged("a packed row is empty")
        if len(run.dt) != len(payload) - 1:
            raise self._damaged(f"a packed row of {len(payload)} members has {len(run.dt)} gaps between them")
        call_id, name = (run.id, run.name) if isinstance(run, ToolRun) else (None, UNSET)
        start = 0 if row.time0 is UNSET else row.time0
        times = list(itertools.accumulate(run.dt, initial=start))
        if max(times) > MAX_SAFE or min(times) < -MAX_SAFE:
            raise self._damaged("a packed row's times leave the range of safe integers")
        first = self._take(len(payload), times[-1])
        for seq, (time, piece) in enumerate(zip(times, payload, strict=True), first):
            yield Event(seq, time, AssistantChunk(run.turn, run.step, delta(row.type, run.index, piece, call_id, name)))


def _is_sound(row: RowLine, count: int) -> bool:
    """Whether a packed row has what belongs to its `count` members, and all their times are safe integers."""
    return 0 < count == len(row.data.dt) + 1 and abs(row.time) + (count << GAP_BITS) <= MAX_SAFE

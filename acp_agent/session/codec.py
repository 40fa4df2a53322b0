"""Session log format 0 on disk: header line, complete records, packed rows (format reference 1.1-1.6).

Packing is canonical: runs of deltas are maximal whatever the timing of flushes, because a run that is still
open is held back until an event that cannot join it arrives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged
from acp_agent.ids import CallId
from acp_agent.session.events import (
    BODIES,
    FORMAT_VERSION,
    KNOWN_TYPES,
    AssistantChunk,
    Body,
    Event,
    Opaque,
    ReasoningDelta,
    SessionHeader,
    SurfaceOp,
    TextDelta,
    ToolCallDelta,
)
from acp_agent.text import scrub_surrogates

MAX_SAFE = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

MIN_RUN = 3
"""A shorter run of deltas stays as single records."""


class _Record(Struct, rename="camel"):
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


class _Line(Struct, rename="camel"):
    type: str
    seq: int
    time: int
    data: Any
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


class _PackedRecord(Struct, forbid_unknown_fields=True):
    """A packed row has these keys and no others (reference 1.6)."""

    type: str
    data: Raw
    seq0: int | UnsetType = UNSET
    time0: int | UnsetType = UNSET


class _TextRun(Struct, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[int]
    texts: list[str]


class _ToolRun(Struct, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[int]
    id: CallId
    name: str | UnsetType = UNSET
    args: list[str] = msgspec.field(default_factory=list)


class _Row(Struct):
    type: str
    seq0: int
    time0: int
    data: _TextRun | _ToolRun


PACKED_TYPES = frozenset({"text-chunks", "reasoning-chunks", "tool-call-chunks"})
"""Tags of packed rows; without a slash, so that they never collide with event types."""

_encode = msgspec.json.Encoder().encode


def encode_line(value: Any) -> bytes:
    """One JSON line, newline included. Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value) + b"\n"
    except UnicodeEncodeError:
        return _encode(scrub_surrogates(msgspec.to_builtins(value))) + b"\n"


def encode_header(header: SessionHeader) -> bytes:
    """A log's first line."""
    return encode_line(header)


def encode_event(event: Event) -> bytes:
    """One complete record."""
    body = event.body
    data: Any = body.raw if isinstance(body, Opaque) else body
    return encode_line(
        _Line(body.type, event.seq, event.time, data, event.source_event_seqs, event.surface_op, event.ignorable)
    )


# ---------------------------------------------------------------- packing

_TEXT: Final = "text-chunks"
_REASONING: Final = "reasoning-chunks"
_TOOL: Final = "tool-call-chunks"
_Tag = Literal["text-chunks", "reasoning-chunks", "tool-call-chunks"]


class _Run(Struct):
    """A run of deltas that is still open: what its members share, and what each of them has."""

    tag: _Tag
    turn: int
    step: int
    index: int
    id: CallId | None
    name: str | UnsetType
    seq: int
    times: list[int] = []
    pieces: list[str] = []

    def takes(self, tag: _Tag, body: AssistantChunk, index: int, seq: int) -> bool:
        """Whether the next delta belongs to this run."""
        return (
            tag == self.tag and index == self.index and seq == self.seq + len(self.pieces)
            and body.turn == self.turn and body.step == self.step
        )  # fmt: skip

    def rows(self) -> list[bytes]:
        """The run as one packed row, or as single records when it is short."""
        if len(self.pieces) < MIN_RUN:
            return [encode_event(event) for event in self._events()]
        dt = [later - earlier for earlier, later in itertools.pairwise(self.times)]
        row: _TextRun | _ToolRun
        if self.id is None:
            row = _TextRun(self.turn, self.step, self.index, dt, self.pieces)
        else:
            row = _ToolRun(self.turn, self.step, self.index, dt, self.id, self.name, self.pieces)
        return [encode_line(_Row(self.tag, self.seq, self.times[0], row))]

    def _events(self) -> Iterator[Event]:
        for offset, (time, piece) in enumerate(zip(self.times, self.pieces, strict=True)):
            chunk = _delta(self.tag, self.index, piece, self.id, self.name)
            yield Event(self.seq + offset, time, AssistantChunk(self.turn, self.step, chunk))


class Packer:
    """Collects events and gives them back as encoded rows, canonically packed."""

    def __init__(self) -> None:
        self._closed: list[bytes] = []
        self._run: _Run | None = None

    def add(self, event: Event) -> None:
        """Take the next event of the log."""
        body = event.body
        if type(body) is AssistantChunk and _packable(event):
            chunk = body.chunk
            if type(chunk) is TextDelta:
                self._extend(_TEXT, event, body, chunk.index, chunk.text)
                return
            if type(chunk) is ReasoningDelta:
                self._extend(_REASONING, event, body, chunk.index, chunk.text)
                return
            if type(chunk) is ToolCallDelta:
                self._extend(_TOOL, event, body, chunk.index, chunk.arguments_delta, chunk.id, chunk.name)
                return
        self._close()
        self._closed.append(encode_event(event))

    def _extend(
        self, tag: _Tag, event: Event, body: AssistantChunk, index: int, piece: str,
        call_id: CallId | None = None, name: str | UnsetType = UNSET,
    ) -> None:
        run = self._run
        if run is None or not run.takes(tag, body, index, event.seq) or run.id != call_id or run.name != name:
            self._close()
            run = self._run = _Run(tag, body.turn, body.step, index, call_id, name, event.seq)
        run.times.append(event.time)
        run.pieces.append(piece)

    def take(self) -> bytes:
        """The rows that no later event can change; an open run stays."""
        rows = b"".join(self._closed)
        self._closed.clear()
        return rows

    def take_all(self) -> bytes:
        """Every row, closing an open run: only for a log that ends here."""
        self._close()
        return self.take()

    def _close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._closed.extend(run.rows())


def _packable(event: Event) -> bool:
    """A packed member has no room for what only some records carry (reference 1.6)."""
    return event.ignorable is UNSET and event.surface_op is UNSET and event.source_event_seqs is UNSET


def pack(events: list[Event]) -> bytes:
    """All events as canonical rows."""
    packer = Packer()
    for event in events:
        packer.add(event)
    return packer.take_all()


# ---------------------------------------------------------------- reading

_record = msgspec.json.Decoder(_Record).decode
_packed_record = msgspec.json.Decoder(_PackedRecord).decode
_text_run = msgspec.json.Decoder(_TextRun).decode
_tool_run = msgspec.json.Decoder(_ToolRun).decode
_bodies = {name: msgspec.json.Decoder(cls).decode for name, cls in BODIES.items()}
_header = msgspec.json.Decoder(SessionHeader).decode


class _HeaderProbe(Struct, rename="camel"):
    type: Any = None
    version: Any = None
    sandbox_mode: Any = UNSET
    approval_policy: Any = UNSET


_probe = msgspec.json.Decoder(_HeaderProbe).decode


def decode_header(line: bytes, file: str) -> SessionHeader:
    """A log's first line, as written in `file`.

    Raises `LogDamaged`; another format version is refused before any other shape is looked at (reference 1.2).
    """
    try:
        probe = _probe(line)
        if probe.type != "session":
            raise LogDamaged("the first line is not a session header", file=file, line=1)
        _check_version(probe.version, file)
        for key, value in (("sandboxMode", probe.sandbox_mode), ("approvalPolicy", probe.approval_policy)):
            if value is not UNSET:
                raise LogDamaged(f"the header key {key!r} was retired; this log cannot be read", file=file, line=1)
        header = _header(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogDamaged(f"the session header is malformed: {error}", file=file, line=1) from None
    for name, number in (("createdAt", header.created_at), ("delegationDepth", header.delegation_depth),
                         ("seedLength", header.seed_length)):
        if isinstance(number, int) and number < 0:
            raise LogDamaged(f"the header's {name} is negative ({number})", file=file, line=1)
    if not header.id:
        raise LogDamaged("the header's id is empty", file=file, line=1)
    return header


def _check_version(version: Any, file: str) -> None:
    if version == FORMAT_VERSION and isinstance(version, int) and not isinstance(version, bool):
        return
    newer = isinstance(version, int) and version > FORMAT_VERSION
    advice = "upgrade acp-replay to read it" if newer else "there is no way to upgrade it"
    raise LogDamaged(f"log format {version!r} is not supported (this build reads {FORMAT_VERSION}); {advice}",
                     file=file, line=1)


class Reader:
    """Turns body lines into numbered events. One reader reads one log, in order."""

    def __init__(self, file: str, *, first_line: int = 2, refuse_unknown: bool = True) -> None:
        """`refuse_unknown` refuses event types that are neither known nor ignorable (reference 1.3)."""
        self._file = file
        self._line = first_line - 1
        self._next = 0
        self._refuse_unknown = refuse_unknown
        self._complete: bool | None = None

    @property
    def count(self) -> int:
        """How many logical events were read so far."""
        return self._next

    def read(self, line: bytes) -> Iterator[Event]:
        """The events of the next line: one, or the members of a packed row.

        Raises `LogDamaged` naming file and line.
        """
        self._line += 1
        try:
            record = _record(line)
            self._check_uniform(record)
            if record.type in PACKED_TYPES:
                yield from self._unpack(_packed_record(line))
            else:
                yield self._single(record)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None
        except RecursionError:
            raise self._damaged("the record is nested too deeply to be read") from None

    def _damaged(self, message: str) -> LogDamaged:
        return LogDamaged(message, file=self._file, line=self._line)

    def _check_uniform(self, record: _Record) -> None:
        packed = record.type in PACKED_TYPES
        seq, time = (record.seq0, record.time0) if packed else (record.seq, record.time)
        complete = seq is not UNSET
        if complete != (time is not UNSET):
            raise self._damaged("a record has only one of seq and time")
        if self._complete is None:
            self._complete = complete
        elif self._complete != complete:
            raise self._damaged("some records carry seq and time and some do not; a log is one or the other")
        if complete and seq != self._next:
            raise self._damaged(f"seq {seq} where {self._next} was expected")

    def _single(self, record: _Record) -> Event:
        seq = self._take(1)
        time = 0 if record.time is UNSET else record.time
        if record.data is UNSET:
            raise self._damaged(f"the {record.type} record has no data")
        body = self._body(record, record.data, seq)
        return Event(seq, time, body, record.source_event_seqs, record.surface_op, record.ignorable)

    def _body(self, record: _Record, data: Raw, seq: int) -> Body | Opaque:
        decode = _bodies.get(record.type)
        if decode is not None:
            return decode(data)
        if self._refuse_unknown and record.type not in KNOWN_TYPES and record.ignorable is not True:
            raise self._damaged(f"unknown event type {record.type!r} at seq {seq}; a newer version may read it")
        return Opaque(record.type, data.copy())

    def _take(self, count: int) -> int:
        seq = self._next
        self._next += count
        return seq

    def _unpack(self, record: _PackedRecord) -> Iterator[Event]:
        run = _tool_run(record.data) if record.type == _TOOL else _text_run(record.data)
        payload = run.args if isinstance(run, _ToolRun) else run.texts
        if not payload:
            raise self._damaged("a packed row is empty")
        if len(run.dt) != len(payload) - 1:
            raise self._damaged(f"a packed row of {len(payload)} members has {len(run.dt)} gaps between them")
        call_id, name = (run.id, run.name) if isinstance(run, _ToolRun) else (None, UNSET)
        seq = self._take(len(payload))
        time = 0 if record.time0 is UNSET else record.time0
        if any(abs(moment) > MAX_SAFE for moment in itertools.accumulate(run.dt, initial=time)):
            raise self._damaged("a packed row's times leave the range of safe integers")
        for offset, piece in enumerate(payload):
            if offset:
                time += run.dt[offset - 1]
            chunk = _delta(record.type, run.index, piece, call_id, name)
            yield Event(seq + offset, time, AssistantChunk(run.turn, run.step, chunk))


def _delta(
    tag: str, index: int, piece: str, call_id: CallId | None, name: str | UnsetType
) -> TextDelta | ReasoningDelta | ToolCallDelta:
    if call_id is not None:
        return ToolCallDelta(index, call_id, name, piece)
    return TextDelta(index, piece) if tag == _TEXT else ReasoningDelta(index, piece)


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Complete lines (cut at byte 0x0A only) and what stands after the last newline."""
    *lines, rest = data.split(b"\n")
    return lines, rest

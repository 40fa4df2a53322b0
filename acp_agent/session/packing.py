"""Events as rows of a log (format reference 1.3, 1.6).

Packing is canonical: runs of deltas are maximal whatever the timing of flushes, because a run that is still
open is held back until an event that cannot join it arrives.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.ids import CallId
from acp_agent.session.events import (
    AssistantChunk,
    Chunk,
    Event,
    Opaque,
    ReasoningDelta,
    SurfaceOp,
    TextDelta,
    ToolCallDelta,
)
from acp_agent.session.records import MAX_SAFE, Record, encode_line
from acp_agent.session.rows import MIN_RUN, REASONING, TEXT, TOOL, Row, Tag, TextRun, ToolRun, delta


class _Line(Struct, rename="camel"):
    """A record whose data is not encoded yet."""

    type: str
    seq: int
    time: int
    data: Any
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


def encode_event(event: Event) -> bytes:
    """One complete record."""
    body = event.body
    data: Any = body.raw if isinstance(body, Opaque) else body
    return encode_line(
        _Line(body.type, event.seq, event.time, data, event.source_event_seqs, event.surface_op, event.ignorable)
    )


class _Run(Struct):
    """A run of deltas that is still open: what its members share, and what each of them has."""

    tag: Tag
    kind: type
    turn: int
    step: int
    index: int
    id: CallId | None
    name: str | UnsetType
    seq: int
    times: list[int]
    pieces: list[str]

    def take(self, event: Event, body: AssistantChunk) -> bool:
        """Take the next event in, if it belongs to this run."""
        chunk: Any = body.chunk
        if (
            self.kind is not type(body.chunk) or chunk.index != self.index or event.seq != self.seq + len(self.pieces)
            or body.turn != self.turn or body.step != self.step or not _packable(event)
        ):  # fmt: skip
            return False
        if self.id is None:
            self.pieces.append(chunk.text)
        elif chunk.id == self.id and chunk.name == self.name:
            self.pieces.append(chunk.arguments_delta)
        else:
            return False
        self.times.append(event.time)
        return True

    def take_chunks(self, seq: int, time: int, turn: int, step: int, chunks: Iterable[Any]) -> int:
        """Take in those of the next chunks, all of them at `time`, that belong to this run; how many that are."""
        if seq != self.seq + len(self.pieces) or turn != self.turn or step != self.step or abs(time) > _FAR:
            return 0
        kind: Any = self.kind  # its classes are told apart by it alone: this is the hot path of storing an answer
        index, pieces = self.index, list[str]()
        if self.id is None:
            for chunk in chunks:
                if type(chunk) is not kind or chunk.index != index:
                    break
                pieces.append(chunk.text)
        else:
            for chunk in chunks:
                if type(chunk) is not kind or chunk.index != index or chunk.id != self.id or chunk.name != self.name:
                    break
                pieces.append(chunk.arguments_delta)
        self.pieces += pieces
        self.times += [time] * len(pieces)
        return len(pieces)

    def rows(self) -> list[bytes]:
        """The run as one packed row, or as single records when it is short."""
        if len(self.pieces) < MIN_RUN:
            return [encode_event(event) for event in self._events()]
        dt = list(map(operator.sub, self.times[1:], self.times))
        row: TextRun | ToolRun
        if self.id is None:
            row = TextRun(self.turn, self.step, self.index, dt, self.pieces)
        else:
            row = ToolRun(self.turn, self.step, self.index, dt, self.id, self.name, self.pieces)
        return [encode_line(Row(self.tag, self.seq, self.times[0], row))]

    def _events(self) -> Iterator[Event]:
        for offset, (time, piece) in enumerate(zip(self.times, self.pieces, strict=True)):
            chunk = delta(self.tag, self.index, piece, self.id, self.name)
            yield Event(self.seq + offset, time, AssistantChunk(self.turn, self.step, chunk))


class Packer:
    """Collects events and gives them back as encoded rows, canonically packed."""

    def __init__(self) -> None:
        self._closed: list[bytes] = []
        self._run: _Run | None = None

    def add(self, event: Event) -> None:
        """Take the next event of the log."""
        body, run = event.body, self._run
        if type(body) is AssistantChunk:
            if run is not None and run.take(event, body):
                return
            begun = _begun(event, body)
            if begun is not None:
                self._close()
                self._run = begun
                return
        self._close()
        self._closed.append(encode_event(event))

    def add_chunks(self, seq: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        """Take a batch of an answer, numbered from `seq` on: the same as `add` of an event for each chunk."""
        at = 0
        while at < len(chunks):
            run, rest = self._run, itertools.islice(chunks, at, None)
            taken = 0 if run is None else run.take_chunks(seq + at, time, turn, step, rest)
            if not taken:
                self.add(Event(seq + at, time, AssistantChunk(turn, step, chunks[at])))
            at += taken or 1

    def add_record(self, record: Record) -> None:
        """Take the next event of the log as it is stored.

        Only a delta that a packed row can hold in full loses the way it was written; all else keeps its data byte
        for byte.
        """
        body = _whole_delta(record.data) if record.type == AssistantChunk.type else None
        if body is not None:
            self.add(Event(record.seq, record.time, body, record.source_event_seqs, record.surface_op,
                           record.ignorable))
        else:
            self._close()
            self._closed.append(encode_line(record))

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


def _begun(event: Event, body: AssistantChunk) -> _Run | None:
    """A run of this event alone; None for one that cannot stand in a packed row."""
    if not _packable(event):
        return None
    chunk = body.chunk
    turn, step, seq, times = body.turn, body.step, event.seq, [event.time]
    match chunk:
        case TextDelta():
            return _Run(TEXT, TextDelta, turn, step, chunk.index, None, UNSET, seq, times, [chunk.text])
        case ReasoningDelta():
            return _Run(REASONING, ReasoningDelta, turn, step, chunk.index, None, UNSET, seq, times, [chunk.text])
        case ToolCallDelta():
            return _Run(TOOL, ToolCallDelta, turn, step, chunk.index, chunk.id, chunk.name, seq, times,
                        [chunk.arguments_delta])
        case _:
            return None


def _packable(event: Event) -> bool:
    """A packed member has no room for what only some records carry, nor for a time beyond the safe integers."""
    return (event.ignorable is UNSET and event.surface_op is UNSET and event.source_event_seqs is UNSET
            and -_FAR <= event.time <= _FAR)


_FAR = MAX_SAFE // 2
"""Between two times no farther from the epoch than this, the gap is a safe integer too."""


def pack(events: Iterable[Event]) -> bytes:
    """All events as canonical rows."""
    packer = Packer()
    for event in events:
        packer.add(event)
    return packer.take_all()


# ---------------------------------------------------------------- deltas as stored


class _WholeText(Struct, tag_field="type", tag="text-delta", forbid_unknown_fields=True):
    index: int
    text: str


class _WholeReasoning(Struct, tag_field="type", tag="reasoning-delta", forbid_unknown_fields=True):
    index: int
    text: str


class _WholeToolCall(Struct, tag_field="type", tag="tool-call-delta", forbid_unknown_fields=True, rename="camel"):
    index: int
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


class _WholeChunk(Struct, forbid_unknown_fields=True):
    """What a packed row keeps of its members; a delta with anything else in it stays a record (reference 1.6)."""

    turn: int
    step: int
    chunk: _WholeText | _WholeReasoning | _WholeToolCall


_check_whole = msgspec.json.Decoder(_WholeChunk).decode
_chunk = msgspec.json.Decoder(AssistantChunk).decode


def _whole_delta(data: Raw) -> AssistantChunk | None:
    """A stored chunk, if it is a delta that a packed row can hold in full."""
    try:
        _check_whole(data)
        return _chunk(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

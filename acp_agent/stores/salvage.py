"""What is left of a damaged log: every place in it holds records, or there is a reason why it does not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import LogDamaged, ProjectedLog
from acp_agent.session import codec
from acp_agent.session.events import SessionHeader


class Found(Struct, frozen=True):
    """What stands at one place of a log; the place is named as a person would look it up ("line 12", "row 7").

    `records` are what can be read there (a packed row's members singly), each sound by itself; `reason` says what of it
    cannot, and what became of that. A place with both is two of these.
    """

    place: str
    records: tuple[codec.Record, ...] = ()
    reason: str | None = None


class _Number(Struct):
    """Where a row says it belongs."""

    seq: int | UnsetType = UNSET
    seq0: int | UnsetType = UNSET


_number = msgspec.json.Decoder(_Number).decode

_START = re.compile(rb'\{"type":"[^"\\]{1,64}","seq0?":')
"""How a row begins. Inside of strings the quotes are escaped, so that this is no text of somebody's."""


def find_lines(data: bytes, file: str) -> tuple[SessionHeader, list[Found]]:
    """The header of a JSONL log, and what is left of its other lines in file order.

    Damage can swallow line ends, so rows are also sought behind it. Rows without numbers that begin a log get those
    they were counted by. Raises `LogDamaged` when no header can be read, for nothing else tells whose log it is, and
    where those numbers are not certain; `ProjectedLog` when no row has one: that is not damage.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    at, header = _find_header(lines, file)
    counted = _counted([(number, line) for number, line in enumerate(lines, 1) if number != at], header, file)
    found = [] if counted is None else list(counted.found)
    for number, line in enumerate(lines, 1):
        if number != at and counted is not None and number <= counted.last:
            continue
        if number != at:
            found += _look_at(f"line {number}", line, file)
        elif at > 1:
            found.append(Found(f"line {number}", reason="the header stood here; put first"))
    return header, found


class _Counted(Struct, frozen=True):
    """The rows without numbers that a log begins with, up to the line `last`."""

    found: tuple[Found, Found]
    last: int


def _counted(rows: list[tuple[int, bytes]], header: SessionHeader, file: str) -> _Counted | None:
    """Rows of a projected recording to which others were added (format reference 1.12); None for any other log.

    They are certain only where none is damaged and the first number follows from their count: else a repair would
    have to drop what may be most of a history.
    """
    reader = codec.Reader(file, first_line=1, refuse_unknown=False)
    records: list[codec.Record] = []
    first = last = 0
    damaged = False
    for number, line in rows:
        try:
            if _seq(line, file) is UNSET:
                records += reader.records(line)
                first, last = first or number, number
                continue
            seq = _rows(line, file)[0].seq
        except LogDamaged:
            damaged = True
            continue
        if not first:
            return None
        if damaged or seq != len(records):
            raise LogDamaged(f"the rows above have no seq and time, and {len(records)} events can be read in them, but "
                             f"this one is event {seq}: their numbers cannot be told, so nothing is changed; put back "
                             "a copy, or part the two by hand", file=file, line=number)
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        numbers = "0" if seq == 1 else f"0 to {seq - 1}"
        timed = tuple(msgspec.structs.replace(record, time=header.created_at) for record in records)
        what = f"without seq and time, as in a recording to replay; numbered {numbers}"
        return _Counted((Found(where, reason=what), Found(where, timed)), last)
    if first:
        raise ProjectedLog(file=file, line=first)
    return None


def found_record(place: str, record: codec.Record, file: str) -> Found:
    """A record as a store holds it, looked at by itself."""
    if not 0 <= record.seq <= codec.MAX_SAFE:
        return Found(place, reason=f"dropped, for it has the number {record.seq}")
    try:
        codec.to_event(record, file=file, refuse_unknown=False)
    except LogDamaged as error:
        return Found(place, reason=f"dropped, for it is damaged: {_without_file(error)}")
    return Found(place, (record,))


def _find_header(lines: list[bytes], file: str) -> tuple[int, SessionHeader]:
    """The header and the number of its line. Raises `LogDamaged`: about the first line, when there is none."""
    for number, line in enumerate(lines, 1):
        if line.lstrip(b"\0 ").startswith(b'{"type":"session"'):
            try:
                return number, codec.decode_header(line.strip(b"\0 "), file)
            except LogDamaged:
                if number == 1:
                    raise
    return 1, codec.decode_header(lines[0] if lines else b"", file)


def _look_at(place: str, line: bytes, file: str) -> Iterator[Found]:
    try:
        yield Found(place, _rows(line, file))
        return
    except LogDamaged as error:
        reason = _without_file(error)
    if b"\0" in line:
        reason = f"{line.count(0)} NUL bytes"
    yield from _salvaged(place, line, file, reason)


def _salvaged(place: str, line: bytes, file: str, reason: str) -> Iterator[Found]:
    """The rows in a line that is none, and one reason for the rest of it."""
    starts = [match.start() for match in _START.finditer(line)]
    lost, rows = not starts or bool(line[:starts[0]].strip(b"\0 ")), 0
    for start, end in itertools.pairwise([*starts, len(line)]):
        try:
            yield Found(place, _rows(line[start:end].strip(b"\0 "), file))
            rows += 1
        except LogDamaged:
            lost = True
    if not rows:
        yield Found(place, reason=f"dropped, for it is damaged: {reason}")
    elif lost:
        yield Found(place, reason=f"damaged ({reason}); kept only the {_rows_of(rows)} that can be read")
    else:
        yield Found(place, reason=f"damaged ({reason}); kept its {_rows_of(rows)}")


def _rows_of(count: int) -> str:
    return "row" if count == 1 else f"{count} rows"


def _rows(line: bytes, file: str) -> tuple[codec.Record, ...]:
    """A line's records, whatever is before and after it. Raises `LogDamaged`."""
    seq = _seq(line, file)
    if seq is UNSET:
        raise LogDamaged("it has no number", file=file)
    if not 0 <= seq <= codec.MAX_SAFE:
        raise LogDamaged(f"it has the number {seq}", file=file)
    records = codec.Reader(file, first_line=1, first_seq=seq, refuse_unknown=False).records(line)
    return tuple(records)


def _seq(line: bytes, file: str) -> int | UnsetType:
    """The number a line carries, if any. Raises `LogDamaged`."""
    try:
        number = _number(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(str(error), file=file) from None
    return number.seq0 if number.seq is UNSET else number.seq


def _without_file(error: LogDamaged) -> str:
    where = error.file if error.line is None else f"{error.file}:{error.line}"
    return error.message.removeprefix(f"{where}: ")

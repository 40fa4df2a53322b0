"""What is left of a damaged log: every place in it holds records, or there is a reason why it does not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import LogDamaged
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

    Damage can swallow line ends, so rows are also sought behind it. Raises `LogDamaged` when no header can be read:
    nothing else tells whose log it is.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    at, header = _find_header(lines, file)
    found: list[Found] = []
    for number, line in enumerate(lines, 1):
        if number != at:
            found += _look_at(f"line {number}", line, file)
        elif at > 1:
            found.append(Found(f"line {number}", reason="the header stood here; put first"))
    return header, found


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
    try:
        number = _number(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(str(error), file=file) from None
    seq = number.seq0 if number.seq is UNSET else number.seq
    if seq is UNSET:
        raise LogDamaged("it has no number", file=file)
    if not 0 <= seq <= codec.MAX_SAFE:
        raise LogDamaged(f"it has the number {seq}", file=file)
    records = codec.Reader(file, first_line=1, first_seq=seq, refuse_unknown=False).records(line)
    return tuple(records)


def _without_file(error: LogDamaged) -> str:
    where = error.file if error.line is None else f"{error.file}:{error.line}"
    return error.message.removeprefix(f"{where}: ")

"""One stored event with its data as it stands: what a store keeps, and how it becomes an event and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged
from acp_agent.session.events import BODIES, KNOWN_TYPES, Body, Event, Opaque, SurfaceOp
from acp_agent.text import scrub_surrogates

MAX_SAFE = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

_encode = msgspec.json.Encoder().encode
_bodies: dict[str, Callable[[Raw], Body]] = {name: msgspec.json.Decoder(cls).decode for name, cls in BODIES.items()}


class Record(Struct, frozen=True, rename="camel", gc=False):
    """A complete record (format reference 1.3). Its fields in this order are its line in a log.

    `data` may share memory with the line it was read from: keep few records, or copy it.
    """

    type: str
    seq: int
    time: int
    data: Raw
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


def is_time(number: int) -> bool:
    """Whether a number can be when something happened: epoch milliseconds that every JSON reader keeps exact."""
    return -MAX_SAFE <= number <= MAX_SAFE


def no_time(number: int) -> str:
    """What is wrong with a number that is not one."""
    return f"the time {number} leaves the range of safe integers"


class UnreadableBody(ValueError):
    """An event's data is not what its type says, or its type is unknown; the message says which."""


def encode_line(value: Any) -> bytes:
    """One JSON line, newline included. Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value) + b"\n"
    except UnicodeEncodeError:
        return _encode(scrub_surrogates(msgspec.to_builtins(value, enc_hook=msgspec.json.decode))) + b"\n"


def to_record(event: Event) -> Record:
    """An event as it is stored; lone surrogates in it become U+FFFD."""
    body = event.body
    data = body.raw if isinstance(body, Opaque) else Raw(encode_line(body)[:-1])
    return Record(body.type, event.seq, event.time, data, event.source_event_seqs, event.surface_op, event.ignorable)


def to_event(record: Record, *, file: str, line: int | None = None, refuse_unknown: bool = True) -> Event:
    """A stored event, checked as a `Reader` checks it but for its place in the log.

    Raises `LogDamaged` naming `file` and `line`. `refuse_unknown` as for `Reader`.
    """
    try:
        check_utf8(record.data)
        if not is_time(record.time):
            raise UnreadableBody(no_time(record.time))
        body = decode_body(record.type, record.data, record.seq, ignorable=record.ignorable is True,
                           refuse_unknown=refuse_unknown)
    except (UnreadableBody, UnicodeDecodeError) as error:
        raise LogDamaged(str(error), file=file, line=line) from None
    return Event(record.seq, record.time, body, record.source_event_seqs, record.surface_op, record.ignorable)


def decode_body(kind: str, data: Raw, seq: int, *, ignorable: bool, refuse_unknown: bool) -> Body | Opaque:
    """An event's data by its type; it is UTF-8. Raises `UnreadableBody`."""
    try:
        decode = _bodies.get(kind)
        if decode is not None:
            return decode(data)
        _skip(data)
    except msgspec.MsgspecError as error:
        raise UnreadableBody(str(error)) from None
    except RecursionError:
        raise UnreadableBody(TOO_DEEP) from None
    if refuse_unknown and kind not in KNOWN_TYPES and not ignorable:
        raise UnreadableBody(f"unknown event type {kind!r} at seq {seq}; a newer version may read it")
    return Opaque(kind, data.copy())


TOO_DEEP = "the record is nested too deeply to be read"

_skip = msgspec.json.Decoder(Raw).decode
"""Checks that something is one JSON value, and no more."""


def check_utf8(data: bytes | Raw) -> None:
    """Raises `UnicodeDecodeError`: the decoder looks only into the strings it makes, not into what stays as it is."""
    plain = bytes(data) if isinstance(data, Raw) else data
    if not plain.isascii():
        plain.decode()


_T = TypeVar("_T")


def decode_at_once(decode_lines: Callable[[bytes], list[_T]], lines: bytes) -> list[_T] | None:
    """What lines hold, each one object and nothing else, by a decoder's `decode_lines`; None if they do not.

    The decoder alone would take two objects on a line, or one on two lines. But no object goes over an end of a line
    between two braces, so as many objects as such lines are one on each.
    """
    if not lines.startswith(b"{"):
        return None
    try:
        check_utf8(lines)
        found = decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ends = len(found) - 1
    return found if lines.count(b"}\n{") == ends == lines.count(b"\n", 0, -1) else None

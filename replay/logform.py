"""A session log in the form goldens are kept in: logical events, and their canonical text.

Rules, beside those of the format's fixture projection (format reference 1.12):

- `request/sent` and `replay/bound` are left out: they say how a run was served, not what the session did.
- Questions of overlapping tool calls race each other, so a call's `approval/*` events stand right behind its
  `tool/call`.
- Seqs follow: `sourceEventSeqs`, `surfaceOp` and a title's `messageSeqs` cite the events by their new positions,
  an event that was left out is cited no more, and `seedLength` counts the inherited events that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged
from acp_agent.session import codec
from acp_agent.session.events import AssistantChunk, Event, Opaque, SessionHeader

CHUNK = "assistant/chunk"
LEFT_OUT = frozenset({"request/sent", "replay/bound"})
APPROVALS = frozenset({"approval/asked", "approval/decided", "approval/grant"})
_ENVELOPE = ("seq", "time", "seq0", "time0")


class LogEvent(Struct, frozen=True):
    """One logical event as JSON values: `data` is what stands under that key, deltas are unpacked."""

    type: str
    data: Any
    sources: list[int] | UnsetType = UNSET
    surface: Any = UNSET
    ignorable: bool | UnsetType = UNSET


class LogForm(Struct, frozen=True):
    """One log. `file` is where it was read, for messages."""

    file: str
    header: SessionHeader
    events: tuple[LogEvent, ...]


def read(data: bytes, file: str) -> LogForm:
    """A log, complete or projected. Unknown event types are kept, and unknown keys outside of chunks. A torn last line
    is dropped.

    Raises `LogDamaged`.
    """
    lines, rest = codec.split_lines(data)
    if rest.strip() and not lines:
        lines = [rest]
    if not lines:
        raise LogDamaged("the log is empty", file=file)
    header = codec.decode_header(lines[0], file)
    reader = codec.Reader(file, refuse_unknown=False)
    return LogForm(file, header, tuple(event for line in lines[1:] if line.strip() for event in _events(reader, line)))


def _events(reader: codec.Reader, line: bytes) -> Iterator[LogEvent]:
    events = list(reader.read(line))
    if len(events) == 1 and not isinstance(events[0].body, AssistantChunk):
        record: dict[str, Any] = msgspec.json.decode(line)  # whole: the reader's structs drop keys they do not know
        yield LogEvent(record["type"], record["data"], record.get("sourceEventSeqs", UNSET),
                       record.get("surfaceOp", UNSET), record.get("ignorable", UNSET))
        return
    for event in events:
        yield LogEvent(event.body.type, msgspec.to_builtins(event.body), ignorable=event.ignorable)


def write(form: LogForm) -> bytes:
    """The canonical text: projected, packed, one event or packed row a line."""
    events = [_event(seq, event) for seq, event in enumerate(form.events)]
    rows = codec.pack(events).splitlines()
    return b"".join([codec.encode_header(form.header), *map(_projected, rows)])


def _event(seq: int, event: LogEvent) -> Event:
    if event.type == CHUNK:
        return Event(seq, 0, msgspec.convert(event.data, AssistantChunk), ignorable=event.ignorable)
    body = Opaque(event.type, Raw(msgspec.json.encode(event.data)))
    return Event(seq, 0, body, event.sources, event.surface, event.ignorable)


def _projected(row: bytes) -> bytes:
    record: dict[str, Any] = msgspec.json.decode(row)
    return codec.encode_line({key: value for key, value in record.items() if key not in _ENVELOPE})


# ---------------------------------------------------------------- what is left out, and in which order


def settled(form: LogForm) -> LogForm:
    """The log without what depends on how it was served or scheduled (the module's rules)."""
    order = _order(form.events)
    moved = {old: new for new, old in enumerate(order)}
    events = tuple(_cited(form.events[old], moved) for old in order)
    seed = form.header.seed_length
    if seed is UNSET:
        return msgspec.structs.replace(form, events=events)
    kept = sum(old < seed for old in order)
    return LogForm(form.file, msgspec.structs.replace(form.header, seed_length=kept), events)


def _order(events: Sequence[LogEvent]) -> list[int]:
    """Old positions in their new order."""
    behind: dict[int, list[int]] = {}
    order: list[int] = []
    call_of: dict[str, int] = {}
    asked: dict[str, int] = {}
    decided: int | None = None
    for at, event in enumerate(events):
        if event.type in LEFT_OUT:
            continue
        call: int | None = None
        if event.type == "tool/call":
            call_of[event.data["callId"]] = at
        elif event.type == "approval/asked" and event.data["callId"] in call_of:
            call = asked[event.data["id"]] = call_of[event.data["callId"]]
        elif event.type == "approval/decided":
            call = asked.get(event.data["id"])
        elif event.type == "approval/grant":
            call = decided  # logged together with the decision it comes from
        decided = call if event.type == "approval/decided" else None
        if call is None:
            order.append(at)
        else:
            behind.setdefault(call, []).append(at)
    return [at for first in order for at in (first, *behind.get(first, ()))]


def _cited(event: LogEvent, moved: dict[int, int]) -> LogEvent:
    data, sources, surface = event.data, event.sources, event.surface
    if sources is not UNSET:
        sources = [moved[seq] for seq in sources if seq in moved]
    if isinstance(surface, dict):
        surface = surface | {key: moved.get(surface[key], surface[key]) for key in ("start", "end") if key in surface}
    if isinstance(data, dict) and isinstance(data.get("messageSeqs"), list):
        data = data | {"messageSeqs": [moved[seq] for seq in data["messageSeqs"] if seq in moved]}
    return LogEvent(event.type, data, sources, surface, event.ignorable)

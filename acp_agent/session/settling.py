"""Decoding for a continuation: many lines of a log at once into their final shapes, in one pass over their bytes.

What this refuses is not damage yet: it takes only the shapes that logs are made of, and a `Reader` looks at whatever
else there is in its own, thorough way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias, Union

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from acp_agent.ids import CallId
from acp_agent.session.events import BODIES, KNOWN_TYPES, AssistantChunk, SurfaceOp
from acp_agent.session.records import MAX_SAFE
from acp_agent.session.rows import REASONING, TEXT, TOOL

GAP_BITS = 31
"""Gaps of at most 2**31 ms (24 days) are checked while they are decoded."""

_Gap: TypeAlias = Annotated[int, Meta(ge=-(2**GAP_BITS), le=2**GAP_BITS)]
_Time: TypeAlias = Annotated[int, Meta(ge=-MAX_SAFE, le=MAX_SAFE)]


class Run(Struct, gc=False, forbid_unknown_fields=True):
    """The `data` of a packed row, text or reasoning; `pieces` are its payload whatever the row calls them."""

    turn: int
    step: int
    index: int
    dt: list[_Gap]
    pieces: list[str] = msgspec.field(name="texts")


class _ToolRun(Struct, gc=False, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[_Gap]
    id: CallId
    pieces: list[str] = msgspec.field(name="args")
    name: str | UnsetType = UNSET


class RowLine(Struct, gc=False, tag_field="type", tag=TEXT, forbid_unknown_fields=True):
    """A packed row of a complete log. What a row calls `seq0` and `time0` is named as in other lines."""

    seq: int = msgspec.field(name="seq0")
    time: int = msgspec.field(name="time0")
    data: Run


class _ReasoningLine(RowLine, gc=False, tag_field="type", tag=REASONING, forbid_unknown_fields=True):
    pass


class _ToolLine(RowLine, gc=False, tag_field="type", tag=TOOL, forbid_unknown_fields=True):
    data: _ToolRun  # type: ignore[assignment]  # the same for whoever looks at `dt` and `pieces` only


PACKED_LINES = frozenset({RowLine, _ReasoningLine, _ToolLine})


class EventLine(Struct, rename="camel", gc=False):
    """A complete record of a type that the format knows; `data` is its body."""

    seq: int
    time: _Time
    data: Any
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


class ChunkLine(EventLine, tag_field="type", tag=AssistantChunk.type, gc=False, forbid_unknown_fields=True):
    """A single chunk of an answer: most lines of a log."""

    data: AssistantChunk


class OpaqueLine(EventLine, gc=False):
    """A record of a type that the format knows and this build does not model: `kind`."""

    kind: ClassVar[str]
    data: Raw


SettlingLine: TypeAlias = RowLine | EventLine


@cache
def settling_decoder() -> Callable[[bytes], list[SettlingLine]]:
    """The one decoder of all lines, for many at once; made when it is first needed, for it takes some milliseconds."""
    others = [_event_line(name) for name in sorted(KNOWN_TYPES - {AssistantChunk.type})]
    shapes: Any = Union[RowLine, _ReasoningLine, _ToolLine, ChunkLine, *others]  # made of values
    decode: Callable[[bytes], list[SettlingLine]] = msgspec.json.Decoder(shapes).decode_lines
    return decode


def _event_line(name: str) -> type[EventLine]:
    body = BODIES.get(name)
    fields, base = ([], OpaqueLine) if body is None else ([("data", body)], EventLine)
    line: Any = msgspec.defstruct("_Line", fields, bases=(base,), tag_field="type", tag=name, gc=False,
                                  forbid_unknown_fields=True, namespace={"kind": name} if body is None else None)
    made: type[EventLine] = line
    return made

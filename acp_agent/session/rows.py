"""Packed rows: how a run of deltas stands in a log as one line (format reference 1.6)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import CallId
from acp_agent.session.events import ReasoningDelta, TextDelta, ToolCallDelta

TEXT: Final = "text-chunks"
REASONING: Final = "reasoning-chunks"
TOOL: Final = "tool-call-chunks"
Tag: TypeAlias = Literal["text-chunks", "reasoning-chunks", "tool-call-chunks"]

PACKED_TYPES = frozenset({TEXT, REASONING, TOOL})
"""Tags of packed rows; without a slash, so that they never collide with event types."""

MIN_RUN = 3
"""A shorter run of deltas stays as single records."""


class TextRun(Struct, forbid_unknown_fields=True):
    """The `data` of a row of text or reasoning: `dt` are the milliseconds between one member and the next."""

    turn: int
    step: int
    index: int
    dt: list[int]
    texts: list[str]


class ToolRun(Struct, forbid_unknown_fields=True):
    """The `data` of a row of a tool call's arguments."""

    turn: int
    step: int
    index: int
    dt: list[int]
    id: CallId
    name: str | UnsetType = UNSET
    args: list[str] = msgspec.field(default_factory=list)


class Row(Struct):
    """A packed row. It has these keys and no others."""

    type: str
    seq0: int
    time0: int
    data: TextRun | ToolRun


def delta(
    tag: str, index: int, piece: str, call_id: CallId | None, name: str | UnsetType
) -> TextDelta | ReasoningDelta | ToolCallDelta:
    """One member of a row; `call_id` is None for text and reasoning."""
    if call_id is not None:
        return ToolCallDelta(index, call_id, name, piece)
    return TextDelta(index, piece) if tag == TEXT else ReasoningDelta(index, piece)

"""A recorded log's body lines as typed rows, decoded no further than a replay needs.

A packed row stays packed: forty thousand deltas are a few lists of texts until they are streamed. What only
few replays look at (results, messages, headers) stays raw JSON, a view of the file's bytes, until asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Annotated, TypeAlias, Union

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from acp_agent.ids import CallId
from acp_agent.session.events import ApprovalGrant, Chunk, FileSeen, RequestContext, ToolCall

SAFE = 2**53 - 1
"""The largest integer every JSON reader agrees on; seqs and times stay within it."""

_Safe = Annotated[int, Meta(ge=-SAFE, le=SAFE)]


class Row(Struct, tag_field="type", frozen=True, gc=False, kw_only=True):
    """A body line. `seq` and `time` are unset in projected logs."""

    seq: int | UnsetType = UNSET
    time: int | UnsetType = UNSET


class PackedRow(Struct, tag_field="type", frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A run of deltas in one line (format reference 1.6): exactly these keys."""

    seq: _Safe | UnsetType = field(name="seq0", default=UNSET)
    time: _Safe | UnsetType = field(name="time0", default=UNSET)


class _Data(Struct, frozen=True, gc=False, rename="camel"):
    pass


class ChunkData(_Data, frozen=True, gc=False):
    turn: int
    step: int
    chunk: Chunk


class TextRun(_Data, frozen=True, gc=False, forbid_unknown_fields=True):
    """`dt` are the members' gaps in milliseconds, one fewer than `texts`."""

    turn: int
    step: int
    index: int
    dt: list[int]
    texts: list[str]


class CallRun(_Data, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Like `TextRun`, for the arguments of one tool call."""

    turn: int
    step: int
    index: int
    dt: list[int]
    id: CallId
    name: str | UnsetType = UNSET
    texts: list[str] = field(name="args")


class TurnData(_Data, frozen=True, gc=False):
    turn: int


class StepData(_Data, frozen=True, gc=False):
    turn: int
    step: int


class EndReason(_Data, frozen=True, gc=False):
    kind: str


class TurnEndData(_Data, frozen=True, gc=False):
    turn: int
    reason: EndReason


class SentData(_Data, frozen=True, gc=False):
    turn: int
    step: int
    purpose: str
    ordinal: int
    root: int | UnsetType = UNSET


class AskedData(_Data, frozen=True, gc=False):
    id: str
    call_id: CallId


class DecidedData(_Data, frozen=True, gc=False):
    id: str
    outcome: str


class RetryData(_Data, frozen=True, gc=False):
    turn: int
    step: int
    retry: int
    delay_ms: float
    policy_key: str = ""


class ChunkRow(Row, tag="assistant/chunk", frozen=True, gc=False):
    data: ChunkData


class TextRow(PackedRow, tag="text-chunks", frozen=True, gc=False, forbid_unknown_fields=True):
    data: TextRun


class ReasoningRow(PackedRow, tag="reasoning-chunks", frozen=True, gc=False, forbid_unknown_fields=True):
    data: TextRun


class CallRow(PackedRow, tag="tool-call-chunks", frozen=True, gc=False, forbid_unknown_fields=True):
    data: CallRun


class TurnStartRow(Row, tag="turn/start", frozen=True, gc=False):
    data: TurnData


class TurnEndRow(Row, tag="turn/end", frozen=True, gc=False):
    data: TurnEndData


class StepStartRow(Row, tag="step/start", frozen=True, gc=False):
    data: StepData


class ToolCallRow(Row, tag="tool/call", frozen=True, gc=False):
    data: ToolCall


class ToolResultRow(Row, tag="tool/result", frozen=True, gc=False):
    data: Raw


class UserRow(Row, tag="user/message", frozen=True, gc=False):
    data: Raw


class HeaderRow(Row, tag="request/header", frozen=True, gc=False):
    data: Raw


class ContextRow(Row, tag="request/context", frozen=True, gc=False):
    data: RequestContext


class SentRow(Row, tag="request/sent", frozen=True, gc=False):
    data: SentData


class SummaryRow(Row, tag="compaction/summary", frozen=True, gc=False):
    data: Raw


class AskedRow(Row, tag="approval/asked", frozen=True, gc=False):
    data: AskedData


class DecidedRow(Row, tag="approval/decided", frozen=True, gc=False):
    data: DecidedData


class GrantRow(Row, tag="approval/grant", frozen=True, gc=False):
    data: ApprovalGrant


class RetryRow(Row, tag="llm/retry", frozen=True, gc=False):
    data: RetryData


class RetryStartedRow(Row, tag="llm/retry-started", frozen=True, gc=False):
    """Its fields are not needed."""


class FileSeenRow(Row, tag="file/seen", frozen=True, gc=False):
    data: FileSeen


class AssistantRow(Row, tag="assistant/message", frozen=True, gc=False):
    """Only that it is there counts: its content stands in the chunks too."""


class EndSeedRow(Row, tag="session/end-seed", frozen=True, gc=False):
    """Only where it stands counts."""


class InboxRow(Row, tag="agent/inbox/spliced", frozen=True, gc=False):
    """Not needed; frequent, so it has a type of its own (as the next ones)."""


class StepEndRow(Row, tag="step/end", frozen=True, gc=False):
    pass


class TitleRow(Row, tag="session/title", frozen=True, gc=False):
    pass


class DescriptorRow(Row, tag="subagent/descriptor", frozen=True, gc=False):
    pass


class PolicyRow(Row, tag="approval/policy", frozen=True, gc=False):
    pass


class TodoRow(Row, tag="todo/write", frozen=True, gc=False):
    pass


class BoundRow(Row, tag="replay/bound", frozen=True, gc=False):
    pass


class OtherRow(Struct, frozen=True, gc=False):
    """An event of any other type: replay has no use for it, but it counts."""

    type: str
    seq: int | UnsetType = UNSET
    time: int | UnsetType = UNSET


Delta: TypeAlias = TextRow | ReasoningRow | CallRow
"""A packed row."""

Piece: TypeAlias = ChunkRow | Delta
"""What a model's stream is cut from."""

AnyRow: TypeAlias = Row | PackedRow | OtherRow

PACKED: frozenset[type] = frozenset({TextRow, ReasoningRow, CallRow})
PIECES: frozenset[type] = PACKED | {ChunkRow}

_TYPES = (
    ChunkRow, TextRow, ReasoningRow, CallRow, TurnStartRow, TurnEndRow, StepStartRow, ToolCallRow, ToolResultRow,
    UserRow, HeaderRow, ContextRow, SentRow, SummaryRow, AskedRow, DecidedRow, GrantRow, RetryRow, RetryStartedRow,
    FileSeenRow, AssistantRow, EndSeedRow, InboxRow, StepEndRow, TitleRow, DescriptorRow, PolicyRow, TodoRow,
    BoundRow,
)  # fmt: skip
_MODELLED = frozenset(str(cls.__struct_config__.tag) for cls in _TYPES)

_rows: msgspec.json.Decoder[AnyRow] = msgspec.json.Decoder(Union[_TYPES])  # noqa: UP007 (a union made of a tuple)
_other = msgspec.json.Decoder(OtherRow).decode


def decode_rows(body: bytes) -> list[AnyRow]:
    """All rows of a log's body at once.

    Raises `msgspec.MsgspecError` or `UnicodeDecodeError` where a line is broken, empty or of a type not
    modelled here: `decode_row` then tells which.
    """
    return _rows.decode_lines(body)


def decode_row(line: bytes) -> AnyRow:
    """One row. Raises `msgspec.MsgspecError` or `UnicodeDecodeError`."""
    try:
        return _rows.decode(line)
    except msgspec.ValidationError:
        row = _other(line)
        if row.type in _MODELLED:
            raise
        if row.type == "session":
            raise msgspec.ValidationError("a second session header") from None
        return row


# ---------------------------------------------------------------- packed rows

_FAR = 10**10
"""A gap of a third of a year makes the exact check of the sums worth its time."""


def member_counts(rows: Sequence[Delta]) -> list[int] | None:
    """How many deltas each packed row holds; None when any of the rows has a `packed_fault`.

    All rows of a file go through this, so the checks run over the whole list at once.
    """
    data: list[TextRun | CallRun] = list(map(attrgetter("data"), rows))
    gaps = list(map(attrgetter("dt"), data))
    counts = list(map(len, map(attrgetter("texts"), data)))
    if [len(gap) + 1 for gap in gaps] != counts:
        return None
    far = max(chain.from_iterable(gaps), default=0) > _FAR or min(chain.from_iterable(gaps), default=0) < -_FAR
    if (far or any(map(_at_edge, rows))) and any(map(packed_fault, rows)):
        return None
    return counts


def packed_fault(row: Delta) -> str | None:
    """What is wrong with a packed row beyond its keys and types; None for a good one."""
    members, gaps = len(row.data.texts), row.data.dt
    if not members:
        return "a packed row is empty"
    if len(gaps) != members - 1:
        return f"a packed row of {members} members must have {members - 1} gaps in dt, it has {len(gaps)}"
    if any(abs(gap) > SAFE for gap in gaps) or any(abs(time) > SAFE for time in member_times(row)):
        return "a time in a packed row leaves the range of safe integers"
    if row.seq is not UNSET and row.seq + members - 1 > SAFE:
        return "a seq in a packed row leaves the range of safe integers"
    return None


def _at_edge(row: Delta) -> bool:
    seq, time = row.seq, row.time
    return (seq is not UNSET and seq > SAFE // 2) or (time is not UNSET and abs(time) > SAFE // 2)


def member_times(row: Delta) -> list[int]:
    """The members' times, in epoch milliseconds; from 0 where the log is projected."""
    return list(accumulate(row.data.dt, initial=0 if row.time is UNSET else row.time))

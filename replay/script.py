"""A recorded session's script: its own model calls in order, cut from its log at finish chunks (DESIGN 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.providers.base import MAIN
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Chunk,
    ContentBlock,
    Finish,
    FinishReason,
    Usage,
    UsageChunk,
)
from replay.fixture import Recording
from replay.problems import Findings
from replay.rows import (
    PIECES,
    AnyRow,
    AssistantRow,
    ChunkData,
    ChunkRow,
    ContextRow,
    HeaderRow,
    Piece,
    RetryRow,
    RetryStartedRow,
    SentRow,
    StepStartRow,
    SummaryRow,
    ToolCallRow,
    TurnEndRow,
    TurnStartRow,
)

COMPACTION = "compaction"
"""The purpose of the calls that summarise a history."""

HALTED = frozenset({"aborted", "interrupted"})
"""Ends of a turn that may have cut a model call short."""


class Chunks(Struct, frozen=True, eq=False):
    """Stream these; they end with a finish chunk."""

    pieces: Sequence[Piece]


class Held(Struct, frozen=True, eq=False):
    """Stream these, then hold until cancelled: the recorded call was cut short."""

    pieces: Sequence[Piece]


class Throw(Struct, frozen=True, eq=False):
    """Stream these, then raise a model error."""

    pieces: Sequence[Piece]
    message: str
    code: str


class Hang(Struct, frozen=True, eq=False):
    """Stream the beginning of a text, make the ready file (relative to the session's cwd), then hold."""

    ready_file: str | None


class Unfinished(Struct, frozen=True, eq=False):
    """A recorded call without an end, which only an override can serve. `line` is where it begins."""

    message: str
    line: int


Action = Chunks | Held | Throw | Hang | Unfinished


class Call(Struct, frozen=True, eq=False):
    """One model call of a session.

    turn, step   None where an override made the call
    asked        when the request was sent (epoch milliseconds), where the recording knows
    header       the request/header and request/context in force
    """

    purpose: str
    action: Action
    turn: int | None = None
    step: int | None = None
    asked: int | UnsetType = UNSET
    header: HeaderRow | None = None
    context: ContextRow | None = None


def as_pieces(chunks: Sequence[Chunk]) -> list[Piece]:
    """Chunks that no log holds, in the shape of recorded ones."""
    return [ChunkRow(data=ChunkData(0, 0, chunk)) for chunk in chunks]


def cut(recording: Recording, findings: Findings) -> list[Call]:
    """The session's own model calls, in the order of its log, all purposes together.

    A call without a finish chunk becomes `Held` where its turn ended aborted or interrupted. So does one that
    was cancelled before its first chunk: `request/sent` without a chunk, or, in logs that have no such events,
    a step that began, showed nothing and was aborted (the request is sent at the start of a step, and logs of
    this format note an abort before that without a step). Any other becomes `Unfinished`.
    """
    return _Cutter(recording, findings).run()


class _Cutter:
    """Walks a log once. At most one call is open at any time."""

    def __init__(self, recording: Recording, findings: Findings) -> None:
        self._recording = recording
        self._findings = findings
        self._calls: list[Call] = []
        self._pieces: list[Piece] = []
        self._place = (0, 0)
        self._began = 0
        self._at = 0
        self._sent: SentRow | None = None
        self._sent_at = 0
        self._logs_requests = False
        self._silent_step: tuple[int, int] | None = None
        self._turn_calls = 0
        self._header: HeaderRow | None = None
        self._context: ContextRow | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            SentRow: self._on_sent, StepStartRow: self._on_step, TurnStartRow: self._on_turn,
            TurnEndRow: self._on_turn_end, RetryRow: self._on_retry, RetryStartedRow: self._on_retry_started,
            AssistantRow: self._on_answer, ToolCallRow: self._on_answer, HeaderRow: self._on_header,
            ContextRow: self._on_context, SummaryRow: self._on_summary,
        }  # fmt: skip

    def run(self) -> list[Call]:
        self._inherit()
        handlers = self._handlers
        for at, row in self._recording.own_rows():
            kind = type(row)
            if kind not in PIECES:
                handler = handlers.get(kind)
                if handler is not None:
                    self._at = at
                    handler(row)
                continue
            data = row.data  # type: ignore[union-attr]  # the set holds exactly the types of pieces
            if not self._pieces:
                self._open(at, data.turn, data.step)
            elif self._place != (data.turn, data.step):
                self._break_off()
                self._open(at, data.turn, data.step)
            self._pieces.append(row)  # type: ignore[arg-type]  # as above
            if kind is ChunkRow and type(data.chunk) is Finish:
                self._close(Chunks(self._pieces))
        if self._pieces or self._sent is not None:
            self._break_off()
        return self._calls

    def _inherit(self) -> None:
        """A fork's first request goes to the model its parent last used."""
        for row in self._recording.rows[: self._recording.own]:
            if isinstance(row, HeaderRow):
                self._header = row
            elif isinstance(row, ContextRow):
                self._context = row

    # ------------------------------------------------------------ calls

    def _open(self, at: int, turn: int, step: int) -> None:
        self._place = (turn, step)
        self._began = at
        self._silent_step = None

    def _close(self, action: Action) -> None:
        turn, step = self._place
        sent, self._sent = self._sent, None
        purpose, asked = (MAIN, UNSET) if sent is None else (sent.data.purpose, sent.time)
        self._calls.append(Call(purpose, action, turn, step, asked, self._header, self._context))
        self._pieces = []
        self._turn_calls += 1

    def _break_off(self) -> None:
        """The open call never finished, and its turn does not say that it was cut short."""
        if not self._pieces and self._sent is not None:
            self._open(self._sent_at, self._sent.data.turn, self._sent.data.step)
        turn, step = self._place
        line = self._recording.line(self._began)
        self._close(Unfinished(
            f"the model call of turn {turn} step {step} has no finish chunk; say in replay.override.json what to"
            " serve for it (chunks, throw or hang)", line))

    # ------------------------------------------------------------ other events

    def _on_sent(self, row: SentRow) -> None:
        if self._pieces or self._sent is not None:
            self._break_off()
        self._sent, self._sent_at, self._logs_requests = row, self._at, True

    def _on_turn(self, _row: TurnStartRow) -> None:
        if self._pieces or self._sent is not None:
            self._break_off()
        self._silent_step = None
        self._turn_calls = 0

    def _on_step(self, row: StepStartRow) -> None:
        self._silent_step = (row.data.turn, row.data.step)

    def _on_answer(self, _row: AnyRow) -> None:
        self._silent_step = None

    def _on_retry(self, _row: RetryRow) -> None:
        if self._pieces:
            self._break_off()

    def _on_retry_started(self, _row: RetryStartedRow) -> None:
        """The next attempt of the same step: silent again until it shows something."""
        self._silent_step = self._place

    def _on_turn_end(self, row: TurnEndRow) -> None:
        if row.data.reason.kind not in HALTED:
            if self._pieces or self._sent is not None:
                self._break_off()
        elif self._pieces:
            self._close(Held(self._pieces))
        elif self._sent is not None:
            self._place = (self._sent.data.turn, self._sent.data.step)
            self._close(Held(()))
        elif self._silent_step is not None and not self._logs_requests:
            self._place = self._silent_step
            self._close(Held(()))
        elif self._turn_calls:
            self._hold_aborted()
        self._silent_step = None
        self._turn_calls = 0

    def _hold_aborted(self) -> None:
        """The last call of a halted turn, where it ended in an `aborted` finish, is held at that point."""
        call = self._calls[-1]
        if not isinstance(call.action, Chunks):
            return
        *before, last = call.action.pieces
        finish = last.data.chunk if isinstance(last, ChunkRow) else None
        if isinstance(finish, Finish) and finish.reason.kind == "aborted":
            self._calls[-1] = msgspec.structs.replace(call, action=Held(before))

    def _on_header(self, row: HeaderRow) -> None:
        self._header = row

    def _on_context(self, row: ContextRow) -> None:
        self._context = row

    def _on_summary(self, row: SummaryRow) -> None:
        """A summary marked as a model call is one, told by its output alone (format reference 2.2)."""
        if self._pieces:
            self._break_off()
        line = self._recording.line(self._at)
        try:
            summary = _summary(row.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._findings.fault(f"broken compaction/summary: {error}; restore it from the original log",
                                 self._recording.file, line)
            return
        if not summary.llm_stream_call:
            return
        if summary.raw_output is UNSET:
            self._findings.fault("compaction/summary is marked as a model call but holds no rawOutput; say in"
                                 " replay.override.json what to serve", self._recording.file, line)
            return
        action = Chunks(as_pieces(_summary_chunks(summary.raw_output, summary.usage)))
        self._calls.append(Call(COMPACTION, action, header=self._header, context=self._context))


# ---------------------------------------------------------------- summaries


class _Summary(Struct, rename="camel"):
    llm_stream_call: bool = False
    raw_output: tuple[ContentBlock, ...] | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


_summary = msgspec.json.Decoder(_Summary).decode


def _summary_chunks(blocks: Sequence[ContentBlock], usage: Usage | UnsetType) -> list[Chunk]:
    chunks: list[Chunk] = []
    for index, block in enumerate(blocks):
        chunks += (BlockStart(index, str(block.__struct_config__.tag)), BlockEnd(index, block))
    if usage is not UNSET:
        chunks.append(UsageChunk(usage))
    return [*chunks, Finish(FinishReason("stop"))]

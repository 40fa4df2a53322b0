"""Making the events of a mended log fit together again: turns, steps, and a result for each tool call.

Only numbers whose event is lost are filled. A log that lost some of its events always has room for what is missing,
because that stood there once.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import CallId, MessageId
from acp_agent.session import codec
from acp_agent.session.events import (
    AssistantChunk,
    AssistantMessage,
    Body,
    EndSeed,
    Event,
    Interrupted,
    LlmRetry,
    LlmRetryStarted,
    Replace,
    RequestSent,
    SessionHeader,
    Source,
    StepEnd,
    StepStart,
    SurfaceOp,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolContent,
    ToolError,
    ToolResult,
    ToolResultBlock,
    TurnEnd,
    TurnStart,
    UserMessage,
)

_UNKNOWN = ToolError("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN")
_UNKNOWN_TEXT = (
    "Error: the session log was damaged and the result of this tool call is lost, so its outcome is unknown. Check "
    "what it did before retrying it."
)


class Draft(Struct):
    """A log that is being mended: for each number its record, or None where it is lost.

    `filled` and `dropped` are the numbers that were given a record and those whose record did not fit, with the words
    for it.
    """

    records: list[codec.Record | None]
    filled: dict[int, str] = {}
    dropped: dict[int, str] = {}

    def fill(self, seq: int, body: Body, why: str, *, cites: int | None = None) -> None:
        """Put an event where one was lost."""
        surface = "append" if isinstance(body, ToolResult) else UNSET
        sources = UNSET if cites is None else [cites]
        event = Event(seq, self.time_at(seq), body, sources, surface)  # type: ignore[arg-type]  # a literal
        self.records[seq] = codec.to_record(event)
        self.filled[seq] = why

    def drop(self, seq: int, why: str) -> None:
        """Take out a record that does not fit."""
        self.records[seq] = None
        if self.filled.pop(seq, None) is None:
            self.dropped[seq] = why

    def time_at(self, seq: int) -> int:
        """When what stood at a number most likely happened: with the nearest record before it, else after it."""
        for at in itertools.chain(range(seq, -1, -1), range(seq, len(self.records))):
            record = self.records[at]
            if record is not None:
                return record.time
        return 0


class _Place(Struct):
    """What every event of a step says of itself."""

    turn: int
    step: int


class _Call(Struct):
    """A tool call of the open step: its block, the numbers of the message that asks for it, its start, its result."""

    block: ToolCallBlock
    asked: int
    turn: int
    step: int
    started: int | None = None
    result: int | None = None


_place = msgspec.json.Decoder(_Place).decode


def balance(header: SessionHeader, draft: Draft) -> None:
    """Fill and drop until turns and steps nest and each tool call of an ended step has exactly one result."""
    walk = _Walk(draft, 0 if header.seed_length is UNSET else header.seed_length)
    for seq, record in enumerate(list(draft.records)):
        if record is None:
            walk.lose(seq)
        else:
            walk.see(record)
    walk.end()


class _Walk:
    """One pass over a draft, from its first number to its last."""

    def __init__(self, draft: Draft, seed: int) -> None:
        self._draft = draft
        self._seed = seed
        self._turn = self._step = 0
        self._in_turn = self._in_step = False
        self._calls: list[_Call] = []
        self._results: list[int] = []
        """The tool results that are in the history."""
        self._free: list[int] = []
        """The numbers up to here that are lost and not filled."""
        self._last = -1
        """The newest event that says where it belongs: what is missing after it stood after it."""

    # -- what is met

    def lose(self, seq: int) -> None:
        """A number without a record. What stood at the seed boundary is known (format reference 1.10)."""
        if self._seed and seq == self._seed:
            self._draft.fill(seq, EndSeed(), "the mark after the inherited events")
            self._last = seq
        elif self._seed and seq == self._seed - 1:
            self._end_seed(seq)
        else:
            self._free.append(seq)

    def see(self, record: codec.Record) -> None:
        """A record that is there."""
        if record.type == AssistantChunk.type:
            place = _place(record.data)
            self._enter(record.seq, place.turn, place.step)
            return
        event = codec.to_event(record, file="", refuse_unknown=False)
        match event.body:
            case TurnStart() as body:
                self._start_turn(event.seq, body)
            case StepStart() as body:
                self._start_step(event.seq, body)
            case StepEnd() as body:
                self._end_step(event.seq, body)
            case TurnEnd() as body:
                self._end_turn(event.seq, body)
            case EndSeed():
                self._reach(0)
                self._last = event.seq
            case UserMessage():
                self._hide(event.surface_op)
            case AssistantMessage() as body:
                self._ask(event, body)
            case ToolCall() as body:
                self._start_call(event.seq, body)
            case ToolResult() as body:
                self._take_result(event, body)
            case RequestSent() | LlmRetry() | LlmRetryStarted() as body:
                self._enter(event.seq, body.turn, body.step)
            case _:
                pass

    def end(self) -> None:
        """The log's end. An open turn stays open: loading closes it."""
        self._finish_calls(ended=not self._in_turn)

    # -- turns and steps

    def _start_turn(self, seq: int, body: TurnStart) -> None:
        if not self._reach(0, ended=body.turn - 1):
            self._finish_calls()
        self._set(body)
        self._last = seq

    def _start_step(self, seq: int, body: StepStart) -> None:
        if not self._reach(body.turn, ended=body.step - 1):
            if not self._in_turn:
                self._drop(seq, "it begins a step outside of any turn")
                return
            self._finish_calls()
        self._set(body)
        self._last = seq

    def _end_step(self, seq: int, body: StepEnd) -> None:
        if not self._reach(body.turn, body.step):
            self._drop(seq, "it ends a step that is not open")
            return
        self._finish_calls()
        self._set(body)
        self._last = seq

    def _end_turn(self, seq: int, body: TurnEnd) -> None:
        if not self._reach(body.turn) and not (self._in_turn and self._turn == body.turn):
            self._drop(seq, "it ends a turn that is not open")
            return
        self._finish_calls()
        self._set(body)
        self._last = seq

    def _end_seed(self, seq: int) -> None:
        """The last inherited event is lost: it ended a turn."""
        if not self._in_turn:
            self._move([TurnStart(self._turn + 1)])
        if self._in_step:
            self._finish_calls()
            self._move([StepEnd(self._turn, self._step)])
        self._free.append(seq)
        if self._in_turn:
            self._last = seq - 1
            self._move([TurnEnd(self._turn, Interrupted())])

    def _enter(self, seq: int, turn: int, step: int) -> None:
        self._reach(turn, step)
        self._last = seq

    def _reach(self, turn: int, step: int = 0, *, ended: int = 0) -> bool:
        """Fill in what brings the log into a step of a turn, if it can be; 0 stands for none being open.

        `ended` is the number of the last step, or without a turn of the last turn, that should have ended before.
        """
        short = self._moves(turn, step, None)
        if short is None or len(short) > self._room():
            return False
        if self._in_step and (turn, step) != (self._turn, self._step):
            self._finish_calls()
        return self._move(self._moves(turn, step, ended) or []) or self._move(short)

    def _moves(self, turn: int, step: int, ended: int | None) -> list[Body] | None:
        """What must happen to get there; None for a place that was left already.

        With the turns and steps that were skipped, unless `ended` is None.
        """
        moves: list[Body] = []
        in_turn, in_step, last = self._in_turn, self._in_step, self._step
        if in_step and (turn, step) != (self._turn, last):
            moves.append(StepEnd(self._turn, last))
            in_step = False
        if in_turn and turn != self._turn:
            moves.append(TurnEnd(self._turn, Interrupted()))
            in_turn = False
        if not in_turn:
            if 0 < turn <= self._turn:
                return None
            for number in self._skipped(self._turn, ended, turn):
                moves += [TurnStart(number), TurnEnd(number, Interrupted())]
            if turn:
                moves.append(TurnStart(turn))
                last = 0
        if turn and not in_step:
            if 0 < step <= last:
                return None
            for number in self._skipped(last, ended, step):
                moves += [StepStart(turn, number), StepEnd(turn, number)]
            if step:
                moves.append(StepStart(turn, step))
        return moves

    def _skipped(self, last: int, ended: int | None, begun: int) -> range:
        """Numbers between the last one known and the one that begins or ended, unless there cannot be room for them."""
        if ended is None:
            return range(0)
        stop = begun or ended + 1
        return range(last + 1, stop) if stop - last <= self._room() + 1 else range(0)

    def _room(self) -> int:
        return len(self._free) - bisect_right(self._free, self._last)

    def _move(self, moves: Sequence[Body]) -> bool:
        """Fill the first lost numbers after the newest event with these; all of them or none."""
        if len(moves) > self._room():
            return False
        for body in moves:
            seq = self._free.pop(bisect_right(self._free, self._last))
            self._draft.fill(seq, body, f"a lost {body.type}")
            self._set(body)
            self._last = seq
        return True

    def _set(self, body: Body) -> None:
        match body:
            case TurnStart():
                self._turn, self._step, self._in_turn, self._in_step = body.turn, 0, True, False
            case TurnEnd():
                self._in_turn = self._in_step = False
            case StepStart():
                self._step, self._in_step = body.step, True
            case _:
                self._in_step = False

    # -- tool calls

    def _ask(self, event: Event, body: AssistantMessage) -> None:
        self._enter(event.seq, body.turn, body.step)
        self._hide(event.surface_op)
        self._calls += [_Call(block, event.seq, body.turn, body.step) for block in body.message.content
                        if isinstance(block, ToolCallBlock)]  # fmt: skip

    def _start_call(self, seq: int, body: ToolCall) -> None:
        self._enter(seq, body.turn, body.step)
        call = self._waiting(body.call_id)
        if call is None or call.started is not None:
            self._drop(seq, "the answer that asks for this call is lost")
        else:
            call.started = seq

    def _take_result(self, event: Event, body: ToolResult) -> None:
        self._enter(event.seq, body.turn, body.step)
        if isinstance(event.surface_op, Replace):
            if not self._hide(event.surface_op):
                self._drop(event.seq, "the result it stands for is lost")
                return
            self._results.append(event.seq)
            return
        for block in body.message.content:
            call = self._waiting(block.tool_call_id)
            if call is None:
                self._drop(event.seq, "the call it is the result of is lost, or has a result already")
                return
            self._prove_start(call, event.source_event_seqs)
            call.result = event.seq
        self._results.append(event.seq)

    def _waiting(self, call_id: CallId) -> _Call | None:
        return next((call for call in self._calls if call.block.id == call_id and call.result is None), None)

    def _prove_start(self, call: _Call, cited: list[int] | UnsetType) -> None:
        """A result cites the event that started its call: where that is lost, it is known all the same."""
        if call.started is None and cited is not UNSET and len(cited) == 1 and cited[0] > call.asked:
            seq, block = cited[0], call.block
            if seq in self._free:
                self._free.remove(seq)
                self._draft.fill(seq, ToolCall(call.turn, call.step, block.id, block.name, block.arguments),
                                 "a lost tool/call, as its answer and its result tell it")
                call.started = seq

    def _finish_calls(self, *, ended: bool = True) -> None:
        """Give each call of an ended step a result; of one that has not ended, only where a later call has one."""
        low = -1
        for at, call in enumerate(self._calls):
            if call.result is None:
                bound = next((later.result for later in self._calls[at + 1:] if later.result is not None), None)
                if (ended or bound is not None) and not self._lost_result(call, low, bound) and ended:
                    self._give_up(call.asked)
            low = max(low, -1 if call.result is None else call.result)
        if ended:
            self._calls = []

    def _lost_result(self, call: _Call, low: int, bound: int | None) -> bool:
        """Put a result in a lost number: in the order of the calls if it can be, else anywhere after its call."""
        own = call.asked if call.started is None else call.started
        for first, last in ((max(low, own), bound), (own, None)):
            at = bisect_right(self._free, first)
            if at < len(self._free) and (last is None or self._free[at] < last):
                seq = self._free.pop(at)
                self._draft.fill(seq, _result(call, seq), "a lost tool/result, whose outcome is unknown",
                                 cites=call.started)
                call.result = seq
                insort(self._results, seq)
                return True
        return False

    def _give_up(self, asked: int) -> None:
        """Take out an answer one of whose calls can have no result, and all that belongs to its calls."""
        if self._draft.records[asked] is None:
            return
        self._drop(asked, "a tool call in it has no result, and there is no room for one")
        for call in self._calls:
            if call.asked == asked:
                for seq in (call.started, call.result):
                    if seq is not None:
                        self._drop(seq, "the answer that asks for this call had to be taken out")

    # -- history

    def _hide(self, operation: SurfaceOp | UnsetType) -> bool:
        """Whether a replace hides tool results; they are out of the history then."""
        if not isinstance(operation, Replace):
            return False
        left = [seq for seq in self._results if not operation.start <= seq <= operation.end]
        hidden = len(left) < len(self._results)
        self._results = left
        return hidden

    def _drop(self, seq: int, why: str) -> None:
        self._draft.drop(seq, why)
        if seq in self._results:
            self._results.remove(seq)
        insort(self._free, seq)


def _result(call: _Call, seq: int) -> ToolResult:
    call_id = call.block.id
    block = ToolResultBlock(call_id, (TextBlock(_UNKNOWN_TEXT),), is_error=True)
    message = ToolContent(Source("tool", call_id=call_id), (block,), "user",
                          MessageId(f"lost-tool-result-{call_id}-{seq}"))
    return ToolResult(call.turn, call.step, message, _UNKNOWN)

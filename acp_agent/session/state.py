"""What a session's log says, folded: history, position, configuration, and what tools remember.

`SessionState` is a pure fold: the same events give the same state, live and after a restart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import CallId
from acp_agent.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalGrant,
    AssistantChunk,
    AssistantMessage,
    Body,
    Chunk,
    EndSeed,
    Event,
    FileSeen,
    Finish,
    HeaderContent,
    Opaque,
    Replace,
    ReplayBound,
    RequestContext,
    RequestHeader,
    RequestSent,
    SessionConfig,
    SessionTitle,
    StepEnd,
    StepStart,
    Todo,
    TodoWrite,
    ToolCall,
    ToolCallBlock,
    ToolResult,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    Usage,
    UserMessage,
)

Surface = UserMessage | AssistantMessage | ToolResult


class OpenCall(Struct):
    """A tool call of the open step that has no result yet; `seq` is its tool/call event, once started."""

    block: ToolCallBlock
    seq: int | None = None


class Spent(Struct):
    """The tokens of the answers that a session itself was given, and how many answers that were. Cached tokens are
    counted apart: `input` are the others.
    """

    answers: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    def add(self, usage: Usage) -> None:
        """Count one more answer."""
        self.answers += 1
        self.input += usage.input_tokens
        self.cached += usage.cached
        self.output += usage.output_tokens


class SessionState:
    """The fold. Feed it every event of one log in order through `apply`.

    What `Continuation.settled` leaves out changes nothing here but `count` and `time`: the settled events and `settle`
    give the state that all events give.

    count       how many events the log has; `time` is the newest one's
    history     what the model sees, in order; `nodes` holds the seq of each
    turn        number of the newest turn, 0 before the first
    open_turn   whether that turn has not ended; `open_step` its open step's number, or 0
    last_end    how many events the log had just after the newest turn/end: where a fork cuts
    ordinals    model calls this session made itself so far, by purpose
    seen        real path -> version of files observed; None means seen to be absent
    """

    def __init__(self, seed_length: int = 0) -> None:
        self._seed_length = seed_length
        self.count = 0
        self.time = 0
        self.history: list[Surface] = []
        self.nodes: list[int] = []
        self.replaced = 0
        """How many times a replace rewrote the history: digests start over when it changes."""
        self.turn = 0
        self.open_turn = False
        self.open_step = 0
        self.turn_nodes = 0
        """How many history nodes there were when the newest turn began."""
        self.outcome: TurnOutcome | None = None
        self.last_end = 0
        self.header: HeaderContent | None = None
        self.context: RequestContext | None = None
        self.title: str | None = None
        self.ordinals: dict[str, int] = {}
        self.mode: str | None = None
        self.model: str | None = None
        self.options: dict[str, Any] = {}
        self.spent = Spent()
        self.usage: Usage | UnsetType = UNSET
        """The newest answer's, where it said."""
        self.grants: dict[str, bool] = {}
        self.seen: dict[str, str | None] = {}
        self.todos: tuple[Todo, ...] = ()
        self.bound: ReplayBound | None = None
        self.open_calls: dict[CallId, OpenCall] = {}
        self.open_questions: dict[str, CallId] = {}
        """Permission questions of the open step without a decision: the id, and the call that is asked about."""
        self.has_sent = False
        """Whether the log holds a request/sent of this session's own."""
        self._sealed = 0
        self._ordered = True
        """Whether the nodes' seqs ascend: they do until something in the middle is replaced."""

    @property
    def sealed(self) -> bool:
        """Whether everything in the log belongs to a finished lifecycle: it ends with session/end-seed."""
        return 0 < self._sealed == self.count

    def settle(self, count: int, time: int) -> None:
        """Say how many events the log has and when the newest one was, where only the settled ones were fed in."""
        self.count, self.time = count, time

    def apply(self, event: Event) -> None:
        """Fold the next event in."""
        self.count = event.seq + 1
        self.time = event.time
        body = event.body
        if isinstance(body, AssistantChunk):
            if isinstance(body.chunk, Finish):
                self._finish(event.seq)
            return
        match body:
            case TurnStart():
                self.turn, self.open_turn, self.open_step = body.turn, True, 0
                self.turn_nodes = len(self.nodes)
                self._close_calls()
            case TurnEnd():
                self.open_turn, self.open_step, self.outcome = False, 0, body.reason
                self.last_end = event.seq + 1
                self._close_calls()
            case StepStart():
                self.open_step = body.step
            case StepEnd():
                self.open_step = 0
                self._close_calls()
            case UserMessage() | AssistantMessage() | ToolResult():
                self._surface(event, body)
            case ToolCall():
                if body.call_id in self.open_calls:
                    self.open_calls[body.call_id].seq = event.seq
            case RequestSent() | ReplayBound():
                if event.seq >= self._seed_length:
                    self._own(body)
            case ApprovalAsked():
                self.open_questions[body.id] = body.call_id
            case ApprovalDecided():
                self.open_questions.pop(body.id, None)
            case EndSeed():
                self._sealed = self.count
            case _:
                self._remember(body)

    def apply_chunks(self, time: int, chunks: Sequence[Chunk]) -> None:
        """Fold in the next events, which are these chunks: the same as `apply` of an event for each."""
        first = self.count
        self.count, self.time = first + len(chunks), time
        kinds, at = [*map(type, chunks)], -1
        for _ in range(kinds.count(Finish)):
            at = kinds.index(Finish, at + 1)
            self._finish(first + at)

    def _finish(self, seq: int) -> None:
        """Foreign logs have no request/sent: a call is counted where it finished."""
        if not self.has_sent and seq >= self._seed_length:
            self.ordinals["main"] = self.ordinals.get("main", 0) + 1

    def _close_calls(self) -> None:
        self.open_calls.clear()
        self.open_questions.clear()

    def _surface(self, event: Event, body: Surface) -> None:
        if isinstance(body, AssistantMessage):
            self._use(event, body)
            for block in body.message.content:
                if isinstance(block, ToolCallBlock):
                    self.open_calls[block.id] = OpenCall(block)
            if not body.message.content:
                return  # in the log for its usage alone (format reference 1.9)
        elif isinstance(body, ToolResult):
            for result in body.message.content:
                self.open_calls.pop(result.tool_call_id, None)
        self._place(event, body)

    def _use(self, event: Event, body: AssistantMessage) -> None:
        self.usage = body.usage
        if body.usage is not UNSET and event.seq >= self._seed_length:
            self.spent.add(body.usage)

    def _place(self, event: Event, body: Surface) -> None:
        operation = event.surface_op
        if not isinstance(operation, Replace):
            self.nodes.append(event.seq)
            self.history.append(body)
            return
        first, last = self._hidden(operation)
        if first >= last:
            self.nodes.append(event.seq)
            self.history.append(body)
            return
        self._ordered = self._ordered and last == len(self.nodes)
        self.nodes[first:last] = [event.seq]
        self.history[first:last] = [body]
        self.replaced += 1

    def _hidden(self, operation: Replace) -> tuple[int, int]:
        """Which nodes a replace hides: from the first one in its range to the last one."""
        if self._ordered:
            return bisect_left(self.nodes, operation.start), bisect_right(self.nodes, operation.end)
        found = [at for at, seq in enumerate(self.nodes) if operation.start <= seq <= operation.end]
        return (found[0], found[-1] + 1) if found else (0, 0)

    def _own(self, body: RequestSent | ReplayBound) -> None:
        """Facts that a seed does not hand down."""
        if isinstance(body, ReplayBound):
            self.bound = body
        else:
            self.has_sent = True
            self.ordinals[body.purpose] = body.ordinal + 1

    def _configure(self, body: SessionConfig) -> None:
        if body.mode is not UNSET:
            self.mode = body.mode
        if body.model is not UNSET:
            self.model = body.model
        if body.options is not UNSET:
            self.options.update(body.options)

    def _remember(self, body: Body | Opaque) -> None:
        match body:
            case RequestHeader():
                self.header = body.header
            case RequestContext():
                self.context = body
            case SessionTitle():
                self.title = body.title
            case SessionConfig():
                self._configure(body)
            case ApprovalGrant():
                self.grants[body.key] = body.allow
            case FileSeen():
                self.seen[body.path] = body.version
            case TodoWrite():
                self.todos = body.todos
            case _:
                pass

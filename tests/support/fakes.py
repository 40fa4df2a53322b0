"""Stand-ins for what surrounds the core: scripted or recorded implementations of its own contracts."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from acp_agent.errors import AgentError
from acp_agent.ids import BlobId, CallId, MessageId, SessionId
from acp_agent.loop.host import Answer, Desk, Question
from acp_agent.providers.base import ModelInfo, ModelRequest, Prepared, RetryPolicy, Route
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Body,
    Chunk,
    Event,
    Failure,
    Finish,
    FinishReason,
    ModelConfig,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    ToolResult,
    TurnOutcome,
    Usage,
    UsageChunk,
)
from acp_agent.session.session import Place
from acp_agent.subagents.views import Errand
from acp_agent.tools.arguments import invalid
from acp_agent.tools.base import Access, CallView, Diff, Effect, Kind, Outcome, ResultView, ToolContext
from acp_agent.tools.questions import Elicit, Modes


class FixedClock:
    """Time that moves one millisecond with every look."""

    def __init__(self, start: int = 1_000) -> None:
        self._now = start

    def now(self) -> int:
        self._now += 1
        return self._now

    def created_at(self) -> int:
        return self.now()


class CountingIds:
    """`session-1`, `message-1`, `token-1`, ..."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def _next(self, kind: str) -> str:
        self._last[kind] = self._last.get(kind, 0) + 1
        return f"{kind}-{self._last[kind]}"

    def session(self) -> SessionId:
        return SessionId(self._next("session"))

    def message(self) -> MessageId:
        return MessageId(self._next("message"))

    def token(self) -> str:
        return self._next("token")


# ---------------------------------------------------------------- a model


class Reached(Struct, frozen=True):
    """The stream has come this far: sets the event and goes on."""

    event: anyio.Event


class Gate(Struct, frozen=True):
    """The stream waits for the event."""

    event: anyio.Event


class Hang:
    """The stream waits until it is cancelled."""


Move: TypeAlias = Sequence[Chunk] | Reached | Gate | Hang | BaseException
Script: TypeAlias = Sequence[Move]
"""One answer: batches of chunks, and what happens between them."""


def call(call_id: str, name: str, **arguments: Any) -> ToolCallBlock:
    """A tool call with JSON arguments."""
    return ToolCallBlock(CallId(call_id), name, msgspec.json.encode(arguments).decode())


def text_chunks(*pieces: str, index: int = 0) -> list[Chunk]:
    """A text block, one delta a piece."""
    deltas = [TextDelta(index, piece) for piece in pieces]
    return [BlockStart(index, "text"), *deltas, BlockEnd(index, TextBlock("".join(pieces)))]


def thought_chunks(*pieces: str, index: int = 0) -> list[Chunk]:
    """A reasoning block, one delta a piece."""
    deltas = [ReasoningDelta(index, piece) for piece in pieces]
    return [BlockStart(index, "reasoning"), *deltas, BlockEnd(index, ReasoningBlock("".join(pieces)))]


def call_chunks(block: ToolCallBlock, index: int = 0) -> list[Chunk]:
    """A tool-call block in a single delta."""
    delta = ToolCallDelta(index, block.id, block.name, block.arguments)
    return [BlockStart(index, "tool-call"), delta, BlockEnd(index, block)]


USAGE = UsageChunk(Usage(10, 5))


def finish(kind: str = "stop") -> Finish:
    """A finish chunk without a failure."""
    return Finish(msgspec.convert({"kind": kind}, FinishReason))


def says(*pieces: str) -> Script:
    """An answer that is text alone."""
    return [[*text_chunks(*pieces), USAGE, finish()]]


def asks(*calls: ToolCallBlock) -> Script:
    """An answer that is tool calls alone."""
    chunks = [chunk for index, block in enumerate(calls) for chunk in call_chunks(block, index)]
    return [[*chunks, USAGE, finish("tool-calls")]]


def fails(code: str, message: str = "no luck", before: Sequence[Chunk] = ()) -> Script:
    """An answer that ends with a failure the provider reports."""
    return [[*before, Finish(FinishReason("error", Failure(message, code)))]]


class ScriptedProvider:
    """Serves scripts in order: `answers` to the root, `children` by path (`call-1/call-2[1]`)."""

    def __init__(self, *answers: Script, children: Mapping[str, Sequence[Script]] | None = None,
                 policy: RetryPolicy | None = None, journal: list[str] | None = None) -> None:
        self._scripts = {"": deque(answers)} | {path: deque(each) for path, each in (children or {}).items()}
        self._policy = policy or RetryPolicy(max_retries=2, initial_delay_ms=0, jitter=0)
        self.journal = [] if journal is None else journal
        self.requests: list[ModelRequest] = []
        self.notes: tuple[Body, ...] = ()
        self.refusal: Exception | None = None
        """Raised by `prepare`."""
        self.offered: tuple[ModelInfo, ...] = ()
        self.route = Route(ModelConfig("fake", "model-1"), 1_000)
        self.closed = 0
        """How many streams came to an end, whatever ended them."""

    def models(self) -> Sequence[ModelInfo]:
        return self.offered

    @property
    def retry_policy(self) -> RetryPolicy:
        return self._policy

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:
        return self._policy.delay(failure, retry, 0)

    def prepare(self, caller: object) -> Prepared:
        if self.refusal is not None:
            raise self.refusal
        return Prepared(self.route, self.notes)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        self.journal.append("request")
        self.requests.append(msgspec.structs.replace(request, messages=tuple(request.messages)))
        script = self._scripts["/".join(map(str, request.caller.path))].popleft()
        try:
            for move in script:
                match move:
                    case Reached():
                        move.event.set()
                    case Gate():
                        await move.event.wait()
                    case Hang():
                        await anyio.sleep_forever()
                    case BaseException():
                        raise move
                    case _:
                        yield move
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        """Nothing is held."""


# ---------------------------------------------------------------- tools

Behaviour = Callable[[dict[str, Any], ToolContext], Awaitable[Outcome]]


class FakeTool:
    """A tool that does what a function says; without one it repeats its arguments."""

    def __init__(self, name: str, behaviour: Behaviour | None = None, *, access: Access = Access.NONE,
                 effect: Effect = Effect.WORLD, parallel: bool = False, diffs: tuple[Diff, ...] = ()) -> None:
        self.name = name
        self.description = f"The fake tool {name}."
        self.parameters: dict[str, Any] = {"type": "object", "properties": {}}
        self.access = access
        self.effect = effect
        self.parallel = parallel
        self._behaviour = behaviour
        self._diffs = diffs
        self.runs: list[dict[str, Any]] = []
        """The arguments of every call that ran."""

    def decode(self, arguments: str) -> Any:
        try:
            return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise invalid(self.name, str(error)) from None

    def announce(self, args: Any, cwd: Path) -> CallView:
        return CallView(f"{self.name} something", Kind.other)

    async def preview(self, args: Any, context: ToolContext) -> tuple[Diff, ...]:
        return self._diffs

    def present(self, args: Any, result: ToolResult, cwd: Path) -> ResultView:
        return ResultView("presented", self._diffs)

    async def run(self, args: dict[str, Any], context: ToolContext) -> Outcome:
        self.runs.append(args)
        if self._behaviour is not None:
            return await self._behaviour(args, context)
        return Outcome.text(f"{self.name}: {msgspec.json.encode(args).decode()}")


# ---------------------------------------------------------------- a client

Reply: TypeAlias = Answer | Hang


class NoDesk:
    """A client that does nothing for a session's tools."""

    editor = None
    terminals = None
    asks: Modes = frozenset()

    def elicit(self, position: int) -> Elicit | None:  # contract
        return None


class RecordingView:
    """Takes note of everything a session shows and asks; questions get `replies` in order, then a no."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.events: list[Event] = []
        self.started: list[int] = []
        self.outputs: list[tuple[int, str]] = []
        self.usages: list[Usage] = []
        self.seen: dict[BlobId, bytes] = {}
        self.terminals: list[tuple[int, str]] = []
        self.notices: list[tuple[str, str, str]] = []
        self.desk: Desk = NoDesk()
        self.questions: list[Question] = []
        self.asked = anyio.Event()
        self.known: list[Event] = []
        """The stored events of the session, shown or not."""
        self.shown: list[Event] = []
        self.ends: list[TurnOutcome | None] = []
        """How a child ended: once."""

    def begin(self) -> None:
        """A child is there."""

    def ended(self, outcome: TurnOutcome | None, error: AgentError | None = None) -> None:
        self.ends.append(outcome)

    def past(self, event: Event, *, show: bool) -> None:
        self.known.append(event)
        if show:
            self.shown.append(event)

    def event(self, event: Event) -> None:
        self.events.append(event)

    def running(self, position: int) -> None:
        self.started.append(position)

    def output(self, position: int, text: str) -> None:
        self.outputs.append((position, text))

    def terminal(self, position: int, terminal: str, remark: str) -> None:
        self.terminals.append((position, f"{terminal} {remark}".rstrip()))

    def notice(self, severity: str, title: str, description: str) -> None:
        self.notices.append((severity, title, description))

    def see(self, blob: BlobId, data: bytes) -> None:
        self.seen[blob] = data

    def usage(self, usage: Usage) -> None:
        self.usages.append(usage)

    async def drained(self) -> None:
        """Always."""

    async def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        self.asked.set()
        reply = self.replies.popleft() if self.replies else Answer(allow=False)
        if isinstance(reply, Hang):
            await anyio.sleep_forever()
            raise AssertionError("unreachable")
        return reply


class RecordingViews:
    """The views of one root and its children; `labels` are the children's, in the order of creation."""

    announces = False

    def __init__(self, *replies: Reply) -> None:
        self.root = RecordingView(*replies)
        self.children: list[RecordingView] = []
        self.labels: list[str] = []
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def child(self, place: Place, errand: Errand) -> RecordingView:
        self.labels.append(errand.label)
        self.children.append(RecordingView())
        return self.children[-1]

    def past_child(self, session: SessionId, cwd: Path, errand: Errand) -> RecordingView:
        raise AssertionError("this client knows no children")

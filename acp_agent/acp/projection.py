"""From events to what the client is shown: a pure projection (law 3).

The same function serves live updates and the replay of history on load. The one difference is the source of
an answer's text: its chunks while it streams, the committed message when the log is `settled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from acp_agent.acp.lines import cut, fits, pieces
from acp_agent.acp.pictures import Pictures
from acp_agent.acp.schema import (
    AgentChunk,
    ContentItem,
    CurrentMode,
    DiffItem,
    Plan,
    PlanEntry,
    SessionInfo,
    TextContent,
    ThoughtChunk,
    ToolCallStart,
    ToolCallUpdate,
    ToolContentItem,
    Update,
    UserChunk,
    WireLocation,
)
from acp_agent.ids import CallId, MessageId, WireCallId
from acp_agent.session.events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    ImageBlock,
    ReasoningBlock,
    ReasoningDelta,
    RequestSent,
    SessionCommand,
    SessionConfig,
    SessionTitle,
    StepEnd,
    TextBlock,
    TextDelta,
    TodoWrite,
    ToolCallBlock,
    ToolResult,
    UserMessage,
)
from acp_agent.tools.base import CallView, Diff, Kind, Location, ResultView, Tool, ToolFailure
from acp_agent.tools.registry import Registry


class ShownCall(Struct, frozen=True):
    """A tool call as it was announced. `tool` and `args` are None where the call cannot be understood."""

    wire_id: WireCallId
    block: ToolCallBlock
    view: CallView
    tool: Tool | None
    args: Any


def thought_id(message: MessageId) -> MessageId:
    """The id of an answer's reasoning, a message of its own on the wire."""
    return MessageId(f"{message}-thought")


class Projection:
    """Projects one session's events, in order. Holds the fold that needs: message ids and announced calls."""

    def __init__(self, registry: Registry, cwd: Path, *, settled: bool = False, child: bool = False) -> None:
        """`child`: the client did not send the prompts, so it is shown them; the mode is the parent's, which it knows.
        """
        self._registry = registry
        self.cwd = cwd
        self._settled = settled
        self._child = child
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        """For each id that was wanted, the number it was last given with: the search for a free one goes on there."""
        self._results = 0
        self.message = MessageId("")
        """The id of the answer that is streaming."""
        self.pictures = Pictures()
        """The images of the open step, or of the past event that is about to be shown."""
        self.calls: list[ShownCall] = []
        """The calls of the newest assistant message, by position."""
        self._started: list[int] = []
        self.in_terminal: set[WireCallId] = set()
        """The calls whose output a terminal of the client's shows."""

    def updates(self, event: Event) -> Sequence[Update]:
        """What the client is shown of `event`."""
        body = event.body
        match body:
            case AssistantChunk():
                return self._chunk(body)
            case RequestSent():
                self.message = body.message_id
                return ()
            case AssistantMessage():
                return self._answer(body)
            case ToolResult():
                return self._result(body)
            case UserMessage():
                return self._prompt(body)
            case SessionCommand():
                return self._command(body)
            case SessionTitle():
                return (SessionInfo(body.title),)
            case TodoWrite():
                return (Plan(tuple(PlanEntry(todo.content, "medium", todo.status) for todo in body.todos)),)
            case SessionConfig(mode=str() as mode) if not self._child:
                return (CurrentMode(mode),)
            case StepEnd():
                self.pictures.forget()
                return ()
            case _:
                return ()

    def past(self, event: Event) -> Sequence[Update]:
        """What the client is shown of an event that happened before anybody was watching."""
        settled, self._settled = self._settled, True
        try:
            return self.updates(event)
        finally:
            self._settled = settled
            self.pictures.forget()

    def skip(self, event: Event) -> None:
        """Take note of the ids of a past event that the client is not shown now: it may know them."""
        if isinstance(event.body, AssistantMessage):
            for block in event.body.message.content:
                if isinstance(block, ToolCallBlock):
                    self._wire_id(block)

    def _chunk(self, body: AssistantChunk) -> Sequence[Update]:
        chunk = body.chunk
        if self._settled:
            return ()
        if isinstance(chunk, TextDelta):
            return _chunks(AgentChunk, chunk.text, self.message)
        if isinstance(chunk, ReasoningDelta):
            return _chunks(ThoughtChunk, chunk.text, thought_id(self.message))
        return ()

    def _prompt(self, body: UserMessage) -> Sequence[Update]:
        """A live client knows what it sent itself."""
        if not (self._settled or self._child) or body.source.kind != "user":
            return ()
        chunks: list[Update] = []
        for block in body.content:
            if isinstance(block, TextBlock):
                chunks.extend(_chunks(UserChunk, block.text, body.id))
            elif isinstance(block, ImageBlock):
                chunks.append(UserChunk(self.pictures.shown(block), body.id))
        return chunks

    def _command(self, body: SessionCommand) -> Sequence[Update]:
        answer = _chunks(AgentChunk, body.output, body.answer_id)
        return (*_chunks(UserChunk, body.text, body.id), *answer) if self._settled else answer

    def _answer(self, body: AssistantMessage) -> Sequence[Update]:
        updates: list[Update] = []
        self.calls, self._started, self._results = [], [], 0
        for block in body.message.content:
            if isinstance(block, ToolCallBlock):
                call = self._show(block)
                self.calls.append(call)
                updates.append(_announcement(call))
            elif self._settled and isinstance(block, TextBlock) and block.text:
                updates.extend(_chunks(AgentChunk, block.text, body.message.id))
            elif self._settled and isinstance(block, ReasoningBlock) and block.text:
                updates.extend(_chunks(ThoughtChunk, block.text, thought_id(body.message.id)))
        return updates

    def _show(self, block: ToolCallBlock) -> ShownCall:
        tool = self._registry.get(block.name)
        if tool is not None:
            try:
                args = tool.decode(block.arguments)
                return ShownCall(self._wire_id(block), block, tool.announce(args, self.cwd), tool, args)
            except ToolFailure:
                pass
        return ShownCall(self._wire_id(block), block, CallView(block.name, Kind.other), None, None)

    def _wire_id(self, block: ToolCallBlock) -> WireCallId:
        """The model's id where it is new in the session; some model servers use an id again."""
        return self.claim(block.id or "call")

    def claim(self, wanted: str) -> WireCallId:
        """An id that no call of this session was shown with: the wanted one, or that with a number."""
        number = self._numbers.get(wanted, 1)
        candidate = wanted if number == 1 else f"{wanted}#{number}"
        while candidate in self._used:
            number += 1
            candidate = f"{wanted}#{number}"
        self._numbers[wanted] = number
        self._used.add(candidate)
        return WireCallId(candidate)

    def start(self, position: int) -> ShownCall:
        """The call at a position runs from now on."""
        self._started.append(position)
        return self.calls[position]

    def newest(self, call_id: CallId) -> int:
        """The position of the call with this id that was started last: a model may use an id twice."""
        return next(position for position in reversed(self._started) if self.calls[position].block.id == call_id)

    def _result(self, body: ToolResult) -> Sequence[Update]:
        """Results come in the order of their calls, so the position is counted, not looked up by id."""
        if self._results >= len(self.calls) or not body.message.content:
            return ()
        call = self.calls[self._results]
        self._results += 1
        return (self.finished(call, body),)

    def finished(self, call: ShownCall, body: ToolResult) -> ToolCallUpdate:
        """A call's final state."""
        result = body.message.content[0]
        text = "".join(block.text for block in result.content if isinstance(block, TextBlock))
        images = self.pictures.together(block for block in result.content if isinstance(block, ImageBlock))
        view = ResultView(text)
        if call.tool is not None and not result.is_error:
            view = call.tool.present(call.args, body, self.cwd)
        output: dict[str, Any] = {"text": cut(text), "isError": result.is_error}
        if body.error is not UNSET:
            output["error"] = body.error
        shown = None if images and not view.text else view.text
        content = (*_content(shown, view.diffs), *map(ContentItem, images))
        return ToolCallUpdate(
            tool_call_id=call.wire_id, status="failed" if result.is_error else "completed",
            content=UNSET if call.wire_id in self.in_terminal else content,
            locations=UNSET if view.locations is UNSET else _locations(view.locations),
            raw_output=output,
        )  # fmt: skip


def _chunks(kind: type[UserChunk | AgentChunk | ThoughtChunk], text: str, message: MessageId) -> tuple[Update, ...]:
    """A message's text, in as many chunks as it takes."""
    return tuple(kind(TextContent(piece), message) for piece in pieces(text))


def _announcement(call: ShownCall) -> ToolCallStart:
    view = call.view
    return ToolCallStart(
        tool_call_id=call.wire_id, title=cut(view.title), name=cut(call.block.name), kind=view.kind.value,
        status="pending", content=_content(None, view.diffs) or UNSET, locations=_locations(view.locations) or UNSET,
        raw_input=raw_json(call.block.arguments),
    )  # fmt: skip


def raw_json(arguments: str) -> Any:
    """A call's arguments as JSON; the bare string where they are none, and their beginning where they are too long."""
    if not arguments.strip():
        return {}
    if not fits(arguments):
        return cut(arguments)
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    return Raw(arguments.encode("utf-8", "replace"))


def _content(text: str | None, diffs: Sequence[Diff]) -> tuple[ToolContentItem, ...]:
    items: list[ToolContentItem] = [DiffItem(diff.path, diff.old_text, diff.new_text) for diff in diffs]
    if not fits(*(side for diff in diffs for side in (diff.path, diff.old_text or "", diff.new_text))):
        length = sum(len(diff.new_text) for diff in diffs)
        items = [ContentItem(TextContent(f"(the change is too long to be shown: {length} characters of new text)"))]
    if text is not None:
        items.append(ContentItem(TextContent(cut(text))))
    return tuple(items)


def _locations(locations: Sequence[Location]) -> tuple[WireLocation, ...]:
    return tuple(WireLocation(location.path, location.line) for location in locations)


def diff_items(diffs: Sequence[Diff]) -> tuple[ToolContentItem, ...]:
    """Diffs as tool call content."""
    return _content(None, diffs)

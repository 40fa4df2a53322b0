"""What the client sees of a root session: history through the projection, transient news beside it."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.acp.projection import Projection, ShownCall, diff_items, raw_json, thought_id
from acp_agent.acp.schema import (
    AvailableCommands,
    ContentItem,
    Notice,
    PermissionOption,
    PermissionParams,
    PermissionResult,
    TerminalItem,
    TextContent,
    ToolCallFields,
    ToolCallStart,
    ToolCallUpdate,
    Update,
    UpdateFrame,
    UpdateParams,
    UsageReport,
)
from acp_agent.acp.services import ChildDesk, ClientDesk, ClientServices
from acp_agent.ids import BlobId, MessageId, SessionId, WireCallId
from acp_agent.loop.host import Answer, Question
from acp_agent.rpc.envelope import to_json
from acp_agent.rpc.peer import PeerError
from acp_agent.session.events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    ReasoningDelta,
    RequestContext,
    TextDelta,
    ToolResult,
    Usage,
)

T = TypeVar("T")

ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS = "allow-once", "allow-always", "reject-once", "reject-always"


class Client(Protocol):
    """The connected client, as far as a session needs it."""

    def send(self, frame: bytes) -> None:
        """Queue one line, newline included; does not wait."""
        ...

    def behind(self) -> bool:
        """Whether so much is queued that producers have to wait."""
        ...

    async def drained(self) -> None:
        """Wait until the client has read most of what is queued."""
        ...

    async def request(self, method: str, params: Struct, result_type: type[T]) -> T:
        """Ask the client. Raises `PeerError`."""
        ...


def update_frame(session: SessionId, update: Update) -> bytes:
    """One update's line."""
    return to_json(UpdateFrame(params=UpdateParams(session, update))) + b"\n"


class ClientView:
    """One root session on the wire."""

    def __init__(
        self, client: Client, session: SessionId, projection: Projection, services: ClientServices
    ) -> None:
        self.desk = ClientDesk(services, self._wire_id)
        self._client = client
        self._services = services
        self._session = session
        self._projection = projection
        self._window: int | None = None
        self._usage: Usage | UnsetType = UNSET
        """The newest answer's in the stored history."""
        self._in_terminal: set[WireCallId] = set()
        self._text_head = self._thought_head = self._text_tail = self._thought_tail = b""
        self._headed: MessageId | None = None

    # -- history

    def event(self, event: Event) -> None:
        """Show what an event changes."""
        body = event.body
        if type(body) is AssistantChunk:
            chunk = body.chunk
            if type(chunk) is TextDelta:
                self._head()
                self._client.send(self._text_head + to_json(chunk.text) + self._text_tail)
            elif type(chunk) is ReasoningDelta:
                self._head()
                self._client.send(self._thought_head + to_json(chunk.text) + self._thought_tail)
            return
        self._note_window(event)
        for update in self._projection.updates(event):
            if isinstance(update, ToolCallUpdate):
                self.finish(update)
            else:
                self.update(update)

    def past(self, event: Event, *, show: bool) -> None:
        """Take note of an event of the stored history, and show it if asked to."""
        self._note_window(event)
        if isinstance(event.body, AssistantMessage):
            self._usage = event.body.usage
        if not show:
            self._projection.skip(event)
            return
        for update in self._projection.past(event):
            self.update(update)

    def begin(self, commands: AvailableCommands) -> None:
        """Say what the user can do in the session, and how full its context is, where that is known."""
        self.update(commands)
        if self._usage is not UNSET:
            self.usage(self._usage)

    def _note_window(self, event: Event) -> None:
        if isinstance(event.body, RequestContext):
            self._window = None if event.body.context_window is UNSET else event.body.context_window

    def update(self, update: Update) -> None:
        """Send one update."""
        self._client.send(update_frame(self._session, update))

    def _head(self) -> None:
        """Everything of a delta's frame but its text is the same for a whole answer: encode it once."""
        message = self._projection.message
        if message != self._headed:
            self._headed = message
            self._text_head, self._text_tail = self._frame_around("agent_message_chunk", message)
            self._thought_head, self._thought_tail = self._frame_around("agent_thought_chunk", thought_id(message))

    def _frame_around(self, kind: str, message: MessageId) -> tuple[bytes, bytes]:
        head = (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + to_json(self._session)
            + b',"update":{"sessionUpdate":' + to_json(kind) + b',"content":{"type":"text","text":'
        )  # fmt: skip
        return head, b'},"messageId":' + to_json(message) + b"}}}\n"

    # -- transient

    def running(self, position: int) -> None:
        self.update(ToolCallUpdate(self._call(position).wire_id, status="in_progress"))

    def output(self, position: int, text: str) -> None:
        """Each shows the whole output so far, so one that a slow client has no room for is left out."""
        if self._client.behind():
            return
        items = (ContentItem(TextContent(text)),)
        self.update(ToolCallUpdate(self._call(position).wire_id, status="in_progress", content=items))

    def terminal(self, position: int, terminal: str) -> None:
        """The terminal stays the call's output on this client: what it printed is not shown as text beside it."""
        self.embed(self._wire_id(position), terminal)

    def embed(self, wire_id: WireCallId, terminal: str) -> None:
        """Show a terminal as the output of a call, also a child's."""
        self._in_terminal.add(wire_id)
        self.update(ToolCallUpdate(wire_id, status="in_progress", content=(TerminalItem(terminal),)))

    def finish(self, update: ToolCallUpdate) -> None:
        """Show a call's end; what a terminal shows already stays as it is."""
        if update.tool_call_id in self._in_terminal:
            update = msgspec.structs.replace(update, content=UNSET)
        self.update(update)

    def notice(self, severity: str, title: str, description: str) -> None:
        """Told only to a client that shows notices (ACP: `session.notices`)."""
        if self._services.capabilities.notices:
            self.update(Notice(severity, title, description))

    def see(self, blob: BlobId, data: bytes) -> None:
        """Live or past: what shows the event is the same."""
        self._projection.pictures.see(blob, data)

    def usage(self, usage: Usage) -> None:
        """How full the context is, where the model's window is known; cached tokens count."""
        if self._window is not None:
            self.update(UsageReport(usage.total, self._window))

    async def drained(self) -> None:
        await self._client.drained()

    def _wire_id(self, position: int) -> WireCallId:
        return self._call(position).wire_id

    def _call(self, position: int) -> ShownCall:
        return self._projection.calls[position]

    # -- permission

    async def ask(self, question: Question) -> Answer:
        """Put a permission question to the client. Silence, an error or an unknown answer means no."""
        call = self._call(question.position)
        fields = ToolCallFields(
            call.wire_id, title=question.view.title, kind=question.view.kind.value, status="pending",
            content=diff_items(question.diffs) or UNSET, raw_input=raw_json(call.block.arguments),
        )  # fmt: skip
        return await self._put(fields, question.covers)

    async def _put(self, fields: ToolCallFields, covers: str) -> Answer:
        params = PermissionParams(self._session, fields, _options(covers))
        try:
            result = await self._client.request("session/request_permission", params, PermissionResult)
        except PeerError:
            return Answer(allow=False)
        if result.outcome.outcome != "selected":
            return Answer(allow=False)
        chosen = result.outcome.option_id
        return Answer(allow=chosen in (ALLOW_ONCE, ALLOW_ALWAYS), always=chosen in (ALLOW_ALWAYS, REJECT_ALWAYS))

    # -- children

    def child_call(self, path: str, question: Question, label: str, arguments: str) -> WireCallId:
        """Announce a child's call, which the client has not seen, so that it knows what it is asked about."""
        wire_id = self._projection.claim(f"{path}/{question.call_id}")
        self.update(ToolCallStart(
            tool_call_id=wire_id, title=f"{label}: {question.view.title}", name=question.tool,
            kind=question.view.kind.value, status="pending", content=diff_items(question.diffs) or UNSET,
            raw_input=raw_json(arguments),
        ))  # fmt: skip
        return wire_id

    async def ask_for_child(self, wire_id: WireCallId, question: Question, label: str, arguments: str) -> Answer:
        """Put a child's question, saying which child asks."""
        fields = ToolCallFields(
            wire_id, title=f"{label}: {question.view.title}", kind=question.view.kind.value, status="pending",
            content=diff_items(question.diffs) or UNSET, raw_input=raw_json(arguments),
        )  # fmt: skip
        return await self._put(fields, question.covers)


def _options(covers: str) -> tuple[PermissionOption, ...]:
    return (
        PermissionOption(ALLOW_ONCE, "Allow", "allow_once"),
        PermissionOption(ALLOW_ALWAYS, f"Always allow {covers}", "allow_always"),
        PermissionOption(REJECT_ONCE, "Reject", "reject_once"),
        PermissionOption(REJECT_ALWAYS, f"Always reject {covers}", "reject_always"),
    )


class ChildView:
    """What the client sees of a child session: the calls it must decide about, shown in the root session.

    The rest of a child's work is summed up in the result of the parent's delegating call.
    """

    def __init__(self, root: ClientView, projection: Projection, path: str, label: str) -> None:
        self._root = root
        self._projection = projection
        self._path = path
        self._label = label
        self._shown: dict[int, WireCallId] = {}
        self._results = 0
        self.desk = ChildDesk(root.desk)

    def event(self, event: Event) -> None:
        calls = self._projection.calls
        self._projection.updates(event)
        if self._projection.calls is not calls:
            self._shown, self._results = {}, 0
        if isinstance(event.body, ToolResult):
            self._finish(event.body)

    def _finish(self, body: ToolResult) -> None:
        position, self._results = self._results, self._results + 1
        wire_id = self._shown.pop(position, None)
        if wire_id is not None:
            call = msgspec.structs.replace(self._projection.calls[position], wire_id=wire_id)
            self._root.finish(self._projection.finished(call, body))

    def running(self, position: int) -> None:
        if position in self._shown:
            self._root.update(ToolCallUpdate(self._shown[position], status="in_progress"))

    def output(self, position: int, text: str) -> None:
        """A child's output is not streamed to the client."""

    def terminal(self, position: int, terminal: str) -> None:
        """A terminal is embedded where the client knows the call."""
        if position in self._shown:
            self._root.embed(self._shown[position], terminal)

    def notice(self, severity: str, title: str, description: str) -> None:
        self._root.notice(severity, f"{self._label}: {title}", description)

    def see(self, blob: BlobId, data: bytes) -> None:
        self._projection.pictures.see(blob, data)

    def usage(self, usage: Usage) -> None:
        """The context window shown is the root session's."""

    async def drained(self) -> None:
        """Nothing of a child's stream goes to the client."""

    async def ask(self, question: Question) -> Answer:
        arguments = self._projection.calls[question.position].block.arguments
        wire_id = self._root.child_call(self._path, question, self._label, arguments)
        self._shown[question.position] = wire_id
        return await self._root.ask_for_child(wire_id, question, self._label, arguments)

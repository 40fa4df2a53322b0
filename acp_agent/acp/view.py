"""What the client sees of a session it knows: history through the projection, transient news beside it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import UNSET, Struct, UnsetType

from acp_agent.acp import permission
from acp_agent.acp.lines import pieces
from acp_agent.acp.projection import Projection, ShownCall, thought_id
from acp_agent.acp.schema import (
    AvailableCommands,
    ContentItem,
    Notice,
    TerminalItem,
    TextContent,
    ToolCallUpdate,
    Update,
    UpdateFrame,
    UpdateParams,
    UsageReport,
)
from acp_agent.acp.services import ClientDesk, ClientServices
from acp_agent.ids import BlobId, MessageId, SessionId, WireCallId
from acp_agent.loop.host import Answer, Desk, Question
from acp_agent.rpc.envelope import to_json
from acp_agent.session.events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    ReasoningDelta,
    RequestContext,
    TextDelta,
    Usage,
)

T = TypeVar("T")


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
    """One session on the wire."""

    def __init__(
        self, client: Client, session: SessionId, projection: Projection, services: ClientServices
    ) -> None:
        self.desk: Desk = ClientDesk(services, self._wire_id)
        self.session = session
        self.projection = projection
        self.services = services
        self.client = client
        self._window: int | None = None
        self._usage: Usage | UnsetType = UNSET
        """The newest answer's in the stored history."""
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
                for piece in pieces(chunk.text):
                    self.client.send(self._text_head + to_json(piece) + self._text_tail)
            elif type(chunk) is ReasoningDelta:
                self._head()
                for piece in pieces(chunk.text):
                    self.client.send(self._thought_head + to_json(piece) + self._thought_tail)
            return
        self._note_window(event)
        for update in self.projection.updates(event):
            self.update(update)

    def past(self, event: Event, *, show: bool) -> None:
        """Take note of an event of the stored history, and show it if asked to."""
        self._note_window(event)
        if isinstance(event.body, AssistantMessage):
            self._usage = event.body.usage
        if not show:
            self.projection.skip(event)
            return
        for update in self.projection.past(event):
            self.update(update)

    def greet(self, commands: AvailableCommands) -> None:
        """Say what the user can do in the session, and how full its context is, where that is known."""
        self.update(commands)
        if self._usage is not UNSET:
            self.usage(self._usage)

    def _note_window(self, event: Event) -> None:
        if isinstance(event.body, RequestContext):
            self._window = None if event.body.context_window is UNSET else event.body.context_window

    def update(self, update: Update) -> None:
        """Send one update."""
        self.client.send(update_frame(self.session, update))

    def _head(self) -> None:
        """Everything of a delta's frame but its text is the same for a whole answer: encode it once."""
        message = self.projection.message
        if message != self._headed:
            self._headed = message
            self._text_head, self._text_tail = self._frame_around("agent_message_chunk", message)
            self._thought_head, self._thought_tail = self._frame_around("agent_thought_chunk", thought_id(message))

    def _frame_around(self, kind: str, message: MessageId) -> tuple[bytes, bytes]:
        head = (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + to_json(self.session)
            + b',"update":{"sessionUpdate":' + to_json(kind) + b',"content":{"type":"text","text":'
        )  # fmt: skip
        return head, b'},"messageId":' + to_json(message) + b"}}}\n"

    # -- transient

    def running(self, position: int) -> None:
        self.update(ToolCallUpdate(self.projection.start(position).wire_id, status="in_progress"))

    def output(self, position: int, text: str) -> None:
        self.show(self._wire_id(position), text)

    def show(self, wire_id: WireCallId, text: str) -> None:
        """Show the whole of what there is to see of a running call; what a slow client has no room for is left out."""
        if not self.client.behind():
            items = (ContentItem(TextContent(text)),)
            self.update(ToolCallUpdate(wire_id, status="in_progress", content=items))

    def terminal(self, position: int, terminal: str, remark: str) -> None:
        """The terminal stays the call's output on this client: what it printed is not shown as text beside it."""
        wire_id = self._wire_id(position)
        self.projection.in_terminal.add(wire_id)
        self.embed(wire_id, terminal, remark)

    def embed(self, wire_id: WireCallId, terminal: str, remark: str) -> None:
        """Show a terminal as the output of a call, and beside it what it does not show itself."""
        beside = (ContentItem(TextContent(remark)),) if remark else ()
        self.update(ToolCallUpdate(wire_id, status="in_progress", content=(TerminalItem(terminal), *beside)))

    def notice(self, severity: str, title: str, description: str) -> None:
        """Told only to a client that shows notices (ACP: `session.notices`)."""
        if self.services.capabilities.notices:
            self.update(Notice(severity, title, description))

    def see(self, blob: BlobId, data: bytes) -> None:
        """Live or past: what shows the event is the same."""
        self.projection.pictures.see(blob, data)

    def usage(self, usage: Usage) -> None:
        """How full the context is, where the model's window is known; cached tokens count."""
        if self._window is not None:
            self.update(UsageReport(usage.total, self._window))

    async def drained(self) -> None:
        await self.client.drained()

    def _wire_id(self, position: int) -> WireCallId:
        return self._call(position).wire_id

    def _call(self, position: int) -> ShownCall:
        return self.projection.calls[position]

    async def ask(self, question: Question) -> Answer:
        call = self._call(question.position)
        asked = permission.AskedCall(self.session, call.wire_id, question.view.title, call.block.arguments)
        return await permission.ask(self.client, asked, question)

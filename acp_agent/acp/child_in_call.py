"""A child for a client that knows no children: its progress is shown in the call that made it, and the calls that
the client must decide about are shown in the session it knows.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import UNSET

from acp_agent.acp import permission
from acp_agent.acp.lines import cut
from acp_agent.acp.progress import Deed, Progress
from acp_agent.acp.projection import Projection, diff_items, raw_json
from acp_agent.acp.schema import ToolCallStart, ToolCallUpdate
from acp_agent.acp.services import ChildDesk, ClientDesk
from acp_agent.acp.view import ClientView
from acp_agent.errors import AgentError
from acp_agent.ids import BlobId, CallId, SessionId, WireCallId
from acp_agent.loop.host import Answer, Desk, Question
from acp_agent.session.events import AssistantMessage, Event, TextBlock, ToolResult, TurnOutcome, Usage
from acp_agent.session.session import Place


class Delegating(Protocol):
    """A call that made a child, as somebody who can show what the child does."""

    def show(self, progress: Progress) -> None:
        """Show it anew."""
        ...


class KnownCall:
    """A delegating call that the client knows."""

    def __init__(self, view: ClientView, call_id: CallId) -> None:
        self._view = view
        self._wire_id = view.projection.calls[view.projection.newest(call_id)].wire_id
        self._text = ""

    def show(self, progress: Progress) -> None:
        before, self._text = self._text, progress.text
        if self._text != before:
            self._view.show(self._wire_id, self._text)


class HiddenCall:
    """A delegating call of a child that is itself shown in a call."""

    def __init__(self, view: ChildInCallView, call_id: CallId) -> None:
        self._view = view
        self._deed = view.deed(call_id)

    def show(self, progress: Progress) -> None:
        self._deed.inside = progress
        self._view.show()


class ChildInCallView:
    """What the client sees of a child. `host` is the view of the session that the client knows."""

    def __init__(
        self, host: ClientView, place: Place, projection: Projection, delegating: Delegating, label: str
    ) -> None:
        self.host = host
        self.session: SessionId = place.session
        self.desk: Desk = ChildDesk(ClientDesk(host.services, self._wire_id))
        self._path = "/".join(map(str, place.path))
        self._projection = projection
        self._delegating = delegating
        self._label = label
        self._progress = Progress()
        self._deeds: list[Deed] = []
        self._results = 0
        self._shown: dict[int, WireCallId] = {}

    def begin(self) -> None:
        """There is nothing to be seen yet."""

    def ended(self, outcome: TurnOutcome | None, error: AgentError | None = None) -> None:
        """The delegating call's result tells."""

    # -- progress

    def event(self, event: Event) -> None:
        self._projection.updates(event)
        body = event.body
        if isinstance(body, AssistantMessage):
            said = "".join(block.text for block in body.message.content if isinstance(block, TextBlock))
            self._deeds = self._progress.answer(said, [call.view.title for call in self._projection.calls])
            self._shown, self._results = {}, 0
            self.show()
        elif isinstance(body, ToolResult) and self._results < len(self._deeds):
            self._finish(body)
            self.show()

    def _finish(self, body: ToolResult) -> None:
        position, self._results = self._results, self._results + 1
        self._deeds[position].failed = body.message.content[0].is_error
        if position in self._shown:
            call = msgspec.structs.replace(self._projection.calls[position], wire_id=self._shown.pop(position))
            self.host.update(self._projection.finished(call, body))

    def show(self) -> None:
        """Show the whole progress anew."""
        self._delegating.show(self._progress)

    def deed(self, call_id: CallId) -> Deed:
        """The call with this id that was started last."""
        return self._deeds[self._projection.newest(call_id)]

    # -- calls that the client decides about

    def running(self, position: int) -> None:
        self._projection.start(position)
        if position in self._shown:
            self.host.update(ToolCallUpdate(self._shown[position], status="in_progress"))

    def output(self, position: int, text: str) -> None:
        """A child's output is not streamed to the client."""

    def terminal(self, position: int, terminal: str, remark: str) -> None:
        """A terminal is embedded where the client knows the call."""
        if position in self._shown:
            self._projection.in_terminal.add(self._shown[position])
            self.host.embed(self._shown[position], terminal, remark)

    def notice(self, severity: str, title: str, description: str) -> None:
        self.host.notice(severity, f"{self._label}: {title}", description)

    def see(self, blob: BlobId, data: bytes) -> None:
        self._projection.pictures.see(blob, data)

    def usage(self, usage: Usage) -> None:
        """The context window shown is that of the session the client knows."""

    async def drained(self) -> None:
        """Nothing of a child's stream goes to the client."""

    async def ask(self, question: Question) -> Answer:
        """Announce the call, which the client has not seen, and put the question, saying which child asks."""
        arguments = self._projection.calls[question.position].block.arguments
        title = f"{self._label}: {question.view.title}"
        wire_id = self._shown[question.position] = self.host.projection.claim(f"{self._path}/{question.call_id}")
        self.host.update(ToolCallStart(
            tool_call_id=wire_id, title=cut(title), name=question.tool, kind=question.view.kind.value, status="pending",
            content=diff_items(question.diffs) or UNSET, raw_input=raw_json(arguments),
        ))  # fmt: skip
        asked = permission.AskedCall(self.host.session, wire_id, title, arguments)
        return await permission.ask(self.host.client, asked, question)

    def _wire_id(self, position: int) -> WireCallId:
        return self._shown[position]

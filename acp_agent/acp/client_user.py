"""The client's user: `elicitation/create`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from acp_agent.acp.asking import Asking
from acp_agent.acp.handshake import Wire
from acp_agent.ids import SessionId, WireCallId
from acp_agent.rpc.peer import PeerError
from acp_agent.tools.questions import ElicitError, Modes, Reply


class FormQuestion(Wire, frozen=True, tag_field="mode", tag="form"):
    session_id: SessionId
    tool_call_id: WireCallId
    message: str
    requested_schema: dict[str, Any]


class LinkQuestion(Wire, frozen=True, tag_field="mode", tag="url"):
    session_id: SessionId
    tool_call_id: WireCallId
    message: str
    elicitation_id: str
    url: str


class UserAnswer(Wire, frozen=True):
    action: str
    content: dict[str, Any] | UnsetType | None = UNSET


class ClientUser:
    """`elicitation/create`, about one call."""

    def __init__(
        self, client: Asking, session: SessionId, call: WireCallId, asks: Modes, token: Callable[[], str]
    ) -> None:
        self._client = client
        self._session = session
        self._call = call
        self._token = token
        self.forms = "form" in asks
        self.links = "link" in asks

    async def form(self, message: str, schema: dict[str, Any]) -> Reply:
        return await self._ask(FormQuestion(self._session, self._call, message, schema))

    async def link(self, message: str, url: str) -> Reply:
        return await self._ask(LinkQuestion(self._session, self._call, message, self._token(), url))

    async def _ask(self, question: Struct) -> Reply:
        try:
            answer = await self._client.request("elicitation/create", question, UserAnswer)
        except PeerError as error:
            raise ElicitError(str(error)) from None
        return Reply(answer.action, answer.content or {})

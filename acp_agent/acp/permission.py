"""Permission questions to the client: `session/request_permission`."""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import UNSET, Struct

from acp_agent.acp.lines import cut
from acp_agent.acp.projection import diff_items, raw_json
from acp_agent.acp.schema import PermissionOption, PermissionParams, PermissionResult, ToolCallFields
from acp_agent.ids import SessionId, WireCallId
from acp_agent.loop.host import Answer, Question
from acp_agent.rpc.peer import PeerError

T = TypeVar("T")

ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS = "allow-once", "allow-always", "reject-once", "reject-always"


class Questioned(Protocol):
    """The client as somebody who decides."""

    async def request(self, method: str, params: Struct, result_type: type[T]) -> T:
        """Ask the client. Raises `PeerError`."""
        ...


class AskedCall(Struct, frozen=True):
    """A call as the client knows it, and what would be done. `arguments` are the model's."""

    session: SessionId
    wire_id: WireCallId
    title: str
    arguments: str


async def ask(client: Questioned, call: AskedCall, question: Question) -> Answer:
    """Put a permission question to the client. Silence, an error or an unknown answer means no."""
    fields = ToolCallFields(
        call.wire_id, title=cut(call.title), kind=question.view.kind.value, status="pending",
        content=diff_items(question.diffs) or UNSET, raw_input=raw_json(call.arguments),
    )  # fmt: skip
    params = PermissionParams(call.session, fields, _options(question.covers))
    try:
        result = await client.request("session/request_permission", params, PermissionResult)
    except PeerError:
        return Answer(allow=False)
    if result.outcome.outcome != "selected":
        return Answer(allow=False)
    chosen = result.outcome.option_id
    return Answer(allow=chosen in (ALLOW_ONCE, ALLOW_ALWAYS), always=chosen in (ALLOW_ALWAYS, REJECT_ALWAYS))


def _options(covers: str) -> tuple[PermissionOption, ...]:
    return (
        PermissionOption(ALLOW_ONCE, "Allow", "allow_once"),
        PermissionOption(ALLOW_ALWAYS, f"Always allow {covers}", "allow_always"),
        PermissionOption(REJECT_ONCE, "Reject", "reject_once"),
        PermissionOption(REJECT_ALWAYS, f"Always reject {covers}", "reject_always"),
    )

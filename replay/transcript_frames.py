"""What an agent's lines say, as far as a reader of a transcript wants to know. Read leniently: any agent may come.

Optional fields that are missing or null are empty; a field of the wrong type makes the update unreadable, and an
unreadable update is shown as it came. Lists in updates are read item by item, so that a bad one spoils only itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay.exchange import Id, RpcError
from replay.printer import brief

T = TypeVar("T")


class _Seen(Struct, frozen=True, rename="camel"):
    """Read from somebody else's line."""


class Resource(_Seen, frozen=True):
    uri: str = ""
    text: str | None = None


class Content(_Seen, frozen=True):
    """A content block of any type."""

    type: str = ""
    text: str | None = None
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = None
    resource: Resource | None = None

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        if self.resource is not None:
            return self.resource.text or f"[resource {self.resource.uri}]"
        facts = [fact for fact in (self.name, self.mime_type, self.uri) if fact]
        return f"[{' '.join([self.type or 'content', *facts])}]"


class Item(_Seen, frozen=True):
    """An item of a tool call's content: `content`, `diff` or `terminal`."""

    type: str = ""
    content: Content | None = None
    path: str = ""
    old_text: str | None = None
    new_text: str = ""
    terminal_id: str = ""


class Call(_Seen, frozen=True):
    """A tool call, or a change of one: what is None stays as it was."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[Raw] | None = None
    """Each an `Item`."""


class _Kind(Struct, frozen=True, rename="camel", tag_field="sessionUpdate"):
    """An update."""


class Chunk(_Kind, frozen=True):
    content: Content
    message_id: str | None = None


class UserChunk(Chunk, frozen=True, tag="user_message_chunk"):
    pass


class AgentChunk(Chunk, frozen=True, tag="agent_message_chunk"):
    pass


class ThoughtChunk(Chunk, frozen=True, tag="agent_thought_chunk"):
    pass


class CallStart(Call, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    pass


class CallChange(Call, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"):
    pass


class PlanEntry(_Seen, frozen=True):
    content: str
    status: str = ""


class Plan(_Kind, frozen=True, tag="plan"):
    entries: list[Raw]
    """Each a `PlanEntry`."""


class Command(_Seen, frozen=True):
    name: str
    description: str | None = None


class Commands(_Kind, frozen=True, tag="available_commands_update"):
    available_commands: list[Raw]
    """Each a `Command`."""


class Mode(_Kind, frozen=True, tag="current_mode_update"):
    current_mode_id: str


class Setting(_Seen, frozen=True):
    """An option of a session, with what is chosen and what there is to choose from."""

    id: str
    current_value: str | bool
    name: str = ""
    options: Raw = Raw(b"")

    def __str__(self) -> str:
        value = self.current_value
        return value if isinstance(value, str) else "on" if value else "off"


class Settings(_Kind, frozen=True, tag="config_option_update"):
    config_options: list[Raw]
    """Each a `Setting`."""


class Info(_Kind, frozen=True, tag="session_info_update"):
    title: str | UnsetType | None = UNSET


class Cost(_Seen, frozen=True):
    amount: float
    currency: str


class Usage(_Kind, frozen=True, tag="usage_update"):
    used: int
    size: int
    cost: Cost | None = None


class Notice(_Kind, frozen=True, tag="notice"):
    title: str
    severity: str = ""
    description: str | None = None


class Compaction(_Kind, frozen=True, tag="compaction_update"):
    compaction_id: str
    status: str
    summary: list[Raw] | None = None
    """Each a `Content`."""
    error: str | None = None


class CompactionChunk(_Kind, frozen=True, tag="compaction_summary_chunk"):
    compaction_id: str
    content: Content


class State(_Seen, frozen=True):
    state: str = ""
    stop_reason: str | None = None
    error: RpcError | None = None

    def __str__(self) -> str:
        why = None if self.error is None else self.error.message
        return ": ".join(filter(None, (self.state, self.stop_reason, why)))


class Subagent(_Kind, frozen=True, tag="subagent_update"):
    session_id: str
    title: str | None = None
    description: str | None = None
    state: State | None = None


Update: TypeAlias = (
    UserChunk | AgentChunk | ThoughtChunk | CallStart | CallChange | Plan | Commands | Mode | Settings | Info | Usage
    | Notice | Compaction | CompactionChunk | Subagent
)  # fmt: skip


class UpdateParams(_Seen, frozen=True):
    """The params of `session/update`."""

    session_id: str
    update: Raw


class Option(_Seen, frozen=True):
    option_id: str
    name: str = ""
    kind: str = ""


class Permission(_Seen, frozen=True):
    """The params of `session/request_permission`."""

    tool_call: Call
    options: list[Option] = []
    session_id: str = ""


class Outcome(_Seen, frozen=True):
    outcome: str
    option_id: str | None = None


class PermissionResult(_Seen, frozen=True):
    outcome: Outcome


class Asked(_Seen, frozen=True):
    """Params of a request of either side, whatever it is: the members worth a line."""

    session_id: str = ""
    message: str = ""
    path: str = ""
    command: str = ""
    args: list[str] | None = None
    terminal_id: str = ""
    mode_id: str = ""
    prompt: list[Content] | None = None


class Result(_Seen, frozen=True):
    """A result that is worth a line, or that says whose the next updates are."""

    stop_reason: str | None = None
    session_id: str | None = None
    config_options: Raw | UnsetType = UNSET


class Line(Struct, frozen=True):
    """A line as JSON-RPC, without judgement on what it lacks."""

    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


read_line = msgspec.json.Decoder(Line).decode
read_params = msgspec.json.Decoder(UpdateParams).decode
read_update = msgspec.json.Decoder(Update).decode


def read_each(raws: Sequence[Raw], cls: type[T]) -> tuple[list[T], list[str]]:
    """The items of a list, and what there is to say of those that cannot be read."""
    items: list[T] = []
    unreadable: list[str] = []
    for raw in raws:
        try:
            items.append(msgspec.json.decode(raw, type=cls))
        except msgspec.MsgspecError as error:
            unreadable.append(f"an item that cannot be shown ({error}): {brief(bytes(raw))}")
    return items, unreadable

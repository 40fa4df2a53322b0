"""ACP v1 wire types: what this agent reads and writes (schema of November 2026).

Incoming structs tolerate unknown fields; a field that is absent is `UNSET`. Where the schema lets a receiver
replace a malformed value by its default, the field is read as raw JSON and decided where it is used.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType, field

from acp_agent.acp.handshake import Wire
from acp_agent.ids import MessageId, SessionId, WireCallId

# ---------------------------------------------------------------- requests from the client


class AuthenticateParams(Wire, frozen=True):
    method_id: str


class NewSessionParams(Wire, frozen=True):
    cwd: str
    mcp_servers: list[Raw] | None
    additional_directories: list[str] | UnsetType | None = UNSET


class LoadParams(Wire, frozen=True):
    session_id: SessionId
    cwd: str
    mcp_servers: list[Raw] | None
    additional_directories: list[str] | UnsetType | None = UNSET


class ResumeParams(Wire, frozen=True):
    """What session/fork takes, too."""

    session_id: SessionId
    cwd: str
    mcp_servers: list[Raw] | UnsetType | None = UNSET
    additional_directories: list[str] | UnsetType | None = UNSET


class ListParams(Wire, frozen=True):
    cwd: str | UnsetType | None = UNSET
    cursor: str | UnsetType | None = UNSET


class SessionParams(Wire, frozen=True):
    """Params that only name a session."""

    session_id: SessionId


class PromptParams(Wire, frozen=True):
    """Of `_meta`, what belongs to a trace goes on to what works for the prompt."""

    session_id: SessionId
    prompt: list[Raw]
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class SetModeParams(Wire, frozen=True):
    session_id: SessionId
    mode_id: str


class SetOptionParams(Wire, frozen=True):
    """`type` says what `value` is, where it is no option value's id."""

    session_id: SessionId
    config_id: str
    value: str | bool
    type: Any = UNSET


class BlockProbe(Wire, frozen=True):
    """Enough of a content block to tell what it is."""

    type: str


class TextContent(Wire, frozen=True, tag_field="type", tag="text"):
    text: str


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """The fields that reach the model. An optional one that is malformed counts as absent."""

    uri: str
    name: str
    title: Any = UNSET
    description: Any = UNSET
    mime_type: Any = UNSET
    size: Any = UNSET


class ImageContent(Wire, frozen=True, tag_field="type", tag="image"):
    """`data` is base64. A `uri` that is no text counts as absent."""

    data: str
    mime_type: str
    uri: Any = UNSET


class ResourceContents(Wire, frozen=True):
    """A resource's content: `text`, or `blob` in base64. A `mime_type` that is no text counts as absent."""

    uri: str
    mime_type: Any = UNSET
    text: str | UnsetType | None = UNSET
    blob: str | UnsetType | None = UNSET


class EmbeddedResource(Wire, frozen=True):
    resource: ResourceContents


# ---------------------------------------------------------------- results


class Empty(Wire, frozen=True):
    """`{}`."""


class SessionMode(Wire, frozen=True):
    id: str
    name: str
    description: str


class ModeState(Wire, frozen=True):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class OptionValue(Wire, frozen=True):
    value: str
    name: str
    description: str | UnsetType = UNSET


class ConfigOption(Wire, frozen=True, tag_field="type", tag="select"):
    """Something to choose in a session, and what is chosen."""

    id: str
    name: str
    description: str
    category: str
    current_value: str
    options: tuple[OptionValue, ...]


class NewSessionResult(Wire, frozen=True):
    session_id: SessionId
    modes: ModeState
    config_options: tuple[ConfigOption, ...]


class OpenedResult(Wire, frozen=True):
    """Of session/load and session/resume."""

    modes: ModeState
    config_options: tuple[ConfigOption, ...]


class OptionsResult(Wire, frozen=True):
    """All options, with their values now."""

    config_options: tuple[ConfigOption, ...]


class ListedSession(Wire, frozen=True):
    """`updated_at` is ISO 8601."""

    session_id: SessionId
    cwd: str
    title: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET


class ListResult(Wire, frozen=True):
    """A page; without `next_cursor` it is the last one."""

    sessions: tuple[ListedSession, ...]
    next_cursor: str | UnsetType = UNSET


StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class PromptResult(Wire, frozen=True):
    stop_reason: StopReason


# ---------------------------------------------------------------- updates


class ContentItem(Wire, frozen=True, tag_field="type", tag="content"):
    """A content block inside a tool call: items are wrapped."""

    content: TextContent | ImageContent


class DiffItem(Wire, frozen=True, tag_field="type", tag="diff"):
    """`path` is absolute; `old_text` null means a new file."""

    path: str
    old_text: str | None
    new_text: str


class TerminalItem(Wire, frozen=True, tag_field="type", tag="terminal"):
    """A terminal of the client's, to be shown as long as the call is."""

    terminal_id: str


ToolContentItem = ContentItem | DiffItem | TerminalItem


class WireLocation(Wire, frozen=True):
    """`line` is 1-based."""

    path: str
    line: int | UnsetType = UNSET


ToolStatus = Literal["pending", "in_progress", "completed", "failed"]


class MessageChunk(Wire, frozen=True, tag_field="sessionUpdate"):
    """A piece of a message."""

    content: TextContent | ImageContent
    message_id: MessageId


class UserChunk(MessageChunk, frozen=True, tag="user_message_chunk"):
    """History only: a prompt as it was given."""


class AgentChunk(MessageChunk, frozen=True, tag="agent_message_chunk"):
    """A piece of the visible answer."""


class ThoughtChunk(MessageChunk, frozen=True, tag="agent_thought_chunk"):
    """A piece of reasoning."""


class ToolCallStart(Wire, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    """A tool call is announced."""

    tool_call_id: WireCallId
    title: str
    name: str
    kind: str
    status: ToolStatus
    content: tuple[ToolContentItem, ...] | UnsetType = UNSET
    locations: tuple[WireLocation, ...] | UnsetType = UNSET
    raw_input: Any = UNSET


class ToolCallFields(Wire, frozen=True):
    """A tool call as a permission question names it."""

    tool_call_id: WireCallId
    title: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    content: tuple[ToolContentItem, ...] | UnsetType = UNSET
    locations: tuple[WireLocation, ...] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class ToolCallUpdate(ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"):
    """A change of an announced tool call; lists replace what was there."""


class PlanEntry(Wire, frozen=True):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class Plan(Wire, frozen=True, tag_field="sessionUpdate", tag="plan"):
    """The whole plan, every time."""

    entries: tuple[PlanEntry, ...]


class CurrentMode(Wire, frozen=True, tag_field="sessionUpdate", tag="current_mode_update"):
    current_mode_id: str


class OptionsUpdate(Wire, frozen=True, tag_field="sessionUpdate", tag="config_option_update"):
    """All options, after one was changed by other means than setting it."""

    config_options: tuple[ConfigOption, ...]


class CommandInput(Wire, frozen=True):
    hint: str


class WireCommand(Wire, frozen=True):
    name: str
    description: str
    input: CommandInput | UnsetType = UNSET


class AvailableCommands(Wire, frozen=True, tag_field="sessionUpdate", tag="available_commands_update"):
    """All commands, every time."""

    available_commands: tuple[WireCommand, ...]


class SessionInfo(Wire, frozen=True, tag_field="sessionUpdate", tag="session_info_update"):
    title: str


class Notice(Wire, frozen=True, tag_field="sessionUpdate", tag="notice"):
    """For the user, now: plain text, never replayed. Only for a client that declared `session.notices`."""

    severity: str
    title: str
    description: str


class UsageReport(Wire, frozen=True, tag_field="sessionUpdate", tag="usage_update"):
    """`used` tokens of a context window of `size`."""

    used: int
    size: int


class WireError(Wire, frozen=True):
    """A JSON-RPC error inside an update."""

    code: int
    message: str


class TokenUsage(Wire, frozen=True):
    """The tokens of all of a session's answers. `input_tokens` are those that no cache had a part in."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int | UnsetType = UNSET
    cached_write_tokens: int | UnsetType = UNSET


class Running(Wire, frozen=True, tag_field="state", tag="running"):
    """A child is at work."""


class RequiresAction(Wire, frozen=True, tag_field="state", tag="requires_action"):
    """A child waits for the user."""


class Idle(Wire, frozen=True, tag_field="state", tag="idle"):
    """A child's work has ended; without a reason nothing is known of how. `error` comes with the reason `error`."""

    stop_reason: StopReason | Literal["error"] | UnsetType = UNSET
    error: WireError | UnsetType = UNSET
    usage: TokenUsage | UnsetType = UNSET


class SubagentUpdate(Wire, frozen=True, tag_field="sessionUpdate", tag="subagent_update"):
    """News of a child, on its parent's session; the first announces it. What is left out is as it was: a directory
    that was never told is the parent's. Only for a client that declared `subagents`.
    """

    session_id: SessionId
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    state: Running | RequiresAction | Idle | UnsetType = UNSET
    cwd: str | UnsetType = UNSET


Update = (
    UserChunk | AgentChunk | ThoughtChunk | ToolCallStart | ToolCallUpdate | Plan | CurrentMode | SessionInfo
    | OptionsUpdate | AvailableCommands
    | UsageReport | Notice | SubagentUpdate
)  # fmt: skip


class UpdateParams(Wire, frozen=True):
    session_id: SessionId
    update: Update


class UpdateFrame(Wire, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    method: str = "session/update"
    params: UpdateParams


# ---------------------------------------------------------------- requests to the client


class PermissionOption(Wire, frozen=True):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionParams(Wire, frozen=True):
    session_id: SessionId
    tool_call: ToolCallFields
    options: tuple[PermissionOption, ...]


class PermissionOutcome(Wire, frozen=True):
    """`selected` with an option's id; any other outcome, known or not, is a no."""

    outcome: str
    option_id: str | UnsetType = UNSET


class PermissionResult(Wire, frozen=True):
    outcome: PermissionOutcome

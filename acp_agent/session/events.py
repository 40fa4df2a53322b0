"""The session log's events: what a session is made of.

One session is a header and a list of events numbered 0, 1, 2, ... Everything the model sees and everything
a client is shown follows from that list. Names, fields and key order are those of session log format 0; the
types marked "ours" are additions that foreign readers skip (`ignorable`).

A field that is absent is `UNSET`, never `None`; field order here is the order on disk. The file is long because it
is the format's whole vocabulary, and is read as one.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.ids import CallId, MessageId, SessionId

FORMAT_VERSION = 0


class LogStruct(Struct, frozen=True, rename="camel", gc=False):
    """Base of everything stored: immutable, camelCase on disk, unset fields left out.

    Frozen trees cannot form cycles, so the collector need not walk them: a long session holds many.
    """


# ---------------------------------------------------------------- content


class TextBlock(LogStruct, frozen=True, tag_field="type", tag="text"):
    text: str


class ReasoningBlock(LogStruct, frozen=True, tag_field="type", tag="reasoning"):
    text: str


class ToolCallBlock(LogStruct, frozen=True, tag_field="type", tag="tool-call"):
    """A tool call asked for by the model; `arguments` is the raw string it produced."""

    id: CallId
    name: str
    arguments: str


class ImageBlock(LogStruct, frozen=True, tag_field="type", tag="image"):
    attachment: Raw


class ToolResultBlock(LogStruct, frozen=True, tag_field="type", tag="tool-result"):
    tool_call_id: CallId
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool


ContentBlock: TypeAlias = TextBlock | ReasoningBlock | ToolCallBlock | ImageBlock | ToolResultBlock


class ReplayState(LogStruct, frozen=True):
    """A provider's opaque state: `response` for the whole answer, `blocks` parallel to its content blocks."""

    response: Any = UNSET
    blocks: list[Any] | UnsetType = UNSET


class Source(LogStruct, frozen=True):
    """Who a message is from. `kind` is open (user, model, tool, plugin, and kinds other writers use), so the
    fields of all known kinds stand side by side instead of as variants: an unknown kind must still load.
    """

    kind: str
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    replay_state: ReplayState | UnsetType = UNSET
    call_id: CallId | UnsetType = UNSET
    plugin: str | UnsetType = UNSET
    form: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    sections: list[Any] | UnsetType = UNSET
    sender_session_id: str | UnsetType = UNSET
    changes: list[Any] | UnsetType = UNSET


class AssistantContent(LogStruct, frozen=True):
    """The `message` of an assistant/message event."""

    role: Literal["assistant"]
    content: tuple[ContentBlock, ...]
    source: Source
    id: MessageId


class ToolContent(LogStruct, frozen=True):
    """The `message` of a tool/result event: exactly one tool-result block."""

    source: Source
    content: tuple[ToolResultBlock, ...]
    role: Literal["user"]
    id: MessageId


# ---------------------------------------------------------------- a model's stream


class Usage(LogStruct, frozen=True):
    """Token counts of one model call."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET

    @property
    def cached(self) -> int:
        """Tokens read from or written to the provider's cache; `input_tokens` are the others."""
        counts = (self.cache_read_tokens, self.cache_write_tokens)
        return sum(count for count in counts if count is not UNSET)

    @property
    def total(self) -> int:
        """How full the context is after the call."""
        return self.input_tokens + self.cached + self.output_tokens


class Failure(LogStruct, frozen=True):
    """Why a model call or a turn failed."""

    message: str
    code: str
    status: int | UnsetType = UNSET
    provider_retry_after_ms: int | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class FinishReason(LogStruct, frozen=True):
    """`kind`: stop, tool-calls, max-tokens, aborted, error; `failure` comes with error."""

    kind: Literal["stop", "tool-calls", "max-tokens", "aborted", "error"]
    failure: Failure | UnsetType = UNSET


class BlockStart(LogStruct, frozen=True, tag_field="type", tag="block-start"):
    index: int
    block_type: str


class TextDelta(LogStruct, frozen=True, tag_field="type", tag="text-delta"):
    index: int
    text: str


class ReasoningDelta(LogStruct, frozen=True, tag_field="type", tag="reasoning-delta"):
    index: int
    text: str


class ToolCallDelta(LogStruct, frozen=True, tag_field="type", tag="tool-call-delta"):
    index: int
    id: CallId
    name: str | UnsetType = UNSET
    arguments_delta: str = ""


class BlockEnd(LogStruct, frozen=True, tag_field="type", tag="block-end"):
    index: int
    block: ContentBlock


class UsageChunk(LogStruct, frozen=True, tag_field="type", tag="usage"):
    usage: Usage


class Finish(LogStruct, frozen=True, tag_field="type", tag="finish"):
    """The last chunk of every model call, exactly once."""

    reason: FinishReason
    replay_state: ReplayState | UnsetType = UNSET


Chunk: TypeAlias = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | Finish


# ---------------------------------------------------------------- event bodies


class Body(LogStruct, frozen=True):
    """The `data` of one event. `type` names the event; `ours` marks what this project added to the format."""

    type: ClassVar[str]
    ours: ClassVar[bool] = False


class TurnStart(Body, frozen=True):
    type: ClassVar[str] = "turn/start"
    turn: int


class Completed(LogStruct, frozen=True, tag_field="kind", tag="completed"):
    """The model had nothing more to do."""


class MaxTokens(LogStruct, frozen=True, tag_field="kind", tag="max-tokens"):
    """An answer hit the model's output limit."""


class Blocked(LogStruct, frozen=True, tag_field="kind", tag="blocked"):
    """The prompt was declined."""


class Interrupted(LogStruct, frozen=True, tag_field="kind", tag="interrupted"):
    """The process died in the turn; written when the log is repaired."""


class AbortCause(LogStruct, frozen=True):
    """`kind`: user, parent, hook, disposed, legacy."""

    kind: str


class Aborted(LogStruct, frozen=True, tag_field="kind", tag="aborted"):
    """The turn was cancelled."""

    reason: AbortCause


class Failed(LogStruct, frozen=True, tag_field="kind", tag="error"):
    """A model call failed for good."""

    error: Failure


TurnOutcome: TypeAlias = Completed | MaxTokens | Blocked | Interrupted | Aborted | Failed


class TurnEnd(Body, frozen=True):
    type: ClassVar[str] = "turn/end"
    turn: int
    reason: TurnOutcome


class StepStart(Body, frozen=True):
    type: ClassVar[str] = "step/start"
    turn: int
    step: int


class StepEnd(Body, frozen=True):
    type: ClassVar[str] = "step/end"
    turn: int
    step: int


class UserMessage(Body, frozen=True):
    type: ClassVar[str] = "user/message"
    content: tuple[ContentBlock, ...]
    source: Source
    role: Literal["user"]
    id: MessageId


class AssistantChunk(Body, frozen=True):
    type: ClassVar[str] = "assistant/chunk"
    turn: int
    step: int
    chunk: Chunk


class AssistantMessage(Body, frozen=True):
    type: ClassVar[str] = "assistant/message"
    turn: int
    step: int
    message: AssistantContent
    usage: Usage | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET


class ToolCall(Body, frozen=True):
    type: ClassVar[str] = "tool/call"
    turn: int
    step: int
    call_id: CallId
    name: str
    arguments: str


class ToolError(LogStruct, frozen=True):
    """A structured failure of a tool, e.g. FsError / FS_NOT_FOUND."""

    name: str
    code: str


class ToolResult(Body, frozen=True):
    type: ClassVar[str] = "tool/result"
    turn: int
    step: int
    message: ToolContent
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET


class ModelConfig(LogStruct, frozen=True):
    """Which model is asked and how."""

    provider: str
    model: str
    max_tokens: int | UnsetType = UNSET
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    stop: list[str] | UnsetType = UNSET


class ToolSchema(LogStruct, frozen=True):
    """One tool as the model is told of it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Any


class HeaderContent(LogStruct, frozen=True):
    """What every request of a session starts with. In projected logs `system` and `tools` are tokens."""

    config: ModelConfig
    adapter_defaults: Any = UNSET
    system: str = ""
    tools: tuple[ToolSchema, ...] | str = ()


class RequestHeader(Body, frozen=True):
    type: ClassVar[str] = "request/header"
    header: HeaderContent
    reason: Literal["initial", "resume", "change"]


class RequestContext(Body, frozen=True):
    type: ClassVar[str] = "request/context"
    provider: str
    model: str
    context_window: int | UnsetType = UNSET


class TitleSource(LogStruct, frozen=True):
    kind: str
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET


class SessionTitle(Body, frozen=True):
    type: ClassVar[str] = "session/title"
    title: str
    message_seqs: list[int]
    source: TitleSource


class EndSeed(Body, frozen=True):
    type: ClassVar[str] = "session/end-seed"


class Todo(LogStruct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoWrite(Body, frozen=True):
    type: ClassVar[str] = "todo/write"
    todos: tuple[Todo, ...]


class ApprovalAsked(Body, frozen=True):
    type: ClassVar[str] = "approval/asked"
    id: str
    tool_name: str
    call_id: CallId
    reason: str


class ApprovalDecided(Body, frozen=True):
    """`outcome`: approved, rejected or cancelled."""

    type: ClassVar[str] = "approval/decided"
    id: str
    outcome: str


class SubagentDescriptor(Body, frozen=True):
    """`mode` one-shot or continuable; `provider` spawn or fork; `label` the delegating call's description."""

    type: ClassVar[str] = "subagent/descriptor"
    version: int
    mode: str
    provider: str
    label: str | UnsetType = UNSET


class LlmRetry(Body, frozen=True):
    type: ClassVar[str] = "llm/retry"
    retry_id: str
    turn: int
    step: int
    provider: str
    mode: str
    policy_key: str
    retry: int
    max_retries: int
    delay_ms: int
    failure: Failure


class LlmRetryStarted(Body, frozen=True):
    type: ClassVar[str] = "llm/retry-started"
    retry_id: str
    turn: int
    step: int
    retry: int


class MessageDigests(LogStruct, frozen=True):
    """Digests of a request's messages: `added` are those after the previous request's, `count` is all of
    them, `head` a digest over the whole list. Listing only what is new keeps a long session's log linear.
    """

    count: int
    head: str
    added: list[str]


class RequestParts(LogStruct, frozen=True):
    """A digest for each part of a model request, taken after roots, home, ids and dates are tokenised."""

    config: str
    system: str
    tools: str
    messages: MessageDigests


class RequestSent(Body, frozen=True):
    """Ours. A model call is about to be made. `message_id` is the id its answer will have; `root` is, on a
    root session's first call, its ordinal among the process's roots.
    """

    type: ClassVar[str] = "request/sent"
    ours: ClassVar[bool] = True
    turn: int
    step: int
    purpose: str
    ordinal: int
    message_id: MessageId
    parts: RequestParts
    root: int | UnsetType = UNSET


class SessionConfig(Body, frozen=True):
    """Ours. The session's mode, model or options were set; absent fields are unchanged."""

    type: ClassVar[str] = "session/config"
    ours: ClassVar[bool] = True
    mode: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    options: dict[str, Any] | UnsetType = UNSET


class SessionCommand(Body, frozen=True):
    """Ours. A command that the agent ran itself: `text` as the user gave it, `output` as the user was answered. The
    model sees neither. `id` and `answer_id` are the messages' ids.
    """

    type: ClassVar[str] = "session/command"
    ours: ClassVar[bool] = True
    id: MessageId
    text: str
    answer_id: MessageId
    output: str


class ApprovalGrant(Body, frozen=True):
    """Ours. The user allowed or refused something for the rest of the session. `covers` says what, in words."""

    type: ClassVar[str] = "approval/grant"
    ours: ClassVar[bool] = True
    key: str
    allow: bool
    covers: str


class FileSeen(Body, frozen=True):
    """Ours. A tool observed a file: `path` is its real path, `version` null when it was seen to be absent."""

    type: ClassVar[str] = "file/seen"
    ours: ClassVar[bool] = True
    path: str
    version: str | None


class ReplayBound(Body, frozen=True):
    """Ours. This root session is served the recording `lane` (a recorded session's id), the `ordinal`-th root."""

    type: ClassVar[str] = "replay/bound"
    ours: ClassVar[bool] = True
    lane: str
    ordinal: int


class Opaque(Struct, frozen=True, gc=False):
    """An event whose type this build does not model: its `data` is kept as it stands."""

    type: str
    raw: Raw


# ---------------------------------------------------------------- envelope


class Replace(LogStruct, frozen=True):
    """A surface operation that puts this event in the place of the surface events `start`..`end` (inclusive)."""

    op: Literal["replace"]
    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


class Event(Struct, frozen=True, gc=False):
    """One logical event. `time` is epoch milliseconds.

    `source_event_seqs` and `surface_op` stand on user/message, assistant/message and tool/result only.
    """

    seq: int
    time: int
    body: Body | Opaque
    source_event_seqs: list[int] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET


class SpawnKey(LogStruct, frozen=True):
    """Ours. Which delegating call of the parent made this child; `index` counts the parent's earlier children
    with the same call id, because some model servers use an id again.
    """

    call_id: CallId
    index: int


class SessionHeader(LogStruct, frozen=True, tag_field="type", tag="session", kw_only=True):
    """A log's first line. `created_at` is epoch milliseconds; `seed_length` counts inherited logical events."""

    version: int = FORMAT_VERSION
    id: SessionId
    created_at: int
    cwd: str | UnsetType = UNSET
    parent_session: SessionId | UnsetType = UNSET
    seed_length: int | UnsetType = UNSET
    origin: Literal["subagent"] | UnsetType = UNSET
    delegation_depth: int = 0
    agent_preset: str | UnsetType = UNSET
    spawn: SpawnKey | UnsetType = UNSET


BODIES: dict[str, type[Body]] = {
    cls.type: cls
    for cls in (
        TurnStart, TurnEnd, StepStart, StepEnd, UserMessage, AssistantChunk, AssistantMessage, ToolCall,
        ToolResult, RequestHeader, RequestContext, SessionTitle, EndSeed, TodoWrite, ApprovalAsked,
        ApprovalDecided, SubagentDescriptor, LlmRetry, LlmRetryStarted, RequestSent, SessionConfig,
        SessionCommand, ApprovalGrant, FileSeen, ReplayBound,
    )
}  # fmt: skip
"""The event types this build models, by name."""

SURFACE_TYPES = frozenset({UserMessage.type, AssistantMessage.type, ToolResult.type})
"""The only types that shape what the model sees (format reference 1.9)."""

KNOWN_TYPES = frozenset(BODIES) | frozenset({
    "agent-preset/selected", "agent/inbox/spliced", "approval/policy", "command/run", "command/done",
    "compaction/start", "compaction/end", "compaction/prune", "compaction/summary", "feedback/record",
    "goal/change", "hook/invoked", "hook/result", "permission/preset", "plan/mode", "sandbox/mode",
    "schedule/change", "session/title-llm-request", "team/member", "team/message/delivered",
    "team/message/queued", "team/task", "tool-workflow/run-start", "tool-workflow/agent-start",
    "tool-workflow/agent-end", "tool-workflow/run-end", "tool/code-dispatch", "tool/code-dispatch-start",
    "web/deepseek-search-llm-request",
})  # fmt: skip
"""Types a log may hold and still be continued: the format's 48 and ours (format reference 1.3)."""

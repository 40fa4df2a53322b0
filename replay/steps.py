"""What a scenario's script can say: each struct is one `op` of `input.json`, its fields are the op's members.

Fields that every step takes: `timeoutMs`, the longest time to wait in it. Steps that concern a session take
`session`, the name that the step which made or opened it gave it; without one they mean the session that was made or
opened last, of those that were not deleted. In texts, paths and parameters `{{cwd}}` stands for the workspace and
`{{home}}` for the run's home directory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Milliseconds = Annotated[int, Meta(gt=0)]
Ordinal = Annotated[int, Meta(ge=1)]


def _op(name: str) -> str:
    return name[0].lower() + name[1:]


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="op", tag=_op):
    """One step of a script."""

    timeout_ms: Milliseconds | UnsetType = UNSET


class SessionStep(Step, frozen=True, kw_only=True):
    """A step that concerns one session."""

    session: str | UnsetType = UNSET


class FileAwaited(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file of the workspace, by its path relative to it, that must exist before a step goes on."""

    path: str
    timeout_ms: Milliseconds | UnsetType = UNSET


# ---------------------------------------------------------------- connection and sessions


class Initialize(Step, frozen=True, kw_only=True):
    """`initialize` with the scenario's capabilities, or with these, sent as they stand, whatever they are."""

    protocol_version: int = 1
    capabilities: Raw | UnsetType = UNSET


class SessionOptions(Step, frozen=True, kw_only=True):
    """What `session/new` is asked with. `cwd` is the workspace unless given; it is sent as it stands."""

    cwd: str = "{{cwd}}"
    mcp_servers: list[Any] = []
    additional_directories: list[Any] | UnsetType = UNSET


class NewSession(SessionOptions, frozen=True, kw_only=True):
    """Make a session, under the name `session` when other steps have to tell it from others."""

    session: str | UnsetType = UNSET


class NewSessionExpectError(SessionOptions, frozen=True, kw_only=True):
    """`session/new` must be refused, with the error `code` when one is given."""

    code: int | UnsetType = UNSET


class Refusable(Step, frozen=True, kw_only=True):
    """A step whose request must be refused with `expectError`, with the error `code` when one is given."""

    expect_error: bool = False
    code: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.code is not UNSET and not self.expect_error:
            raise ValueError("`code` belongs to `expectError`")


class StoredSession(Refusable, frozen=True, kw_only=True):
    """A step that concerns a session that may not be open: the one called `session`, else the one with the id
    `sessionId`, which is sent as it stands, else the one made or opened last.
    """

    session: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if UNSET not in (self.session, self.session_id):
            raise ValueError("`session` and `sessionId` both name a session; one is enough")


class OpenStored(StoredSession, frozen=True, kw_only=True):
    """What a stored session is opened with. It keeps the name it has; `name` is one more for it."""

    name: str | UnsetType = UNSET
    cwd: str = "{{cwd}}"
    mcp_servers: list[Any] = []
    additional_directories: list[Any] | UnsetType = UNSET


class LoadSession(OpenStored, frozen=True, kw_only=True):
    """`session/load`: its history is shown before the answer."""


class ResumeSession(OpenStored, frozen=True, kw_only=True):
    """`session/resume`: it goes on, and nothing is shown."""


class ForkSession(Refusable, frozen=True, kw_only=True):
    """`session/fork` of the session called `source`, else of the one with the id `sourceId`, else of the one made or
    opened last. `session` names the new one.
    """

    source: str | UnsetType = UNSET
    source_id: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    cwd: str = "{{cwd}}"
    mcp_servers: list[Any] = []
    additional_directories: list[Any] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if UNSET not in (self.source, self.source_id):
            raise ValueError("`source` and `sourceId` both name a session; one is enough")


class CloseSession(StoredSession, frozen=True, kw_only=True):
    """`session/close`. Permission questions that are held for it are answered as cancelled."""


class DeleteSession(StoredSession, frozen=True, kw_only=True):
    """`session/delete`. Permission questions that are held for it are answered as cancelled."""


class ListSessions(Refusable, frozen=True, kw_only=True):
    """`session/list`, of the directory `cwd` when it is given, from `cursor` on when it is: `{{cursor}}` stands for
    where the last page said that the next one begins.

    With `followCursor` the pages behind it are asked for too, at most `pages` in all when that is given.
    """

    cwd: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    follow_cursor: bool = False
    pages: Ordinal | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pages is not UNSET and not self.follow_cursor:
            raise ValueError("`pages` belongs to `followCursor`")


class SetMode(SessionStep, frozen=True, kw_only=True):
    """`session/set_mode`; with `expectError` it must be refused."""

    mode: str
    expect_error: bool = False


class Call(Refusable, frozen=True, kw_only=True):
    """Any other request. In `params`, `{{session}}` and `{{session:NAME}}` stand for session ids."""

    method: str
    params: Any = UNSET


# ---------------------------------------------------------------- prompts


class Prompt(SessionStep, frozen=True, kw_only=True):
    """Send a text prompt and wait for its result."""

    text: str


class PromptContent(SessionStep, frozen=True, kw_only=True):
    """Send content blocks as a prompt and wait for its result."""

    content: list[Any]


class PromptExpectError(SessionStep, frozen=True, kw_only=True):
    """Send a text prompt that must be answered with an error, of this `code` when one is given."""

    text: str
    code: int | UnsetType = UNSET


class PromptAndCancel(SessionStep, frozen=True, kw_only=True):
    """Send a text prompt; once the file exists, or without one once the turn's start is stored, cancel; wait for
    the result.
    """

    text: str
    wait_for_file: FileAwaited | UnsetType = UNSET


class PromptAndWaitForAgentMessage(SessionStep, frozen=True, kw_only=True):
    """Send a text prompt and wait for its result and for a message of the agent's whose whole text, all its
    chunks together, is `waitForText`.
    """

    text: str
    wait_for_text: str


class StartPrompt(SessionStep, frozen=True, kw_only=True):
    """Send a prompt, `text` or `content`, and go on. `name` tells it from others in later steps."""

    text: str | UnsetType = UNSET
    content: list[Any] | UnsetType = UNSET
    name: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.text is UNSET) == (self.content is UNSET):
            raise ValueError("either `text` or `content` is needed, and not both")


class StartedPrompt(SessionStep, frozen=True, kw_only=True):
    """A prompt that was started: the one of this name, else the session's oldest that was not awaited."""

    prompt: str | UnsetType = UNSET


class AwaitPrompt(StartedPrompt, frozen=True, kw_only=True):
    """Wait for a started prompt's result; with `expectError`, for its error."""

    expect_error: bool = False


class CancelRequest(StartedPrompt, frozen=True, kw_only=True):
    """Send `$/cancel_request` for a started prompt."""


class Cancel(SessionStep, frozen=True, kw_only=True):
    """Send `session/cancel`, once the file exists when one is named. Held permission questions are cancelled."""

    wait_for_file: FileAwaited | UnsetType = UNSET


# ---------------------------------------------------------------- waits


class WaitForFile(Step, frozen=True, kw_only=True):
    """Wait until a file of the workspace exists."""

    path: str


class WaitForUpdate(SessionStep, frozen=True, kw_only=True):
    """Wait until an update was seen: of this kind, or one that has all these members, nested ones too.

    With `text`, the text of the update must contain it; of message chunks, their joined text. Looked at are the
    updates since the first prompt that is still open was sent, or the last one when none is, and after the
    update that the session's previous `waitForUpdate` found.
    """

    update: str | dict[str, Any]
    text: str | UnsetType = UNSET


class WaitForRequest(Step, frozen=True, kw_only=True):
    """Wait until the agent has sent a request of this method, each such step for one more of them."""

    method: str


class WaitForTurnStart(SessionStep, frozen=True, kw_only=True):
    """Wait until the log says that a turn began: the `minimumTurn`-th, else that of the last prompt sent."""

    minimum_turn: Ordinal | UnsetType = UNSET


class WaitForTurnEnd(SessionStep, frozen=True, kw_only=True):
    """Wait until the last turn in the log is closed, that of an open prompt included."""


class WaitForSubagentTurnEnd(SessionStep, frozen=True, kw_only=True):
    """Wait until the last turn of the session's `child`-th descendant, in order of creation, is closed, and is
    the `minimumTurn`-th or a later one.
    """

    child: Ordinal = 1
    minimum_turn: Ordinal = 1


class WaitForEventAfterTurnEnd(SessionStep, frozen=True, kw_only=True):
    """Wait until the log holds an event of this type after its last closed turn."""

    type: str


class WaitForTitleAfterTurnEnd(SessionStep, frozen=True, kw_only=True):
    """Wait until the log holds a title after its last closed turn."""


# ---------------------------------------------------------------- the end


class CloseInput(Step, frozen=True, kw_only=True):
    """Close the agent's stdin. What it still sends is read; waits go on working."""


class Signal(Step, frozen=True, kw_only=True):
    """Send the agent a signal."""

    signal: Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"]


class Restart(Step, frozen=True, kw_only=True):
    """End the agent's process and start the same command again, in the same workspace, home and store.

    `eof` closes its input and waits until it has exited, with status 0; `kill` is SIGKILL, and whatever it had started
    is killed, too. Sessions keep their names; prompts that are open have no answer any more. A script goes on with
    `initialize`.
    """

    how: Literal["eof", "kill"] = "eof"


class Repeat(Step, frozen=True, kw_only=True):
    """Do `steps` so many `times`. Steps in it name no new session or prompt."""

    times: Ordinal
    steps: list[AnyStep]


AnyStep: TypeAlias = (
    Initialize | NewSession | NewSessionExpectError | LoadSession | ResumeSession | ForkSession | CloseSession
    | DeleteSession | ListSessions | SetMode | Call | Prompt | PromptContent | PromptExpectError
    | PromptAndCancel | PromptAndWaitForAgentMessage | StartPrompt | AwaitPrompt | CancelRequest | Cancel | WaitForFile
    | WaitForUpdate | WaitForRequest | WaitForTurnStart | WaitForTurnEnd | WaitForSubagentTurnEnd
    | WaitForEventAfterTurnEnd | WaitForTitleAfterTurnEnd | CloseInput | Signal | Restart | Repeat
)  # fmt: skip


def op_of(step: Step) -> str:
    """The name of a step's op."""
    return _op(type(step).__name__)

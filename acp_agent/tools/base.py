"""The tool contract: what the model is told, what the client is shown, what runs, and what came of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import BlobId, CallId, SessionId
from acp_agent.session.events import ApprovalGrant, ImageBlock, TextBlock, Todo, ToolError, ToolResult

if TYPE_CHECKING:
    from acp_agent.tools.editor import Editor
    from acp_agent.tools.questions import Elicit
    from acp_agent.tools.terminals import Terminals

Kind = enum.StrEnum("Kind", ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"])
"""A tool call's kind on the wire (ACP `ToolKind`)."""


class Access(enum.Enum):
    """What a tool does to the world, which decides what a permission mode says of it."""

    NONE = "none"
    """Nothing outside the session (a plan, a delegation)."""
    READ = "read"
    """Reads inside the session's roots."""
    EDIT = "edit"
    """Writes files inside the session's roots."""
    EXECUTE = "execute"
    """Runs commands; nothing confines them."""


class Effect(enum.Enum):
    """Whether a tool call is served from the recording when effects are recorded."""

    WORLD = "world"
    """It touches the world: recorded effects serve its recorded result and nothing runs."""
    SESSION = "session"
    """It only acts on sessions (delegation, plan): it always runs."""


class Location(Struct, frozen=True):
    """A file a call works on. `path` is absolute, `line` 1-based."""

    path: str
    line: int | UnsetType = UNSET


class Diff(Struct, frozen=True):
    """A change of one file. `path` is absolute; `old_text` None means the file is new."""

    path: str
    new_text: str
    old_text: str | None = None


class CallView(Struct, frozen=True):
    """A call as the client is shown it when it is announced; made from name and arguments alone."""

    title: str
    kind: Kind
    locations: tuple[Location, ...] = ()
    diffs: tuple[Diff, ...] = ()


class ResultView(Struct, frozen=True):
    """A finished call as the client is shown it; made from arguments and the logged result alone.

    `text` is Markdown or plain text shown as content (None: none), `diffs` come first.
    """

    text: str | None
    diffs: tuple[Diff, ...] = ()
    locations: tuple[Location, ...] | UnsetType = UNSET


class Observation(Struct, frozen=True):
    """A file as a tool saw it. `path` is the real path, `version` tells states apart; None means absent."""

    path: str
    version: str | None


class Outcome(Struct, frozen=True):
    """What a call came to. A failure's text starts with `Error: `; `error` is its structured form.

    `observed` are the files the call saw or made, logged as file/seen events just before the result.
    """

    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET
    observed: tuple[Observation, ...] = ()

    @classmethod
    def text(cls, text: str, *, meta: Any = UNSET) -> Outcome:
        """A success with one text block."""
        return cls((TextBlock(text),), meta=meta)

    @classmethod
    def failure(cls, message: str, error: ToolError | UnsetType = UNSET) -> Outcome:
        """A failure; `message` gets the `Error: ` prefix (format reference 3.5)."""
        return cls((TextBlock(f"Error: {message}"),), is_error=True, error=error)


class ToolFailure(Exception):
    """Raised by a tool whose call cannot succeed; becomes `Outcome.failure`."""

    def __init__(
        self, message: str, name: str | None = None, code: str | None = None,
        *, observed: tuple[Observation, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.observed = observed
        self.error: ToolError | UnsetType = UNSET
        if name is not None and code is not None:
            self.error = ToolError(name, code)


class ToolContext(Struct, frozen=True):
    """What a running call may use.

    cwd         the session's working directory (absolute)
    roots       real paths of the directories file tools may touch, cwd first
    confined    False in full-access mode: paths outside the roots are allowed
    seen        real path -> version of each file this session has observed; None means seen to be absent
    progress    shows text of a running call to the client; transient, replaces what was shown before
    spill       a private directory for output too long to keep (made on first use)
    """

    session_id: SessionId
    call_id: CallId
    turn: int
    step: int
    cwd: Path
    roots: tuple[Path, ...]
    confined: bool
    seen: Mapping[str, str | None]
    progress: Callable[[str], None]
    spill: Path
    set_todos: Callable[[tuple[Todo, ...]], None]
    delegate: Any = None
    """The session's delegation service (`subagents`); None where delegation is not offered."""
    editor: Editor | None = None
    """The client's file services; None where it offers none."""
    terminals: Terminals | None = None
    """The client's terminals; None where it offers none."""
    elicit: Elicit | None = None
    """Asks the client's user about this call; None where it offers no way to."""
    trace: Mapping[str, str] = {}
    """The trace that the call is a part of (W3C names), for whoever works for it."""
    show_terminal: Callable[[str, str], None] = lambda _id, _remark: None
    """Shows the client one of its terminals, by id, as the running call's output."""


class Tool(Protocol):
    """One tool. Instances hold no state: what a tool remembers is a fold of the log."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema (format reference 7.3)."""
    access: Access
    effect: Effect
    parallel: bool
    """May overlap with other parallel calls of the same message; else it is a barrier."""

    def decode(self, arguments: str) -> Any:
        """Typed arguments from the raw string ("" means {}).

        Raises `ToolFailure` with code INVALID_ARGS naming the field and what was expected.
        """
        ...

    def announce(self, args: Any, cwd: Path) -> CallView:
        """How the call is shown before it runs. Pure: looks at no file."""
        ...

    async def preview(self, args: Any, context: ToolContext) -> tuple[Diff, ...]:
        """What the call would change, for a permission question. Looks at files, changes nothing."""
        ...

    def present(self, args: Any, result: ToolResult, cwd: Path) -> ResultView:
        """How the finished call is shown. Pure: from the logged result."""
        ...

    async def run(self, args: Any, context: ToolContext) -> Outcome:
        """Do it. Raises `ToolFailure` for an expected failure; on cancellation stops everything it started."""
        ...


class Effects(Protocol):
    """Where tool results come from: the world, or a recording of it."""

    def recorded(self, key: CallKey) -> RecordedCall | None:
        """The recorded fate of a call, or None when the call is to run live."""
        ...

    def observe(self, key: CallKey, outcome: Outcome) -> None:
        """Told of every live result, so that environment drift can be reported."""
        ...

    def image(self, session: SessionId, blob: BlobId) -> bytes | None:
        """An image that a recorded result of this session refers to; None where the recording lacks it."""
        ...


class CallKey(Struct, frozen=True):
    """Which tool call of which session: turn and step as logged, `position` in the assistant message."""

    session: SessionId
    turn: int
    step: int
    position: int
    call_id: CallId
    name: str
    arguments: str
    cwd: str


class RecordedCall(Struct, frozen=True):
    """A call's recorded fate. `approved` is None where the recording holds no decision.

    `grant` is what the recorded answer meant for the rest of the session, where it said "always". `held` says
    that the recorded call never came to an end of its own: it lasts until it is cancelled.
    """

    outcome: Outcome
    approved: bool | None = None
    held: bool = False
    grant: ApprovalGrant | None = None

"""What a turn works with: one session's log and services, handed to the loop as one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from acp_agent.ids import BlobId, CallId, IdSource, SessionId
from acp_agent.loop.digests import RequestDigester
from acp_agent.providers.base import Caller, Provider
from acp_agent.session.events import ImageBlock, ModelConfig, TextBlock, Usage
from acp_agent.session.log import SessionLog
from acp_agent.tools.base import CallView, Diff, Effects
from acp_agent.tools.editor import Editor
from acp_agent.tools.permission import Mode
from acp_agent.tools.questions import Elicit, Modes
from acp_agent.tools.registry import Registry
from acp_agent.tools.terminals import Terminals

MAX_STEPS = 250
"""Model calls one turn may make (retries aside) before it ends with `max_turn_requests`."""


class Question(Struct, frozen=True):
    """A permission question. `covers` says in words what "always" would mean."""

    position: int
    call_id: CallId
    tool: str
    arguments: Any
    view: CallView
    diffs: tuple[Diff, ...]
    covers: str


class Answer(Struct, frozen=True):
    """`always` extends the answer to the rest of the session."""

    allow: bool
    always: bool = False


class Desk(Protocol):
    """What the client does for a session's tools, where it offers to. Asked anew for each call."""

    @property
    def editor(self) -> Editor | None:
        """Its files."""
        ...

    @property
    def terminals(self) -> Terminals | None:
        """Its terminals."""
        ...

    @property
    def asks(self) -> Modes:
        """In which ways questions can be put to a user; none where there is none."""
        ...

    def elicit(self, position: int) -> Elicit | None:
        """Its user, to be asked about the call at this position."""
        ...


class Live(Protocol):
    """Transient news for the client: never replayed on load (law 3). Positions count a message's calls."""

    def running(self, position: int) -> None:
        """The call is about to run: it was allowed and everything before it is stored."""
        ...

    def output(self, position: int, text: str) -> None:
        """A running call's output so far."""
        ...

    def terminal(self, position: int, terminal: str, remark: str) -> None:
        """A running call's output is in this terminal of the client's; `remark` is what else there is to say, if
        anything.
        """
        ...

    def notice(self, severity: str, title: str, description: str) -> None:
        """Something the user should know: `severity` is info, warning or error. Plain text."""
        ...

    def see(self, blob: BlobId, data: bytes) -> None:
        """An image that an event to come refers to."""
        ...

    def usage(self, usage: Usage) -> None:
        """An answer was committed that used so many tokens."""
        ...

    async def drained(self) -> None:
        """Wait while the client is slow to read."""
        ...


class Host(Struct, frozen=True):
    """One session as the loop sees it. The callables are read anew each time: modes change mid-turn."""

    log: SessionLog
    session: SessionId
    cwd: Path
    roots: tuple[Path, ...]
    spill: Path
    provider: Provider
    registry: Callable[[], Registry]
    """The tools the next model request offers."""
    ready: Callable[[], Awaitable[None]]
    """Waits until the tools that are still being connected are there, or have failed."""
    desk: Desk
    effects: Effects
    ids: IdSource
    live: Live
    digester: RequestDigester
    system: str
    caller: Callable[[str], Caller]
    """The caller of the next model call, by purpose."""
    root_ordinal: Callable[[], int | None]
    """On a root's first model call its ordinal among the process's roots, else None."""
    first_request: Callable[[], bool]
    """Whether this process has made no request for the session yet."""
    mode: Callable[[], Mode]
    watching: Callable[[Callable[[], None]], AbstractContextManager[None]]
    """While it is entered, what it was given is called whenever the mode was set."""
    configured: Callable[[ModelConfig], ModelConfig]
    """A model's configuration with what the session's user chose."""
    grants: Callable[[], Mapping[str, bool]]
    ask: Callable[[Question], Awaitable[Answer]]
    fetch: Callable[[Sequence[TextBlock | ImageBlock]], Awaitable[None]]
    """Has the images of a result ready for the client and, where they come from a recording, stored."""
    trace: Mapping[str, str]
    """The trace that the turn is a part of; it goes on to what works for it."""
    delegate: Any
    """The delegation service, or None."""
    warn: Callable[[str], None]

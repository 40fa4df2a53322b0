"""What a turn works with: one session's log and services, handed to the loop as one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from acp_agent.ids import CallId, IdSource, SessionId
from acp_agent.loop.digests import RequestDigester
from acp_agent.providers.base import Caller, Provider
from acp_agent.session.events import Usage
from acp_agent.session.log import SessionLog
from acp_agent.tools.base import CallView, Diff, Effects
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry

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


class Live(Protocol):
    """Transient news for the client: never replayed on load (law 3). Positions count a message's calls."""

    def running(self, position: int) -> None:
        """The call is about to run: it was allowed and everything before it is stored."""
        ...

    def output(self, position: int, text: str) -> None:
        """A running call's output so far."""
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
    registry: Registry
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
    grants: Callable[[], Mapping[str, bool]]
    ask: Callable[[Question], Awaitable[Answer]]
    delegate: Any
    """The delegation service, or None."""
    warn: Callable[[str], None]

"""Showing what is stored of a root session and, to a client that knows children, of its children in their places.

A child's place is before the end of the call that made it. Each log is read when its place comes, so that never more
than one line of descent is in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from msgspec import UNSET

from acp_agent.errors import AgentError
from acp_agent.ids import BlobId, CallId, SessionId
from acp_agent.session.directory import same_directory
from acp_agent.session.events import (
    Event,
    SubagentDescriptor,
    TextBlock,
    ToolResult,
    TurnEnd,
    TurnOutcome,
    UserMessage,
)
from acp_agent.session.loading import Descendant, open_descendant
from acp_agent.session.session import Services
from acp_agent.session.slices import Slices
from acp_agent.session.stored_images import fetch_images, shown_content
from acp_agent.stores.base import SessionSummary
from acp_agent.subagents.views import Errand
from acp_agent.tools.delegation import ChildKind

_BEGINNING = 20
"""Events among which a child's own log says what the child is for."""


class PastSight(Protocol):
    """The view of a session whose stored history is gone through."""

    def see(self, blob: BlobId, data: bytes) -> None:
        """An image that an event to come refers to."""
        ...

    def past(self, event: Event, *, show: bool) -> None:
        """Told of the stored events, in order; `show` says whether the client is."""
        ...

    async def drained(self) -> None:
        """Wait while the client is slow to read."""
        ...


class PastChildSight(PastSight, Protocol):
    """The view of a child, which was announced."""

    def ended(self, outcome: TurnOutcome | None, error: AgentError | None = None) -> None:
        """Told at the end of the history."""
        ...


class PastChildren(Protocol):
    """Makes the views of stored children."""

    @property
    def announces(self) -> bool:
        """Whether the client knows children at all."""
        ...

    def past_child(self, session: SessionId, cwd: Path, errand: Errand) -> PastChildSight:
        """Announce a child that is stored; its view."""
        ...


class Retelling:
    """One session's history, told once. `descendants` are those whose turns may be open: they are closed on the way."""

    def __init__(self, services: Services, views: PastChildren, descendants: Sequence[SessionSummary]) -> None:
        self._services = services
        self._views = views
        self._slices = Slices()
        self._descendants = descendants
        self._waiting: dict[SessionId, dict[CallId | None, deque[SessionSummary]]] = {}
        self._warned = set[str]()

    async def root(self, session: SessionId, cwd: Path, history: deque[Event], view: PastSight, *, show: bool) -> None:
        """Go through a root's history, taking it out of `history`, and show it where it is to be shown."""
        for child in self._descendants:
            if show and self._views.announces and child.parent is not None:
                call = None if child.spawn is None else child.spawn.call_id
                self._waiting.setdefault(child.parent, {}).setdefault(call, deque()).append(child)
            else:
                await open_descendant(self._services, child.id)
        await self._tell(session, cwd, history, view, show=show)
        await self._close_rest()

    async def _close_rest(self) -> None:
        """Whose parent cannot be shown is not shown either."""
        for made in self._waiting.values():
            for child in chain.from_iterable(made.values()):
                await open_descendant(self._services, child.id)

    async def _tell(
        self, session: SessionId, cwd: Path, history: deque[Event], view: PastSight, *, show: bool
    ) -> TurnOutcome | None:
        """How the newest turn ended."""
        services, children = self._services, self._waiting.pop(session, {})
        outcome: TurnOutcome | None = None
        while history:
            event = history.popleft()
            body = event.body
            if isinstance(body, ToolResult) and (made := children.get(body.message.content[0].tool_call_id)):
                await self._child(made.popleft(), cwd)
            elif isinstance(body, TurnEnd):
                outcome = body.reason
            if show:
                await fetch_images(services.store, session, shown_content(body), view.see, self._warn)
            view.past(event, show=show)
            await self._slices.pause()
            if show:
                await view.drained()
        for made in children.values():  # logs of other writers need not say which call made a child
            for child in made:
                await self._child(child, cwd)
        return outcome

    def _warn(self, message: str) -> None:
        """Once: an image may be shown many times."""
        if message not in self._warned:
            self._warned.add(message)
            self._services.warn(message)

    async def _child(self, child: SessionSummary, parents: Path) -> None:
        opened = await open_descendant(self._services, child.id)
        if opened is None or child.parent is None:
            return
        await self._skip_seed(opened)
        cwd = _directory(opened, parents)
        view = self._views.past_child(child.id, cwd, _errand(opened, child.parent))
        view.ended(await self._tell(child.id, cwd, opened.history, view, show=True))
        await view.drained()

    async def _skip_seed(self, opened: Descendant) -> None:
        """What a child inherited is its parent's to show."""
        seed, history = opened.header.seed_length, opened.history
        while seed is not UNSET and history and history[0].seq < seed:
            history.popleft()
            await self._slices.pause()


def _directory(opened: Descendant, parents: Path) -> Path:
    """Where a child worked: its parent's directory, as that is spelt, or one of its own."""
    own = opened.header.cwd
    return parents if own is UNSET or same_directory(own, parents) else Path(own)


def _errand(opened: Descendant, parent: SessionId) -> Errand:
    """What a child was for, as far as its log says."""
    kind = ChildKind.SPAWN if opened.header.seed_length is UNSET else ChildKind.FORK
    label = prompt = ""
    for event in islice(opened.history, _BEGINNING):
        body = event.body
        if isinstance(body, SubagentDescriptor):
            kind = ChildKind.FORK if body.provider == ChildKind.FORK else ChildKind.SPAWN
            label = "" if body.label is UNSET else body.label
        elif isinstance(body, UserMessage):
            prompt = "".join(block.text for block in body.content if isinstance(block, TextBlock))
            break
    return Errand(parent, kind, label, prompt)

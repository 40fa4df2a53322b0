"""Children that a client is told of as of sessions: their lines in canonical order, each child's together.

A child's lines stand where it was announced, before the end of the call that made it, in the order of addresses. How
children mix with each other and with their parent is not promised; neither is how often one is said to wait for the
user or to go on, because that depends on which questions are open together: between announcement and end, its states
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from replay.conversation import Conversation, Frame, as_object

ANNOUNCEMENT = "subagent_update"

_PASSING = frozenset({"running", "requires_action"})


Sort: TypeAlias = Callable[[Sequence[Frame]], list[Frame]]


class Address(Struct, frozen=True):
    """Where a child stands: its place among all sessions of the run, and the call that made it, as its log has it."""

    place: int
    call: str


class Family:
    """The children of one process, as it told of them. `addresses` come from the logs."""

    def __init__(self, conversation: Conversation, addresses: Mapping[str, Address]) -> None:
        self._addresses = addresses
        self._parents: dict[str, str] = {}
        for frame in conversation.frames:
            child = subject(frame)
            if child is not None and frame.session is not None and child != frame.session:
                self._parents.setdefault(child, frame.session)

    def root(self, session: str) -> str:
        """The session at the top, whose requests the session's lines belong to."""
        return self._line(session)[-1]

    def _line(self, session: str) -> list[str]:
        """A session and those above it; names that go in a circle end."""
        line = [session]
        while (parent := self._parents.get(line[-1])) is not None and parent not in line:
            line.append(parent)
        return line

    def address(self, child: str) -> Address:
        """Those without a log stand behind the others."""
        return self._addresses.get(child) or Address(len(self._addresses) + list(self._parents).index(child), "")

    def line_up(self, frames: Sequence[Frame], session: str, sort: Sort) -> list[Frame]:
        """The lines of a session and all below it. `sort` orders the lines of one session, among which one line for
        each child stands for all of the child's.
        """
        own: list[Frame] = []
        below: dict[str, list[Frame]] = {}
        for frame in frames:
            child = self._branch(frame, session)
            if child is None or child not in below:
                own.append(frame)
            if child is not None:
                below.setdefault(child, []).append(frame)
        heads = {branch[0].at: child for child, branch in below.items()}
        return [line for frame in sort(own) for line in (
            self._child(below[heads[frame.at]], heads[frame.at], sort) if frame.at in heads else [frame])]

    def _branch(self, frame: Frame, session: str) -> str | None:
        """The child of `session` that a line is about, or a session below it; None for the session's own lines."""
        about = subject(frame) or frame.session
        line = [] if about is None else self._line(about)
        return line[line.index(session) - 1] if session in line[1:] else None

    def _child(self, frames: Sequence[Frame], child: str, sort: Sort) -> Iterator[Frame]:
        told = [frame for frame in frames if subject(frame) == child]
        yield from told[:1]
        yield from self.line_up([frame for frame in frames if subject(frame) != child], child, sort)
        yield from (frame for frame in told[1:] if not _passing(frame))


def subject(frame: Frame) -> str | None:
    """The child that a line of its parent's tells of."""
    child = frame.update.get("sessionId") if frame.update.get("sessionUpdate") == ANNOUNCEMENT else None
    return child if isinstance(child, str) else None


def _passing(frame: Frame) -> bool:
    update = frame.update
    return as_object(update.get("state")).get("state") in _PASSING and not update.keys() - {
        "sessionUpdate", "sessionId", "state", "_meta"}


def spoken_of_early(conversation: Conversation) -> Iterator[str]:
    """A child is announced before anything of it is told."""
    announced: dict[str, int] = {}
    for frame in conversation.frames:
        if (child := subject(frame)) is not None:
            announced.setdefault(child, frame.at)
    for frame in conversation.frames:
        if frame.session is not None and frame.at < announced.get(frame.session, -1):
            yield f"line {frame.at + 1} speaks of a child before it was announced"

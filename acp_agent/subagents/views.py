"""Where a child's view comes from; the connection's side provides it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from acp_agent.errors import AgentError
from acp_agent.ids import SessionId
from acp_agent.session.events import TurnOutcome
from acp_agent.session.session import Place, View
from acp_agent.tools.delegation import ChildKind


class Errand(Struct, frozen=True):
    """What a child is for: whose it is, how it begins, what it is called in a few words, and its whole task."""

    parent: SessionId
    kind: ChildKind
    label: str
    prompt: str


class ChildSight(View, Protocol):
    """A child's view."""

    def begin(self) -> None:
        """Told once the child is there, before anything it does."""
        ...

    def ended(self, outcome: TurnOutcome | None, error: AgentError | None = None) -> None:
        """Told when nothing will come of the child any more."""
        ...


class ViewFactory(Protocol):
    """Makes the views of one root's children."""

    def child(self, place: Place, errand: Errand) -> ChildSight:
        """The view of a new child. Asked for before anything is waited for: the delegating call is the one that its
        parent began last with the id in the place's path.
        """
        ...

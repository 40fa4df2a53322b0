"""Where a child's view comes from; the connection's side provides it."""

from __future__ import annotations

from typing import Protocol

from acp_agent.session.session import Place, View


class ViewFactory(Protocol):
    """Makes the views of one root's children."""

    def child(self, place: Place, label: str) -> View:
        """The view of a new child; `label` says in a few words what it is for."""
        ...

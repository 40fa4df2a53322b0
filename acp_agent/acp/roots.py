"""The views of one root session and its children, on one connection."""

from __future__ import annotations

from acp_agent.acp.offer import available_commands
from acp_agent.acp.projection import Projection
from acp_agent.acp.services import ClientServices
from acp_agent.acp.view import ChildView, Client, ClientView
from acp_agent.session.events import Event
from acp_agent.session.session import Place
from acp_agent.tools.registry import Registry


class ClientViews:
    """Makes the views; `root` is the root session's own."""

    def __init__(self, client: Client, registry: Registry, place: Place, services: ClientServices) -> None:
        self._registry = registry
        self.root = ClientView(client, place.session, Projection(registry, place.cwd), services)

    def begin(self) -> None:
        """The client knows of the session: tell it what it can do there, and how full the context is."""
        self.root.begin(available_commands())

    def past(self, event: Event, *, show: bool) -> None:
        """Take note of an event of the root's stored history, and show it if asked to."""
        self.root.past(event, show=show)

    def child(self, place: Place, label: str) -> ChildView:
        """The view of a new child."""
        path = "/".join(map(str, place.path))
        return ChildView(self.root, Projection(self._registry, place.cwd), path, label or "subagent")

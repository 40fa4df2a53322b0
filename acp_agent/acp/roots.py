"""The views of one root session and its children, on one connection."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from acp_agent.acp.child_in_call import ChildInCallView, HiddenCall, KnownCall
from acp_agent.acp.child_session import LABEL, ChildSessionView
from acp_agent.acp.offer import available_commands
from acp_agent.acp.projection import Projection
from acp_agent.acp.services import ClientServices
from acp_agent.acp.view import Client, ClientView
from acp_agent.ids import SessionId
from acp_agent.session.session import Place
from acp_agent.subagents.views import Errand
from acp_agent.tools.registry import Registry


class ClientViews:
    """Makes the views; `root` is the root session's own."""

    def __init__(self, client: Client, registry: Registry, place: Place, services: ClientServices) -> None:
        self._registry = registry
        self._services = services
        self.root = ClientView(client, place.session, Projection(registry, place.cwd), services)
        self._views = WeakValueDictionary[SessionId, ClientView | ChildInCallView]({place.session: self.root})
        """By session, as long as it is at work: its children's views need it."""

    @property
    def announces(self) -> bool:
        """Whether the client is told of children as of sessions."""
        return self._services.capabilities.subagents

    def begin(self) -> None:
        """The client knows of the session: tell it what it can do there, and how full the context is."""
        self.root.greet(available_commands())

    def child(self, place: Place, errand: Errand) -> ChildSessionView | ChildInCallView:
        """See `ViewFactory`. A child of one that the client does not know is not announced either."""
        view = self._views[place.session] = self._made(place, errand)
        return view

    def _made(self, place: Place, errand: Errand) -> ChildSessionView | ChildInCallView:
        parent, call_id = self._views[errand.parent], place.path[-1].call_id
        if isinstance(parent, ClientView) and self.announces:
            return self._session(parent, place.session, place.cwd, errand)
        projection, label = Projection(self._registry, place.cwd), errand.label or LABEL
        if isinstance(parent, ClientView):
            return ChildInCallView(parent, place, projection, KnownCall(parent, call_id), label)
        return ChildInCallView(parent.host, place, projection, HiddenCall(parent, call_id), label)

    def past_child(self, session: SessionId, cwd: Path, errand: Errand) -> ChildSessionView:
        """The view of a child whose history is going to be shown, announced."""
        parent = self._views[errand.parent]
        assert isinstance(parent, ClientView)  # histories are shown from the root down
        view = self._views[session] = self._session(parent, session, cwd, errand)
        view.retold()
        return view

    def _session(self, parent: ClientView, session: SessionId, cwd: Path, errand: Errand) -> ChildSessionView:
        return ChildSessionView(parent, session, Projection(self._registry, cwd, child=True), errand)

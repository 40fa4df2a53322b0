"""What a client does for a session's tools, where it offers to: files in the editor, terminals, questions.

Whether it offers to is asked anew each time: a second `initialize` may change it.
"""

from __future__ import annotations

from collections.abc import Callable

from acp_agent.acp.asking import PATIENCE, Asking
from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.client_files import ClientEditor
from acp_agent.acp.client_terminals import ClientTerminals
from acp_agent.acp.client_user import ClientUser
from acp_agent.ids import SessionId, WireCallId
from acp_agent.tools.editor import Editor
from acp_agent.tools.questions import Elicit, Mode, Modes
from acp_agent.tools.terminals import Terminals


class ClientServices:
    """One session's way to the client's services."""

    def __init__(
        self, client: Asking, session: SessionId, capabilities: Callable[[], ClientCapabilities],
        token: Callable[[], str], patience: float = PATIENCE,
    ) -> None:
        """`token` makes ids that are used once; `patience` is in seconds, see `PATIENCE`."""
        self._client = client
        self._session = session
        self._capabilities = capabilities
        self._token = token
        self._patience = patience

    def of(self, session: SessionId) -> ClientServices:
        """Another session's way to them."""
        return ClientServices(self._client, session, self._capabilities, self._token, self._patience)

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client offers now."""
        return self._capabilities()

    @property
    def editor(self) -> Editor | None:
        """The client's files; None where it offers neither reading nor writing."""
        offered = self._capabilities()
        if not (offered.read_text_file or offered.write_text_file):
            return None
        return ClientEditor(self._client, self._session, offered, self._patience)

    @property
    def terminals(self) -> Terminals | None:
        """The client's terminals; None where it offers none."""
        if not self._capabilities().terminal:
            return None
        return ClientTerminals(self._client, self._session, self._patience)

    @property
    def asks(self) -> Modes:
        """In which ways the client can ask its user."""
        offered = self._capabilities()
        ways: dict[Mode, bool] = {"form": offered.elicitation_form, "link": offered.elicitation_url}
        return frozenset(way for way, can in ways.items() if can)

    def elicit(self, call: WireCallId) -> Elicit | None:
        """The client's user, about one call; None where it cannot ask."""
        asks = self.asks
        return ClientUser(self._client, self._session, call, asks, self._token) if asks else None


class ClientDesk:
    """The desk of a session that the client knows."""

    def __init__(self, services: ClientServices, wire_id: Callable[[int], WireCallId]) -> None:
        """`wire_id` gives the id by which the client knows the call at a position."""
        self._services = services
        self._wire_id = wire_id

    @property
    def editor(self) -> Editor | None:
        return self._services.editor

    @property
    def terminals(self) -> Terminals | None:
        return self._services.terminals

    @property
    def asks(self) -> Modes:
        """In which ways questions can be put to the user."""
        return self._services.asks

    def elicit(self, position: int) -> Elicit | None:
        return self._services.elicit(self._wire_id(position)) if self.asks else None


class ChildDesk:
    """A child session's desk: the client's files and terminals, and nobody to ask."""

    asks: Modes = frozenset()

    def __init__(self, through: ClientDesk) -> None:
        """`through` is the desk of the session that the client knows: the child's own, or the root's."""
        self._through = through

    @property
    def editor(self) -> Editor | None:
        return self._through.editor

    @property
    def terminals(self) -> Terminals | None:
        return self._through.terminals

    def elicit(self, position: int) -> Elicit | None:  # noqa: ARG002  # contract
        return None

"""`initialize`: the one method that is answered before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from acp_agent import __version__
from acp_agent.acp.capabilities import ClientCapabilities, read_capabilities
from acp_agent.rpc.dispatch import RequestContext

PROTOCOL_VERSION = 1


class Wire(Struct, frozen=True, rename="camel"):
    """Base of everything on the wire."""


class InitializeParams(Wire, frozen=True):
    protocol_version: Annotated[int, Meta(ge=0, le=65535)]
    client_capabilities: Raw | UnsetType = UNSET
    client_info: Raw | UnsetType = UNSET


class Implementation(Wire, frozen=True):
    name: str
    version: str
    title: str | UnsetType = UNSET


class PromptCapabilities(Wire, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True):
    http: bool = False
    sse: bool = False


class Offered(Wire, frozen=True):
    """`{}`: the method is there."""


class SessionCapabilities(Wire, frozen=True):
    """Methods over sessions. `fork` is of the protocol's unstable part."""

    list: Offered = Offered()
    delete: Offered = Offered()
    resume: Offered = Offered()
    close: Offered = Offered()
    fork: Offered = Offered()
    additional_directories: Offered = Offered()


class AuthCapabilities(Wire, frozen=True):
    """Only of an agent that needs a login."""

    logout: Offered = Offered()


class AgentCapabilities(Wire, frozen=True):
    """What may be asked of this agent; everything advertised works."""

    load_session: bool = True
    prompt_capabilities: PromptCapabilities = PromptCapabilities(image=True, embedded_context=True)
    mcp_capabilities: McpCapabilities = McpCapabilities(http=True)
    session_capabilities: SessionCapabilities = SessionCapabilities()
    auth: AuthCapabilities | UnsetType = UNSET


class InitializeResult(Wire, frozen=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities
    agent_info: Implementation
    auth_methods: list[Any]


class Methods(Protocol):
    """Who knows how to log in."""

    def methods(self, client: ClientCapabilities) -> Sequence[Any]:
        """What is offered to a client."""
        ...


class Handshake:
    """Serves `initialize` and keeps what the client declared."""

    def __init__(self, auth: Methods | None = None) -> None:
        """`auth` says how to log in, where that is needed."""
        self._auth = auth
        self.capabilities = ClientCapabilities()
        """Refreshed by every `initialize`."""

    async def initialize(self, raw: Raw, _context: RequestContext) -> InitializeResult:
        """Answer with version 1, whatever is asked for: it is the only one there is (ACP guide, versions)."""
        params = msgspec.json.decode(raw, type=InitializeParams)
        self.capabilities = read_capabilities(params.client_capabilities)
        auth = self._auth
        return InitializeResult(
            PROTOCOL_VERSION, AgentCapabilities(auth=UNSET if auth is None else AuthCapabilities()),
            Implementation("acp-replay", __version__, "acp-replay"),
            [] if auth is None else list(auth.methods(self.capabilities)),
        )  # fmt: skip

"""An MCP server behind an address: the SDK's streamable HTTP transport with the session's headers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.mcp.config import HttpServer
from acp_agent.mcp.stdio import MESSAGE_LIMIT

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_SEND_LIMIT = 30.0
"""Seconds to connect, and to send a request. How long an answer may take is for who waits for it to say."""

_VAGUE = "Server returned an error response"
"""What the SDK says of every HTTP error."""


class HttpLink:
    """One connection with a server. What goes wrong with it is raised out of `transport`."""

    def __init__(self, config: HttpServer) -> None:
        self.lost = anyio.Event()
        """Never set: there is nothing that would have to last between two requests."""
        self.reason = ""
        self._config = config
        self._refused = ""

    def explain(self, trouble: str) -> str:
        """What an error of the client's means, where the link knows more."""
        return trouble.replace(_VAGUE, f"it answered {self._refused}") if self._refused else trouble

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[TransportStreams]:
        """Speak with the server. Redirects are followed within its origin only: headers may be secrets."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # As the SDK would make it, but for the time an answer may take.
        async with httpx2.AsyncClient(
            headers=dict(self._config.headers), timeout=httpx2.Timeout(_SEND_LIMIT, read=None),
            event_hooks={"response": [self._note]},
        ) as http, streamable_http_client(
            self._config.url, http_client=http, max_sse_event_size=MESSAGE_LIMIT
        ) as streams:
            yield streams

    async def _note(self, response: Any) -> None:
        if response.status_code >= 400:
            self._refused = f"{response.status_code} {response.reason_phrase}".strip()

"""The tools of one root session and its children: those of the process, and those of its MCP servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acp_agent.tools.ask_user import AskUser
from acp_agent.tools.questions import Modes
from acp_agent.tools.registry import Registry

if TYPE_CHECKING:
    from acp_agent.mcp.servers import McpServers, ServerReport

_QUESTIONS = frozenset({AskUser.name})


class Toolbox:
    """Made without servers; `equip` adds them. A model request sees the tools there are at that moment."""

    def __init__(self, base: Registry) -> None:
        self._base = base
        self._servers: McpServers | None = None
        self._made: dict[Modes, Registry] = {}

    def equip(self, servers: McpServers) -> None:
        """Add a session's servers, once."""
        self._servers = servers

    def changed(self) -> None:
        """The servers' tools are others than before."""
        self._made.clear()

    def registry(self, *, asks: Modes) -> Registry:
        """The tools now; `asks` says in which ways questions can be put to a user."""
        if asks not in self._made:
            extra = () if self._servers is None else self._servers.tools
            self._made[asks] = self._base.offering(
                extra, without=frozenset() if asks else _QUESTIONS, instead=(AskUser(asks),) if asks else ()
            )  # fmt: skip
        return self._made[asks]

    async def settled(self) -> None:
        """Wait until every server is ready or has failed."""
        if self._servers is not None:
            await self._servers.settled()

    def report(self) -> Sequence[ServerReport]:
        """How the servers are doing."""
        return () if self._servers is None else self._servers.report()

    async def aclose(self) -> None:
        """End the servers."""
        if self._servers is not None:
            await self._servers.aclose()

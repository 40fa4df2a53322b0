"""All MCP servers of one session, started at once and followed until the session ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from acp_agent.mcp.config import ServerConfig
from acp_agent.mcp.connection import (
    CONNECT_LIMIT,
    MAX_TOOLS,
    Closed,
    Connecting,
    Connection,
    Failed,
    Ready,
)
from acp_agent.mcp.content import KeepImage
from acp_agent.mcp.names import server_names, tool_name
from acp_agent.mcp.tools import McpTool
from acp_agent.visible import one_line

SHOWN_UNUSABLE = 5
"""Tools that cannot be used of which the user is told why; of the rest, how many."""


class ServerReport(Struct, frozen=True):
    """How a server is doing, for the user: one line, and the names of its tools."""

    name: str
    state: str
    tools: tuple[str, ...] = ()


class McpServers:
    """A session's servers. `changed` is told when the tools are others, `failed` of each server that fails, and
    `unusable` of each that has tools which cannot be used.
    """

    def __init__(
        self, configs: Sequence[ServerConfig], cwd: Path, keep: KeepImage, *, changed: Callable[[], None],
        failed: Callable[[str, str], None], unusable: Callable[[str, str], None], limit: float = CONNECT_LIMIT,
    ) -> None:
        """`limit` is how many seconds each has to get ready."""
        self._keep = keep
        self._on_change = changed
        self._on_failure = failed
        self._on_unusable = unusable
        self._told: dict[Connection, str] = {}
        """What was said of unusable tools last."""
        self._connections = [Connection(config, cwd, self._changed, limit=limit) for config in configs]
        self._names = server_names([config.name for config in configs])
        self._tools: tuple[McpTool, ...] = ()
        self._started = False

    def start(self, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        """Start them all, without waiting."""
        self._started = True
        for connection in self._connections:
            spawn(connection.run)

    async def settled(self) -> None:
        """Wait until each is ready or has failed; a limit on connecting bounds this."""
        for connection in self._connections:
            await connection.settled.wait()

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """The tools of the servers that are ready, named apart."""
        return self._tools

    def report(self) -> Sequence[ServerReport]:
        """Every server, in the order the client named them."""
        return [self._report(connection) for connection in self._connections]

    def _report(self, connection: Connection) -> ServerReport:
        tools = tuple(tool.name for tool in self._tools if tool.connection is connection)
        return ServerReport(one_line(connection.name), _state(connection), tools)

    def _changed(self, connection: Connection) -> None:
        self._tools = self._named()
        if isinstance(connection.state, Failed):
            self._on_failure(one_line(connection.name), connection.state.reason)
        said = _unusable(connection)
        if said and said != self._told.get(connection):
            self._on_unusable(one_line(connection.name), said)
        self._told[connection] = said
        self._on_change()

    def _named(self) -> tuple[McpTool, ...]:
        made: list[McpTool] = []
        taken: set[str] = set()
        for server, connection in zip(self._names, self._connections, strict=True):
            if isinstance(connection.state, Ready):
                for listed in connection.state.tools:
                    name = tool_name(server, listed.name, taken)
                    taken.add(name)
                    made.append(McpTool(name, connection, listed, self._keep))
        return tuple(made)

    async def aclose(self) -> None:
        """End them all, at once."""
        if not self._started:
            return
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for connection in self._connections:
                    group.start_soon(connection.aclose)


def _state(connection: Connection) -> str:
    match connection.state:
        case Connecting():
            return "starting"
        case Ready(title=title, left_out=left_out):
            ready = f"ready ({title})" if title else "ready"
            cut = f", with more than {MAX_TOOLS} tools: the first {MAX_TOOLS} are offered" if left_out else ""
            unusable = _unusable(connection)
            return f"{ready}{cut}; {unusable}" if unusable else ready + cut
        case Failed(reason):
            return f"failed: {reason}"
        case Closed():
            return "ended"


def _unusable(connection: Connection) -> str:
    """Which of a server's tools cannot be used, and why; empty when all can."""
    match connection.state:
        case Ready(unusable=unusable, tools=tools) if unusable:
            shown = "; ".join(f"{name}: {why}" for name, why in unusable[:SHOWN_UNUSABLE])
            rest = f"; and {len(unusable) - SHOWN_UNUSABLE} more" if len(unusable) > SHOWN_UNUSABLE else ""
            return f"{len(unusable)} of {len(unusable) + len(tools)} tools cannot be used: {shown}{rest}"
        case _:
            return ""

"""What one request gives a session to work with, beside its directory. It is not stored: the next one says it anew."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from acp_agent.mcp.config import ServerConfig


class Surroundings(Struct, frozen=True):
    """`directories` are further roots, checked and in order; `servers` the MCP servers to start."""

    directories: tuple[Path, ...] = ()
    servers: tuple[ServerConfig, ...] = ()

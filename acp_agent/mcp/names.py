"""What a server's tools are called: unique in the session, short enough for every model server."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

PREFIX = "mcp__"

MAX_NAME = 64
"""Characters a tool's name may have; the limit of the strictest model server."""

_MAX_SERVER = 24


def server_names(names: Sequence[str]) -> tuple[str, ...]:
    """What each server is called in its tools' names, in the same order.

    These names are unique and hold no double underscore, so that no tool of one server can ever be taken for one of
    another: what the user allowed would pass over to it. They depend on the client's list alone, not on who is ready.
    """
    made: list[str] = []
    for name in names:
        wanted = re.sub("__+", "_", _safe(name)).strip("_")[:_MAX_SERVER].strip("_") or "server"
        made.append(_apart(wanted, made, _MAX_SERVER, "-"))
    return tuple(made)


def tool_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """A name for a server's tool that is not among `taken`: `mcp__<server>__<tool>`, letters, digits, _ and - only.

    `server` is one of `server_names`. Where cutting or replacing makes two names equal, the later one ends in a number.
    """
    return _apart(f"{PREFIX}{server}__{_safe(tool)}"[:MAX_NAME], taken, MAX_NAME, "_")


def is_mcp_name(name: str) -> bool:
    """Whether a tool of this name comes from a server."""
    return name.startswith(PREFIX)


def mcp_parts(name: str) -> tuple[str, str]:
    """The server and the tool that such a name is made of."""
    server, _, tool = name.removeprefix(PREFIX).partition("__")
    return server, tool


def _apart(wanted: str, taken: Collection[str], most: int, mark: str) -> str:
    candidate, number = wanted, 1
    while candidate in taken:
        number += 1
        ending = f"{mark}{number}"
        candidate = wanted[: most - len(ending)].rstrip("_") + ending
    return candidate


def _safe(text: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in text) or "_"

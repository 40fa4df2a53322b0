"""What must never be told of a server: the values it is given, wherever they turn up again."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from acp_agent.mcp.config import HttpServer, ServerConfig

_SHORTEST = 4
"""Characters of a value that is hidden: shorter ones (`1`, `on`) are no secrets, and hiding them garbles every text."""

_SHORTEST_WORD = 8
"""Likewise of a word within a value: the token after `Bearer`, and not that word."""

HIDDEN = "[hidden]"

_CUT = re.compile("([^…]+)…")
"""A text up to where it was cut."""


class Secrets:
    """Hides a server's environment values, header values and what an address holds beside host and path."""

    def __init__(self, config: ServerConfig) -> None:
        whole = _values(config)
        words = {word for value in whole for word in value.split() if len(word) >= _SHORTEST_WORD}
        self._values = sorted(words | {value for value in whole if len(value) >= _SHORTEST}, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """`text` without them, also where one was cut off with the rest of a text that was too long."""
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return _CUT.sub(self._hide_beginning, text)

    def _hide_beginning(self, cut: re.Match[str]) -> str:
        """What stands before a cut, without the beginning of a value at its end."""
        before = cut[1]
        longest = max((size for value in self._values for size in range(_SHORTEST, len(value))
                       if before.endswith(value[:size])), default=0)
        return f"{before[:len(before) - longest]}{HIDDEN}…" if longest else cut[0]


def _values(config: ServerConfig) -> list[str]:
    if not isinstance(config, HttpServer):
        return [value for _, value in config.env]
    parts = urlsplit(config.url)
    login = parts.netloc.rpartition("@")[0]
    pairs = [pair.partition("=")[2] or pair for pair in parts.query.split("&")]
    hidden = [login, *login.split(":"), parts.query, *pairs, parts.fragment]
    return [value for _, value in config.headers] + hidden + [unquote(part) for part in hidden]

"""How much one line to the client holds: clients refuse to read lines that are too long (ACP digest 1.1).

What is longer is sent in pieces where the protocol knows pieces, and else is cut or left out, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator

from acp_agent.rpc.envelope import to_json

PIECE = 512 * 1024
"""Characters of text in one value; at worst six times as many bytes of JSON."""

ROOM = 4 * 1024 * 1024
"""Bytes of JSON of all the diffs of one line, and of a call's arguments."""


def pieces(text: str) -> Iterator[str]:
    """The text in pieces, each for a line of its own. There is one at least."""
    yield text[:PIECE]
    for start in range(PIECE, len(text), PIECE):
        yield text[start : start + PIECE]


def cut(text: str) -> str:
    """The text, cut where no line has room for it."""
    return text if len(text) <= PIECE else f"{text[:PIECE]}\n[cut: the first {PIECE} characters are shown]"


def fits(*texts: str) -> bool:
    """Whether there is room for the texts together."""
    if sum(map(len, texts)) * 6 <= ROOM:
        return True
    return sum(len(to_json(text)) for text in texts) <= ROOM

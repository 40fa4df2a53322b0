"""Digests of a model request's parts, so that a replay can say which part moved (DESIGN 5.6).

What differs from machine to machine without meaning anything is tokenised first: roots, the home
directory, ids and dates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from acp_agent.providers.base import Surface
from acp_agent.session.codec import encode_line
from acp_agent.session.events import (
    ContentBlock,
    HeaderContent,
    ImageBlock,
    MessageDigests,
    RequestParts,
    ToolResult,
    UserMessage,
)
from acp_agent.session.prompts import attachment

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b")


def digest(data: bytes) -> str:
    """16 hex digits of BLAKE2b: enough to tell parts apart, short enough to log with every call."""
    return blake2b(data, digest_size=8).hexdigest()


class Tokeniser:
    """Replaces a session's roots and the home directory, at path boundaries, and ids and dates."""

    def __init__(self, roots: Sequence[str], home: str) -> None:
        names = {root.rstrip("/"): f"{{{{root:{at}}}}}" if at else "{{cwd}}" for at, root in enumerate(roots)}
        if home.rstrip("/"):
            names.setdefault(home.rstrip("/"), "{{home}}")
        self._names = {path: name for path, name in names.items() if path}
        longest_first = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        # A full stop that ends a sentence may follow a path.
        self._paths = re.compile(rf"({longest_first})(?!\.*[\w-])") if longest_first else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokeniser) and other._names == self._names

    def __hash__(self) -> int:
        return hash(tuple(self._names.items()))

    def __call__(self, text: str) -> str:
        # A search for a fixed string is far faster than any of the patterns, and most text needs none of them.
        if self._paths is not None and any(path in text for path in self._names):
            text = self._paths.sub(lambda match: self._names[match.group(1)], text)
        if "-" in text:
            text = _DATE.sub("{{date}}", _UUID.sub("{{id}}", text))
        return text


class RequestDigester:
    """Digests the requests of one session. Keeps what it needs to list only the messages that are new."""

    def __init__(self, tokenise: Tokeniser) -> None:
        self._tokenise = tokenise
        self._header: HeaderContent | None = None
        self._parts = ("", "", "")
        self._count = 0
        self._rewrites = 0
        self._head = ""

    def parts(self, header: HeaderContent, messages: Sequence[Surface], rewrites: int) -> RequestParts:
        """The digests for one request. `rewrites` counts how often history was rewritten, not appended to."""
        if header != self._header:
            self._header = header
            parts = (header.config, header.system, header.tools)
            config, system, tools = (_shared_digest(self._tokenise, encode_line(part)) for part in parts)
            self._parts = (config, system, tools)
        if rewrites != self._rewrites or len(messages) < self._count:
            self._count, self._rewrites, self._head = 0, rewrites, ""
        added = [self._of(_meaning(message)) for message in messages[self._count :]]
        for one in added:
            self._head = digest(f"{self._head}:{one}".encode())
        self._count = len(messages)
        return RequestParts(*self._parts, MessageDigests(len(messages), self._head, added))

    def _of(self, part: object) -> str:
        return _digest(self._tokenise, encode_line(part))


def _digest(tokenise: Tokeniser, line: bytes) -> str:
    return digest(tokenise(line.decode()).encode())


_shared_digest = lru_cache(maxsize=64)(_digest)
"""For what the sessions of a process mostly have in common: the system prompt and the tools."""


def _meaning(message: Surface) -> object:
    """What the model sees of a message: no ids of ours, no log positions."""
    if isinstance(message, UserMessage):
        return ("user", _blocks(message.content))
    if isinstance(message, ToolResult):
        return ("tool", [{"type": "tool-result", "toolCallId": result.tool_call_id, "content": _blocks(result.content),
                          "isError": result.is_error} for result in message.message.content])
    return ("assistant", message.message.content)


def _blocks(content: Sequence[ContentBlock]) -> Sequence[object]:
    """An image is what it shows: its content's digest, not what it is called."""
    return [("image", about.attachment_id) if isinstance(block, ImageBlock) and (about := attachment(block)) else block
            for block in content]

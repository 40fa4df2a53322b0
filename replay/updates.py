"""What a script can say about session updates: patterns, their texts, and messages put together from chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

Updates: TypeAlias = Callable[[str, int], Iterator[tuple[int, Raw]]]
"""From a session and a position on the wire, the updates after it, each with the position behind it."""


def matches(pattern: Any, value: Any) -> bool:
    """Whether a JSON value has everything a pattern has: its members, its first items, or the same scalar."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            key in value and matches(wanted, value[key]) for key, wanted in pattern.items())
    if isinstance(pattern, list):
        return isinstance(value, list) and len(pattern) <= len(value) and all(map(matches, pattern, value))
    return bool(pattern == value) and isinstance(pattern, bool) == isinstance(value, bool)


def text_of(update: Any) -> str:
    """The text of an update: of a chunk's content, or of the text items of a tool call, joined."""
    content = update.get("content")
    items = content if isinstance(content, list) else [content]
    return "".join(map(_text, items))


def _text(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    if item.get("type") == "content":
        return _text(item.get("content"))
    text = item.get("text")
    return text if isinstance(text, str) else ""


class Search:
    """Looks for an update that fits a pattern and, when `text` is given, contains it; each update is read once.

    Message chunks that fit count together: the text may be spread over them.
    """

    def __init__(self, pattern: Any, text: str | None, updates: Updates, session: str, since: int) -> None:
        self._pattern = pattern
        self._text = text
        self._updates = updates
        self._session = session
        self._position = since
        self._joined = ""

    def found(self) -> int | None:
        """The position behind the update, once there is one."""
        for position, raw in self._updates(self._session, self._position):
            self._position = position
            if self._fits(msgspec.json.decode(raw)):
                return position
        return None

    def _fits(self, update: Any) -> bool:
        if not isinstance(update, dict) or not matches(self._pattern, update):
            return False
        if self._text is None:
            return True
        if str(update.get("sessionUpdate")).endswith("_chunk"):
            self._joined += text_of(update)
            return self._text in self._joined
        return self._text in text_of(update)


class Joined:
    """The messages that a session's chunks make. Chunks of one message have its id, or follow each other."""

    def __init__(self, kind: str, updates: Updates, session: str, since: int) -> None:
        self._kind = kind
        self._updates = updates
        self._session = session
        self._position = since
        self._last = 0
        self._texts: dict[Any, str] = {}

    def messages(self) -> list[str]:
        """The texts of all messages so far."""
        for position, raw in self._updates(self._session, self._position):
            self._position = position
            update = msgspec.json.decode(raw)
            if update.get("sessionUpdate") == self._kind:
                message = update.get("messageId") or self._last
                self._texts[message] = self._texts.get(message, "") + text_of(update)
            else:
                self._last += 1
        return list(self._texts.values())

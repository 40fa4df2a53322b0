"""`{{fromRequest:REGEX}}`: values that only the live request knows, filled in when a call is served.

The corpus is every string of the request's messages, in order, one a line; the last match wins, and its first
group where it has one. A placeholder ends at the last two of a run of closing braces (format reference 2.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from acp_agent.errors import RecordingError
from acp_agent.providers.base import Surface
from acp_agent.session.events import Chunk, UserMessage
from replay.rows import ChunkData, ChunkRow, Piece
from replay.script import Action, Chunks, Hang, Held, Throw
from replay.stream import expand

OPENING = "{{fromRequest:"


def fill_action(action: Action, messages: Sequence[Surface]) -> Action:
    """The action with every placeholder replaced. Raises `RecordingError` where one cannot be."""
    fill = Filler(messages)
    match action:
        case Chunks(pieces):
            return Chunks(_pieces(pieces, fill))
        case Held(pieces):
            return Held(_pieces(pieces, fill))
        case Throw(pieces, message, code):
            return Throw(_pieces(pieces, fill), fill(message), fill(code))
        case Hang(str(ready_file)):
            return Hang(fill(ready_file))
        case _:
            return action


def _pieces(pieces: Sequence[Piece], fill: Callable[[str], str]) -> list[Piece]:
    filled: list[Piece] = []
    for piece in pieces:
        chunks = list(expand(piece))
        raw = msgspec.json.encode(chunks)
        if OPENING.encode() not in raw:
            filled.append(piece)
            continue
        values = _map_strings(msgspec.to_builtins(chunks), fill)
        filled += [ChunkRow(data=ChunkData(0, 0, chunk)) for chunk in msgspec.convert(values, list[Chunk])]
    return filled


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    return value


class Filler:
    """Replaces placeholders from one request. Its corpus is put together when first needed."""

    def __init__(self, messages: Sequence[Surface]) -> None:
        self._messages = messages
        self._corpus: str | None = None

    def __call__(self, text: str) -> str:
        """`text` with its placeholders replaced. Raises `RecordingError` naming the pattern."""
        start = text.find(OPENING)
        if start < 0:
            return text
        done: list[str] = []
        at = 0
        while start >= 0:
            end = _end(text, start)
            done += (text[at:start], self._value(text[start + len(OPENING) : end - 2]))
            at = end
            start = text.find(OPENING, at)
        return "".join([*done, text[at:]])

    def _value(self, pattern: str) -> str:
        import re

        what = f"the placeholder {OPENING}{pattern}}}}}"
        try:
            matcher = re.compile(pattern.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!"))
        except re.error as error:
            raise RecordingError(f"{what} holds an invalid pattern: {error}") from None
        if self._corpus is None:
            self._corpus = "\n".join(leaf for message in self._messages for leaf in _leaves(_message(message)))
        matches = list(matcher.finditer(self._corpus))
        if not matches:
            raise RecordingError(f"nothing in the request matches {what}")
        return (matches[-1].group(1) if matcher.groups else matches[-1].group()) or ""


def _end(text: str, start: int) -> int:
    end = text.find("}}", start + len(OPENING))
    if end < 0:
        raise RecordingError(f"the placeholder {text[start : start + 80]!r} has no closing braces")
    end += 2
    while text[end : end + 1] == "}":
        end += 1
    return end


def _message(message: Surface) -> Any:
    """A message as plain values. An image's block holds JSON of whoever wrote it, which `to_builtins` cannot take."""
    return msgspec.json.decode(msgspec.json.encode(message if isinstance(message, UserMessage) else message.message))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)

"""What looks machine-made and was not replaced: a golden that holds it would differ in the next run.

Only the agent's own fields are looked at. A UUID, a path or a number in what a model said, in a prompt, in a
file or in a tool's output is a look-alike and none of our business.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from replay.identities import MODEL_MADE, MODEL_SAID
from replay.names import UUID

CONTENT = MODEL_SAID | MODEL_MADE | frozenset({
    "content", "rawOutput", "title", "meta", "todos", "entries", "tools", "label", "oldText", "newText", "text",
})  # fmt: skip
"""Keys below which anything may stand."""

_EPOCH = range(1_500_000_000_000, 4_100_000_000_000)
"""Milliseconds since 1970 that a clock of the years 2017 to 2099 shows."""


class Leftover(Struct, frozen=True):
    """A value that looks machine-made. `where` says in which line or event it stands."""

    where: str
    what: str
    value: str

    def __str__(self) -> str:
        return f"{self.where}: {self.value} looks like {self.what} and has no name"


def leftovers(value: Any, where: str) -> Iterator[Leftover]:
    """The machine-made values left in the agent's own fields of a JSON value."""
    if isinstance(value, str):
        yield from _in_text(value, where)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int):
        if value in _EPOCH:
            yield Leftover(where, "a time", str(value))
    elif isinstance(value, list):
        for item in value:
            yield from leftovers(item, where)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _in_text(key, where)
            if key not in CONTENT:
                yield from leftovers(item, f"{where}, {key}")


def _in_text(text: str, where: str) -> Iterator[Leftover]:
    for match in UUID.finditer(text):
        yield Leftover(where, "an id", match.group())
    for match in _temporary().finditer(text):
        yield Leftover(where, "a temporary path", match.group())


def _temporary() -> re.Pattern[str]:
    roots = sorted({"/tmp", "/private/tmp", "/var/folders", tempfile.gettempdir().rstrip("/")}, key=len, reverse=True)
    return re.compile(rf"(?<![\w.~/-])(?:{'|'.join(map(re.escape, roots))})/[^\s\"'<>]+")

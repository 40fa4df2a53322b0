"""Working directories in recorded texts: the token `{{cwd}}`, and absolute paths that were never tokenised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CWD = "{{cwd}}"

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~")
"""Characters that continue a path's name: next to one of them a directory's path is part of another path."""


def replace_path(text: str, old: str, new: str) -> str:
    """`text` with the directory `old` replaced, at path boundaries: `/w` is in `/w/a`, not in `/ws` or `/x/w`."""
    at = text.find(old)
    if at < 0:
        return text
    done: list[str] = []
    start = 0
    while at >= 0:
        end = at + len(old)
        if _ends(text, end) and (at == 0 or (text[at - 1] not in _NAME and text[at - 1] not in "/\\")):
            done += (text[start:at], new)
            start = end
        at = text.find(old, end)
    return "".join([*done, text[start:]])


def _ends(text: str, at: int) -> bool:
    """Whether a directory's path may end at `at`. A full stop that ends a sentence may follow it."""
    follows = text[at : at + 1]
    if follows == ".":
        return text[at + 1 : at + 2] not in _NAME
    return follows not in _NAME


def expander(recorded: str | None, live: str) -> Callable[[str], str]:
    """Puts the live working directory where the recorded one stood."""
    old = None if recorded is None else _replaceable(recorded)

    def expand(text: str) -> str:
        if CWD in text:
            return text.replace(CWD, live)
        return text if old is None or old == live else replace_path(text, old, live)

    return expand


def tokenise(text: str, directories: Sequence[str]) -> str:
    """`text` with each spelling of the working directory replaced by `{{cwd}}`."""
    for directory in sorted(filter(None, map(_replaceable, directories)), key=len, reverse=True):
        text = replace_path(text, directory, CWD)
    return text


def _replaceable(directory: str) -> str | None:
    """A directory that can be told apart in a text: absolute, and not the root."""
    trimmed = directory.rstrip("/")
    return trimmed if trimmed.startswith("/") else None


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON-like value with every string but the keys changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_strings(item, change) for item in value]
    return value

"""What the tools share when a call is shown to the client."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from acp_agent.session.events import TextBlock, ToolResult
from acp_agent.tools.base import Diff


class Hunk(Struct, frozen=True, rename="camel"):
    """One changed region of a file: `path` is the model's argument; the texts are whole lines, LF-joined,
    with up to three lines of context and no newline after the last (format reference 7.4).
    """

    path: str
    old_text: str
    new_text: str


class DiffMeta(Struct, frozen=True):
    """The `meta` of a write or edit result."""

    diffs: tuple[Hunk, ...] = ()


def meta_of(changed: tuple[Hunk, ...]) -> dict[str, Any]:
    """The `meta` of a write or edit result, in plain lists and dicts: equal to itself read back from a log."""
    return {"diffs": [msgspec.to_builtins(hunk) for hunk in changed]}


def is_error(result: ToolResult) -> bool:
    """Whether the logged result is a failure."""
    return any(block.is_error for block in result.message.content)


def result_text(result: ToolResult) -> str:
    """All text of the logged result."""
    return "\n".join(
        part.text for block in result.message.content for part in block.content if isinstance(part, TextBlock)
    )


def fenced(text: str) -> str:
    """`text` as a Markdown code block that nothing inside it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def meta_diffs(meta: Any, path: str) -> tuple[Diff, ...]:
    """The logged hunks as diffs of the file with the absolute path `path`; none where `meta` holds none."""
    if meta is UNSET:
        return ()
    try:
        hunks = msgspec.convert(meta, DiffMeta).diffs
    except msgspec.ValidationError:
        return ()
    return tuple(Diff(path, hunk.new_text, hunk.old_text) for hunk in hunks)


def shorten(text: str, most: int = 80) -> str:
    """The first line of `text`, cut to `most` characters."""
    lines = text.strip().splitlines()
    first = lines[0] if lines else ""
    cut = len(lines) > 1 or len(first) > most
    return first[: most - 1].rstrip() + "…" if cut else first


def safe_name(text: str) -> str:
    """An id as part of a file name."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in text)[:64]

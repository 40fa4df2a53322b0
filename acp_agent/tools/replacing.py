"""Replacing one piece of text by another in a file's text. Pure; line endings stay what they were."""

from __future__ import annotations

from msgspec import Struct


class Replaced(Struct, frozen=True):
    """The new text, and how many times the piece occurred in the old one."""

    text: str
    count: int


def replace(text: str, old: str, new: str) -> Replaced:
    """Replace every occurrence of `old`, counted without overlaps.

    In a text with CRLF line endings a newline in `old` matches either ending (the model was shown neither), and
    newlines in `new` become the text's usual ending.
    """
    if "\r\n" not in text:
        return Replaced(text.replace(old, new), text.count(old))
    import re

    parts = old.replace("\r\n", "\n").split("\n")
    pattern = re.compile(r"\r?\n".join(re.escape(part) for part in parts))
    inserted = with_endings(new, crlf=mostly_crlf(text))
    replaced, count = pattern.subn(lambda _: inserted, text)
    return Replaced(replaced, count)


def mostly_crlf(text: str) -> bool:
    """Whether more of the text's lines end with CRLF than with a bare LF."""
    crlf = text.count("\r\n")
    return crlf > text.count("\n") - crlf


def with_endings(text: str, *, crlf: bool) -> str:
    """The text with every line ending the same."""
    unified = text.replace("\r\n", "\n")
    return unified.replace("\n", "\r\n") if crlf else unified


def like(content: str, old: str) -> str:
    """New content for a file that held `old`: a file with only CRLF endings keeps them, unless the content
    has some of its own.
    """
    crlf = old.count("\r\n")
    if crlf == 0 or crlf != old.count("\n") or "\r\n" in content:
        return content
    return with_endings(content, crlf=True)

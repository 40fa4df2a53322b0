"""Text that can always be written as UTF-8, or on one line."""

from __future__ import annotations

import re
from typing import Any


def scrub(text: str) -> str:
    """`text` with every lone surrogate (undecodable bytes of a file name, say) replaced by U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if _has_surrogate(text) else text


def one_line(text: str) -> str:
    """The words of `text` with one space between them, and no control characters: nothing a terminal would obey."""
    return " ".join(" ".join(_CONTROL.sub("", word) for word in text.split()).split())


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def scrub_surrogates(value: Any) -> Any:
    """`scrub` applied to every string of a JSON-like value."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub_surrogates(key): scrub_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_surrogates(item) for item in value]
    return value

"""A session's title, made by rule from its first prompt; no model is asked (format reference 1.11)."""

from __future__ import annotations

from acp_agent.text import one_line

MAX_WORDS = 5
MAX_BYTES = 40


def make_title(prompt: str) -> str:
    """The first five words of `prompt`, at most 40 bytes of UTF-8, cut inside a word where it must be.

    Without control characters. Empty when the prompt has no text.
    """
    title = " ".join(one_line(prompt).split()[:MAX_WORDS])
    return title.encode("utf-8", "replace")[:MAX_BYTES].decode("utf-8", "ignore").rstrip()

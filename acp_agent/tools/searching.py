"""What glob and grep share: where to search, and the process that does it."""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec
from msgspec import Struct

from acp_agent.tools.arguments import JsonDecoder, invalid
from acp_agent.tools.base import ToolContext, ToolFailure
from acp_agent.tools.paths import is_inside

TIMEOUT = 60.0
"""Seconds a search may take."""

T = TypeVar("T", bound="Answer")


class Answer(Struct, frozen=True):
    """What every answer of the worker may be: a complaint about the pattern instead of a result."""

    error: str | None = None


class PathList(Answer, frozen=True):
    """`entries` is how many top-level entries there are, when the list is a sample of a longer one."""

    paths: tuple[str, ...] = ()
    total: int = 0
    entries: int = 0
    shown_entries: int = 0
    saved: bool = False


class Match(Struct, frozen=True, rename="camel"):
    line_number: int
    line: str


class FileMatches(Struct, frozen=True):
    path: str
    matches: tuple[Match, ...]


class MatchList(Answer, frozen=True):
    files: tuple[FileMatches, ...] = ()
    total: int = 0


def shown_prefix(base: str, context: ToolContext) -> str:
    """What paths below the absolute directory `base` are shown with: relative to the session's directory if
    they are inside it, else absolute.
    """
    cwd = str(context.cwd)
    if not is_inside(base, cwd):
        return base.rstrip("/") + "/"
    below = os.path.relpath(base, cwd)
    return "" if below == "." else f"{below}/"


async def search(tool: str, decoder: JsonDecoder[T], *arguments: str) -> T:
    """Have the worker process search; see `search_worker.main` for `arguments`.

    Raises `ToolFailure` for an invalid pattern and for a search that takes too long. Cancelling ends the process.
    """
    import sys

    from acp_agent.tools import search_worker
    from acp_agent.tools.processes import run_process

    printed, complaints = bytearray(), bytearray()

    def sink(stream: int, data: bytes) -> None:
        (printed if stream == 1 else complaints).extend(data)

    command = (sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", search_worker.__file__, tool, *arguments)
    end = await run_process(command, cwd="/", env=os.environ, timeout=TIMEOUT, sink=sink)
    if end.timed_out:
        raise ToolFailure(
            f"the search was stopped after {TIMEOUT:g} s; narrow the path or simplify the pattern", "SearchError",
            "SEARCH_TIMEOUT",
        )
    try:
        answer = decoder.decode(printed)
    except msgspec.DecodeError:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"exit status {end.code}"
        raise ToolFailure(f"the search failed: {last}", "SearchError", "SEARCH_FAILED") from None
    if answer.error is not None:
        raise invalid(tool, f"pattern: {answer.error}")
    return answer

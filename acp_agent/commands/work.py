"""What a subcommand is given to work with, and how it tells what it did."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from acp_agent.commands.options import Given, Usage
from acp_agent.errors import AgentError, SessionNotFound
from acp_agent.stores.base import Store
from acp_agent.visible import one_line


class Work(Struct, frozen=True):
    """One run of a subcommand. `where` names the store as its setting does."""

    store: Store
    where: str
    given: Given


class Command(Struct, frozen=True):
    """A subcommand. `run` gives the exit status: 1 when it found something to be wrong."""

    usage: Usage
    run: Callable[[Work], Coroutine[Any, Any, int]]


def say(text: str) -> None:
    """One line on stdout; what a terminal would obey in it is only shown."""
    sys.stdout.write(one_line(text) + "\n")


def complain(text: str) -> None:
    """One line on stderr."""
    sys.stdout.flush()
    sys.stderr.write(f"acp-agent: {one_line(text)}\n")


def drop_stdout() -> None:
    """Let nothing more be written to stdout, not even what is still held back."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain_of(error: AgentError, where: str) -> None:
    """Tell what went wrong, in words of the command line."""
    if isinstance(error, SessionNotFound):
        complain(unknown(error.facts["sessionId"], where))
    else:
        complain(error.message)


def unknown(session: str, where: str) -> str:
    """That no session has an id."""
    return f"no stored session has the id {session!r} in {where}; acp-agent sessions list shows which there are"


def counted(number: int, what: str, plural: str = "") -> str:
    """A number and what is counted."""
    return f"{number} {what if number == 1 else plural or what + 's'}"

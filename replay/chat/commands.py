"""What a typed line asks for: a prompt, or a command of the chat's own."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

COMMANDS: Final = """\
  /new             open another session          /mode [NAME]     list or set the session's mode
  /wire            frames on or off              /cancel          at a terminal: cancel the turn (or Ctrl-C)
  /help            this list                     /quit            end (or Ctrl-D)"""

_NAMES: Final = ("/new", "/mode", "/wire", "/cancel", "/help", "/quit")


class Say(Struct, frozen=True):
    """Prompt the agent."""

    text: str


class Run(Struct, frozen=True):
    """A command; `name` has its slash."""

    name: str
    rest: str = ""


class Wrong(Struct, frozen=True):
    """Probably a command with a slip; nothing is to be done but to say so."""

    advice: str


Line: TypeAlias = Say | Run | Wrong


def read_command(line: str) -> Line:
    """Read a line. Agents have commands with a slash too, so an unknown one is a prompt unless it looks like ours."""
    if line.startswith("//"):
        return Say(line[1:])
    name, _, rest = line.strip().partition(" ")
    if not line.startswith("/") or "/" in name[1:]:
        return Say(line)
    if name in _NAMES:
        return Run(name, rest.strip())
    near = _near(name)
    return Say(line) if near is None else Wrong(f"did you mean {near}? /{line} sends the line as it is")


def _near(name: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.7)), None)

"""The command line of `acp-agent chat`."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from acp_agent.errors import SettingsError
from replay.chat.commands import COMMANDS

Wire: TypeAlias = Literal["off", "short", "full"]

USAGE = "acp-agent chat [--agent COMMAND] [--cwd DIR] [--wire[=full]] [--yes] [--json] [PROMPT...]"

HELP = f"""\
usage: {USAGE}

Talk to an ACP agent by hand. Starts the agent, opens a session, and shows what it says and does: text as it
streams, thoughts, tool calls with their diffs and output, plans, questions.

  --agent COMMAND  the agent, as one word: --agent "python my_agent.py --flag". Without it: this acp-agent, with
                   the settings of its variables (ACP_REPLAY_DIR, ACP_MODEL, ...) and its config file
  --cwd DIR        the session's working directory; default: the current one, in which the agent is started anyway
  --wire           print every frame of both directions too, a line each, long texts cut; --wire=full: uncut
  --yes            allow whatever the agent asks permission for
  --json           print JSON for programs instead: one object a line, see below
  PROMPT...        run this one prompt and end; `--` before a prompt that begins with a dash

Without PROMPT, prompts are read from stdin, a line each; a line that ends in \\ goes on in the next one. Commands:

{COMMANDS}

Any other /NAME goes to the agent, for it may have commands of its own; //TEXT sends /TEXT as it is. Ctrl-C while a
turn runs cancels it, a second Ctrl-C ends the agent. Lines typed while a turn runs are the next prompts.

With PROMPT, --json, or stdin that is no terminal, nobody is asked: permission questions are answered with a no
unless --yes is given, and the exit status is 0 when every turn ended with end_turn, else 1. At a terminal it is 1 when
the agent could not be talked to or ended by itself. It is 2 for a wrong command line.

The client serves file reads and writes below the working directory, terminals, and at a terminal forms. What a command
in a terminal of the client's prints is shown line by line, as it comes.

--json prints, one to a line:
  {{"sender": "client" | "agent", "frame": {{}}}}    a frame, as it passed
  {{"sender": "agent", "junk": TEXT, "why": TEXT}}     a line on its stdout that is no JSON-RPC message
  {{"sender": "agent", "stderr": TEXT}}                a line on its stderr
  {{"note": TEXT}}                                     a remark of the client's own
  {{"status": N}}                                      the exit status; the last line

examples:
  acp-agent chat --agent "npx some-agent --acp"
  ACP_REPLAY_DIR=./recording acp-agent chat --wire "What does this project do?"
  acp-agent chat --json --agent ./my-agent "hello" | jq -c .frame"""


class Options(Struct, frozen=True):
    """What `chat` was asked to do. `agent` is its command, `prompt` the one prompt to run, if any."""

    agent: tuple[str, ...]
    cwd: Path
    wire: Wire = "off"
    yes: bool = False
    json: bool = False
    help: bool = False
    prompt: str | None = None


_VALUED = ("--agent", "--cwd")
_PLAIN = ("--wire", "--wire=short", "--wire=full", "--yes", "--json", "--help", "-h")


def own_agent() -> tuple[str, ...]:
    """The command of this very agent. `-P`: the working directory's files must not pass for Python's modules."""
    return (sys.executable, "-P", "-m", "acp_agent")


def parse(words: Sequence[str], cwd: Path) -> Options:
    """Read the command line. Relative directories start at `cwd`. Raises `SettingsError`."""
    flags: dict[str, str] = {}
    prompt: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word == "--":
            prompt += reversed(left)
            break
        if not word.startswith("-") or word == "-":
            prompt.append(word)
            continue
        name, equals, value = word.partition("=")
        if name in _VALUED:
            if not equals and not left:
                raise SettingsError(f"chat: {name} needs a value")
            flags[name] = value if equals else left.pop()
        elif word in _PLAIN:
            flags[name] = value
        else:
            raise SettingsError(_unknown(word))
    return _options(flags, " ".join(prompt) if prompt else None, cwd)


def _options(flags: dict[str, str], prompt: str | None, cwd: Path) -> Options:
    wire: Wire = "off"
    if "--wire" in flags:
        wire = "full" if flags["--wire"] == "full" else "short"
    return Options(
        agent=_command(flags["--agent"]) if "--agent" in flags else own_agent(),
        cwd=_directory(cwd / flags.get("--cwd", ".")), wire=wire, yes="--yes" in flags, json="--json" in flags,
        help="--help" in flags or "-h" in flags, prompt=prompt,
    )  # fmt: skip


def _command(text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"chat: --agent cannot be read as a command line: {error}: {text}") from None
    if not words:
        raise SettingsError("chat: --agent is empty; give the command that starts the agent")
    return tuple(words)


def _directory(path: Path) -> Path:
    found = path.expanduser().absolute()
    if not found.is_dir():
        raise SettingsError(f"chat: --cwd is not a directory: {found}")
    return found.resolve()


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word.partition("=")[0], [*_VALUED, *_PLAIN], n=1)
    advice = f"did you mean {near[0]}? " if near else ""
    return f"chat: unknown flag {word}; {advice}A prompt that begins with a dash goes after --. usage: {USAGE}"

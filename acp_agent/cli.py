"""The command line. The bare command serves stdio and starts fast: nothing here is imported before it is needed.

The grammar is small enough to read by hand (`--flag value`, `--flag=value`, one subcommand), which costs
nothing at start-up and lets a mistyped flag be answered with the right one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from acp_agent.errors import SettingsError

USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the process's exit status.

    0 on success, 1 when a command found what it looked for to be wrong, 2 when the command line or a setting cannot
    be used.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words and words[0] in COMMANDS:
            return COMMANDS[words[0]](words[1:])
        command = _after_flags(words)
        if words[command : command + 1] == ["login"]:  # a client runs the command it knows, with this added
            return _login(words[command + 1 :], words[:command])
        if "--help" in words or "-h" in words:
            print(help_text())
            return 0
        if "--version" in words:
            print(version_text())
            return 0
        return _serve(words)
    except SettingsError as error:
        print(f"acp-agent: {error.message}", file=sys.stderr)
        return USAGE_ERROR


def _serve(words: Sequence[str]) -> int:
    from acp_agent.settings import read_settings, refuse_unavailable

    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where there is no home
    settings = read_settings(parse_flags(words), os.environ, home=home, cwd=_working_directory())
    refuse_unavailable(settings)
    from acp_agent.app import serve

    return serve(settings)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise SettingsError(f"the working directory is gone: {error.strerror}; start in one that exists") from None


def _explain(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(_EXPLAIN_HELP)
        return 0
    as_json = "--json" in words
    rest = [word for word in words if word != "--json"]
    plain = rest[:1] == ["--"]
    rest = rest[1:] if plain else rest
    if len(rest) != 1 or (rest[0].startswith("-") and not plain):
        hint = "; write ./ before a name that begins with -" if any(word.startswith("-") for word in rest) else ""
        raise SettingsError(f"usage: acp-agent explain DIR [--json]{hint}")
    from acp_agent.app import explain

    return explain(Path(rest[0]), as_json)


def _chat(words: Sequence[str]) -> int:
    _working_directory()
    from acp_agent.app import chat

    return chat(words)


def _replay(words: Sequence[str]) -> int:
    return _kit("replay", words)


def _refresh(words: Sequence[str]) -> int:
    return _kit("refresh", words)


def _demo(words: Sequence[str]) -> int:
    return _kit("demo", words)


def _lint(words: Sequence[str]) -> int:
    return _kit("lint", words)


def _kit(name: Literal["demo", "lint", "refresh", "replay"], words: Sequence[str]) -> int:
    _working_directory()
    from acp_agent.app import kit

    return _told(lambda: kit(name, words))


def _sessions(words: Sequence[str]) -> int:
    cwd = _working_directory()
    from acp_agent.commands.sessions import main as sessions

    return _told(lambda: sessions(words, cwd))


def _login(words: Sequence[str], flags: Sequence[str] = ()) -> int:
    from acp_agent.commands.login import HELP, login
    from acp_agent.credentials import Credentials
    from acp_agent.settings import LIVE, credentials_file, read_settings

    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where there is no home
    if words:
        provider = words[0]
    else:
        model = read_settings(parse_flags(flags), os.environ, home=home, cwd=_working_directory()).model
        provider = "" if model is None else model.provider
    if provider not in LIVE or len(words) > 1:
        raise SettingsError(f"usage: acp-agent login PROVIDER, where PROVIDER is {' or '.join(LIVE)}; without one, "
                            "ACP_MODEL has to name a model of theirs")
    return _told(lambda: login(provider, Credentials(credentials_file(os.environ, home), os.environ)))


def _after_flags(words: Sequence[str]) -> int:
    """Where the first word stands that is neither a flag nor a flag's value."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 if "=" in words[at] or words[at] in ("--help", "-h", "--version") else 2
    return at


def _told(command: Callable[[], int]) -> int:
    """Run a command that prints, until it is done, interrupted, or nobody listens."""
    try:
        return command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read what is told has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


COMMANDS = {"chat": _chat, "demo": _demo, "explain": _explain, "lint": _lint, "login": _login, "refresh": _refresh,
            "replay": _replay, "sessions": _sessions}
"""The subcommands; each has a `--help` of its own."""


def parse_flags(words: Sequence[str]) -> dict[str, str]:
    """Flags as typed -> their values; the last one of a kind wins.

    Raises `SettingsError` for an unknown flag, a missing value, and anything that is not a flag.
    """
    from acp_agent.settings import setting_for_flag

    flags: dict[str, str] = {}
    left = list(reversed(words))
    while left:
        flag, equals, value = left.pop().partition("=")
        if not flag.startswith("-"):
            raise SettingsError(f"unknown command {flag!r}; the commands are {', '.join(COMMANDS)}, and none of them "
                                "serves stdio", name=flag)
        setting = setting_for_flag(flag)
        if not equals:
            if not left or left[-1].startswith("--"):
                raise SettingsError(f"{flag} needs a value: {setting.allowed}", name=flag, allowed=setting.allowed)
            value = left.pop()
        flags[flag] = value
    return flags


def version_text() -> str:
    from acp_agent import __version__

    return f"acp-agent {__version__}"


def help_text() -> str:
    """What `--help` prints; the settings come from the table that they are parsed with."""
    from acp_agent.settings import CONFIG, SETTINGS

    rows = []
    for setting in (CONFIG, *SETTINGS):
        default = f"; default {setting.default}"
        rows.append(f"  {setting.flag:<21} {setting.variable:<23} {setting.allowed}{default}\n"
                    f"  {'':<21} {setting.meaning}")
    return _HELP.format(settings="\n".join(rows))


_HELP = """\
acp-agent: an Agent Client Protocol agent that replays recorded sessions.

An editor starts it and speaks JSON-RPC with it, one message a line on stdin and stdout. Every session is
written to a log, and a directory of logs can be replayed: each session, subagents included, is served its own
recorded model calls. A replay needs no key and opens no connection.

usage:
  acp-agent [FLAGS]               serve the protocol on stdin and stdout
  acp-agent demo                  replay a small recording and show what happens
  acp-agent replay DIR...         play scenarios and recordings, show every session, judge the runs
  acp-agent refresh DIR...        rewrite the goldens of scenarios after a change that is meant
  acp-agent explain DIR [--json]  show what a replay of DIR would serve, and every problem in it
  acp-agent login [PROVIDER]      ask for a model provider's key, and store it
  acp-agent sessions COMMAND      list, show, export, import, delete, repair and pack stored sessions
  acp-agent chat [PROMPT...]      talk to this or any other ACP agent by hand
  acp-agent lint COMMAND...       try the protocol's conformance statements on any ACP agent
  acp-agent COMMAND --help        more about one of these
  acp-agent --version
  acp-agent --help

examples:
  Replay a recording to whatever editor starts this command:
    acp-agent --replay-dir ./my-recording --replay-sessions repeat

  Talk to it by hand:
    printf '%s\\n' \\
      '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1}}}}' \\
      '{{"jsonrpc":"2.0","id":2,"method":"session/new","params":{{"cwd":"/tmp","mcpServers":[]}}}}' \\
      | acp-agent --ids sequential

settings (flag, variable; flags beat variables beat the config file):
{settings}

A wrong value, or a name one typo away from one of these, is refused with exit status 2."""

_EXPLAIN_HELP = """\
usage: acp-agent explain DIR [--json]

Read the session logs in DIR and show what a replay would serve, without running anything: each recorded session
with its address, its model calls in order, the recorded result of each tool call, and every problem, with file and
line, that stands in the way.

  --json  the same for programs

exit status: 0 when DIR can be replayed, 1 when it cannot, 2 when the command cannot be understood

example:
  acp-agent explain golden/subagent-spawn"""

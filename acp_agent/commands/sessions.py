"""`acp-agent sessions`: look after the stored sessions, whichever store they are in."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from acp_agent.commands import (
    sessions_delete,
    sessions_export,
    sessions_import,
    sessions_list,
    sessions_pack,
    sessions_repair,
    sessions_show,
)
from acp_agent.commands.options import PROGRAM, Given, parse
from acp_agent.commands.work import Command, Work, complain, complain_of, drop_stdout
from acp_agent.errors import AgentError, SettingsError
from acp_agent.settings import JsonlStore, Settings, read_settings, within_one_edit

COMMANDS = {module.COMMAND.usage.name: module.COMMAND for module in (
    sessions_list, sessions_show, sessions_export, sessions_import, sessions_delete, sessions_repair, sessions_pack,
)}  # fmt: skip


def main(words: Sequence[str], cwd: Path) -> int:
    """Run a subcommand; its exit status. Raises `SettingsError` for words and settings that cannot be used, and
    `BrokenPipeError` when nobody reads on.
    """
    try:
        status = _main(words, cwd)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()  # what could not be written would be tried again at exit
        complain(f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror or error}")
        return 1
    return status


def _main(words: Sequence[str], cwd: Path) -> int:
    name = words[0] if words else ""
    if name in COMMANDS:
        command, rest = COMMANDS[name], words[1:]
        if _wants_help(rest):
            sys.stdout.write(command.usage.help() + "\n")
            return 0
        return _run(command, parse(command.usage, rest), cwd)
    if _wants_help(words):
        sys.stdout.write(help_text() + "\n")
        return 0
    raise SettingsError(_unknown(name))


def _wants_help(words: Sequence[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return "--help" in options or "-h" in options


def _unknown(name: str) -> str:
    known = ", ".join(COMMANDS)
    if not name or name.startswith("-"):
        before = f"{name} comes behind a command: " if name else "a command is missing: "
        return f"sessions: {before}{PROGRAM} COMMAND, one of {known}"
    near = next((one for one in COMMANDS if within_one_edit(name.lower(), one)), None)
    return f"unknown command 'sessions {name}'; " + (f"did you mean {near}?" if near else f"there are {known}")


def _run(command: Command, given: Given, cwd: Path) -> int:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where there is no home
    settings = read_settings(given.settings, os.environ, home=home, cwd=cwd)
    where = _named(settings)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        return asyncio.run(_work(command, given, settings, where))
    except SettingsError:
        raise
    except AgentError as error:
        complain_of(error, where)
        return 1


def _interrupt(_number: int, _frame: object) -> None:
    """End at once, whatever waits: asyncio's own handler would let a write into a full pipe go on."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)  # what is torn now is nobody's fault
    raise KeyboardInterrupt


async def _work(command: Command, given: Given, settings: Settings, where: str) -> int:
    from acp_agent.app import make_store

    store = make_store(settings)
    try:
        return await command.run(Work(store, where, given))
    finally:
        await store.aclose()


def _named(settings: Settings) -> str:
    store = settings.store
    return f"jsonl:{store.directory}" if isinstance(store, JsonlStore) else f"sqlite:{store.file}"


def help_text() -> str:
    """What `acp-agent sessions --help` prints."""
    rows = [f"  {f'{name} {command.usage.operands}'.strip():<16}  {command.usage.summary}"
            for name, command in COMMANDS.items()]
    return _HELP.format(commands="\n".join(rows))


_HELP = """\
usage: acp-agent sessions COMMAND ...

Look after the sessions that the agent stored.

commands:
{commands}
  COMMAND --help    more about one of these

The store is the one that serving uses: --session-store, else ACP_SESSION_STORE, else session_store in the config file,
else jsonl:$XDG_STATE_HOME/acp-agent/sessions.

exit status: 0 on success, 1 when something was found to be wrong, 2 when the command cannot be understood

examples:
  acp-agent sessions list --cwd .
  acp-agent sessions show 3f2a                   the beginning of an id will do where nothing is changed
  acp-agent sessions pack 3f2a ./bug-report      one directory that replays anywhere"""

"""Subcommands run in this process, on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from acp_agent.commands.options import parse
from acp_agent.commands.sessions import COMMANDS
from acp_agent.commands.work import Work, complain_of
from acp_agent.errors import AgentError
from acp_agent.stores.base import Page, Refusal, Tree
from tests.support.memory_store import MemoryStore
from tests.wire.recordings import Log, write


class Done(NamedTuple):
    """What a command left: its exit status, and the lines it wrote."""

    status: int
    out: list[str]
    err: list[str]


class CommandBench:
    """A store, and commands on it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], place: Path) -> None:
        self.store = MemoryStore()
        self.place = place
        self._capsys = capsys

    def __call__(self, name: str, *words: str | Path) -> Done:
        """Run a subcommand."""
        command = COMMANDS[name]
        given = parse(command.usage, [str(word) for word in words])
        work = Work(self.store, "memory:here", given)
        try:
            status = asyncio.run(command.run(work))
        except AgentError as error:
            complain_of(error, work.where)
            status = 1
        told = self._capsys.readouterr()
        return Done(status, told.out.splitlines(), told.err.splitlines())

    def keep(self, *logs: Log) -> Path:
        """Store a tree; returns the directory it came from."""
        directory = write(self.place / f"kept-{len(self.store.disk.logs)}", *logs)
        names = sorted(directory.iterdir(), key=lambda file: (len(file.name), file.name))
        asyncio.run(self.store.adopt(Tree(names, {})))
        return directory


class Refusing(MemoryStore):
    """A store that met damaged sessions while it listed."""

    def __init__(self, refused: Sequence[Refusal]) -> None:
        super().__init__()
        self._refused = refused

    async def list(self, *, cwd: str | None = None, cursor: str | None = None, limit: int = 50) -> Page:
        page = await super().list(cwd=cwd, cursor=cursor, limit=limit)
        return Page(page.sessions, page.cursor, self._refused)

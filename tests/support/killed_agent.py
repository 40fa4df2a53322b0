"""The real agent, made to die at a moment of the test's choice.

    python -m tests.support.killed_agent MOMENT NUMBER ACKNOWLEDGED [FLAGS OF THE AGENT...]

It kills itself with SIGKILL at the NUMBER-th such moment, counted over all its sessions:

    appended    an event was taken for its log, and nothing was done to write it
    written     an event was handed to the operating system, and nothing of that log after it
    forked      a child's log was begun with its parent's events
    committing  a transaction of the SQLite store is about to be committed
    inserting   the SQLite store is about to run a statement that inserts, within a transaction
    filing      a file or directory below ACP_SESSION_STORE=jsonl:DIR is about to be made, opened for writing, renamed,
                linked or removed

The file ACKNOWLEDGED gets a line `SESSION COUNT FIRM` whenever a log was told that its first COUNT events are safe.
FIRM leaves out the deltas at their end, which a store may hold back until it knows where their run ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from acp_agent import app, cli
from acp_agent.ids import SessionId
from acp_agent.session.events import (
    AssistantChunk,
    Chunk,
    Event,
    ReasoningDelta,
    SessionHeader,
    TextDelta,
    ToolCallDelta,
)
from acp_agent.settings import Settings
from acp_agent.stores.base import Appender, Continuation, Store

DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
MOMENTS = ("appended", "written", "forked", "committing", "inserting", "filing")


class Fate:
    """Counts moments, and ends the process at the one that was chosen."""

    def __init__(self, moment: str, number: int, acknowledged: int) -> None:
        self._moment = moment
        self._left = number
        self._acknowledged = acknowledged
        self.sealed = False
        """Whether nothing may be written any more: the process is about to die."""

    def meets(self, moment: str) -> bool:
        """Whether this is the chosen moment."""
        if moment != self._moment:
            return False
        self._left -= 1
        return self._left == 0

    def acknowledge(self, session: SessionId, counts: tuple[int, int]) -> None:
        """Note that a log was told its events are safe."""
        os.write(self._acknowledged, f"{session} {counts[0]} {counts[1]}\n".encode())


def die() -> None:
    """End this process as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


class MortalAppender:
    """An appender that may not outlive the chosen moment."""

    def __init__(self, inner: Appender, session: SessionId, count: int, fate: Fate) -> None:
        self._inner = inner
        self._session = session
        self._count = self._firm = count
        self._fate = fate
        self._end: asyncio.Task[None] | None = None

    def append(self, event: Event) -> None:
        if self._fate.sealed:
            return
        self._inner.append(event)
        self._count = event.seq + 1
        if not (isinstance(event.body, AssistantChunk) and isinstance(event.body.chunk, DELTAS)):
            self._firm = self._count
        if self._fate.meets("appended"):
            die()
        if self._fate.meets("written"):
            self._fate.sealed = True
            self._end = asyncio.get_running_loop().create_task(self._write_and_die())

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        for seq, chunk in enumerate(chunks, first):
            self.append(Event(seq, time, AssistantChunk(turn, step, chunk)))

    async def _write_and_die(self) -> None:
        await self._inner.write()
        self._fate.acknowledge(self._session, (self._count, self._firm))
        die()

    async def write(self) -> None:
        await self._until_sealed()
        counts = self._count, self._firm
        await self._inner.write()
        self._fate.acknowledge(self._session, counts)

    async def sync(self) -> None:
        await self._until_sealed()
        counts = self._count, self._firm
        await self._inner.sync()
        self._fate.acknowledge(self._session, counts)

    async def aclose(self) -> None:
        await self._until_sealed()
        await self._inner.aclose()
        self._fate.acknowledge(self._session, (self._count, self._count))

    async def _until_sealed(self) -> None:
        if self._fate.sealed:
            await asyncio.Event().wait()


class MortalStore:
    """A store whose appenders are mortal; whatever else is asked of it, it is the store it stands for."""

    def __init__(self, inner: Store, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, header: SessionHeader, root: SessionId) -> Appender:
        return MortalAppender(self._inner.create(header, root), header.id, 0, self._fate)

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        events = await self._inner.fork(session_id, source_id, cut)
        if self._fate.meets("forked"):
            die()
        return events

    async def load(self, session_id: SessionId) -> Continuation:
        found = await self._inner.load(session_id)
        appender = MortalAppender(found.appender, session_id, found.count, self._fate)
        return msgspec.structs.replace(found, appender=appender)


def main(words: Sequence[str]) -> int:
    moment, number, acknowledged, *flags = words
    assert moment in MOMENTS, moment
    fate = Fate(moment, int(number), os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC))
    make_store = app.make_store

    def make_mortal_store(settings: Settings) -> Any:
        return MortalStore(make_store(settings), fate)

    app.make_store = make_mortal_store
    if moment in ("committing", "inserting"):
        watch_statements(fate)
    if moment == "filing":
        watch_files(fate, os.environ["ACP_SESSION_STORE"].partition(":")[2])
    return cli.main(flags)


def watch_statements(fate: Fate) -> None:
    """Let every new connection to a database meet its fate at its statements."""
    connect = sqlite3.connect

    def connect_watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)

        def about_to_run(statement: str) -> None:
            begins = statement.lstrip().upper()
            if begins.startswith("COMMIT") and fate.meets("committing"):
                die()
            if begins.startswith("INSERT") and connection.in_transaction and fate.meets("inserting"):
                die()

        connection.set_trace_callback(about_to_run)
        return connection

    sqlite3.connect = connect_watched  # type: ignore[assignment]  # the stub knows overloads


FILE_EVENTS = frozenset({"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "open"})
"""What the interpreter says before it touches files."""


def watch_files(fate: Fate, root: str) -> None:
    """Let the process meet its fate at what it does below a directory."""
    def about_to_happen(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in FILE_EVENTS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        place = arguments[0]
        name = os.fsdecode(place) if isinstance(place, str | bytes | os.PathLike) else root
        if name.startswith(root) and fate.meets("filing"):
            die()

    sys.addaudithook(about_to_happen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Many processes on one database: none loses anything, and none sees an error."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from acp_agent.ids import SessionId
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import listed, root_header, same, turn

pytestmark = pytest.mark.anyio

PROCESSES = 20
SESSIONS = 2

WORKER = """
import asyncio, sys
from pathlib import Path
from acp_agent.ids import SessionId
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import child_header, fill, root_header, turn

async def main(file, number, sessions):
    print("ready", flush=True)
    sys.stdin.readline()
    store = SqliteStore(Path(file))
    for at in range(int(sessions)):
        name = SessionId(f"p{number}-{at}")
        root = store.create(root_header(name, created=at), name)
        child = store.create(child_header(f"{name}-child", name), name)
        for number_of_turn in (1, 2):
            first = (number_of_turn - 1) * len(turn(1, 0))
            for event in turn(number_of_turn, first):
                root.append(event)
                if event.seq % 4 == 0:
                    await root.write()
            await root.sync()
        fill(child, turn(1, 0))
        await child.aclose()
        await root.aclose()
        await store.list()
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def workers(file: Path, count: int) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Processes that are ready to begin and wait for a line."""
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", WORKER, str(file), str(number), str(SESSIONS),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for process in started:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n", await process.communicate()
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_twenty_processes_make_one_database_and_store_in_it_and_lose_nothing(tmp_path: Path) -> None:
    """The file is not there when they begin; later somebody else has it locked for a while."""
    file = tmp_path / "s.db"
    async with workers(file, PROCESSES) as started:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        store = SqliteStore(file)
        while not await listed(store):  # noqa: ASYNC110  # another process tells nobody
            await asyncio.sleep(0.01)
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            await asyncio.sleep(3)  # the time a lock from outside has to be borne
            connection.execute("COMMIT")
        for process in started:
            _, stderr = await process.communicate()
            assert (process.returncode, stderr) == (0, b"")
    names = await listed(store, limit=7)
    assert sorted(names) == sorted(f"p{number}-{at}" for number in range(PROCESSES) for at in range(SESSIONS))
    expected = [*turn(1, 0), *turn(2, len(turn(1, 0)))]
    for name in names:
        log = await store.inspect(SessionId(name))
        assert same(log, root_header(name, created=int(name[-1])), expected)
        assert [one.id for one in await store.tree(SessionId(name))] == [name, f"{name}-child"]
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


async def test_what_was_written_survives_a_killed_process(tmp_path: Path) -> None:
    """Killed after every event in turn; nothing is recovered by anyone but the next to open the database."""
    code = """
import asyncio, os, sys
from pathlib import Path
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import ROOT, root_header, turn

async def main(file, last):
    store = SqliteStore(Path(file))
    appender = store.create(root_header(), ROOT)
    for event in turn(1, 0):
        appender.append(event)
        await appender.write()
        if event.seq == int(last):
            os._exit(9)

asyncio.run(main(*sys.argv[1:]))
"""
    events = turn(1, 0)
    for last in range(0, len(events), 9):
        file = tmp_path / f"{last}.db"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(file), str(last))
        assert await process.wait() == 9
        assert os.path.exists(f"{file}-wal")  # noqa: PTH110  # no Path has this name
        store = SqliteStore(file)
        assert list((await store.inspect(SessionId("root"))).events) == events[: last + 1]
        opened = await store.load(SessionId("root"))
        assert opened.count == last + 1
        await store.aclose()

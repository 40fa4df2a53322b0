"""A place where sessions are stored, seen from outside: what lies there, byte for byte, and what it means.

Both kinds of store stand behind one name, so that one test says what holds for both.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from acp_agent.app import make_store
from acp_agent.clock import SystemClock
from acp_agent.ids import RandomIds, SessionId
from acp_agent.session.loading import load_root, open_descendant
from acp_agent.session.session import Services
from acp_agent.settings import read_settings
from acp_agent.stores import layout
from acp_agent.stores.base import Page, Store
from acp_agent.tools.permission import Mode
from tests.conftest import Workbench
from tests.support.client import AGENT, TIMEOUT
from tests.support.log_laws import Log, read_log
from tests.support.processes import clean_environment

T = TypeVar("T")

KINDS = ("jsonl", "sqlite")


@dataclass(frozen=True)
class StorePlace:
    """Where one store keeps its sessions: a directory of logs, or a database file."""

    kind: str
    path: Path

    @property
    def environ(self) -> dict[str, str]:
        """The setting that chooses this store."""
        return {"ACP_SESSION_STORE": f"{self.kind}:{self.path}"}

    def content(self) -> dict[str, Any]:
        """Everything that is stored, comparable: the bytes of each log by name, or the rows of each table."""
        if self.kind == "sqlite":
            return rows_of(self.path)
        return {str(file.relative_to(self.path)): file.read_bytes() for file in sorted(self.path.rglob("*.jsonl"))}

    def raw(self) -> dict[str, Any]:
        """What a reader must leave as it is: the bytes of every file. Of a database it is the rows, for whoever closes
        it last moves the write-ahead log into its main file.
        """
        if self.kind == "sqlite":
            return self.content()
        return {str(file.relative_to(self.path)): file.read_bytes()
                for file in sorted(self.path.rglob("*")) if file.is_file() and file.name != "lock"}

    def use(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Do something with the real store in this process."""
        async def run() -> T:
            settings = read_settings({"--session-store": f"{self.kind}:{self.path}"}, {}, home=self.path.parent,
                                     cwd=self.path.parent)
            store = make_store(settings)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(run())

    def listed(self) -> list[str]:
        """The ids of all root sessions, newest first; all must be sound."""
        return self.use(list_all)

    def load(self, session: str) -> list[str]:
        """Open a root session for continuation as an agent does, and close it; gives what it warns of."""
        return self.use(lambda store: load_and_close(store, SessionId(session)))

    def export(self, into: Path) -> dict[str, list[Log]]:
        """Write every session as a JSONL store has it; gives each root's logs, its own first. Changes nothing."""
        return self.use(lambda store: export_all(store, into))


async def load_and_close(store: Store, session: SessionId) -> list[str]:
    """See `StorePlace.load`."""
    warned: list[str] = []
    nothing: Any = None
    services = Services(
        store=store, provider=nothing, registry=nothing, effects=nothing, ids=RandomIds(), clock=SystemClock(),
        home="/", mode=Mode.READ_ONLY, max_depth=0, serves=False, next_root=lambda: 0, spawn=nothing,
        warn=warned.append,
    )  # fmt: skip
    root = (await store.tree(session))[0]
    loaded = await load_root(services, session, Path(str(root.cwd)))
    for descendant in loaded.descendants:
        await open_descendant(services, descendant.id)
    await loaded.log.aclose()
    return warned


async def list_all(store: Store) -> list[str]:
    """See `StorePlace.listed`."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page: Page = await store.list(cursor=cursor)
        assert not page.refused, page.refused
        found += [summary.id for summary in page.sessions]
        cursor = page.cursor
        if cursor is None:
            return found


async def export_all(store: Store, into: Path) -> dict[str, list[Log]]:
    """See `StorePlace.export`."""
    logs: dict[str, list[Log]] = {}
    for root in await list_all(store):
        logs[root] = []
        for number, summary in enumerate(await store.tree(SessionId(root))):
            data = b"".join([piece async for piece in store.export(summary.id)])
            file = layout.session_directory(into, summary.cwd, SessionId(root)) / (
                layout.child_log(number) if number else layout.MAIN_LOG)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            assert data.endswith(b"\n"), f"{summary.id} is exported without its last newline"
            logs[root].append(read_log(data[:-1].split(b"\n")))
            for blob in await store.blobs(summary.id):
                (file.parent / layout.BLOBS).mkdir(exist_ok=True)
                (file.parent / layout.BLOBS / blob).write_bytes(await store.blob(summary.id, blob))
    return logs


# ---------------------------------------------------------------- SQLite


def database_files(database: Path) -> list[Path]:
    """A database and its write-ahead log, as far as they exist."""
    return [file for file in (database, database.with_name(database.name + "-wal")) if file.exists()]


@contextmanager
def copied(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy of a database, made as it stands: nobody's process or recovery touches the original."""
    with tempfile.TemporaryDirectory() as directory:
        for file in database_files(database):
            shutil.copy(file, directory)
        with closing(sqlite3.connect(Path(directory) / database.name)) as connection:
            yield connection


def rows_of(database: Path) -> dict[str, list[Any]]:
    """The rows of every table, by table; text as its bytes."""
    with copied(database) as connection:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {name.decode(): sorted(connection.execute(f'SELECT * FROM "{name.decode()}"').fetchall(), key=repr)
                for (name,) in tables}


# ---------------------------------------------------------------- the command line


def sessions(bench: Workbench, place: StorePlace, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `acp-agent sessions WORDS` on a store to its end."""
    return subprocess.run([*AGENT, "sessions", *words], cwd=bench.workspace, capture_output=True, text=True,
                          env=clean_environment(bench.home) | place.environ, timeout=TIMEOUT, check=False)

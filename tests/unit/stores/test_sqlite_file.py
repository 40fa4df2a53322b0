"""The database file: made when it is needed, private, marked as ours; any other file is refused and left as it is."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from acp_agent.errors import SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.stores.sqlite import SqliteStore
from acp_agent.stores.sqlite_schema import APPLICATION_ID, VERSION
from tests.support.store_builders import ROOT, continued, fill, listed, root_header, stored, turn

pytestmark = pytest.mark.anyio


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def marks(file: Path) -> tuple[int, int]:
    data = file.read_bytes()
    return int.from_bytes(data[68:72], "big"), int.from_bytes(data[60:64], "big")


# ---------------------------------------------------------------- ours


async def test_the_marks_of_the_file_are_those_that_were_agreed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await stored(store, root_header(), turn(1, 0))
    assert marks(tmp_path / "s.db") == (0x41435052, 4) == (APPLICATION_ID, VERSION)
    await store.aclose()
    assert marks(tmp_path / "s.db") == (0x41435052, 4)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        assert set(tables) == {"sessions", "events", "blobs"}
        assert all("STRICT" in sql for sql in tables.values())
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('events')")}
        assert {"session_id", "seq", "type", "time", "data", "source_event_seqs", "surface_op", "ignorable"} == columns
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('sessions')")}
        assert {"seed_length", "spawn_call_id", "spawn_index", "root", "number", "title", "updated_at"} <= columns


async def test_nothing_is_made_by_reading_or_before_the_first_write(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "s.db"
    store = SqliteStore(file)
    assert (await store.list()).sessions == ()
    assert not store.exists(ROOT)
    for read in (store.inspect, store.load, store.tree, store.delete, store.repair, store.blobs):
        with pytest.raises(SessionNotFound):
            await read(ROOT)
    appender = store.create(root_header(), ROOT)
    fill(appender, turn(1, 0))
    assert store.exists(ROOT)
    assert not file.parent.exists()
    await appender.write()
    assert file.exists()
    await store.aclose()


async def test_every_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        file = tmp_path / "deep" / "s.db"
        store = SqliteStore(file)
        appender = store.create(root_header(), ROOT)
        fill(appender, turn(1, 0))
        await appender.sync()
        found = {path.name: mode_of(path) for path in file.parent.rglob("*")}
        assert found == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600, "s.db-locks": 0o700, "root": 0o600}
        assert mode_of(file.parent) == 0o700
        await store.aclose()
    finally:
        os.umask(umask)


async def test_closing_leaves_the_database_alone_and_nothing_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    appender = store.create(root_header(), ROOT)
    fill(appender, turn(1, 0))
    await appender.sync()
    await store.list()
    store.exists(ROOT)
    await store.aclose()
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(fd)]
    del store, appender
    gc.collect()  # a connection left open would warn here, and warnings are errors
    with pytest.raises(StoreError, match="closed"):
        await SqliteStoreClosed(tmp_path / "s.db").use()


class SqliteStoreClosed(SqliteStore):
    async def use(self) -> None:
        await self.aclose()
        await self.list()


@pytest.mark.parametrize("name", ["a b?c#d%e&f.db", "é\u2028.db", "-x.db", ":memory:"])
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / name)
    await stored(store, root_header(), turn(1, 0))
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_an_empty_file_becomes_a_private_database(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    file.touch(0o644)
    store = SqliteStore(file)
    assert await listed(store) == []
    assert file.stat().st_size == 0
    await stored(store, root_header(), turn(1, 0))
    assert await listed(store) == [ROOT]
    assert mode_of(file) == 0o600
    await store.aclose()


async def test_a_database_whose_making_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    """Killed between the pages and the end of the first transaction: the journal undoes it, and nothing is lost."""
    file = tmp_path / "s.db"
    code = f"""
import os, sqlite3
from pathlib import Path
from acp_agent.stores import sqlite_schema
file = Path({str(file)!r})
sqlite_schema._claim(file)
connection = sqlite3.connect(file, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages are written before the end
connection.execute("PRAGMA cache_spill = 1")
connection.execute("BEGIN EXCLUSIVE")
connection.execute(f"PRAGMA application_id = {{sqlite_schema.APPLICATION_ID}}")
connection.execute(f"PRAGMA user_version = {{sqlite_schema.VERSION}}")
for table in sqlite_schema._TABLES:
    connection.execute(table)
for at in range(60):
    connection.execute(f"CREATE TABLE t{{at}} (a)")
os._exit(9)
"""
    died = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert died.returncode == 9
    assert file.stat().st_size > 0
    assert Path(f"{file}-journal").exists()
    reader = SqliteStore(file)
    assert await listed(reader) == []
    store = SqliteStore(file)
    await stored(store, root_header(), turn(1, 0))
    assert await listed(reader) == [ROOT]
    await reader.aclose()
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


async def test_a_database_whose_log_was_half_moved_into_it_when_its_writer_died_is_ours(tmp_path: Path) -> None:
    """The first page has arrived and tells of more pages than the file has; the log has them all."""
    file, whole = tmp_path / "s.db", tmp_path / "whole.db"
    store = SqliteStore(file)
    await stored(store, root_header(), turn(1, 0, text="x" * 400))
    before = file.read_bytes()
    for suffix in ("", "-wal"):
        shutil.copy(f"{file}{suffix}", f"{whole}{suffix}")
    await store.aclose()
    shutil.copy(f"{whole}-wal", f"{file}-wal")
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    after = whole.read_bytes()
    assert len(after) > len(before)
    file.write_bytes(after[:4096] + before[4096:])
    again = SqliteStore(file)
    assert list((await again.inspect(ROOT)).events) == turn(1, 0, text="x" * 400)
    await again.aclose()


async def test_many_that_make_the_database_at_once_all_succeed(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "s.db") for _ in range(8)]
    headers = [root_header(f"root-{at}", created=at) for at in range(8)]
    await asyncio.gather(*(stored(store, header, turn(1, 0)) for store, header in zip(stores, headers, strict=True)))
    for store in stores:
        assert len(await listed(store)) == 8
        await store.aclose()


async def test_a_store_with_a_rollback_journal_is_switched_to_a_log(tmp_path: Path) -> None:
    """Somebody's tool may have left the database so."""
    file = tmp_path / "s.db"
    store = SqliteStore(file)
    await stored(store, root_header(), turn(1, 0))
    await store.aclose()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    await continued(store := SqliteStore(file), ROOT, turn(2, len(turn(1, 0))))
    assert file.read_bytes()[18:20] == b"\2\2"
    await store.aclose()


# ---------------------------------------------------------------- not ours


def database(*statements: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return make


def text(file: Path) -> None:
    file.write_text("a diary, and no database\n" * 100)


def one_byte(file: Path) -> None:
    file.write_bytes(b"x")


def directory(file: Path) -> None:
    file.mkdir()


def pipe(file: Path) -> None:
    os.mkfifo(file)


FOREIGN = {
    "text": (text, "not a session database"),
    "one byte": (one_byte, "not a session database"),
    "no id": (database("CREATE TABLE t (a)"), "no application id"),
    "no id but our version": (database("CREATE TABLE t (a)", "PRAGMA user_version = 4"), "no application id"),
    "another id": (database("CREATE TABLE t (a)", "PRAGMA application_id = 0x44534850", "PRAGMA user_version = 4"),
                   "application id 0x44534850.*0x41435052"),
    "another id and a log": (database("PRAGMA journal_mode = WAL", "CREATE TABLE t (a)", "PRAGMA application_id = -1"),
                             "application id 0xffffffff"),
    "a version before": (database(f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 3"),
                         r"version 3 is not supported \(this build reads and writes 4\); there is no way"),
    "a version after": (database(f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 5",
                                 "PRAGMA journal_mode = WAL"),
                        r"version 5 is not supported \(this build reads and writes 4\); upgrade acp-replay"),
    "no version": (database(f"PRAGMA application_id = {APPLICATION_ID}"), "version 0"),
    "directory": (directory, "a directory"),
    "pipe": (pipe, "not a regular file"),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_any_other_file_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    make, says = FOREIGN[name]
    file = tmp_path / "s.db"
    make(file)
    before = file.stat()
    content = file.read_bytes() if file.is_file() else None
    store = SqliteStore(file)

    async def write() -> None:
        await stored(store, root_header(), turn(1, 0))

    for use in (write, store.list, lambda: store.load(ROOT), lambda: store.inspect(ROOT)):
        with pytest.raises(StoreError, match=says) as refused:
            await use()
        assert str(file) in refused.value.message
        assert "ACP_SESSION_STORE=sqlite:FILE" in refused.value.message
    with pytest.raises(StoreError, match=says):
        store.exists(ROOT)
    with pytest.raises(StoreError, match=says):
        store.create(root_header(), ROOT)
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
    after = file.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_mode, after.st_ino) == (
        before.st_mtime_ns, before.st_size, before.st_mode, before.st_ino)
    assert content is None or file.read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
async def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    await stored(store := SqliteStore(file), root_header(), turn(1, 0))
    await store.aclose()
    file.chmod(0)
    store = SqliteStore(file)
    with pytest.raises(StoreError, match="Permission denied; make it readable"):
        await store.list()
    await store.aclose()


async def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqliteStore(tmp_path / "file" / "s.db")
    with pytest.raises(StoreError, match="Not a directory"):
        await store.list()
    with pytest.raises(StoreError, match="Not a directory"):
        store.create(root_header(), ROOT)
    await store.aclose()


async def test_a_foreign_database_with_a_journal_is_refused_and_not_rolled_back(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    database("CREATE TABLE t (a)")(file)
    Path(f"{file}-journal").write_bytes(b"left")
    store = SqliteStore(file)
    with pytest.raises(StoreError, match="no application id"):
        await store.list()
    await store.aclose()
    assert Path(f"{file}-journal").read_bytes() == b"left"


async def test_ids_are_data(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    names = ["../../x", "a'; DROP TABLE events; --", "\0", "a/b", ".", "..", "é\u2028", " ", "%", "_"]
    for at, name in enumerate(names):
        await stored(store, root_header(name, created=at), turn(1, 0))
    assert await listed(store) == names[::-1]
    for name in names:
        assert len((await store.inspect(SessionId(name))).events) == len(turn(1, 0))
    for odd in ("\ud800", "", "nobody"):
        assert not store.exists(SessionId(odd))
        with pytest.raises(SessionNotFound):
            await store.load(SessionId(odd))
    await store.delete(SessionId(names[1]))
    assert await listed(store) == [name for name in names[::-1] if name != names[1]]
    await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]

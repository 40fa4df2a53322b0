"""A database that cannot be written loses nothing, says so and what to do, and is written as soon as it can be."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event
from acp_agent.stores import sqlite_appender, sqlite_schema
from acp_agent.stores.patience import Patience
from acp_agent.stores.sqlite import SqliteStore
from acp_agent.stores.sqlite_appender import SqliteAppender
from tests.support.store_builders import ROOT, fill, listed, root_header, stored, title, turn

pytestmark = pytest.mark.anyio

FIRST = turn(1, 0)
OTHER = SessionId("other")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "s.db")
    yield store
    await store.aclose()


async def opened(store: SqliteStore) -> SqliteAppender:
    appender = store.create(root_header(), ROOT)
    fill(appender, FIRST)
    await appender.write()
    return appender


async def events_of(store: SqliteStore, session: SessionId = ROOT) -> list[Event]:
    return list((await store.inspect(session)).events)


def big(seq: int) -> Event:
    return title(seq, "x" * 300_000)


def limit_pages(store: SqliteStore, pages: int) -> None:
    """Let the database grow by so many pages and no more: what a full disk is to it."""
    writer = store._database._writer
    assert writer is not None
    ((used,),) = writer.connection.execute("PRAGMA page_count")
    writer.connection.execute(f"PRAGMA max_page_count = {used + pages}")


# ---------------------------------------------------------------- full and broken disks


async def test_what_a_full_disk_refuses_is_kept_and_stored_as_soon_as_there_is_room(store: SqliteStore) -> None:
    appender = await opened(store)
    await store._database.writing(lambda: limit_pages(store, 2))
    rest = [title(len(FIRST), "small"), big(len(FIRST) + 1)]
    fill(appender, rest)
    for attempt in (appender.write, appender.sync):
        with pytest.raises(StoreError, match=r"s\.db.*cannot be written: database or disk is full.*free some space"):
            await attempt()
        assert await events_of(store) == FIRST
    appender.append(title(len(FIRST) + 2, "last"))
    await store._database.writing(lambda: limit_pages(store, 1000))
    await appender.sync()
    assert await events_of(store) == [*FIRST, *rest, title(len(FIRST) + 2, "last")]
    assert (await store.list()).sessions[0].title == "last"


async def test_a_session_that_could_not_be_begun_is_not_there_and_begins_later(store: SqliteStore) -> None:
    await opened(store)
    await store._database.writing(lambda: limit_pages(store, 2))
    appender = store.create(root_header(OTHER, created=2), OTHER)
    appender.append(big(0))
    with pytest.raises(StoreError):
        await appender.write()
    assert await listed(store) == [ROOT]
    await store._database.writing(lambda: limit_pages(store, 1000))
    await appender.aclose()
    assert await events_of(store, OTHER) == [big(0)]


async def test_a_disk_that_fails_under_a_write_takes_nothing_that_was_stored(tmp_path: Path) -> None:
    """A limit on file sizes makes the system refuse the write in the middle of a transaction."""
    code = f"""
import asyncio, resource
from pathlib import Path
from acp_agent.errors import StoreError
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import ROOT, fill, root_header, title, turn

async def main():
    store = SqliteStore(Path({str(tmp_path / "s.db")!r}))
    appender = store.create(root_header(), ROOT)
    fill(appender, turn(1, 0))
    await appender.sync()
    at = len(turn(1, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    appender.append(title(at, "x" * 500_000))
    for attempt in range(2):
        try:
            await appender.write()
        except StoreError as error:
            assert "s.db" in error.message and "is full" in error.message, error.message
        else:
            raise AssertionError("it was written")
        assert [e.seq for e in (await store.inspect(ROOT)).events] == list(range(at))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await appender.write()
    assert [e.seq for e in (await store.inspect(ROOT)).events] == list(range(at + 1))
    await store.aclose()

asyncio.run(main())
"""
    done = await anyio.run_process([sys.executable, "-W", "error", "-c", code], check=False, stderr=None)
    assert done.returncode == 0


FULL = """
import asyncio, resource
from pathlib import Path
from acp_agent.errors import StoreError
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import ROOT, root_header, stored, title

def room(size):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

async def main():
    file = Path({file!r})
    store = SqliteStore(file)
    await stored(store, root_header(), [title(at, "x" * 3000) for at in range(200)])
{then}

asyncio.run(main())
"""
NO_ROOM = """
    await store.aclose()
    store = SqliteStore(file)
    room(40_000)
    try:
        await store.delete(ROOT)
    except StoreError as error:
        assert "'root' cannot be deleted: the disk is full, and the deletion itself needs up to 7" in error.message
    else:
        raise AssertionError("it was deleted")
    assert len((await store.inspect(ROOT)).events) == 200
    assert list(file.with_name("s.db-locks").iterdir()) == []
    room(-1)
    await store.delete(ROOT)
    assert not store.exists(ROOT)
    await store.aclose()
"""
OLD_ROOM = """
    log = file.with_name("s.db-wal")
    room(log.stat().st_size + 20_000)
    await store.delete(ROOT)
    assert not store.exists(ROOT)
    await store.aclose()
"""


@pytest.mark.parametrize("then", [NO_ROOM, OLD_ROOM], ids=["no-room", "room-in-the-log"])
async def test_a_deletion_on_a_full_disk_uses_the_logs_room_or_says_what_it_needs(tmp_path: Path, then: str) -> None:
    code = FULL.format(file=str(tmp_path / "s.db"), then=then)
    done = await anyio.run_process([sys.executable, "-W", "error", "-c", code], check=False, stderr=None)
    assert done.returncode == 0


async def test_a_database_made_read_only_is_written_again_when_it_is_writable(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever runs the tests may be allowed everything, so the connection is opened as the system would open it."""
    appender = await opened(store)
    await store._database.writing(store._database._close_writer)
    real = sqlite_schema.uri
    monkeypatch.setattr(sqlite_schema, "uri", lambda file, options: real(file, options.replace("mode=rw", "mode=ro")))
    appender.append(title(len(FIRST), "later"))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"s\.db.*readonly database; make the file and its directory writable"):
            await appender.write()
    monkeypatch.undo()
    await appender.write()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


async def test_a_database_that_was_removed_is_told_and_not_written_into_the_void(
    store: SqliteStore, tmp_path: Path,
) -> None:
    appender = await opened(store)
    file = tmp_path / "s.db"
    file.rename(tmp_path / "away.db")
    appender.append(title(len(FIRST), "later"))
    with pytest.raises(StoreError, match="removed or replaced while it was in use; put it back"):
        await appender.sync()
    (tmp_path / "away.db").rename(file)
    await appender.sync()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


async def test_a_log_that_something_else_wrote_to_is_not_written_over(store: SqliteStore, tmp_path: Path) -> None:
    appender = await opened(store)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE session_id = 'root' AND seq = ?", (len(FIRST) - 1,))
    appender.append(title(len(FIRST), "later"))
    with pytest.raises(StoreError, match=f"'root' has {len(FIRST) - 1} stored events, but {len(FIRST)} were stored"):
        await appender.write()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute("DELETE FROM sessions")
        connection.execute("DELETE FROM events")
    with pytest.raises(StoreError, match="has 0 stored events"):
        await appender.aclose()
    assert await listed(store) == []


# ---------------------------------------------------------------- somebody else's lock


@contextmanager
def locked(file: Path) -> Iterator[sqlite3.Connection]:
    """The database locked by a connection that is none of the store's."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection


async def test_a_lock_from_outside_is_waited_for_while_the_loop_goes_on_and_readers_read(
    store: SqliteStore, tmp_path: Path,
) -> None:
    appender = await opened(store)
    appender.append(title(len(FIRST), "later"))
    with locked(tmp_path / "s.db") as connection:
        writing = asyncio.create_task(appender.sync())
        for _ in range(20):
            await asyncio.sleep(0.01)  # only a loop that is not blocked comes here
            assert await listed(store) == [ROOT]
            assert store.exists(ROOT)
        assert not writing.done()
        connection.execute("COMMIT")
        await writing
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


async def test_a_lock_that_stays_is_told_and_what_was_to_be_stored_is_kept(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)
    appender = await opened(store)
    appender.append(title(len(FIRST), "later"))
    with (
        locked(tmp_path / "s.db"),
        pytest.raises(StoreError, match=r"s\.db.*database is locked; another process holds it .*; end that process"),
    ):
        await appender.write()
    await appender.write()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


async def test_a_cancelled_write_waits_no_longer_and_is_stored_once_by_the_next_one(
    store: SqliteStore, tmp_path: Path,
) -> None:
    appender = await opened(store)
    appender.append(title(len(FIRST), "later"))
    with locked(tmp_path / "s.db"):
        async with anyio.create_task_group() as group:
            tries = counted(store)
            group.start_soon(appender.write)
            await tries.more()
            group.cancel_scope.cancel()
        assert await events_of(store) == FIRST
    await appender.write()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


class Tries:
    """Tells when the writing thread was asked again."""

    def __init__(self, store: SqliteStore) -> None:
        self._news = anyio.Event()
        self._real = store._database.transact
        self._loop = asyncio.get_running_loop()

    def transact(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        self._loop.call_soon_threadsafe(self._told)
        return self._real(work)

    def _told(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def more(self, count: int = 3) -> None:
        """Wait until it was so often."""
        for _ in range(count):
            await self._news.wait()


def counted(store: SqliteStore) -> Tries:
    tries = Tries(store)
    store._database.transact = tries.transact  # type: ignore[method-assign]  # seen, not changed
    return tries


async def test_what_is_stored_waits_for_a_lock_no_longer_than_its_patience_lasts(
    store: SqliteStore, tmp_path: Path,
) -> None:
    """Shielded from cancels, as the end of a turn is; told to end while it waits."""
    appender, patience = await opened(store), Patience()
    appender.append(title(len(FIRST), "later"))
    tries = counted(store)

    async def store_it() -> None:
        with patience.rules(), anyio.CancelScope(shield=True):
            await appender.sync()

    with locked(tmp_path / "s.db"):
        waiting = asyncio.create_task(store_it())
        await tries.more()
        assert not waiting.done()
        patience.ends_in(0)
        with pytest.raises(StoreError, match="database is locked"):
            await waiting
    await appender.sync()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]


async def test_one_that_waits_for_a_lock_leaves_others_their_turn(store: SqliteStore, tmp_path: Path) -> None:
    """A log that is not there yet waits as well; one that needs no lock is not held up, nor is one that gives up."""
    await opened(store)
    first, second = (store.create(root_header(one), one) for one in (OTHER, SessionId("third")))
    patience = Patience()
    for appender in (first, second):
        fill(appender, FIRST)
    tries = counted(store)
    with locked(tmp_path / "s.db") as connection:
        waiting = asyncio.create_task(first.write())
        await tries.more()
        patience.ends_in(0)
        with patience.rules(), pytest.raises(StoreError, match="database is locked"):
            await second.write()
        assert not waiting.done()
        connection.execute("COMMIT")
        await waiting
    await second.write()


async def test_who_has_waited_in_vain_waits_no_more(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn that could not begin to be stored is not held up as long again at its end."""
    appender, around, elsewhere = await opened(store), Patience(), Patience()
    appender.append(title(len(FIRST), "later"))
    with locked(tmp_path / "s.db"), around.rules():
        inner = Patience()
        with inner.rules():
            monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)
            with pytest.raises(StoreError, match="database is locked"):
                await appender.write()
            monkeypatch.undo()
            with pytest.raises(StoreError, match="database is locked"):
                await appender.sync()
    assert (inner.ended(), around.ended(), elsewhere.ended()) == (True, True, False)
    await appender.sync()


async def test_patience_lasts_no_longer_than_the_one_around_it() -> None:
    outer = Patience()
    with outer.rules():
        inner = Patience()
    assert not inner.ended()
    outer.ends_in(0)
    assert inner.ended()
    assert Patience(0).ended()
    assert not Patience().ended()


async def test_a_log_that_is_given_up_while_the_database_is_locked_waits_a_little_and_says_so(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_appender, "CLOSING_SECONDS", 0.05)
    appender = await opened(store)
    appender.append(title(len(FIRST), "later"))
    with locked(tmp_path / "s.db"), pytest.raises(StoreError, match="database is locked"):
        await appender.aclose()
    assert await events_of(store) == FIRST
    again = await store.load(ROOT)
    await again.appender.aclose()


async def test_writes_at_the_same_time_store_everything_once(store: SqliteStore) -> None:
    appender = await opened(store)
    expected = list(FIRST)

    async def write_one() -> None:
        event = title(len(expected), "t")
        expected.append(event)
        appender.append(event)
        await appender.write()

    await asyncio.gather(*(write_one() for _ in range(50)))
    assert await events_of(store) == expected


async def test_an_id_that_is_taken_is_refused_at_the_first_write_and_harms_nobody(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    first = await opened(store)
    second = store.create(root_header(created=9), ROOT)
    second.append(title(0, "another"))
    with pytest.raises(StoreError, match="a session with the id 'root' is stored already; choose another id"):
        await second.write()
    first.append(title(len(FIRST), "later"))
    await first.write()
    assert await events_of(store) == [*FIRST, title(len(FIRST), "later")]
    with pytest.raises(StoreError, match="stored already"):
        await store.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
    await stored(again := SqliteStore(tmp_path / "s.db"), root_header(OTHER), FIRST)
    assert await events_of(again) == [*FIRST, title(len(FIRST), "later")]
    await again.aclose()


async def test_content_of_a_session_that_never_came_to_be_is_forgotten(store: SqliteStore, tmp_path: Path) -> None:
    appender = store.create(root_header(), ROOT)
    blob = await store.put_blob(ROOT, b"content")
    assert await store.blob(ROOT, blob) == b"content"
    await appender.aclose()
    kept = await opened(store)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
    await store.put_blob(ROOT, b"content")
    await kept.aclose()
    assert await store.blobs(ROOT) == [blob]


async def test_content_that_was_changed_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    await opened(store)
    blob = await store.put_blob(ROOT, b"content")
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute("UPDATE blobs SET data = x'00'")
    with pytest.raises(LogDamaged, match=f"'root': the content '{blob}' is not what was stored"):
        await store.blob(ROOT, blob)
    assert await store.put_blob(ROOT, b"content") == blob
    assert await store.blob(ROOT, blob) == b"content"

"""A damaged session is refused by name, event and remedy; all others go on, and nothing is changed by refusing."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.errors import LogDamaged, SessionHeld, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import AssistantChunk, Event, TextDelta
from acp_agent.stores import sqlite_database
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import (
    CHILD,
    ROOT,
    child_header,
    end_seed,
    exported,
    fill,
    listed,
    root_header,
    stored,
    title,
    turn,
)

pytestmark = pytest.mark.anyio

EVENTS = turn(1, 0, tool=True)
OTHER = SessionId("other")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Two sessions, the first with a child, and nothing open."""
    store = SqliteStore(tmp_path / "s.db")
    await stored(store, root_header(), EVENTS)
    await stored(store, child_header(), EVENTS, root=ROOT)
    await stored(store, root_header(OTHER, created=2), EVENTS)
    yield store
    await store.aclose()


def change(tmp_path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def rows(tmp_path: Path) -> list[object]:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.text_factory = bytes
        return [*connection.execute("SELECT * FROM sessions"), *connection.execute("SELECT * FROM events")]


def seq_of(kind: str) -> int:
    return next(event.seq for event in EVENTS if event.body.type == kind)


CALL = seq_of("tool/call")
CHUNK = seq_of("assistant/chunk")
FINISH = seq_of("assistant/message") - 1
WHERE = "WHERE session_id = 'root' AND seq = ?"

DAMAGES = {
    "no json": (f"UPDATE events SET data = '{{' {WHERE}", CALL, "truncated"),
    "no json in a chunk": (f"UPDATE events SET data = '{{' {WHERE}", CHUNK, "truncated"),
    "other json": (f"UPDATE events SET data = '[]' {WHERE}", CALL, "Expected `object`"),
    "another finish": (f"UPDATE events SET data = replace(data, '\"kind\"', '\"sort\"') {WHERE}", FINISH, "kind"),
    "more than json": (f"UPDATE events SET data = data || 'x' {WHERE}", CALL, "malformed"),
    "NUL": (f"UPDATE events SET data = data || char(0) {WHERE}", CALL, "malformed"),
    "no text": (f"UPDATE events SET data = CAST(x'7b22e9227d' AS TEXT) {WHERE}", CALL, "utf-8"),
    "a type that is no text": (f"UPDATE events SET type = CAST(x'e9' AS TEXT) {WHERE}", CALL, "utf-8"),
    "unknown type": (f"UPDATE events SET type = 'novel' {WHERE}", CALL, "unknown event type 'novel'"),
    "missing": (f"DELETE FROM events {WHERE}", CALL, "missing"),
    "missing chunk": (f"DELETE FROM events {WHERE}", CHUNK, "missing"),
    "first missing": (f"DELETE FROM events {WHERE}", 0, "missing"),
    "negative": (f"UPDATE events SET seq = -1 {WHERE}", CALL, None),
    "surface": (f"UPDATE events SET surface_op = '\"prepend\"' {WHERE}", CALL, "prepend"),
    "ignorable": (f"UPDATE events SET ignorable = 7 {WHERE}", CALL, "ignorable is 7"),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_event_refuses_its_session_and_no_other(
    store: SqliteStore, tmp_path: Path, name: str,
) -> None:
    statement, seq, says = DAMAGES[name]
    change(tmp_path, statement, seq)
    before = rows(tmp_path)
    for use in (store.load, store.inspect):
        with pytest.raises(LogDamaged) as refused:
            await use(ROOT)
        told = refused.value.message
        assert told.startswith(f"{tmp_path / 's.db'}: session 'root', event ")
        assert refused.value.file == str(tmp_path / "s.db")
        assert "`acp-agent sessions repair root`" in told
        if says is not None:
            assert f"event {seq}: " in told
            assert says in told
    assert rows(tmp_path) == before
    assert await listed(store) == [OTHER, ROOT]
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD]
    for healthy in (OTHER, CHILD):
        assert list((await store.inspect(healthy)).events) == EVENTS
        await (await store.load(healthy)).appender.aclose()


async def test_citations_that_are_none_refuse_reading(store: SqliteStore, tmp_path: Path) -> None:
    change(tmp_path, f"UPDATE events SET source_event_seqs = '[\"x\"]' {WHERE}", CALL + 1)
    for use in (store.inspect, store.load):
        with pytest.raises(LogDamaged, match=f"event {CALL + 1}: Expected `int`"):
            await use(ROOT)


async def test_a_refused_session_is_not_held(store: SqliteStore, tmp_path: Path) -> None:
    change(tmp_path, f"UPDATE events SET data = '{{' {WHERE}", CALL)
    with pytest.raises(LogDamaged):
        await store.load(ROOT)
    sound = "SELECT data FROM events WHERE session_id = 'other' AND seq = ?1"
    change(tmp_path, f"UPDATE events SET data = ({sound}) {WHERE}1", CALL)
    other = SqliteStore(tmp_path / "s.db")
    opened = await other.load(ROOT)
    with pytest.raises(SessionHeld):
        await store.load(ROOT)
    await opened.appender.aclose()
    await (await store.load(ROOT)).appender.aclose()
    await other.aclose()


@pytest.mark.parametrize(("statement", "says"), [
    ("UPDATE sessions SET version = 1 WHERE id = 'root'", "log format 1 is not supported.*upgrade"),
    ("UPDATE sessions SET created_at = -1 WHERE id = 'root'", "createdAt is negative"),
    ("UPDATE sessions SET origin = 'elsewhere' WHERE id = 'root'", "elsewhere"),
    ("UPDATE sessions SET cwd = CAST(x'ff' AS TEXT) WHERE id = 'root'", "utf-8"),
    ("UPDATE sessions SET spawn_call_id = 'c' WHERE id = 'root'", "spawn"),
    ("UPDATE sessions SET extra = '{' WHERE id = 'root'", "truncated"),
    ("UPDATE sessions SET extra = '{\"sandboxMode\":1}' WHERE id = 'root'", "sandboxMode"),
])
async def test_a_damaged_header_is_listed_as_refused_and_stands_in_nobodys_way(
    store: SqliteStore, tmp_path: Path, statement: str, says: str,
) -> None:
    change(tmp_path, statement)
    page = await store.list()
    assert [one.id for one in page.sessions] == [OTHER]
    assert [(one.name, "session 'root': " in one.reason) for one in page.refused] == [(ROOT, True)]
    for use in (store.load, store.inspect, store.tree):
        with pytest.raises(LogDamaged, match=says):
            await use(ROOT)
    with pytest.raises(LogDamaged, match=says):
        await exported(store, ROOT)
    await store.delete(ROOT)
    assert await listed(store) == [OTHER]


async def test_a_damaged_descendant_is_left_out_of_its_tree(store: SqliteStore, tmp_path: Path) -> None:
    change(tmp_path, "UPDATE sessions SET origin = 'elsewhere' WHERE id = 'child'")
    assert [one.id for one in await store.tree(ROOT)] == [ROOT]
    assert [one.id for one in await store.tree(CHILD)] == [ROOT]


@pytest.mark.parametrize(("length", "says"), [(5, "event 4 is .* and event 5 is"), (10_000, "10000 events were")])
async def test_a_seed_boundary_in_the_wrong_place_is_refused_with_both_numbers(
    store: SqliteStore, tmp_path: Path, length: int, says: str,
) -> None:
    change(tmp_path, "UPDATE sessions SET seed_length = ? WHERE id = 'root'", length)
    for use in (store.load, store.inspect):
        with pytest.raises(LogDamaged, match=f"session 'root': .*{says}.*put back a copy"):
            await use(ROOT)


def blob_of_text(seq: int) -> Event:
    return Event(seq, 1000, AssistantChunk(1, 1, TextDelta(0, "Y" * 3000)))


async def test_a_damaged_page_is_told_with_the_file_and_the_remedy(store: SqliteStore, tmp_path: Path) -> None:
    """The events of one session lie on pages of their own; what has none of them is still to be had."""
    big = SessionId("big")
    await stored(store, root_header(big, created=3), [blob_of_text(at) for at in range(40)])
    await store.aclose()
    file = tmp_path / "s.db"
    data = bytearray(file.read_bytes())
    for start in range(4096, len(data), 4096):
        if data[start:start + 4096].count(b"Y") > 2500:
            data[start:start + 8] = b"\xee" * 8
    file.write_bytes(data)
    store = SqliteStore(file)
    for use in (store.inspect, store.load):
        with pytest.raises(StoreError, match=r"s\.db: the session database itself is damaged .*malformed.*restore a"):
            await use(big)
    assert await listed(store) == [big, OTHER, ROOT]
    assert list((await store.inspect(ROOT)).events) == EVENTS
    await store.aclose()


async def test_chunks_that_are_not_fetched_are_counted_all_the_same(store: SqliteStore) -> None:
    opened = await store.load(ROOT)
    assert opened.count == len(EVENTS)
    assert opened.time == EVENTS[-1].time
    kept = [event.seq for event in EVENTS if event.body.type != "assistant/chunk" or event.seq == FINISH]
    assert [event.seq for event in opened.settled] == kept
    assert not opened.torn
    await opened.appender.aclose()


async def test_a_finish_is_found_however_it_is_written(store: SqliteStore, tmp_path: Path) -> None:
    for data in ('{"turn":1,"step":1,"chunk":{"type":"f\\u0069nish","reason":{"kind":"stop"}}}',
                 '{ "chunk" : { "reason" : {"kind" : "stop"}, "type"\t:\t"finish" } , "step":1, "turn":1 }'):
        change(tmp_path, f"UPDATE events SET data = ?2 {WHERE}1", FINISH, data)
        opened = await store.load(ROOT)
        assert FINISH in [event.seq for event in opened.settled]
        await opened.appender.aclose()


# ---------------------------------------------------------------- repair


def events_at(events: list[Event], *dropped: int) -> list[Event]:
    return [event for event in events if event.seq not in dropped]


async def test_a_repair_backs_up_privately_keeps_what_is_sound_and_says_what_it_did(
    store: SqliteStore, tmp_path: Path,
) -> None:
    change(tmp_path, f"UPDATE events SET data = '{{' {WHERE}", CALL)
    before = rows(tmp_path)
    tried = await store.repair(ROOT, dry_run=True)
    assert (tried.backup, rows(tmp_path)) == (None, before)
    report = await store.repair(ROOT)
    assert report.session == ROOT
    assert report.changes
    assert list(report.changes) == list(tried.changes)
    assert report.backup is not None
    assert report.backup.parent == tmp_path
    assert stat.S_IMODE(report.backup.stat().st_mode) == 0o600
    with closing(sqlite3.connect(report.backup)) as connection:
        connection.text_factory = bytes
        assert [*connection.execute("SELECT * FROM sessions"), *connection.execute("SELECT * FROM events")] == before
    found = list((await store.inspect(ROOT)).events)
    assert events_at(found, CALL) == events_at(EVENTS, CALL)
    await (await store.load(ROOT)).appender.aclose()
    assert list((await store.inspect(CHILD)).events) == EVENTS
    again = await store.repair(ROOT)
    assert (list(again.changes), again.backup) == ([], None)


async def test_two_repairs_have_two_backups(store: SqliteStore, tmp_path: Path) -> None:
    backups = []
    for _ in range(2):
        change(tmp_path, f"UPDATE events SET data = '{{' {WHERE}", 1)
        backups.append((await store.repair(ROOT)).backup)
    assert len({*backups}) == 2
    assert all(backup is not None and backup.exists() for backup in backups)


async def test_a_repair_tells_the_list_the_title_that_is_left(store: SqliteStore, tmp_path: Path) -> None:
    named = SessionId("named")
    await stored(store, root_header(named, created=9), turn(1, 0, title="first"))
    opened = await store.load(named)
    fill(opened.appender, [end_seed(opened.count), title(opened.count + 1, "second")])
    await opened.appender.aclose()
    assert (await store.list()).sessions[0].title == "second"
    change(tmp_path, "UPDATE events SET data = '' WHERE session_id = 'named' AND seq = ?", opened.count + 1)
    await store.repair(named)
    assert (await store.list()).sessions[0].title == "first"


async def test_what_a_repair_would_do_is_told_whoever_uses_the_session(store: SqliteStore, tmp_path: Path) -> None:
    opened = await store.load(ROOT)
    other = SqliteStore(tmp_path / "s.db")
    for one in (store, other):
        report = await one.repair(ROOT, dry_run=True)
        assert (list(report.changes), report.kept) == ([], len(EVENTS))
    change(tmp_path, f"UPDATE events SET data = '{{' {WHERE}", CALL)
    assert (await other.repair(ROOT, dry_run=True)).changes
    await opened.appender.aclose()
    await other.aclose()


async def test_what_a_repair_would_do_is_told_of_a_database_that_cannot_be_written(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(tmp_path, f"UPDATE events SET data = '{{' {WHERE}", CALL)
    await store.aclose()

    def refused(file: Path) -> sqlite3.Connection:
        raise AssertionError(f"{file} was opened for writing")

    monkeypatch.setattr(sqlite_database, "open_for_writing", refused)
    before = sorted(path.name for path in tmp_path.iterdir())
    other = SqliteStore(tmp_path / "s.db")
    assert (await other.repair(ROOT, dry_run=True)).changes
    assert [name for name in sorted(path.name for path in tmp_path.iterdir()) if "locks" in name] == [
        name for name in before if "locks" in name]
    await other.aclose()


async def test_a_session_in_use_is_not_repaired(store: SqliteStore, tmp_path: Path) -> None:
    opened = await store.load(ROOT)
    with pytest.raises(StoreError, match="open here"):
        await store.repair(CHILD)
    other = SqliteStore(tmp_path / "s.db")
    with pytest.raises(SessionHeld):
        await other.repair(ROOT)
    await opened.appender.aclose()
    await other.aclose()

"""What is stored is what came in: data byte for byte, headers key by key; what goes out equals the log files' rows."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.codec import encode_header, pack
from acp_agent.session.events import (
    AssistantChunk,
    Event,
    SessionHeader,
    SpawnKey,
    TextBlock,
    TextDelta,
    UserMessage,
)
from acp_agent.stores import sqlite_exporting, sqlite_listing, sqlite_places, sqlite_reading
from acp_agent.stores.base import Tree
from acp_agent.stores.sqlite import SqliteStore
from acp_agent.stores.sqlite_schema import open_for_reading
from tests.support.store_builders import (
    CHILD,
    ROOT,
    child_header,
    exported,
    fill,
    listed,
    root_header,
    stored,
    tree_of,
    turn,
    unknown,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "s.db")
    yield store
    await store.aclose()


def deltas(count: int, first: int = 0) -> list[Event]:
    return [Event(first + at, 1000 + at, AssistantChunk(1, 1, TextDelta(0, f"é{at}"))) for at in range(count)]


# ---------------------------------------------------------------- rows


async def test_one_row_an_event_with_its_data_as_json_text(store: SqliteStore, tmp_path: Path) -> None:
    events = [*turn(1, 0, tool=True), unknown(len(turn(1, 0, tool=True)), ignorable=True)]
    await stored(store, root_header(), events)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        found = connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
    assert [row[:2] for row in found] == [("root", event.seq) for event in events]
    for row, event in zip(found, events, strict=True):
        line = msgspec.json.decode(pack([event]))
        assert (row[2], row[3], msgspec.json.decode(row[4])) == (line["type"], line["time"], line["data"])
        assert (None if row[5] is None else msgspec.json.decode(row[5])) == line.get("sourceEventSeqs")
        assert row[6] == (None if "surfaceOp" not in line else '"append"')
        assert row[7] == (1 if line.get("ignorable") else None)
    assert found[-1][4] == '{"deep": [1, {"x": null}]}'


@pytest.mark.parametrize("count", [1, 2, 4, 15, 64, 85, 255, 256, 257, 1111])
async def test_every_size_of_a_batch_is_stored_whole(store: SqliteStore, count: int) -> None:
    appender = store.create(root_header(), ROOT)
    events = deltas(count)
    fill(appender, events)
    await appender.write()
    more = deltas(3, count)
    fill(appender, more)
    await appender.aclose()
    assert list((await store.inspect(ROOT)).events) == [*events, *more]


async def test_a_batch_of_many_kinds_keeps_its_order(store: SqliteStore) -> None:
    events: list[Event] = []
    for number in range(1, 40):
        events += turn(number, len(events), tool=number % 3 == 0, title=f"t{number}" if number % 7 == 0 else None)
    appender = store.create(root_header(), ROOT)
    fill(appender, events)
    await appender.aclose()
    assert list((await store.inspect(ROOT)).events) == events
    assert (await store.list()).sessions[0].title == "t35"
    assert (await store.list()).sessions[0].updated_at == events[-1].time


async def test_lone_surrogates_are_stored_as_in_a_log_file(store: SqliteStore) -> None:
    header = SessionHeader(id=ROOT, created_at=1, cwd="/w\udcff")
    bodies = [AssistantChunk(1, 1, TextDelta(0, "a\ud800b")), turn(1, 0)[2].body]
    assert isinstance(bodies[1], UserMessage)
    bodies[1] = msgspec.structs.replace(bodies[1], content=(TextBlock("\udfff"),))
    events = [Event(seq, 1000, body) for seq, body in enumerate(bodies)]
    await stored(store, header, events)
    assert await exported(store, ROOT) == encode_header(header) + pack(events)
    assert await listed(store, cwd="/w\udcff") == [ROOT]


# ---------------------------------------------------------------- export and adoption


async def test_an_export_is_the_log_file_of_the_same_events(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of deltas are packed however they were written, across the pieces an export is read in."""
    monkeypatch.setattr(sqlite_exporting, "PIECE", 500)
    events = deltas(400)
    for number in range(1, 6):
        events += turn(number, len(events), tool=True)
    events += deltas(2, len(events))
    header = SessionHeader(id=ROOT, created_at=7, cwd="/w é", seed_length=0, agent_preset="p")
    appender = store.create(header, ROOT)
    for at in range(0, len(events), 100):
        fill(appender, events[at:at + 100])
        await appender.write()
    pieces = [piece async for piece in store.export(ROOT)]
    assert b"".join(pieces) == encode_header(header) + pack(events)
    assert len(pieces) > 3
    await appender.aclose()


def spawned(**more: object) -> bytes:
    """A child's header line with every key there is."""
    header = SessionHeader(id=CHILD, created_at=5, cwd="/w", parent_session=ROOT, seed_length=0, origin="subagent",
                           delegation_depth=1, agent_preset="x", spawn=SpawnKey(CallId("c"), 2))
    line = encode_header(header)
    return line if not more else line[:-2] + b"," + msgspec.json.encode(more)[1:] + b"\n"


async def test_what_is_adopted_is_exported_byte_for_byte_with_keys_that_nobody_knows(
    store: SqliteStore, tmp_path: Path,
) -> None:
    odd = (b'{"type":"step/start","seq":1,"time":1001,"data":{"step" : 1,\t"turn":1.0e0, "more":[1.50,"\\u00e9"]}}\n'
           .replace(b"1.0e0", b"1"))
    chunk = (b'{"type":"assistant/chunk","seq":2,"time":1002,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta",'
             b'"index":0,"text":"\\u0061","extra":null}}}\n')
    root = encode_header(root_header()) + pack(turn(1, 0)[:1]) + odd + chunk
    child = spawned(z={"b": [1, 2.50], "a": None}, y="\u2028") + pack(turn(1, 0, tool=True))
    assert await store.adopt(tree_of(tmp_path / "in", root, child)) == ROOT
    assert await exported(store, ROOT) == root
    assert await exported(store, CHILD) == child
    assert [one.id for one in await store.tree(CHILD)] == [ROOT, CHILD]
    opened = await store.load(CHILD)
    opened.appender.append(Event(opened.count, 5000, turn(2, 0)[0].body))
    await opened.appender.aclose()
    assert await exported(store, CHILD) == child + pack([Event(opened.count, 5000, turn(2, 0)[0].body)])


@pytest.mark.parametrize(("line", "row", "key"), [
    (1, b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1},"extra":{"a":1}}', "'extra'"),
    (1, b'{"type":"turn/start","seq":0,"seq0":0,"time":1,"data":{"turn":1}}', "'seq0'"),
    (1, b'{"z\\n":1,"type":"turn/start","seq":0,"time":1,"data":{"turn":1},"a":2}', "'a', "),
    (0, spawned().replace(b'"index":2', b'"index":2,"more":3').replace(b'"origin":"subagent",', b"")[:-1],
     "'spawn.more'"),
])
async def test_a_key_that_has_no_place_in_the_database_is_refused_by_name(
    store: SqliteStore, tmp_path: Path, line: int, row: bytes, key: str,
) -> None:
    lines = [encode_header(root_header()), *pack(turn(1, 0)).splitlines(keepends=True)]
    lines[line] = row + b"\n"
    tree = tree_of(tmp_path / "in", b"".join(lines))
    with pytest.raises(LogDamaged, match=f"0.jsonl:{line + 1}: a database has no place for {key}.*a JSONL store keeps"):
        await store.adopt(tree)
    assert await listed(store) == []


async def test_a_log_that_is_written_otherwise_is_the_same_to_the_event(store: SqliteStore, tmp_path: Path) -> None:
    log = encode_header(root_header()) + pack(turn(1, 0))
    rows = [json.dumps(dict(reversed(json.loads(line).items()))).encode() for line in log.splitlines()]
    await store.adopt(tree_of(tmp_path / "in", b"\r\n".join([*rows, b""])))
    assert await exported(store, ROOT) != b""
    assert list((await store.inspect(ROOT)).events) == turn(1, 0)


async def test_nothing_of_a_damaged_log_is_exported(store: SqliteStore, tmp_path: Path) -> None:
    events = deltas(9000)
    await stored(store, root_header(), events)
    for statement in ("UPDATE events SET data = data || char(10) WHERE seq = 8999",
                      "UPDATE events SET data = '{' WHERE seq = 8999", "DELETE FROM events WHERE seq = 8000"):
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
            connection.execute(statement)
        with pytest.raises(LogDamaged):
            await anext(aiter(store.export(ROOT)))


async def test_an_adoption_is_all_or_nothing(store: SqliteStore, tmp_path: Path) -> None:
    """The second log's id is taken by a session of another tree."""
    await stored(store, root_header(CHILD), turn(1, 0))
    logs = (encode_header(root_header()) + pack(turn(1, 0)), encode_header(child_header()) + pack(turn(1, 0)))
    with pytest.raises(StoreError, match="a session with the id 'child' is stored already"):
        await store.adopt(tree_of(tmp_path / "in", *logs))
    assert await listed(store) == [CHILD]
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT DISTINCT session_id FROM events").fetchall() == [(CHILD,)]
    assert [path.name for path in (tmp_path / "s.db-locks").iterdir()] == []


@pytest.mark.parametrize(("log", "says"), [
    (encode_header(root_header()) + b'{"type":"turn/start","data":{"turn":1}}\n', "cannot be continued"),
    (encode_header(root_header()) + pack([unknown(0)]), "unknown event type"),
    (encode_header(root_header()) + pack(turn(1, 1)), "seq 1 where 0 was expected"),
    (encode_header(root_header()) + b'{"type":"turn/start","seq":0,"time":9223372036854775808,"data":{"turn":1}}\n',
     "range of safe integers"),
    (encode_header(root_header(created=2**63)) + pack(turn(1, 0)), "beyond the safe integers"),
    (encode_header(root_header(seed=3)) + pack(turn(1, 0)), "inherited"),
    (b"", "no complete header"),
])
async def test_a_log_that_could_not_be_continued_is_not_adopted(
    store: SqliteStore, tmp_path: Path, log: bytes, says: str,
) -> None:
    with pytest.raises(LogDamaged, match=says):
        await store.adopt(tree_of(tmp_path / "in", log))
    assert await listed(store) == []


async def test_what_is_no_tree_is_not_adopted(store: SqliteStore, tmp_path: Path) -> None:
    root, child = encode_header(root_header()), encode_header(child_header())
    stranger = encode_header(child_header("x", "nobody"))
    for logs, says in ((( ), "no session log"), ((child,), "is a child of 'root'"), ((root, root), "a root itself"),
                       ((root, child, child), "twice"), ((root, stranger), "does not belong to the tree of 'root'")):
        with pytest.raises(StoreError, match=says):
            await store.adopt(tree_of(tmp_path / "in", *logs))
    missing = Tree([tmp_path / "nowhere.jsonl"], {})
    with pytest.raises(StoreError, match="No such file"):
        await store.adopt(missing)
    assert await listed(store) == []


# ---------------------------------------------------------------- side by side


async def test_long_reading_does_not_hold_up_a_list_or_a_write(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reading is stopped in its middle; everything else goes on, and it then sees the log as it was."""
    await stored(store, root_header(), turn(1, 0))
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    real = sqlite_places.find

    def stopped(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]  # handed through
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return found

    monkeypatch.setattr(sqlite_reading, "find", stopped)
    reading = asyncio.create_task(store.inspect(ROOT))
    await reached.wait()
    monkeypatch.undo()
    opened = await store.load(ROOT)
    opened.appender.append(Event(opened.count, 5000, turn(2, 0)[0].body))
    await opened.appender.sync()
    assert await listed(store) == [ROOT]
    go_on.set()
    assert list((await reading).events) == turn(1, 0)
    assert len((await store.inspect(ROOT)).events) == len(turn(1, 0)) + 1
    await opened.appender.aclose()


async def test_a_session_that_is_deleted_while_it_is_exported_is_told(store: SqliteStore, tmp_path: Path) -> None:
    await stored(store, root_header(), deltas(9000))
    other = SqliteStore(tmp_path / "s.db")
    pieces = store.export(ROOT)
    assert await anext(aiter(pieces)) == encode_header(root_header())
    await other.delete(ROOT)
    with pytest.raises(SessionNotFound):
        [piece async for piece in pieces]
    await other.aclose()


async def test_a_page_of_a_list_is_found_by_an_index(store: SqliteStore, tmp_path: Path) -> None:
    """Ten thousand sessions must not be looked through for fifty; only the last page of all is followed by what is
    astray.
    """
    await stored(store, root_header(), turn(1, 0))
    await stored(store, root_header(SessionId("other"), created=2), turn(1, 0))
    await store.list()
    asked: list[str] = []
    connection = open_for_reading(tmp_path / "s.db")
    assert connection is not None
    with closing(connection):
        connection.set_trace_callback(asked.append)
        for cwd in (None, "/w"):
            for after in (None, (5, SessionId("x"))):
                assert sqlite_listing.page(connection, tmp_path / "s.db", cwd, after, 1).cursor is not None
        sqlite_listing.tree(connection, tmp_path / "s.db", ROOT)
        plans = [[row[3].decode() for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")] for query in asked[:]]
    assert len(plans) >= 6
    for query, plan in zip(asked, plans, strict=False):
        assert not any("TEMP B-TREE" in step for step in plan), (query, plan)
        assert all("USING INDEX" in step or "USING PRIMARY KEY" in step for step in plan), (query, plan)


async def test_headers_round_trip(store: SqliteStore) -> None:
    headers = [
        SessionHeader(id=SessionId("a"), created_at=0),
        SessionHeader(id=SessionId("b"), created_at=2**53 - 1, cwd="/w", seed_length=0, agent_preset=""),
        SessionHeader(id=SessionId("c"), created_at=3, parent_session=SessionId("a"), spawn=SpawnKey(CallId(""), 0),
                      origin="subagent", delegation_depth=7),
    ]
    for header in headers:
        await stored(store, header, turn(1, 0), root="a" if header.parent_session is not UNSET else None)
        assert (await store.inspect(header.id)).header == header
        assert await exported(store, header.id) == encode_header(header) + pack(turn(1, 0))

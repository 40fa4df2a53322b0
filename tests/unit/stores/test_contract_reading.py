"""Reading, over every store: continuing a session, looking at one without a trace, and what is refused by name."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec import UNSET

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.codec import encode_header, pack
from acp_agent.session.events import AssistantChunk, Finish, Opaque, StepStart, ToolCall, TurnStart
from acp_agent.stores.base import Store
from tests.support.store_builders import (
    CHILD,
    ROOT,
    Bench,
    Script,
    child_header,
    continued,
    end_seed,
    export_tree,
    exported,
    fill,
    listed,
    root_header,
    same,
    stored,
    tree_of,
    turn,
    unknown,
)

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- continuing


async def test_a_continuation_has_all_that_matters_after_a_stream(bench: Bench) -> None:
    events = [*turn(1, 0, tool=True, title="a"), *turn(2, 30)]
    first = turn(1, 0, tool=True, title="a")
    events = [*first, *turn(2, len(first))]
    await stored(bench.open(), root_header(), events)
    opened = await bench.open().load(ROOT)
    assert (opened.header, opened.root, opened.torn) == (root_header(), ROOT, False)
    assert (opened.count, opened.time) == (len(events), events[-1].time)
    kept = [event for event in events
            if not isinstance(event.body, AssistantChunk) or isinstance(event.body.chunk, Finish)]
    assert [event.seq for event in opened.settled] == [event.seq for event in kept]
    assert [event.body for event in opened.settled] == [event.body for event in kept]
    assert [event.surface_op for event in opened.settled] == [event.surface_op for event in kept]
    assert all(event.source_event_seqs is UNSET for event in opened.settled)


async def test_a_continuation_of_a_log_that_ends_inside_a_stream_counts_the_stream(bench: Bench) -> None:
    events = turn(1, 0)[:9]
    assert isinstance(events[-1].body, AssistantChunk)
    await stored(bench.open(), root_header(), events)
    opened = await bench.open().load(ROOT)
    assert (opened.count, opened.time) == (9, events[-1].time)
    assert opened.settled[-1].seq < 8


async def test_an_interrupted_turn_is_kept_as_it_is(bench: Bench) -> None:
    """Closing it is for who continues it (session/repair.py); a store drops and invents nothing."""
    script = Script()
    script.add(TurnStart(1), StepStart(1, 1), ToolCall(1, 1, "c", "bash", "{}"))  # type: ignore[arg-type]  # an id
    await stored(bench.open(), root_header(), script.events)
    opened = await bench.open().load(ROOT)
    assert list(opened.settled) == script.events
    await opened.appender.aclose()
    assert same(await bench.open().inspect(ROOT), root_header(), script.events)


async def test_a_child_is_continued_under_its_root(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    await stored(store, child_header(), turn(1, 0), ROOT)
    await root.aclose()
    store = bench.open()
    opened = await store.load(CHILD)
    assert (opened.root, opened.header, opened.count) == (ROOT, child_header(), len(turn(1, 0)))
    opened.appender.append(end_seed(opened.count))
    await opened.appender.aclose()
    assert (await bench.open().inspect(CHILD)).events[-1] == end_seed(opened.count)


async def test_a_session_that_is_open_here_is_not_loaded_again(bench: Bench) -> None:
    store = bench.open()
    first = store.create(root_header(), ROOT)
    fill(first, turn(1, 0))
    await first.write()
    with pytest.raises(StoreError, match="open"):
        await store.load(ROOT)
    await first.aclose()
    second = await store.load(ROOT)
    with pytest.raises(StoreError, match="open"):
        await store.load(ROOT)
    second.appender.append(end_seed(second.count))
    await second.appender.aclose()
    assert (await bench.open().inspect(ROOT)).events[-1] == end_seed(second.count)


# ---------------------------------------------------------------- exactly the events from a seq on


async def test_read_from_returns_exactly_the_suffix(bench: Bench) -> None:
    first = turn(1, 0, tool=True)
    events = [*first, *turn(2, len(first), text="x" * 12)]
    await stored(bench.open(), root_header(), events)
    store = bench.open()
    for seq in range(len(events) + 3):
        assert list(await store.read_from(ROOT, seq)) == events[seq:], seq
    assert list(await store.read_from(ROOT, 10**15)) == []


async def test_a_long_log_is_exported_in_pieces_that_do_not_show(bench: Bench) -> None:
    """Rows are packed as if it were read at once, wherever a piece ends."""
    events = turn(1, 0, text="word " * 2_000)
    events += turn(2, len(events), text="word " * 2_000)
    await stored(bench.open(), root_header(), events)
    assert await exported(bench.open(), ROOT) == encode_header(root_header()) + pack(events)


# ---------------------------------------------------------------- looking leaves no trace


async def test_an_id_never_gives_another_sessions_log(bench: Bench) -> None:
    """Whatever this store knew of the tree that another process has deleted and made again since."""
    async def a_family(child: str) -> None:
        root = writer.create(root_header(), ROOT)
        fill(root, turn(1, 0))
        await root.write()
        await stored(writer, child_header(child), turn(1, 0), ROOT)
        await root.aclose()

    writer, reader = bench.open(), bench.open()
    before, after = SessionId("before"), SessionId("after")
    await a_family(before)
    assert (await reader.inspect(before)).header == child_header(before)
    await writer.delete(ROOT)
    await a_family(after)
    for deed in (reader.inspect, reader.load, reader.tree, reader.delete):
        with pytest.raises(SessionNotFound):
            await deed(before)
    with pytest.raises(SessionNotFound):
        await exported(reader, before)
    assert not reader.exists(before)
    assert (await reader.inspect(after)).header == child_header(after)


async def look_at_everything(store: Store, directory: Path) -> None:
    for session in (ROOT, CHILD):
        await store.inspect(session)
        await store.read_from(session, 3)
        await store.tree(session)
        await store.blobs(session)
        await exported(store, session)
        store.exists(session)
    await listed(store)
    await listed(store, cwd="/w", limit=1)
    await export_tree(store, ROOT, directory)


async def test_looking_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0)[:-1])
    await store.put_blob(ROOT, b"picture")
    await root.write()
    await stored(store, child_header(), turn(1, 0)[:9], ROOT)
    during = bench.snapshot()
    await look_at_everything(bench.open(), tmp_path / "during")
    assert bench.snapshot() == during
    await root.aclose()
    after = bench.snapshot()
    await look_at_everything(bench.open(), tmp_path / "after")
    assert bench.snapshot() == after


async def test_looking_at_a_store_that_is_not_there_yet_does_not_make_it(bench: Bench) -> None:
    store = bench.open()
    assert await listed(store) == []
    assert not store.exists(ROOT)
    if bench.kind == "jsonl":
        assert list(bench.place.iterdir()) == []


# ---------------------------------------------------------------- torn tails


def tear(bench: Bench, size: int) -> None:
    """Cut the last `size` bytes off the only log: what a write leaves that was cut by a power loss."""
    (path,) = bench.logs()
    path.write_bytes(path.read_bytes()[:-size])


@pytest.mark.parametrize("bench", ["jsonl"], indirect=True)
async def test_a_torn_last_record_is_cut_off_by_load_and_by_nothing_else(bench: Bench) -> None:
    events = turn(1, 0)
    await stored(bench.open(), root_header(), events)
    tear(bench, 5)
    torn = bench.snapshot()
    store = bench.open()
    assert list((await store.inspect(ROOT)).events) == events[:-1]
    assert list(await store.read_from(ROOT, len(events) - 2)) == events[-2:-1]
    assert (await exported(store, ROOT)).count(b"\n") == (torn[bench.logs()[0]]).count(b"\n")
    assert await listed(store) == [ROOT]
    assert bench.snapshot() == torn
    opened = await store.load(ROOT)
    assert (opened.torn, opened.count) == (True, len(events) - 1)
    opened.appender.append(events[-1])
    await opened.appender.aclose()
    assert list((await bench.open().inspect(ROOT)).events) == events
    again = await bench.open().load(ROOT)
    assert not again.torn


# ---------------------------------------------------------------- refused


async def test_an_unknown_event_type_is_refused_by_type_and_seq_when_it_is_loaded(bench: Bench) -> None:
    events = [*turn(1, 0), unknown(len(turn(1, 0)))]
    await stored(bench.open(), root_header(), events)
    before = bench.snapshot()
    with pytest.raises(LogDamaged, match=rf"'novelty/appeared'.*{len(events) - 1}"):
        await bench.open().load(ROOT)
    assert bench.snapshot() == before


async def test_a_refused_load_leaves_the_session_free(bench: Bench) -> None:
    """Nobody holds it after that: it can be deleted, here and elsewhere."""
    await stored(bench.open(), root_header(), [*turn(1, 0), unknown(len(turn(1, 0)))])
    store = bench.open()
    for _ in range(2):
        with pytest.raises(LogDamaged):
            await store.load(ROOT)
    await bench.open().delete(ROOT)


async def test_an_unknown_event_type_is_loaded_when_it_is_ignorable(bench: Bench) -> None:
    strange = unknown(len(turn(1, 0)), ignorable=True)
    await stored(bench.open(), root_header(), [*turn(1, 0), strange])
    opened = await bench.open().load(ROOT)
    assert opened.settled[-1] == strange
    assert isinstance(opened.settled[-1].body, Opaque)


@pytest.mark.parametrize(("version", "advice"), [
    (b"1", "upgrade acp-replay"), (b"99", "upgrade acp-replay"), (b"-1", "no way to upgrade"),
    (b'"0"', "not supported"), (b"true", "not supported"), (b"null", "not supported")])
async def test_another_format_version_is_refused_with_its_direction(
    bench: Bench, tmp_path: Path, version: bytes, advice: str,
) -> None:
    await stored(bench.open(), root_header(), turn(1, 0))
    text = await exported(bench.open(), ROOT)
    store = bench.open()
    await store.delete(ROOT)
    other = text.replace(b'"version":0', b'"version":' + version, 1)
    assert other != text
    with pytest.raises(LogDamaged, match=advice):
        await store.adopt(tree_of(tmp_path / "other", other))
    assert await listed(store) == []
    assert not store.exists(ROOT)


async def test_a_damaged_session_is_refused_by_name_and_no_other_is(bench: Bench) -> None:
    if bench.kind == "memory":
        pytest.skip("memory is never damaged")
    store = bench.open()
    for name in ("good", "bad"):
        await stored(store, root_header(name), turn(1, 0))
    await store.aclose()
    damage(bench, "bad")
    before = bench.snapshot()
    store = bench.open()
    bad = SessionId("bad")
    for deed in (store.inspect, store.load):
        with pytest.raises(LogDamaged) as caught:
            await deed(bad)
        assert caught.value.file
        assert "bad" in str(caught.value)
    assert bench.snapshot() == before
    assert "good" in [one.id for one in (await store.list()).sessions]
    await continued(store, "good", [end_seed(len(turn(1, 0)))])


def damage(bench: Bench, session: str) -> None:
    """Make an event in the middle of a stored session unreadable."""
    if bench.kind == "jsonl":
        (path,) = (path for path in bench.logs() if path.parent.name == session)
        lines = path.read_bytes().split(b"\n")
        lines[3] = b'{"type": garbage'
        path.write_bytes(b"\n".join(lines))
        return
    with sqlite3.connect(bench.file) as connection:
        done = connection.execute("UPDATE events SET data = '{\"turn\": garbage' WHERE session_id = ? AND seq = 2",
                                  (session,))
        assert done.rowcount == 1
    connection.close()

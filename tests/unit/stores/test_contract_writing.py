"""Writing, over every store: what is appended is what is stored, in order, once, under an id of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from acp_agent.errors import SessionNotFound, StoreError
from acp_agent.ids import MessageId, SessionId
from acp_agent.session.events import (
    AssistantChunk,
    Event,
    ReplayBound,
    Source,
    TextBlock,
    TextDelta,
    TurnStart,
    UserMessage,
)
from acp_agent.stores.base import Store
from tests.support.store_builders import (
    CHILD,
    KINDS,
    ROOT,
    Bench,
    Script,
    child_header,
    continued,
    end_seed,
    exported,
    fill,
    listed,
    root_header,
    same,
    stored,
    title,
    turn,
    unknown,
)

pytestmark = pytest.mark.anyio


def everything() -> list[Event]:
    """Events of many types, with what is hard to keep: separators, NUL, huge integers, opaque data, ours."""
    script = Script(0)
    prompt = UserMessage((TextBlock("é\u2028\x00\U0001f600\r\n\ttext"),), Source("user"), "user", MessageId("m"))
    script.add(prompt, surface="append")
    script.add(ReplayBound("lane", 2**53 - 1))
    first, second = turn(1, 2, tool=True, title="Töpfe"), turn(2, 0)
    later = turn(2, 2 + len(first))
    assert len(second) == len(later)
    end = 2 + len(first) + len(later)
    return [*script.events, *first, *later, unknown(end, ignorable=True), title(end + 1, "")]


async def refused_at_its_first_write(store: Store, session: str) -> None:
    """The id is taken: so says the store when the first event is written, and when it is closed."""
    appender = store.create(root_header(session), SessionId(session))
    appender.append(Event(0, 5, TurnStart(9)))
    with pytest.raises(StoreError):
        await appender.write()
    with pytest.raises(StoreError):
        await appender.aclose()
    await appender.aclose()


# ---------------------------------------------------------------- round trips


async def test_what_was_appended_is_read_back_equal_struct_for_struct(bench: Bench) -> None:
    await stored(bench.open(), root_header(), everything())
    assert same(await bench.open().inspect(ROOT), root_header(), everything())


async def test_every_header_key_round_trips(bench: Bench) -> None:
    store = bench.open()
    root = root_header(created=2**53 - 1, cwd=UNSET)
    await stored(store, root, turn(1, 0))
    child = child_header(call="c\u2028", index=7, depth=3, created=0)
    opened = await store.load(ROOT)
    await stored(store, child, turn(1, 0), ROOT)
    await opened.appender.aclose()
    assert (await bench.open().inspect(ROOT)).header == root
    assert (await bench.open().inspect(CHILD)).header == child


async def test_all_stores_export_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for kind in KINDS:
        bench = Bench(kind, tmp_path / kind)
        store = bench.open()
        await stored(store, root_header(), everything())
        await continued(store, ROOT, [end_seed(len(everything())), *turn(3, len(everything()) + 1, text="x" * 40)])
        texts.append(await exported(bench.open(), ROOT))
        await bench.aclose()
    assert texts[0].count(b"\n") > 20
    assert texts[1:] == texts[:1] * 2


async def test_when_a_stream_is_written_does_not_show_in_the_log(bench: Bench) -> None:
    """Runs of deltas are packed canonically, wherever writes and syncs cut them (a write-behind window is free)."""
    events = turn(1, 0, text="abcdefghij", tool=True)
    store = bench.open()
    await stored(store, root_header("at-once"), events)
    often = store.create(root_header("often"), SessionId("often"))
    for at, event in enumerate(events):
        often.append(event)
        await (often.sync() if at % 3 == 0 else often.write())
    await often.aclose()
    at_once, piecemeal = await exported(store, "at-once"), await exported(store, "often")
    assert piecemeal.split(b"\n", 1)[1] == at_once.split(b"\n", 1)[1]


async def test_the_boundaries_and_times_of_packed_deltas_are_kept(bench: Bench) -> None:
    times = [5000, 4000, 4000, 2**52, 0]
    events = [Event(at, time, AssistantChunk(1, 1, TextDelta(0, text)))
              for at, (time, text) in enumerate(zip(times, ["", "a", "", "b\n", "c"], strict=True))]
    await stored(bench.open(), root_header(), events)
    assert list((await bench.open().inspect(ROOT)).events) == events


# ---------------------------------------------------------------- the next event


@pytest.mark.parametrize("seq", [1, 7])
async def test_a_wrong_first_seq_is_refused(bench: Bench, seq: int) -> None:
    appender = bench.open().create(root_header(), ROOT)
    with pytest.raises(StoreError, match=rf"event {seq}\b.*\b0\b"):
        appender.append(Event(seq, 1, TurnStart(1)))
    appender.append(Event(0, 1, TurnStart(1)))
    await appender.aclose()
    assert len((await bench.open().inspect(ROOT)).events) == 1


@pytest.mark.parametrize("seq", [0, 1, 3, 9])
async def test_a_gap_or_a_repetition_in_a_batch_is_refused_and_the_batch_goes_on(bench: Bench, seq: int) -> None:
    appender = bench.open().create(root_header(), ROOT)
    events = turn(1, 0)
    fill(appender, events[:2])
    with pytest.raises(StoreError, match=rf"event {seq}\b.*\b2\b"):
        appender.append(Event(seq, 1, TurnStart(2)))
    fill(appender, events[2:])
    await appender.aclose()
    assert list((await bench.open().inspect(ROOT)).events) == events


async def test_an_empty_batch_changes_nothing(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    fill(appender, turn(1, 0))
    await appender.sync()
    before = bench.snapshot()
    await appender.write()
    await appender.sync()
    assert bench.snapshot() == before
    await appender.aclose()
    assert bench.snapshot() == before


async def test_appending_takes_the_event_as_it_is_at_that_moment(bench: Bench) -> None:
    """What an event refers to and its maker changes later is none of the log's business."""
    cited = [0]
    appender = bench.open().create(root_header(), ROOT)
    appender.append(Event(0, 1, TurnStart(1)))
    message = UserMessage((TextBlock("x"),), Source("user"), "user", MessageId("m"))
    appender.append(Event(1, 1, message, list(cited), "append"))
    await appender.write()
    cited.append(99)
    await appender.aclose()
    assert (await bench.open().inspect(ROOT)).events[1].source_event_seqs == [0]


async def test_the_vocabulary_is_not_checked_when_appending(bench: Bench) -> None:
    """A refusal there would stop a running session."""
    appender = bench.open().create(root_header(), ROOT)
    fill(appender, [*turn(1, 0), unknown(len(turn(1, 0)))])
    await appender.aclose()
    assert "novelty/appeared" in str(bench.snapshot())


# ---------------------------------------------------------------- existing, and not


async def test_a_session_without_events_is_neither_listed_nor_found(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    await appender.write()
    await appender.sync()
    assert await listed(store) == []
    with pytest.raises(SessionNotFound):
        await store.inspect(ROOT)
    with pytest.raises(SessionNotFound):
        await bench.open().load(ROOT)
    await appender.aclose()
    other = bench.open()
    assert await listed(other) == []
    for reading in (other.inspect(ROOT), other.load(ROOT), other.tree(ROOT), other.read_from(ROOT, 0)):
        with pytest.raises(SessionNotFound):
            await reading
    with pytest.raises(SessionNotFound):
        await exported(other, ROOT)


async def test_a_new_session_exists_here_from_its_creation_and_elsewhere_from_its_first_write(bench: Bench) -> None:
    store, other = bench.open(), bench.open()
    assert not store.exists(ROOT)
    appender = store.create(root_header(), ROOT)
    assert store.exists(ROOT)
    assert not other.exists(ROOT)
    appender.append(Event(0, 1, TurnStart(1)))
    await appender.write()
    assert other.exists(ROOT)
    assert not other.exists(SessionId("other"))


async def test_children_exist_too(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    await stored(store, child_header(), turn(1, 0), ROOT)
    assert store.exists(CHILD)
    assert bench.open().exists(CHILD)


async def test_the_id_of_an_abandoned_session_can_be_used_again(bench: Bench) -> None:
    store = bench.open()
    abandoned = store.create(root_header(created=2), ROOT)
    await abandoned.write()
    await abandoned.aclose()
    assert not store.exists(ROOT)
    await stored(store, root_header(created=3), turn(1, 0))
    assert same(await bench.open().inspect(ROOT), root_header(created=3), turn(1, 0))


@pytest.mark.parametrize("written", [True, False], ids=["written", "unwritten"])
async def test_an_id_that_is_open_here_is_refused(bench: Bench, written: bool) -> None:
    store = bench.open()
    first = store.create(root_header(), ROOT)
    fill(first, turn(1, 0))
    if written:
        await first.write()
    await refused_at_its_first_write(store, ROOT)
    fill(first, turn(2, len(turn(1, 0))))
    await first.aclose()
    assert list((await bench.open().inspect(ROOT)).events) == [*turn(1, 0), *turn(2, len(turn(1, 0)))]


async def test_an_id_that_is_stored_is_refused(bench: Bench) -> None:
    await stored(bench.open(), root_header(), turn(1, 0))
    before = bench.snapshot()
    store = bench.open()
    await refused_at_its_first_write(store, ROOT)
    assert bench.snapshot() == before
    await continued(store, ROOT, [end_seed(len(turn(1, 0)))])


async def test_an_id_that_is_open_elsewhere_is_refused(bench: Bench) -> None:
    first = bench.open().create(root_header(), ROOT)
    fill(first, turn(1, 0))
    await first.write()
    before = bench.snapshot()
    await refused_at_its_first_write(bench.open(), ROOT)
    assert bench.snapshot() == before


async def test_the_id_of_a_stored_session_is_taken_in_every_working_directory(bench: Bench) -> None:
    await stored(bench.open(), root_header(cwd="/elsewhere"), turn(1, 0))
    before = bench.snapshot()
    await refused_at_its_first_write(bench.open(), ROOT)
    assert bench.snapshot() == before


async def test_a_childs_id_is_taken_for_roots_too(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    await stored(store, child_header(), turn(1, 0), ROOT)
    await root.aclose()
    before = bench.snapshot()
    await refused_at_its_first_write(bench.open(), CHILD)
    assert bench.snapshot() == before


@pytest.mark.parametrize("session", [
    "..", ".", "../../outside", "/etc/x", "a/b", "ü", "\U0001f600", "a b", "~", "%", "_", "*",
    "'; DROP TABLE sessions;--", '"', "session.jsonl", "-", "CON", "a\nb", "\x00"])
async def test_any_id_is_data(bench: Bench, session: str) -> None:
    name = SessionId(session)
    store = bench.open()
    await stored(store, root_header("plain"), turn(1, 0))
    await stored(store, root_header(session), turn(1, 0))
    assert same(await bench.open().inspect(name), root_header(session), turn(1, 0))
    assert sorted(await listed(store)) == sorted([session, "plain"])
    assert [one.id for one in await store.tree(name)] == [session]
    await store.delete(name)
    assert await listed(bench.open()) == ["plain"]
    assert not store.exists(name)
    assert {path.name for path in bench.place.parent.iterdir()} <= {"store"}


@pytest.mark.parametrize("session", [
    "", "x" * 300, "x" * 5000, "ü" * 200, "a/../plain", "plain/", "PLAIN", "plai_", "p%"])
async def test_an_id_that_was_never_stored_is_not_found(bench: Bench, session: str) -> None:
    name, store = SessionId(session), bench.open()
    await stored(store, root_header("plain"), turn(1, 0))
    for deed in (store.inspect, store.load, store.tree, store.delete):
        with pytest.raises(SessionNotFound):
            await deed(name)
    assert not store.exists(name)


# ---------------------------------------------------------------- while it is open, and after


async def test_what_is_written_can_be_read_while_the_writer_goes_on(bench: Bench) -> None:
    store, other = bench.open(), bench.open()
    appender = store.create(root_header(), ROOT)
    first = turn(1, 0)
    second = turn(2, len(first))
    fill(appender, first)
    await appender.write()
    for reader in (store, other):
        assert list((await reader.inspect(ROOT)).events) == first
    fill(appender, second)
    await appender.sync()
    for reader in (store, other):
        assert list((await reader.inspect(ROOT)).events) == first + second
        assert list(await reader.read_from(ROOT, len(first))) == second
        assert (await exported(reader, ROOT)).count(b"turn/end") == 2


async def test_a_stored_session_goes_on_after_its_last_event(bench: Bench) -> None:
    await stored(bench.open(), root_header(), turn(1, 0))
    store = bench.open()
    opened = await store.load(ROOT)
    with pytest.raises(StoreError, match="event 0"):
        opened.appender.append(Event(0, 1, TurnStart(1)))
    more = [end_seed(opened.count), *turn(2, opened.count + 1)]
    fill(opened.appender, more)
    await opened.appender.aclose()
    assert same(await bench.open().inspect(ROOT), root_header(), [*turn(1, 0), *more])


async def test_loading_and_closing_stores_nothing_again(bench: Bench) -> None:
    await stored(bench.open(), root_header(), turn(1, 0))
    before = bench.snapshot()
    store = bench.open()
    for _ in range(2):
        opened = await store.load(ROOT)
        await opened.appender.sync()
        await opened.appender.aclose()
    assert bench.snapshot() == before


async def test_closing_an_appender_stores_what_was_not_written(bench: Bench) -> None:
    appender = bench.open().create(root_header(), ROOT)
    fill(appender, turn(1, 0)[:-4])
    await appender.aclose()
    assert list((await bench.open().inspect(ROOT)).events) == turn(1, 0)[:-4]


async def test_a_child_may_be_stored_before_its_root(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    child = store.create(child_header(), ROOT)
    fill(appender, turn(1, 0))
    fill(child, turn(1, 0)[:3])
    await child.write()
    await appender.write()
    await store.aclose()
    assert [one.id for one in await bench.open().tree(ROOT)] == [ROOT, CHILD]


async def test_closing_twice_is_fine_and_closing_the_store_closes_its_logs(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    child = store.create(child_header(), ROOT)
    fill(appender, turn(1, 0))
    fill(child, turn(1, 0)[:3])
    await store.aclose()
    await store.aclose()
    await appender.aclose()
    await child.aclose()
    again = bench.open()
    assert len((await again.inspect(ROOT)).events) == len(turn(1, 0))
    assert len((await again.inspect(CHILD)).events) == 3
    await (await again.load(ROOT)).appender.aclose()


async def test_closing_a_store_that_did_nothing_is_fine(bench: Bench) -> None:
    store = bench.open()
    await store.aclose()
    await store.aclose()


async def test_an_unknown_session_is_not_found(bench: Bench) -> None:
    store = bench.open()
    nobody = SessionId("nobody")
    for deed in (store.inspect, store.load, store.tree, store.delete, store.repair):
        with pytest.raises(SessionNotFound):
            await deed(nobody)
    with pytest.raises(SessionNotFound):
        await store.read_from(nobody, 0)
    with pytest.raises(SessionNotFound):
        await exported(store, nobody)

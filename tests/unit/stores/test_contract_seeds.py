"""Seeds, over every store: how many events were inherited is what the forker said, wherever a session travels."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.codec import encode_header, pack
from acp_agent.session.events import SessionHeader
from acp_agent.stores.base import Store
from tests.support.store_builders import (
    CHILD,
    KINDS,
    ROOT,
    Bench,
    child_header,
    continued,
    end_seed,
    export_tree,
    exported,
    fill,
    root_header,
    same,
    stored,
    tree_of,
    turn,
)

pytestmark = pytest.mark.anyio

FIRST = turn(1, 0, title="seed", tool=True)
CUT = len(FIRST)
SECOND = turn(2, CUT)
FORK, FORK2 = SessionId("fork"), SessionId("fork-of-fork")


async def forked(store: Store, name: SessionId, source: SessionId, cut: int) -> SessionHeader:
    """A root session forked by a client, with a turn of its own, closed."""
    header = root_header(name, created=10 + cut, seed=cut)
    appender = store.create(header, name)
    seed = await store.fork(name, source, cut)
    assert len(seed) == cut
    fill(appender, [end_seed(cut), *turn(2, cut + 1, text="own words")])
    await appender.aclose()
    return header


async def forked_twice(store: Store) -> tuple[SessionHeader, SessionHeader]:
    """A root, a fork of its first turn, and a fork of that fork's first two turns."""
    await stored(store, root_header(), [*FIRST, *SECOND])
    first = await forked(store, FORK, ROOT, CUT)
    count = len((await store.inspect(FORK)).events)
    return first, await forked(store, FORK2, FORK, count)


# ---------------------------------------------------------------- forks


async def test_a_fork_begins_with_the_sources_first_events_and_leaves_it_alone(bench: Bench) -> None:
    store = bench.open()
    parent = store.create(root_header(), ROOT)
    fill(parent, [*FIRST, *SECOND])
    await parent.write()
    before = await exported(store, ROOT)
    child = store.create(child_header(seed=CUT), ROOT)
    assert list(await store.fork(CHILD, ROOT, CUT)) == FIRST
    child.append(end_seed(CUT))
    await child.aclose()
    await parent.aclose()
    assert same(await bench.open().inspect(CHILD), child_header(seed=CUT), [*FIRST, end_seed(CUT)])
    assert await exported(bench.open(), ROOT) == before
    own = (await exported(bench.open(), CHILD)).split(b"\n", 1)[1]
    assert before.split(b"\n", 1)[1].startswith(own.rsplit(b"\n", 2)[0])


async def test_a_fork_has_what_its_open_source_has_not_written_yet(bench: Bench) -> None:
    store = bench.open()
    parent = store.create(root_header(), ROOT)
    fill(parent, FIRST)
    store.create(child_header(seed=CUT), ROOT)
    assert list(await store.fork(CHILD, ROOT, CUT)) == FIRST


@pytest.mark.parametrize("where", ["open here", "open elsewhere", "stored"])
async def test_a_session_is_forked_wherever_it_is_open(bench: Bench, where: str) -> None:
    store, other = bench.open(), bench.open()
    await stored(store, root_header(), [*FIRST, *SECOND])
    if where != "stored":
        await (store if where == "open here" else other).load(ROOT)
    before = await exported(store, ROOT)
    header = await forked(store, FORK, ROOT, CUT)
    log = await bench.open().inspect(FORK)
    assert same(log, header, [*FIRST, end_seed(CUT), *turn(2, CUT + 1, text="own words")])
    assert await exported(bench.open(), ROOT) == before


async def test_a_fork_stores_its_seed_once(bench: Bench) -> None:
    """Also when nothing of its own follows, and when it is loaded again."""
    store = bench.open()
    await stored(store, root_header(), FIRST)
    fork = store.create(root_header(FORK, created=5, seed=CUT), FORK)
    await store.fork(FORK, ROOT, CUT)
    fork.append(end_seed(CUT))
    await fork.write()
    await fork.sync()
    await fork.aclose()
    opened = await store.load(FORK)
    assert opened.count == CUT + 1
    await opened.appender.aclose()
    assert len((await bench.open().inspect(FORK)).events) == CUT + 1


async def test_a_fork_is_not_stored_before_it_is_written(bench: Bench) -> None:
    store = bench.open()
    await stored(store, root_header(), FIRST)
    before = bench.snapshot()
    fork = store.create(root_header(FORK, created=5, seed=CUT), FORK)
    await store.fork(FORK, ROOT, CUT)
    assert bench.snapshot() == before
    fork.append(end_seed(CUT))
    await fork.aclose()
    assert len((await bench.open().inspect(FORK)).events) == CUT + 1


async def test_more_events_than_there_are_cannot_be_forked(bench: Bench) -> None:
    store = bench.open()
    await stored(store, root_header(), FIRST)
    store.create(root_header(FORK), FORK)
    with pytest.raises(StoreError, match=rf"{CUT + 1}\b.*{CUT}\b|{CUT}\b.*{CUT + 1}\b"):
        await store.fork(FORK, ROOT, CUT + 1)


async def test_what_is_not_stored_cannot_be_forked(bench: Bench) -> None:
    store = bench.open()
    store.create(root_header(FORK), FORK)
    with pytest.raises(SessionNotFound):
        await store.fork(FORK, ROOT, 1)
    store.create(root_header(ROOT), ROOT)
    with pytest.raises(SessionNotFound):
        await store.fork(FORK, ROOT, 1)


# ---------------------------------------------------------------- the boundary travels


async def test_the_boundary_round_trips_through_create_append_and_load(bench: Bench) -> None:
    store = bench.open()
    first, second = await forked_twice(store)
    for reader in (store, bench.open()):
        for name, header in ((FORK, first), (FORK2, second)):
            assert (await reader.inspect(name)).header == header
            opened = await reader.load(name)
            assert opened.header == header
            await opened.appender.aclose()
    assert (first.seed_length, second.seed_length) == (CUT, CUT + 1 + len(turn(2, 0, text="own words")))


async def test_the_boundary_is_kept_on_resume_although_the_whole_log_is_the_seed_then(bench: Bench) -> None:
    store = bench.open()
    first, _ = await forked_twice(store)
    for number in (3, 4):
        count = len((await store.inspect(FORK)).events)
        await continued(store, FORK, [end_seed(count), *turn(number, count + 1)])
        assert (await bench.open().inspect(FORK)).header == first
        assert (await bench.open().load(FORK)).header == first
        await bench.aclose()
        store = bench.open()


@pytest.mark.parametrize("source", KINDS)
async def test_the_boundary_travels_between_stores(bench: Bench, tmp_path: Path, source: str) -> None:
    origin = Bench(source, tmp_path / "origin")  # type: ignore[arg-type]  # one of KINDS
    headers = await forked_twice(origin.open())
    for header in headers:
        tree = await export_tree(origin.open(), header.id, tmp_path / header.id)
        assert await bench.open().adopt(tree) == header.id
        assert (await bench.open().inspect(header.id)).header == header
        assert await exported(bench.open(), header.id) == await exported(origin.open(), header.id)
        assert [one.seeded for one in await bench.open().tree(header.id)] == [True]
    await origin.aclose()


@pytest.mark.parametrize("said", [UNSET, CUT])
async def test_the_boundary_is_what_the_forker_said_and_never_a_count(bench: Bench, said: int | UnsetType) -> None:
    """The copied part, the whole log and the boundary are three different numbers here, or there is no boundary."""
    store = bench.open()
    count = CUT + len(SECOND)
    await stored(store, root_header(), [*FIRST, end_seed(CUT), *turn(2, CUT + 1)])
    header = root_header(FORK, created=5, seed=said)
    fork = store.create(header, FORK)
    seed = await store.fork(FORK, ROOT, count + 1)
    assert len(seed) == count + 1
    fork.append(end_seed(count + 1))
    await fork.aclose()
    for reader in (store, bench.open()):
        assert (await reader.inspect(FORK)).header == header
        assert (await reader.tree(FORK))[0].seeded == (said is not UNSET)
    opened = await store.load(FORK)
    assert opened.header.seed_length == said
    await opened.appender.aclose()


async def test_a_fork_in_the_first_turn_inherits_nothing(bench: Bench) -> None:
    """It behaves as a new session, whose header has no boundary."""
    store = bench.open()
    parent = store.create(root_header(), ROOT)
    fill(parent, FIRST[:5])
    await parent.write()
    child = store.create(child_header(), ROOT)
    assert list(await store.fork(CHILD, ROOT, 0)) == []
    fill(child, turn(1, 0))
    await child.aclose()
    assert same(await bench.open().inspect(CHILD), child_header(), turn(1, 0))
    assert b"seedLength" not in await exported(bench.open(), CHILD)


async def test_a_boundary_of_none_is_no_seed(bench: Bench) -> None:
    await stored(bench.open(), root_header(seed=0), turn(1, 0))
    store = bench.open()
    assert [one.seeded for one in (await store.list()).sessions] == [False]
    assert (await store.load(ROOT)).header == root_header(seed=0)


async def test_the_boundary_counts_events_not_rows(bench: Bench) -> None:
    """A boundary beyond the number of rows is a good one (format reference 1.10)."""
    store = bench.open()
    long = turn(1, 0, text="x" * 60)
    await stored(store, root_header(), long)
    fork = store.create(root_header(FORK, created=5, seed=len(long)), FORK)
    await store.fork(FORK, ROOT, len(long))
    fill(fork, [end_seed(len(long)), *turn(2, len(long) + 1)])
    await fork.aclose()
    assert (await exported(store, FORK)).count(b"\n") < len(long)
    assert (await bench.open().load(FORK)).header.seed_length == len(long)


# ---------------------------------------------------------------- boundaries that are none


@pytest.mark.parametrize("cut", [1, CUT - 1, CUT + 1, CUT + 2, CUT + 50])
async def test_a_boundary_that_is_none_is_refused_with_both_numbers(bench: Bench, tmp_path: Path, cut: int) -> None:
    """Larger than the log, or not between turn/end and session/end-seed: on load, inspect and adopt."""
    events = [*FIRST, end_seed(CUT), *turn(2, CUT + 1)]
    header = root_header(seed=cut)
    await stored(bench.open(), header, events)
    before = bench.snapshot()
    store = bench.open()
    numbers = rf"\b{cut}\b.*\b{len(events)}\b"
    with pytest.raises(LogDamaged, match=numbers):
        await store.load(ROOT)
    with pytest.raises(LogDamaged, match=numbers):
        await store.inspect(ROOT)
    assert bench.snapshot() == before
    await store.delete(ROOT)
    with pytest.raises(LogDamaged, match=numbers):
        await store.adopt(tree_of(tmp_path / "tree", encode_header(header) + pack(events)))
    assert not store.exists(ROOT)


async def test_a_log_that_ends_at_its_boundary_can_be_continued(bench: Bench) -> None:
    """Its process was killed before the session/end-seed was stored."""
    await stored(bench.open(), root_header(seed=CUT), FIRST)
    await continued(bench.open(), ROOT, [end_seed(CUT)])
    assert same(await bench.open().inspect(ROOT), root_header(seed=CUT), [*FIRST, end_seed(CUT)])

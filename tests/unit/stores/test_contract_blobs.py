"""Binary content, over every store: kept beside the log under its digest, shared by a tree, taken along by forks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from acp_agent.errors import BlobNotFound, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from tests.support.store_builders import (
    CHILD,
    KINDS,
    ROOT,
    Bench,
    child_header,
    end_seed,
    export_tree,
    fill,
    listed,
    root_header,
    stored,
    turn,
)

pytestmark = pytest.mark.anyio

FIRST = turn(1, 0)
FORK = SessionId("fork")
PICTURE = bytes(range(256)) * 300 + b"\n\x00"


def name_of(data: bytes) -> BlobId:
    return BlobId(hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("data", [b"", b"\x00", b"text", PICTURE], ids=["empty", "NUL", "text", "picture"])
async def test_content_is_kept_under_its_digest(bench: Bench, data: bytes) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    fill(appender, FIRST)
    await appender.write()
    assert await store.put_blob(ROOT, data) == name_of(data)
    assert await store.put_blob(ROOT, data) == name_of(data), "again"
    await appender.aclose()
    for reader in (store, bench.open()):
        assert await reader.blob(ROOT, name_of(data)) == data
        assert list(await reader.blobs(ROOT)) == [name_of(data)]


async def test_content_can_come_before_the_first_event(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    name = await store.put_blob(ROOT, b"picture")
    assert await store.blob(ROOT, name) == b"picture"
    assert await listed(store) == []
    fill(appender, FIRST)
    await appender.aclose()
    assert await bench.open().blob(ROOT, name) == b"picture"
    assert await listed(bench.open()) == [ROOT]


async def test_a_session_with_content_and_no_events_was_never_there(bench: Bench) -> None:
    store = bench.open()
    abandoned = store.create(root_header(), ROOT)
    await store.put_blob(ROOT, b"picture")
    await abandoned.aclose()
    for reader in (store, bench.open()):
        assert await listed(reader) == []
        assert not reader.exists(ROOT)
        with pytest.raises(SessionNotFound):
            await reader.load(ROOT)
    await stored(store, root_header(), FIRST)
    assert await listed(bench.open()) == [ROOT]


async def test_a_tree_shares_its_content(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, FIRST)
    await root.write()
    child = store.create(child_header(), ROOT)
    fill(child, FIRST)
    await child.write()
    of_root, of_child = await store.put_blob(ROOT, b"a"), await store.put_blob(CHILD, b"b")
    await child.aclose()
    await root.aclose()
    for reader in (store, bench.open()):
        for session in (ROOT, CHILD):
            assert await reader.blob(session, of_root) == b"a"
            assert await reader.blob(session, of_child) == b"b"
            assert list(await reader.blobs(session)) == sorted([of_root, of_child])


async def test_trees_do_not_share_content(bench: Bench) -> None:
    store = bench.open()
    for name in ("one", "two"):
        appender = store.create(root_header(name), SessionId(name))
        fill(appender, FIRST)
        await appender.write()
        await store.put_blob(SessionId(name), name.encode())
        await store.put_blob(SessionId(name), b"both")
        await appender.aclose()
    with pytest.raises(BlobNotFound):
        await store.blob(SessionId("one"), name_of(b"two"))
    await store.delete(SessionId("one"))
    assert list(await store.blobs(SessionId("two"))) == sorted([name_of(b"two"), name_of(b"both")])
    assert await store.blob(SessionId("two"), name_of(b"both")) == b"both"


@pytest.mark.parametrize("blob", [name_of(b"never"), "", "x", "../session.jsonl", "/etc/passwd", "*", "%", "\x00",
                                  name_of(b"picture").upper(), name_of(b"picture")[:-1], name_of(b"picture") + "\n"])
async def test_content_that_is_not_there_is_not_found(bench: Bench, blob: str) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    fill(appender, FIRST)
    await appender.write()
    await store.put_blob(ROOT, b"picture")
    with pytest.raises(BlobNotFound):
        await store.blob(ROOT, BlobId(blob))
    await appender.aclose()
    with pytest.raises(BlobNotFound):
        await bench.open().blob(ROOT, BlobId(blob))


async def test_content_is_not_put_into_a_session_that_is_not_open_here(bench: Bench) -> None:
    await stored(bench.open(), root_header(), FIRST)
    before = bench.snapshot()
    store = bench.open()
    for session in (ROOT, SessionId("nobody"), SessionId("../x")):
        with pytest.raises(StoreError):
            await store.put_blob(session, b"picture")
    assert bench.snapshot() == before


async def test_content_goes_with_a_fork(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, FIRST)
    await root.write()
    names = sorted([await store.put_blob(ROOT, b"a"), await store.put_blob(ROOT, PICTURE)])
    fork = store.create(root_header(FORK, created=5, seed=len(FIRST)), FORK)
    await store.fork(FORK, ROOT, len(FIRST))
    fork.append(end_seed(len(FIRST)))
    await fork.aclose()
    await root.aclose()
    await store.delete(ROOT)
    assert list(await bench.open().blobs(FORK)) == names
    assert await bench.open().blob(FORK, name_of(PICTURE)) == PICTURE


async def test_content_of_a_child_goes_with_its_fork_into_a_new_root(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, FIRST)
    await root.write()
    child = store.create(child_header(), ROOT)
    fill(child, FIRST)
    await child.write()
    await store.put_blob(ROOT, b"a")
    fork = store.create(root_header(FORK, created=5, seed=len(FIRST)), FORK)
    await store.fork(FORK, CHILD, len(FIRST))
    fork.append(end_seed(len(FIRST)))
    await fork.aclose()
    assert await bench.open().blob(FORK, name_of(b"a")) == b"a"


@pytest.mark.parametrize("source", KINDS)
async def test_content_travels_between_stores(bench: Bench, tmp_path: Path, source: str) -> None:
    origin = Bench(source, tmp_path / "origin")  # type: ignore[arg-type]  # one of KINDS
    store = origin.open()
    appender = store.create(root_header(), ROOT)
    fill(appender, FIRST)
    await appender.write()
    for data in (b"", PICTURE):
        await store.put_blob(ROOT, data)
    await appender.aclose()
    tree = await export_tree(store, ROOT, tmp_path / "tree")
    await bench.open().adopt(tree)
    for path in tree.blobs.values():
        path.unlink()
    assert await bench.open().blob(ROOT, name_of(PICTURE)) == PICTURE
    assert await bench.open().blob(ROOT, name_of(b"")) == b""
    await origin.aclose()


async def test_where_output_is_spilled_is_one_trees_own(bench: Bench) -> None:
    store = bench.open()
    for name in ("one", "two", "../three"):
        store.create(root_header(name), SessionId(name))
    places = {store.spill_directory(SessionId(name)) for name in ("one", "two", "../three")}
    assert len(places) == 3
    assert all(bench.place in place.parents and ".." not in place.parts for place in places)
    assert not any(place.exists() for place in places), "made by who uses it"


async def test_spilled_output_does_not_make_a_session(bench: Bench) -> None:
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    place = store.spill_directory(ROOT)
    place.mkdir(parents=True)
    (place / "output").write_text("long")
    await appender.aclose()
    assert await listed(bench.open()) == []
    await stored(bench.open(), root_header(), FIRST)
    assert await listed(bench.open()) == [ROOT]

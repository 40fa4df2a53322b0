"""Trees, over every store: a root and its descendants are read, deleted and taken in as one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import UNSET

from acp_agent.errors import LogDamaged, SessionHeld, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.codec import encode_header, pack
from acp_agent.session.events import Event, SpawnKey, TurnStart
from acp_agent.stores.base import SessionSummary, Store, Tree
from tests.support.memory_store import digest
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
    listed,
    root_header,
    stored,
    tree_of,
    turn,
    unknown,
)

pytestmark = pytest.mark.anyio

GRANDCHILD = SessionId("grandchild")


async def family(store: Store) -> None:
    """A root, its child, and the child's, with a picture."""
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0, title="family", tool=True))
    await store.put_blob(ROOT, b"picture")
    await root.write()
    child = store.create(child_header(), ROOT)
    fill(child, turn(1, 0))
    await stored(store, child_header(GRANDCHILD, CHILD, call="c2", depth=2, created=3), turn(1, 0), ROOT)
    await child.aclose()
    await root.aclose()


# ---------------------------------------------------------------- telling


async def test_a_tree_is_its_root_and_then_all_descendants_as_they_were_made(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    names = [f"child-{at}" for at in range(12)]
    children = [store.create(child_header(name, created=100 - at, index=at), ROOT) for at, name in enumerate(names)]
    for at, child in enumerate(reversed(children)):
        child.append(Event(0, at, TurnStart(1)))
        await child.aclose()
    await stored(store, child_header(GRANDCHILD, "child-3", depth=2, created=1), turn(1, 0), ROOT)
    await root.aclose()
    expected = [ROOT, *names, GRANDCHILD]
    for reader in (store, bench.open()):
        for session in (ROOT, "child-7", GRANDCHILD):
            assert [one.id for one in await reader.tree(SessionId(session))] == expected


async def test_the_order_goes_on_when_the_tree_is_opened_again(bench: Bench) -> None:
    await family(bench.open())
    store = bench.open()
    opened = await store.load(ROOT)
    await stored(store, child_header("later", created=0), turn(1, 0), ROOT)
    await opened.appender.aclose()
    assert [one.id for one in await bench.open().tree(ROOT)] == [ROOT, CHILD, GRANDCHILD, "later"]


async def test_a_tree_tells_who_made_whom(bench: Bench) -> None:
    store = bench.open()
    await family(store)
    root, child, grandchild = await store.tree(ROOT)
    last = turn(1, 0)[-1].time
    assert root == SessionSummary(ROOT, 1, turn(1, 0, title="family", tool=True)[-1].time, "/w", "family")
    assert child == SessionSummary(CHILD, 2, last, "/w", None, False, ROOT, SpawnKey("c", 0), 1)  # type: ignore[arg-type]  # an id
    assert grandchild == SessionSummary(GRANDCHILD, 3, last, "/w", None, False, CHILD, SpawnKey("c2", 0), 2)  # type: ignore[arg-type]  # an id


async def test_a_child_that_was_never_written_is_in_no_tree(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    empty = store.create(child_header("empty"), ROOT)
    await stored(store, child_header(), turn(1, 0), ROOT)
    await empty.aclose()
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD]


@pytest.mark.parametrize("bench", ["jsonl", "sqlite"], indirect=True)
async def test_a_damaged_descendant_is_left_out(bench: Bench) -> None:
    """It is refused by name when it is opened; it does not stop its tree."""
    store = bench.open()
    await family(store)
    await store.aclose()
    damage_header(bench, GRANDCHILD)
    store = bench.open()
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD]
    assert await listed(store) == [ROOT]
    await continued(store, ROOT, [end_seed(len(turn(1, 0, title="family", tool=True)))])


def damage_header(bench: Bench, session: str) -> None:
    """Make what a stored session says of itself unreadable."""
    if bench.kind == "jsonl":
        (path,) = (path for path in bench.logs() if f'"id":"{session}"'.encode() in path.read_bytes())
        path.write_bytes(path.read_bytes().replace(b'"delegationDepth":', b'"delegationDepth":x', 1))
        return
    with sqlite3.connect(bench.file) as connection:
        assert connection.execute("UPDATE sessions SET extra = 'x' WHERE id = ?", (session,)).rowcount == 1
    connection.close()


async def test_depth_parent_and_spawn_key_round_trip(bench: Bench) -> None:
    await family(bench.open())
    header = (await bench.open().inspect(GRANDCHILD)).header
    assert header == child_header(GRANDCHILD, CHILD, call="c2", depth=2, created=3)
    root = (await bench.open().inspect(ROOT)).header
    assert (root.delegation_depth, root.parent_session, root.spawn) == (0, UNSET, UNSET)


# ---------------------------------------------------------------- deleting


async def test_deleting_a_root_deletes_its_whole_tree(bench: Bench) -> None:
    store = bench.open()
    await stored(store, root_header("bystander"), turn(1, 0))
    with_bystander = bench.snapshot()
    await family(store)
    opened = await store.load(ROOT)
    spill = store.spill_directory(ROOT)
    spill.mkdir(parents=True)
    (spill / "output").write_text("long")
    await opened.appender.aclose()
    await store.delete(ROOT)
    assert not spill.exists()
    assert bench.snapshot() == with_bystander
    for reader in (store, bench.open()):
        assert await listed(reader) == ["bystander"]
        for session in (ROOT, CHILD, GRANDCHILD):
            assert not reader.exists(session)
            with pytest.raises(SessionNotFound):
                await reader.inspect(session)
        with pytest.raises(SessionNotFound):
            await reader.delete(ROOT)


async def test_the_ids_of_a_deleted_tree_can_be_used_again(bench: Bench) -> None:
    store = bench.open()
    await family(store)
    await store.delete(ROOT)
    await family(store)
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD, GRANDCHILD]


async def test_a_descendant_is_not_deleted(bench: Bench) -> None:
    store = bench.open()
    await family(store)
    before = bench.snapshot()
    for session in (CHILD, GRANDCHILD):
        with pytest.raises(StoreError):
            await store.delete(session)
    assert bench.snapshot() == before


async def test_a_session_that_is_open_is_not_deleted(bench: Bench) -> None:
    store = bench.open()
    await family(store)
    before = bench.snapshot()
    for session in (ROOT, CHILD):
        opened = await store.load(session)
        with pytest.raises(StoreError, match="open"):
            await store.delete(ROOT)
        with pytest.raises(SessionHeld):
            await bench.open().delete(ROOT)
        await opened.appender.aclose()
        assert bench.snapshot() == before
    await store.delete(ROOT)


# ---------------------------------------------------------------- exporting and taking in


@pytest.mark.parametrize("source", KINDS)
async def test_a_tree_travels_between_stores_byte_for_byte(bench: Bench, tmp_path: Path, source: str) -> None:
    origin = Bench(source, tmp_path / "origin")  # type: ignore[arg-type]  # one of KINDS
    store = origin.open()
    await family(store)
    tree = await export_tree(store, ROOT, tmp_path / "tree")
    before = [path.read_bytes() for path in tree.logs]
    target = bench.open()
    assert await target.adopt(tree) == ROOT
    again = await export_tree(bench.open(), ROOT, tmp_path / "again")
    assert [path.read_bytes() for path in again.logs] == before
    assert {name: path.read_bytes() for name, path in again.blobs.items()} == {digest(b"picture"): b"picture"}
    for session in (ROOT, CHILD, GRANDCHILD):
        assert await target.inspect(session) == await store.inspect(session)
    assert await target.tree(CHILD) == await store.tree(CHILD)
    assert (await target.list()).sessions == (await store.list()).sessions
    await origin.aclose()


async def test_what_was_taken_in_can_be_continued(bench: Bench, tmp_path: Path) -> None:
    store = bench.open()
    await family(store)
    tree = await export_tree(store, ROOT, tmp_path / "tree")
    await store.delete(ROOT)
    await store.adopt(tree)
    before = await exported(store, ROOT)
    count = len(turn(1, 0, title="family", tool=True))
    await continued(store, ROOT, [end_seed(count), *turn(2, count + 1)])
    assert (await exported(store, ROOT)).startswith(before)
    assert all(path.exists() for path in tree.logs), "and the tree outside is left alone"


async def test_what_this_build_does_not_model_travels_too(bench: Bench, tmp_path: Path) -> None:
    """Known types it has no struct for, ignorable ones, fields a newer writer added, numbers as they were written."""
    text = encode_header(root_header()) + b"".join((
        b'{"type":"goal/change","seq":0,"time":5,"data":{"b":1.50,"a":[1e3,null],"long":12345678901234567890}}\n',
        b'{"type":"turn/start","seq":1,"time":6,"data":{"turn":1,"later":{"x":true}}}\n',
        b'{"type":"novelty/appeared","seq":2,"time":7,"data":{"y":"\\u00e9"},"ignorable":true}\n',
        b'{"type":"turn/end","seq":3,"time":8,"data":{"turn":1,"reason":{"kind":"completed"}}}\n',
    ))
    store = bench.open()
    await store.adopt(tree_of(tmp_path / "tree", text))
    assert await exported(store, ROOT) == text
    await continued(store, ROOT, [end_seed(4)])
    assert (await exported(bench.open(), ROOT)).startswith(text)


async def test_header_keys_of_others_travel_too(bench: Bench, tmp_path: Path) -> None:
    header = (b'{"type":"session","version":0,"id":"root","createdAt":1,"cwd":"/w","delegationDepth":0,'
              b'"agentPreset":"p","extra":{"k":[1]}}\n')
    text = header + b'{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}\n'
    store = bench.open()
    await store.adopt(tree_of(tmp_path / "tree", text))
    assert await exported(bench.open(), ROOT) == text


async def test_a_torn_last_record_is_left_outside(bench: Bench, tmp_path: Path) -> None:
    text = await an_export(bench)
    store = bench.open()
    await store.adopt(tree_of(tmp_path / "tree", text[:-3]))
    assert await exported(store, ROOT) == text[: text[:-1].rindex(b"\n") + 1]
    await continued(store, ROOT, turn(1, 0)[-1:])
    assert await exported(bench.open(), ROOT) == text


async def test_a_log_that_is_only_a_header_is_taken_in_and_can_be_begun(bench: Bench, tmp_path: Path) -> None:
    text = await an_export(bench)
    store = bench.open()
    await store.adopt(tree_of(tmp_path / "tree", encode_header(root_header())))
    assert await exported(store, ROOT) == encode_header(root_header())
    opened = await store.load(ROOT)
    assert (opened.count, opened.time, list(opened.settled)) == (0, 1, [])
    fill(opened.appender, turn(1, 0))
    await opened.appender.aclose()
    assert await exported(bench.open(), ROOT) == text


async def an_export(bench: Bench) -> bytes:
    """The text of a small root session that is not stored any more."""
    store = bench.open()
    await stored(store, root_header(), turn(1, 0))
    text = await exported(store, ROOT)
    await store.delete(ROOT)
    return text


async def refuses(bench: Bench, tree: Tree, kind: type[StoreError] = StoreError) -> None:
    """The store does not take it and is as it was."""
    before = bench.snapshot()
    store = bench.open()
    names = await listed(store)
    with pytest.raises(kind):
        await store.adopt(tree)
    assert bench.snapshot() == before
    assert await listed(bench.open()) == names


async def test_a_tree_whose_ids_are_taken_is_refused(bench: Bench, tmp_path: Path) -> None:
    store = bench.open()
    await family(store)
    tree = await export_tree(store, ROOT, tmp_path / "tree")
    await refuses(bench, tree)
    await store.delete(ROOT)
    await stored(store, root_header(GRANDCHILD), turn(1, 0))
    await refuses(bench, tree)
    await store.delete(GRANDCHILD)
    assert await store.adopt(tree) == ROOT


async def test_a_tree_whose_id_is_open_here_and_not_written_yet_is_refused(bench: Bench, tmp_path: Path) -> None:
    text = await an_export(bench)
    store = bench.open()
    appender = store.create(root_header(), ROOT)
    with pytest.raises(StoreError):
        await store.adopt(tree_of(tmp_path / "tree", text))
    fill(appender, turn(1, 0))
    await appender.aclose()
    assert await exported(store, ROOT) == text


NO_TREES: dict[str, Callable[[bytes, bytes], list[bytes]]] = {
    "nothing": lambda root, child: [],
    "a child without its root": lambda root, child: [child],
    "the child first": lambda root, child: [child, root],
    "two roots": lambda root, child: [root, root.replace(b'"root"', b'"other"', 1)],
    "one log twice": lambda root, child: [root, child, child],
    "the child of another": lambda root, child: [root, child.replace(b'"root"', b'"stranger"', 1)],
    "its own parent": lambda root, child: [root, child.replace(b'"root"', b'"child"', 1)],
}


@pytest.mark.parametrize("case", NO_TREES)
async def test_what_is_not_a_tree_is_refused(bench: Bench, tmp_path: Path, case: str) -> None:
    root = await an_export(bench)
    child = encode_header(child_header()) + root.split(b"\n", 1)[1]
    await refuses(bench, tree_of(tmp_path / "tree", *NO_TREES[case](root, child)))


def lines_of(text: bytes, *numbers: int) -> bytes:
    """The given lines of a text, and all after the last of them."""
    lines = text.splitlines(keepends=True)
    return b"".join([*(lines[number] for number in numbers), *lines[numbers[-1] + 1 :]])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "no header": lambda text: text.split(b"\n", 1)[1],
    "a fractional creation time": lambda text: text.replace(b'"createdAt":1', b'"createdAt":1.5', 1),
    "a negative creation time": lambda text: text.replace(b'"createdAt":1', b'"createdAt":-1', 1),
    "an empty id": lambda text: text.replace(b'"id":"root"', b'"id":""', 1),
    "a retired header key": lambda text: text.replace(b'"cwd"', b'"sandboxMode":"x","cwd"', 1),
    "garbage": lambda text: text.replace(b'{"type":"user/message"', b"garbage", 1),
    "NULs": lambda text: text.replace(b'{"type":"user/message"', b"\0" * 22, 1),
    "invalid UTF-8": lambda text: text.replace(b"prompt 1", b"prompt \xff", 1),
    "a missing record": lambda text: lines_of(text, 0, 1, 3),
    "a doubled record": lambda text: lines_of(text, 0, 1, 2, 2, 3),
    "swapped records": lambda text: lines_of(text, 0, 2, 1, 3),
    "a message without its role": lambda text: text.replace(b'"role":"user",', b"", 1),
    "an unknown type": lambda text: text.replace(b'"turn/end"', b'"novelty/appeared"', 1),
    "a row with a gap too few": lambda text: text.replace(b'"dt":[1,1,', b'"dt":[1,', 1),
}


@pytest.mark.parametrize("case", DAMAGES)
async def test_a_log_that_could_not_be_continued_is_not_taken_in(bench: Bench, tmp_path: Path, case: str) -> None:
    """Whether it is the root's or a child's: all or nothing. The id is not burnt."""
    text = await an_export(bench)
    bad = DAMAGES[case](text)
    assert bad != text
    await refuses(bench, tree_of(tmp_path / "root", bad), LogDamaged)
    child = bad.replace(text.split(b"\n", 1)[0], encode_header(child_header())[:-1], 1)
    if child != bad:
        await refuses(bench, tree_of(tmp_path / "child", text, child), LogDamaged)
    store = bench.open()
    assert not store.exists(ROOT)
    assert await store.adopt(tree_of(tmp_path / "good", text)) == ROOT


async def test_data_that_is_not_json_is_refused_naming_where(bench: Bench, tmp_path: Path) -> None:
    text = (await an_export(bench)).replace(b'"data":{"turn":1}', b'"data":{"turn":NaN}', 1)
    tree = tree_of(tmp_path / "tree", text)
    with pytest.raises(LogDamaged) as caught:
        await bench.open().adopt(tree)
    assert caught.value.file == str(tree.logs[0])
    assert caught.value.line == 2


async def test_blobs_that_are_not_what_their_names_say_are_refused(bench: Bench, tmp_path: Path) -> None:
    log = tree_of(tmp_path / "tree", await an_export(bench)).logs
    picture = tmp_path / "picture"
    picture.write_bytes(b"picture")
    await refuses(bench, Tree(log, {digest(b"another"): picture}))
    await refuses(bench, Tree(log, {BlobId("../../picture"): picture}))
    await refuses(bench, Tree(log, {digest(b"picture"): tmp_path / "missing"}))


async def test_events_of_unknown_types_are_exported_as_they_stand(bench: Bench) -> None:
    """An export is how a log that this build cannot continue gets to one that can."""
    events = [*turn(1, 0), unknown(len(turn(1, 0)))]
    await stored(bench.open(), root_header(), events)
    assert await exported(bench.open(), ROOT) == encode_header(root_header()) + pack(events)

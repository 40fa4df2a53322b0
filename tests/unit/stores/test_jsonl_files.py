"""The JSONL store's files: when they appear, who may read them, how they are repaired, copied and numbered."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.events import (
    AssistantChunk,
    Body,
    Completed,
    EndSeed,
    Event,
    SessionHeader,
    SpawnKey,
    TextDelta,
    TurnEnd,
    TurnStart,
)
from acp_agent.stores.jsonl import JsonlStore

pytestmark = pytest.mark.anyio

ROOT = SessionId("root")


def header(
    session: str = "root", parent: str | None = None, seed_length: int | UnsetType = UNSET,
) -> SessionHeader:
    if parent is None:
        return SessionHeader(id=SessionId(session), created_at=1, cwd="/w")
    return SessionHeader(id=SessionId(session), created_at=2, cwd="/w", parent_session=SessionId(parent),
                         origin="subagent", delegation_depth=1, spawn=SpawnKey(CallId("c"), 0),
                         seed_length=seed_length)


def numbered(first: int, *bodies: Body) -> list[Event]:
    return [Event(first + at, 100, body) for at, body in enumerate(bodies)]


def turn(number: int, first: int) -> list[Event]:
    chunks = [AssistantChunk(number, 1, TextDelta(0, text)) for text in ("é", "b", "c")]
    return numbered(first, TurnStart(number), *chunks, TurnEnd(number, Completed()))


async def stored(root: Path, *events: Event) -> Path:
    """A closed log of the root session."""
    appender = JsonlStore(root).create(header(), ROOT)
    for event in events:
        appender.append(event)
    await appender.aclose()
    return appender.path


def everything_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


# ---------------------------------------------------------------- creation


async def test_the_file_appears_with_the_first_write_and_not_before(tmp_path: Path) -> None:
    appender = JsonlStore(tmp_path).create(header(), ROOT)
    await appender.write()
    appender.append(numbered(0, TurnStart(1))[0])
    assert everything_below(tmp_path) == []
    await appender.write()
    assert everything_below(tmp_path) == ["--w--", "--w--/root", "--w--/root/lock", "--w--/root/session.jsonl"]
    assert appender.path.read_bytes().count(b"\n") == 2
    await appender.aclose()
    assert everything_below(tmp_path) == ["--w--", "--w--/root", "--w--/root/session.jsonl"]


async def test_logs_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = await stored(tmp_path, *turn(1, 0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_existing_log_is_never_written_over(tmp_path: Path) -> None:
    path = await stored(tmp_path, *turn(1, 0))
    before = path.read_bytes()
    other = JsonlStore(tmp_path).create(header(), ROOT)
    other.append(numbered(0, TurnStart(9))[0])
    with pytest.raises(StoreError, match="there is one already"):
        await other.write()
    with pytest.raises(StoreError):
        await other.aclose()
    assert path.read_bytes() == before
    assert everything_below(path.parent) == ["session.jsonl"], "and the temporary file is gone"


async def test_children_are_numbered_in_the_order_of_their_creation_not_of_their_writing(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    children = [store.create(header(f"child-{at}", "root"), ROOT) for at in range(3)]
    for child in reversed(children):
        child.append(numbered(0, TurnStart(1))[0])
        await child.aclose()
    assert [child.path.name for child in children] == [f"session.{number}.jsonl" for number in (1, 2, 3)]
    await stored(tmp_path, *turn(1, 0))
    assert [one.id for one in await store.tree(ROOT)] == ["root", "child-0", "child-1", "child-2"]


async def test_numbering_goes_on_after_the_children_that_are_stored(tmp_path: Path) -> None:
    first = JsonlStore(tmp_path).create(header("child-0", "root"), ROOT)
    first.append(numbered(0, TurnStart(1))[0])
    await first.aclose()
    assert JsonlStore(tmp_path).create(header("child-1", "root"), ROOT).path.name == "session.2.jsonl"


async def test_a_childs_log_stands_beside_its_roots(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    root, child = store.create(header(), ROOT), store.create(header("child", "root"), ROOT)
    grandchild = store.create(header("grandchild", "child"), ROOT)
    assert {appender.path.parent for appender in (root, child, grandchild)} == {tmp_path / "--w--" / "root"}


async def test_a_child_is_found_by_its_id(tmp_path: Path) -> None:
    await stored(tmp_path, *turn(1, 0))
    child = JsonlStore(tmp_path).create(header("child", "root"), ROOT)
    child.append(numbered(0, TurnStart(1))[0])
    await child.aclose()
    assert (await JsonlStore(tmp_path).inspect(SessionId("child"))).header == header("child", "root")
    with pytest.raises(SessionNotFound):
        await JsonlStore(tmp_path).inspect(SessionId("grandchild"))


@pytest.mark.parametrize("session", ["..", ".", "a/b", "../x", "ü", "\U0001f600", "a b", "~"])
@pytest.mark.parametrize("cwd", ["/", "/..", "/a/../b", "/ü/\U0001f600", "/" + "d" * 600, UNSET])
async def test_any_id_and_any_directory_read_back_from_inside_the_store(
    tmp_path: Path, session: str, cwd: str,
) -> None:
    root = tmp_path / "store"
    odd = SessionHeader(id=SessionId(session), created_at=1, cwd=cwd)
    appender = JsonlStore(root).create(odd, odd.id)
    appender.append(numbered(0, TurnStart(1))[0])
    await appender.aclose()
    assert (await JsonlStore(root).inspect(odd.id)).header == odd
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


# ---------------------------------------------------------------- torn tails


async def test_a_log_cut_at_any_byte_of_its_last_record_loses_just_that_record(tmp_path: Path) -> None:
    events = turn(1, 0)
    path = await stored(tmp_path, *events)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        log = await JsonlStore(tmp_path).inspect(ROOT)
        assert list(log.events) == events[:-1], size
        assert path.stat().st_size == size


async def test_a_cut_inside_a_packed_row_loses_the_whole_row(tmp_path: Path) -> None:
    events = turn(1, 0)
    path = await stored(tmp_path, *events)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'"dt"')])
    assert list((await JsonlStore(tmp_path).inspect(ROOT)).events) == events[:1]


async def test_appending_after_a_torn_record_repairs_the_file_first(tmp_path: Path) -> None:
    events = turn(1, 0)
    path = await stored(tmp_path, *events)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(whole)):
        path.write_bytes(whole[:size])
        store = JsonlStore(tmp_path)
        opened = await store.load(ROOT)
        assert opened.torn == (size > last)
        assert (opened.count, opened.time) == (len(events) - 1, 100)
        opened.appender.append(events[-1])
        await opened.appender.aclose()
        assert path.read_bytes() == whole, size


async def test_looking_at_a_torn_log_changes_nothing(tmp_path: Path) -> None:
    path = await stored(tmp_path, *turn(1, 0))
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    store = JsonlStore(tmp_path)
    await store.inspect(ROOT)
    await store.read_from(ROOT, 1)
    assert [one.id for one in (await store.list()).sessions] == ["root"]
    assert [one.id for one in await store.tree(ROOT)] == ["root"]
    assert b"".join([piece async for piece in store.export(ROOT)]) == torn[: torn.rindex(b"\n") + 1]
    assert path.read_bytes() == torn


@pytest.mark.parametrize("damage", [b"nonsense\n", b"\n", b'{"type":"turn/start","seq":7,"time":1,"data":{}}\n'])
async def test_damage_before_the_end_is_refused_and_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    path = await stored(tmp_path, *turn(1, 0))
    first, second, rest = path.read_bytes().split(b"\n", 2)
    broken = first + b"\n" + second + b"\n" + damage + rest
    path.write_bytes(broken)
    with pytest.raises(LogDamaged) as caught:
        await JsonlStore(tmp_path).load(ROOT)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert path.read_bytes() == broken


@pytest.mark.parametrize("content", [b"", b'{"type":"session"'])
async def test_a_log_without_a_whole_header_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = await stored(tmp_path, *turn(1, 0))
    path.write_bytes(content)
    with pytest.raises(LogDamaged, match=r"session\.jsonl: the log (is empty|has no complete header line)"):
        await JsonlStore(tmp_path).load(ROOT)


# ---------------------------------------------------------------- forks


async def test_a_fork_has_the_parents_bytes_and_leaves_the_parent_alone(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    parent = store.create(header(), ROOT)
    for event in [*turn(1, 0), *turn(2, 5), *numbered(10, TurnStart(3))]:
        parent.append(event)
    await parent.sync()
    before = parent.path.read_bytes()
    child = store.create(header("child", "root", seed_length=10), ROOT)
    seed = await store.fork(SessionId("child"), ROOT, 10)
    child.append(numbered(10, EndSeed())[0])
    await child.aclose()
    lines = before.splitlines(keepends=True)
    assert list(seed) == [*turn(1, 0), *turn(2, 5)]
    assert child.path.read_bytes().splitlines(keepends=True)[1:-1] == lines[1:-1]
    assert list((await store.inspect(SessionId("child"))).events) == [*seed, *numbered(10, EndSeed())]
    await parent.aclose()
    assert parent.path.read_bytes() == before


@pytest.mark.parametrize("cut", [2, 3])
async def test_a_fork_inside_a_row_takes_the_part_before_the_cut(tmp_path: Path, cut: int) -> None:
    await stored(tmp_path, *turn(1, 0))
    store = JsonlStore(tmp_path)
    fork = store.create(header("fork"), SessionId("fork"))
    assert list(await store.fork(SessionId("fork"), ROOT, cut)) == turn(1, 0)[:cut]
    fork.append(numbered(cut, EndSeed())[0])
    await fork.aclose()
    assert list((await store.inspect(SessionId("fork"))).events) == [*turn(1, 0)[:cut], *numbered(cut, EndSeed())]


async def test_a_fork_beyond_the_end_is_refused_and_begins_nothing(tmp_path: Path) -> None:
    await stored(tmp_path, *turn(1, 0))
    store = JsonlStore(tmp_path)
    fork = store.create(header("fork"), SessionId("fork"))
    with pytest.raises(StoreError, match="it has 5 events, so none can begin with its first 6"):
        await store.fork(SessionId("fork"), ROOT, 6)
    await fork.aclose()
    assert not store.exists(SessionId("fork"))

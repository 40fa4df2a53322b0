"""Rows that contradict each other: a lost session row, a wrong place in a tree, events that are not there any more."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.codec import encode_header
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import (
    CHILD,
    ROOT,
    child_header,
    export_tree,
    exported,
    fill,
    listed,
    root_header,
    stored,
    tree_of,
    turn,
)

pytestmark = pytest.mark.anyio

EVENTS = turn(1, 0, title="A title")
OTHER = SessionId("other")
LOST = "what is stored about it is gone, .*`acp-agent sessions delete"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Two sessions, the first with a child, and nothing open."""
    store = SqliteStore(tmp_path / "s.db")
    await stored(store, root_header(), EVENTS)
    await stored(store, child_header(), EVENTS, root=ROOT)
    await stored(store, root_header(OTHER, created=2), EVENTS)
    yield store
    await store.aclose()


def change(tmp_path: Path, statement: str) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        assert connection.execute(statement).rowcount > 0


def left(tmp_path: Path) -> set[str]:
    """The sessions of which there is anything."""
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        found = connection.execute("SELECT id FROM sessions UNION SELECT session_id FROM events UNION "
                                   "SELECT root FROM blobs")
        return {name for (name,) in found}


async def refusals(store: SqliteStore, session: SessionId) -> list[str]:
    """What everything that looks at a session says; the list names it, with the same words."""
    told = []
    for use in (store.load, store.inspect, store.repair, store.tree, lambda one: exported(store, one)):
        with pytest.raises(LogDamaged) as refused:
            await use(session)
        told.append(refused.value.message)
    page = await store.list()
    assert OTHER in [one.id for one in page.sessions]
    told += [one.reason for one in page.refused if one.name == session]
    return told


# ---------------------------------------------------------------- a session without its row


async def test_what_is_left_of_a_session_is_named_everywhere_and_can_be_removed(
    store: SqliteStore, tmp_path: Path,
) -> None:
    given = await export_tree(store, OTHER, tmp_path / "out")
    opened = await store.load(OTHER)
    await store.put_blob(OTHER, b"content")
    await opened.appender.aclose()
    change(tmp_path, "DELETE FROM sessions WHERE id = 'other'")
    await stored(store, root_header(SessionId("more"), created=3), EVENTS)
    for use in (store.load, store.inspect, store.repair, store.tree, lambda one: exported(store, one)):
        with pytest.raises(LogDamaged, match=f"'other': {LOST} other`"):
            await use(OTHER)
    page = await store.list()
    assert [one.id for one in page.sessions] == ["more", ROOT]
    assert [(one.name, LOST.partition(",")[0] in one.reason) for one in page.refused] == [(OTHER, True)]
    assert (await store.list(limit=1)).refused == []
    with pytest.raises(LogDamaged, match=f"'other': {LOST} other`"):
        await store.adopt(given)
    assert store.exists(OTHER)
    new = store.create(root_header(OTHER, created=2), OTHER)
    fill(new, EVENTS[:1])
    with pytest.raises(LogDamaged, match=f"'other': {LOST} other`"):
        await new.aclose()
    await store.delete(OTHER)
    assert left(tmp_path) == {"more", ROOT, CHILD}
    assert await store.adopt(given) == OTHER
    assert list((await store.inspect(OTHER)).events) == EVENTS
    assert await store.blobs(OTHER) == []


async def test_children_without_their_root_are_named_and_go_with_what_is_left_of_it(
    store: SqliteStore, tmp_path: Path,
) -> None:
    change(tmp_path, "DELETE FROM sessions WHERE id = 'root'")
    assert {one.name for one in (await store.list()).refused} == {ROOT, CHILD}
    assert all("its row places it in the tree of 'root', and there is none" in one
               for one in await refusals(store, CHILD))
    await store.delete(ROOT)
    assert left(tmp_path) == {OTHER}
    with pytest.raises(SessionNotFound):
        await store.delete(ROOT)


async def test_content_of_a_session_that_never_came_to_be_does_not_come_with_an_imported_one(
    store: SqliteStore, tmp_path: Path,
) -> None:
    """A process was killed between storing an image and the session's first event."""
    change(tmp_path, "INSERT INTO blobs VALUES ('new', 'x', x'00')")
    new = SessionId("new")
    assert await store.adopt(tree_of(tmp_path / "in", encode_header(root_header(new)))) == new
    assert await store.blobs(new) == []


# ---------------------------------------------------------------- a wrong place


@pytest.mark.parametrize(("statement", "says"), [
    ("UPDATE sessions SET root = 'nowhere' WHERE id = 'root'", "in the tree of 'nowhere' as its root"),
    ("UPDATE sessions SET root = 'other', number = 3 WHERE id = 'root'", "in the tree of 'other' as number 3"),
    ("UPDATE sessions SET number = -1 WHERE id = 'root'", "in the tree of 'root' as number -1"),
    ("UPDATE sessions SET number = 7 WHERE id = 'root'", "in the tree of 'root' as number 7"),
    ("UPDATE sessions SET root = 'nowhere', number = 7 WHERE id = 'root'", "in the tree of 'nowhere' as number 7"),
])
async def test_a_root_in_a_place_that_cannot_be_is_named_everywhere_and_can_be_deleted(
    store: SqliteStore, tmp_path: Path, statement: str, says: str,
) -> None:
    change(tmp_path, statement)
    told = await refusals(store, ROOT)
    assert len(told) == 6
    assert all("session 'root': its row places it" in one and says in one and "delete the session" in one
               for one in told)
    await store.delete(ROOT)
    assert ROOT not in left(tmp_path)
    assert list((await store.inspect(OTHER)).events) == EVENTS


@pytest.mark.parametrize(("statement", "says"), [
    ("UPDATE sessions SET root = 'nowhere' WHERE id = 'child'", "in the tree of 'nowhere', and there is none"),
    ("UPDATE sessions SET number = -1 WHERE id = 'child'", "in the tree of 'root' as number -1"),
    ("UPDATE sessions SET root = 'other' WHERE id = 'child'", "in the tree of 'other', and its parent 'root' is in th"),
])
async def test_a_child_in_a_place_that_cannot_be_is_left_out_of_its_roots_tree(
    store: SqliteStore, tmp_path: Path, statement: str, says: str,
) -> None:
    change(tmp_path, statement)
    for use in (store.load, store.inspect, store.repair):
        with pytest.raises(LogDamaged, match=says):
            await use(CHILD)
    assert [one.name for one in (await store.list()).refused] == [CHILD]
    assert [one.id for one in await store.tree(ROOT)] == [ROOT]
    await (await store.load(ROOT)).appender.aclose()


# ---------------------------------------------------------------- events that are gone


async def test_a_session_whose_events_are_all_gone_is_not_an_empty_one(store: SqliteStore, tmp_path: Path) -> None:
    change(tmp_path, "DELETE FROM events WHERE session_id = 'root'")
    for use in (store.load, store.inspect, lambda one: store.read_from(one, 0), lambda one: exported(store, one)):
        with pytest.raises(LogDamaged, match="session 'root': all of its events are missing; put back a copy"):
            await use(ROOT)
    with pytest.raises(LogDamaged, match="it has no events, so there is nothing to keep; put back a copy"):
        await store.repair(ROOT)
    change(tmp_path, "UPDATE sessions SET title = NULL WHERE id = 'root'")
    with pytest.raises(LogDamaged, match="all of its events are missing"):
        await store.load(ROOT)


async def test_a_session_whose_newest_events_are_gone_is_refused_until_it_is_repaired(
    store: SqliteStore, tmp_path: Path,
) -> None:
    at = len(EVENTS) - 2
    change(tmp_path, f"DELETE FROM events WHERE session_id = 'root' AND seq >= {at}")
    says = f"'root', event {at}: it is missing, with all that follow.*sessions repair root"
    for use in (store.load, store.inspect, lambda one: store.read_from(one, 0), lambda one: exported(store, one)):
        with pytest.raises(LogDamaged, match=says):
            await use(ROOT)
    told = (await store.repair(ROOT, dry_run=True)).changes
    report = await store.repair(ROOT)
    assert list(report.changes) == list(told)
    assert len(told) == 1
    assert report.backup is not None
    assert list((await store.inspect(ROOT)).events) == EVENTS[:at]
    await (await store.load(ROOT)).appender.aclose()
    assert (await store.repair(ROOT)).changes == []


async def test_a_session_that_never_had_an_event_is_an_empty_one(store: SqliteStore, tmp_path: Path) -> None:
    new = SessionId("new")
    await store.adopt(tree_of(tmp_path / "in", encode_header(root_header(new))))
    assert list((await store.inspect(new)).events) == []
    await (await store.load(new)).appender.aclose()
    assert await listed(store) == [OTHER, *sorted([ROOT, new])]


async def test_an_id_that_is_taken_is_still_told_so(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'root' is stored already"):
        await store.adopt(await export_tree(store, ROOT, tmp_path / "out"))

"""What every store does, the JSONL one and the one in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import UNSET

from acp_agent.errors import SessionNotFound, StoreError
from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session.events import (
    AssistantChunk,
    Body,
    Completed,
    EndSeed,
    Event,
    ReplayBound,
    SessionHeader,
    Source,
    SpawnKey,
    TextBlock,
    TextDelta,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from acp_agent.stores.base import Appender, Store
from acp_agent.stores.jsonl import JsonlStore
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

ROOT, CHILD = SessionId("root"), SessionId("child")
Opener = Callable[[], Store]
"""Opens the same stored sessions again, as another process would."""


@pytest.fixture(params=["jsonl", "memory"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "jsonl":
        return lambda: JsonlStore(tmp_path)
    stored = MemoryStore().stored

    def reopen() -> MemoryStore:
        store = MemoryStore()
        store.stored = stored
        return store

    return reopen


def header(session: SessionId = ROOT, parent: SessionId | None = None) -> SessionHeader:
    if parent is None:
        return SessionHeader(id=session, created_at=1, cwd="/w")
    return SessionHeader(id=session, created_at=2, cwd="/w", parent_session=parent, origin="subagent",
                         delegation_depth=1, spawn=SpawnKey(CallId("c"), 0))


def event(seq: int, body: Body) -> Event:
    surface = "append" if isinstance(body, UserMessage) else UNSET
    return Event(seq, 100 + seq, body, UNSET, surface, True if body.ours else UNSET)  # type: ignore[arg-type]  # a literal


def turn(number: int, first: int) -> list[Event]:
    """Five events: a turn whose deltas are packed."""
    chunk = [AssistantChunk(number, 1, TextDelta(0, text)) for text in "abc"]
    return [event(first + at, body) for at, body in enumerate([TurnStart(number), *chunk,
                                                               TurnEnd(number, Completed())])]


def fill(appender: Appender, events: list[Event]) -> None:
    for one in events:
        appender.append(one)


async def test_what_was_appended_is_read_back_equal(opener: Opener) -> None:
    prompt = UserMessage((TextBlock("é\u2028\x00"),), Source("user"), "user", MessageId("m"))
    events = [*turn(1, 0), event(5, prompt), event(6, ReplayBound("lane", 0)), *turn(2, 7)]
    appender = opener().create(header(), ROOT)
    fill(appender, events)
    await appender.aclose()
    log = await opener().load(ROOT)
    assert log.header == header()
    assert list(log.events) == events


async def test_nothing_is_stored_before_the_first_event(opener: Opener) -> None:
    store = opener()
    appender = store.create(header(), ROOT)
    await appender.write()
    await appender.sync()
    await appender.aclose()
    with pytest.raises(SessionNotFound):
        await opener().load(ROOT)
    assert [one async for one in opener().headers()] == []


async def test_a_new_session_exists_from_its_creation(opener: Opener) -> None:
    store = opener()
    assert not store.exists(ROOT)
    store.create(header(), ROOT)
    assert store.exists(ROOT)


async def test_a_written_session_exists_for_the_next_process(opener: Opener) -> None:
    appender = opener().create(header(), ROOT)
    fill(appender, turn(1, 0))
    await appender.write()
    assert opener().exists(ROOT)
    assert not opener().exists(SessionId("other"))


async def test_what_is_written_can_be_read_while_the_writer_goes_on(opener: Opener) -> None:
    appender = opener().create(header(), ROOT)
    fill(appender, turn(1, 0))
    await appender.write()
    assert len((await opener().load(ROOT)).events) == 5
    fill(appender, turn(2, 5))
    await appender.sync()
    assert len((await opener().load(ROOT)).events) == 10


@pytest.mark.parametrize("seq", [0, 2, 7])
async def test_an_event_out_of_order_is_refused(opener: Opener, seq: int) -> None:
    appender = opener().create(header(), ROOT)
    appender.append(event(0, TurnStart(1)))
    with pytest.raises(StoreError, match="where 1 was expected"):
        appender.append(event(seq, TurnStart(2)))


async def test_a_resumed_session_goes_on_after_its_last_event(opener: Opener) -> None:
    first = opener().create(header(), ROOT)
    fill(first, turn(1, 0))
    await first.aclose()
    store = opener()
    again = await store.resume(await store.load(ROOT))
    with pytest.raises(StoreError):
        again.append(event(0, TurnStart(1)))
    fill(again, turn(2, 5))
    await again.aclose()
    assert list((await opener().load(ROOT)).events) == [*turn(1, 0), *turn(2, 5)]


async def test_a_fork_begins_with_the_parents_first_events(opener: Opener) -> None:
    store = opener()
    parent = store.create(header(), ROOT)
    fill(parent, [*turn(1, 0), *turn(2, 5)])
    child = store.create(header(CHILD, ROOT), ROOT)
    assert list(await store.fork(CHILD, ROOT, 5)) == turn(1, 0)
    child.append(event(5, EndSeed()))
    await child.aclose()
    await parent.aclose()
    assert list((await opener().load(CHILD)).events) == [*turn(1, 0), event(5, EndSeed())]
    assert list((await opener().load(ROOT)).events) == [*turn(1, 0), *turn(2, 5)]


async def test_headers_lists_roots_and_children(opener: Opener) -> None:
    store = opener()
    for one in (header(), header(CHILD, ROOT)):
        appender = store.create(one, ROOT)
        appender.append(event(0, TurnStart(1)))
        await appender.aclose()
    assert [one async for one in opener().headers()] == [header(), header(CHILD, ROOT)]


async def test_an_unknown_session_is_not_found(opener: Opener) -> None:
    with pytest.raises(SessionNotFound):
        await opener().load(SessionId("nobody"))


async def test_closing_twice_is_fine_and_closing_the_store_closes_its_logs(opener: Opener) -> None:
    store = opener()
    appender = store.create(header(), ROOT)
    fill(appender, turn(1, 0))
    await store.aclose()
    await store.aclose()
    await appender.aclose()
    assert len((await opener().load(ROOT)).events) == 5

"""Lists, over every store: the order, the pages and what stays true of them while sessions come and go."""

from __future__ import annotations

import base64

import pytest
from msgspec import UNSET

from acp_agent.errors import BadCursor
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, TurnStart
from acp_agent.stores.base import PAGE, SessionSummary, Store
from tests.support.store_builders import (
    CHILD,
    ROOT,
    Bench,
    child_header,
    continued,
    end_seed,
    fill,
    listed,
    root_header,
    stored,
    title,
    turn,
)

pytestmark = pytest.mark.anyio


async def several(store: Store, *names: str, cwd: str = "/w", first: int = 100) -> None:
    """Sessions of one event each, each made a millisecond after the one before."""
    for at, name in enumerate(names):
        await stored(store, root_header(name, created=first + at, cwd=cwd), [Event(0, 7, TurnStart(1))])


# ---------------------------------------------------------------- what a list says


async def test_a_summary_tells_titles_times_and_directory(bench: Bench) -> None:
    store = bench.open()
    events = turn(1, 0, title="first words")
    await stored(store, root_header(created=5), events)
    (one,) = (await store.list()).sessions
    assert one == SessionSummary(ROOT, 5, events[-1].time, "/w", "first words")
    more = [end_seed(len(events)), title(len(events) + 1, "better words"), *turn(2, len(events) + 2)]
    await continued(store, ROOT, more)
    for reader in (store, bench.open()):
        (one,) = (await reader.list()).sessions
        assert one == SessionSummary(ROOT, 5, more[-1].time, "/w", "better words")
    last = end_seed(len(events) + len(more))
    await continued(store, ROOT, [last])
    for reader in (store, bench.open()):
        (one,) = (await reader.list()).sessions
        assert one == SessionSummary(ROOT, 5, last.time, "/w", "better words")


async def test_a_session_without_a_title_or_a_directory_is_listed_so(bench: Bench) -> None:
    store = bench.open()
    await stored(store, root_header(cwd=UNSET), [Event(0, 7, TurnStart(1))])
    (one,) = (await store.list()).sessions
    assert (one.title, one.cwd, one.updated_at, one.seeded) == (None, UNSET, 7, False)


async def test_a_title_is_listed_wherever_it_stands_in_a_long_log(bench: Bench) -> None:
    """Late in the log, and early in a log that grew long."""
    store = bench.open()
    long = turn(1, 0, text="word " * 5_000)
    await stored(store, root_header("late", created=1), [*long, title(len(long), "late")])
    early = turn(1, 0, title="early", text="word " * 5_000)
    await stored(store, root_header("early", created=2), early)
    middle = [*long, title(len(long), "middle"), *turn(2, len(long) + 1, text="word " * 5_000)]
    await stored(store, root_header("middle", created=3), middle)
    for reader in (store, bench.open()):
        assert [one.title for one in (await reader.list()).sessions] == ["middle", "early", "late"]


async def test_times_and_titles_are_listed_while_the_session_is_written(bench: Bench) -> None:
    store, other = bench.open(), bench.open()
    appender = store.create(root_header(), ROOT)
    events = turn(1, 0)
    fill(appender, events)
    await appender.write()
    for reader in (store, other):
        assert [(one.title, one.updated_at) for one in (await reader.list()).sessions] == [(None, events[-1].time)]
    appender.append(title(len(events), "now"))
    await appender.write()
    for reader in (store, other):
        assert [(one.title, one.updated_at) for one in (await reader.list()).sessions] == [("now", 1000 + len(events))]


async def test_a_list_tells_that_a_session_is_seeded(bench: Bench) -> None:
    store = bench.open()
    seed = turn(1, 0)
    await stored(store, root_header("plain", created=1), seed)
    await stored(store, root_header("fork", created=2, seed=len(seed)), [*seed, end_seed(len(seed))])
    assert [(one.id, one.seeded) for one in (await store.list()).sessions] == [("fork", True), ("plain", False)]


async def test_children_are_not_listed(bench: Bench) -> None:
    store = bench.open()
    root = store.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    await stored(store, child_header(created=50), turn(1, 0), ROOT)
    assert await listed(store) == [ROOT]
    assert await listed(bench.open()) == [ROOT]


async def test_an_empty_store_lists_nothing(bench: Bench) -> None:
    page = await bench.open().list()
    assert (list(page.sessions), page.cursor, list(page.refused)) == ([], None, [])


# ---------------------------------------------------------------- order, pages, directories


async def test_the_newest_is_first_then_by_id(bench: Bench) -> None:
    store = bench.open()
    for name, created in (("b", 5), ("old", 1), ("a", 5), ("Z", 5), ("ä", 5), ("newest", 9), ("B", 5)):
        await stored(store, root_header(name, created=created), [Event(0, 7, TurnStart(1))])
    assert await listed(store) == ["newest", "B", "Z", "a", "b", "ä", "old"]
    assert await listed(bench.open(), limit=1) == ["newest", "B", "Z", "a", "b", "ä", "old"]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_pages_of_any_size_make_up_the_whole_list(bench: Bench, limit: int) -> None:
    store = bench.open()
    await several(store, *"abcdefg")
    first = await store.list(limit=limit)
    assert [one.id for one in first.sessions] == list("gfedcba")[:limit]
    assert (first.cursor is None) == (limit >= 7)
    assert await listed(store, limit=limit) == list("gfedcba")


async def test_a_page_has_fifty_unless_told_otherwise(bench: Bench) -> None:
    store = bench.open()
    names = [f"s{at:02}" for at in range(PAGE + 2)]
    await several(store, *names)
    first = await store.list()
    assert [one.id for one in first.sessions] == names[:1:-1]
    rest = await store.list(cursor=first.cursor)
    assert [one.id for one in rest.sessions] == names[1::-1]
    assert rest.cursor is None


async def test_a_list_of_one_directory_has_only_sessions_of_exactly_that_one(bench: Bench) -> None:
    """Also where two directories share the name of their project in the JSONL store."""
    store = bench.open()
    places: dict[str, str] = {"slash": "/a/b", "dash": "/a-b", "colon": "/a:b", "deep": "/a/b/c", "root": "/",
                              "none": "", "case": "/A/b", "trail": "/a/b/", "percent": "/a%", "under": "/a_b"}
    for at, (name, cwd) in enumerate(places.items()):
        await stored(store, root_header(name, created=at, cwd=cwd or UNSET), [Event(0, 7, TurnStart(1))])
    for name, cwd in places.items():
        if cwd:
            assert await listed(store, cwd=cwd) == [name]
    assert await listed(store, cwd="/nowhere") == []
    assert len(await listed(store)) == len(places)


async def test_pages_of_one_directory(bench: Bench) -> None:
    store = bench.open()
    await several(store, "a1", "a2", "a3", cwd="/a", first=100)
    await several(store, "b1", "b2", "b3", cwd="/b", first=100)
    assert await listed(store, cwd="/a", limit=1) == ["a3", "a2", "a1"]
    assert await listed(store, cwd="/b", limit=2) == ["b3", "b2", "b1"]
    assert await listed(store, limit=2) == ["a3", "b3", "a2", "b2", "a1", "b1"]


# ---------------------------------------------------------------- while sessions come and go


async def test_a_cursor_is_good_while_sessions_are_made_deleted_and_updated(bench: Bench) -> None:
    store, other = bench.open(), bench.open()
    await several(store, *"abcdefgh")
    first = await store.list(limit=3)
    assert [one.id for one in first.sessions] == ["h", "g", "f"]
    await stored(other, root_header("new", created=999), [Event(0, 7, TurnStart(1))])
    await stored(other, root_header("between", created=102), [Event(0, 7, TurnStart(1))])
    for gone in "fd":
        await other.delete(SessionId(gone))
    await continued(other, "g", [title(1, "shown already")])
    await continued(other, "a", [title(1, "to be shown")])
    second = await store.list(cursor=first.cursor, limit=3)
    third = await bench.open().list(cursor=second.cursor, limit=3)
    assert [one.id for one in second.sessions] == ["e", "between", "c"]
    assert [(one.id, one.title) for one in third.sessions] == [("b", None), ("a", "to be shown")]
    assert third.cursor is None


async def test_a_cursor_stays_good_when_the_session_it_stands_on_is_deleted(bench: Bench) -> None:
    store = bench.open()
    await several(store, *"abcd")
    first = await store.list(limit=2)
    for gone in "dcb":
        await store.delete(SessionId(gone))
    assert [one.id for one in (await store.list(cursor=first.cursor)).sessions] == ["a"]
    await store.delete(SessionId("a"))
    page = await store.list(cursor=first.cursor)
    assert (list(page.sessions), page.cursor) == ([], None)


async def test_a_cursor_tells_apart_sessions_of_one_moment(bench: Bench) -> None:
    store = bench.open()
    for name in "dacb":
        await stored(store, root_header(name, created=5), [Event(0, 7, TurnStart(1))])
    first = await store.list(limit=1)
    await stored(store, root_header("aa", created=5), [Event(0, 7, TurnStart(1))])
    assert [one.id for one in (await store.list(cursor=first.cursor)).sessions] == ["aa", "b", "c", "d"]


async def test_odd_ids_make_good_cursors(bench: Bench) -> None:
    store = bench.open()
    names = sorted(['"', "'", "a,b", "ü\u2028", "\U0001f600", "[5]", "a\nb", "~", ".."])
    for name in names:
        await stored(store, root_header(name, created=5), [Event(0, 7, TurnStart(1))])
    assert await listed(store, limit=1) == names


@pytest.mark.parametrize("cursor", [
    "", "x", "0", "-1", "null", "[]", "{}", '[1]', '["a",1]', "[1,2,3]", "é", "\x00", "\ud800", "x" * 10_000, "=",
    "%00", base64.urlsafe_b64encode(b"nonsense").decode(), base64.b64encode(b'{"a":1}').decode(), "9" * 400,
    "[" * 5000, base64.urlsafe_b64encode(b"[" * 5000).decode(), base64.urlsafe_b64encode(b"\xff\xfe").decode(),
])
async def test_what_no_list_gave_out_is_no_cursor(bench: Bench, cursor: str) -> None:
    store = bench.open()
    with pytest.raises(BadCursor):
        await store.list(cursor=cursor)
    await several(store, "a")
    with pytest.raises(BadCursor):
        await store.list(cursor=cursor)


async def test_a_new_childs_or_events_do_not_move_a_session(bench: Bench) -> None:
    store = bench.open()
    await several(store, "a", "b")
    opened = await store.load(SessionId("a"))
    await stored(store, child_header(CHILD, "a", created=10**6), [Event(0, 10**9, TurnStart(1))], "a")
    opened.appender.append(Event(1, 10**9, TurnStart(2)))
    await opened.appender.aclose()
    (second,) = (await store.list()).sessions[1:]
    assert (second.id, second.updated_at) == ("a", 10**9)

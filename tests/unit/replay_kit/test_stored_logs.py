"""Reading session logs while they grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acp_agent.ids import CallId, MessageId
from acp_agent.providers.base import Hop
from acp_agent.session.events import (
    Body,
    Completed,
    EndSeed,
    Event,
    MessageDigests,
    RequestParts,
    RequestSent,
    SessionConfig,
    ToolCall,
    TurnEnd,
    TurnStart,
)
from acp_agent.stores.base import Appender, Store
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.stores.sqlite import SqliteStore
from replay.stored import GrowingDatabase, GrowingFiles, GrowingLog, GrowingStore
from tests.support.store_builders import CHILD, ROOT, child_header, root_header


def row(kind: str, **data: Any) -> str:
    return json.dumps({"type": kind, "data": data}) + "\n"


def header(session: str, created: int = 1, parent: str | None = None) -> str:
    family = {} if parent is None else {"parentSession": parent}
    return json.dumps({"type": "session", "version": 0, "id": session, "createdAt": created, **family}) + "\n"


class Writer:
    """Writes one log bit by bit."""

    def __init__(self, directory: Path, name: str = "session.jsonl") -> None:
        directory.mkdir(exist_ok=True, parents=True)
        self._path = directory / name

    def add(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)


def log_of(store: GrowingStore, session: str = "s") -> GrowingLog:
    log = store.log(session)
    assert log is not None
    return log


def test_turns_are_followed_from_line_to_line(tmp_path: Path) -> None:
    store, writer = GrowingFiles(tmp_path), Writer(tmp_path / "deep" / "er")
    assert store.log("s") is None
    writer.add(header("s")[:10])
    assert store.log("s") is None
    writer.add(header("s")[10:])
    assert (log_of(store).turn, log_of(store).open, log_of(store).since_end) == (0, False, None)

    writer.add(row("turn/start", turn=1) + row("session/title", title="t"))
    assert (log_of(store).turn, log_of(store).open, log_of(store).since_end) == (1, True, None)
    end = row("turn/end", turn=1, reason={"kind": "completed"})
    writer.add(end[:-5])
    assert log_of(store).open
    writer.add(end[-5:])
    assert (log_of(store).turn, log_of(store).open, log_of(store).since_end) == (1, False, set())
    writer.add(row("session/config", mode="ask"))
    assert log_of(store).since_end == {"session/config"}
    writer.add(row("turn/start", turn=2))
    assert (log_of(store).turn, log_of(store).open, log_of(store).since_end) == (2, True, None)


def test_what_is_no_log_and_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    store, writer = GrowingFiles(tmp_path), Writer(tmp_path)
    Writer(tmp_path, "other.jsonl").add(row("turn/start", turn=9))
    Writer(tmp_path, "broken.jsonl").add("{\n")
    writer.add(header("s") + "oops\n" + row("turn/start", turn=1))
    assert [log.id for log in store.look()] == ["s"]
    assert log_of(store).turn == 1


def test_descendants_are_those_of_one_session_in_the_order_of_their_creation(tmp_path: Path) -> None:
    store = GrowingFiles(tmp_path)
    for name, text in (
        ("a", header("root", 1)), ("b", header("late", 9, "root")), ("c", header("grandchild", 5, "early")),
        ("d", header("early", 3, "root")), ("e", header("other", 2)), ("f", header("stranger", 4, "other")),
    ):
        Writer(tmp_path, f"{name}.jsonl").add(text)
    assert [log.id for log in store.descendants("root")] == ["early", "grandchild", "late"]
    assert [log.id for log in store.descendants("late")] == []


def test_a_log_that_was_deleted_is_no_longer_there(tmp_path: Path) -> None:
    store = GrowingFiles(tmp_path)
    for name in ("gone", "there"):
        Writer(tmp_path, f"{name}.jsonl").add(header(name) + row("turn/start", turn=1))
    assert [log.id for log in store.look()] == ["gone", "there"]
    (tmp_path / "gone.jsonl").unlink()
    assert [log.id for log in store.look()] == ["there"]


async def write(appender: Appender, seq: int, *bodies: Body) -> None:
    for number, body in enumerate(bodies, seq):
        appender.append(Event(number, number, body))
    await appender.write()


@pytest.mark.anyio
async def test_an_agents_database_is_followed_from_event_to_event(tmp_path: Path) -> None:
    growing, store = GrowingDatabase(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db")
    assert growing.look() == []
    root = store.create(root_header(), ROOT)
    await write(root, 0, TurnStart(1))
    assert (log_of(growing, ROOT).turn, log_of(growing, ROOT).open) == (1, True)
    child = store.create(child_header(), ROOT)
    await write(child, 0, SessionConfig(mode="ask"))
    assert [log.id for log in growing.descendants(ROOT)] == [CHILD]
    await write(root, 1, TurnEnd(1, Completed()))
    assert (log_of(growing, ROOT).open, log_of(growing, ROOT).since_end) == (False, set())
    await write(root, 2, SessionConfig(mode="ask"), TurnStart(2), TurnEnd(2, Completed()), SessionConfig(mode="ask"))
    assert (log_of(growing, ROOT).turn, log_of(growing, ROOT).since_end) == (2, {"session/config"})
    await store.aclose()
    assert log_of(growing, ROOT).turn == 2
    again = SqliteStore(tmp_path / "s.db")
    await again.delete(ROOT)
    await again.aclose()
    assert growing.look() == []


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_what_a_family_did_is_counted_by_its_places_without_what_was_inherited(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ("logs" if kind == "jsonl" else "s.db")
    store: Store = JsonlStore(place) if kind == "jsonl" else SqliteStore(place)
    growing: GrowingStore = GrowingFiles(place) if kind == "jsonl" else GrowingDatabase(place)
    root = store.create(root_header(), ROOT)
    await write(root, 0, TurnStart(1), sent(1), started("c"))
    fork = store.create(child_header(seed=3), ROOT)
    await write(fork, 0, TurnStart(1), sent(1), TurnEnd(1, Completed()), EndSeed(), TurnStart(2), sent(2), started("d"),
                sent(2), EndSeed())
    await write(store.create(child_header("deep", CHILD, created=3, call="d", index=1), ROOT), 0, started("d"))
    below = growing.below(ROOT)
    first, second = Hop(CallId("c")), Hop(CallId("d"), 1)
    assert {path: (log.asked, log.started) for path, log in below.items()} == {
        (first,): (2, {"d": 1}), (first, second): (0, {"d": 1})}
    assert (log_of(growing, ROOT).asked, log_of(growing, ROOT).started) == (1, {"c": 1})
    await store.aclose()


def sent(turn: int) -> Body:
    return RequestSent(turn, 1, "main", 0, MessageId("m"), RequestParts("c", "s", "t", MessageDigests(0, "", [])))


def started(call: str) -> Body:
    return ToolCall(turn=1, step=1, call_id=CallId(call), name="bash", arguments="{}")

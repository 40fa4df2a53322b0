"""Reading session logs while they grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from replay.stored import GrowingLog, GrowingStore


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
    store, writer = GrowingStore(tmp_path), Writer(tmp_path / "deep" / "er")
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
    store, writer = GrowingStore(tmp_path), Writer(tmp_path)
    Writer(tmp_path, "other.jsonl").add(row("turn/start", turn=9))
    Writer(tmp_path, "broken.jsonl").add("{\n")
    writer.add(header("s") + "oops\n" + row("turn/start", turn=1))
    assert [log.id for log in store.look()] == ["s"]
    assert log_of(store).turn == 1


def test_descendants_are_those_of_one_session_in_the_order_of_their_creation(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    for name, text in (
        ("a", header("root", 1)), ("b", header("late", 9, "root")), ("c", header("grandchild", 5, "early")),
        ("d", header("early", 3, "root")), ("e", header("other", 2)), ("f", header("stranger", 4, "other")),
    ):
        Writer(tmp_path, f"{name}.jsonl").add(text)
    assert [log.id for log in store.descendants("root")] == ["early", "grandchild", "late"]
    assert [log.id for log in store.descendants("late")] == []

"""Recordings whose records have no numbers: every store reads none of them into itself, and JSONL continues none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_agent.errors import LogDamaged, ProjectedLog
from acp_agent.session.codec import encode_header, pack
from acp_agent.session.events import Event, TurnEnd
from acp_agent.stores.jsonl import JsonlStore, read_log
from tests.support.store_builders import (
    CHILD,
    ROOT,
    Bench,
    child_header,
    continued,
    exported,
    listed,
    root_header,
    tree_of,
    turn,
)

pytestmark = pytest.mark.anyio

WORDS = "its records have no seq and time: it is a recording to replay, and cannot be continued"
FIRST = turn(1, 0, title="A title", tool=True)
SECOND = turn(2, len(FIRST))


def projected(events: Sequence[Event]) -> bytes:
    """Rows of a log without their numbers (format reference 1.12)."""
    return re.sub(rb'(?m)^(\{"type":"[^"]+"),"seq0?":\d+,"time0?":\d+', rb"\1", pack(events))


def put(root: Path, rows: bytes, *, header: bytes = encode_header(root_header())) -> Path:
    """Put a log where the JSONL store has it, as a copy of a recording is put."""
    log = root / "--w--" / ROOT / "session.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(header + rows)
    return log


def everything(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in root.rglob("*")}


async def test_a_projected_log_is_read_but_not_continued_or_forked(tmp_path: Path) -> None:
    log = put(tmp_path, projected(FIRST))
    before = everything(tmp_path)
    store = JsonlStore(tmp_path)
    assert await listed(store) == [ROOT]
    assert await exported(store, ROOT) == log.read_bytes()
    read = await store.inspect(ROOT)
    assert read.projected
    assert [event.body for event in read.events] == [event.body for event in FIRST]
    with pytest.raises(ProjectedLog) as told:
        await store.load(ROOT)
    assert told.value.message == f"{log}:2: {WORDS}"
    fork = store.create(root_header("fork", seed=len(FIRST)), ROOT)
    for cut in (len(FIRST), 3, 0):
        with pytest.raises(ProjectedLog) as told:
            await store.fork(fork.header.id, ROOT, cut)
        assert told.value.message == f"{log}:2: {WORDS}"
    await fork.aclose()
    assert everything(tmp_path) == before


async def test_no_store_takes_a_projected_log_in(bench: Bench, tmp_path: Path) -> None:
    if bench.kind == "memory":
        pytest.skip("memory takes in no files")
    whole = encode_header(root_header()) + pack(FIRST)
    for logs, at in (((encode_header(root_header()) + projected(FIRST),), 0),
                     ((whole, encode_header(child_header()) + projected(turn(1, 0))), 1)):
        store = bench.open()
        tree = tree_of(tmp_path / "in", *logs)
        before = bench.snapshot()
        with pytest.raises(LogDamaged, match=re.escape(f"{tree.logs[at]}:2: {WORDS}")):
            await store.adopt(tree)
        assert bench.snapshot() == before
        assert await listed(store) == []


async def test_a_header_alone_is_continued(tmp_path: Path) -> None:
    put(tmp_path, b"")
    await continued(JsonlStore(tmp_path), ROOT, FIRST)
    assert list((await JsonlStore(tmp_path).inspect(ROOT)).events) == FIRST


# ---------------------------------------------------------------- repairs


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("damaged", [False, True])
async def test_a_repair_of_a_projected_log_says_what_it_is_and_drops_nothing(
    tmp_path: Path, dry_run: bool, damaged: bool,
) -> None:
    rows = projected(FIRST)
    log = put(tmp_path, b"garbage\n" + rows[:200] + b"\n" + rows if damaged else rows)
    before = everything(tmp_path)
    with pytest.raises(LogDamaged, match=WORDS):
        await JsonlStore(tmp_path).repair(ROOT, dry_run=dry_run)
    assert everything(tmp_path) == before
    assert log.parent.exists()


async def test_a_projected_log_that_was_continued_is_numbered_as_it_was_counted(tmp_path: Path) -> None:
    log = put(tmp_path, projected(FIRST) + pack(SECOND))
    store = JsonlStore(tmp_path)
    with pytest.raises(LogDamaged, match=f"one or the other; `acp-agent sessions repair {ROOT}`"):
        await store.load(ROOT)
    before = log.read_bytes()
    tried = await store.repair(ROOT, dry_run=True)
    assert log.read_bytes() == before
    report = await store.repair(ROOT)
    lines = len(projected(FIRST).splitlines())
    assert list(report.changes) == list(tried.changes) == [
        f"lines 2 to {lines + 1}: without seq and time, as in a recording to replay; numbered 0 to {len(FIRST) - 1}"]
    assert report.kept == len(FIRST) + len(SECOND)
    assert report.backup is not None
    assert report.backup.read_bytes() == before
    events = read_log(log)[0].events
    assert [event.body for event in events] == [event.body for event in [*FIRST, *SECOND]]
    assert list(events[len(FIRST):]) == SECOND
    assert {event.time for event in events[: len(FIRST)]} == {root_header().created_at}
    assert (await store.repair(ROOT)).changes == []
    opened = await store.load(ROOT)
    assert isinstance(opened.settled[-1].body, TurnEnd)
    await opened.appender.aclose()


LINES = projected(FIRST).splitlines(keepends=True)


@pytest.mark.parametrize("rows", [
    b"".join(LINES[:-1]), b"".join(LINES[1:]), b"".join([*LINES[:4], b"garbage\n", *LINES[5:]]),
    b"garbage\n" + b"".join(LINES), b"".join(LINES + LINES[-2:]),
], ids=["last-missing", "first-missing", "one-damaged", "garbage", "too-many"])
async def test_a_repair_changes_nothing_where_the_numbers_are_not_certain(tmp_path: Path, rows: bytes) -> None:
    log = put(tmp_path, rows + pack(SECOND))
    before = everything(tmp_path)
    line = len(rows.splitlines()) + 2
    for dry_run in (True, False):
        with pytest.raises(LogDamaged, match=f"^{log}:{line}: the rows above have no seq and time.*nothing is changed"):
            await JsonlStore(tmp_path).repair(ROOT, dry_run=dry_run)
    assert everything(tmp_path) == before


async def test_a_row_that_lost_its_number_is_dropped_as_damage(tmp_path: Path) -> None:
    rows = pack(FIRST).splitlines(keepends=True)
    put(tmp_path, b"".join([*rows[:3], LINES[3], *rows[4:]]))
    report = await JsonlStore(tmp_path).repair(ROOT)
    assert report.changes[0] == "line 5: dropped, for it is damaged: it has no number"


async def test_a_projected_child_leaves_its_root_usable(tmp_path: Path) -> None:
    log = put(tmp_path, pack(FIRST))
    log.with_name("session.1.jsonl").write_bytes(encode_header(child_header()) + projected(turn(1, 0)))
    store = JsonlStore(tmp_path)
    with pytest.raises(ProjectedLog, match=r"session\.1\.jsonl:2: " + WORDS):
        await store.load(CHILD)
    await continued(store, ROOT, SECOND)
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD]

"""One writer, over every store: who holds a tree, what others may still do, and what a killed holder leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acp_agent.errors import SessionHeld, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, TurnStart
from tests.support.store_builders import (
    CHILD,
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
    turn,
)

pytestmark = pytest.mark.anyio

real_stores = pytest.mark.parametrize("bench", ["jsonl", "sqlite"], indirect=True)
HERE = Path(__file__).parents[3]


class Holder:
    """Another process that has a session open for writing."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.expect("held")

    def expect(self, words: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == words + "\n"

    def write(self, number: int) -> None:
        """Have it append one event."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        self.expect("written")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=30) == 0


@contextmanager
def held(bench: Bench, session: str) -> Iterator[Holder]:
    command = [sys.executable, "-m", "tests.support.store_holder", bench.kind, str(bench.place), session]
    with subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Holder(process)
        finally:
            process.kill()


# ---------------------------------------------------------------- in one process


async def test_a_session_open_in_one_store_is_refused_in_another_naming_the_holder(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    await stored(first, root_header(), turn(1, 0))
    opened = await first.load(ROOT)
    for deed in (second.load, second.delete, second.repair):
        with pytest.raises(SessionHeld) as caught:
            await deed(ROOT)
        assert caught.value.facts["holder"]
    await opened.appender.aclose()
    await (await second.load(ROOT)).appender.aclose()


async def test_a_new_session_is_held_from_its_first_write(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    appender = first.create(root_header(), ROOT)
    appender.append(Event(0, 1, TurnStart(1)))
    await appender.write()
    with pytest.raises(SessionHeld):
        await second.load(ROOT)
    await appender.aclose()
    await (await second.load(ROOT)).appender.aclose()


async def test_a_tree_is_held_as_one_until_its_last_log_is_closed(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    root = first.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    child = first.create(child_header(), ROOT)
    fill(child, turn(1, 0))
    await child.write()
    await root.aclose()
    for session in (ROOT, CHILD):
        with pytest.raises(SessionHeld if session == ROOT else StoreError):
            await second.load(session)
    await first.load(ROOT)
    await child.aclose()
    with pytest.raises(SessionHeld):
        await second.load(CHILD)
    await first.aclose()
    await (await second.load(CHILD)).appender.aclose()


async def test_loading_a_child_holds_its_tree(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    root = first.create(root_header(), ROOT)
    fill(root, turn(1, 0))
    await root.write()
    await stored(first, child_header(), turn(1, 0), ROOT)
    await root.aclose()
    opened = await first.load(CHILD)
    with pytest.raises(SessionHeld):
        await second.load(ROOT)
    await first.load(ROOT)
    await opened.appender.aclose()
    with pytest.raises(SessionHeld):
        await second.load(CHILD)


async def test_reading_needs_no_lock(bench: Bench, tmp_path: Path) -> None:
    first, second = bench.open(), bench.open()
    await stored(first, root_header(), turn(1, 0))
    await first.load(ROOT)
    await first.put_blob(ROOT, b"picture")
    assert list((await second.inspect(ROOT)).events) == turn(1, 0)
    assert list(await second.read_from(ROOT, 4)) == turn(1, 0)[4:]
    assert await listed(second) == [ROOT]
    assert len(await second.tree(ROOT)) == 1
    assert len((await export_tree(second, ROOT, tmp_path / "tree")).blobs) == 1


async def test_other_trees_are_free(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    for name in ("one", "two"):
        await stored(first, root_header(name), turn(1, 0))
    await first.load(SessionId("one"))
    await continued(second, "two", [end_seed(len(turn(1, 0)))])
    await second.delete(SessionId("two"))


async def test_a_new_id_that_another_store_wrote_first_is_refused(bench: Bench) -> None:
    first, second = bench.open(), bench.open()
    late, early = first.create(root_header(), ROOT), second.create(root_header(), ROOT)
    fill(early, turn(1, 0))
    await early.aclose()
    before = bench.snapshot()
    late.append(Event(0, 1, TurnStart(1)))
    with pytest.raises(StoreError):
        await late.write()
    with pytest.raises(StoreError):
        await late.aclose()
    assert bench.snapshot() == before
    await (await second.load(ROOT)).appender.aclose()


# ---------------------------------------------------------------- between processes


@real_stores
async def test_another_process_is_named_and_reading_goes_on(bench: Bench) -> None:
    store = bench.open()
    await stored(store, root_header(), turn(1, 0))
    with held(bench, ROOT) as holder:
        for deed in (store.load, store.delete, store.repair):
            with pytest.raises(SessionHeld, match=rf"\b{holder.pid}\b") as caught:
                await deed(ROOT)
            assert str(holder.pid) in caught.value.facts["holder"]
        assert len((await store.inspect(ROOT)).events) == len(turn(1, 0))
        holder.write(2)
        assert len((await store.inspect(ROOT)).events) == len(turn(1, 0)) + 1
        assert await listed(store) == [ROOT]
        holder.end()
    await continued(store, ROOT, [end_seed(len(turn(1, 0)) + 1)])


@real_stores
async def test_what_a_killed_process_held_is_free_and_what_it_wrote_is_there(bench: Bench) -> None:
    store = bench.open()
    with held(bench, ROOT) as holder:
        for number in range(2, 8):
            holder.write(number)
        with pytest.raises(SessionHeld):
            await store.load(ROOT)
        holder.kill()
    events = [Event(at, 1, TurnStart(at + 1)) for at in range(7)]
    assert list((await store.inspect(ROOT)).events) == events
    opened = await store.load(ROOT)
    assert list(opened.settled) == events
    opened.appender.append(Event(7, 1, TurnStart(8)))
    await opened.appender.aclose()
    assert (await exported(bench.open(), ROOT)).count(b"turn/start") == 8


@real_stores
async def test_a_killed_process_does_not_stop_a_deletion(bench: Bench) -> None:
    with held(bench, ROOT) as holder:
        holder.kill()
    store = bench.open()
    await store.delete(ROOT)
    assert await listed(store) == []

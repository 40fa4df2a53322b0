"""A log that something else removes, replaces or cuts while it is open: told with the next write, and nothing is lost
unseen or glued onto half a line.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.errors import SessionHeld, SessionNotFound, StoreError
from acp_agent.stores.base import Appender
from acp_agent.stores.jsonl import JsonlStore, read_log
from tests.support.store_builders import CHILD, ROOT, child_header, fill, root_header, stored, turn

pytestmark = pytest.mark.anyio

FIRST = turn(1, 0)
SECOND = turn(2, len(FIRST))


def remove(log: Path) -> None:
    log.unlink()


def remove_all(log: Path) -> None:
    shutil.rmtree(log.parent)


def replace(log: Path) -> None:
    """As an editor saves: the same text in another file."""
    shutil.copy(log, log.with_name("copy"))
    log.with_name("copy").replace(log)


def cut(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 10)


def lengthen(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"type":')


Change = Callable[[Path], None]

CHANGES: dict[Change, str] = {
    remove: "it was removed while the session was open; put it back", remove_all: "it was removed while",
    replace: "another file was put in its place", cut: "bytes where", lengthen: "bytes where",
}
"""What can happen to an open log, and what is told of it."""


async def begun(store: JsonlStore, *, loaded: bool) -> Appender:
    if not loaded:
        appender = store.create(root_header(), ROOT)
        fill(appender, FIRST)
        await appender.sync()
        return appender
    await stored(store, root_header(), FIRST)
    return (await store.load(ROOT)).appender


def everything(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_log_is_told_with_each_write_and_left_as_it_is(
    tmp_path: Path, change: Change, loaded: bool,
) -> None:
    store = JsonlStore(tmp_path)
    appender = await begun(store, loaded=loaded)
    (log,) = tmp_path.rglob("session.jsonl")
    change(log)
    after = everything(tmp_path)
    fill(appender, SECOND)
    for deed in (appender.write, appender.sync, appender.aclose):
        with pytest.raises(StoreError, match=f"^{log}: the session log cannot be written: .*{CHANGES[change]}") as told:
            await deed()
        assert "close the session, and load it again" in told.value.message
    assert everything(tmp_path) == after
    await store.aclose()


@pytest.mark.parametrize("change", CHANGES)
async def test_what_was_written_is_not_called_safe_when_the_log_is_not_there_any_more(
    tmp_path: Path, change: Change,
) -> None:
    appender = await begun(JsonlStore(tmp_path), loaded=False)
    fill(appender, SECOND)
    await appender.write()
    (log,) = tmp_path.rglob("session.jsonl")
    change(log)
    for _ in range(2):
        with pytest.raises(StoreError, match=CHANGES[change]):
            await appender.sync()


async def test_a_log_that_is_moved_back_takes_what_it_missed(tmp_path: Path) -> None:
    appender = await begun(JsonlStore(tmp_path), loaded=True)
    (log,) = tmp_path.rglob("session.jsonl")
    log.rename(tmp_path / "away")
    fill(appender, SECOND)
    with pytest.raises(StoreError, match="it was removed"):
        await appender.write()
    (tmp_path / "away").rename(log)
    await appender.aclose()
    assert list(read_log(log)[0].events) == [*FIRST, *SECOND]


@pytest.mark.parametrize("change", [replace, cut, lengthen])
async def test_a_session_that_is_loaded_again_goes_on_with_what_is_there(tmp_path: Path, change: Change) -> None:
    store = JsonlStore(tmp_path)
    appender = await begun(store, loaded=True)
    (log,) = tmp_path.rglob("session.jsonl")
    change(log)
    fill(appender, SECOND)
    with pytest.raises(StoreError):
        await appender.aclose()
    opened = await store.load(ROOT)
    assert opened.count == len(FIRST) - (change is cut)
    fill(opened.appender, [*FIRST, *SECOND][opened.count:])
    await opened.appender.aclose()
    assert list(read_log(log)[0].events) == [*FIRST, *SECOND]


async def test_nothing_is_begun_beside_a_log_whose_directory_is_gone(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    appender = await begun(store, loaded=True)
    (log,) = tmp_path.rglob("session.jsonl")
    shutil.rmtree(log.parent)
    with pytest.raises(StoreError, match="removed while the session was open; put it back"):
        await store.put_blob(ROOT, b"picture")
    child = store.create(child_header(), ROOT)
    fill(child, turn(1, 0))
    with pytest.raises(StoreError, match="removed while the session was open; put it back"):
        await child.write()
    assert not log.parent.exists()
    await appender.aclose()
    with pytest.raises(StoreError, match="removed while"):
        await store.aclose()
    with pytest.raises(SessionNotFound):
        await store.load(ROOT)


async def test_a_lock_that_somebody_removed_is_taken_again(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    appender = await begun(store, loaded=True)
    (lock,) = tmp_path.rglob("lock")
    lock.unlink()
    await store.put_blob(ROOT, b"picture")
    with pytest.raises(SessionHeld):
        await JsonlStore(tmp_path).load(ROOT)
    await appender.aclose()
    assert not lock.exists()


async def test_whoever_took_a_lock_that_somebody_removed_is_the_writer(tmp_path: Path) -> None:
    store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
    appender = await begun(store, loaded=True)
    (lock,) = tmp_path.rglob("lock")
    lock.unlink()
    opened = await other.load(ROOT)
    fill(opened.appender, SECOND)
    await opened.appender.sync()
    fill(appender, SECOND)
    with pytest.raises(StoreError, match="bytes where"):
        await appender.write()
    child = store.create(child_header(CHILD), ROOT)
    fill(child, turn(1, 0))
    with pytest.raises(SessionHeld):
        await child.write()
    await opened.appender.aclose()
    (log,) = tmp_path.rglob("session.jsonl")
    assert list(read_log(log)[0].events) == [*FIRST, *SECOND]


async def test_a_write_looks_at_the_file_once_however_many_events_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    appender = await begun(JsonlStore(tmp_path), loaded=True)
    looks: list[int] = []
    real = os.fstat

    def look(fd: int) -> os.stat_result:
        looks.append(fd)
        return real(fd)

    fill(appender, SECOND)
    monkeypatch.setattr(os, "fstat", look)
    await appender.write()
    assert len(looks) == 1

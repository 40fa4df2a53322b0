"""A JSONL log that cannot be written is left as it was, says so, and is written as soon as it can be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, SessionHeader, SessionTitle, TitleSource, TurnStart
from acp_agent.stores import files
from acp_agent.stores.jsonl import JsonlAppender, JsonlStore, read_log

ROOT = SessionId("root")
HEADER = SessionHeader(id=ROOT, created_at=1, cwd="/w")


def event(seq: int) -> Event:
    return Event(seq, 100, SessionTitle("t" * 50, [0], TitleSource("fallback")))


def opened(root: Path) -> JsonlAppender:
    return JsonlStore(root).create(HEADER, ROOT)


def failing_once(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> None:
    """The next write puts `after` bytes into the file and then finds the disk full."""
    real: Callable[[int, Any], int] = os.write
    sizes = iter([after] * (after > 0))

    def write(fd: int, data: Any) -> int:
        size = next(sizes, None)
        if size is not None:
            return real(fd, data[:size])
        monkeypatch.setattr(os, "write", real)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("after", [0, 1, 20])
@pytest.mark.anyio
async def test_a_failed_append_is_rolled_back_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int,
) -> None:
    appender = opened(tmp_path)
    appender.append(event(0))
    await appender.write()
    before = appender.path.read_bytes()
    appender.append(event(1))
    failing_once(monkeypatch, after=after)
    with pytest.raises(StoreError, match=r"session\.jsonl.*cannot be written: No space left on device; "
                       "the disk is full; free some space$"):
        await appender.write()
    assert appender.path.read_bytes() == before
    appender.append(event(2))
    await appender.sync()
    assert list(read_log(appender.path)[0].events) == [event(0), event(1), event(2)]
    await appender.aclose()


@pytest.mark.parametrize("after", [0, 20])
@pytest.mark.anyio
async def test_a_failed_creation_leaves_no_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int,
) -> None:
    appender = opened(tmp_path)
    appender.append(event(0))
    failing_once(monkeypatch, after=after)
    with pytest.raises(StoreError):
        await appender.write()
    assert list(tmp_path.rglob("*")) == [tmp_path / "--w--"], "no half file, no lock, no directory of a session"
    await appender.aclose()
    assert list(read_log(appender.path)[0].events) == [event(0)]


@pytest.mark.anyio
async def test_when_even_the_rollback_fails_the_next_write_repairs_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    appender = opened(tmp_path)
    appender.append(event(0))
    await appender.write()
    before = appender.path.read_bytes()
    appender.append(event(1))
    failing_once(monkeypatch, after=20)
    truncate = os.ftruncate
    failures = iter(["rollback", "next write"])

    def fail(fd: int, size: int) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.EIO, "Input/output error")
        truncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", fail)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be written: Input/output error"):
            await appender.write()
        assert len(appender.path.read_bytes()) == len(before) + 20
    await appender.write()
    assert list(read_log(appender.path)[0].events) == [event(0), event(1)]
    await appender.aclose()


@pytest.mark.parametrize("after", [0, 20])
@pytest.mark.anyio
async def test_a_session_that_could_not_be_begun_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int,
) -> None:
    appender = opened(tmp_path)
    appender.append(event(0))
    failing_once(monkeypatch, after=after)
    with pytest.raises(StoreError):
        await appender.write()
    other = opened(tmp_path)
    other.append(event(0))
    await other.aclose()
    with pytest.raises(StoreError, match="there is one already"):
        await appender.write()
    assert list(read_log(other.path)[0].events) == [event(0)]
    await (await JsonlStore(tmp_path).load(ROOT)).appender.aclose()


@pytest.mark.anyio
async def test_no_event_is_taken_after_the_end(tmp_path: Path) -> None:
    appender = opened(tmp_path)
    appender.append(event(0))
    await appender.aclose()
    with pytest.raises(StoreError, match="closed"):
        appender.append(event(1))
    await appender.write()
    await appender.sync()
    assert list(read_log(appender.path)[0].events) == [event(0)]


@pytest.mark.anyio
async def test_a_failed_sync_is_reported_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def fail(fd: int) -> None:
        synced.append(fd)
        if len(synced) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync_data", fail)
    appender = opened(tmp_path)
    appender.append(event(0))
    with pytest.raises(StoreError, match="cannot be synced"):
        await appender.sync()
    await appender.sync()
    assert len(synced) == 2
    await appender.sync()
    assert len(synced) == 2, "nothing new was written, so there is nothing to sync"
    await appender.aclose()


@pytest.mark.anyio
async def test_a_store_that_cannot_be_made_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    appender = opened(tmp_path / "file")
    appender.append(event(0))
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        await appender.write()


@pytest.mark.anyio
async def test_a_store_that_is_a_link_to_nowhere_is_told_as_one(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "unmounted" / "store"
    link.symlink_to(target)
    appender = opened(link)
    appender.append(event(0))
    with pytest.raises(StoreError, match=f"cannot be written: {link} is a symbolic link that leads nowhere; ACP_SESS"):
        await appender.write()
    assert not target.parent.exists()
    target.mkdir(parents=True)
    await appender.aclose()
    assert list(read_log(target / "--w--" / ROOT / "session.jsonl")[0].events) == [event(0)]


LIMITED = """
import os, resource, signal, sys
import anyio
from acp_agent.errors import StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, SessionHeader, TurnStart
from acp_agent.stores.jsonl import JsonlStore
from pathlib import Path

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    header = SessionHeader(id=SessionId("root"), created_at=1, cwd="/w")
    appender = JsonlStore(Path(sys.argv[1])).create(header, header.id)
    appender.append(Event(0, 1, TurnStart(1)))
    await appender.write()
    size = appender.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    appender.append(Event(1, 1, TurnStart(2)))
    try:
        await appender.sync()
    except StoreError as error:
        sys.stderr.write(str(error))
    assert appender.path.stat().st_size == size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await appender.aclose()

anyio.run(main)
"""


def test_a_real_file_size_limit_is_survived(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True,
                          check=True, timeout=60, cwd=Path(__file__).parents[3])
    assert "cannot be written: File too large" in done.stderr
    log = read_log(tmp_path / "--w--" / "root" / "session.jsonl")[0]
    assert [one.body for one in log.events] == [TurnStart(1), TurnStart(2)]

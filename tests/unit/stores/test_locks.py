"""One writer a tree: the lock is exclusive, names its holder, and dies with it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from acp_agent.errors import SessionHeld
from acp_agent.ids import SessionId
from acp_agent.stores.locks import TreeLock

TREE = SessionId("tree")
PROJECT = Path(__file__).parents[3]

HOLDER = """
import sys
from pathlib import Path
from acp_agent.stores.locks import TreeLock
lock = TreeLock.take(Path(sys.argv[1]), "tree")
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is told a line."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_a_held_lock_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(SessionHeld) as caught:
            TreeLock.take(path, TREE)
        assert f"process {process.pid} on host {os.uname().nodename}, since 20" in caught.value.message
        assert "'tree'" in caught.value.message
        assert tell(process) == "released\n"
        TreeLock.take(path, TREE).release()


def test_a_killed_holders_lock_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        process.kill()
        process.wait()
        assert path.exists()
        lock = TreeLock.take(path, TREE)
        assert msgspec.json.decode(path.read_bytes())["pid"] == os.getpid()
        lock.release()
    assert not path.exists()


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    lock = TreeLock.take(tmp_path / "lock", TREE)
    with pytest.raises(SessionHeld, match=rf"process {os.getpid()} \(this one\)"):
        TreeLock.take(tmp_path / "lock", TREE)
    lock.release()
    TreeLock.take(tmp_path / "lock", TREE).release()


def test_releasing_removes_the_file_and_may_be_done_twice(tmp_path: Path) -> None:
    lock = TreeLock.take(tmp_path / "lock", TREE)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    lock.release()
    assert list(tmp_path.iterdir()) == []
    other = TreeLock.take(tmp_path / "lock", TREE)
    lock.release()
    with pytest.raises(SessionHeld):
        TreeLock.take(tmp_path / "lock", TREE)
    other.release()


def test_a_lock_file_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    lock = TreeLock.take(tmp_path / "lock", TREE)
    (tmp_path / "lock").unlink()
    other = TreeLock.take(tmp_path / "lock", TREE)
    lock.release()
    assert (tmp_path / "lock").exists()
    other.release()


def test_a_lock_whose_directory_was_renamed_is_removed_under_the_new_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    lock = TreeLock.take(tmp_path / "a" / "lock", TREE)
    (tmp_path / "a").rename(tmp_path / "b")
    lock.moved(tmp_path / "b" / "lock")
    with pytest.raises(SessionHeld):
        TreeLock.take(tmp_path / "b" / "lock", TREE)
    lock.release()
    assert list((tmp_path / "b").iterdir()) == []


def test_a_dead_process_is_never_named_as_the_holder(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path = tmp_path / "lock"
    lock = TreeLock.take(path, TREE)
    path.write_text(f'{{"pid":{gone.pid},"host":"{os.uname().nodename}","since":"2020"}}')
    with pytest.raises(SessionHeld, match="in another process"):
        TreeLock.take(path, TREE)
    lock.release()


@pytest.mark.parametrize("content", ["", "nonsense", '{"pid":', '{"pid":1e99,"host":"x","since":""}'])
def test_what_stands_in_the_file_does_not_decide(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lock"
    path.write_text(content)
    lock = TreeLock.take(path, TREE)
    path.write_text(content)
    with pytest.raises(SessionHeld, match="in another process"):
        TreeLock.take(path, TREE)
    lock.release()


def test_a_program_started_by_the_holder_does_not_hold_it(tmp_path: Path) -> None:
    lock = TreeLock.take(tmp_path / "lock", TREE)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    lock.release()
    TreeLock.take(tmp_path / "lock", TREE).release()
    child.communicate(b"\n")


@pytest.mark.parametrize("make", [
    lambda path: path.mkdir(), lambda path: path.symlink_to("elsewhere"), lambda path: path.symlink_to(path),
])
def test_something_else_under_the_locks_name_is_an_error_not_a_lock(tmp_path: Path, make: object) -> None:
    make(tmp_path / "lock")  # type: ignore[operator]  # one of the three above
    with pytest.raises(OSError, match=rf"\[Errno ({errno.EISDIR}|{errno.ELOOP})\]"):
        TreeLock.take(tmp_path / "lock", TREE)
    assert not (tmp_path / "elsewhere").exists()


def test_many_takers_never_hold_it_together(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    inside: list[int] = []
    together: list[int] = []
    rounds: list[int] = []

    def work() -> None:
        taken = 0
        while taken < 50:
            try:
                lock = TreeLock.take(path, TREE)
            except SessionHeld:
                continue
            inside.append(1)
            together.append(len(inside))
            inside.pop()
            lock.release()
            taken += 1
        rounds.append(taken)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rounds == [50] * 4
    assert set(together) == {1}

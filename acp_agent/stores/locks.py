"""One writer a tree: a lock file that is held while a process may write to a session or its descendants.

The lock is the kernel's (`flock`), so that a killed holder gives it up at once; what the file says only names the
holder. The file is removed by the holder, so a file that is there is held, or left by a process that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import msgspec

from acp_agent.errors import SessionHeld
from acp_agent.ids import SessionId

_LOOKS = 5
"""How often a lock file is read again that names no living holder: one that has just taken it is about to write it."""

_PAUSE = 0.002
"""Seconds between two looks."""


class _Holder(msgspec.Struct):
    """What a lock file says. `since` is in UTC."""

    pid: int
    host: str
    since: str

    def alive(self) -> bool:
        """False only when the process is known to be gone."""
        if self.host != os.uname().nodename:
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return True

    def text(self) -> str:
        here = " (this one)" if self.pid == os.getpid() and self.host == os.uname().nodename else ""
        return f"process {self.pid}{here} on host {self.host}, since {self.since}"


class TreeLock:
    """The right to write to one tree, from `take` until `release`. Belongs to the process, not to a thread."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd: int | None = fd

    @staticmethod
    def take(path: Path, session: SessionId) -> TreeLock:
        """Hold the lock file at `path`, whose directory exists, for the tree of `session`; never waits for a holder.

        Raises `SessionHeld` when another process, or another store of this one, holds it, and `OSError` when the file
        cannot be made.
        """
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            try:
                if not _flock(fd):
                    raise SessionHeld(session, _holder(fd))
                if _is_at(path, fd):
                    _sign(fd)
                    return TreeLock(path, fd)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def in_place(self) -> bool:
        """Whether the file still is the one that others see. One that was removed keeps nobody away."""
        return self._fd is not None and _is_at(self._path, self._fd)

    def moved(self, path: Path) -> None:
        """Tell the lock that its file's directory has another name now."""
        self._path = path

    def release(self) -> None:
        """Remove the file and let the next one write. Safe to call twice."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with contextlib.suppress(OSError):
            if _is_at(self._path, fd):
                self._path.unlink()
        os.close(fd)


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    """Whether the open file still is the one at `path`: its last holder may have removed it."""
    try:
        named = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(fd))


def _sign(fd: int) -> None:
    """Say who holds the lock. That it cannot be written (a full disk) does not make it less held."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = msgspec.json.encode(_Holder(os.getpid(), os.uname().nodename, since))
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text + b"\n", 0)


def _holder(fd: int) -> str:
    for _ in range(_LOOKS):
        try:
            holder = msgspec.json.decode(os.pread(fd, 4096, 0), type=_Holder)
            if holder.alive():
                return holder.text()
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
            pass
        time.sleep(_PAUSE)
    return "another process"

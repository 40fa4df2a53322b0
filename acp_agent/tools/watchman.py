"""A process beside this one that ends its commands when it is killed: started with the first command, one for all.

One per command would cost each some thirty milliseconds; telling this one costs none. See `trees` for what it does.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from acp_agent.tools import trees

if TYPE_CHECKING:
    from subprocess import Popen

_INHERITED = ("LD_LIBRARY_PATH",)
"""What a Python may need to start. Keys of the environment are none of its business."""

_FAREWELL = 0.5  # seconds its end is waited for when this process ends


@contextmanager
def watched(mark: str) -> Iterator[Callable[[int], None]]:
    """Meanwhile the command with this mark in its environment ends with this process; to be told its process id, too.

    Raises OSError when there can be no watchman.
    """
    _watchman.note(mark, 0)
    try:
        yield lambda pid: _watchman.note(mark, pid)
    finally:
        _watchman.forget(mark)


class _Watchman:
    """This side of the pipe. Whoever ends the watchman gets another one that knows all that runs."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._process: Popen[bytes] | None = None

    def note(self, mark: str, pid: int) -> None:
        """A command is about to be started, or has this process id."""
        self._running[mark] = pid
        try:
            self._tell(f"{mark} {pid}")
        except (BrokenPipeError, BlockingIOError):  # it was killed or stopped
            self._start()

    def forget(self, mark: str) -> None:
        """A command is over."""
        self._running.pop(mark, None)
        try:
            self._tell(mark)
        except (BrokenPipeError, BlockingIOError):
            self._start()

    def _tell(self, line: str) -> None:
        if self._process is None:
            raise BrokenPipeError
        os.write(_pipe(self._process).fileno(), f"{line}\n".encode())  # whole: it is shorter than PIPE_BUF

    def _start(self) -> None:
        from subprocess import DEVNULL, PIPE, Popen

        self._dismiss()
        self._process = Popen(
            [sys.executable, "-I", "-S", trees.__file__], stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, cwd="/",
            env={name: os.environ[name] for name in _INHERITED if name in os.environ}, start_new_session=True,
            bufsize=0,
        )  # fmt: skip
        os.set_blocking(_pipe(self._process).fileno(), False)
        for mark, pid in self._running.items():
            self._tell(f"{mark} {pid}")

    def _dismiss(self) -> None:
        """Be rid of one that listens no more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            _pipe(self._process).close()
            self._process = None

    def leave(self) -> None:
        """This process ends: have the watchman end, too, which it does at once when no command runs."""
        from subprocess import TimeoutExpired

        if self._process is not None:
            _pipe(self._process).close()
            try:
                self._process.wait(_FAREWELL)
            except TimeoutExpired:  # it has commands to end
                self._process.returncode = 0  # nobody waits for it any more


def _pipe(process: Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


_watchman = _Watchman()
atexit.register(_watchman.leave)

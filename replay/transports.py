"""How the driver reaches an agent's process: two pipes, or a raw pseudo-terminal. Reading is pexpect's.

`pexpect.popen_spawn` merges stderr into stdout and leaves the child in the driver's process group, so over pipes
the process is started here and pexpect reads its descriptor. Stderr goes to a file in both transports.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Protocol

from replay.failures import CannotStart

if TYPE_CHECKING:
    from pexpect.spawnbase import SpawnBase

TransportName = Literal["pipe", "pty"]

_CHUNK = 1 << 16
_RAW_SHELL = 'IFS= read -r go; exec "$@" 2>>"$0"'
"""Holds the agent back until the terminal is raw, then becomes the agent, with stderr in the file `$0`."""

_LINE_BUFFER = 4096
"""Bytes of input that a Linux terminal has ready for its reader."""

_ON_ITS_WAY = 1 << 16
"""Bytes that may wait behind them: far more than the 8 KiB that Linux lets a pseudo-terminal hold."""

_LOOKS = _ON_ITS_WAY // _LINE_BUFFER + 1
"""So many times without input means that there is none: each look that missed some saw a whole line buffer go."""


class Transport(Protocol):
    """A running agent process and the two ends of its standard streams."""

    pid: int
    read_fd: int
    write_fd: int

    def read(self, seconds: float) -> bytes | None:
        """What the agent wrote to stdout, at most `seconds` later: b"" if nothing yet, None at the end."""
        ...

    def write(self, data: bytes) -> int:
        """Write what fits now; returns the number of bytes. Raises `OSError` when the agent reads no more."""
        ...

    def fit(self, line: bytes) -> bytes:
        """A JSON line with what this transport cannot carry written in another way."""
        ...

    def all_read(self) -> bool:
        """Whether the end of the input can be told without loss of what was written before."""
        ...

    def close_input(self) -> None:
        """Let the agent see the end of its input."""
        ...

    def status(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        ...

    def close(self) -> None:
        """Free the descriptors of a process that has ended."""
        ...


def open_transport(
    name: TransportName, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: Path,
) -> Transport:
    """Start a command in its own session, hence process group. Raises `CannotStart`."""
    program = resolve(command, env, moved=cwd.resolve() != Path.cwd())
    try:
        if name == "pipe":
            return _Pipe(program, cwd=cwd, env=dict(env), stderr=stderr)
        return _Pty(program, cwd=cwd, env=dict(env), stderr=stderr)
    except OSError as error:
        raise CannotStart(f"cannot start {' '.join(command)}: {error}") from None


def resolve(command: Sequence[str], env: Mapping[str, str], *, moved: bool = True) -> list[str]:
    """A command that means the same from another directory: its program, and arguments that name existing files
    by a relative path (with a slash or a suffix, so that no plain word is taken for one), become absolute.
    Arguments stay as they are where the command is not `moved` to another directory.

    Raises `CannotStart`.
    """
    import shutil

    if not command:
        raise CannotStart("the agent's command is empty")
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise CannotStart(f"the agent's command does not exist or cannot be executed: {command[0]}")
    return [str(Path(program).absolute()), *(map(_absolute, command[1:]) if moved else command[1:])]


def _absolute(argument: str) -> str:
    path = Path(argument)
    named = "/" in argument or path.suffix
    return str(path.absolute()) if named and not argument.startswith("-") and path.is_file() else argument


def _read(child: SpawnBase[bytes], seconds: float) -> bytes | None:
    from pexpect import EOF, TIMEOUT

    try:
        return child.read_nonblocking(_CHUNK, seconds)
    except TIMEOUT:
        return b""
    except EOF:
        return None


def _write(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


class _Pipe:
    """Two pipes, as an editor makes them."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str], stderr: Path) -> None:
        import subprocess

        from pexpect.fdpexpect import fdspawn

        with stderr.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
                start_new_session=True)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._stdin: IO[bytes] = stdin
        self._stdout: IO[bytes] = stdout
        self.pid = self._process.pid
        self.read_fd, self.write_fd = stdout.fileno(), stdin.fileno()
        os.set_blocking(self.write_fd, False)
        self._child: fdspawn[bytes] = fdspawn(self.read_fd)

    def read(self, seconds: float) -> bytes | None:
        ended = self._process.poll() is not None
        data = _read(self._child, 0 if ended else seconds)
        # A process the agent left behind may hold the pipe open; what the agent wrote itself is in it by now.
        return None if ended and data == b"" else data

    def write(self, data: bytes) -> int:
        return _write(self.write_fd, data)

    def fit(self, line: bytes) -> bytes:
        return line

    def all_read(self) -> bool:
        return True

    def close_input(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def status(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        self.close_input()
        self._stdout.close()


class _Pty:
    """A pseudo-terminal without echo, line editing, signals or translation: bytes pass as they are."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str], stderr: Path) -> None:
        import tty
        import warnings

        import pexpect

        with warnings.catch_warnings():
            # Forking beside threads is what a terminal takes; the child does nothing but become the shell.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._child: pexpect.spawn[bytes] = pexpect.spawn(
                "/bin/sh", ["-c", _RAW_SHELL, str(stderr), *command], cwd=str(cwd), env=env, echo=False)
        self._child.ptyproc.delayafterclose = 0  # type: ignore[attr-defined]  # missing in the stubs
        pid = self._child.pid
        assert pid is not None
        self.pid = pid
        self.read_fd = self.write_fd = self._child.child_fd
        tty.setraw(self.read_fd)
        os.write(self.write_fd, b"\n")
        os.set_blocking(self.write_fd, False)

    def read(self, seconds: float) -> bytes | None:
        return _read(self._child, seconds)

    def write(self, data: bytes) -> int:
        return _write(self.write_fd, data)

    def fit(self, line: bytes) -> bytes:
        return line.replace(b"\x7f", b"\\u007f")  # a reader that edits lines itself would erase with it

    def all_read(self) -> bool:
        """Whether the agent has read everything: the line mode that `close_input` sets would cut what it has not."""
        try:
            fd = os.open(_name_of_terminal(self.read_fd), os.O_RDONLY | os.O_NOCTTY)
        except OSError:
            return True  # the agent is gone
        try:
            return not any(_has_input(fd) for _ in range(_LOOKS))
        finally:
            os.close(fd)

    def close_input(self) -> None:
        """Ctrl-D, in the line mode that gives it its meaning for a program that does not edit lines itself.

        A read that was waiting since before the change of mode passes over a Ctrl-D alone, because it waits for a
        byte: for it comes an empty line and another one. Any other reader has seen the end by then.
        """
        import termios

        with contextlib.suppress(OSError, termios.error):
            settings = termios.tcgetattr(self.read_fd)
            settings[3] |= termios.ICANON
            settings[6][termios.VEOF] = b"\x04"
            termios.tcsetattr(self.read_fd, termios.TCSANOW, settings)
            os.write(self.write_fd, b"\x04\n\x04")

    def status(self) -> int | None:
        if self._child.isalive():
            return None
        code, number = self._child.exitstatus, self._child.signalstatus
        return -number if number is not None else code

    def close(self) -> None:
        if not self._child.closed:
            self._child.close(force=True)


def _has_input(fd: int) -> bool:
    """Whether the reading end of a terminal has bytes to read.

    A reader that has just emptied the terminal's line buffer may not have told yet that there is room in it for what
    is on its way. Asking for the size waits until a reader is done with that; asking whether there is input moves what
    is on its way into the buffer, up to `_LINE_BUFFER` bytes, which one reader can empty in between.
    """
    import fcntl
    import select
    import termios

    size = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return size != bytes(4) or bool(select.select([fd], [], [], 0)[0])


def _name_of_terminal(fd: int) -> str:
    """The device behind the master end of a pseudo-terminal."""
    import ctypes  # os.ptsname comes with Python 3.13

    ptsname = ctypes.CDLL(None).ptsname
    ptsname.restype = ctypes.c_char_p
    name: bytes | None = ptsname(fd)
    if name is None:
        raise OSError("this is no pseudo-terminal")
    return os.fsdecode(name)


# ---------------------------------------------------------------- processes


def end_processes(transport: Transport, marks: frozenset[bytes], grace: float = 1.0) -> None:
    """Leave no process of a run: ask the agent to end, kill its group, then whatever still carries the run's
    environment (looked for where there is a /proc; a tool's process usually has a group of its own).
    """
    if transport.status() is None:
        _signal_group(transport.pid, signal.SIGTERM)
        _wait(transport, grace)
    _signal_group(transport.pid, signal.SIGKILL)
    _wait(transport, grace)
    _end_marked(marks, grace)


def _end_marked(marks: frozenset[bytes], seconds: float) -> None:
    """Kill until none is seen: a killed process takes a moment to go, and may have started another just before."""
    import time

    deadline = time.monotonic() + seconds
    while (found := marked(marks)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _wait(transport: Transport, seconds: float) -> None:
    """Until the process has ended, reading what it still writes: a full pipe would hold it back."""
    import time

    deadline = time.monotonic() + seconds
    while transport.status() is None and time.monotonic() < deadline:
        if transport.read(0.005) is None:
            time.sleep(0.001)


def marked(marks: frozenset[bytes]) -> list[int]:
    """The processes in whose environment one of `marks` stands; none where there is no /proc."""
    found = []
    proc = Path("/proc")
    for directory in proc.iterdir() if proc.is_dir() else ():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            with contextlib.suppress(OSError):
                if marks & frozenset((directory / "environ").read_bytes().split(b"\0")):
                    found.append(int(directory.name))
    return found

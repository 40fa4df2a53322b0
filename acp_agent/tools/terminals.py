"""Commands that run in a terminal of the client's, where the user watches them.

A terminal that was made is released exactly once, whatever happens (ACP guide, terminals).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import anyio
from msgspec import Struct


class TerminalError(Exception):
    """The client did not do what it was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TerminalExit(Struct, frozen=True):
    """How a command ended; either may be unknown."""

    code: int | None = None
    signal: str | None = None


class TerminalOutput(Struct, frozen=True):
    """What a command printed: its end, when it was too long to be kept."""

    text: str
    truncated: bool = False


class Terminal(Protocol):
    """One terminal. What waits raises `TerminalError`."""

    @property
    def id(self) -> str: ...

    async def wait(self) -> TerminalExit:
        """Wait for the command's end."""
        ...

    async def output(self) -> TerminalOutput:
        """What was printed so far."""
        ...

    async def kill(self) -> None:
        """Stop the command; what it printed stays."""
        ...

    def release(self) -> None:
        """Give the terminal back, stopping the command if it runs. Nothing may be called afterwards."""
        ...


class Terminals(Protocol):
    """A client that offers terminals."""

    async def create(
        self, command: Sequence[str], *, cwd: str, env: Mapping[str, str], limit: int
    ) -> Terminal:
        """Start `command` in a new terminal that keeps the last `limit` bytes. Raises `TerminalError`.

        A terminal that a client makes all the same, after a cancel or a failure, is released here.
        """
        ...


class TerminalRun(Struct, frozen=True):
    """A command's end in a terminal."""

    exit: TerminalExit
    output: TerminalOutput
    timed_out: bool


async def run_in_terminal(
    terminals: Terminals, command: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout: float, limit: int,
    show: Callable[[str, str], None], late: str,
) -> TerminalRun:
    """Run `command` to its end, or to `timeout` seconds. `show` is told the terminal's id at once; and again what the
    terminal does not show: that the time was up (`late`), or that the client failed. After its release a terminal may
    not be named.

    Raises `TerminalError`; the terminal is released then too.
    """
    terminal = await terminals.create(command, cwd=cwd, env=env, limit=limit)
    try:
        show(terminal.id, "")
        ended: TerminalExit | None = None
        with anyio.move_on_after(timeout):
            ended = await terminal.wait()
        if ended is None:
            show(terminal.id, late)
            with contextlib.suppress(TerminalError):  # it may just have ended; the output is wanted in any case
                await terminal.kill()
        output = _tail(await terminal.output(), limit)
        return TerminalRun(ended or TerminalExit(), output, timed_out=ended is None)
    except TerminalError as error:
        show(terminal.id, failed(error))
        raise
    finally:
        terminal.release()


def failed(error: TerminalError) -> str:
    """What is said of a command that the client failed to run."""
    return f"the command could not be run in the client's terminal: {error.message}"


def _tail(output: TerminalOutput, limit: int) -> TerminalOutput:
    """The last `limit` bytes, also from a client that keeps more than it was asked to."""
    data = output.text.encode("utf-8", "replace")
    if len(data) <= limit:
        return output
    start = len(data) - limit
    while data[start] & 0xC0 == 0x80:
        start += 1
    return TerminalOutput(data[start:].decode(), truncated=True)

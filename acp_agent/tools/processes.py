"""Running a command to its end, or ending it: with everything it started.

A command gets a session and process group of its own and a mark of its own in its environment. The group
catches what a shell starts the usual way; the mark (Linux) also what left the group. That holds when this process is
killed, too: see `watchman`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from acp_agent.tools.trees import POLL, Known, members, signal_group, signal_one
from acp_agent.tools.watchman import watched

DRAIN = 0.25
"""Seconds to wait for output after the command itself has ended: whoever still holds the pipe is left behind."""

Sink = Callable[[int, bytes], None]
"""Takes output as it comes: 1 or 2 for stdout or stderr, and the bytes."""


class Patience(Struct, frozen=True):
    """How long ending a command may take, in seconds: after SIGTERM, and in all."""

    grace: float
    total: float


ON_TIMEOUT = Patience(grace=1.0, total=2.0)
ON_END = Patience(grace=0.1, total=0.5)
ON_CANCEL = Patience(grace=0.15, total=0.7)


class Exit(Struct, frozen=True):
    """How a command ended: `code` is its exit status, or `signal` the name of what killed it (SIGKILL, ...)."""

    code: int | None
    signal: str | None
    timed_out: bool


async def run_process(
    command: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout: float | None, sink: Sink,
) -> Exit:
    """Run `command` (program and arguments) with stdin empty, feeding its output to `sink`.

    Ends when the command itself has ended; what it left running is killed. After `timeout` seconds
    the command and all its descendants get SIGTERM, then SIGKILL. On cancellation they are gone, or given up on
    after `ON_CANCEL.total`, before the cancellation is passed on. Raises OSError when the command cannot be
    started, and ValueError for a NUL in it.
    """
    mark = f"_AGENT_COMMAND_{os.urandom(8).hex()}"
    with watched(mark) as tell_pid:
        pipes = _Pipes(sink)
        transport, cancelled = await start(
            lambda: pipes, command, cwd=cwd, env={**env, mark: "1"}, stdin=asyncio.subprocess.DEVNULL)
        try:
            tell_pid(transport.get_pid())
            if cancelled is not None:
                raise cancelled
            return await _follow(transport, pipes, mark, timeout)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await kill_tree(transport.get_pid(), mark, ON_CANCEL)
            raise
        finally:
            if not pipes.exited.done():
                signal_group(transport.get_pid(), signal.SIGKILL)
            transport.close()


async def start(
    protocol: Callable[[], asyncio.SubprocessProtocol], command: Sequence[str], *, cwd: str | Path,
    env: Mapping[str, str], stdin: int = asyncio.subprocess.PIPE,
) -> tuple[asyncio.SubprocessTransport, asyncio.CancelledError | None]:
    """A started command in a session of its own, and the cancellation that came meanwhile: starting takes no time worth
    cancelling, and a half-started command could not be ended.

    A shield alone would not do: it holds back no cancellation of the task itself, and asyncio would then wait for the
    output of whatever the command has started by now. Raises OSError when it cannot be started, and ValueError for a
    NUL in it.
    """
    starting = asyncio.ensure_future(asyncio.get_running_loop().subprocess_exec(
        protocol, *command, stdin=stdin, cwd=cwd, env=env, start_new_session=True))
    cancelled = None
    with anyio.CancelScope(shield=True):
        while not starting.done():
            try:
                await asyncio.wait({starting})
            except asyncio.CancelledError as error:
                cancelled = error
    return starting.result()[0], cancelled


async def _follow(transport: asyncio.SubprocessTransport, pipes: _Pipes, mark: str, timeout: float | None) -> Exit:
    pid = transport.get_pid()
    ended, _ = await asyncio.wait((pipes.exited,), timeout=timeout)
    if not ended:
        await kill_tree(pid, mark, ON_TIMEOUT)
        await asyncio.wait((pipes.exited,), timeout=DRAIN)
    await asyncio.wait((pipes.drained,), timeout=DRAIN)
    signal_group(pid, signal.SIGKILL)
    await kill_tree(pid, mark, ON_END)
    pipes.sink = _nowhere
    status = transport.get_returncode()
    if status is not None and status >= 0:
        return Exit(status, None, timed_out=not ended)
    return Exit(None, _signal_name(-status if status else signal.SIGKILL), timed_out=not ended)


class _Pipes(asyncio.SubprocessProtocol):
    """Hands output on and notes the end of the process and of its output."""

    def __init__(self, sink: Sink) -> None:
        loop = asyncio.get_running_loop()
        self.sink = sink
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.sink(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._open.discard(fd)
        if not self._open and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


def _nowhere(fd: int, data: bytes) -> None:
    """Where output goes that comes after the end."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------- ending


async def kill_tree(pid: int, mark: str, patience: Patience) -> None:
    """End the group led by `pid` and every descendant: SIGTERM, and SIGKILL for who stays.

    `mark` is the name of the environment variable only they have. Returns when none is left, or gives up after
    `patience.total` seconds.
    """
    start = time.monotonic()
    # A first look while the parents still live: who is orphaned without the mark cannot be found later.
    known = await _send(signal.SIGTERM, pid, mark, frozenset())
    while known and time.monotonic() < start + patience.grace:
        await anyio.sleep(POLL)
        known = await to_thread.run_sync(members, {mark: pid}, known)
    while known and time.monotonic() < start + patience.total:
        known = await _send(signal.SIGKILL, pid, mark, known)
        await anyio.sleep(POLL)


async def _send(number: signal.Signals, pid: int, mark: str, known: frozenset[Known]) -> frozenset[Known]:
    """Signal everyone of the tree; who that was (the group counts as one where its members are not known)."""
    found = await to_thread.run_sync(members, {mark: pid}, known)
    signal_group(pid, number)
    for member, _ in found:
        if member != pid:
            signal_one(member, number)
    return found


__all__ = ["DRAIN", "ON_CANCEL", "ON_TIMEOUT", "Exit", "Patience", "Sink", "kill_tree", "run_process", "start"]

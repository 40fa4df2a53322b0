"""Output in order, in batches, and without blocking the loop, to a descriptor of any kind.

No O_NONBLOCK is set on a description that other processes share. A pipe or terminal is written through a
description of our own, a socket with a flag for each call; where neither can be had, output leaves in pieces
that fit into anything that reports room.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from typing import Final

from acp_agent.rpc.stdio import Kind, kind_of

HIGH_WATER: Final = 64 * 1024
"""Bytes that may be queued before producers wait."""

_LOW_WATER: Final = 16 * 1024
_TERMINAL_STEP: Final = 256
"""What a terminal that reports room takes without blocking; a pipe takes PIPE_BUF."""

_NOTHING: Final = memoryview(b"")


class Writer:
    """Frames to a descriptor, in order. Owns the descriptor from `open` to `close`.

    `send` never waits: it queues, and everything queued in one turn of the loop leaves in one write.
    Producers that may send much call `drain` between frames; it waits while more than 64 KiB are queued, so
    memory is bounded when the client does not read. Once the client is gone (`broken`), frames are dropped.
    """

    def __init__(self, fd: int) -> None:
        self.broken = False
        """Nothing can be written any more."""
        self.queued = 0
        """Bytes taken by `send` and not yet handed to the operating system."""
        self._fd = fd
        self._frames: list[bytes] = []
        self._rest = _NOTHING  # of a batch that was written in part
        self._busy = False  # a write is scheduled, or waits for room
        self._waiting_for_room = False
        self._closed = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._on_broken: Callable[[], None] = lambda: None
        self._write: Callable[[memoryview], int] = self._write_plainly
        self._watched = False
        self._socket: socket.socket | None = None

    def open(self, on_broken: Callable[[], None] = lambda: None) -> None:
        """Begin to write in the running loop. `on_broken` is called once, if ever, when the client is gone."""
        self._loop = asyncio.get_running_loop()
        self._on_broken = on_broken
        match kind_of(self._fd):
            case Kind.SOCKET:
                self._socket = socket.socket(fileno=self._fd)
                self._write = self._write_to_socket
            case Kind.PIPE | Kind.TERMINAL as kind:
                if self._reopen():
                    self._watched = kind is Kind.PIPE
                else:
                    self._write = self._write_when_there_is_room(kind)
            case Kind.FILE | Kind.DEVICE:
                pass  # these never make a writer wait for a reader
        if self._watched:
            # A pipe that is only written to becomes readable when its reader is gone, even while we are idle.
            self._loop.add_reader(self._fd, self._break)

    def send(self, frame: bytes) -> None:
        """Queue one line, line end included."""
        if self.broken:
            return
        self._frames.append(frame)
        self.queued += len(frame)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._pump)
        elif self.queued >= HIGH_WATER and not self._waiting_for_room:
            self._pump()

    def send_now(self, frame: bytes) -> None:
        """`send`, and write what is queued without waiting for the loop's next turn."""
        if self.broken:
            return
        self._frames.append(frame)
        self.queued += len(frame)
        if not self._waiting_for_room:
            self._busy = True
            self._pump()

    @property
    def behind(self) -> bool:
        """Whether `drain` would wait for the client."""
        return self.queued > HIGH_WATER

    async def drain(self) -> None:
        """Wait while more than 64 KiB are queued; for one turn of the loop only when the client is gone."""
        if self.behind:
            await self._until(_LOW_WATER)
        elif self.broken:
            # A producer that never waits would keep the loop from ending it.
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until everything sent so far was handed to the operating system, or the client is gone."""
        if self.queued:
            await self._until(0)

    def close(self) -> None:
        """Close the descriptor; what is still queued is lost. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._stop()
        if self._socket is not None:
            self._socket.close()
        else:
            os.close(self._fd)

    async def _until(self, limit: int) -> None:
        waiter = self._loop.create_future()
        self._waiters.append((limit, waiter))
        await waiter

    def _pump(self) -> None:
        """Write all that is queued, or as much as there is room for."""
        while not self.broken and (self._rest or self._frames):
            if not self._rest:
                frames, self._frames = self._frames, []
                self._rest = memoryview(b"".join(frames))
            try:
                written = self._write(self._rest)
            except (BlockingIOError, InterruptedError):
                self._wait_for_room()
                return
            except OSError:
                self._break()
                return
            self.queued -= written
            self._rest = self._rest[written:] if written < len(self._rest) else _NOTHING
            self._wake()
        self._busy = False
        self._stop_waiting_for_room()

    def _wait_for_room(self) -> None:
        if not self._waiting_for_room:
            self._waiting_for_room = True
            self._loop.add_writer(self._fd, self._pump)

    def _stop_waiting_for_room(self) -> None:
        if self._waiting_for_room:
            self._waiting_for_room = False
            self._loop.remove_writer(self._fd)

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiting = self._waiters
        self._waiters = []
        for limit, waiter in waiting:
            if self.queued > limit and not self.broken:
                self._waiters.append((limit, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _break(self) -> None:
        if not self.broken:
            self._stop()
            self._loop.call_soon(self._on_broken)

    def _stop(self) -> None:
        self.broken = True
        self._frames, self._rest, self.queued = [], _NOTHING, 0
        self._stop_waiting_for_room()
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)
        self._wake()

    def _reopen(self) -> bool:
        """Replace the descriptor by a non-blocking one with a description of its own; tell if that worked."""
        try:
            own = os.open(
                f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return False
        os.close(self._fd)
        self._fd = own
        return True

    def _write_plainly(self, data: memoryview) -> int:
        return os.write(self._fd, data)

    def _write_to_socket(self, data: memoryview) -> int:
        assert self._socket is not None
        return self._socket.send(data, socket.MSG_DONTWAIT)

    def _write_when_there_is_room(self, kind: Kind) -> Callable[[memoryview], int]:
        step = select.PIPE_BUF if kind is Kind.PIPE else _TERMINAL_STEP
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)

        def write(data: memoryview) -> int:
            if not poll.poll(0):
                raise BlockingIOError
            return os.write(self._fd, data[:step])

        return write

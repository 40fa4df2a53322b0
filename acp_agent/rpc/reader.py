"""Input as callbacks: chunks of bytes from a descriptor of any kind, without blocking the loop.

A read after readiness does not block, so no O_NONBLOCK is needed. It would be set on a description that other
processes share, and a shell whose terminal suddenly refuses to block breaks in ways nobody connects with us.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from acp_agent.rpc.stdio import Kind, kind_of

if TYPE_CHECKING:
    from acp_agent.rpc.terminal import TerminalInput

CHUNK: Final = 64 * 1024
"""Most bytes taken in by one read."""


class Reader:
    """Chunks of bytes from a descriptor, as callbacks. Owns the descriptor from `open` to `close`."""

    def __init__(self, fd: int) -> None:
        self.kind = kind_of(fd)
        """Decides how long work goes on after the end of input, and how the descriptor is read."""
        self._fd = fd
        self._on_data: Callable[[bytes], None] = lambda _: None
        self._on_end: Callable[[], None] = lambda: None
        self._polled = True
        self._next: asyncio.Handle | None = None
        self._reading = False
        self._ended = False
        self._closed = False
        self._terminal: TerminalInput | None = None

    def open(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Begin to read in the running loop: `on_data` for each chunk, then `on_end` once.

        Prepares a terminal (see `TerminalInput`).
        """
        self._on_data, self._on_end = on_data, on_end
        if self.kind is Kind.TERMINAL:
            from acp_agent.rpc.terminal import TerminalInput

            self._terminal = TerminalInput(self._fd)
            self._terminal.open()
        self.resume()

    def pause(self) -> None:
        """No callback until `resume`. Without effect when paused."""
        if self._reading:
            self._reading = False
            if self._next is not None:
                self._next.cancel()
            else:
                asyncio.get_running_loop().remove_reader(self._fd)

    def resume(self) -> None:
        """Read on. Without effect when reading, at the end, or closed."""
        if self._reading or self._ended or self._closed:
            return
        self._reading = True
        loop = asyncio.get_running_loop()
        if self._polled:
            try:
                loop.add_reader(self._fd, self._read)
            except PermissionError:
                # epoll refuses what is always ready: regular files and most devices.
                self._polled = False
        if not self._polled:
            self._next = loop.call_soon(self._read_next)

    def close(self) -> None:
        """Stop, give a terminal its settings back, close the descriptor. Safe to call twice."""
        if self._closed:
            return
        self.pause()
        self._closed = True
        if self._terminal is not None:
            self._terminal.close()
        os.close(self._fd)

    def _read_next(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._read_next)
        self._read()

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""  # a terminal that hung up, a connection that was reset
        last = not chunk
        if self._terminal is not None:
            chunk, ended = self._terminal.edit(chunk)
            last = last or ended
        if last:
            self.pause()
            self._ended = True
        if chunk:
            self._on_data(chunk)
        if last:
            self._on_end()

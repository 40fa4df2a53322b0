"""Lines that somebody types, or that come through a pipe, one asked for at a time."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_CHUNK: Final = 64 * 1024


class Keyboard:
    """Lines from a descriptor, from entering to leaving the context.

    From a terminal, lines are taken when they are typed: one that comes while nobody waits is kept for `line`,
    and `at_once` may take it first. From anything else they are only read when somebody waits. The descriptor's
    mode is not changed: a shell that shares it goes on with it.
    """

    def __init__(self, fd: int, at_once: Callable[[str], bool]) -> None:
        self.is_terminal = os.isatty(fd)
        self._fd = fd
        self._at_once = at_once
        self._lines: deque[str] = deque()
        self._partial = b""
        self._ended = False
        self._failure: Exception | None = None
        self._waiting: asyncio.Future[str | None] | None = None
        self._answering: asyncio.Future[str | None] | None = None
        self._watching = False
        self._next: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        if self.is_terminal:
            self._watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self._rest()

    @property
    def ahead(self) -> bool:
        """Whether `line` has something already: it was typed before anybody asked."""
        return bool(self._lines)

    async def line(self) -> str | None:
        """The next line, without its end; None at the end of input. Raises what was given to `fail`."""
        if self._failure is not None:
            raise self._failure
        if self._lines:
            return self._lines.popleft()
        if self._ended:
            return None
        self._waiting = asyncio.get_running_loop().create_future()
        self._watch()
        try:
            return await self._waiting
        finally:
            self._waiting = None
            self._rest_unless_typed()

    async def answer(self) -> str | None:
        """The next line that is typed from now on, for a question that was just put; None when none can come."""
        if self._ended:
            return None
        self._answering = asyncio.get_running_loop().create_future()
        self._watch()
        try:
            return await self._answering
        finally:
            self._answering = None
            self._rest_unless_typed()

    def fail(self, error: Exception) -> None:
        """Nobody needs lines any more: `line` raises `error`, `answer` gets None."""
        self._failure = error
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        _give(self._answering, None)

    # -- reading

    def _watch(self) -> None:
        if self._watching or self._ended:
            return
        self._watching = True
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._fd, self._read)
        except PermissionError:  # a regular file: always ready
            self._next = loop.call_soon(self._read_file)

    def _rest_unless_typed(self) -> None:
        if not self.is_terminal:
            self._rest()

    def _rest(self) -> None:
        if not self._watching:
            return
        self._watching = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        else:
            asyncio.get_running_loop().remove_reader(self._fd)

    def _read_file(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._read_file)
        self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""  # the terminal is gone
        *lines, self._partial = (self._partial + data).split(b"\n")
        if not data:
            self._rest()
            self._ended = True
            lines += [self._partial] if self._partial else []
        for line in lines:
            self._take(line.removesuffix(b"\r").decode(errors="replace"))
        if self._ended:
            _give(self._answering, None)
            if not self._lines:
                _give(self._waiting, None)

    def _take(self, line: str) -> None:
        if _give(self._answering, line):
            return
        if self.is_terminal and self._at_once(line):
            return
        if self._lines or not _give(self._waiting, line):
            self._lines.append(line)


def _give(waiting: asyncio.Future[str | None] | None, line: str | None) -> bool:
    if waiting is None or waiting.done():
        return False
    waiting.set_result(line)
    return True

"""Bytes into lines: one JSON-RPC message is one line, ended by the byte 0x0A and by nothing else."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

LINE_LIMIT = 65 * 1024 * 1024
"""Longest line taken in, in bytes without its line end: 64 MiB of message and some slack."""

_BOM = b"\xef\xbb\xbf"


class Oversized(Struct, frozen=True, gc=False):
    """Stands in for a line over the limit, whose text was thrown away. `size` is its length in bytes."""

    size: int


Frame: TypeAlias = bytes | Oversized


class FrameSplitter:
    """Cuts a byte stream into lines, whatever the chunks it arrives in. Cost is linear in the bytes fed.

    Lines come without their line end and without one trailing CR; blank lines and a byte-order mark at
    the start of the stream are dropped. A line over `limit` bytes is never held in memory.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._size = 0  # bytes of the open line so far, dropped ones included
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes; return the lines they completed, in order."""
        first, *rest = chunk.split(b"\n")
        if not rest:
            self._extend(first)
            return []
        frames: list[Frame] = []
        if self._size:
            self._extend(first)
            self._take(frames)
        else:
            self._emit(first, frames)
        last = rest.pop()
        for line in rest:
            self._emit(line, frames)
        self._extend(last)
        return frames

    def finish(self) -> list[Frame]:
        """The stream has ended: return its unterminated last line, if there is one."""
        frames: list[Frame] = []
        self._take(frames)
        return frames

    def _extend(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._partial += part
        elif self._partial:
            self._partial = bytearray()

    def _take(self, frames: list[Frame]) -> None:
        line, size = self._partial, self._size
        self._partial, self._size = bytearray(), 0
        if size > self._limit:
            self._at_start = False
            frames.append(Oversized(size))
        else:
            self._emit(bytes(line), frames)

    def _emit(self, line: bytes, frames: list[Frame]) -> None:
        if len(line) > self._limit:
            self._at_start = False
            frames.append(Oversized(len(line)))
            return
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line.endswith(b"\r"):
            line = line[:-1]
        if line and not line.isspace():
            frames.append(line)

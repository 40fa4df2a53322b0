"""The lines of a file that one read shows, found without holding the file."""

from __future__ import annotations

from msgspec import Struct

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_LINE_CHARS = 2000
LINE_MARKER = f"... (line truncated to {MAX_LINE_CHARS} chars)"

# Of a line still growing no more is kept than the longest one shown needs: four bytes a character.
_KEEP = 4 * (MAX_LINE_CHARS + 1)


class BinaryFile(Exception):
    """The bytes hold a NUL: no text a model could use."""


class Window:
    """Feed it a file's bytes in order, then `finish`; `lines` are those of the window.

    offset   number of the first line wanted, from 1
    limit    how many lines at most
    total    after `finish`: how many lines the file has
    capped   whether `MAX_BYTES` ended the window before `limit` did
    """

    def __init__(self, offset: int, limit: int) -> None:
        self.lines: list[str] = []
        self.total = 0
        self.capped = False
        self._first = offset
        self._last = offset + limit - 1
        self._room = MAX_BYTES
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises `BinaryFile`."""
        if b"\0" in data:
            raise BinaryFile
        ends = data.count(b"\n")
        if self.total + ends < self._first or self.total >= self._last or self.capped:
            self._pass(data, ends)
            return
        first, *rest = data.split(b"\n")
        pieces = [self._partial + first, *rest]
        self._partial = pieces.pop()[:_KEEP]
        for piece in pieces:
            self._line(piece)

    def finish(self) -> None:
        """No more bytes: what follows the last newline is a line unless it is empty."""
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _pass(self, data: bytes, ends: int) -> None:
        """Count lines none of which is in the window."""
        self.total += ends
        tail = data[data.rfind(b"\n") + 1 :] if ends else self._partial + data[:_KEEP]
        self._partial = tail[:_KEEP]

    def _line(self, raw: bytes) -> None:
        self.total += 1
        if self.capped or not self._first <= self.total <= self._last:
            return
        text = raw[:_KEEP].decode("utf-8", "replace")
        text = text[:MAX_LINE_CHARS] + LINE_MARKER if len(text) > MAX_LINE_CHARS else text.removesuffix("\r")
        if self.total == 1:
            text = text.removeprefix("\ufeff")
        self._room -= len(text.encode()) + 1
        if self._room < 0 and self.lines:
            self.capped = True
            return
        self.lines.append(text)


class Page(Struct, frozen=True):
    """What a read shows. `offset` is the first line's number, `total` the file's number of lines."""

    offset: int
    lines: tuple[str, ...]
    total: int
    capped: bool

    @property
    def footer(self) -> str:
        """The parenthesised last line of the envelope (format reference 7.4)."""
        last = self.offset + len(self.lines) - 1
        if last >= self.total:
            return f"(End of file - total {self.total} lines)"
        if self.capped:
            return f"(Output capped. Showing lines {self.offset}-{last}. Use offset={last + 1} to continue.)"
        return f"(Showing lines {self.offset}-{last} of {self.total}. Use offset={last + 1} to continue.)"

"""What a command prints: its tail kept, the whole in a file once it is too long, its latest part shown."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

LIMIT = 64_000
"""Bytes of a command's output that are kept."""

SHOWN = 8 * 1024
"""Bytes of output the client is shown while the command runs."""

INTERVAL = 0.1
"""Seconds between two looks at a running command's output."""

FILE_LIMIT = 256 * 1024 * 1024
"""Bytes of a command's output that are saved to a file: a command that never stops must not fill the disk."""


class Output:
    """Collects the two streams of one command.

    Of each stream the last `LIMIT` bytes are held. When both together exceed `LIMIT`, everything is also saved, in
    the order it came, to a new file named `name` in `directory`.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._tails = {1: bytearray(), 2: bytearray()}
        self._sizes = {1: 0, 2: 0}
        self._early: list[bytes] = []
        self._file: FileIO | None = None
        self._saved = 0
        self._problem: str | None = None
        self.path: Path | None = None

    @property
    def size(self) -> int:
        """Bytes printed so far."""
        return self._sizes[1] + self._sizes[2]

    def feed(self, stream: int, data: bytes) -> None:
        """The next bytes of stdout (1) or stderr (2)."""
        self._sizes[stream] += len(data)
        tail = self._tails[stream]
        tail += data
        if len(tail) > 4 * LIMIT:
            del tail[:-LIMIT]
        if self.size <= LIMIT:
            self._early.append(data)
        else:
            self._save(data)

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def body(self) -> str:
        """stdout as it is, then stderr under its heading (format reference 7.4), at most `LIMIT` bytes of both."""
        room = {1: max(LIMIT - self._sizes[2], LIMIT // 2), 2: max(LIMIT - self._sizes[1], LIMIT // 2)}
        out, err = (_decode(_tail(self._tails[stream], room[stream])) for stream in (1, 2))
        if not err:
            return out or "(no output)"
        return f"{line_ended(out)}[stderr]\n{err}"

    def marker(self) -> str | None:
        """The line that says what is missing from `body`; None when nothing is."""
        if self.size <= LIMIT:
            return None
        kept = f"[output truncated: the last {LIMIT} of {self.size} bytes are shown"
        if self.path is None:
            return f"{kept}; the rest could not be saved: {self._problem}]"
        whole = "full output" if self._saved == self.size else f"the first {self._saved} bytes"
        return f"{kept}; {whole}: {self.path}]"

    def _save(self, data: bytes) -> None:
        if self._problem is not None:
            return
        try:
            if self.path is None:
                self._open()
                data = b"".join([*self._early, data])
                self._early.clear()
            self._write(data[: FILE_LIMIT - self._saved])
        except OSError as error:
            self._problem = (error.strerror or str(error)).lower()
            self.path = None
            self.close()

    def _open(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path, self._file = open_new(self._directory, self._name)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._file is not None:
            written = self._file.write(view)
            self._saved += written
            view = view[written:]


def open_new(directory: Path, name: str) -> tuple[Path, FileIO]:
    """A new private file in `directory`; a number is added to a name that is taken. Raises OSError."""
    stem, _, ending = name.rpartition(".")
    attempt = 1
    while True:
        path = directory / (name if attempt == 1 else f"{stem}-{attempt}.{ending}")
        with contextlib.suppress(FileExistsError):
            return path, FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w")
        attempt += 1


class Ticker:
    """Shows the end of a growing output now and then, never faster than every `INTERVAL`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._recent = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """The next bytes of either stream."""
        self._recent += data
        if len(self._recent) > 4 * SHOWN:
            del self._recent[:-SHOWN]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._tick)

    def close(self) -> None:
        """Nothing is shown after this."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        self._show(_decode(_tail(self._recent, SHOWN)))


def line_ended(text: str) -> str:
    """`text` with a newline at its end, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _tail(data: bytearray, size: int) -> bytes:
    """The last `size` bytes, not beginning inside a character."""
    if len(data) <= size:
        return bytes(data)
    tail = bytes(data[-size:])
    inside = 0
    while inside < min(3, size) and tail[inside] & 0xC0 == 0x80:
        inside += 1
    return tail[inside:]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")

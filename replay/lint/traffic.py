"""Everything that passed between the lint and one agent process, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from acp_agent.visible import one_line

Json: TypeAlias = dict[str, Any]
Sender = Literal["client", "agent"]

SHOWN = 300
"""Characters of a line that are shown."""

LINES: Final = 10_000
"""Lines that an agent may write in one try. What the lint asks for comes to some hundreds."""

BYTES: Final = 256 * 1024 * 1024
"""Bytes that an agent may write in one try."""


class Line(Struct, frozen=True):
    """One line. `frame` is what an object says, None for anything else; `junk` why an agent's line is no message."""

    sender: Sender
    raw: bytes
    frame: Json | None
    junk: str | None = None

    def __str__(self) -> str:
        text = one_line(self.raw.decode(errors="replace"))
        cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(self.raw)} bytes)"
        return f"{'>' if self.sender == 'client' else '<'} {cut}"


class Traffic:
    """The link's observer: it keeps every line, and wakes whoever waits for one.

    Of an agent that writes without end, it keeps what came before `LINES` and `BYTES` were reached.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.flood: str | None = None
        """What there is to say of an agent that wrote too much."""
        self.when_flooded: Callable[[], None] = lambda: None
        """Called once, when it did."""
        self._count = self._size = 0
        self._changed = asyncio.Event()

    def sent(self, line: bytes) -> None:
        self.lines += [Line("client", part, _object(part)) for part in line.split(b"\n")]

    def received(self, line: bytes) -> None:
        if self._room_for(line):
            self._add(Line("agent", line, _object(line)))

    def junk(self, line: bytes, why: str) -> None:
        if self._room_for(line):
            self._add(Line("agent", line, None, why))

    def stderr(self, text: str) -> None:
        """No statement is about it."""

    def wake(self) -> None:
        """Something changed that is no line: the agent is gone."""
        self._changed.set()

    async def change(self) -> None:
        """Wait for whatever comes next."""
        self._changed.clear()
        await self._changed.wait()

    def _room_for(self, line: bytes) -> bool:
        if self.flood is not None:
            return False
        self._count, self._size = self._count + 1, self._size + len(line)
        if self._count <= LINES and self._size <= BYTES:
            return True
        much = f"{LINES} lines" if self._count > LINES else f"{BYTES // 1024 // 1024} MiB"
        self.flood = f"the agent wrote more than {much} to its stdout; nothing more was read"
        self.wake()
        self.when_flooded()
        return False

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        self.wake()


def _object(line: bytes) -> Json | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_response(frame: Json | None) -> bool:
    """Whether a frame answers something."""
    return frame is not None and "method" not in frame and ("result" in frame or "error" in frame)


def same_id(left: Any, right: Any) -> bool:
    """Whether two ids have the same value and the same JSON type."""
    return json.dumps(left) == json.dumps(right)

"""Everything that passed between the lint and one agent process, in order."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from acp_agent.visible import one_line

Json: TypeAlias = dict[str, Any]
Sender = Literal["client", "agent"]

SHOWN = 300
"""Characters of a line that are shown."""


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
    """The link's observer: it keeps every line, and wakes whoever waits for one."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.errors: list[str] = []
        """The agent's stderr, by line."""
        self._changed = asyncio.Event()

    def sent(self, line: bytes) -> None:
        self.lines += [Line("client", part, _object(part)) for part in line.split(b"\n")]

    def received(self, line: bytes) -> None:
        self._add(Line("agent", line, _object(line)))

    def junk(self, line: bytes, why: str) -> None:
        self._add(Line("agent", line, None, why))

    def stderr(self, text: str) -> None:
        self.errors.append(text)

    def wake(self) -> None:
        """Something changed that is no line: the agent is gone."""
        self._changed.set()

    async def change(self) -> None:
        """Wait for whatever comes next."""
        self._changed.clear()
        await self._changed.wait()

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

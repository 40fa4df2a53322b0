"""What commands in the client's terminals write, told while they write it, as an editor's terminal shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from replay.terminals import Terminal

_EVERY: Final = 0.05
"""Seconds between two looks at what was written."""

_MOST: Final = 256 * 1024
"""Bytes told of one terminal at one look, where the agent set no lower limit."""


class Outputs:
    """Follows terminals until they are forgotten. `tell` gets a terminal's name and lines that it has not got yet.

    Lines are told once they are whole; one without an end when the command ends or the terminal is forgotten.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._followed: dict[str, _Followed] = {}
        self._next: asyncio.TimerHandle | None = None

    def follow(self, name: str, terminal: Terminal) -> None:
        """Tell what is written in a terminal from now on."""
        followed = _Followed(terminal, lambda text: self._tell(name, text))
        self._followed[name] = followed
        terminal.when_ended(lambda _: followed.all())
        if self._next is None:
            self._look_later()

    def forget(self, name: str) -> None:
        """Tell the rest of a terminal's output, and nothing more."""
        self._followed.pop(name).all()

    def close(self) -> None:
        """Tell nothing more at all."""
        self._followed.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look_later(self) -> None:
        self._next = asyncio.get_running_loop().call_later(_EVERY, self._look)

    def _look(self) -> None:
        self._next = None
        for followed in self._followed.values():
            followed.lines()
        if self._followed:
            self._look_later()


class _Followed:
    """One terminal, and how much of its output was told."""

    def __init__(self, terminal: Terminal, tell: Callable[[str], None]) -> None:
        self._terminal = terminal
        self._tell = tell
        self._told = 0

    def lines(self) -> None:
        """Tell the lines that are whole."""
        left_out, data = self._terminal.since(self._told, _MOST)
        if whole := data[: data.rfind(b"\n") + 1]:
            self._pass_on(left_out, whole)

    def all(self) -> None:
        """Tell everything."""
        left_out, data = self._terminal.since(self._told, _MOST)
        if left_out or data:
            self._pass_on(left_out, data)

    def _pass_on(self, left_out: int, data: bytes) -> None:
        self._told += left_out + len(data)
        remark = f"[{left_out:,} bytes left out]\n" if left_out else ""
        self._tell(remark + data.decode(errors="replace"))

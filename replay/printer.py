"""Text on a console as it comes: whole lines, text that flows, and an input line that is open at the end.

Everything shown comes from somebody else's program, so control characters are made visible and never obeyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from acp_agent.visible import one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ("Printer", "brief", "one_line", "visible")


def brief(line: bytes, string: int = 48, total: int = 240) -> str:
    """A line of JSON for reading: strings longer than `string` and texts longer than `total` are cut.

    What is no JSON is only cut.
    """
    try:
        text = msgspec.json.encode(_cut(msgspec.json.decode(line), string)).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = line.decode(errors="replace")
    return one_line(text if len(text) <= total else f"{text[:total]}\u2026 ({len(line)} bytes)")


def _cut(value: Any, most: int) -> Any:
    match value:
        case str() if len(value) > most:
            return f"{value[: most - 8]}\u2026 ({len(value)} characters)"
        case list():
            return [_cut(item, most) for item in value]
        case dict():
            return {key: _cut(item, most) for key, item in value.items()}
        case _:
            return value


class Printer:
    """Writes on a console. A line that flowing text or a question left open is ended before the next one.

    `hold` keeps flowing text back until its line is ended, for when other lines come between its pieces.
    """

    def __init__(self, console: Console) -> None:
        self.hold = False
        self._console = console
        self._open = False
        self._asking = False
        self._held: list[tuple[str, str]] = []

    def line(self, *parts: tuple[str, str]) -> None:
        """Print a line of its own from pieces of text, each with its style."""
        self.end_line()
        self._write([*parts, ("\n", "")])

    def aside(self, *parts: tuple[str, str]) -> None:
        """`line`, but text that is held back stays so."""
        held, self._held = self._held, []
        self.line(*parts)
        self._held = held

    def flow(self, text: str, style: str) -> None:
        """Continue the open line, or begin one."""
        if self._asking:
            self.end_line()
        if self.hold:
            self._held.append((text, style))
            return
        self._write([(text, style)])
        self._open = not text.endswith("\n") if text else self._open

    def ask(self, text: str, style: str) -> None:
        """Print what asks for input; the line stays open until it was `answered` or something else is printed."""
        self.end_line()
        self._write([(text, style)])
        self._open = self._asking = True

    def answered(self) -> None:
        """The input was given: its line end ended the line."""
        if self._asking:
            self._open = self._asking = False

    @property
    def asking(self) -> bool:
        """Whether what asks for input is still the last thing on the console."""
        return self._asking

    def end_line(self) -> None:
        """End the open line, if there is one."""
        held, self._held = self._held, []
        if held:
            self._write(held)
            self._open = not held[-1][0].endswith("\n")
        if self._open:
            self._write([("\n", "")])
        self._open = self._asking = False

    def _write(self, parts: list[tuple[str, str]]) -> None:
        # Segments are written as they are: no markup, no emoji codes, no tabs turned into spaces.
        from rich.segment import Segment, Segments

        segments = [Segment(text, self._console.get_style(style) if style else None) for text, style in parts]
        self._console.print(Segments(segments), end="", soft_wrap=True)

"""What the chat shows: a transcript for people, or JSON lines for programs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay.artefacts import Side
from replay.chat.contract import Observer
from replay.chat.options import Wire
from replay.printer import brief, visible
from replay.transcript import Transcript

if TYPE_CHECKING:
    from rich.console import Console

_OUTPUT_LINES = 40
_QUIET = 0.05
"""Seconds without output after which an interrupted question is shown again."""


class Screen(Observer, Protocol):
    """Shows the conversation as it passes, and the client's own remarks."""

    def note(self, text: str) -> None:
        """A remark."""
        ...

    def problem(self, text: str) -> None:
        """Something that went wrong."""
        ...

    def terminal_output(self, name: str, text: str) -> None:
        """Lines that a command in one of the client's terminals wrote."""
        ...

    def prompt(self, text: str) -> None:
        """Ask for a line of input; shown again when something else was shown in between, until it came."""
        ...

    def entered(self) -> None:
        """The line was typed."""
        ...

    def withdraw(self) -> None:
        """Nobody waits for the line any more."""
        ...

    def toggle_wire(self) -> None:
        """Show frames, or stop it."""
        ...

    def ended(self, status: int, /) -> None:
        """It is over; the exit status."""
        ...


def plain_console(file: IO[str], unread: Callable[[], None]) -> Console:
    """A console for a stream: colours on a terminal, none elsewhere. `unread` is called when nobody reads any more."""
    from rich.console import Console

    class Watched(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            _leave_unread(file)
            unread()

    return Watched(file=file, force_terminal=None if file.isatty() else False)


def _leave_unread(file: IO[str]) -> None:
    """Nobody reads what is written here, and Python's own flush at exit must not complain about it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, file.fileno())
    os.close(null)


class Readable:
    """A transcript. The agent's stderr is part of it on a terminal; elsewhere it goes to ours."""

    def __init__(self, console: Console, wire: Wire, *, typed: bool) -> None:
        self._transcript = Transcript(console, prompts=not typed, output_lines=_OUTPUT_LINES)
        self._printer = self._transcript.printer
        self._wire: Wire = wire
        self._printer.hold = wire != "off"
        self._on_terminal = console.is_terminal
        self._asking: str | None = None
        self._redraw: asyncio.TimerHandle | None = None

    def sent(self, line: bytes) -> None:
        self._frame(line, "client")

    def received(self, line: bytes) -> None:
        self._frame(line, "agent")

    def junk(self, line: bytes, why: str) -> None:
        self._transcript.unreadable(line, why)
        self._ask_again()

    def stderr(self, text: str) -> None:
        if self._on_terminal:
            self._printer.line(("stderr: ", "dim magenta"), (visible(text), "dim"))
            self._ask_again()
        else:
            sys.stderr.write(f"{visible(text)}\n")
            sys.stderr.flush()

    def note(self, text: str) -> None:
        self._transcript.note(text)
        self._ask_again()

    def problem(self, text: str) -> None:
        self._transcript.note(text, "red")
        self._ask_again()

    def terminal_output(self, name: str, text: str) -> None:
        for line in visible(text).splitlines():
            self._printer.aside((f"  {name}: ", "dim cyan"), (line, "dim"))
        self._ask_again()

    def prompt(self, text: str) -> None:
        self._asking = text
        self._printer.ask(text, "bold blue")

    def entered(self) -> None:
        self._asking = None
        self._printer.answered()

    def withdraw(self) -> None:
        self._asking = None
        self._printer.end_line()

    def toggle_wire(self) -> None:
        self._wire = "short" if self._wire == "off" else "off"
        self._printer.end_line()
        self._printer.hold = self._wire != "off"
        self.note(f"frames {'off' if self._wire == 'off' else 'on'}")

    def ended(self, _status: int, /) -> None:
        self._asking = None
        self._printer.end_line()

    def _frame(self, line: bytes, sender: Side) -> None:
        if self._wire != "off":
            arrow, style = ("->", "blue") if sender == "client" else ("<-", "magenta")
            text = visible(line.decode(errors="replace")) if self._wire == "full" else brief(line)
            self._printer.aside((f"{arrow} ", style), (text, "dim"))
        self._transcript.show(line, sender)
        self._ask_again()

    def _ask_again(self) -> None:
        """Once a burst of output is over."""
        if self._asking is None or self._printer.asking:
            return
        if self._redraw is not None:
            self._redraw.cancel()
        self._redraw = asyncio.get_running_loop().call_later(_QUIET, self._draw)

    def _draw(self) -> None:
        if self._asking is not None and not self._printer.asking:
            self._printer.ask(self._asking, "bold blue")


class _Row(Struct, frozen=True, omit_defaults=True):
    sender: Side | UnsetType = UNSET
    frame: Raw | UnsetType = UNSET
    junk: str | UnsetType = UNSET
    why: str | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    status: int | UnsetType = UNSET


class JsonLines:
    """A JSON object a line, for programs. `unread` is called when nobody reads any more."""

    def __init__(self, file: IO[str], unread: Callable[[], None]) -> None:
        self._file = file
        self._unread = unread

    def sent(self, line: bytes) -> None:
        self._write(_Row(sender="client", frame=Raw(line)))

    def received(self, line: bytes) -> None:
        self._write(_Row(sender="agent", frame=Raw(line)))

    def junk(self, line: bytes, why: str) -> None:
        self._write(_Row(sender="agent", junk=line.decode(errors="replace"), why=why))

    def stderr(self, text: str) -> None:
        self._write(_Row(sender="agent", stderr=text))

    def note(self, text: str) -> None:
        self._write(_Row(note=text))

    def problem(self, text: str) -> None:
        self._write(_Row(note=text))

    def ended(self, status: int) -> None:
        self._write(_Row(status=status))

    def terminal_output(self, name: str, text: str) -> None:
        """The frames say it."""

    def prompt(self, text: str) -> None:
        """Nobody is asked."""

    def entered(self) -> None:
        """Nobody was asked."""

    def withdraw(self) -> None:
        """Nobody was asked."""

    def toggle_wire(self) -> None:
        """Frames are all there is."""

    def _write(self, row: _Row) -> None:
        try:
            self._file.write(f"{msgspec.json.encode(row).decode()}\n")
            self._file.flush()
        except BrokenPipeError:
            _leave_unread(self._file)
            self._unread()

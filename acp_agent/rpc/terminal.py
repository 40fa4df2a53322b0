"""A terminal as input: somebody types or pastes messages by hand."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import sys
import termios
from typing import Any, Final

HINT: Final = (
    "acp-agent speaks the Agent Client Protocol: JSON-RPC 2.0, one message a line. An editor starts it;\n"
    "by hand, type or paste JSON lines here. Ctrl-D ends.\n"
)

_NEWLINE = ord("\n")
_BACKSPACE = ord("\b")
_LFLAG, _CC = 3, 6  # positions in what termios calls attributes


class TerminalInput:
    """Line input from a terminal without the kernel's line editor, which cuts lines at 4,096 bytes.

    Typed characters are still echoed; erase, kill and end of file (Backspace, Ctrl-U, Ctrl-D as a rule) work
    as the terminal is set up. Signals from the keyboard are untouched. The terminal gets its settings back
    in `close`, which also runs at exit.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._line = bytearray()
        self._saved: list[Any] | None = None
        self._erase = frozenset({_BACKSPACE, 0x7F})
        self._kill = ord("U") - 64
        self._eof = ord("D") - 64

    def open(self) -> None:
        """Say on stderr what is expected here, and switch the terminal."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(HINT)
            sys.stderr.flush()
        self._saved = termios.tcgetattr(self._fd)
        characters = self._saved[_CC]
        self._erase |= {ord(characters[termios.VERASE])}
        self._kill = ord(characters[termios.VKILL])
        self._eof = ord(characters[termios.VEOF])
        atexit.register(self.close)
        self._switch()
        # A shell that stopped us with Ctrl-Z has its own settings in place when we go on.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._switch)

    def edit(self, chunk: bytes) -> tuple[bytes, bool]:
        """Take what was typed; return the lines it completed, and whether it ended the input."""
        if len(chunk.translate(None, self._controls())) == len(chunk):
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                self._line += tail
                return b"", False
            done = bytes(self._line) + head + newline
            self._line = bytearray(tail)
            return done, False
        return self._edit_slowly(chunk)

    def close(self) -> None:
        """Give the terminal its settings back. Safe to call twice."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        atexit.unregister(self.close)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        self._set(saved)

    def _controls(self) -> bytes:
        return bytes({*self._erase, self._kill, self._eof})

    def _edit_slowly(self, chunk: bytes) -> tuple[bytes, bool]:
        done = bytearray()
        for byte in chunk:
            if byte == self._eof:
                return bytes(done + self._line), True
            if byte in self._erase:
                self._erase_character(echoed=byte)
            elif byte == self._kill:
                while self._line:
                    self._erase_character()
            else:
                self._line.append(byte)
                if byte == _NEWLINE:
                    done += self._line
                    self._line.clear()
        return bytes(done), False

    def _erase_character(self, echoed: int = 0) -> None:
        if not self._line:
            return
        while self._line and self._line.pop() & 0xC0 == 0x80:
            pass  # the rest of a UTF-8 sequence goes with its last byte
        # The terminal has shown the key itself: a backspace moved the cursor, anything else is invisible.
        with contextlib.suppress(OSError):
            os.write(self._fd, b" \b" if echoed == _BACKSPACE else b"\b \b")

    def _switch(self) -> None:
        if self._saved is None:
            return
        settings = list(self._saved)
        settings[_LFLAG] &= ~(termios.ICANON | termios.ECHOCTL)
        settings[_CC] = list(settings[_CC])
        settings[_CC][termios.VMIN], settings[_CC][termios.VTIME] = 1, 0
        self._set(settings)

    def _set(self, settings: list[Any]) -> None:
        # From the background, setting a terminal would stop the process, even on its way out.
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._fd) != os.getpgrp():
                return
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSANOW, settings)

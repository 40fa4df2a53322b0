"""The client's terminals: real local processes that an agent creates, reads, waits for, kills and releases."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    import subprocess

_WITHIN_CHARACTERS = bytes(range(0x80, 0xC0))
"""Bytes that begin no character: where they stand first, what they belong to was left out."""


class Variable(Struct, frozen=True):
    name: str
    value: str


class CreateParams(Struct, frozen=True, rename="camel"):
    command: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    cwd: str | None = None
    output_byte_limit: int | None = None


class ExitStatus(Struct, frozen=True, rename="camel"):
    """How a command ended: with a code, or by a signal's name."""

    exit_code: int | None
    signal: str | None


class TerminalOutput(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The output so far; `truncated` when its beginning was left out."""

    output: str
    truncated: bool
    exit_status: ExitStatus | UnsetType = UNSET


class Terminal:
    """One command in a process group of its own. Its output is kept in `file`."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, limit: int | None) -> None:
        self._process = process
        self._file = file
        self._limit = limit
        self._waiting: list[Callable[[ExitStatus], None]] = []

    def output(self) -> TerminalOutput:
        """What the command wrote so far, at most `limit` bytes from its end, cut between characters."""
        data = self._file.read_bytes()
        kept = data if self._limit is None else _tail(data, self._limit)
        ended = self.exit_status()
        return TerminalOutput(kept.decode(errors="replace"), len(kept) < len(data), UNSET if ended is None else ended)

    def since(self, start: int, most: int) -> tuple[int, bytes]:
        """What the command wrote from a byte on, at most the last `most` bytes; before it, how many were left out."""
        kept = most if self._limit is None else min(most, self._limit)
        with self._file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = file.seek(max(start, size - kept))
            data = file.read(max(0, size - first))
        if first > start:
            data = data.lstrip(_WITHIN_CHARACTERS)
        return max(0, size - start - len(data)), data

    def exit_status(self) -> ExitStatus | None:
        """How the command ended; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        return ExitStatus(status, None) if status >= 0 else ExitStatus(None, signal.Signals(-status).name)

    def when_ended(self, tell: Callable[[ExitStatus], None]) -> None:
        """Call `tell` once the command has ended: from the next `look` on."""
        self._waiting.append(tell)

    def look(self) -> None:
        """Tell those who wait, if the command has ended."""
        ended = self.exit_status() if self._waiting else None
        if ended is not None:
            waiting, self._waiting = self._waiting, []
            for tell in waiting:
                tell(ended)

    def kill(self) -> None:
        """Kill the command and what it started; returns when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Terminals:
    """All terminals of a run. `directory` keeps their output, `environ` is what commands get beside their own."""

    def __init__(self, directory: Path, workspace: Path, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._workspace = workspace
        self._environ = environ
        self._open: dict[str, Terminal] = {}
        self._made = 0

    def create(self, params: CreateParams) -> str:
        """Start a command; returns the terminal's id. Raises `OSError` when it cannot be started."""
        import subprocess

        added = {variable.name: variable.value for variable in params.env or ()}
        self._directory.mkdir(exist_ok=True)
        file = self._directory / f"{self._made + 1}.out"
        with file.open("wb") as output:
            process = subprocess.Popen(
                [params.command, *(params.args or ())], cwd=params.cwd or self._workspace,
                env={**self._environ, **added}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True)
        self._made += 1
        name = f"terminal-{self._made}"
        self._open[name] = Terminal(process, file, params.output_byte_limit)
        return name

    def find(self, name: str) -> Terminal | None:
        """The terminal of an id, unless it was released."""
        return self._open.get(name)

    def release(self, name: str) -> None:
        """Kill the command if it runs, tell those who wait for it, forget the id."""
        terminal = self._open.pop(name)
        terminal.kill()
        terminal.look()

    def look(self) -> None:
        """Tell those who wait for commands that have ended."""
        for terminal in list(self._open.values()):
            terminal.look()

    def close(self) -> None:
        """Kill everything; nobody is told."""
        for terminal in self._open.values():
            terminal.kill()
        self._open.clear()


def _tail(data: bytes, limit: int) -> bytes:
    if len(data) <= limit:
        return data
    return data[len(data) - limit :].lstrip(_WITHIN_CHARACTERS)

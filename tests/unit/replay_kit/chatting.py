"""Runs of `acp-agent chat` as a process, for its tests."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pexpect

from tests.support.processes import MARK, clean_environment, kill_marked, new_mark, wait_until_gone
from tests.unit.replay_kit.driven import TIMEOUT

TINY = shlex.join([sys.executable, str(Path(__file__).with_name("chat_agent.py"))])
SDK = shlex.join([sys.executable, str(Path(__file__).parents[2] / "support" / "sdk_agent.py")])
CHAT = (sys.executable, "-m", "acp_agent", "chat")


class Ended(subprocess.CompletedProcess[str]):
    """A run that has ended."""

    @property
    def rows(self) -> list[Any]:
        """What `--json` printed."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def environment(home: Path, mark: str, **environ: str) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return clean_environment(home) | {MARK: mark, "TERM": "xterm"} | environ


def chat(
    directory: Path, *words: str, agent: str | None = TINY, stdin: str | Path = "", **environ: str,
) -> Ended:
    """Run it to its end; no process may be left. `agent` None is our own. `stdin` is a file, or what a pipe says."""
    mark = new_mark()
    flags = [] if agent is None else ["--agent", agent]
    source = stdin.open() if isinstance(stdin, Path) else subprocess.PIPE
    with subprocess.Popen(
        [*CHAT, *flags, *words], cwd=directory, env=environment(directory / ".home", mark, **environ), stdin=source,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(None if isinstance(stdin, Path) else stdin, TIMEOUT)
            assert wait_until_gone(mark) == []
        finally:
            kill_marked(mark)
            if not isinstance(source, int):
                source.close()
    return Ended(process.args, process.returncode, out, err)


class Terminal:
    """A chat at a pseudo-terminal. A context manager; no process may be left at its end."""

    def __init__(self, directory: Path, *words: str, agent: str | None = TINY, **environ: str) -> None:
        self.mark = new_mark()
        flags = [] if agent is None else ["--agent", agent]
        with warnings.catch_warnings():
            # Forking beside the threads of a test runner is what a terminal takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child: pexpect.spawn[str] = pexpect.spawn(
                CHAT[0], [*CHAT[1:], *flags, *words], cwd=str(directory), timeout=TIMEOUT, encoding="utf-8",
                env=environment(directory / ".home", self.mark, **environ), dimensions=(50, 200))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                assert wait_until_gone(self.mark) == []
        finally:
            kill_marked(self.mark)
            self.child.close(force=True)

    def see(self, text: str) -> str:
        """Wait until a text is shown; everything before it since the last wait."""
        self.child.expect_exact(text)
        return str(self.child.before)

    def type(self, line: str) -> None:
        """Type a line."""
        self.child.sendline(line)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.child.sendintr()

    def leave(self) -> int:
        """Ctrl-D, then the exit status."""
        self.child.sendeof()
        return self.status()

    def status(self) -> int:
        """Wait for the end; the exit status."""
        self.child.expect(pexpect.EOF)
        self.child.wait()
        assert self.child.exitstatus is not None, f"ended by a signal: {self.child.signalstatus}"
        return self.child.exitstatus


@contextmanager
def running(
    directory: Path, *words: str, agent: str | None = TINY, **environ: str,
) -> Iterator[subprocess.Popen[str]]:
    """A chat with pipes that is still running. No process may be left at the end. `agent` None is our own."""
    mark = new_mark()
    flags = [] if agent is None else ["--agent", agent]
    process = subprocess.Popen(
        [*CHAT, *flags, *words], cwd=directory, env=environment(directory / ".home", mark, **environ), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
        process.wait(TIMEOUT)
        assert wait_until_gone(mark) == []
    finally:
        kill_marked(mark)
        process.communicate()


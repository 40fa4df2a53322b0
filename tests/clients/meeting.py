"""A client meets the real agent: where both work, what passed between them, and what is judged of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.client import AGENT, TIMEOUT, Failed
from tests.support.history_laws import check_history
from tests.support.laws import Entry, check_laws, parse_line
from tests.support.log_laws import check_store_laws
from tests.support.schema import Frame, Pending, validate_frame
from tests.support.transcript import Transcript

TEE = Path(__file__).with_name("tee.py")


class Wire(Transcript):
    """What passed between a client and one agent process."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.transcript = [_entry(row) for row in rows if "line" in row]
        self.signals = [row["signal"] for row in rows if "signal" in row]
        """The signals the client sent."""
        self.status: int | None = next((row["status"] for row in rows if "status" in row), None)
        """The agent's exit status; None when it still runs, or nobody was left to see it."""

    def sent(self, method: str) -> list[Frame]:
        """The params of the client's calls of a method, in order."""
        frames = [entry.frame for entry in self.transcript if entry.sender == "client"]
        return [frame.get("params", {}) for frame in frames if frame.get("method") == method]

    def questions(self) -> list[Frame]:
        """The params of the agent's questions for permission, in order."""
        return [frame["params"] for frame in self.received if frame.get("method") == "session/request_permission"]


def _entry(row: Mapping[str, Any]) -> Entry:
    raw = row["line"].encode("latin-1")
    return Entry(row["from"], parse_line(raw), raw, row["at"])


@dataclass
class Meeting:
    """Runs clients that start our agent with its pipes on record; at the end `judge` looks at everything."""

    root: Path
    unstable: bool = False
    """Whether the protocol's unstable parts are in use."""
    settings: dict[str, str] = field(default_factory=dict)
    """The agent's settings."""
    signalled: str | None = None
    """Why the client may have ended the agent by a signal."""

    def __post_init__(self) -> None:
        self.home, self.workspace = self.root / "home", self.root / "workspace"
        self.store, self._wires = self.root / "sessions", self.root / "wires"
        for directory in (self.home, self.workspace, self._wires):
            directory.mkdir()
        self._mark = processes.new_mark()
        self.command = [sys.executable, str(TEE), str(self._wires), *AGENT]
        """What a client is to start."""
        self.settings["ACP_SESSION_STORE"] = f"jsonl:{self.store}"

    def environ(self) -> dict[str, str]:
        """What a client is started with, and starts its agent with."""
        return processes.clean_environment(self.home) | self.settings | {processes.MARK: self._mark}

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A running client, with its output in pipes."""
        return subprocess.Popen(command, cwd=self.workspace, env=self.environ(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *command: str, status: int = 0) -> str:
        """Run a client to its end; returns what it printed. Raises `Failed` for another exit status."""
        return self.finish(self.start(*command), status)

    def finish(self, client: subprocess.Popen[str], status: int = 0) -> str:
        """Wait for a client's end; returns what it printed."""
        try:
            out, err = client.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            client.kill()
            out, err = client.communicate()
            raise Failed(f"the client did not end within {TIMEOUT:g} s; {self._report(out, err)}") from None
        if client.returncode != status:
            raise Failed(f"the client's exit status is {client.returncode}, not {status}; {self._report(out, err)}")
        return out

    def wires(self) -> list[Wire]:
        """What passed so far, for each agent process in the order of their starts."""
        files = sorted(self._wires.iterdir())
        return [Wire([json.loads(row) for row in file.read_text(encoding="utf-8").splitlines(keepends=True)
                      if row.endswith("\n")]) for file in files]

    def wait_until(self, condition: Callable[[], bool], client: subprocess.Popen[str]) -> None:
        """Wait for a state while a client runs."""
        deadline = time.monotonic() + TIMEOUT
        while client.poll() is None and time.monotonic() < deadline:
            if condition():
                return
            processes.pause()
        client.kill()
        out, err = client.communicate()
        raise Failed(f"what was waited for did not come; {self._report(out, err)}")

    def judge(self) -> None:
        """Raise `Failed` for every law that was broken, on the wire and in the store, and for processes left behind."""
        problems = [f"left behind: {name}" for name in processes.wait_until_gone(self._mark)]
        wires = self.wires()
        for number, wire in enumerate(wires):
            found = check_laws(wire.transcript, finished=wire.status == 0, unstable=self.unstable)
            found += self._frames(wire)
            if self.signalled is None and (wire.signals or wire.status != 0):
                found.append(f"the agent ended with status {wire.status} after the signals {wire.signals}")
            problems += [f"agent {number}: {problem}" for problem in found]
        if not wires:
            problems.append("no agent was started")
        problems += check_store_laws(self.store)
        problems += check_history([wire.transcript for wire in wires], self.store)
        if problems:
            raise Failed("a meeting that kept the laws\n  " + "\n  ".join(problems) + self._report("", ""))

    def _frames(self, wire: Wire) -> list[str]:
        """What is wrong with the client's frames; the agent's are judged by the laws."""
        pending = Pending()
        found = [(entry.sender, validate_frame(entry.frame, entry.sender, pending, unstable=self.unstable))
                 for entry in wire.transcript]
        return [f"the client's frame: {problem}" for sender, problems in found if sender == "client"
                for problem in problems]

    def abandon(self) -> None:
        """Kill what runs."""
        processes.kill_marked(self._mark)

    def _report(self, out: str, err: str) -> str:
        lines = [f"  {number} {'->' if entry.sender == 'client' else '<-'} {entry.raw[:300].decode(errors='replace')}"
                 for number, wire in enumerate(self.wires()) for entry in wire.transcript[-15:]]
        return f"\nstdout:\n{out[-3000:]}\nstderr:\n{err[-3000:]}\nlast frames:\n" + "".join(lines)

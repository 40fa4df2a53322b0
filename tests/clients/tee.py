"""An agent's command with an ear on its pipes: `tee.py DIRECTORY COMMAND...` runs it, and passes every line on.

Each process writes a file of its own into the directory, a JSON row for each line, in the order the lines passed. A
line is on record before it is passed on, so whatever was asked stands before its answer:

    {"from": "client", "at": SECONDS, "line": TEXT}     as it was, byte for byte, read as Latin-1
    {"from": "agent", ...}
    {"signal": NUMBER}                                  the client sent it; the agent gets it too
    {"status": NUMBER}                                  the agent's exit status: it came to its end before we did

With TEE_HIDE=resume the client is not told that this agent can resume sessions; on record is what the agent said.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Record:
    """The file of this process. Rows are written whole, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / f"{time.time_ns()}-{os.getpid()}.jsonl").open("x", encoding="utf-8")
        self._lock = threading.Lock()

    def line(self, sender: str, line: bytes) -> None:
        """Note a line that is about to be passed on."""
        self.row({"from": sender, "at": time.monotonic(), "line": line.decode("latin-1")})

    def row(self, row: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def close(self) -> None:
        """What comes now is of no interest: the agent is gone."""
        with self._lock:
            self._file.close()


def main() -> int:
    directory, *command = sys.argv[1:]
    record = Record(Path(directory))
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signals: list[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        signals.append(number)  # the record's lock may be held by the code this interrupted
        agent.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    threading.Thread(target=_feed, args=(record, agent), daemon=True).start()
    _drain(record, agent, hidden=os.environ.get("TEE_HIDE"))
    status = agent.wait()
    for sent in signals:
        record.row({"signal": sent})
    record.row({"status": status})
    record.close()
    return status if status >= 0 else 128 - status


def _feed(record: Record, agent: subprocess.Popen[bytes]) -> None:
    assert agent.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError):  # the agent is gone, and so may the record be
        for line in sys.stdin.buffer:
            record.line("client", line)
            agent.stdin.write(line)
            agent.stdin.flush()
        agent.stdin.close()


def _drain(record: Record, agent: subprocess.Popen[bytes], *, hidden: str | None) -> None:
    """Until the agent's output ends, also when the client does not listen any more."""
    assert agent.stdout is not None
    listened = True
    for line in agent.stdout:
        record.line("agent", line)
        if hidden is not None:
            line = _without(line, hidden)
        if listened:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                listened = False


def _without(line: bytes, capability: str) -> bytes:
    frame = json.loads(line)
    offered = frame.get("result", {}).get("agentCapabilities", {}).get("sessionCapabilities", {})
    if offered.pop(capability, None) is None:
        return line
    return json.dumps(frame).encode() + b"\n"


if __name__ == "__main__":
    ended = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(ended)  # the feeding thread may stand in a read that never ends

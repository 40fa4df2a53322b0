"""What many wire tests begin with and look at: a started agent, an open session, its stored log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.log_laws import Log, read_log
from tests.wire.recordings import Entry, script

LIVE = {"ACP_REPLAY_TOOLS": "live"}
"""Tools really run."""

FREE = LIVE | {"ACP_PERMISSION_MODE": "full-access"}
"""Tools really run, and nothing is asked."""


def recording(bench: Workbench, *entries: Entry) -> Path:
    """A replay directory that serves these model calls."""
    return script(bench.store.parent / "recording", *entries)


def opened(bench: Workbench, *entries: Entry, **environ: str) -> tuple[AgentProcess, str]:
    """An initialized agent that is served these model calls, and a session in it."""
    agent = bench(replay=recording(bench, *entries), environ=environ)
    agent.initialize()
    return agent, agent.new_session()


def stop_reason(answer: dict[str, Any]) -> str:
    """How a prompt's response says that the turn ended."""
    reason: str = answer["result"]["stopReason"]
    return reason


def stored(bench: Workbench, session: str) -> Log:
    """A session as its log file holds it."""
    for path in bench.store.rglob("*.jsonl"):
        log = read_log(path.read_bytes().split(b"\n")[:-1])
        if log.header["id"] == session:
            return log
    raise AssertionError(f"session {session} is not stored")


def kinds(log: Log) -> list[str]:
    """The types of a log's events."""
    return [event["type"] for event in log.events]


def last(log: Log, kind: str) -> dict[str, Any]:
    """The data of a log's last event of a type."""
    data: dict[str, Any] = [event for event in log.events if event["type"] == kind][-1]["data"]
    return data


# ---------------------------------------------------------------- messages written by hand


def request(request_id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request's frame."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def line(frame: Any, end: bytes = b"\n") -> bytes:
    """A frame as a line; nothing in it is escaped that need not be."""
    return json.dumps(frame, ensure_ascii=False).encode() + end


def text_prompt(text: str) -> list[dict[str, str]]:
    """A prompt's content: one text block."""
    return [{"type": "text", "text": text}]


# ---------------------------------------------------------------- the process


def peak_memory(pid: int) -> int:
    """The most memory a process ever had resident, in bytes."""
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")

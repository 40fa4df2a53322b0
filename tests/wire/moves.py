"""What many wire tests begin with: a started agent, an open session, a message written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.wire.recordings import Entry, script


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
    return _memory(pid, "VmHWM:")


def resident_memory(pid: int) -> int:
    """The memory a process has resident now, in bytes."""
    return _memory(pid, "VmRSS:")


def _memory(pid: int, name: str) -> int:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith(name):
            return int(row.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")

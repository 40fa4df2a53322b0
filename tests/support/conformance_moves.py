"""What the conformance tests begin with: scripts, clients, and questions about a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.client import AgentProcess
from tests.support.schema import Frame, id_key, is_response

HANGING = 'call\n  say "Work" "ing"\n  hang hanging\ncall repeat\n  say "Next."\n'
"""A model whose first answer begins and never ends; the file `hanging` shows that it was reached."""


def lines(process: AgentProcess, *frames: Any) -> list[Frame]:
    """Send these lines (bytes as they are, anything else as JSON); the responses up to that of a later request."""
    since = process.position
    for frame in frames:
        process.send_bytes((frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n")
    process.call("_tests/barrier", {})
    return responses(process, since)[:-1]


def responses(process: AgentProcess, since: int = 0) -> list[Frame]:
    """The responses from a position on, in order."""
    return [entry.frame for entry in process.transcript[since:] if entry.sender == "agent" and is_response(entry.frame)]


def answered(process: AgentProcess, *requests: Any) -> list[Any]:
    """The ids of the responses to these requests, in the order in which they came."""
    keys = {id_key(request) for request in requests}
    return [frame["id"] for frame in responses(process) if id_key(frame["id"]) in keys]


def code(answer: Frame) -> int | None:
    """The error code of a response; None for a result."""
    found: int | None = answer["error"]["code"] if "error" in answer else None
    return found


def reason(answer: Frame) -> str:
    """How a prompt's response says that the turn ended."""
    found: str = answer["result"]["stopReason"]
    return found


def kinds(updates: list[Frame]) -> list[str]:
    """The kinds of some updates, in order."""
    return [update["sessionUpdate"] for update in updates]


def statuses(process: AgentProcess, call: str) -> list[str]:
    """The statuses a tool call had, in order."""
    return [update["status"] for update in process.updates()
            if update.get("toolCallId") == call and update.get("status")]


def final(process: AgentProcess, session: str, call: str) -> Frame:
    """The last update of a tool call."""
    return [update for update in process.updates(session) if update.get("toolCallId") == call][-1]


def wait_for_file(process: AgentProcess, name: str) -> None:
    """Wait until a file stands in the agent's directory."""
    process.wait_until((process.cwd / name).exists, f"the file {name}")


def hung(process: AgentProcess, session: str) -> int:
    """A prompt whose answer, of the model `HANGING`, has begun and hangs."""
    prompt = process.start_prompt(session, "Work.")
    wait_for_file(process, "hanging")
    process.wait_for_update("agent_message_chunk", session=session)
    return prompt


def asked(process: AgentProcess, method: str) -> list[Frame]:
    """The params of the agent's requests of a method, in order."""
    return [entry.frame["params"] for entry in process.transcript if entry.sender == "agent"
            and entry.frame.get("method") == method and "id" in entry.frame]


def opening(session: str, cwd: Path, **members: Any) -> Frame:
    """The params of session/load, resume and fork."""
    return {"sessionId": session, "cwd": str(cwd), "mcpServers": [], **members}


def pages(process: AgentProcess, **params: Any) -> Iterator[Frame]:
    """Every page of a list."""
    cursor: Frame = {}
    while True:
        page = process.call("session/list", params | cursor)["result"]
        yield page
        if page.get("nextCursor") is None:
            return
        cursor = {"cursor": page["nextCursor"]}


def listed(process: AgentProcess, **params: Any) -> list[str]:
    """The ids of all listed sessions, in order."""
    return [entry["sessionId"] for page in pages(process, **params) for entry in page["sessions"]]

"""Hand-made conversations and logs for the kit's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from replay.artefacts import Artefacts, FileState, HarvestedLog, Side, WireLine

WORKSPACE, HOME = "/tmp/run-7/ws", "/tmp/run-7/home"
ONE, TWO = "11111111-aaaa-4aaa-8aaa-111111111111", "22222222-bbbb-4bbb-8bbb-222222222222"
MESSAGE, OTHER = "33333333-cccc-4ccc-8ccc-333333333333", "44444444-dddd-4ddd-8ddd-444444444444"
STRANGER = "99999999-eeee-4eee-8eee-999999999999"

Frame = dict[str, Any]


def line(sender: Side, **members: Any) -> WireLine:
    return WireLine(sender, json.dumps({"jsonrpc": "2.0", **members}).encode())


def asks(number: Any, method: str, **params: Any) -> WireLine:
    """A request of the client's."""
    return line("client", id=number, method=method, params=params)


def answers(number: Any, **result: Any) -> WireLine:
    """A response of the agent's."""
    return line("agent", id=number, result=result)


def update(session: str, kind: str, /, **members: Any) -> WireLine:
    return line("agent", method="session/update",
                params={"sessionId": session, "update": {"sessionUpdate": kind, **members}})


def says(session: str, text: str, message: str = MESSAGE) -> WireLine:
    return update(session, "agent_message_chunk", content={"type": "text", "text": text}, messageId=message)


def announced(session: str, call: str, /, **members: Any) -> WireLine:
    return update(session, "tool_call", toolCallId=call, title=call, status="pending", **members)


def progress(session: str, call: str, **members: Any) -> WireLine:
    return update(session, "tool_call_update", toolCallId=call, **members)


def shown(text: str) -> list[Frame]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def permission(number: Any, session: str, call: str) -> WireLine:
    return line("agent", id=number, method="session/request_permission",
                params={"sessionId": session, "toolCall": {"toolCallId": call, "title": call}, "options": []})


def opened(session: str = ONE, *, number: int = 1) -> list[WireLine]:
    """A session made, and prompted by the next request."""
    return [asks(number, "session/new", cwd=WORKSPACE), answers(number, sessionId=session),
            asks(number + 1, "session/prompt", sessionId=session, prompt=[])]


def log(session: str, events: Iterable[Frame], **header: Any) -> HarvestedLog:
    """A stored log; events get their seqs and times."""
    first = {"type": "session", "version": 0, "id": session, "createdAt": 1790000000000, "cwd": WORKSPACE,
             "delegationDepth": 0} | header
    rows = [{"type": event["type"], "seq": seq, "time": 1790000000000 + seq, "data": event.get("data", {})}
            | {key: value for key, value in event.items() if key not in ("type", "data")}
            for seq, event in enumerate(events)]
    text = "".join(json.dumps(row) + "\n" for row in [first, *rows])
    return HarvestedLog(Path(f"/store/{session}.jsonl"), text.encode())


def event(kind: str, /, **data: Any) -> Frame:
    return {"type": kind, "data": data}


def user(text: str, message: str = MESSAGE) -> Frame:
    return event("user/message", content=[{"type": "text", "text": text}], source={"kind": "user"}, role="user",
                 id=message) | {"surfaceOp": "append"}


def run(
    wire: Sequence[WireLine] = (), logs: Sequence[HarvestedLog] = (), files: Sequence[FileState] = (),
    *, receipt: bytes | None = None,
) -> Artefacts:
    return Artefacts(tuple(wire), tuple(logs), tuple(files), "", 0, receipt, (WORKSPACE,), HOME)

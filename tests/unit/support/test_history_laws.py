"""What was shown against what is stored, over loads and processes that were killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.history_laws import check_history
from tests.support.laws import Entry
from tests.support.schema import Sender

CALL = {"type": "tool-call", "id": "c", "name": "read", "arguments": '{"file_path":"a"}'}
EVENTS: list[dict[str, Any]] = [
    {"type": "turn/start", "data": {"turn": 1}},
    {"type": "step/start", "data": {"turn": 1, "step": 1}},
    {"type": "assistant/message", "data": {"turn": 1, "step": 1, "message": {
        "role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL],
        "source": {"kind": "model"}, "id": "m"}}, "surfaceOp": "append"},
    {"type": "tool/call", "data": {"turn": 1, "step": 1, "callId": "c", "name": "read",
                                   "arguments": CALL["arguments"]}},
    {"type": "tool/result", "data": {"turn": 1, "step": 1, "message": {
        "source": {"kind": "tool", "callId": "c"}, "role": "user", "id": "r", "content": [
            {"type": "tool-result", "toolCallId": "c", "content": [{"type": "text", "text": "unknown"}],
             "isError": True}]}}, "sourceEventSeqs": [3], "surfaceOp": "append"},
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    header = {"type": "session", "version": 0, "id": "s", "createdAt": 1, "cwd": "/w", "delegationDepth": 0}
    rows = [{"type": event["type"], "seq": seq, "time": 1} | event for seq, event in enumerate(EVENTS)]
    (tmp_path / "session.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [header, *rows]))
    return tmp_path


def entry(sender: Sender, **members: Any) -> Entry:
    return Entry(sender, {"jsonrpc": "2.0", **members}, b"")


def told(kind: str, /, **members: Any) -> Entry:
    return entry("agent", method="session/update", params={"sessionId": "s", "update": {
        "sessionUpdate": kind, **members}})


SAID = told("agent_message_chunk", messageId="m", content={"type": "text", "text": "I look."})
ANNOUNCED = told("tool_call", toolCallId="c", title="Read a", name="read", kind="read", status="pending",
                 locations=[{"path": "/w/a", "line": 1}])
RUNNING = told("tool_call_update", toolCallId="c", status="in_progress")
FAILED = told("tool_call_update", toolCallId="c", status="failed",
              content=[{"type": "content", "content": {"type": "text", "text": "unknown"}}],
              rawOutput={"text": "unknown", "isError": True})
LOAD, LOADED = entry("client", id=1, method="session/load", params={"sessionId": "s"}), entry("agent", id=1, result={})
BEFORE = [SAID, ANNOUNCED, RUNNING]
WHOLE = [SAID, ANNOUNCED, FAILED]


def test_what_is_stored_was_shown_live_or_by_a_load(store: Path) -> None:
    assert check_history([[*BEFORE, FAILED]], store) == []
    assert check_history([[*BEFORE, FAILED], [LOAD, *WHOLE, LOADED]], store) == []
    assert check_history([[*BEFORE, FAILED], [LOAD, *WHOLE[:2], LOADED, FAILED]], store) != []
    assert check_history([BEFORE], store) != []


def in_terminal(call: str) -> Entry:
    return told("tool_call_update", toolCallId=call, status="in_progress",
                content=[{"type": "terminal", "terminalId": "t"}])


def without_content(update: Entry) -> Entry:
    frame = json.loads(json.dumps(update.frame))
    del frame["params"]["update"]["content"]
    return update._replace(frame=frame)


def test_a_call_shown_in_a_terminal_keeps_it_and_a_load_shows_the_text(store: Path) -> None:
    live = [*BEFORE, in_terminal("c"), without_content(FAILED)]
    assert check_history([live], store) == []
    assert check_history([live, [LOAD, *WHOLE, LOADED]], store) == []
    assert check_history([live, [LOAD, *WHOLE[:2], without_content(FAILED), LOADED]], store) != []
    assert check_history([[*BEFORE, without_content(FAILED)]], store) != [], "no terminal, no text"
    assert check_history([[*BEFORE, in_terminal("other"), without_content(FAILED)]], store) != []
    other = told("tool_call_update", toolCallId="c", status="completed", rawOutput={"text": "unknown", "isError": True})
    assert check_history([[*BEFORE, in_terminal("c"), other]], store) != [], "nothing else may differ"
    loaded_in_terminal = [LOAD, *WHOLE[:2], in_terminal("c"), without_content(FAILED), LOADED]
    assert check_history([live, loaded_in_terminal], store) != [], "a load has no terminal"


def test_text_must_not_take_the_place_of_the_terminal(store: Path) -> None:
    assert check_history([[*BEFORE, in_terminal("c"), FAILED]], store) != []


def test_a_process_that_was_killed_need_not_have_shown_the_end(store: Path) -> None:
    assert check_history([BEFORE, [LOAD, *WHOLE, LOADED]], store) != []
    assert check_history([BEFORE, [LOAD, *WHOLE, LOADED]], store, killed={0}) == []
    assert check_history([BEFORE], store, killed={0}) == []


def test_the_load_after_a_kill_is_held_to_what_is_stored(store: Path) -> None:
    assert check_history([BEFORE, [LOAD, *WHOLE[:2], LOADED]], store, killed={0}) != []
    loads = [LOAD, *WHOLE, LOADED]
    assert check_history([BEFORE, [*loads, LOAD, *WHOLE[:2], LOADED]], store, killed={0}) != []

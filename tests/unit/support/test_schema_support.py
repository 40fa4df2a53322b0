"""The frame validator finds what it is for and lets the protocol's own examples pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.schema.strip import stripped
from tests.support.schema import Frame, Pending, Sender, validate_frame

OPTIONS = [{"optionId": "y", "name": "Allow", "kind": "allow_once"}]


def problems(frame: Any, sender: Sender = "agent", pending: Pending | None = None) -> list[str]:
    return validate_frame(frame, sender, pending or Pending())


def update(**members: Any) -> Frame:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": members}}


TEXT = {"type": "text", "text": "hello"}
GOOD = [
    update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m"),
    update(sessionUpdate="tool_call", toolCallId="c", title="t", kind="read", status="pending", rawInput={"a": 1},
           content=[{"type": "diff", "path": "/a", "newText": "x", "oldText": None},
                    {"type": "content", "content": TEXT}], locations=[{"path": "/a", "line": 1}]),
    update(sessionUpdate="tool_call_update", toolCallId="c", status=None, rawOutput={"any": {"thing": 1}}),
    update(sessionUpdate="plan", entries=[{"content": "a", "priority": "low", "status": "pending"}]),
    update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": 1.5, "currency": "USD"}),
    update(sessionUpdate="session_info_update", title=None, _meta={"any": 1}),
    update(sessionUpdate="current_mode_update", currentModeId="ask"),
    {"jsonrpc": "2.0", "id": 0, "method": "session/request_permission",
     "params": {"sessionId": "s", "toolCall": {"toolCallId": "c", "kind": "edit"}, "options": OPTIONS}},
    {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no", "data": {"x": 1}}},
    {"jsonrpc": "2.0", "method": "_vendor/thing", "params": {"free": True}},
]


@pytest.mark.parametrize("frame", GOOD)
def test_valid_frames_of_the_agent_pass(frame: Frame) -> None:
    assert problems(frame) == []


BAD = [
    (update(sessionUpdate="agent_message_chunk", content="hello"), ".update.content"),
    (update(sessionUpdate="agent_message_chunk", content={"type": "text"}), "'text' is a required property"),
    (update(sessionUpdate="agent_message_chunk", content=TEXT, messageID="m"), "messageID"),
    (update(sessionUpdate="agent_message_chunk", content=TEXT | {"colour": "red"}), "colour"),
    (update(sessionUpdate="invented", content=TEXT), "update"),
    (update(sessionUpdate="tool_call", toolCallId="c"), "'title' is a required property"),
    (update(sessionUpdate="tool_call", toolCallId="c", title="t", status="cancelled"), ".update.status"),
    (update(sessionUpdate="tool_call", toolCallId="c", title="t", content=[TEXT]), ".update.content[0]"),
    (update(sessionUpdate="plan", entries=[{"content": "a", "priority": "low"}]), ".update.entries[0]"),
    (update(sessionUpdate="usage_update", used=-1, size=2), ".update.used"),
    (update(sessionUpdate="session_info_update", subtitle="x"), "subtitle"),
    (update(sessionUpdate="current_mode_update", modeId="ask"), "currentModeId"),
    (update(sessionUpdate="subagent_update", sessionId="x"), "update"),
    ({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s"}}, "'update' is a required"),
    ({"jsonrpc": "2.0", "method": "session/invented", "params": {}}, "not in the protocol"),
    ({"jsonrpc": "2.0", "id": 1, "method": "session/update", "params": {}}, "the request 'session/update'"),
    ({"jsonrpc": "1.0", "method": "_x"}, "jsonrpc"),
    ({"method": "_x"}, "jsonrpc"),
    ({"jsonrpc": "2.0", "id": 1}, "neither request, notification nor response"),
    ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": ""}}, "neither"),
    ({"jsonrpc": "2.0", "result": {}}, "neither"),
    ({"jsonrpc": "2.0", "id": 1, "result": {}, "extra": 1}, "neither"),
    ({"jsonrpc": "2.0", "id": 1.5, "result": {}}, "id: must be"),
    ({"jsonrpc": "2.0", "id": True, "result": {}}, "id: must be"),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": ""}}, "error.code"),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}, "'message' is a required"),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "", "trace": 1}}, "trace"),
    ([], "not an object"),
    ("text", "not an object"),
]


@pytest.mark.parametrize(("frame", "expected"), BAD)
def test_a_frame_that_breaks_the_protocol_is_found(frame: Any, expected: str) -> None:
    found = problems(frame)
    assert found, frame
    assert any(expected in line for line in found), found


def test_a_result_is_checked_by_the_method_of_the_request_it_answers() -> None:
    pending = Pending()
    new = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    same_id_as_text: Frame = {"jsonrpc": "2.0", "id": "1", "method": "session/prompt",
                              "params": {"sessionId": "s", "prompt": [TEXT]}}
    assert problems(new, "client", pending) == problems(same_id_as_text, "client", pending) == []
    assert problems({"jsonrpc": "2.0", "id": "1", "result": {"stopReason": "end_turn"}}, "agent", pending) == []
    wrong = problems({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}, "agent", pending)
    assert any("session/new result: 'sessionId' is a required property" in line for line in wrong)


def test_both_directions_may_use_one_id_at_once() -> None:
    pending = Pending()
    ask: Frame = {"jsonrpc": "2.0", "id": 1, "method": "session/request_permission",
                  "params": {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": OPTIONS}}
    prompt = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s", "prompt": []}}
    assert problems(prompt, "client", pending) == problems(ask, "agent", pending) == []
    selected = {"outcome": {"outcome": "selected", "optionId": "y"}}
    assert problems({"jsonrpc": "2.0", "id": 1, "result": selected}, "client", pending) == []
    assert problems({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "refusal"}}, "agent", pending) == []


def test_an_unknown_stop_reason_and_a_bad_permission_answer_are_found() -> None:
    pending = Pending()
    problems({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}, "client", pending)
    assert problems({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "done"}}, "agent", pending)
    problems({"jsonrpc": "2.0", "id": 2, "method": "session/request_permission", "params": {}}, "agent", pending)
    assert problems({"jsonrpc": "2.0", "id": 2, "result": {"outcome": {"outcome": "yes"}}}, "client", pending)


def test_what_a_client_sends_may_hold_members_nobody_named() -> None:
    frame = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": [], "x": 1}}
    assert problems(frame, "client") == []
    assert problems({"jsonrpc": "2.0", "id": 1, "method": "foo/bar"}, "client") == []


def test_unstable_parts_pass_only_when_asked_for() -> None:
    frame = update(sessionUpdate="plan_removed", planId="p")
    assert problems(frame)
    assert validate_frame(frame, "agent", Pending(), unstable=True) == []


def test_a_remembered_chunk_shape_does_not_hide_a_bad_chunk() -> None:
    for _ in range(2):
        assert problems(update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m")) == []
        assert problems(update(sessionUpdate="agent_message_chunk", content=TEXT, messageId=7))
        assert problems(update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": 7}))
        assert problems(update(sessionUpdate="agent_message_chunk", content={"type": "txt", "text": "hello"}))


def test_stripping_removes_prose_and_keeps_properties_and_data() -> None:
    schema = {
        "title": "T", "description": "D", "type": "object", "x-side": "agent", "default": {"title": "kept"},
        "properties": {"title": {"title": "T", "type": "string"}, "description": {"description": "D"}},
    }
    assert stripped(schema) == {
        "type": "object", "x-side": "agent", "default": {"title": "kept"},
        "properties": {"title": {"type": "string"}, "description": {}},
    }


def test_the_committed_schemas_hold_no_prose() -> None:
    for name in ("schema.json", "schema.unstable.json"):
        schema = json.loads((Path(__file__).parents[2] / "schema" / name).read_text(encoding="utf-8"))
        assert stripped(schema) == schema
        assert "x-method" in schema["$defs"]["PromptRequest"]

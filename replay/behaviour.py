"""What a session did, apart from how it was worded: tool calls, decisions, results' success, how turns ended.

Each function gives a short JSON value for an event or a line that is behaviour, and None for one that is only
wording. Two runs behave the same when these are the same, in the same order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from acp_agent.session.events import SessionHeader
from replay.conversation import UPDATE, as_object
from replay.logform import CHUNK, LogEvent
from replay.order import RESTART
from replay.snapshot import WireFrame

WORDING = frozenset({"session/title", "request/header", "request/context", "session/title-llm-request"})
"""Events that are there for their words or their data."""


def of_header(header: SessionHeader) -> Any:
    """Where a session stands in the tree of sessions, and what it inherited."""
    values = msgspec.to_builtins(header)
    return {key: values[key] for key in ("cwd", "seedLength", "origin", "delegationDepth", "spawn") if key in values}


def of_event(event: LogEvent) -> Any:
    """The behaviour an event stands for, or None."""
    data = event.data
    if event.type in WORDING:
        return None
    if event.type == CHUNK:
        chunk = data["chunk"]
        if chunk["type"] != "finish":
            return None
        return ["finish", chunk["reason"]["kind"], as_object(chunk["reason"].get("failure")).get("code")]
    return [event.type, *_said(event.type, data)]


def _said(kind: str, data: dict[str, Any]) -> list[Any]:
    match kind:
        case "user/message":
            return [data["source"].get("kind"), [part.get("type") for part in data["content"]]]
        case "assistant/message":
            calls = [part for part in data["message"]["content"] if part.get("type") == "tool-call"]
            return [[[call["id"], call["name"], arguments(call["arguments"])] for call in calls],
                    bool(data.get("interrupted"))]
        case "tool/call":
            return [data["turn"], data["step"], data["callId"], data["name"], arguments(data["arguments"])]
        case "tool/result":
            blocks = [part for part in data["message"]["content"] if part.get("type") == "tool-result"]
            return [[[part["toolCallId"], part["isError"]] for part in blocks],
                    as_object(data.get("error")).get("code")]
        case "turn/end":
            reason = data["reason"]
            return [data["turn"], reason["kind"], as_object(reason.get("reason")).get("kind"),
                    as_object(reason.get("error")).get("code")]
        case "approval/asked":
            return [data.get("toolName"), data.get("callId")]
        case "approval/decided":
            return [data.get("outcome")]
        case "llm/retry":
            return [data.get("retry"), as_object(data.get("failure")).get("code")]
        case "file/seen":
            return [data.get("path"), data.get("version") is None]
        case "turn/start" | "step/start" | "step/end" | "todo/write" | "session/config" | "approval/grant":
            return [data]
        case "subagent/descriptor":
            return [data.get("mode"), data.get("provider")]
        case _:
            return []


def arguments(raw: str) -> Any:
    """A call's arguments as JSON, so that spacing does not count; the text where they are none."""
    try:
        return msgspec.json.decode(raw) if raw.strip() else {}
    except msgspec.DecodeError:
        return raw


def of_frame(frame: WireFrame) -> Any:
    """The behaviour a line of the wire stands for, or None."""
    value = frame.value
    method = value.get("method")
    if RESTART in value:
        return [RESTART, value[RESTART]]
    if method is None:
        failure = value.get("error")
        if failure is not None:
            return ["error", value.get("id"), as_object(failure).get("code")]
        return ["result", value.get("id"), as_object(value.get("result")).get("stopReason")]
    params = as_object(value.get("params"))
    if method == UPDATE:
        return _of_update(as_object(params.get("update")))
    if method == "session/request_permission":
        call = as_object(params.get("toolCall"))
        kinds = [as_object(option).get("kind") for option in params.get("options", [])]
        return [method, call.get("toolCallId"), call.get("rawInput"), kinds]
    return [method, params.get("path"), params.get("command"), params.get("args")]


def _of_update(update: dict[str, Any]) -> Any:
    kind, call, status = update.get("sessionUpdate"), update.get("toolCallId"), update.get("status")
    match kind:
        case "tool_call":
            return [kind, call, update.get("name"), update.get("kind"), status, update.get("rawInput")]
        case "tool_call_update":
            return [kind, call, status, _diffs(update.get("content"))]
        case "plan":
            return [kind, update.get("entries")]
        case "current_mode_update":
            return [kind, update.get("currentModeId")]
        case _:
            return None


def _diffs(content: Any) -> list[Any]:
    items = content if isinstance(content, list) else []
    return [as_object(item).get("path") for item in items if as_object(item).get("type") == "diff"]

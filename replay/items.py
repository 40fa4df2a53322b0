"""Events and lines as they are compared and shown: one `Item` each."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from replay import behaviour
from replay.conversation import UPDATE, as_object
from replay.differences import Item
from replay.logform import CHUNK, LogEvent
from replay.names import TOKEN
from replay.order import RESTART
from replay.snapshot import SessionLog, WireFrame


def canonical(value: Any) -> str:
    """A JSON value as text, keys in order."""
    return msgspec.json.encode(value, order="sorted").decode()


def masked(text: str) -> str:
    """A text whose numbered names have no numbers."""
    return TOKEN.sub(r"{{\1}}", text)


def _item(label: str, value: Any, did: Any, cited: Any = None, *, delta: bool = False) -> Item:
    acted = None if did is None else masked(canonical(did))
    return Item(label, value, canonical(value), acted, "" if cited is None else canonical(cited), delta)


def of_log(log: SessionLog) -> list[Item]:
    """A log's header and events. Times of the header's making are left out."""
    header = msgspec.to_builtins(log.header) | {"createdAt": 0}
    return [_item(f"header {canonical(header)}", header, behaviour.of_header(log.header)), *map(of_event, log.events)]


def of_event(event: LogEvent) -> Item:
    """One event. What it cites is kept apart: one event more shifts every citation behind it."""
    data = event.data
    cited: list[Any] = [None if event.sources is UNSET else event.sources]
    surface = None if event.surface is UNSET else event.surface
    if isinstance(surface, dict):
        cited.append(surface)
        surface = surface.get("op")
    if isinstance(data, dict) and "messageSeqs" in data:
        cited.append(data["messageSeqs"])
        data = {key: value for key, value in data.items() if key != "messageSeqs"}
    value = {"type": event.type, "data": data} | ({} if surface is None else {"surfaceOp": surface})
    delta = event.type == CHUNK and event.data["chunk"]["type"].endswith("-delta")
    return _item(describe(event), value, behaviour.of_event(event), cited, delta=delta)


def describe(event: LogEvent) -> str:
    """An event in one line."""
    data = event.data
    match event.type:
        case "assistant/chunk":
            chunk = {key: value for key, value in data["chunk"].items() if key != "type"}
            return f"{data['chunk']['type']} {_words(chunk)}"
        case "tool/call":
            return f"tool/call {data['callId']} {data['name']} {data['arguments']}"
        case "tool/result":
            blocks = [as_object(block) for block in data["message"]["content"]]
            texts = "".join(as_object(part).get("text", "") for block in blocks for part in block.get("content", []))
            failed = any(block.get("isError") for block in blocks)
            return f"tool/result {data['message']['source'].get('callId', '')} {'failed: ' if failed else ''}{texts}"
        case "user/message":
            return f"user/message {_text(data['content'])}"
        case "assistant/message":
            content = data["message"]["content"]
            calls = [f"{part['name']}({part['arguments']})" for part in content if part.get("type") == "tool-call"]
            words = ["(interrupted)"] if data.get("interrupted") else []
            return " ".join(["assistant/message", *words, *filter(None, [_text(content)]), *calls])
        case "request/header":
            return f"request/header {data['reason']} {canonical(data['header'].get('config'))}"
        case _:
            return f"{event.type} {_words(data)}"


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "".join(as_object(part).get("text", "") for part in parts if as_object(part).get("type") == "text")


def _words(data: Any) -> str:
    """A small object without its punctuation; a large one as JSON."""
    if isinstance(data, dict) and all(not isinstance(value, dict | list) for value in data.values()):
        return " ".join(f"{key}={canonical(value)}" for key, value in data.items())
    return canonical(data)


# ---------------------------------------------------------------- wire


def of_frame(frame: WireFrame) -> Item:
    """One line of the wire. The number of an agent's request counts as a citation."""
    value = dict(frame.value)
    cited = value.pop("id", None) if "method" in value else None
    update = as_object(as_object(value.get("params")).get("update"))
    delta = str(update.get("sessionUpdate", "")).endswith("_chunk")
    return _item(_describe_frame(frame, update), value, behaviour.of_frame(frame), cited, delta=delta)


def _describe_frame(frame: WireFrame, update: dict[str, Any]) -> str:
    value, method = frame.value, frame.value.get("method")
    if RESTART in value:
        return f"restart {value[RESTART]}"
    if method is None:
        body = value.get("error", value.get("result"))
        return f"{'error' if 'error' in value else 'result'} {value.get('id')} {canonical(body)}"
    if method != UPDATE:
        call = as_object(as_object(value.get("params")).get("toolCall"))
        return f"{method} {call.get('toolCallId') or canonical(value.get('params'))} {call.get('title') or ''}".rstrip()
    kind = update.get("sessionUpdate", "update")
    content = as_object(update.get("content"))
    if content.get("type") == "text":
        return f"{kind} {canonical(content.get('text'))}"
    rest = {key: item for key, item in update.items() if key not in ("sessionUpdate", "toolCallId", "status")}
    head = [str(word) for word in (kind, update.get("toolCallId"), update.get("status")) if word is not None]
    return f"{' '.join(head)} {canonical(rest)}" if rest else " ".join(head)

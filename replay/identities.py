"""Where ids, times and process ids stand in a run's JSON, and how they are replaced.

Ids have known places. What a model made (call ids, arguments, texts) is never renamed as such; elsewhere a value
under a key that ends in `Id` counts as machine-made when it is a UUID. In every text this run's ids and places
are replaced, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replay.names import UUID, Names, Places

TIME = "{{time}}"
VERSION = "{{agentVersion}}"

KINDS = {
    "sessionId": "session", "parentSession": "session", "childId": "session", "senderSessionId": "session",
    "messageId": "message", "terminalId": "terminal", "retryId": "retry", "runId": "run",
    "nextCursor": "cursor",
}  # fmt: skip
"""Keys that hold an id whatever it looks like, and its kind."""

MODEL_MADE = frozenset({"callId", "toolCallId", "rootCallId", "parentCallId", "subCallId"})
"""Keys of tool calls' ids: the model's, unless only the wire has them and they are UUIDs."""

MODEL_SAID = frozenset({"rawInput", "arguments", "chunk", "input"})
"""Keys below which everything is the model's: times and process ids are data there."""

TIMES = frozenset({"createdAt", "updatedAt", "startedAt", "endedAt", "timestamp", "time"})
SPANS = frozenset({"durationMs", "delayMs", "elapsedMs"})
PROCESSES = frozenset({"pid", "processId"})


def ids(value: Any, event: str = "") -> Iterator[tuple[str, str]]:
    """The ids in a JSON value with their kinds, in order. `event` is the type of the log event it is from."""
    if isinstance(value, list):
        for item in value:
            yield from ids(item, event)
    elif isinstance(value, dict):
        for key, item in value.items():
            kind = _kind(key, item, value, event)
            if kind is not None:
                yield from ((kind, raw) for raw in UUID.findall(item) or [item])
            elif key not in MODEL_SAID:
                yield from ids(item, event)


def call_ids(value: Any) -> Iterator[str]:
    """The ids of tool calls in a JSON value."""
    if isinstance(value, list):
        for item in value:
            yield from call_ids(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in MODEL_MADE and isinstance(item, str):
                yield item
            else:
                yield from call_ids(item)


def _kind(key: str, item: Any, node: dict[str, Any], event: str) -> str | None:
    """The kind of machine-made id that `item` is."""
    if not isinstance(item, str) or not item:
        return None
    if key in KINDS:
        return KINDS[key]
    if key == "id" and event.startswith("approval/"):
        return "approval"
    if key == "id" and "role" in node:
        return "message"
    if key == "version" and event == "file/seen":
        return "version"
    if key in MODEL_MADE or str(node.get("type", "")).startswith("tool-call"):
        return None
    if (key == "id" or key.endswith(("Id", "_id"))) and UUID.fullmatch(item):
        return key.removesuffix("Id").removesuffix("_id").lower() or "id"
    return None


class Rewriter:
    """Replaces what is machine-made in JSON values and texts of one run."""

    def __init__(self, names: Names, places: Places) -> None:
        self.names = names
        self._places = places

    def text(self, text: str) -> str:
        """A text with this run's ids and places replaced."""
        return self.names.text(self._places.text(text))

    def value(self, value: Any, event: str = "", *, said: bool = False) -> Any:
        """A JSON value with everything machine-made replaced. `said` marks what a model said."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item, event, said=said) for item in value]
        if isinstance(value, dict):
            return {key: self._member(key, item, value, event, said) for key, item in value.items()}
        return value

    def _member(self, key: str, item: Any, node: dict[str, Any], event: str, said: bool) -> Any:
        if not said:
            if isinstance(item, str):
                if _kind(key, item, node, event) is not None:
                    return self.names.id(item)
                if key in MODEL_MADE:
                    return self.names.get(item) or item
            if not isinstance(item, bool) and isinstance(item, int | float | str):
                if key in TIMES:
                    return TIME if isinstance(item, str) else 0
                if key in SPANS or key in PROCESSES:
                    return 0
            if key == "agentInfo" and isinstance(item, dict) and "version" in item:
                return self.value(item, event) | {"version": VERSION}
        return self.value(item, event, said=said or key in MODEL_SAID)

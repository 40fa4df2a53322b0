"""Law 3 on a whole run: what the client was shown as history is what the stored logs say.

The wire is read as it came; the log is projected as a load would show it. Both are reduced to what does not
depend on how an answer was cut into chunks: each message's text, and everything else in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from acp_agent.acp.projection import Projection
from acp_agent.errors import LogDamaged
from acp_agent.session import codec
from acp_agent.tools.registry import Registry, default_tools
from tests.support.laws import Entry

Shown: TypeAlias = tuple[dict[str, str], list[Any]]
"""Each message's text by message id, and the other history updates in order."""

_TEXT = {"agent_message_chunk", "agent_thought_chunk"}
_REGISTRY = Registry(default_tools())


def check_history(transcripts: Iterable[list[Entry]], store: Path) -> list[str]:
    """Every difference between what was shown and what is stored, for each root session of the store."""
    frames = [entry.frame for transcript in transcripts for entry in transcript if entry.sender == "agent"]
    return [problem for log in sorted(store.rglob("session.jsonl")) for problem in _compare_readable(log, frames)]


def _compare_readable(log: Path, frames: list[Any]) -> list[str]:
    try:
        return list(_compare(log, frames))
    except LogDamaged:
        return []  # the format's own laws say what is wrong with it


def _compare(log: Path, frames: list[Any]) -> Iterator[str]:
    lines, _ = codec.split_lines(log.read_bytes())
    header = codec.decode_header(lines[0], str(log))
    reader, projection = codec.Reader(str(log)), Projection(_REGISTRY, Path(str(header.cwd)), settled=True)
    projected: list[Any] = []
    for line in lines[1:]:
        for event in reader.read(line):
            projected += (json.loads(msgspec.json.encode(update)) for update in projection.updates(event))
    live = [frame["params"]["update"] for frame in frames
            if isinstance(frame, dict) and frame.get("method") == "session/update"
            and frame["params"]["sessionId"] == header.id]  # fmt: skip
    stored_texts, stored_rest = _reduce(projected)
    shown_texts, shown_rest = _reduce(live)
    ids = {update["toolCallId"] for update in stored_rest if "toolCallId" in update}
    shown_rest = [update for update in shown_rest if update.get("toolCallId", None) in ids | {None}]
    for message, text in stored_texts.items():
        if shown_texts.get(message) != text:
            yield f"law 3: {log.name}: message {message} is stored as {text[:80]!r}, shown as " \
                  f"{str(shown_texts.get(message))[:80]!r}"  # fmt: skip
    for at, (stored, shown) in enumerate(zip(stored_rest, shown_rest, strict=False)):
        if stored != shown:
            yield f"law 3: {log.name}: history update {at} is stored as {stored}, shown as {shown}"
            return
    if len(stored_rest) != len(shown_rest):
        yield f"law 3: {log.name}: {len(stored_rest)} history updates stored, {len(shown_rest)} shown"


def _reduce(updates: Iterable[Any]) -> Shown:
    """Text of failed attempts stays in: the log does not know their messages, so they are never compared."""
    texts: dict[str, str] = {}
    rest: list[Any] = []
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in _TEXT:
            texts[update["messageId"]] = texts.get(update["messageId"], "") + update["content"]["text"]
        elif kind not in ("usage_update", "user_message_chunk") and not _transient(update):
            rest.append(_plain(update))
    return texts, rest


def _transient(update: Any) -> bool:
    return bool(update["sessionUpdate"] == "tool_call_update" and update.get("status") == "in_progress")


def _plain(update: Any) -> Any:
    """Raw input as a value, so that spacing does not matter."""
    return {key: value for key, value in update.items() if key != "rawInput"}

"""What each session of a run said and did, told from its log: prompts, texts, tools, questions, children.

A child's story stands behind the moment whose tool call made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from replay.conversation import as_object
from replay.logform import LogEvent
from replay.snapshot import SessionLog

Kind = Literal["prompt", "note", "thought", "text", "tool", "retry", "end", "child", "seed", "open"]


class Moment(Struct, frozen=True, omit_defaults=True):
    """One thing that happened. `text` is what was said; of a tool, its arguments; of a note, a message to the model
    that no user wrote.

    A `seed` stands behind what was inherited. `open` says that the log stops within a turn.

    For a tool, `name` is the tool's and `call` its call's id, `decision` what was answered when somebody was asked
    whether it may run, `result` what came of it, and `failed` says that this was an error. For a child, `story` is
    the child's.
    """

    kind: Kind
    text: str
    name: str = ""
    call: str = ""
    decision: str = ""
    result: str = ""
    failed: bool = False
    story: Story | None = None


class Story(Struct, frozen=True, omit_defaults=True):
    """One session's. `inherited` counts the events it began with."""

    session: str
    address: str
    moments: list[Moment]
    title: str = ""
    inherited: int = 0


def tell(logs: Sequence[SessionLog]) -> list[Story]:
    """The stories of the roots among a run's sessions, their children's inside them."""
    return [_story(log, logs) for log in logs if not log.path]


def tell_whole(log: SessionLog, logs: Sequence[SessionLog]) -> Story:
    """One session's story, its children's inside it; what it inherited is told too, up to a `seed`."""
    inherited = _inherited(log)
    told = _story(log, logs)
    if not inherited:
        return told
    before = [*_told(log.events[:inherited], {}, ()), Moment("seed", f"inherited up to here: {inherited} events")]
    title = told.title or _title(log.events)
    return msgspec.structs.replace(told, moments=[*before, *told.moments], title=title)


def _story(log: SessionLog, logs: Sequence[SessionLog]) -> Story:
    inherited = _inherited(log)
    own = log.events[inherited:]
    children = {one.path[-1]: one for one in logs if one.root == log.root and one.path[:-1] == log.path and one.path}
    return Story(log.name, log.address, _told(own, children, logs), _title(own), inherited)


def _inherited(log: SessionLog) -> int:
    seed = log.header.seed_length
    return 0 if seed is UNSET else seed


def _told(
    events: Sequence[LogEvent], children: dict[str, SessionLog], logs: Sequence[SessionLog],
) -> list[Moment]:
    """The moments of a part of a log. `children` are by their last hop; those told are taken out."""
    results = {event.data["message"]["source"].get("callId"): event for event in events if event.type == "tool/result"}
    decisions = _decisions(events)
    moments: list[Moment] = []
    for event in events:
        moments += _moments(event, results, decisions)
        if event.type == "tool/call":
            call = event.data["callId"]
            mine = [hop for hop in children if hop == call or hop.startswith(f"{call}[")]
            moments += [_child(children.pop(hop), logs) for hop in mine]
    moments += [_child(one, logs) for one in children.values()]  # whose calls the log does not name
    ends = [event.type for event in events if event.type in ("turn/start", "turn/end")]
    if ends[-1:] == ["turn/start"]:
        moments.append(Moment("open", "the log stops within this turn"))
    return moments


def _child(log: SessionLog, logs: Sequence[SessionLog]) -> Moment:
    return Moment("child", log.address, story=_story(log, logs))


def _decisions(events: Sequence[LogEvent]) -> dict[str, str]:
    """What was answered to the question about each call."""
    outcomes = {event.data["id"]: event.data["outcome"] for event in events if event.type == "approval/decided"}
    return {event.data["callId"]: outcomes.get(event.data["id"], "never answered")
            for event in events if event.type == "approval/asked"}


def _title(events: Sequence[LogEvent]) -> str:
    titles = [event.data.get("title", "") for event in events if event.type == "session/title"]
    return str(titles[-1]) if titles else ""


def _moments(
    event: LogEvent, results: Mapping[Any, LogEvent], decisions: Mapping[str, str],
) -> Iterator[Moment]:
    data = event.data
    match event.type:
        case "user/message":
            kind = as_object(data.get("source")).get("kind", "user")
            yield Moment("prompt" if kind == "user" else "note", _text(data["content"]))
        case "assistant/message":
            for part in data["message"]["content"]:
                if part.get("type") in ("text", "reasoning"):
                    yield Moment("text" if part["type"] == "text" else "thought", part["text"])
        case "tool/call":
            yield _tool(data, results.get(data["callId"]), decisions.get(data["callId"], ""))
        case "llm/retry":
            failure = as_object(data.get("failure"))
            yield Moment("retry", f"{failure.get('code')}: {failure.get('message')}")
        case "turn/end":
            if data["reason"]["kind"] != "completed":
                yield Moment("end", _reason(data["reason"]))
        case _:
            return


def _tool(call: Mapping[str, Any], result: LogEvent | None, decision: str) -> Moment:
    blocks = [] if result is None else [as_object(block) for block in result.data["message"].get("content", [])]
    return Moment(
        "tool", call["arguments"], call["name"], call["callId"], decision,
        "\n".join(_text(block.get("content")) for block in blocks), any(block.get("isError") for block in blocks),
    )  # fmt: skip


def _reason(reason: Mapping[str, Any]) -> str:
    detail = as_object(reason.get("error")).get("message") or as_object(reason.get("reason")).get("kind")
    return f"{reason['kind']}: {detail}" if detail else str(reason["kind"])


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "".join(as_object(part).get("text", "") for part in parts)

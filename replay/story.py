"""What each session of a run said and did, told from its log: prompts, texts, tools, questions, children.

A child's story stands behind the moment whose tool call made it. Not told, for no reader misses it: how requests were
made up and sent, which chunks an answer came in, which files tools have seen, and where steps begin and end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from replay.conversation import as_object
from replay.logform import LogEvent
from replay.snapshot import SessionLog

Kind = Literal["prompt", "command", "note", "thought", "text", "tool", "plan", "grant", "settings", "replay", "retry",
               "end", "child", "seed", "lost", "open"]

_PLAN_SIGNS: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}


class Moment(Struct, frozen=True, omit_defaults=True):
    """One thing that happened. `text` is what was said; of a tool, its arguments; of a note, a message to the model
    that no user wrote.

    A `command` is what the agent ran itself, without a model, and `result` what it answered. `settings` are what was
    set, a `grant` is what was allowed or refused for the rest of the session, a `plan` has a line for each part of it.
    From a `replay` on, answers come from the recorded session that it names. A `seed` stands behind what was inherited.
    `lost` says that events of the log are lost there, `open` that the log stops within a turn.

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
    """One session's. `inherited` counts the events it began with, `model` is the first that it asked."""

    session: str
    address: str
    moments: list[Moment]
    title: str = ""
    inherited: int = 0
    model: str = ""


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
    model = next(map(_model, _of_type(own, "request/header")), "")
    return Story(log.name, log.address, _told(own, children, logs), _title(own), inherited, model)


def _inherited(log: SessionLog) -> int:
    seed = log.header.seed_length
    return 0 if seed is UNSET else seed


def _told(
    events: Sequence[LogEvent], children: dict[str, SessionLog], logs: Sequence[SessionLog],
) -> list[Moment]:
    """The moments of a part of a log. `children` are by their last hop; those told are taken out."""
    results = {event.data["message"]["source"].get("callId"): event for event in events if event.type == "tool/result"}
    decisions = _decisions(events)
    models = _models(events)
    moments: list[Moment] = []
    for event in events:
        moments += _moments(event, results, decisions)
        if event.type == "request/header" and (model := next(models)):
            moments.append(Moment("settings", f"model {model}"))
        if event.type == "tool/call":
            call = event.data["callId"]
            mine = [hop for hop in children if hop == call or hop.startswith(f"{call}[")]
            moments += [_child(children.pop(hop), logs) for hop in mine]
    moments += [_child(one, logs) for one in children.values()]  # whose calls the log does not name
    ends = [event.type for event in events if event.type in ("turn/start", "turn/end")]
    if ends[-1:] == ["turn/start"]:
        moments.append(Moment("open", "the log stops within this turn"))
    return list(_counted_losses(moments))


def _counted_losses(moments: Iterable[Moment]) -> Iterator[Moment]:
    """The moments, what was lost in a row as one."""
    for lost, group in itertools.groupby(moments, lambda moment: moment.kind == "lost"):
        if not lost:
            yield from group
            continue
        count = len(list(group))
        yield Moment("lost", f"{count} event{'s' if count > 1 else ''} of the log lost here")


def _child(log: SessionLog, logs: Sequence[SessionLog]) -> Moment:
    return Moment("child", log.address, story=_story(log, logs))


def _decisions(events: Sequence[LogEvent]) -> dict[str, str]:
    """What was answered to the question about each call."""
    outcomes = {event.data["id"]: event.data["outcome"] for event in events if event.type == "approval/decided"}
    return {event.data["callId"]: outcomes.get(event.data["id"], "never answered")
            for event in events if event.type == "approval/asked"}


def _of_type(events: Sequence[LogEvent], kind: str) -> Iterator[LogEvent]:
    return (event for event in events if event.type == kind)


def _title(events: Sequence[LogEvent]) -> str:
    titles = [event.data.get("title", "") for event in _of_type(events, "session/title")]
    return str(titles[-1]) if titles else ""


def _model(header: LogEvent) -> str:
    config = as_object(as_object(header.data.get("header")).get("config"))
    return "/".join(str(config[key]) for key in ("provider", "model") if key in config)


def _models(events: Sequence[LogEvent]) -> Iterator[str]:
    """For each request header the model, empty where it is the one before; the first is told with the story."""
    models = [_model(header) for header in _of_type(events, "request/header")]
    return (model if number and model != models[number - 1] else "" for number, model in enumerate(models))


def _moments(
    event: LogEvent, results: Mapping[Any, LogEvent], decisions: Mapping[str, str],
) -> Iterator[Moment]:
    data = event.data
    match event.type:
        case "user/message":
            kind = as_object(data.get("source")).get("kind", "user")
            yield Moment("prompt" if kind == "user" else "note", _text(data["content"]))
        case "session/command":
            yield Moment("command", data["text"], result=data["output"])
        case "session/config":
            yield Moment("settings", ", ".join(_settings(data)))
        case "approval/grant":
            what = "allowed" if data["allow"] else "refused"
            yield Moment("grant", f"{what} for the rest of the session: {data['covers']}")
        case "todo/write":
            yield Moment("plan", "\n".join(_plan(data["todos"])))
        case "replay/bound":
            yield Moment("replay", str(data["lane"]))
        case "log/lost":
            yield Moment("lost", "")
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


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    named = {key: config[key] for key in ("mode", "model") if key in config}
    return (f"{name} {value}" for name, value in (named | as_object(config.get("options"))).items())


def _plan(todos: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return (f"{_PLAN_SIGNS.get(todo['status'], todo['status'])} {todo['content']}" for todo in todos)


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
    """A content's texts; of anything else, what it is."""
    parts = map(as_object, content if isinstance(content, list) else [])
    return "".join(part["text"] if "text" in part else f"[{part.get('type')}]" for part in parts)

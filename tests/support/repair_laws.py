"""What a load must add to a log whose process was killed: format reference 3.8, judged on the events alone.

This is an oracle: it shares no code with the repair it judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.log_laws import Json

NOT_STARTED = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
OUTCOME_UNKNOWN = {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}


def repair_problems(before: Sequence[Json], after: Sequence[Json]) -> list[str]:
    """What is wrong with a log after its load, given its events before it."""
    return list(_problems(before, after))


def _problems(before: Sequence[Json], after: Sequence[Json]) -> Iterator[str]:
    for old, new in zip(before, after, strict=False):
        if old != new:
            yield f"event {old['seq']} ({old['type']}) was changed to {new}"
            return
    if len(after) < len(before):
        yield f"{len(before)} events were stored, {len(after)} are left"
        return
    wanted, added = list(closing(before)), after[len(before) :]
    if [event["type"] for event in added] != [event["type"] for event in wanted]:
        yield (f"after {_last(before)}: added {[event['type'] for event in added]}, "
               f"not {[event['type'] for event in wanted]}")
        return
    for want, event in zip(wanted, added, strict=True):
        yield from _difference(want, event)


def _difference(want: Json, event: Json) -> Iterator[str]:
    for key in ("seq", "time", "surfaceOp", "sourceEventSeqs"):
        if event.get(key) != want.get(key):
            yield f"event {event['seq']} ({event['type']}) has {key} {event.get(key)}, not {want.get(key)}"
    if event["type"] != "tool/result":
        if event["data"] != want["data"]:
            yield f"event {event['seq']} ({event['type']}) says {event['data']}, not {want['data']}"
        return
    data, message = event["data"], event["data"]["message"]
    (block,) = message["content"]
    told = {"turn": data["turn"], "step": data["step"], "id": message["id"], "call": block["toolCallId"],
            "source": message["source"], "isError": block["isError"], "error": data.get("error")}
    if told != want["data"]:
        yield f"event {event['seq']} (tool/result) says {told}, not {want['data']}"
    if not "".join(part.get("text", "") for part in block["content"]):
        yield f"event {event['seq']} (tool/result) has no text"


def closing(events: Sequence[Json]) -> Iterator[Json]:
    """The events that close a log. A result's data are the facts it must tell."""
    if not events or not _open(events, "turn"):
        return
    seq, time = events[-1]["seq"] + 1, events[-1]["time"]
    turn = _last_of(events, "turn/start")["data"]["turn"]
    if _open(events, "step"):
        step = _last_of(events, "step/start")
        place = {"turn": turn, "step": step["data"]["step"]}
        for call_id, started in _without_result(events[step["seq"] :]):
            facts = {**place, "id": f"interrupted-tool-result-{call_id}-{seq}", "call": call_id,
                     "source": {"kind": "tool", "callId": call_id}, "isError": True,
                     "error": NOT_STARTED if started is None else OUTCOME_UNKNOWN}
            cites = {} if started is None else {"sourceEventSeqs": [started]}
            yield {"type": "tool/result", "seq": seq, "time": time, "data": facts, "surfaceOp": "append", **cites}
            seq += 1
        yield {"type": "step/end", "seq": seq, "time": time, "data": place}
        seq += 1
    yield {"type": "turn/end", "seq": seq, "time": time, "data": {"turn": turn, "reason": {"kind": "interrupted"}}}


def _open(events: Sequence[Json], what: str) -> bool:
    edges = [event["type"] for event in events if event["type"] in (f"{what}/start", f"{what}/end")]
    return edges[-1:] == [f"{what}/start"]


def _last_of(events: Sequence[Json], kind: str) -> Json:
    return next(event for event in reversed(events) if event["type"] == kind)


def _without_result(step: Sequence[Json]) -> Iterator[tuple[str, int | None]]:
    """The calls of a step that have no result, and the seq at which each began to run."""
    asked = [block["id"] for event in step if event["type"] == "assistant/message"
             for block in event["data"]["message"]["content"] if block["type"] == "tool-call"]
    started = {event["data"]["callId"]: event["seq"] for event in step if event["type"] == "tool/call"}
    settled = {event["data"]["message"]["content"][0]["toolCallId"] for event in step
               if event["type"] == "tool/result"}
    for call_id in asked:
        if call_id not in settled:
            yield call_id, started.get(call_id)


def _last(events: Sequence[Json]) -> str:
    return f"event {events[-1]['seq']} ({events[-1]['type']})" if events else "nothing"

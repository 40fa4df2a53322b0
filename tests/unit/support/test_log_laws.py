"""Every rule of a stored log, broken once."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.log_laws import canonical_rows, check_log_laws, check_store_laws, read_log
from tests.support.turn_laws import turn_laws

Json = dict[str, Any]
RECORDED = Path(__file__).parents[4] / "shared" / "recorded"

HEADER: Json = {"type": "session", "version": 0, "id": "root", "createdAt": 10, "cwd": "/w", "delegationDepth": 0}
PARTS = {"config": "c", "system": "s", "tools": "t", "messages": {"count": 1, "head": "h", "added": ["a"]}}
AT1 = {"turn": 1, "step": 1}
AT2 = {"turn": 1, "step": 2}


def numbered(*events: Json) -> list[Json]:
    """Complete events in the order of keys on disk."""
    return [{"type": e["type"], "seq": n, "time": 100 + n, "data": e["data"],
             **{key: e[key] for key in ("sourceEventSeqs", "surfaceOp", "ignorable") if key in e}}
            for n, e in enumerate(events)]


def event(kind: str, data: Json | None = None, **envelope: Any) -> Json:
    return {"type": kind, "data": data or {}, **envelope}


def chunk(at: Json, **members: Any) -> Json:
    return event("assistant/chunk", {**at, "chunk": members})


def user(text: str) -> Json:
    message = {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}, "role": "user", "id": "u"}
    return event("user/message", message, surfaceOp="append")


def sent(at: Json, ordinal: int) -> Json:
    data = {**at, "purpose": "main", "ordinal": ordinal, "messageId": "m", "parts": PARTS}
    return event("request/sent", data, ignorable=True)


def answer(at: Json, cited: list[int], *content: Json) -> Json:
    message = {"role": "assistant", "content": list(content), "source": {"kind": "model"}, "id": "m"}
    return event("assistant/message", {**at, "message": message}, sourceEventSeqs=cited, surfaceOp="append")


def result(at: Json, call: str, cited: list[int]) -> Json:
    block = {"type": "tool-result", "toolCallId": call, "content": [], "isError": False}
    message = {"source": {"kind": "tool", "callId": call}, "content": [block], "role": "user", "id": "r"}
    return event("tool/result", {**at, "message": message}, sourceEventSeqs=cited, surfaceOp="append")


CALLS = [{"type": "tool-call", "id": name, "name": "read", "arguments": "{}"} for name in ("a", "b")]
EVENTS = numbered(
    event("turn/start", {"turn": 1}),  # 0
    event("step/start", AT1),
    user("go"),
    event("session/title", {"title": "go", "messageSeqs": [2], "source": {"kind": "fallback"}}),
    event("request/header", {"header": {}, "reason": "initial"}),
    event("request/context", {"provider": "p", "model": "m"}),  # 5
    sent(AT1, 0),
    chunk(AT1, type="block-start", index=0, blockType="text"),
    chunk(AT1, type="text-delta", index=0, text="x"),
    chunk(AT1, type="text-delta", index=0, text="y"),
    chunk(AT1, type="text-delta", index=0, text="z"),  # 10
    chunk(AT1, type="block-start", index=1, blockType="tool-call"),
    chunk(AT1, type="tool-call-delta", index=1, id="a", name="read", argumentsDelta="{"),
    chunk(AT1, type="tool-call-delta", index=1, id="a", name="read", argumentsDelta="}"),
    chunk(AT1, type="block-end", index=0, block={"type": "text", "text": "xyz"}),
    chunk(AT1, type="block-end", index=1, block=CALLS[0]),  # 15
    chunk(AT1, type="usage", usage={"inputTokens": 1, "outputTokens": 1}),
    chunk(AT1, type="finish", reason={"kind": "tool-calls"}),
    answer(AT1, list(range(7, 18)), *CALLS),
    event("tool/call", {**AT1, "callId": "a", "name": "read", "arguments": "{}"}),
    event("tool/call", {**AT1, "callId": "b", "name": "read", "arguments": "{}"}),  # 20
    result(AT1, "a", [19]),
    result(AT1, "b", [20]),
    event("step/end", AT1),
    event("step/start", AT2),
    sent(AT2, 1),  # 25
    chunk(AT2, type="finish", reason={"kind": "error", "failure": {"message": "", "code": "SERVER"}}),
    event("llm/retry", {**AT2, "retryId": "r"}),
    event("llm/retry-started", {**AT2, "retryId": "r", "retry": 1}),
    sent(AT2, 2),
    chunk(AT2, type="finish", reason={"kind": "stop"}),  # 30
    answer(AT2, [30]),
    event("step/end", AT2),
    event("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
)


def lines(header: Json, events: list[Json]) -> list[bytes]:
    """The log on disk, canonically packed."""
    rows, at = [header], 0
    for count in canonical_rows(events):
        members, at = events[at:at + count], at + count
        rows.append(members[0] if count == 1 else packed(members))
    return [json.dumps(row).encode() for row in rows]


def packed(members: list[Json]) -> Json:
    first = members[0]["data"]
    chunks = [member["data"]["chunk"] for member in members]
    times = [member["time"] for member in members]
    data: Json = {"turn": first["turn"], "step": first["step"], "index": first["chunk"]["index"],
                  "dt": [b - a for a, b in zip(times, times[1:], strict=False)]}  # noqa: RUF007 - it reads as it is
    tag = {"text-delta": "text-chunks", "reasoning-delta": "reasoning-chunks"}.get(chunks[0]["type"])
    if tag is None:
        data |= {key: chunks[0][key] for key in ("id", "name") if key in chunks[0]}
        data["args"] = [one["argumentsDelta"] for one in chunks]
    else:
        data["texts"] = [one["text"] for one in chunks]
    return {"type": tag or "tool-call-chunks", "seq0": members[0]["seq"], "time0": times[0], "data": data}


def violations(header: Json, events: list[Json]) -> list[str]:
    return check_log_laws(lines(header, events))


def test_a_lawful_log_has_no_violation() -> None:
    assert violations(HEADER, EVENTS) == []
    assert read_log(lines(HEADER, EVENTS)).events == EVENTS


def test_the_header_alone_is_a_lawful_log() -> None:
    assert violations(HEADER, []) == []


def without(seq: int) -> Callable[[Json, list[Json]], None]:
    """Take an event out and close the gap, so that only its absence is wrong."""
    def change(header: Json, events: list[Json]) -> None:
        del events[seq]
        for later in events[seq:]:
            later["seq"] -= 1
            if "sourceEventSeqs" in later:
                later["sourceEventSeqs"] = [one - (one > seq) for one in later["sourceEventSeqs"] if one != seq]
    return change


def data(seq: int, /, **members: Any) -> Callable[[Json, list[Json]], None]:
    def change(header: Json, events: list[Json]) -> None:
        events[seq]["data"].update(members)
    return change


def envelope(at: int, /, **members: Any) -> Callable[[Json, list[Json]], None]:
    """Set (or with None remove) envelope keys, keeping the order of keys on disk."""
    def change(header: Json, events: list[Json]) -> None:
        merged = events[at] | members
        order = ("type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable", "extra")
        events[at] = {key: merged[key] for key in order if merged.get(key) is not None}
    return change


def head(**members: Any) -> Callable[[Json, list[Json]], None]:
    def change(header: Json, events: list[Json]) -> None:
        header.update(members)
    return change


def swap(one: int, other: int) -> Callable[[Json, list[Json]], None]:
    def change(header: Json, events: list[Json]) -> None:
        events[one], events[other] = events[other], events[one]
        events[one]["seq"], events[other]["seq"] = one, other
    return change


def chunk_data(seq: int, /, **members: Any) -> Callable[[Json, list[Json]], None]:
    def change(header: Json, events: list[Json]) -> None:
        events[seq]["data"]["chunk"].update(members)
    return change


BROKEN: dict[str, tuple[str, Callable[[Json, list[Json]], None]]] = {
    "another version": ("format 1.2", head(version=1)),
    "a fractional createdAt": ("format 1.2", head(createdAt=1.5)),
    "a relative cwd": ("format 1.2", head(cwd="w")),
    "header keys out of order": ("format 1.2", head(seedLength=0, parentSession="p")),
    "a depth without an origin": ("format 1.2", head(delegationDepth=1)),
    "a child without its call": ("DESIGN 4", head(origin="subagent", delegationDepth=1, parentSession="p")),
    "a seed longer than the log": ("format 1.10", head(seedLength=99)),
    "a seed that ends inside a turn": ("format 1.10", head(seedLength=5)),
    "a gap in the numbers": ("format 1.3", envelope(20, seq=21)),
    "no time": ("format 1.3", envelope(20, time=None)),
    "an unknown type": ("format 1.3", envelope(5, type="request/colour")),
    "an unknown envelope key": ("format 1.3", envelope(5, extra=1)),
    "a shaping event that is ignorable": ("format 1.3", envelope(0, ignorable=True)),
    "an addition that is not ignorable": ("DESIGN 4", envelope(6, ignorable=None)),
    "no surfaceOp": ("format 1.9", envelope(2, surfaceOp=None)),
    "a surfaceOp elsewhere": ("format 1.9", envelope(0, surfaceOp="append")),
    "citations elsewhere": ("format 1.9", envelope(5, sourceEventSeqs=[1])),
    "a citation of the future": ("format 1.9", envelope(21, sourceEventSeqs=[33])),
    "a citation twice": ("format 1.9", envelope(21, sourceEventSeqs=[19, 19])),
    "a replacement of the future": ("format 1.9", envelope(2, surfaceOp={"op": "replace", "start": 1, "end": 9})),
    "an answer that cites too little": ("format 1.11", envelope(18, sourceEventSeqs=list(range(8, 18)))),
    "an answer that cites a failed attempt": ("format 1.11", envelope(31, sourceEventSeqs=[26, 30])),
    "a result that cites another call": ("format 1.11", envelope(21, sourceEventSeqs=[20])),
    "a title elsewhere": ("format 1.11", swap(3, 4)),
    "a second initial header": (
        "format 1.8", envelope(5, type="request/header", data={"header": {}, "reason": "initial"})),
    "a first header that resumes": ("format 1.8", data(4, reason="resume")),
    "a turn number skipped": ("format 1.11", data(0, turn=2)),
    "a turn that does not end": ("format 3.2", without(33)),
    "a turn that ends in a step": ("format 1.11", without(32)),
    "a step that does not end": ("format 1.11", without(23)),
    "a chunk of another step": ("format 1.11", data(30, step=1)),
    "two finishes": (
        "format 1.5", envelope(16, data={**AT1, "chunk": {"type": "finish", "reason": {"kind": "stop"}}})),
    "no finish": ("DESIGN 4", without(17)),
    "a failed attempt without a finish": ("DESIGN 4", without(26)),
    "a retry that nothing announces": ("format 1.5", without(29)),
    "chunks after a step without a request": ("DESIGN 4", without(25)),
    "a delta of a block that is not open": ("format 1.5", without(7)),
    "a delta of the wrong kind": ("format 1.5", chunk_data(8, type="reasoning-delta")),
    "a block started twice": ("format 1.5", chunk_data(11, index=0)),
    "a block left open": ("format 1.5", without(15)),
    "usage twice": ("format 1.5", envelope(15, data={**AT1, "chunk": {"type": "usage", "usage": {}}})),
    "a chunk nobody knows": ("format 1.5", chunk_data(16, type="joke")),
    "a tool call without a result": ("law 7", without(22)),
    "two results of one call": ("law 7", envelope(22, data=EVENTS[21]["data"], sourceEventSeqs=[19])),
    "a result nobody asked for": ("law 7", lambda header, events: events[18]["data"]["message"]["content"].pop()),
    "a call started twice": ("law 7", data(20, callId="a")),
    "a call that is not the one asked for": ("format 1.4", data(19, arguments="[]")),
    "results out of order": ("format 3.5", swap(21, 22)),
    "a seed that ends in a turn": ("format 1.10", envelope(5, type="session/end-seed", data={})),
    "malformed data": ("format 1.4", envelope(18, data={**AT1})),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_rule_is_named(name: str) -> None:
    rule, change = BROKEN[name]
    header, events = copy.deepcopy(HEADER), copy.deepcopy(EVENTS)
    change(header, events)
    found = violations(header, events)
    assert any(problem.startswith(f"{rule}:") for problem in found), found


def test_a_killed_process_may_leave_a_turn_open_and_a_repaired_one_needs_no_finish() -> None:
    cut = EVENTS[:12]
    assert check_log_laws(lines(HEADER, cut), closed=False) == []
    for kind, expected in (("interrupted", 0), ("aborted", 1)):
        ended = event("turn/end", {"turn": 1, "reason": {"kind": kind}})
        found = violations(HEADER, numbered(*cut, event("step/end", AT1), ended))
        assert sum("has no finish" in problem for problem in found) == len(found) == expected


def test_a_session_that_goes_on_says_once_that_it_does() -> None:
    ends = event("session/end-seed")
    assert violations(HEADER, numbered(*EVENTS, ends)) == []
    assert violations(HEADER, numbered(*EVENTS, ends, ends)) == ["format 1.10: event 35: a seed that ended ends again"]


LOOSE = [json.dumps(one).encode() for one in EVENTS[8:11]]
SHORT = json.dumps(packed(EVENTS[12:14])).encode()
ROWS = lines(HEADER, EVENTS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS[:10], *ROWS[9:]], "format 1.3"),
        ([*ROWS[:9], *LOOSE, *ROWS[10:]], "line 10 is not packed"),
        ([*ROWS[:11], SHORT, *ROWS[13:]], "line 12 is not packed"),
        ([*ROWS[:9], b'{"type":"text-chunks","seq0":8,"time0":1,"data":{}}'], "line 10: a packed row"),
        ([*ROWS[:9], ROWS[9].replace(b'"dt": [1, 1]', b'"dt": [1]')], "line 10: 3 packed members"),
        ([*ROWS[:5], b"{"], "line 6 is not JSON"),
        ([*ROWS[:5], b"4"], "line 6 is not an object"),
        ([], "the log is empty"),
    ],
)
def test_rows_that_are_broken_or_not_canonical_are_named(rows: list[bytes], message: str) -> None:
    found = check_log_laws(rows)
    assert any(message in problem for problem in found), found


# ---------------------------------------------------------------- a store

DELEGATION = [{"type": "tool-call", "id": "a", "name": "subagent", "arguments": "{}"}]
CHILD = {"type": "session", "version": 0, "id": "kid", "createdAt": 11, "cwd": "/w", "parentSession": "root",
         "origin": "subagent", "delegationDepth": 1, "spawn": {"callId": "a", "index": 0}}
FORK = {"type": "session", "version": 0, "id": "fork", "createdAt": 12, "cwd": "/w", "parentSession": "root",
        "seedLength": len(EVENTS), "origin": "subagent", "delegationDepth": 1,
        "spawn": {"callId": "a", "index": 1}}


def store(root: Path, **changes: Any) -> list[str]:
    """Check a store of a parent, a spawned child and a forked child, with some things changed."""
    fork_events = [*EVENTS, {"type": "session/end-seed", "seq": len(EVENTS), "time": 1, "data": {}}]
    logs = {"session.jsonl": (HEADER, EVENTS), "session.1.jsonl": (CHILD | changes.get("child", {}), EVENTS),
            "session.2.jsonl": (FORK | changes.get("fork", {}), changes.get("fork_events", fork_events))}
    directory = root / "--w--" / "root"
    directory.mkdir(parents=True)
    for name, (header, events) in logs.items():
        if name not in changes.get("absent", ()):
            (directory / name).write_bytes(b"\n".join(lines(header, events)) + changes.get("end", b"\n"))
    return check_store_laws(root)


def test_a_lawful_store_has_no_violation(tmp_path: Path) -> None:
    assert store(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"child": {"parentSession": "nobody"}}, "the parent 'nobody' is not stored"),
        ({"child": {"delegationDepth": 2}}, "depth 2 below 0"),
        ({"child": {"createdAt": 10}}, "createdAt is not later"),
        ({"child": {"spawn": {"callId": "zzz", "index": 0}}}, "the parent made no call 'zzz'"),
        ({"fork_events": [*EVENTS[:3], EVENTS[3] | {"time": 7}, *EVENTS[4:],
                          {"type": "session/end-seed", "seq": len(EVENTS), "time": 1, "data": {}}]},
         "law 8: event 3 of the seed"),
        ({"absent": ("session.jsonl",)}, "the parent 'root' is not stored"),
        ({"end": b""}, "the last line has no newline"),
    ],
)
def test_a_family_that_does_not_fit_together_is_named(tmp_path: Path, changes: Json, message: str) -> None:
    found = store(tmp_path, **changes)
    assert any(message in problem for problem in found), found


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recordings at {RECORDED}")
def test_real_recordings_of_another_writer_keep_every_rule_of_the_format() -> None:
    checked = 0
    for path in sorted(RECORDED.glob("*/session*.jsonl")):
        rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
        log = read_log([json.dumps(rows[0]).encode(), *(json.dumps(row).encode() for row in complete(rows[1:]))])
        assert list(turn_laws(log.events)) == [], path
        assert canonical_rows(log.events) == log.rows, path
        checked += 1
    assert checked >= 14


def complete(rows: list[Json]) -> list[Json]:
    """Projected rows with their numbers put back."""
    done, seq = [], 0
    for row in rows:
        number, time = ("seq0", "time0") if row["type"].endswith("-chunks") else ("seq", "time")
        done.append({"type": row["type"], number: seq, time: 0} | {k: v for k, v in row.items() if k != "type"})
        seq += len(row["data"].get("texts", row["data"].get("args", ()))) if number == "seq0" else 1
    return done

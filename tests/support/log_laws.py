"""The laws of a stored session log: format reference 1 and DESIGN 4, judged on the bytes alone.

This is an oracle: it shares no code with the codec it judges. It takes logs that this project writes, so it is
stricter than a reader of foreign logs must be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from acp_agent.session.events import BODIES, KNOWN_TYPES
from tests.support.turn_laws import turn_laws

Json: TypeAlias = dict[str, Any]

HEADER_KEYS = ("type", "version", "id", "createdAt", "cwd", "parentSession", "seedLength", "origin",
               "delegationDepth", "agentPreset", "spawn")
EVENT_KEYS = ("type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable")
PACKED = {"text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta",
          "tool-call-chunks": "tool-call-delta"}
ROW_KEYS = ("turn", "step", "index", "dt")
TEXT_ROW_KEYS = ((*ROW_KEYS, "texts"),)
TOOL_ROW_KEYS = ((*ROW_KEYS, "id", "args"), (*ROW_KEYS, "id", "name", "args"))
MIN_RUN = 3
SURFACE = frozenset({"user/message", "assistant/message", "tool/result"})


class Unreadable(Exception):
    """A log whose rows cannot even be expanded."""


@dataclass(frozen=True)
class Log:
    """A log's header and its logical events, numbered; `rows` holds for each row how many events it is."""

    header: Json
    events: list[Json]
    rows: list[int]


def check_log_laws(lines: Sequence[bytes], *, closed: bool = True) -> list[str]:
    """Every violation in one log, given as its lines without newlines.

    `closed` means that its process came to its own end: no turn may be open then.
    """
    try:
        log = read_log(lines)
    except Unreadable as problem:
        return [f"format: {problem}"]
    return [*_header(log), *_envelopes(log), *_packing(log), *_seed(log), *turn_laws(log.events, closed=closed)]


def check_store_laws(root: Path, *, closed: bool = True) -> list[str]:
    """Every violation in every log below a JSONL store's directory, and between parents and children."""
    violations, logs = [], {}
    for path in sorted(root.rglob("*.jsonl")):
        data = path.read_bytes()
        where = path.relative_to(root)
        lines = data.split(b"\n")
        last = lines.pop()
        if last and closed:
            violations.append(f"{where}: format: the last line has no newline")
        violations += [f"{where}: {problem}" for problem in check_log_laws(lines, closed=closed)]
        try:
            log = read_log(lines)
        except Unreadable:
            continue
        logs[log.header.get("id")] = (path, log)
    for path, log in logs.values():
        where = path.relative_to(root)
        violations += [f"{where}: {problem}" for problem in _family(path, log, logs)]
    return violations


# ---------------------------------------------------------------- reading


def read_log(lines: Sequence[bytes]) -> Log:
    """Expand a log. Raises `Unreadable` naming the line."""
    if not lines:
        raise Unreadable("the log is empty")
    header, events, rows = _json(lines[0], 1), [], []
    for number, line in enumerate(lines[1:], 2):
        row = _json(line, number)
        expanded = list(_expand(row, number)) if row.get("type") in PACKED else [row]
        events += expanded
        rows.append(len(expanded))
    return Log(header, events, rows)


def _json(line: bytes, number: int) -> Json:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Unreadable(f"line {number} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"line {number} is not an object")
    return value


def _expand(row: Json, number: int) -> Iterator[Json]:
    tool = row["type"] == "tool-call-chunks"
    data = row.get("data")
    if tuple(row) != ("type", "seq0", "time0", "data") or not isinstance(data, dict):
        raise Unreadable(f"line {number}: a packed row has the keys {list(row)}")
    if tuple(data) not in (TOOL_ROW_KEYS if tool else TEXT_ROW_KEYS):
        raise Unreadable(f"line {number}: a packed row's data has the keys {list(data)}")
    pieces, gaps = data["args" if tool else "texts"], data["dt"]
    if len(gaps) != len(pieces) - 1 or not all(type(gap) is int for gap in gaps):
        raise Unreadable(f"line {number}: {len(pieces)} packed members with the gaps {gaps}")
    time = row["time0"]
    for offset, piece in enumerate(pieces):
        time += gaps[offset - 1] if offset else 0
        chunk: Json = {"type": PACKED[row["type"]], "index": data["index"]}
        if tool:
            chunk |= {key: data[key] for key in ("id", "name") if key in data} | {"argumentsDelta": piece}
        else:
            chunk["text"] = piece
        body = {"turn": data["turn"], "step": data["step"], "chunk": chunk}
        yield {"type": "assistant/chunk", "seq": row["seq0"] + offset, "time": time, "data": body}


# ---------------------------------------------------------------- one log


def _header(log: Log) -> Iterator[str]:
    header = log.header
    if [key for key in HEADER_KEYS if key in header] != list(header):
        yield f"format 1.2: the header's keys are {list(header)}"
    if header.get("type") != "session" or header.get("version") != 0:
        yield "format 1.2: the first line is not a header of version 0"
    for key in ("createdAt", "delegationDepth", "seedLength"):
        value = header.get(key, 0 if key == "seedLength" else None)
        if type(value) is not int or value < 0:
            yield f"format 1.2: the header's {key} is {value!r}"
    if not isinstance(header.get("id"), str) or not header["id"]:
        yield "format 1.2: the header has no id"
    if not str(header.get("cwd", "")).startswith("/"):
        yield "format 1.2: the header's cwd is not an absolute path"
    delegated = header.get("origin") == "subagent"
    if delegated != (header.get("delegationDepth", 0) != 0) or (delegated and "parentSession" not in header):
        yield "format 1.2: origin, delegationDepth and parentSession disagree"
    if delegated != ("spawn" in header):
        yield "DESIGN 4: a delegated child names the call that made it (spawn), and nothing else does"


def _envelopes(log: Log) -> Iterator[str]:
    for expected, event in enumerate(log.events):
        kind, seq = event.get("type"), event.get("seq")
        if seq != expected or type(seq) is not int:
            yield f"format 1.3: seq {seq!r} where {expected} was expected"
            return
        if [key for key in EVENT_KEYS if key in event] != list(event):
            yield f"format 1.3: event {seq} has the keys {list(event)}"
        if type(event.get("time")) is not int:
            yield f"format 1.3: event {seq} has the time {event.get('time')!r}"
        if not isinstance(event.get("data"), dict):
            yield f"format 1.3: event {seq} has no data"
        yield from _type(kind, seq, event)
        if ("surfaceOp" in event) != (kind in SURFACE):
            yield f"format 1.9: event {seq} ({kind}) {'has a' if 'surfaceOp' in event else 'has no'} surfaceOp"
        yield from _citations(kind, seq, event)


def _type(kind: Any, seq: int, event: Json) -> Iterator[str]:
    ours = kind in BODIES and BODIES[kind].ours
    if ours and event.get("ignorable") is not True:
        yield f"DESIGN 4: event {seq} ({kind}) is an addition and must be ignorable"
    if not ours and "ignorable" in event:
        yield f"format 1.3: event {seq} ({kind}) is ignorable, though it shapes the session"
    if not ours and kind not in KNOWN_TYPES:
        yield f"format 1.3: event {seq} has the unknown type {kind!r}"


def _citations(kind: Any, seq: int, event: Json) -> Iterator[str]:
    operation = event.get("surfaceOp", "append")
    if operation != "append":
        if not isinstance(operation, dict) or tuple(operation) != ("op", "start", "end"):
            yield f"format 1.9: event {seq} has the surfaceOp {operation!r}"
        elif not 0 <= operation["start"] <= operation["end"] < seq:
            yield f"format 1.9: event {seq} replaces {operation['start']}..{operation['end']}"
    if "sourceEventSeqs" not in event:
        return
    cited = event["sourceEventSeqs"]
    if kind not in SURFACE:
        yield f"format 1.9: event {seq} ({kind}) cites sources"
    if len(set(cited)) != len(cited) or not all(type(one) is int and 0 <= one < seq for one in cited):
        yield f"format 1.9: event {seq} cites {cited}: not earlier events, once each"
    if not cited and kind != "assistant/message":
        yield f"format 1.9: event {seq} ({kind}) cites nothing"


def _packing(log: Log) -> Iterator[str]:
    """Canonical: every run is maximal, and packed exactly when it has three members or more."""
    if canonical_rows(log.events) != log.rows:
        at = next((n for n, pair in enumerate(zip(canonical_rows(log.events), log.rows, strict=False))
                   if pair[0] != pair[1]), len(log.rows))
        yield f"format 1.6: line {at + 2} is not packed canonically"


def canonical_rows(events: Sequence[Json]) -> list[int]:
    """How many events each row of a canonically packed log holds."""
    rows: list[int] = []
    run, key = 0, None
    for event in events:
        new = _run_key(event)
        if new is None or new != key:
            rows += [run] if run >= MIN_RUN else [1] * run
            run = 0
        key = new
        if key is None:
            rows.append(1)
        else:
            run += 1
    return rows + ([run] if run >= MIN_RUN else [1] * run)


def _run_key(event: Json) -> Json | None:
    """What the members of a run share; None for an event that cannot be in one."""
    data = event.get("data")
    if event.get("type") != "assistant/chunk" or tuple(event) != ("type", "seq", "time", "data"):
        return None
    if not isinstance(data, dict) or data["chunk"]["type"] not in PACKED.values():
        return None
    shared = {key: value for key, value in data["chunk"].items() if key not in ("text", "argumentsDelta")}
    return {"turn": data["turn"], "step": data["step"]} | shared


def _seed(log: Log) -> Iterator[str]:
    cut = log.header.get("seedLength", 0)
    if not cut:
        return
    if cut >= len(log.events):
        yield f"format 1.10: seedLength {cut} in a log of {len(log.events)} events"
        return
    before, after = log.events[cut - 1].get("type"), log.events[cut].get("type")
    if (before, after) != ("turn/end", "session/end-seed"):
        yield f"format 1.10: seedLength {cut} stands between {before} and {after}"


# ---------------------------------------------------------------- a family of logs


def _family(path: Path, log: Log, logs: dict[Any, tuple[Path, Log]]) -> Iterator[str]:
    header = log.header
    if "parentSession" not in header:
        if header.get("origin") != "subagent" and path.name != "session.jsonl":
            yield "DESIGN 4: a root's log is session.jsonl"
        return
    if header["parentSession"] not in logs:
        yield f"DESIGN 4: the parent {header['parentSession']!r} is not stored"
        return
    parent_path, parent = logs[header["parentSession"]]
    yield from _child(path, log, parent_path, parent)


def _child(path: Path, log: Log, parent_path: Path, parent: Log) -> Iterator[str]:
    header, cut = log.header, log.header.get("seedLength", 0)
    for position, (own, inherited) in enumerate(zip(log.events[:cut], parent.events, strict=False)):
        if own != inherited:
            yield f"law 8: event {position} of the seed is not the parent's"
            break
    if len(parent.events) < cut:
        yield f"law 8: seedLength {cut}, but the parent has {len(parent.events)} events"
    if header.get("origin") != "subagent":
        return
    if path.parent != parent_path.parent:
        yield "DESIGN 4: a child's log stands beside its parent's"
    if header["delegationDepth"] != parent.header["delegationDepth"] + 1:
        yield f"format 4.2: depth {header['delegationDepth']} below {parent.header['delegationDepth']}"
    if header["createdAt"] <= parent.header["createdAt"]:
        yield "DESIGN 4: createdAt is not later than the parent's"
    calls = [event["data"]["callId"] for event in parent.events if event["type"] == "tool/call"]
    if header.get("spawn", {}).get("callId") not in calls:
        yield f"DESIGN 4: the parent made no call {header.get('spawn', {}).get('callId')!r}"

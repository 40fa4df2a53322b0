"""Replay directories in a few words: model calls, whole recorded sessions, overrides.

A model call is made of parts: `call(thought("Hm."), text("It is ", "here."), tool("c1", "read", path="a"))`. The
shortest replay directory is `script(directory, call(...), call(...))`: no recorded session, the calls in order.
`Log` builds recorded sessions with prompts, results and children, and `write` stores a family of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
Call: TypeAlias = list[Json]
"""The chunks of one model call."""

PACKED = {"text-delta": ("text-chunks", "text", "texts"), "reasoning-delta": ("reasoning-chunks", "text", "texts"),
          "tool-call-delta": ("tool-call-chunks", "argumentsDelta", "args")}

# ---------------------------------------------------------------- model calls


@dataclass(frozen=True)
class Part:
    """One content block and the deltas it arrives in."""

    block: Json
    deltas: tuple[Json, ...]

    def chunks(self, index: int) -> Iterator[Json]:
        """The block's chunks when it is the `index`-th of its answer."""
        yield {"type": "block-start", "index": index, "blockType": self.block["type"]}
        for delta in self.deltas:
            yield {"type": delta["type"], "index": index} | delta
        yield {"type": "block-end", "index": index, "block": self.block}


def text(*deltas: str) -> Part:
    """Visible text, one chunk for each delta."""
    return Part({"type": "text", "text": "".join(deltas)},
                tuple({"type": "text-delta", "text": delta} for delta in deltas))


def thought(*deltas: str) -> Part:
    """Reasoning, one chunk for each delta."""
    return Part({"type": "reasoning", "text": "".join(deltas)},
                tuple({"type": "reasoning-delta", "text": delta} for delta in deltas))


def tool(call_id: str, name: str, /, **arguments: Any) -> Part:
    """A tool call."""
    return raw_tool(call_id, name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))


def raw_tool(call_id: str, name: str, *deltas: str) -> Part:
    """A tool call whose arguments are this text, JSON or not."""
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": "".join(deltas)}
    return Part(block, tuple({"type": "tool-call-delta", "id": call_id, "name": name, "argumentsDelta": delta}
                             for delta in deltas))


def call(*parts: Part, usage: Mapping[str, int] | None = None, finish: str | None = None,
         replay_state: Json | None = None) -> Call:
    """A model call. `usage` has the format's names (`inputTokens`, ...); `finish` is guessed from the parts."""
    chunks = [chunk for index, part in enumerate(parts) for chunk in part.chunks(index)]
    if usage is not None:
        chunks.append({"type": "usage", "usage": dict(usage)})
    asks = any(part.block["type"] == "tool-call" for part in parts)
    end: Json = {"type": "finish", "reason": {"kind": finish or ("tool-calls" if asks else "stop")}}
    return [*chunks, end if replay_state is None else end | {"replayState": replay_state}]


def says(*deltas: str) -> Call:
    """A model call that answers with text."""
    return call(text(*deltas))


def failed(message: str, code: str, *parts: Part) -> Call:
    """A recorded model call that ended with an error."""
    return [*call(*parts)[:-1],
            {"type": "finish", "reason": {"kind": "error", "failure": {"message": message, "code": code}}}]


# ---------------------------------------------------------------- overrides


Entry: TypeAlias = Call | Json
"""What serves one model call: its chunks, a `throw` or a `hang`."""


def throw(message: str, code: str, *parts: Part) -> Json:
    """Stream the parts, then fail."""
    return {"kind": "throw", "chunks": call(*parts)[:-1], "message": message, "code": code}


def hang(ready_file: str | None = None) -> Json:
    """Stream the text `partial`, make `ready_file` in the working directory, then wait to be cancelled."""
    return {"kind": "hang"} | ({} if ready_file is None else {"readyFile": ready_file})


def script(directory: Path, *entries: Entry, cwd: str = "{{cwd}}") -> Path:
    """A replay directory whose primary session is served these entries, in order; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    write(directory, Log("scripted", cwd=cwd))
    return override(directory, *entries)


def override(directory: Path, *entries: Entry) -> Path:
    """Replace the whole script of the primary session; returns the directory."""
    return _override(directory, [_entry(entry) for entry in entries])


def patch(directory: Path, entries: Mapping[int, Entry]) -> Path:
    """Replace single calls of the primary session, or append one; returns the directory."""
    return _override(directory, {"patches": [{"at": at, "entry": _entry(one)} for at, one in entries.items()]})


def _entry(entry: Entry) -> Json:
    return {"kind": "chunks", "chunks": entry} if isinstance(entry, list) else entry


def _override(directory: Path, document: Any) -> Path:
    (directory / "replay.override.json").write_text(json.dumps(document))
    return directory


# ---------------------------------------------------------------- recorded sessions


@dataclass(frozen=True)
class Result:
    """A recorded tool result. `code` is that of a file system error; `meta` is what the tool noted."""

    text: str
    is_error: bool = False
    code: str | None = None
    meta: Any = None


@dataclass(frozen=True)
class Step:
    """A model call and the results of the tools it asked for, in the order of the calls."""

    call: Call
    results: tuple[Result, ...] = ()


def step(chunks: Call, *results: Result | str) -> Step:
    """A step; a plain text is a successful result."""
    return Step(chunks, tuple(Result(one) if isinstance(one, str) else one for one in results))


class Log:
    """A recorded session in the making, without times. `window` is the model's context window in tokens.

    A child's `spawn` is the id of the delegating call, or that and how many earlier children had the same id;
    None makes a recording that lacks this key.
    """

    def __init__(self, session: str = "recorded", *, cwd: str = "{{cwd}}", window: int | None = None,
                 created: int = 1000) -> None:
        self.header: Json = {"type": "session", "version": 0, "id": session, "createdAt": created, "cwd": cwd,
                             "delegationDepth": 0}
        self.events: list[Json] = []
        self._window = window
        self._turn = 0
        self._children = 0

    def add(self, kind: str, /, **data: Any) -> Log:
        """Append any event."""
        self.events.append({"type": kind, "data": data})
        return self

    def turn(self, prompt: str, *steps: Step | Call, end: str = "completed") -> Log:
        """Append a turn. `end` is the kind of its outcome; with `open`, the log breaks off before the end."""
        self._turn += 1
        self.add("turn/start", turn=self._turn)
        for number, one in enumerate(steps, 1):
            self.add("step/start", turn=self._turn, step=number)
            if number == 1:
                self._asked(prompt)
            self._step(number, one if isinstance(one, Step) else Step(one))
            if end != "open" or number < len(steps):
                self.add("step/end", turn=self._turn, step=number)
        if end != "open":
            reason = {"kind": end} | ({"reason": {"kind": "user"}} if end == "aborted" else {})
            self.add("turn/end", turn=self._turn, reason=reason)
        return self

    def spawned(self, session: str, spawn: str | tuple[str, int] | None) -> Log:
        """A new child with an empty history, made by a call of this session's."""
        self._children += 1
        child = Log(session, cwd=self.header["cwd"], created=self.header["createdAt"] + 10 * self._children)
        header = child.header
        depth = self.header["delegationDepth"] + 1
        del header["delegationDepth"]
        header |= {"parentSession": self.header["id"], "origin": "subagent", "delegationDepth": depth}
        if spawn is not None:
            call_id, index = (spawn, 0) if isinstance(spawn, str) else spawn
            header["spawn"] = {"callId": call_id, "index": index}
        return child

    def forked(self, session: str, spawn: str | tuple[str, int] | None) -> Log:
        """A new child with this session's ended turns so far, made by a call of this session's."""
        child = self.spawned(session, spawn)
        seed = 1 + max(at for at, event in enumerate(self.events) if event["type"] == "turn/end")
        child.events = self.events[:seed]
        child.header = _with_seed(child.header, seed)
        child._turn = sum(event["type"] == "turn/end" for event in child.events)
        return child.add("session/end-seed")

    def lines(self) -> list[str]:
        """The log's lines, packed canonically; body lines carry neither seq nor time."""
        return [json.dumps(row, ensure_ascii=False) for row in [self.header, *_packed(self.events)]]

    def _asked(self, prompt: str) -> None:
        self.add("user/message", content=[{"type": "text", "text": prompt}], source={"kind": "user"}, role="user",
                 id=f"user-{self._turn}")
        if self._turn == 1 and self._window is not None:
            config = {"provider": "recorded", "model": "recorded-1"}
            header = {"config": config, "system": "{{system}}", "tools": "{{tools}}"}
            self.add("request/header", header=header, reason="initial")
            self.add("request/context", **config, contextWindow=self._window)

    def _step(self, number: int, step: Step) -> None:
        place = {"turn": self._turn, "step": number}
        for chunk in step.call:
            self.add("assistant/chunk", **place, chunk=chunk)
        blocks = [chunk["block"] for chunk in step.call if chunk["type"] == "block-end"]
        if any(chunk["type"] == "finish" for chunk in step.call):
            message = {"role": "assistant", "content": blocks, "source": {"kind": "model"},
                       "id": f"answer-{number}"}
            self.add("assistant/message", **place, message=message)
        asked = [block for block in blocks if block["type"] == "tool-call"]
        for block, result in zip(asked, step.results, strict=False):
            self.add("tool/call", **place, callId=block["id"], name=block["name"], arguments=block["arguments"])
            self._result(place, block["id"], result)

    def _result(self, place: Mapping[str, int], call_id: str, result: Result) -> None:
        block = {"type": "tool-result", "toolCallId": call_id, "content": [{"type": "text", "text": result.text}],
                 "isError": result.is_error}
        message = {"source": {"kind": "tool", "callId": call_id}, "content": [block], "role": "user",
                   "id": f"result-{call_id}"}
        extra: Json = {} if result.code is None else {"error": {"name": "FsError", "code": result.code}}
        if result.meta is not None:
            extra["meta"] = result.meta
        self.add("tool/result", **place, message=message, **extra)


def write(directory: Path, *logs: Log) -> Path:
    """Store a family of recorded sessions, the primary one first; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, log in enumerate(logs):
        name = f"session.{number}.jsonl" if number else "session.jsonl"
        (directory / name).write_text("\n".join(log.lines()) + "\n", encoding="utf-8")
    return directory


def _with_seed(header: Json, seed: int) -> Json:
    at = list(header).index("origin")
    items = list(header.items())
    return dict([*items[:at], ("seedLength", seed), *items[at:]])


def _packed(events: Sequence[Json]) -> Iterator[Json]:
    """Runs of three deltas or more become one row (format reference 1.6)."""
    for key, group in itertools.groupby(events, key=_run_key):
        members = list(group)
        if key is None or len(members) < 3:
            yield from members
            continue
        data = members[0]["data"]
        chunk = data["chunk"]
        kind, piece, pieces = PACKED[chunk["type"]]
        shared = {name: chunk[name] for name in ("id", "name") if name in chunk}
        yield {"type": kind, "data": {"turn": data["turn"], "step": data["step"], "index": chunk["index"],
                                      "dt": [0] * (len(members) - 1), **shared,
                                      pieces: [member["data"]["chunk"][piece] for member in members]}}


def _run_key(event: Json) -> str | None:
    """The same for deltas that may share a row; None for any other event."""
    if event["type"] != "assistant/chunk" or event["data"]["chunk"]["type"] not in PACKED:
        return None
    data, chunk = event["data"], event["data"]["chunk"]
    shared = {name: value for name, value in chunk.items() if name not in ("text", "argumentsDelta")}
    return json.dumps([data["turn"], data["step"], shared])

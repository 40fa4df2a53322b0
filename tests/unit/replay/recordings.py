"""Small recordings for tests: a builder for session logs, and callers that ask a replay for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.providers.base import MAIN, Caller, Hop, ModelRequest, Prepared, Surface
from acp_agent.session.events import Chunk, HeaderContent, ModelConfig, ReplayBound, TextDelta
from replay.engine import Replay, open_replay

FINISH = {"type": "finish", "reason": {"kind": "stop"}}


class Log:
    """A session log in the making. Methods append events and return the log."""

    def __init__(
        self, session: str = "recorded", *, parent: str | None = None, seed: int | None = None,
        spawn: tuple[str, int] | None = None, created: int = 0, depth: int | None = None, cwd: str = "{{cwd}}",
    ) -> None:
        self.header: dict[str, Any] = {"type": "session", "version": 0, "id": session, "createdAt": created,
                                       "cwd": cwd}
        if parent is not None:
            self.header["parentSession"] = parent
        if seed is not None:
            self.header["seedLength"] = seed
        if parent is not None:
            self.header["origin"] = "subagent"
        self.header["delegationDepth"] = (0 if parent is None else 1) if depth is None else depth
        if spawn is not None:
            self.header["spawn"] = {"callId": spawn[0], "index": spawn[1]}
        self.events: list[dict[str, Any]] = []

    def add(self, kind: str, /, **data: Any) -> Log:
        self.events.append({"type": kind, "data": data})
        return self

    def begin(self, turn: int, step: int = 1) -> Log:
        return self.add("turn/start", turn=turn).add("step/start", turn=turn, step=step)

    def end(self, turn: int, kind: str = "completed", step: int = 1) -> Log:
        reason: dict[str, Any] = {"kind": kind}
        if kind == "aborted":
            reason["reason"] = {"kind": "user"}
        return self.add("step/end", turn=turn, step=step).add("turn/end", turn=turn, reason=reason)

    def user(self, text: str) -> Log:
        return self.add("user/message", content=[{"type": "text", "text": text}], source={"kind": "user"},
                        role="user", id="m")

    def chunk(self, turn: int, step: int, chunk: dict[str, Any]) -> Log:
        return self.add("assistant/chunk", turn=turn, step=step, chunk=chunk)

    def say(self, turn: int, step: int, text: str, *, finish: dict[str, Any] | None = FINISH) -> Log:
        """A model call that answers with one text."""
        self.chunk(turn, step, {"type": "block-start", "index": 0, "blockType": "text"})
        self.chunk(turn, step, {"type": "text-delta", "index": 0, "text": text})
        if finish is not None:
            self.chunk(turn, step, {"type": "block-end", "index": 0, "block": {"type": "text", "text": text}})
            self.chunk(turn, step, finish)
            content = [{"type": "text", "text": text}]
            self.add("assistant/message", turn=turn, step=step, message={
                "role": "assistant", "content": content, "source": {"kind": "model"}, "id": "m"})
        return self

    def sent(self, turn: int, step: int, ordinal: int, *, purpose: str = MAIN, root: int | None = None) -> Log:
        extra = {} if root is None else {"root": root}
        return self.add("request/sent", turn=turn, step=step, purpose=purpose, ordinal=ordinal, messageId="m",
                        parts={}, **extra)

    def called(self, turn: int, step: int, call_id: str, name: str, arguments: str) -> Log:
        return self.add("tool/call", turn=turn, step=step, callId=call_id, name=name, arguments=arguments)

    def result(
        self, turn: int, step: int, call_id: str, text: str, *, is_error: bool = False, code: str | None = None,
        meta: Any = None,
    ) -> Log:
        block = {"type": "tool-result", "toolCallId": call_id, "content": [{"type": "text", "text": text}],
                 "isError": is_error}
        extra: dict[str, Any] = {} if code is None else {"error": {"name": "E", "code": code}}
        if meta is not None:
            extra["meta"] = meta
        return self.add("tool/result", turn=turn, step=step, message={
            "source": {"kind": "tool", "callId": call_id}, "content": [block], "role": "user", "id": "m"}, **extra)

    def tool(self, turn: int, step: int, call_id: str, name: str, arguments: str, text: str) -> Log:
        """A tool call with its result."""
        return self.called(turn, step, call_id, name, arguments).result(turn, step, call_id, text)

    def delegate(
        self, turn: int, step: int, call_id: str, prompt: str, *, result: str | None = "done",
        is_error: bool = False, code: str | None = None,
    ) -> Log:
        """A delegating call, and its result unless that is None."""
        arguments = msgspec.json.encode({"description": "d", "prompt": prompt}).decode()
        self.called(turn, step, call_id, "subagent", arguments)
        return self if result is None else self.result(turn, step, call_id, result, is_error=is_error, code=code)

    def lines(self, *, complete: bool = False) -> list[bytes]:
        """The header and one line for each event; complete ones carry seq and time."""
        rows = [self.header]
        for seq, event in enumerate(self.events):
            envelope = {"seq": seq, "time": 1000 + seq} if complete else {}
            rows.append({"type": event["type"], **envelope, "data": event["data"]})
        return [msgspec.json.encode(row) + b"\n" for row in rows]

    def write(self, directory: Path, name: str = "session.jsonl", *, complete: bool = False) -> Path:
        path = directory / name
        path.write_bytes(b"".join(self.lines(complete=complete)))
        return path


def answers(session: str, *texts: str, parent: str | None = None, task: str | None = None, **header: Any) -> Log:
    """A log of one-step turns, each answered with one text."""
    log = Log(session, parent=parent, **header)
    for turn, text in enumerate(texts, 1):
        log.begin(turn)
        log.user(task if task is not None and turn == 1 else f"prompt {turn}")
        log.say(turn, 1, text).end(turn)
    return log


def opened(
    directory: Path, *, tools: Literal["recorded", "live"] = "recorded",
    sessions: Literal["once", "repeat"] = "once", pace: str = "burst", receipt: Path | None = None,
    said: list[str] | None = None,
) -> Replay:
    """A replay of a directory; what it logs goes to `said`."""
    log = (lambda line: None) if said is None else said.append
    return open_replay(directory, tools=tools, sessions=sessions, pace=pace, receipt=receipt, log=log)


def hops(*calls: str | tuple[str, int]) -> tuple[Hop, ...]:
    pairs = ((call, 0) if isinstance(call, str) else call for call in calls)
    return tuple(Hop(CallId(call), index) for call, index in pairs)


def caller(
    session: str | None = "live", *, root: str | None = None, path: tuple[Hop, ...] = (), ordinal: int = 0,
    purpose: str = MAIN, cwd: str = ".", bound: ReplayBound | None = None,
) -> Caller:
    live = None if session is None else SessionId(session)
    return Caller(live, live if root is None else SessionId(root), path, purpose, ordinal, cwd, bound)


def request(who: Caller, messages: Sequence[Surface] = (), turn: int = 1, step: int = 1) -> ModelRequest:
    header = HeaderContent(ModelConfig("replay", "recorded"))
    return ModelRequest(who, turn, step, MessageId("m"), header, messages)


async def served(replay: Replay, who: Caller, messages: Sequence[Surface] = ()) -> list[Chunk]:
    """Every chunk a caller is served. A call that holds is waited for for ever."""
    replay.provider.prepare(who)
    return [chunk async for batch in replay.provider.stream(request(who, messages)) for chunk in batch]


def text_of(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def asked(replay: Replay, who: Caller, messages: Sequence[Surface] = ()) -> str:
    """The text a caller is served."""
    return text_of(asyncio.run(served(replay, who, messages)))


def prepared(replay: Replay, who: Caller) -> Prepared:
    return replay.provider.prepare(who)

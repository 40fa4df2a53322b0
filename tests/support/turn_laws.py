"""The laws of turns, steps, model calls and tool calls in one log (format reference 1.5, 1.9, 1.11, 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

BLOCK_OF = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}
UNFINISHED = frozenset({"error", "aborted", "max-tokens"})
"""How a model call may finish with blocks still open."""


def turn_laws(events: Sequence[Json], *, closed: bool = True) -> Iterator[str]:
    """The violations in a log's events. Stops at the first malformed event."""
    walk = _Walk()
    for event in events:
        try:
            yield from walk.see(event)
        except (KeyError, TypeError) as error:
            yield f"format 1.4: event {event.get('seq')} ({event.get('type')}) is malformed: {error!r}"
            return
    if closed:
        yield from walk.end()


class _Walk:
    """One pass over a log."""

    def __init__(self) -> None:
        self.turn = 0
        self.step = 0
        self.in_turn = False
        self.in_step = False
        self.attempt: _Attempt | None = None
        self.sent = False
        """Whether the log says which model calls were made; foreign beginnings of a log do not."""
        self.cited: list[int] = []
        """The chunks an assistant message must cite."""
        self.calls: dict[str, _Call] = {}
        self.unfinished: list[str] = []
        """Model calls of the open turn that have no finish: a killed process leaves one behind."""
        self.previous = ""
        self.header_seen = False

    def see(self, event: Json) -> Iterator[str]:
        kind, data = event["type"], event["data"]
        handler = getattr(self, "_" + kind.replace("/", "_").replace("-", "_"), None)
        if kind not in ("turn/start", "step/start") and "turn" in data and "step" in data:
            yield from self._place(event)
        if handler is not None:
            yield from handler(event, data)
        self.previous = kind

    def end(self) -> Iterator[str]:
        """What must not be open when a process came to its own end."""
        if self.in_turn:
            yield f"format 3.2: turn {self.turn} has no turn/end"

    def _place(self, event: Json) -> Iterator[str]:
        data = event["data"]
        if not self.in_step or (data["turn"], data["step"]) != (self.turn, self.step):
            where = f"turn {self.turn} step {self.step}" if self.in_step else "no step"
            claim = f"turn {data['turn']} step {data['step']}"
            yield f"format 1.11: event {event['seq']} ({event['type']}) says {claim} in {where}"

    # -- turns and steps

    def _turn_start(self, event: Json, data: Json) -> Iterator[str]:
        if self.in_turn or data["turn"] != self.turn + 1:
            yield f"format 1.11: turn {data['turn']} starts after turn {self.turn} (open: {self.in_turn})"
        self.turn, self.step, self.in_turn = data["turn"], 0, True

    def _turn_end(self, event: Json, data: Json) -> Iterator[str]:
        if not self.in_turn or data["turn"] != self.turn or self.in_step:
            yield f"format 1.11: turn {data['turn']} ends in turn {self.turn} (step open: {self.in_step})"
        if data["reason"]["kind"] != "interrupted":
            yield from self.unfinished
        self.unfinished = []
        self.in_turn = self.in_step = False

    def _session_end_seed(self, event: Json, data: Json) -> Iterator[str]:
        if self.in_turn:
            yield f"format 1.10: event {event['seq']}: a seed ends in the middle of turn {self.turn}"
        if self.previous == "session/end-seed":
            yield f"format 1.10: event {event['seq']}: a seed that ended ends again"

    def _step_start(self, event: Json, data: Json) -> Iterator[str]:
        if not self.in_turn or self.in_step or (data["turn"], data["step"]) != (self.turn, self.step + 1):
            yield f"format 1.11: step {data['step']} of turn {data['turn']} starts after step {self.step}"
        self.step, self.in_step = data["step"], True
        self.cited, self.calls = [], {}

    def _step_end(self, event: Json, data: Json) -> Iterator[str]:
        where = f"turn {self.turn} step {self.step}"
        if self.sent and self.attempt is not None and not self.attempt.finished:
            self.unfinished.append(f"DESIGN 4: the model call of {where} has no finish")
        self.attempt = None
        for call_id, call in self.calls.items():
            if call.results != 1:
                yield f"law 7: tool call {call_id!r} of {where} has {call.results} results"
        self.in_step = False

    # -- a model call

    def _request_header(self, event: Json, data: Json) -> Iterator[str]:
        if self.header_seen == (data["reason"] == "initial"):
            yield f"format 1.8: event {event['seq']}: a header with the reason {data['reason']!r}"
        self.header_seen = True

    def _session_title(self, event: Json, data: Json) -> Iterator[str]:
        if data["source"]["kind"] == "fallback" and self.previous != "user/message":
            yield f"format 1.11: event {event['seq']}: the rule-made title follows {self.previous}"

    def _request_sent(self, event: Json, data: Json) -> Iterator[str]:
        if self.attempt is not None and not self.attempt.finished:
            yield f"DESIGN 4: event {event['seq']}: a model call while another has no finish"
        self.attempt, self.sent = _Attempt(), True

    def _llm_retry_started(self, event: Json, data: Json) -> Iterator[str]:
        self.cited = []
        return iter(())

    def _assistant_chunk(self, event: Json, data: Json) -> Iterator[str]:
        self.cited.append(event["seq"])
        if self.attempt is None:
            if self.sent:
                yield f"DESIGN 4: event {event['seq']}: a chunk without a request/sent"
                return
            self.attempt = _Attempt()
        elif self.attempt.finished and not self.sent:
            self.attempt = _Attempt()
        yield from (f"format 1.5: event {event['seq']}: {problem}" for problem in self.attempt.see(data["chunk"]))

    def _assistant_message(self, event: Json, data: Json) -> Iterator[str]:
        if event.get("sourceEventSeqs") != self.cited:
            yield (f"format 1.11: the answer {event['seq']} cites {_few(event.get('sourceEventSeqs'))}, "
                   f"its chunks are {_few(self.cited)}")
        if self.attempt is not None and not self.attempt.finished and self.sent:
            yield f"DESIGN 4: the answer {event['seq']} was committed before its finish"
        for block in data["message"]["content"]:
            if block["type"] == "tool-call":
                if block["id"] in self.calls:
                    yield f"law 7: event {event['seq']} asks twice with the id {block['id']!r}"
                self.calls[block["id"]] = _Call(block["name"], block["arguments"])

    # -- tool calls

    def _tool_call(self, event: Json, data: Json) -> Iterator[str]:
        call = self.calls.get(data["callId"])
        if call is None or call.started is not None:
            yield f"law 7: event {event['seq']} starts {data['callId']!r}, which nobody asked for or which started"
            return
        if (data["name"], data["arguments"]) != (call.name, call.arguments):
            yield f"format 1.4: event {event['seq']} is not the call that was asked for"
        call.started = event["seq"]

    def _tool_result(self, event: Json, data: Json) -> Iterator[str]:
        if event["surfaceOp"] != "append":
            return
        call_id = data["message"]["content"][0]["toolCallId"]
        if data["message"]["source"].get("callId") != call_id:
            yield f"format 1.4: event {event['seq']} names two calls"
        call = self.calls.get(call_id)
        if call is None:
            yield f"law 7: event {event['seq']} is a result of {call_id!r}, which nobody asked for"
            return
        call.results += 1
        cited = event.get("sourceEventSeqs")
        if cited != (None if call.started is None else [call.started]):
            yield f"format 1.11: the result {event['seq']} cites {cited}, not {call.started}"
        waiting = [name for name, other in self.calls.items() if other.results == 0]
        order = list(self.calls)
        if waiting and order.index(waiting[0]) < order.index(call_id):
            yield f"format 3.5: the result of {call_id!r} stands before that of {waiting[0]!r}"


class _Call:
    """A tool call of the open step."""

    def __init__(self, name: str, arguments: str) -> None:
        self.name = name
        self.arguments = arguments
        self.started: int | None = None
        self.results = 0


class _Attempt:
    """The stream of one model call, checked against the chunk grammar."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {}
        self.ended: set[int] = set()
        self.usage = False
        self.finished = False

    def see(self, chunk: Json) -> Iterator[str]:
        kind, index = chunk["type"], chunk.get("index", -1)
        if self.finished:
            yield f"{kind} after the finish"
        elif kind == "block-start":
            if index in self.open or index in self.ended:
                yield f"block {index} starts twice"
            self.open[index] = chunk["blockType"]
        elif kind in BLOCK_OF:
            if self.open.get(index) != BLOCK_OF[kind]:
                yield f"{kind} for block {index}, which is {self.open.get(index, 'not open')}"
        elif kind == "block-end":
            if self.open.pop(index, None) != chunk["block"]["type"]:
                yield f"block {index} ends as {chunk['block']['type']}"
            self.ended.add(index)
        elif kind == "usage":
            if self.usage:
                yield "usage twice"
            self.usage = True
        elif kind == "finish":
            self.finished = True
            if self.open and chunk["reason"]["kind"] not in UNFINISHED:
                yield f"finish {chunk['reason']['kind']} with blocks {sorted(self.open)} open"
        else:
            yield f"unknown chunk {kind!r}"


def _few(seqs: Any) -> str:
    if not isinstance(seqs, list) or len(seqs) < 8:
        return str(seqs)
    return f"[{seqs[0]}, {seqs[1]}, ... {seqs[-1]}] ({len(seqs)})"

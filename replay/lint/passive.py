"""What is seen of every exchange, whatever was tried: the form of all frames, and laws that hold all along."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from replay.lint.probe import LOGIN_NEEDED
from replay.lint.schema import Form, error_problems, known, problems
from replay.lint.traffic import Json, Line, is_response

WATCHED: Final = (1, 16, 21, 27, 70, 80, 87, 93)
"""Statements of which a breach shows in any exchange. Those that no check tries are told by what was seen."""

_RESULTS: Final[Mapping[str, int]] = {
    "initialize": 18, "authenticate": 28, "logout": 30, "session/new": 32, "session/load": 41, "session/resume": 45,
    "session/list": 48, "session/delete": 50, "session/close": 51, "session/prompt": 53, "session/set_mode": 82,
    "session/set_config_option": 83, "session/fork": 88,
}
"""The statement that a malformed result breaks."""

_ASKED: Final[Mapping[str, int]] = {
    "session/request_permission": 73, "fs/read_text_file": 76, "fs/write_text_file": 76, "elicitation/create": 80,
    "elicitation/complete": 81,
}
_UPDATES: Final[Mapping[str, int]] = {
    "plan": 85, "available_commands_update": 85, "usage_update": 86, "session_info_update": 86,
    "current_mode_update": 82, "config_option_update": 83, "tool_call": 70, "tool_call_update": 70,
}

_GATED: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "fs/read_text_file": (("fs", "readTextFile"), 21), "fs/write_text_file": (("fs", "writeTextFile"), 21),
    "terminal/create": (("terminal",), 21), "terminal/output": (("terminal",), 21),
    "terminal/wait_for_exit": (("terminal",), 21), "terminal/kill": (("terminal",), 21),
    "terminal/release": (("terminal",), 21), "elicitation/create": (("elicitation",), 80),
    "notice": (("session", "notices"), 87), "compaction_update": (("session", "compaction"), 87),
    "compaction_summary_chunk": (("session", "compaction"), 87), "plan_update": (("plan",), 93),
    "plan_removed": (("plan",), 93), "subagent_update": (("subagents",), 93), "session_message": (("subagents",), 93),
    "session_message_chunk": (("subagents",), 93),
}
"""A method or update, the client capability it needs, and the statement about it besides 21."""

_FINAL: Final = ("completed", "failed")


class Seen(Struct, frozen=True):
    """A breach seen in passing: the statement's number, what is wrong, and in which line it shows."""

    number: int
    what: str
    position: int


def watch(lines: list[Line], *, login: bool) -> Iterator[Seen]:
    """Every breach in one exchange. `login` says whether this agent wants a login before sessions."""
    watcher = _Watcher(login)
    for position, line in enumerate(lines):
        for number, what in watcher.take(line):
            yield Seen(number, what, position)


class _Watcher:
    def __init__(self, login: bool) -> None:
        self._login = login
        self._capabilities: Any = {}
        self._open: dict[str, list[str]] = {}
        """Methods of the client's open requests, by id."""
        self._answered: Counter[str] = Counter()
        self._calls: dict[tuple[str, Any], str | None] = {}
        """The newest status of each tool call."""

    def take(self, line: Line) -> Iterator[tuple[int, str]]:
        if line.sender == "client":
            self._asked(line.frame)
        elif line.junk is not None:
            yield 1, f"a line on stdout is no JSON-RPC message: {line.junk}"
        elif line.frame is not None and line.frame.get("jsonrpc") != "2.0":
            yield 1, f"a message has jsonrpc {json.dumps(line.frame.get('jsonrpc'))}"
        elif line.frame is not None:
            yield from self._answer(line.frame) if is_response(line.frame) else self._call(line.frame)

    def _asked(self, frame: Json | None) -> None:
        if frame is None or "method" not in frame:
            return
        if frame["method"] == "initialize" and isinstance(frame.get("params"), dict):
            self._capabilities = frame["params"].get("clientCapabilities")
        if frame["method"] == "session/load":
            self._calls.clear()  # they are told of once more
        if "id" in frame:
            self._open.setdefault(json.dumps(frame["id"]), []).append(frame["method"])

    def _answer(self, frame: Json) -> Iterator[tuple[int, str]]:
        key = json.dumps(frame.get("id"))
        methods = self._open.get(key)
        if methods is None:
            return
        if not methods:
            yield 16, f"request {key} was answered twice"
            return
        method = methods.pop(0)
        if "error" in frame:
            yield from ((1, problem) for problem in error_problems(frame["error"]))
            code = frame["error"].get("code") if isinstance(frame["error"], dict) else None
            if code == LOGIN_NEEDED and not self._login:
                yield 27, f"{method} was answered with -32000, though sessions need no login"
            return
        result = {} if frame["result"] is None else frame["result"]
        yield from ((_RESULTS.get(method, 1), problem) for problem in problems(method, "Response", result, "agent"))

    def _call(self, frame: Json) -> Iterator[tuple[int, str]]:
        method = frame["method"]
        form: Form = "Request" if "id" in frame else "Notification"
        if not isinstance(method, str) or (not method.startswith("_") and not known(method, form)):
            yield 1, f"the protocol has no {form.lower()} {json.dumps(method)} from an agent"
            return
        params = frame.get("params")
        params = {} if params is None else params
        update = params.get("update") if method == "session/update" and isinstance(params, dict) else None
        kind = str(update.get("sessionUpdate")) if isinstance(update, dict) else method
        default = 78 if method.startswith("terminal/") else 53
        number = _UPDATES.get(kind, _ASKED.get(method, default))
        yield from ((number, problem) for problem in problems(method, form, params))
        yield from self._gate(kind)
        if isinstance(update, dict) and kind in ("tool_call", "tool_call_update"):
            yield from self._tool(str(params.get("sessionId")), kind, update)

    def _gate(self, kind: str) -> Iterator[tuple[int, str]]:
        gate, number = _GATED.get(kind, ((), 0))
        value = self._capabilities
        for name in gate:
            value = value.get(name) if isinstance(value, dict) else None
        if gate and not (value is True or isinstance(value, dict)):
            what = f"{kind} needs the client capability {'.'.join(gate)}, which was not declared"
            yield 21, what
            if number != 21:
                yield number, what

    def _tool(self, session: str, kind: str, update: Json) -> Iterator[tuple[int, str]]:
        key, status = (session, update.get("toolCallId")), update.get("status")
        if kind == "tool_call" and key in self._calls:
            yield 70, f"the tool call id {key[1]!r} was announced before"
        if kind == "tool_call_update" and key not in self._calls:
            yield 70, f"an update of the tool call {key[1]!r}, which was never announced"
        before = self._calls.get(key)
        if before in _FINAL and status not in (None, before):
            yield 70, f"the tool call {key[1]!r} was {before} and is {status}"
        self._calls[key] = status or before

"""The laws that can be seen on a transcript: what a client saw of an agent, judged without knowing the agent.

`law N` is a law of the design, `digest N` a statement of the protocol's conformance checklist, `schema` the
protocol's schema. Log files have their own rules in `log_laws`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.schema import Frame, Pending, Sender, id_key, is_request, is_response, validate_frame
from tests.support.service_laws import ServiceLaws
from tests.support.session_laws import SessionLaws


class Entry(NamedTuple):
    """One line that passed. `frame` is its JSON, None where it is none; `at` monotonic seconds, 0 if unknown."""

    sender: Sender
    frame: Any
    raw: bytes
    at: float = 0.0


CANCEL_LIMIT = 2.0
"""Seconds a cancelled prompt may take. The law says one; the rest is for a machine that is busy testing."""


def check_laws(transcript: Sequence[Entry], *, finished: bool = True, unstable: bool = False) -> list[str]:
    """Every violation, in order, naming its law and the line's position in the transcript.

    `finished` means that the agent came to its own end: whatever was asked must then have been answered.
    `unstable` allows what only the protocol's unstable schema has.
    """
    return list(_violations(transcript, finished, unstable))


def _violations(transcript: Sequence[Entry], finished: bool, unstable: bool) -> Iterator[str]:
    pending, answers, gates, sessions = Pending(), _Answers(), _Gates(), SessionLaws(CANCEL_LIMIT)
    services = ServiceLaws()
    for position, entry in enumerate(transcript):
        if entry.sender == "client":
            if isinstance(entry.frame, dict):
                validate_frame(entry.frame, "client", pending, unstable=unstable)
                gates.client(entry.frame)
                sessions.client(entry.frame, entry.at)
                services.client(entry.frame)
            answers.client(entry)
            continue
        found = list(_line(entry))
        if not found:
            frame: Frame = entry.frame
            malformed = validate_frame(frame, "agent", pending, unstable=unstable)
            found += [f"schema: {problem}" for problem in malformed]
            found += [*answers.agent(frame), *gates.agent(frame)]
            if not malformed:
                found += [*sessions.agent(frame, entry.at), *services.agent(frame)]
        yield from (f"{problem} [line {position}: {_short(entry.raw)}]" for problem in found)
    if finished:
        yield from answers.missing()
        yield from services.missing()


def _line(entry: Entry) -> Iterator[str]:
    """Law 1. Whatever else is wrong with a frame is the schema's business."""
    if not isinstance(entry.frame, dict):
        yield "law 1: a stdout line is not a JSON object"
    elif entry.frame.get("jsonrpc") != "2.0":
        yield "law 1: a stdout line is not JSON-RPC 2.0"
    elif not entry.raw.endswith(b"\n"):
        yield "law 1: a stdout line has no newline"


LOGIN_FIRST = frozenset({"authenticate", "session/new", "session/load", "session/resume", "session/fork"})
"""Methods that may say that a login is missing, if there is a way to log in."""


class _Answers:
    """Law 2: each request gets exactly one response, and each malformed line one error."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._malformed = 0
        self._echoes: Counter[str] = Counter()
        self._agent_ids: set[str] = set()
        self._needs_login = False
        """Whether the agent offered a way to log in."""
        self._asked: dict[str, str] = {}

    def client(self, entry: Entry) -> None:
        frame = entry.frame
        if not entry.raw.strip() or is_response(frame):
            return
        if not isinstance(frame, dict):
            self._malformed += 1
            return
        sound = frame.get("jsonrpc") == "2.0" and isinstance(frame.get("method"), str)
        if sound and "id" not in frame:
            return
        if sound and _legal_id(frame["id"]):
            self._asked[id_key(frame["id"])] = frame["method"]
            self._open[id_key(frame["id"])] += 1
            return
        self._malformed += 1
        if "id" in frame and _legal_id(frame["id"]):
            self._echoes[id_key(frame["id"])] += 1

    def agent(self, frame: Frame) -> Iterator[str]:
        if is_request(frame):
            key = id_key(frame["id"])
            if key in self._agent_ids:
                yield f"law 2: the agent used the request id {key} again"
            self._agent_ids.add(key)
        if not is_response(frame) or "id" not in frame:
            return
        key = id_key(frame["id"])
        if self._open[key]:
            self._open[key] -= 1
        elif self._malformed and "error" in frame and (key == "null" or self._echoes[key]):
            self._malformed -= 1
            self._echoes[key] -= 1
        else:
            yield f"law 2: a response to {key}, which is not an open request"
        method, result = self._asked.pop(key, ""), frame.get("result")
        if method == "initialize" and isinstance(result, dict):
            self._needs_login = bool(result.get("authMethods"))
        if isinstance(frame.get("error"), dict) and frame["error"].get("code") == -32000 \
                and not (self._needs_login and method in LOGIN_FIRST):
            yield "digest 27: -32000 means that a login is needed, and nothing here needs one"

    def missing(self) -> Iterator[str]:
        for key, count in self._open.items():
            if count:
                yield f"law 2: request {key} was never answered"
        if self._malformed:
            yield f"law 2: {self._malformed} malformed line(s) got no error"


def _legal_id(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, str | int | None)


GATED_METHODS: Mapping[str, tuple[str, ...]] = {
    "fs/read_text_file": ("fs", "readTextFile"), "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/create": ("terminal",), "terminal/output": ("terminal",), "terminal/release": ("terminal",),
    "terminal/wait_for_exit": ("terminal",), "terminal/kill": ("terminal",),
    "elicitation/create": ("elicitation",),
}
GATED_UPDATES: Mapping[str, tuple[str, ...]] = {
    "notice": ("session", "notices"), "compaction_update": ("session", "compaction"),
    "compaction_summary_chunk": ("session", "compaction"), "plan_update": ("plan",), "plan_removed": ("plan",),
    "subagent_update": ("subagents",), "session_message": ("subagents",), "session_message_chunk": ("subagents",),
}


class _Gates:
    """What the agent may send only to a client that said it can take it (digest 21, 76)."""

    def __init__(self) -> None:
        self._capabilities: Any = {}

    def client(self, frame: Frame) -> None:
        if frame.get("method") == "initialize" and isinstance(frame.get("params"), dict):
            self._capabilities = frame["params"].get("clientCapabilities")

    def agent(self, frame: Frame) -> Iterator[str]:
        method = frame.get("method")
        gate = GATED_METHODS.get(method) if isinstance(method, str) else None
        what = method
        if method == "session/update" and isinstance(frame.get("params"), dict):
            update = frame["params"].get("update")
            what = update.get("sessionUpdate") if isinstance(update, dict) else None
            gate = GATED_UPDATES.get(what) if isinstance(what, str) else None
        if gate is not None and not self._offered(gate):
            yield f"digest 21: {what} needs the client capability {'.'.join(gate)}, which was not offered"

    def _offered(self, gate: Iterable[str]) -> bool:
        value = self._capabilities
        for name in gate:
            value = value.get(name) if isinstance(value, dict) else None
        return value is True or isinstance(value, dict)


def _short(raw: bytes) -> str:
    return raw[:160].decode(errors="replace").rstrip("\n") + ("..." if len(raw) > 160 else "")


def parse_line(raw: bytes) -> Any:
    """A line's JSON, or None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None

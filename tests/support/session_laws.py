"""The laws of one session as a client sees it: order of updates, tool calls, permissions, messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.schema import CHUNKS, Frame, id_key

FINAL = frozenset({"completed", "failed"})
HISTORY = CHUNKS | {"tool_call", "tool_call_update", "plan"}
"""Updates that belong to a turn."""
STOP_REASONS = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"})
DELEGATION = "subagent"
"""What the names of tools that run a child begin with: a running delegation may ask for its child."""


@dataclass
class _Prompt:
    key: str
    sent: int
    cancelled_at: float | None = None
    interrupted: bool = False
    """`$/cancel_request` named it: an error -32800 is a proper answer then."""


@dataclass
class _Call:
    name: str
    status: str
    asking: int = 0
    denied: bool = False

    @property
    def delegates(self) -> bool:
        return self.name.startswith(DELEGATION)


@dataclass
class _Session:
    modes: set[str] | None = None
    loading: bool = False
    prompts: list[_Prompt] = field(default_factory=list)
    calls: dict[str, _Call] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    cancel_sent: int = -1
    cancel_answered: int = -1
    """When the newest cancel was sent that was answered, as long as nothing came of a later prompt."""
    parent: _Session | None = None
    """Whose child it is, as the client was told."""
    children: dict[str, _Session] = field(default_factory=dict)
    state: str | None = None
    """What a child does, as far as that was told."""

    @property
    def root(self) -> _Session:
        """The session whose prompts and loads this one's traffic belongs to."""
        return self if self.parent is None else self.parent.root

    def descendants(self) -> Iterator[tuple[str, _Session]]:
        """All sessions below, by id."""
        for name, child in self.children.items():
            yield name, child
            yield from child.descendants()

    def end_messages(self) -> None:
        """No message that was streaming may go on: a tool round or a turn came to its end."""
        self.ended.update(self.current.values())
        self.current.clear()


@dataclass
class _Question:
    session: _Session
    call: _Call
    options: dict[str, str]


class SessionLaws:
    """Follows every session of a connection. Frames given to `agent` must have passed the schema."""

    def __init__(self, cancel_limit: float) -> None:
        self._limit = cancel_limit
        self._sessions: dict[str, _Session] = {}
        self._early: dict[str, _Session] = {}
        """Sessions whose id the client used before it was told of it: a script can, where ids are predictable."""
        self._gone: set[str] = set()
        self._asked: dict[str, tuple[str, Any]] = {}
        self._questions: dict[str, _Question] = {}
        self._before_load: dict[str, _Session | None] = {}
        self._clock = 0

    # -- what the client says

    def client(self, frame: Frame, at: float) -> None:
        """Take note of a frame of the client's."""
        self._clock += 1
        method, params = frame.get("method"), frame.get("params")
        if method is None:
            self._answered_question(frame)
            return
        if not isinstance(params, dict):
            return
        session = self._session(params.get("sessionId"))
        if "id" in frame:
            key = id_key(frame["id"])
            self._asked[key] = (method, params)
            if session is None and self._is_child(params.get("sessionId")):
                return  # which takes no requests
            if method == "session/load" and isinstance(params.get("sessionId"), str):
                if session is None or not session.prompts:  # else it runs, and nothing of it may be lost
                    self._before_load[key] = session
                    self._sessions[params["sessionId"]] = _Session(loading=True)
            elif method == "session/prompt" and isinstance(params.get("sessionId"), str):
                session = session or self._early.setdefault(params["sessionId"], _Session())
                session.prompts.append(_Prompt(key, self._clock))
        elif method == "session/cancel" and session is not None:
            session.cancel_sent = self._clock
            for prompt in session.prompts:
                prompt.cancelled_at = prompt.cancelled_at if prompt.cancelled_at is not None else at
        elif method == "$/cancel_request":
            for prompt in self._open_prompts(id_key(params.get("requestId"))):
                prompt.interrupted = True

    def _session(self, session_id: Any) -> _Session | None:
        if not isinstance(session_id, str):
            return None
        return self._sessions.get(session_id) or self._early.get(session_id)

    def _is_child(self, session_id: Any) -> bool:
        known = self._known(session_id) if isinstance(session_id, str) else None
        return known is not None and known.parent is not None

    def _known(self, session_id: str) -> _Session | None:
        """A session the client was told of, root or child."""
        if session_id in self._sessions:
            return self._sessions[session_id]
        return next((child for root in self._sessions.values() for name, child in root.descendants()
                     if name == session_id), None)  # fmt: skip

    def _all(self) -> list[_Session]:
        return [*self._sessions.values(), *self._early.values()]

    def _open_prompts(self, key: str) -> Iterator[_Prompt]:
        for session in self._all():
            yield from (prompt for prompt in session.prompts if prompt.key == key)

    def _answered_question(self, frame: Frame) -> None:
        question = self._questions.pop(id_key(frame.get("id")), None)
        if question is None:
            return
        question.call.asking -= 1
        result = frame.get("result")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        selected = isinstance(outcome, dict) and outcome.get("outcome") == "selected"
        kind = question.options.get(chosen, "") if selected and isinstance(chosen, str) else ""
        if not kind.startswith("allow") and not question.call.delegates:
            question.call.denied = True

    # -- what the agent says

    def agent(self, frame: Frame, at: float) -> Iterator[str]:
        """The violations of a frame of the agent's."""
        method = frame.get("method")
        if method is None:
            yield from self._response(frame, at)
        elif method == "session/update":
            params = frame["params"]
            yield from self._update(params["sessionId"], params["update"])
        elif method == "session/request_permission":
            yield from self._permission(frame)
        elif method.startswith(("fs/", "terminal/")) and "id" in frame:
            name = frame["params"]["sessionId"]
            if self._known(name) is None and name not in self._gone:
                yield f"law 2: {method} for session {name!r}, which the client was not told of"
        elif method == "$/cancel_request":
            question = self._questions.pop(id_key(frame["params"].get("requestId")), None)
            if question is not None:  # withdrawn: whatever is still answered does not count
                question.call.asking -= 1

    def _response(self, frame: Frame, at: float) -> Iterator[str]:
        key = id_key(frame["id"])
        method, params = self._asked.pop(key, ("", {}))
        result = frame.get("result")
        if method in ("session/new", "session/fork") and result is not None:
            if result["sessionId"] in self._sessions or result["sessionId"] in self._gone:
                yield f"digest 32: the session id {result['sessionId']!r} was given out twice"
            session = self._sessions[result["sessionId"]] = self._early.pop(result["sessionId"], _Session())
            session.modes = _modes(result)
        elif method in ("session/load", "session/resume") and result is not None:
            session = self._sessions.setdefault(params["sessionId"], _Session())
            if session.loading:
                yield from _loaded(session)
            session.loading, session.modes = False, _modes(result)
        elif method == "session/load" and key in self._before_load:
            self._load_refused(params.get("sessionId"), self._before_load.pop(key))
        elif method in ("session/close", "session/delete") and result is not None:
            self._sessions.pop(params["sessionId"], None)
            self._gone.add(params["sessionId"])
        elif method == "session/prompt":
            yield from self._prompt_ended(frame, key, at)

    def _load_refused(self, session_id: Any, before: _Session | None) -> None:
        self._sessions.pop(session_id, None)
        if before is not None:
            self._sessions[session_id] = before

    def _prompt_ended(self, frame: Frame, key: str, at: float) -> Iterator[str]:
        for session in self._all():
            for place, prompt in enumerate(session.prompts):
                if prompt.key == key:
                    del session.prompts[place]
                    yield from self._turn_ended(session, prompt, frame, at, ran=place == 0)
                    return

    def _turn_ended(
        self, session: _Session, prompt: _Prompt, frame: Frame, at: float, *, ran: bool,
    ) -> Iterator[str]:
        """`ran`: the prompt was the oldest; a later one is still queued and owns no tool call."""
        if "result" in frame:
            reason = frame["result"]["stopReason"]
            if reason not in STOP_REASONS:
                yield f"digest 53: {reason!r} is not a stop reason"
            if ran and reason == "cancelled" and prompt.cancelled_at is not None:
                session.cancel_answered = session.cancel_sent
        elif frame["error"]["code"] == -32800 and not prompt.interrupted:
            yield "law 6: a prompt ended by session/cancel is answered with stopReason cancelled, not an error"
        if prompt.cancelled_at is not None and at and at - prompt.cancelled_at > self._limit:
            yield f"law 6: the prompt ended {at - prompt.cancelled_at:.2f} s after it was cancelled"
        if not ran:
            return
        session.end_messages()
        yield from _unended(session, "when its turn's response comes")

    def _update(self, session_id: str, update: Frame) -> Iterator[str]:
        session = self._known(session_id)
        kind = update["sessionUpdate"]
        if session is None:
            yield f"law 2: {kind} for session {session_id!r} before the response that names it, or after its end"
            return
        if kind in HISTORY | {"subagent_update"} and not session.root.loading:
            yield from self._in_turn(session.root, kind)
        if session.state == "idle":
            yield f"digest 93: {kind} for the child {session_id!r}, which is idle"
        if kind == "subagent_update":
            yield from self._child(session, update)
        check = _CHECKS.get(kind)
        if check is not None:
            yield from check(session, update)

    @staticmethod
    def _in_turn(session: _Session, kind: str) -> Iterator[str]:
        if not session.prompts:
            yield f"law 2: {kind} when no prompt of the session is open"
        elif session.cancel_answered >= 0:
            if all(prompt.sent < session.cancel_answered for prompt in session.prompts):
                yield f"law 6: {kind} after the cancelled turn's response"
            else:
                session.cancel_answered = -1

    def _child(self, parent: _Session, update: Frame) -> Iterator[str]:
        """Digest 93: a child is its parent's, as long as the parent is not loaded anew."""
        name = update["sessionId"]
        child = self._known(name)
        if child is None:
            child = parent.children[name] = _Session(parent=parent)
        elif child.parent is not parent:
            yield f"digest 93: the child {name!r} is spoken of by a session that is not its parent"
        state = update.get("state")
        if isinstance(state, dict):
            child.state = state["state"]
        if child.state == "idle":
            yield from _unended(child, "when its session is idle")
            child.end_messages()

    def _permission(self, frame: Frame) -> Iterator[str]:
        params = frame["params"]
        session = self._known(params["sessionId"])
        call_id = params["toolCall"]["toolCallId"]
        call = session.calls.get(call_id) if session is not None else None
        options = {option["optionId"]: option["kind"] for option in params["options"]}
        if len(options) != len(params["options"]):
            yield "digest 73: two permission options have one id"
        for verb in ("allow", "reject"):
            if not any(kind.startswith(verb) for kind in options.values()):
                yield f"digest 73: a permission request offers no way to {verb}"
        if session is None or call is None:
            yield f"law 5: permission asked for tool call {call_id!r}, which was not announced"
            return
        if not session.root.prompts:
            yield "law 2: permission asked when no prompt of the session is open"
        if session.parent is not None and session.state != "requires_action":
            yield f"digest 93: permission asked for a child whose state is {session.state}"
        if call.status in FINAL or (call.status == "in_progress" and not call.delegates):
            yield f"law 5: permission asked for tool call {call_id!r}, which is {call.status} already"
        call.asking += 1
        self._questions[id_key(frame["id"])] = _Question(session, call, options)


def _loaded(session: _Session) -> Iterator[str]:
    """Nothing of a history is still under way."""
    session.end_messages()
    yield from _unended(session, "when its session was loaded")


def _unended(session: _Session, when: str) -> Iterator[str]:
    """What of a session and its children is still under way."""
    for call_id, call in session.calls.items():
        if call.status not in FINAL:
            yield f"law 5: tool call {call_id!r} is still {call.status} {when}"
    for name, child in session.children.items():
        if child.state != "idle":
            yield f"digest 93: the child {name!r} is {child.state}, not idle, {when}"


def _modes(result: Frame) -> set[str] | None:
    modes = result.get("modes")
    if not isinstance(modes, dict):
        return None
    return {mode["id"] for mode in modes["availableModes"]}


# ---------------------------------------------------------------- one update


def _tool_call(session: _Session, update: Frame) -> Iterator[str]:
    call_id = update["toolCallId"]
    if call_id in session.calls:
        yield f"law 5: tool call {call_id!r} was announced twice in one session"
    session.calls[call_id] = _Call(update.get("name") or "", update.get("status") or "pending")
    if not session.root.loading:
        session.end_messages()
    yield from _places(update)


def _tool_call_update(session: _Session, update: Frame) -> Iterator[str]:
    call_id, status = update["toolCallId"], update.get("status")
    call = session.calls.get(call_id)
    if call is None:
        yield f"law 5: tool call {call_id!r} was updated but never announced"
        return
    if call.status in FINAL:
        yield f"law 5: tool call {call_id!r} was updated after it was {call.status}"
    if status in ("in_progress", "completed") and not call.delegates:
        if call.asking:
            yield f"law 5: tool call {call_id!r} became {status} before its permission question was answered"
        if call.denied:
            yield f"digest 74: tool call {call_id!r} became {status} although it was not allowed"
    if call.status == "in_progress" and status == "pending":
        yield f"law 5: tool call {call_id!r} went back from in_progress to pending"
    call.status = status or call.status
    yield from _places(update)


def _places(update: Frame) -> Iterator[str]:
    """Digest 71: paths are absolute, lines start at 1."""
    for location in update.get("locations") or ():
        if not location["path"].startswith("/"):
            yield f"digest 71: the location {location['path']!r} is not absolute"
        line = location.get("line")
        if line is not None and line < 1:
            yield f"digest 71: a location is on line {line}; lines start at 1"
    for item in update.get("content") or ():
        if item["type"] == "diff" and not item["path"].startswith("/"):
            yield f"digest 71: the diff's path {item['path']!r} is not absolute"


def _chunk(session: _Session, update: Frame) -> Iterator[str]:
    """Digest 58: an id is one message of one kind, and a message that was left is not taken up again."""
    kind, message = update["sessionUpdate"], update.get("messageId")
    if not message:
        yield f"digest 58: a {kind} without a messageId"
        return
    known = session.messages.setdefault(message, kind)
    if known != kind:
        yield f"digest 58: the message id {message!r} is used for {known} and {kind}"
    elif message in session.ended:
        yield f"digest 58: {kind} goes back to the message {message!r}, which had ended"
    else:
        before = session.current.get(kind)
        if before is not None and before != message:
            session.ended.add(before)
        session.current[kind] = message


def _mode(session: _Session, update: Frame) -> Iterator[str]:
    mode = update["currentModeId"]
    if session.modes is not None and mode not in session.modes:
        yield f"digest 82: the mode {mode!r} is not among the available ones"


_CHECKS: dict[str, Callable[[_Session, Frame], Iterator[str]]] = {
    "tool_call": _tool_call, "tool_call_update": _tool_call_update, "current_mode_update": _mode,
    **dict.fromkeys(CHUNKS, _chunk),
}

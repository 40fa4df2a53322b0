"""The canonical order of the wire: one line-up for all the orders in which a run may lawfully send its lines.

Promised, and kept as it was seen:
- the pieces of a session's answer: texts, thoughts, prompts shown from history, announcements of tool calls;
- what concerns one tool call, in its own order, between the pieces it was seen between;
- each other kind of update of a session (plan, title, usage, ...), likewise;
- a prompt's response behind everything its turn sent, and a load's behind the history it showed;
- what one process of the agent sent before what the next one did.

Not promised, and put in order here: how overlapping tool calls, children and sessions mix. Each prompt's lines
stand before its response, responses in the order of their requests, and between two pieces of an answer the
tool calls follow one another as they were announced. A call whose id begins with the id of another call and
`/` or `[` belongs to a child of that one: children stand in the order of their paths, before the call's end. Children
that the client is told of as of sessions stand there too (`replay.order_children`).

Live output is timing made visible: text shown by a tool call that has not ended is left out, and so is an
update that then says nothing new. A call's diffs, state and result stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from replay.conversation import CANCEL_REQUEST, PROMPT, UPDATE, Conversation, Frame, Request, as_object, key
from replay.order_children import Address, Family, spoken_of_early, subject

PIECES = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
TURNS = frozenset({PROMPT, "session/load", "session/resume"})
"""Requests whose response stands behind all the updates that belong to them."""
MODES = {"current_mode_update": "session/set_mode", "config_option_update": "session/set_config_option"}
"""Updates that a request of the client's may bring about in the middle of an answer, and which request."""
FINAL = frozenset({"completed", "failed"})

_Rank = tuple[int, int, int, str, int]
"""Class, announcement above it, part of that call's time, child, the child's own order."""
_RUNNING, _CHILDREN, _ENDED, _LATE = range(4)


RESTART = "restart"
"""The only member of the line that stands between two processes: how the first one ended."""


def canonical(conversation: Conversation, addresses: Mapping[str, Address] | None = None) -> list[Frame]:
    """The agent's lines in canonical order, live output left out, and a line between two processes. `addresses` are
    those of the children whose logs are known, by session.
    """
    known = addresses or {}
    first, *others = conversation.processes()
    frames = _of_process(first, known)
    for restart, process in zip(conversation.restarts, others, strict=True):
        frames += [Frame(restart.at, {RESTART: restart.how}, None), *_of_process(process, known)]
    return frames


def _of_process(conversation: Conversation, addresses: Mapping[str, Address]) -> list[Frame]:
    family = Family(conversation, addresses)
    pending: dict[str, list[Frame]] = {}
    segments: dict[int, list[Frame]] = {}
    responses: dict[int, Frame] = {}
    rest: list[Frame] = []
    anchors = _mode_anchors(conversation)
    for frame in without_live_output(conversation.frames):
        answers = frame.answers
        if answers is not None:
            responses[answers.number] = frame
            if answers.session is not None and _ends_turn(frame, answers):
                segments[answers.number] = pending.pop(answers.session, [])
        elif frame.at in anchors:
            segments.setdefault(anchors[frame.at].number, []).append(frame)
        elif frame.session is not None:
            pending.setdefault(family.root(frame.session), []).append(frame)
        else:
            rest.append(frame)
    lined_up: list[Frame] = []
    for request in conversation.requests:
        lined_up += _with_children(segments.get(request.number, []), request.session, family)
        if request.number in responses:
            lined_up.append(responses[request.number])
    named = conversation.sessions()
    for session in [*named, *sorted(set(pending) - set(named))]:
        lined_up += _with_children(pending.get(session, []), session, family)
    return [*lined_up, *rest]


def _with_children(frames: Sequence[Frame], session: str | None, family: Family) -> list[Frame]:
    def sort(own: Sequence[Frame]) -> list[Frame]:
        return line_up(own, family)

    return sort(frames) if session is None else family.line_up(frames, session, sort)


def _ends_turn(frame: Frame, answers: Request) -> bool:
    """Whether what its session sent belongs to this response. A load that was refused has shown nothing."""
    return answers.method == PROMPT or (answers.method in TURNS and "result" in frame.value)


def _mode_anchors(conversation: Conversation) -> dict[int, Request]:
    """Which request brought about an update of mode or options: the oldest one that is open when it comes, of either
    kind, for mode and options are kept in step; else the oldest answered one of its own kind that has none yet.
    """
    anchors: dict[int, Request] = {}
    owed: dict[tuple[str, str | None], list[Request]] = {}
    answered = {frame.answers.number: frame.at for frame in conversation.frames if frame.answers is not None}
    setters = [request for request in conversation.requests if request.method in MODES.values()]
    for frame in conversation.frames:
        method = None if frame.history else MODES.get(_kind(frame))
        answers = frame.answers
        if method is not None:
            requests = owed.get((method, frame.session), [])
            cause = _open_at(frame, setters, answered) or (requests.pop(0) if requests else None)
            if cause is not None:
                anchors[frame.at] = cause
        elif answers is not None and answers in setters and answers not in anchors.values():
            owed.setdefault((answers.method, answers.session), []).append(answers)
    return anchors


def _open_at(frame: Frame, requests: Sequence[Request], answered: Mapping[int, int]) -> Request | None:
    """The oldest of the requests, in the frame's session, that was sent before it and answered after it."""
    return next((request for request in requests if request.session == frame.session and request.at < frame.at
                 and answered.get(request.number, frame.at) > frame.at), None)  # fmt: skip


# ---------------------------------------------------------------- one prompt


def line_up(frames: Sequence[Frame], family: Family) -> list[Frame]:
    """One prompt's lines of one session in canonical order."""
    ranks = _Ranks(frames, family)
    gap = 0
    placed: list[tuple[int, _Rank, Frame]] = []
    for frame in frames:
        if ranks.is_piece(frame):
            gap += 1
            placed.append((gap, (0, 0, 0, "", 0), frame))
        else:
            placed.append((gap, ranks.rank(frame), frame))
    placed.sort(key=lambda entry: entry[:2])  # stable: a stream keeps its own order
    return [frame for _, _, frame in placed]


class _Ranks:
    """Where a line that is no piece of the answer stands among its neighbours."""

    def __init__(self, frames: Sequence[Frame], family: Family) -> None:
        self._family = family
        self._top: dict[str, int] = {}
        self._calls: dict[str, tuple[str | None, int]] = {}
        self._ended: set[str] = set()
        self._requests: dict[str, _Rank] = {}
        announced = [frame.call for frame in frames if _kind(frame) == "tool_call" and frame.call is not None]
        for call in announced:
            if self._owner(call) is None:
                self._top.setdefault(call, len(self._top) + 1)
        for call in dict.fromkeys(announced):
            self._place(call)
        self._announced: set[str] = set()

    def is_piece(self, frame: Frame) -> bool:
        """Whether the line is part of the answer itself; an announcement is only once."""
        kind = _kind(frame)
        if kind in PIECES:
            return True
        call = frame.call
        if kind != "tool_call" or call not in self._top or call in self._announced:
            return False
        self._announced.add(call)
        return True

    def rank(self, frame: Frame) -> _Rank:
        rank = self._rank(frame)
        if frame.is_request:
            self._requests[key(frame.value["id"])] = rank
        return rank

    def _rank(self, frame: Frame) -> _Rank:
        if frame.call is not None:
            return self._of_call(frame, frame.call)
        if (child := subject(frame)) is not None:
            address = self._family.address(child)
            return (2, self._top.get(address.call, len(self._top)), _CHILDREN, "", address.place)
        if frame.method == CANCEL_REQUEST:
            return self._requests.get(key(frame.params.get("requestId")), (4, 0, 0, "", 0))
        if frame.method == UPDATE:
            return (1, 0, 0, _kind(frame), 0) if _kind(frame) != "plan" else (3, 0, 0, "", 0)
        return (4, 0, 0, _subject(frame), 0)

    def _of_call(self, frame: Frame, call: str) -> _Rank:
        """By the announcement it stands below, then by the child, then by the child's own order.

        What a call's child does stands before the call's end, unless it came behind it.
        """
        owner, order = self._calls.get(call) or self._place(call)
        top = self._above(call) or call
        if owner is not None:
            return (2, self._top.get(top, 0), _LATE if top in self._ended else _CHILDREN, owner, order)
        if frame.update.get("status") in FINAL:
            self._ended.add(call)
        part = _ENDED if call in self._ended else _RUNNING
        return (2, self._top.get(call, 0), part, "" if call in self._top else call, 0)

    def _place(self, call: str) -> tuple[str | None, int]:
        owner = self._owner(call)
        siblings = sum(1 for other, _ in self._calls.values() if other == owner)
        self._calls[call] = (owner, siblings + 1)
        return self._calls[call]

    def _above(self, call: str) -> str | None:
        """The announced call that this one stands below."""
        return max((top for top in self._top if _is_below(call, top)), key=len, default=None)

    def _owner(self, call: str) -> str | None:
        """The path of the child that makes this call; None where no child does."""
        return None if self._above(call) is None else call.rpartition("/")[0] or call


def _is_below(call: str, top: str) -> bool:
    return call.startswith(top) and call[len(top) : len(top) + 1] in ("/", "[")


def _kind(frame: Frame) -> str:
    kind = frame.update.get("sessionUpdate", "")
    return kind if isinstance(kind, str) else ""


def _subject(frame: Frame) -> str:
    """What a request is about, so that requests about one file or terminal keep their order."""
    about = frame.params.get("path", frame.params.get("terminalId"))
    return f"{frame.method} {about}" if about is not None else f"{frame.method} {key(_bare(frame.params))}"


def _bare(params: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in sorted(params) if name not in ("sessionId", "_meta")}


# ---------------------------------------------------------------- live output


def without_live_output(frames: Sequence[Frame]) -> Iterator[Frame]:
    """The lines without what a running tool call showed of its output."""
    states: dict[tuple[str | None, str], str] = {}
    for frame in frames:
        update, call = frame.update, frame.call
        if call is None or _kind(frame) not in ("tool_call", "tool_call_update"):
            yield frame
            continue
        where = (frame.session, call)
        before, status = states.get(where), update.get("status")
        if isinstance(status, str):
            states[where] = status
        if _kind(frame) == "tool_call" or status in FINAL or before in FINAL:
            yield frame
            continue
        quiet = _quiet(update)
        said = set(quiet) - {"sessionUpdate", "toolCallId", "_meta"}
        if said - {"status"} or (said and status != before) or not (said or quiet is not update):
            yield msgspec.structs.replace(frame, value=_with_update(frame.value, quiet))


def _quiet(update: dict[str, Any]) -> dict[str, Any]:
    """An update of a running call without the text it shows; itself where it shows none."""
    content = update.get("content")
    if not isinstance(content, list):
        return update
    kept = [item for item in content if as_object(item).get("type") != "content"]
    if len(kept) == len(content):
        return update
    return {name: kept if name == "content" else value for name, value in update.items() if name != "content" or kept}


def _with_update(value: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    return value | {"params": value["params"] | {"update": update}}


# ---------------------------------------------------------------- promises


def broken_promises(conversation: Conversation) -> list[str]:
    """What no run may show, whatever was recorded: a line on the wrong side of the one it depends on.

    A session is spoken of after the response that names it, a call is updated after it was announced, and its
    end comes before the answer of its prompt.
    """
    return [*_sessions_named_late(conversation), *spoken_of_early(conversation), *_calls_out_of_order(conversation)]


def _sessions_named_late(conversation: Conversation) -> Iterator[str]:
    made: dict[str, int] = {}
    for frame in conversation.frames:
        session = as_object(frame.value.get("result")).get("sessionId")
        if frame.answers is not None and isinstance(session, str) and session != frame.answers.session:
            made.setdefault(session, frame.at)
    for frame in conversation.frames:
        if frame.session is not None and frame.at < made.get(frame.session, -1):
            yield f"line {frame.at + 1} speaks of a session before the response that names it"


def _calls_out_of_order(conversation: Conversation) -> Iterator[str]:
    """A load tells of a session's calls from the beginning."""
    announced: dict[tuple[str | None, int, str], Request | None] = {}
    turn_of: dict[tuple[str | None, int], Request] = {}
    early: set[tuple[str | None, int, str]] = set()
    loads: dict[str | None, int] = {}
    for frame in conversation.frames:
        answers = frame.answers
        if answers is not None and answers.method == PROMPT:
            turn_of[answers.session, loads.get(answers.session, 0)] = answers
        loads[frame.session] = frame.loads
        if frame.call is None or frame.method != UPDATE:
            continue
        told = (frame.session, frame.loads)
        where = (*told, frame.call)
        if _kind(frame) == "tool_call":
            if where in early:
                yield f"the tool call {frame.call} was updated before it was announced"
            announced.setdefault(where, turn_of.get(told))
        elif where not in announced:
            early.add(where)
        elif frame.update.get("status") in FINAL and announced[where] is not turn_of.get(told):
            yield f"the tool call {frame.call} ended after the answer of its prompt"

"""Runs of several processes and loads of sessions: their wire, their roots' order and their receipts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from replay import conversation, order
from replay.artefacts import Restart, WireLine
from replay.compare import differences
from replay.differences import Category
from replay.normalize import normalise
from replay.receipts import joined
from replay.snapshot import Normalised
from tests.unit.replay_kit.kit_wire import (
    MESSAGE,
    ONE,
    OTHER,
    TWO,
    announced,
    answers,
    asks,
    event,
    line,
    log,
    opened,
    permission,
    progress,
    run,
    says,
    shown,
    update,
    user,
)


def canonical(lines: Sequence[WireLine], *restarts: Restart) -> list[str]:
    """The lines in canonical order, each by what it is about."""
    return [_about(frame.value) for frame in order.canonical(conversation.read(lines, restarts))]


def _about(value: Any) -> str:
    told = value.get("params", {}).get("update", {})
    what = told.get("content", told.get("toolCallId", told.get("currentModeId")))
    text = what["text"] if isinstance(what, dict) else what
    return str(text or value.get("restart") or value.get("id"))


def broken(lines: Sequence[WireLine], *restarts: Restart) -> list[str]:
    wire = conversation.read(lines, restarts)
    return [*wire.problems, *order.broken_promises(wire)]


def loads(number: int, *history: WireLine) -> list[WireLine]:
    """A load with the history it shows."""
    return [asks(number, "session/load", sessionId=ONE), *history, answers(number)]


# ---------------------------------------------------------------- processes

KILLED = [*opened(), says(ONE, "before"), announced(ONE, "a"), progress(ONE, "a", status="in_progress")]
SECOND = [*loads(3, announced(ONE, "a"), progress(ONE, "a", status="failed")),
          asks(4, "session/prompt", sessionId=ONE, prompt=[]), says(ONE, "after"), answers(4, stopReason="end_turn")]


def test_what_a_killed_process_sent_stands_before_the_next_ones_lines() -> None:
    restart = Restart(len(KILLED), "kill")
    assert canonical([*KILLED, *SECOND], restart) == ["1", "before", "a", "a", "kill", "a", "a", "3", "after", "4"]
    assert broken([*KILLED, *SECOND], restart) == []


def test_nobody_answers_for_a_process_that_is_gone() -> None:
    late = [*KILLED, answers(2, stopReason="end_turn")]
    assert broken(late) == []
    assert broken(late, Restart(len(KILLED), "kill")) == ["the agent answered a request that was not open: id 2"]


def test_the_agents_requests_are_numbered_on_from_process_to_process() -> None:
    first = [*opened(), announced(ONE, "a"), permission(7, ONE, "a"), line("client", id=7, result={}),
             line("agent", method="$/cancel_request", params={"requestId": 7}), answers(2, stopReason="end_turn")]
    second = [*loads(3), asks(4, "session/prompt", sessionId=ONE, prompt=[]), announced(ONE, "b"),
              permission(7, ONE, "b"), line("agent", method="$/cancel_request", params={"requestId": 7}),
              answers(4, stopReason="end_turn")]
    wire = normalise(_restarted(first, second)).wire
    assert [frame.value["id"] for frame in wire if frame.value.get("method") == "session/request_permission"] == [1, 2]
    assert [frame.value["params"]["requestId"] for frame in wire
            if frame.value.get("method") == "$/cancel_request"] == [1, 2]


def _restarted(*processes: list[WireLine], how: Any = "eof", **parts: Any) -> Any:
    wire = [one for process in processes for one in process]
    at = 0
    restarts = []
    for process in processes[:-1]:
        at += len(process)
        restarts.append(Restart(at, how))
    return msgspec.structs.replace(run(wire, **parts), restarts=tuple(restarts))


def test_a_process_that_ended_in_another_way_or_not_at_all_is_a_difference() -> None:
    def ran(*processes: list[WireLine], how: str = "eof") -> Normalised:
        return normalise(_restarted(*processes, how=how))

    expected = ran(opened(), loads(3))
    assert differences(expected, ran(opened(), loads(3))) == []
    (found,) = differences(expected, ran(opened(), loads(3), how="kill"))
    assert (found.category, found.where, found.what) == (
        Category.BEHAVIOUR, "wire, outside of sessions", "line 2: restart")
    assert differences(expected, ran([*opened(), *loads(3)]))


PARTS = {"config": "", "system": "", "tools": "", "messages": {"count": 1, "head": "", "added": []}}


@pytest.mark.parametrize("roots", [("0", "0"), ("1", "0")])
def test_roots_are_filed_by_the_process_they_were_first_prompted_in(roots: tuple[str, str]) -> None:
    """Each process counts its roots anew, and a replay binds those of the first process first."""
    def rooted(session: str, root: str, message: str) -> Any:
        sent = event("request/sent", turn=1, step=1, purpose="main", ordinal=0, messageId=session, parts=PARTS,
                     root=int(root))
        return log(session, [user("hello", message), sent | {"ignorable": True}])

    first = [*opened(ONE), answers(2, stopReason="end_turn")]
    second = opened(TWO, number=3)
    run_ = _restarted(first, second, logs=[rooted(TWO, roots[1], OTHER), rooted(ONE, roots[0], MESSAGE)])
    assert [one.name for one in normalise(run_).logs] == ["{{session:1}}", "{{session:2}}"]


# ---------------------------------------------------------------- loads


def test_a_loads_history_is_shown_before_its_response_in_the_order_of_the_log() -> None:
    history = [update(ONE, "user_message_chunk", content={"type": "text", "text": "hello"}, messageId="u"),
               announced(ONE, "a"), announced(ONE, "b"), progress(ONE, "b", status="completed", content=shown("b")),
               progress(ONE, "a", status="completed", content=shown("a")), says(ONE, "done")]
    assert canonical([*opened(), answers(2, stopReason="end_turn"), *loads(3, *history)]) == [
        "1", "2", "hello", "a", "b", "[{'type': 'content', 'content': {'type': 'text', 'text': 'a'}}]",
        "[{'type': 'content', 'content': {'type': 'text', 'text': 'b'}}]", "done", "3"]


def test_what_a_running_prompt_sends_is_its_own_though_a_load_is_refused_meanwhile() -> None:
    lines = [*opened(), announced(ONE, "a"), asks(3, "session/load", sessionId=ONE),
             line("agent", id=3, error={"code": -32600, "message": "it runs"}),
             progress(ONE, "a", status="completed"), answers(2, stopReason="cancelled")]
    assert canonical(lines) == ["1", "a", "a", "2", "3"]
    assert broken(lines) == []


def test_a_call_may_be_told_of_again_by_every_load_and_by_nothing_else() -> None:
    turn = [announced(ONE, "a"), progress(ONE, "a", status="completed")]
    first = [*opened(), *turn, answers(2, stopReason="end_turn")]
    assert broken([*first, *loads(3, *turn), *loads(4, *turn)]) == []
    assert broken([*first, *loads(3, turn[1])]) == []  # the log begins behind the announcement: the laws tell
    assert broken([*first, turn[1]]) == ["the tool call a ended after the answer of its prompt"]
    assert broken([*first, *loads(3, *reversed(turn))]) == ["the tool call a was updated before it was announced"]


def test_a_mode_that_a_load_shows_was_not_set_by_the_request_before_it() -> None:
    mode = update(ONE, "current_mode_update", currentModeId="ask")
    lines = [*opened(), answers(2, stopReason="end_turn"), asks(3, "session/set_mode", sessionId=ONE), answers(3)]
    assert canonical([*lines, *loads(4, mode, says(ONE, "done"))]) == ["1", "2", "3", "ask", "done", "4"]
    assert canonical([*lines, mode]) == ["1", "2", "ask", "3"]


def test_a_fork_is_made_by_the_response_that_names_it() -> None:
    fork = [asks(3, "session/fork", sessionId=ONE), answers(3, sessionId=TWO)]
    early = update(TWO, "session_info_update", title="t")
    assert broken([*opened(), answers(2, stopReason="end_turn"), *fork, early]) == []
    assert broken([*opened(), answers(2, stopReason="end_turn"), fork[0], early, fork[1]]) == [
        "line 6 speaks of a session before the response that names it"]


# ---------------------------------------------------------------- receipts


def receipt(used: int, *, over: int = 0, sessions: Sequence[str] = ("s",), recorded: int = 3) -> bytes:
    calls = {"main": {"recorded": recorded, "used": used, "left": recorded - used, "over": over}}
    lane = {"lane": "root", "file": "session.jsonl", "address": [], "sessions": list(sessions), "calls": calls}
    return json.dumps({"format": 1, "directory": "d", "tools": "live", "sessions": "once", "lanes": [lane],
                       "unbound": [] if sessions else ["root"], "unaddressed": []}).encode()


def test_the_receipts_of_several_processes_are_one() -> None:
    data = joined([receipt(0, sessions=()), receipt(2), receipt(1, over=1, sessions=("s", "t"))])
    assert data is not None
    whole = json.loads(data)
    assert whole["lanes"][0]["calls"] == {"main": {"recorded": 3, "used": 3, "left": 0, "over": 1}}
    assert whole["lanes"][0]["sessions"] == ["s", "t"]
    assert (whole["unbound"], "partial" in whole) == ([], False)


def test_of_one_process_the_receipt_is_as_it_wrote_it() -> None:
    assert joined([receipt(2)]) == receipt(2)
    assert joined([None]) is None
    assert joined([None, None]) is None
    assert joined([b"junk", receipt(1)]) == b"junk"


def test_what_a_killed_process_used_of_a_recording_is_not_known() -> None:
    def told(receipts: Sequence[bytes | None]) -> list[str]:
        of = normalise(run(opened(), receipt=joined(receipts)))
        return [one.what for one in differences(of, of)]

    assert told([receipt(1), receipt(1)]) == ["root made 2 of its 3 recorded calls"]
    assert told([None, receipt(1)]) == []
    assert told([None, receipt(1, over=2)]) == ["root made 2 calls beyond the 3 recorded"]

"""What a client sends without waiting for answers belongs to the opening it was sent after, and to no later one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.client import AgentProcess
from tests.wire.moves import line, request, text_prompt
from tests.wire.recordings import Entry, hang, says
from tests.wire.test_stored_sessions import NOT_FOUND, Desk, desk

__all__ = ["desk"]

Json = dict[str, Any]

CANCELLED, ENDED = {"stopReason": "cancelled"}, {"stopReason": "end_turn"}


def reopened(desk: Desk, answer: Entry | None = None) -> tuple[AgentProcess, str]:
    """A new process beside a session that has one turn; its next model call comes to no end, or gives an answer."""
    desk.record(says("one"), answer or hang())
    first = desk.start()
    session = first.new_session()
    first.prompt(session, "1")
    first.close()
    second = desk.start(unlawful="the judges know one load of a session at a time")
    second.call("session/list", {})  # from here on nothing is imported any more
    return second, session


def at_once(desk: Desk, running: AgentProcess, session: str, *deeds: str) -> None:
    """Send everything in one piece; a request's id is its deed's name and its place."""
    frames = [frame(desk, deed, f"{deed}{at}", session) for at, deed in enumerate(deeds)]
    running.send_bytes(b"".join(map(line, frames)))


def frame(desk: Desk, deed: str, name: str, session: str) -> Json:
    match deed:
        case "cancel":
            return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        case "prompt":
            return request(name, "session/prompt", sessionId=session, prompt=text_prompt(name))
        case "set_mode":
            return request(name, "session/set_mode", sessionId=session, modeId="read-only")
        case "load" | "resume":
            return request(name, f"session/{deed}", **desk.params(session))
        case _:
            return request(name, f"session/{deed}", sessionId=session)


@pytest.mark.parametrize("opening", ["load", "resume"])
def test_a_close_cancels_the_prompts_before_it_though_the_session_is_opened_again_behind_it(
    desk: Desk, opening: str,
) -> None:
    running, session = reopened(desk)
    at_once(desk, running, session, opening, "prompt", "prompt", "close", opening)
    for prompt in ("prompt1", "prompt2"):
        assert running.response(prompt)["result"] == CANCELLED
    assert running.response("close3")["result"] == {}
    assert "modes" in running.response(f"{opening}4")["result"]
    answered = [entry.frame["id"] for entry in running.transcript
                if entry.sender == "agent" and isinstance(entry.frame, dict) and "result" in entry.frame]
    assert answered[-5:] == [f"{opening}0", "prompt1", "prompt2", "close3", f"{opening}4"]
    desk.judge(history=False)


def test_a_prompt_after_the_second_opening_runs_there(desk: Desk) -> None:
    running, session = reopened(desk, says("two"))
    at_once(desk, running, session, "load", "close", "load", "prompt", "cancel", "prompt")
    assert running.response("prompt3")["result"] == CANCELLED
    assert running.response("prompt5")["result"] == ENDED
    desk.judge(history=False)


def test_a_cancel_reaches_every_prompt_before_it_whichever_opening_it_waits_for(desk: Desk) -> None:
    running, session = reopened(desk)
    at_once(desk, running, session, "load", "prompt", "load", "prompt", "cancel")
    for prompt in ("prompt1", "prompt3"):
        assert running.response(prompt)["result"] == CANCELLED
    assert "error" in running.response("load2")
    desk.judge(history=False)


def test_a_setting_is_made_in_the_session_it_was_sent_to_whatever_is_cancelled(desk: Desk) -> None:
    running, session = reopened(desk)
    at_once(desk, running, session, "load", "set_mode", "cancel", "close", "load")
    assert running.response("set_mode1")["result"] == {}
    assert running.response("load4")["result"]["modes"]["currentModeId"] == "read-only"
    desk.judge(history=False)


@pytest.mark.parametrize("end", ["close", "delete"])
def test_nothing_can_be_asked_of_a_session_that_is_ended_when_it_is_open(desk: Desk, end: str) -> None:
    running, session = reopened(desk)
    at_once(desk, running, session, "load", end, "prompt", "set_mode")
    assert running.response(f"{end}1")["result"] == {}
    for late in ("prompt2", "set_mode3"):
        assert running.response(late)["error"]["code"] == NOT_FOUND
    desk.judge(history=False)


def test_a_prompt_for_an_opening_that_failed_does_not_go_to_a_later_one(desk: Desk) -> None:
    running, session = reopened(desk)
    elsewhere = request("elsewhere", "session/load", **desk.params(session, cwd=str(desk.directory)))
    early = request("early", "session/prompt", sessionId=session, prompt=text_prompt("x"))
    running.send_bytes(b"".join(map(line, (elsewhere, early, request("load", "session/load", **desk.params(session))))))
    assert running.response("elsewhere")["error"]["code"] == -32602
    assert running.response("early")["error"]["code"] == NOT_FOUND
    assert "modes" in running.response("load")["result"]
    desk.judge(history=False)

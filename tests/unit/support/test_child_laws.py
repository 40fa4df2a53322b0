"""The laws of children that a client is told of, each broken once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.history_laws import check_history
from tests.support.laws import Entry, check_laws
from tests.support.schema import Frame
from tests.unit.support.test_transcript_laws import OPTIONS, agent, answer, client, new, prompt, stopped, update

HELLO = [client(id=1, method="initialize", params={"protocolVersion": 1, "clientCapabilities": {"subagents": {}}}),
         agent(id=1, result={"protocolVersion": 1})]


def child(state: str | None, name: str = "kid", parent: str = "s1", **members: Any) -> Entry:
    told = {} if state is None else {"state": {"state": state}}
    return update("subagent_update", parent, sessionId=name, **told, **members)


def said(text: str = "hi", message: str = "m", session: str = "kid", kind: str = "agent") -> Entry:
    return update(f"{kind}_message_chunk", session, messageId=message, content={"type": "text", "text": text})


def call(status: str, session: str = "kid") -> Entry:
    if status == "pending":
        return update("tool_call", session, toolCallId="c", title="Do", name="do", status="pending")
    return update("tool_call_update", session, toolCallId="c", status=status)


def question(request: int = 0) -> Entry:
    return agent(id=request, method="session/request_permission",
                 params={"sessionId": "kid", "toolCall": {"toolCallId": "c"}, "options": OPTIONS})


ASKED = [child("requires_action"), question(), answer("y"), child("running")]
LIVE = [child("running", title="Kid"), said(), call("pending"), *ASKED, call("in_progress"),
        child("running", "inner", "kid"), said(session="inner"), child("idle", "inner", "kid"), call("completed"),
        child("idle")]
LOAD = client(id=8, method="session/load", params={"sessionId": "s1", "cwd": "/w", "mcpServers": []})
LOADED = agent(id=8, result={})
TOLD = [child(None, title="Kid"), said(), call("pending"), call("completed"), child("idle")]


def violations(*lines: Entry) -> list[str]:
    return check_laws([*HELLO, *new(2), prompt(3), *lines, stopped(3)], unstable=True)


def test_a_child_that_is_announced_followed_and_ended_is_lawful() -> None:
    assert violations(*LIVE) == []
    assert check_laws([*HELLO, *new(2), prompt(3), *LIVE, stopped(3), LOAD, *TOLD, LOADED], unstable=True) == []


def test_what_a_client_asks_of_a_child_changes_nothing() -> None:
    load = client(id=9, method="session/load", params={"sessionId": "kid", "cwd": "/w", "mcpServers": []})
    refused = [agent(id=number, error={"code": -32002, "message": "no"}) for number in (7, 9)]
    assert violations(*LIVE[:2], prompt(7, "kid"), load, *refused, *LIVE[2:]) == []


@pytest.mark.parametrize(("law", "lines"), [
    ("before the response that names it", [said(), *LIVE]),
    ("was not told of", [agent(id=5, method="fs/read_text_file", params={"sessionId": "kid", "path": "/a"}),
                         client(id=5, result={"content": ""})]),
    ("whose state is running", [child("running"), call("pending"), question(), answer("y"), call("completed"),
                                child("idle")]),
    ("'c' is still pending when its session is idle", [child("running"), call("pending"), child("idle")]),
    ("'inner' is running, not idle, when its session is idle", [
        child("running"), child("running", "inner", "kid"), child("idle")]),
    ("'kid' is running, not idle, when its turn's response comes", [child("running")]),
    ("which is idle", [*LIVE, said("more")]),
    ("not its parent", [child("running"), child("running", "other"), child("idle", parent="other"), child("idle"),
                        child("idle", "other")]),
])
def test_each_broken_law_is_named(law: str, lines: list[Entry]) -> None:
    found = violations(*lines)
    assert any(law in problem for problem in found), found


def test_a_load_leaves_no_child_at_work_and_a_child_speaks_within_its_roots_turns() -> None:
    begun = [*HELLO, *new(2), prompt(3), *LIVE, stopped(3)]
    (problem,) = check_laws([*begun, LOAD, *TOLD[:-1], LOADED], unstable=True)
    assert "'kid' is None, not idle, when its session was loaded" in problem
    late = check_laws([*begun, child("running")], unstable=True)
    assert any("subagent_update when no prompt of the session is open" in problem for problem in late)


# ---------------------------------------------------------------- what is shown, and what is stored


def rows(*events: Frame) -> str:
    return "".join(json.dumps({"seq": seq, "time": 1, **event} if seq >= 0 else event) + "\n"
                   for seq, event in enumerate(events, -1))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    header: Frame = {"type": "session", "version": 0, "id": "s1", "createdAt": 1, "cwd": "/w", "delegationDepth": 0}
    kid = header | {"id": "kid", "createdAt": 2, "parentSession": "s1", "origin": "subagent", "delegationDepth": 1}
    user = {"type": "user/message", "surfaceOp": "append", "data": {
        "content": [{"type": "text", "text": "Do it."}], "source": {"kind": "user"}, "role": "user", "id": "u"}}
    text = {"type": "assistant/message", "surfaceOp": "append", "data": {"turn": 1, "step": 1, "message": {
        "role": "assistant", "content": [{"type": "text", "text": "hi"}], "source": {"kind": "model"}, "id": "m"}}}
    (tmp_path / "session.jsonl").write_text(rows(header))
    (tmp_path / "session.1.jsonl").write_text(rows(kid, {"type": "turn/start", "data": {"turn": 1}}, user, text))
    return tmp_path


PROMPT = said("Do it.", "u", kind="user")
SEEN = [child("running", title="Kid"), PROMPT, said("h"), said("i"), child("idle")]
SHOWN_AGAIN = [LOAD, child(None, title="Kid"), PROMPT, said(), child("idle"), LOADED]


def test_what_is_stored_of_a_child_was_shown_to_those_who_were_told_of_it(store: Path) -> None:
    assert check_history([SEEN], store) == []
    assert check_history([SEEN, SHOWN_AGAIN, SHOWN_AGAIN], store) == []
    assert check_history([[]], store) == [], "a client that knows no children"
    assert check_history([[], SHOWN_AGAIN], store) == []


@pytest.mark.parametrize(("law", "transcripts"), [
    ("message m is stored as 'hi'", [[*SEEN[:3], SEEN[-1]]]),
    ("a child's prompt is shown as []", [[SEEN[0], *SEEN[2:]]]),
    ("message m is", [SEEN, [*SHOWN_AGAIN[:3], *SHOWN_AGAIN[4:]]]),
    ("is announced as", [SEEN, [LOAD, child(None, title="Other"), *SHOWN_AGAIN[2:]]]),
    ("ended as", [SEEN, [*SHOWN_AGAIN[:4], update("subagent_update", sessionId="kid", state={
        "state": "idle", "stopReason": "cancelled"}), LOADED]]),
])
def test_each_difference_is_named(store: Path, law: str, transcripts: list[list[Entry]]) -> None:
    found = check_history(transcripts, store)
    assert any(law in problem for problem in found), found


def test_a_process_that_was_killed_need_not_have_shown_all_of_a_child(store: Path) -> None:
    assert check_history([SEEN[:1], SHOWN_AGAIN], store) != []
    assert check_history([SEEN[:1], SHOWN_AGAIN], store, killed={0}) == []

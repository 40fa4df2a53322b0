"""Every transcript law, broken once: a checker that finds nothing is worth nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.laws import Entry, check_laws
from tests.support.schema import Frame, Sender

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
OPTIONS = [{"optionId": "y", "name": "Allow", "kind": "allow_once"},
           {"optionId": "n", "name": "Reject", "kind": "reject_once"}]


def entry(sender: Sender, frame: Any, at: float = 0.0) -> Entry:
    return Entry(sender, frame, json.dumps(frame).encode() + b"\n", at)


def client(at: float = 0.0, **members: Any) -> Entry:
    return entry("client", {"jsonrpc": "2.0", **members}, at)


def agent(at: float = 0.0, **members: Any) -> Entry:
    return entry("agent", {"jsonrpc": "2.0", **members}, at)


def update(variant: str, session: str = "s1", /, **members: Any) -> Entry:
    return agent(method="session/update", params={
        "sessionId": session, "update": {"sessionUpdate": variant, **members}})


def chunk(kind: str, message: str | None, session: str = "s1") -> Entry:
    members: Frame = {"content": {"type": "text", "text": "hi"}}
    return update(f"{kind}_chunk", session, **members, **({} if message is None else {"messageId": message}))


def prompt(request: Any, session: str = "s1") -> Entry:
    return client(id=request, method="session/prompt",
                  params={"sessionId": session, "prompt": [{"type": "text", "text": "go"}]})


def stopped(request: Any, reason: str = "end_turn", at: float = 0.0) -> Entry:
    return agent(at, id=request, result={"stopReason": reason})


def new(request: Any, session: str = "s1") -> list[Entry]:
    return [client(id=request, method="session/new", params={"cwd": "/w", "mcpServers": []}),
            agent(id=request, result={"sessionId": session, "modes": MODES})]


def ask(call: str = "c1", request: int = 0, **tool_call: Any) -> Entry:
    return agent(id=request, method="session/request_permission",
                 params={"sessionId": "s1", "toolCall": {"toolCallId": call, **tool_call}, "options": OPTIONS})


def answer(option: str, request: int = 0) -> Entry:
    return client(id=request, result={"outcome": {"outcome": "selected", "optionId": option}})


INITIALIZE = client(id=1, method="initialize", params={"protocolVersion": 1})
INITIALIZED = agent(id=1, result={"protocolVersion": 1, "agentInfo": {"name": "a", "version": "1"}})
ANNOUNCE = update("tool_call", toolCallId="c1", title="read", name="read", kind="read", status="pending",
                  locations=[{"path": "/w/a", "line": 1}])
RUNNING = update("tool_call_update", toolCallId="c1", status="in_progress")
DONE = update("tool_call_update", toolCallId="c1", status="completed", content=[
    {"type": "diff", "path": "/w/a", "newText": "x"},
    {"type": "content", "content": {"type": "text", "text": "x"}}])
FAILED = update("tool_call_update", toolCallId="c1", status="failed")
CANCEL = client(method="session/cancel", params={"sessionId": "s1"})
START = [INITIALIZE, INITIALIZED, *new(2)]
M1 = chunk("agent_message", "m1")
TURN = [prompt(3), chunk("agent_thought", "m1-thought"), M1, M1, ANNOUNCE, ask(), answer("y"), RUNNING, DONE,
        chunk("agent_message", "m2"), update("usage_update", used=1, size=2), stopped(3)]
GOOD = [*START, *TURN]


def violations(*entries: Entry, finished: bool = True) -> list[str]:
    return check_laws(entries, finished=finished)


def test_a_lawful_transcript_has_no_violation() -> None:
    assert violations(*GOOD) == []


def test_ids_of_every_type_are_told_apart_and_may_be_used_again_once_answered() -> None:
    assert violations(*START, prompt(3), prompt("3"), stopped("3"), stopped(3), prompt(3), stopped(3)) == []
    assert violations(*START, prompt(None), stopped(None)) == []


def test_malformed_lines_are_answered_once_each() -> None:
    no = agent(id=None, error={"code": -32700, "message": "no"})
    bad = Entry("client", None, b"{bad\n")
    batch = entry("client", [1])
    assert violations(bad, no, batch, no, entry("client", {"jsonrpc": "2.0", "id": 4}), no) == []
    echoed = agent(id=4, error={"code": 1, "message": ""})
    assert violations(entry("client", {"id": 4, "method": "x"}), echoed) == []
    assert violations(Entry("client", None, b" \r\n"), Entry("client", None, b"\n")) == []
    assert violations(bad) == ["law 2: 1 malformed line(s) got no error"]
    assert "law 2: a response to null" in violations(bad, no, no)[0]


def test_a_loaded_session_may_be_told_its_history_outside_a_turn() -> None:
    load = client(id=2, method="session/load", params={"sessionId": "s1", "cwd": "/w", "mcpServers": []})
    history = [chunk("user_message", "u"), M1, ANNOUNCE, DONE, M1]
    assert violations(INITIALIZE, INITIALIZED, load, *history, agent(id=2, result={})) == []
    assert violations(INITIALIZE, INITIALIZED, load, agent(id=2, result={}), *history)[0].startswith("law 2")


def test_a_history_leaves_nothing_under_way() -> None:
    load = client(id=2, method="session/load", params={"sessionId": "s1", "cwd": "/w", "mcpServers": []})
    loaded = agent(id=2, result={})
    assert violations(INITIALIZE, INITIALIZED, load, ANNOUNCE, loaded)[0].startswith("law 5")
    told = violations(INITIALIZE, INITIALIZED, load, M1, loaded, prompt(3), M1, stopped(3))
    assert told[0].startswith("digest 58")


def test_a_load_that_is_refused_leaves_a_running_session_as_it_is() -> None:
    load = client(id=4, method="session/load", params={"sessionId": "s1", "cwd": "/w", "mcpServers": []})
    refused = agent(id=4, error={"code": -32600, "message": "it runs"})
    assert violations(*START, prompt(3), ANNOUNCE, load, RUNNING, refused, DONE, stopped(3)) == []
    assert violations(*START, prompt(3), ANNOUNCE, load, refused, stopped(3))[0].startswith("law 5")


def test_queued_prompts_that_are_cancelled_first_own_no_tool_calls() -> None:
    assert violations(*START, prompt(3), prompt(4), ANNOUNCE, CANCEL, stopped(4, "cancelled"), FAILED,
                      stopped(3, "cancelled")) == []


def test_a_prompt_after_a_cancelled_turn_is_a_turn_of_its_own() -> None:
    assert violations(*START, prompt(3), CANCEL, stopped(3, "cancelled"), prompt(4), chunk("agent_message", "m"),
                      stopped(4)) == []


def test_a_running_delegation_may_ask_for_its_child() -> None:
    announced = update("tool_call", toolCallId="c1", title="child", name="subagent", status="in_progress")
    assert violations(*START, prompt(3), announced, ask(), answer("n"), DONE, stopped(3)) == []


def test_an_agent_that_was_killed_owes_no_answer() -> None:
    assert violations(*START, prompt(3), finished=False) == []


BROKEN: dict[str, tuple[str, list[Entry]]] = {
    "text on stdout": ("law 1", [*GOOD, Entry("agent", None, b"hello\n")]),
    "a number on stdout": ("law 1", [*GOOD, entry("agent", 4)]),
    "no version": ("law 1", [*GOOD, entry("agent", {"method": "_x"})]),
    "no newline": ("law 1", [*START, Entry("agent", {"jsonrpc": "2.0", "method": "_x"}, b'{"jsonrpc":"2.0"}')]),
    "an invented update": ("schema", [*START, prompt(3), update("agent_joke"), stopped(3)]),
    "an answer missing": ("law 2", [*START, prompt(3)]),
    "an answer twice": ("law 2", [*GOOD, stopped(3)]),
    "an id of another type": ("law 2", [*START, prompt(3), stopped("3")]),
    "an answer to nobody": ("law 2", [*START, stopped(9)]),
    "an answer to a notification": ("law 2", [*START, CANCEL, agent(id=None, error={"code": 1, "message": ""})]),
    "an agent's id used again": (
        "law 2", [*START, prompt(3), ANNOUNCE, ask(), answer("y"), ask(), answer("y"), DONE, stopped(3)]),
    "an update before the session is named": (
        "law 2", [INITIALIZE, INITIALIZED, new(2)[0], update("usage_update", used=1, size=1), new(2)[1]]),
    "an update of a session nobody made": ("law 2", [*START, update("usage_update", "s2", used=1, size=1)]),
    "an update of a closed session": (
        "law 2", [*START, client(id=3, method="session/close", params={"sessionId": "s1"}), agent(id=3, result={}),
                  update("usage_update", used=1, size=1)]),
    "a chunk before the prompt": ("law 2", [*START, chunk("agent_message", "m"), *TURN[:1], stopped(3)]),
    "a chunk after the response": ("law 2", [*GOOD, chunk("agent_message", "m2")]),
    "a plan after the response": ("law 2", [*GOOD, update("plan", entries=[])]),
    "a permission outside a turn": ("law 2", [*START, prompt(3), ANNOUNCE, DONE, stopped(3), ask(), answer("n")]),
    "a call updated but not announced": ("law 5", [*START, prompt(3), DONE, stopped(3)]),
    "a call announced twice": ("law 5", [*START, prompt(3), ANNOUNCE, ANNOUNCE, DONE, stopped(3)]),
    "an id used again in a later turn": ("law 5", [*GOOD, prompt(4), ANNOUNCE, DONE, stopped(4)]),
    "no final status": ("law 5", [*START, prompt(3), ANNOUNCE, RUNNING, stopped(3)]),
    "no final status in a failed turn": (
        "law 5", [*START, prompt(3), ANNOUNCE, agent(id=3, error={"code": -32603, "message": ""})]),
    "two final statuses": ("law 5", [*START, prompt(3), ANNOUNCE, DONE, FAILED, stopped(3)]),
    "output after the final status": (
        "law 5", [*START, prompt(3), ANNOUNCE, DONE, update("tool_call_update", toolCallId="c1", title="x"),
                  stopped(3)]),
    "back to pending": (
        "law 5", [*START, prompt(3), ANNOUNCE, RUNNING,
                  update("tool_call_update", toolCallId="c1", status="pending"), DONE, stopped(3)]),
    "permission for a call nobody knows": ("law 5", [*START, prompt(3), ask("c9"), answer("n"), stopped(3)]),
    "permission while it runs": (
        "law 5", [*START, prompt(3), ANNOUNCE, RUNNING, ask(), answer("y"), DONE, stopped(3)]),
    "permission after it ran": ("law 5", [*START, prompt(3), ANNOUNCE, DONE, ask(), answer("y"), stopped(3)]),
    "running before the answer": (
        "law 5", [*START, prompt(3), ANNOUNCE, ask(), RUNNING, answer("y"), DONE, stopped(3)]),
    "running though refused": ("digest 74", [*START, prompt(3), ANNOUNCE, ask(), answer("n"), DONE, stopped(3)]),
    "running though the answer was an error": (
        "digest 74", [*START, prompt(3), ANNOUNCE, ask(), client(id=0, error={"code": 1, "message": ""}), RUNNING,
                      DONE, stopped(3)]),
    "running though the option is unknown": (
        "digest 74", [*START, prompt(3), ANNOUNCE, ask(), answer("maybe"), DONE, stopped(3)]),
    "a chunk after cancelled": (
        "law 6", [*START, prompt(3), prompt(4), CANCEL, stopped(3, "cancelled"), chunk("agent_message", "m"),
                  stopped(4, "cancelled")]),
    "cancelled as an error": (
        "law 6", [*START, prompt(3), CANCEL, agent(id=3, error={"code": -32800, "message": ""})]),
    "cancelled too late": (
        "law 6", [*START, prompt(3), CANCEL._replace(at=1.0), stopped(3, "cancelled", at=9.0)]),
    "a stop reason of another protocol": ("schema", [*START, prompt(3), stopped(3, "done")]),
    "a session id given out twice": ("digest 32", [*START, *new(3)]),
    "a message without an id": ("digest 58", [*START, prompt(3), chunk("agent_message", None), stopped(3)]),
    "one id for thought and text": (
        "digest 58", [*START, prompt(3), chunk("agent_thought", "m"), chunk("agent_message", "m"), stopped(3)]),
    "one id for two tool rounds": (
        "digest 58", [*START, prompt(3), chunk("agent_message", "m"), ANNOUNCE, DONE, chunk("agent_message", "m"),
                      stopped(3)]),
    "an old id comes back": (
        "digest 58", [*START, prompt(3), chunk("agent_message", "a"), chunk("agent_message", "b"),
                      chunk("agent_message", "a"), stopped(3)]),
    "one id for two turns": (
        "digest 58", [*START, prompt(3), chunk("agent_message", "a"), stopped(3), prompt(4),
                      chunk("agent_message", "a"), stopped(4)]),
    "a relative diff": (
        "digest 71", [*START, prompt(3), ANNOUNCE, update("tool_call_update", toolCallId="c1", status="completed",
                      content=[{"type": "diff", "path": "a", "newText": "x"}]), stopped(3)]),
    "a relative location": (
        "digest 71", [*START, prompt(3), update("tool_call", toolCallId="c1", title="t",
                      locations=[{"path": "a"}]), DONE, stopped(3)]),
    "line zero": (
        "digest 71", [*START, prompt(3), update("tool_call", toolCallId="c1", title="t",
                      locations=[{"path": "/a", "line": 0}]), DONE, stopped(3)]),
    "two options with one id": (
        "digest 73", [*START, prompt(3), ANNOUNCE, agent(id=0, method="session/request_permission", params={
            "sessionId": "s1", "toolCall": {"toolCallId": "c1"}, "options": [*OPTIONS, OPTIONS[0]]}), answer("n"),
            FAILED, stopped(3)]),
    "no way to refuse": (
        "digest 73", [*START, prompt(3), ANNOUNCE, agent(id=0, method="session/request_permission", params={
            "sessionId": "s1", "toolCall": {"toolCallId": "c1"}, "options": OPTIONS[:1]}), answer("y"),
            DONE, stopped(3)]),
    "a mode nobody offered": ("digest 82", [*START, update("current_mode_update", currentModeId="yolo")]),
    "a file request to a client without files": (
        "digest 21", [*START, agent(id=0, method="fs/read_text_file", params={"sessionId": "s1", "path": "/a"})]),
    "a notice to a client without notices": ("digest 21", [*START, update("notice", severity="info", title="x")]),
    "a login error": (
        "digest 27", [INITIALIZE, INITIALIZED, new(2)[0], agent(id=2, error={"code": -32000, "message": ""})]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_law_is_named(name: str) -> None:
    law, transcript = BROKEN[name]
    found = violations(*transcript)
    assert len(found) >= 1, name
    assert found[0].startswith(f"{law}:"), found


def test_a_file_request_to_a_client_that_offers_files_is_lawful() -> None:
    offering = client(id=1, method="initialize", params={
        "protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": True}}})
    read = agent(id=0, method="fs/read_text_file", params={"sessionId": "s1", "path": "/a"})
    assert violations(offering, INITIALIZED, *new(2), read) == []

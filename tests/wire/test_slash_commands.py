"""Slash commands: the agent runs them itself, the model hears nothing of them, and history shows them as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.history_laws import reduced
from tests.support.reopen import KINDS
from tests.support.schema import is_response
from tests.wire.moves import line, request, stop_reason, text_prompt
from tests.wire.runs import data
from tests.wire.scripted import TALK, Json, Stage, kinds, of_kind

NAMES = ["help", "usage", "tools", "mcp", "rename"]
GATE = 'model small-1\ncall\n  say "Wait."\n  wait go\n  say " Done."\ncall repeat\n  say "Again."\n'


@pytest.fixture(params=KINDS)
def stage(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    return Stage(agent, request.param, tmp_path)


def said(running: AgentProcess, session: str, text: str) -> str:
    """Run a command; what it answers."""
    since = running.position
    assert stop_reason(running.prompt(session, text)) == "end_turn"
    return running.text(session, since=since)


def begun(agent: Workbench, tmp_path: Path, script: str = TALK) -> tuple[Stage, AgentProcess, str]:
    stage = Stage(agent, "jsonl", tmp_path, script)
    running = stage.start()
    return stage, running, running.new_session()


# ---------------------------------------------------------------- what there is


def test_the_commands_are_told_right_after_the_session_and_each_of_them_runs(
    agent: Workbench, tmp_path: Path,
) -> None:
    stage, running, session = begun(agent, tmp_path)
    update = running.wait_for_update("available_commands_update")
    assert [one["name"] for one in update["availableCommands"]] == NAMES
    assert all(one["description"] for one in update["availableCommands"])
    assert [one.get("input") for one in update["availableCommands"]] == [None, None, None, None, {"hint": "TITLE"}]
    response = next(at for at, frame in enumerate(running.received) if frame.get("result", {}).get("sessionId"))
    assert running.received[response + 1]["params"]["update"] == update
    for name in NAMES:
        assert said(running, session, f"/{name} something")
    running.close()
    log = stage.log(session, "looked-at")
    assert [one["text"] for one in data(log, "session/command")] == [f"/{name} something" for name in NAMES]
    assert data(log, "turn/start") == data(log, "request/sent") == data(log, "user/message") == []


@pytest.mark.parametrize("method", ["load", "resume", "fork"])
def test_the_commands_are_told_again_after_the_answer_that_opens_a_session(stage: Stage, method: str) -> None:
    first = stage.start()
    session = first.new_session()
    first.prompt(session, "Hi")
    first.close()
    running = stage.start()
    opened = stage.opening(running, method, session).get("sessionId", session)
    running.wait_for_update("usage_update", session=opened, used=150, size=1000)
    frames = running.received
    answer = max(at for at, frame in enumerate(frames) if is_response(frame))
    assert kinds([frame["params"]["update"] for frame in frames[answer + 1 :]]) == [
        "available_commands_update", "usage_update"]
    stage.judge()


def test_help_names_every_command(agent: Workbench, tmp_path: Path) -> None:
    _, running, session = begun(agent, tmp_path)
    answer = said(running, session, "/help")
    assert [name for name in NAMES if f"`/{name}" in answer] == NAMES
    assert "`/rename TITLE`: Give the session a title." in answer


def test_usage_counts_the_sessions_own_answers_and_goes_on_counting_after_a_load(stage: Stage) -> None:
    first = stage.start()
    session = first.new_session()
    assert said(first, session, "/usage") == "No tokens used by this session yet."
    first.prompt(session, "Hi")
    assert said(first, session, "/usage") == (
        "Tokens used by this session: 130 in, 30 of the cache, 20 out, in 1 answer.\n\n"
        "Context: 150 of 1,000 tokens (15.0 %).")
    first.prompt(session, "Hi")
    first.close()
    second = stage.start()
    stage.opening(second, "resume", session)
    assert said(second, session, "/usage") == (
        "Tokens used by this session: 330 in, 30 of the cache, 30 out, in 2 answers.\n\n"
        "Context: 210 of 1,000 tokens (21.0 %).")
    fork = stage.opening(second, "fork", session)["sessionId"]
    assert said(second, fork, "/usage").startswith("No tokens used by this session yet.\n\nContext: 210 of 1,000")
    stage.judge()


def test_usage_leaves_out_a_window_that_nobody_knows(agent: Workbench, tmp_path: Path) -> None:
    _, running, session = begun(agent, tmp_path, 'call\n  say "Hi."\n  usage 1000 2\n')
    running.prompt(session, "Hi")
    assert said(running, session, "/usage") == "Tokens used by this session: 1,000 in, 2 out, in 1 answer."
    assert not of_kind(running.updates(session), "usage_update")


def test_tools_lists_what_the_model_is_offered_and_what_it_does(agent: Workbench, tmp_path: Path) -> None:
    stage, running, session = begun(agent, tmp_path)
    rows = said(running, session, "/tools").splitlines()[2:]
    running.prompt(session, "Hi")
    running.close()
    offered = [tool["name"] for tool in data(stage.log(session, "looked-at"), "request/header")[0]["header"]["tools"]]
    assert [row.split("`")[1] for row in rows] == offered
    assert "- `bash`: runs programs, which nothing confines" in rows
    assert "- `read`: reads files" in rows
    assert "- `write`: changes files" in rows
    assert "- `todo_write`: acts on the session alone" in rows


def test_mcp_says_how_each_server_is_doing(agent: Workbench, tmp_path: Path) -> None:
    _, running, session = begun(agent, tmp_path)
    assert said(running, session, "/mcp") == "No MCP server was started for this session."
    server = {"name": "gone", "command": "/no/such/server", "args": [], "env": []}
    result = running.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [server]})["result"]
    other = result["sessionId"]
    running.prompt(other, "Hi")  # a turn waits until every server is ready or has failed
    answer = said(running, other, "/mcp")
    assert answer.startswith("MCP servers of this session:\n\n- gone: failed: ")


# ---------------------------------------------------------------- rename


def test_a_new_title_is_told_listed_and_kept(stage: Stage) -> None:
    first = stage.start()
    session = first.new_session()
    assert said(first, session, "/rename  My\n  tale ") == "The session is called: My tale"
    assert of_kind(first.updates(session), "session_info_update") == [
        {"sessionUpdate": "session_info_update", "title": "My tale"}]
    first.prompt(session, "This would be the title")
    assert [one["title"] for one in first.call("session/list", {})["result"]["sessions"]] == ["My tale"]
    assert said(first, session, "/rename \x1b]0;An\x07oth\x00er \x9b") == "The session is called: ]0;Another"
    assert said(first, session, "/rename Another") == "The session is called: Another"
    first.close()
    second = stage.start()
    assert [one["title"] for one in second.call("session/list", {})["result"]["sessions"]] == ["Another"]
    stage.opening(second, "load", session)
    assert of_kind(second.updates(session), "session_info_update")[-1]["title"] == "Another"
    second.close()
    titles = data(stage.log(session, "looked-at"), "session/title")
    assert [(one["title"], one["source"]) for one in titles] == [
        ("My tale", {"kind": "user"}), ("]0;Another", {"kind": "user"}), ("Another", {"kind": "user"})]
    stage.judge()


@pytest.mark.parametrize(("text", "answer"), [
    ("/rename", "A title is missing"), ("/rename  \n ", "A title is missing"),
    ("/rename \x1b", "A title is missing"),
    ("/rename " + "x" * 201, "201 characters, and 200 are allowed"),
])
def test_a_title_that_cannot_be_is_no_title(agent: Workbench, tmp_path: Path, text: str, answer: str) -> None:
    _, running, session = begun(agent, tmp_path)
    assert answer in said(running, session, text)
    assert of_kind(running.updates(session), "session_info_update") == []


# ---------------------------------------------------------------- what is a command


@pytest.mark.parametrize("text", [
    "/helpless", "/ help", "/unknown thing", "/HELP", "help", " /help", "//help", "/help/me", "/"])
def test_anything_else_is_an_ordinary_prompt(agent: Workbench, tmp_path: Path, text: str) -> None:
    stage, running, session = begun(agent, tmp_path)
    assert said(running, session, text) == "Hello."
    running.close()
    log = stage.log(session, "looked-at")
    assert data(log, "session/command") == []
    assert data(log, "user/message")[0]["content"] == [{"type": "text", "text": text}]


LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}


@pytest.mark.parametrize(("blocks", "runs"), [
    ([{"type": "text", "text": "/help"}, LINK], True),
    ([{"type": "text", "text": "/rename A"}, {"type": "text", "text": "B"}], True),
    ([LINK, {"type": "text", "text": "/help"}], False),
    ([{"type": "text", "text": "See:"}, {"type": "text", "text": "/help"}], False),
    ([{"type": "text", "text": "/he"}, {"type": "text", "text": "lp"}], False),
])
def test_the_first_block_decides_and_the_others_are_no_part_of_it(
    agent: Workbench, tmp_path: Path, blocks: list[Json], runs: bool,
) -> None:
    _, running, session = begun(agent, tmp_path)
    answer = running.call("session/prompt", {"sessionId": session, "prompt": blocks})
    assert stop_reason(answer) == "end_turn"
    assert (running.text(session) != "Hello.") == runs
    if "/rename A" in json.dumps(blocks):
        assert "called: A" in running.text(session)
        assert not running.text(session).endswith("B")


# ---------------------------------------------------------------- history and the model


def test_history_shows_commands_as_they_were_and_the_model_hears_nothing_of_them(stage: Stage) -> None:
    stage.file.write_text('call repeat\n  say "Fine."\n  usage 5 5\n', encoding="utf-8")
    first = stage.start()
    session = first.new_session()
    first.prompt(session, "/tools")
    first.prompt(session, "One")
    first.prompt(session, "/rename A tale")
    first.prompt(session, "/usage")
    first.prompt(session, "Two")
    live = first.updates(session)
    first.close()
    second = stage.start()
    stage.opening(second, "load", session)
    loaded = second.updates(session)
    assert reduced(loaded) == reduced(live)
    prompts = [one["content"]["text"] for one in of_kind(loaded, "user_message_chunk")]
    assert prompts == ["/tools", "One", "/rename A tale", "/usage", "Two"]
    messages = [one["messageId"] for one in loaded if one["sessionUpdate"].endswith("message_chunk")]
    assert len(set(messages)) == len(messages) == 10
    second.prompt(session, "Three")
    second.close()
    log = stage.log(session, "looked-at")
    assert [one["turn"] for one in data(log, "turn/start")] == [1, 2, 3]
    sent = data(log, "request/sent")
    assert [(one["ordinal"], one["parts"]["messages"]["count"]) for one in sent] == [(0, 1), (1, 3), (2, 5)]
    assert all(event.get("ignorable") for event in log.events if event["type"] == "session/command")
    stage.judge()


def test_a_recording_with_commands_in_it_replays(agent: Workbench, tmp_path: Path) -> None:
    stage, first, session = begun(agent, tmp_path)
    moves = ["/usage", "Hi", "/usage", "/rename X", "More", "/tools"]
    answers = [said(first, session, move) for move in moves]
    first.close()
    replay = stage.start(ACP_REPLAY_DIR=str(next(agent.store.glob("--*--/*"))))
    again = replay.new_session()
    assert [said(replay, again, move) for move in moves] == answers
    replay.close()
    assert replay.stderr == ""


# ---------------------------------------------------------------- in the queue


def test_a_command_waits_for_the_turn_before_it_and_the_next_prompt_waits_for_the_command(
    agent: Workbench, tmp_path: Path,
) -> None:
    _, running, session = begun(agent, tmp_path, GATE)
    first = running.start_prompt(session, "Go")
    running.wait_for_update("agent_message_chunk")
    ids = [first, *(running.start_prompt(session, text) for text in ("/rename Q", "/usage", "More"))]
    assert running.text(session) == "Wait."
    (agent.workspace / "go").touch()
    assert [stop_reason(running.response(one)) for one in ids] == ["end_turn"] * 4
    answered = [frame["id"] for frame in running.received if is_response(frame)][-4:]
    assert answered == ids
    assert running.text(session).startswith("Wait. Done.The session is called: Q")
    assert running.text(session).endswith("Again.")


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request", "session/close"])
def test_a_queued_command_is_cancelled_like_a_prompt(agent: Workbench, tmp_path: Path, how: str) -> None:
    stage, running, session = begun(agent, tmp_path, GATE)
    first = running.start_prompt(session, "Go")
    running.wait_for_update("agent_message_chunk")
    queued = running.start_prompt(session, "/rename Never")
    if how == "$/cancel_request":
        running.notify(how, {"requestId": queued})
    elif how == "session/cancel":
        running.cancel(session)
    else:
        running.call(how, {"sessionId": session})
    assert stop_reason(running.response(queued)) == "cancelled"
    (agent.workspace / "go").touch()
    running.response(first)
    running.close()
    log = stage.log(session, "looked-at")
    assert data(log, "session/command") == []
    assert "Never" not in [one["title"] for one in data(log, "session/title")]


def test_a_command_and_its_cancel_in_one_write_have_one_answer(agent: Workbench, tmp_path: Path) -> None:
    _, running, session = begun(agent, tmp_path)
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
    running.send_bytes(line(request("c", "session/prompt", sessionId=session, prompt=text_prompt("/rename N")))
                       + line(cancel))
    assert stop_reason(running.response("c")) == "cancelled"
    assert said(running, session, "/rename After") == "The session is called: After"


def test_a_command_is_stored_before_it_is_answered(stage: Stage) -> None:
    stage.bench.open_turns = "killed"
    running = stage.start()
    session = running.new_session()
    running.prompt(session, "/rename Kept")
    running.kill()
    later = stage.start()
    assert [one["title"] for one in later.call("session/list", {})["result"]["sessions"]] == ["Kept"]
    since = later.position
    stage.opening(later, "load", session)
    assert [one["content"]["text"] for one in of_kind(later.updates(session, since=since), "agent_message_chunk")] == [
        "The session is called: Kept"]


def test_a_command_beside_an_open_question_in_another_session_is_answered(agent: Workbench, tmp_path: Path) -> None:
    asks = 'call\n  tool a bash {"command": "true", "description": "d"}\ncall repeat\n  say "Done."\n'
    _, running, session = begun(agent, tmp_path, asks)
    running.answers["session/request_permission"] = policies.silent
    prompt = running.start_prompt(session, "Go")
    question: Any = running.wait_for_request("session/request_permission")
    other = running.new_session()
    assert said(running, other, "/mcp")
    running.respond(question, **policies.reject(question))
    assert stop_reason(running.response(prompt)) == "end_turn"

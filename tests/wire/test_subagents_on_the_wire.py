"""Children as a client sees them: as sessions of their own where it declared `subagents`, else inside the call that
made them. Every frame is held to the unstable schema and every transcript to the laws, children's included.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.history_laws import reduced
from tests.support.schema import Frame
from tests.wire.runs import log_in
from tests.wire.scripted import Json, Stage, kinds
from tests.wire.services import FILES, TERMINAL, EditorClient, TerminalClient, model, requests

KNOWS: Json = {"subagents": {}}
ASKING = "session/request_permission"
ASK = {"ACP_PERMISSION_MODE": "ask"}

FAMILY = """\
model small-1 window 1000
call
  say "Welcome."
call
  say "I delegate."
  tool a subagent {"description": "Look", "prompt": "Look at a.txt.\\nThen tell."}
  tool b subagent_fork {"description": "", "prompt": "Check what was said."}
call
  say "Both are done."
call repeat
  say "Again."

lane root > a
call
  think "Hm."
  say "I " "look."
  tool r read {"file_path": "a.txt"}
  usage 10 2 cached 3
call
  tool g subagent {"description": "Deeper", "prompt": "Count the words."}
  usage 20 4 written 5
call
  say "It says hello."

lane root > a > g
call
  tool p todo_write {"todos": [{"content": "count", "status": "completed"}]}
call
  say "One word."

lane root > b
call
  tool r read {"file_path": "missing.txt"}
call
  say "All true."
"""
"""Two children side by side, one of them a fork; the other has a child of its own."""

WRITING = """\
call
  tool a subagent {"description": "Paint", "prompt": "Paint it."}
call
  say "Done."
lane root > a
call
  tool w write {"file_path": "new.txt", "content": "made"}
call
  say "Painted."
"""


class Family:
    """What one client was told of children, from a position of its transcript on."""

    def __init__(self, process: AgentProcess, since: int = 0) -> None:
        self.frames: list[Frame] = [
            entry.frame for entry in list(process.transcript)[since:]
            if entry.sender == "agent" and entry.frame.get("method") == "session/update"]
        self.told: list[tuple[str, Json]] = [
            (frame["params"]["sessionId"], frame["params"]["update"]) for frame in self.frames
            if frame["params"]["update"]["sessionUpdate"] == "subagent_update"]

    def child(self, title: str) -> str:
        """The child's id."""
        (found,) = [update["sessionId"] for _, update in self.told if update.get("title") == title]
        return str(found)

    def states(self, child: str) -> list[Json]:
        return [update["state"] for _, update in self.told if update["sessionId"] == child and "state" in update]

    def updates(self, session: str) -> list[Json]:
        return [frame["params"]["update"] for frame in self.frames if frame["params"]["sessionId"] == session]


@pytest.fixture(params=["jsonl", "sqlite"])
def stage(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    (agent.workspace / "a.txt").write_text("hello\n")
    return Stage(agent, request.param, tmp_path, FAMILY)


def delegated(stage: Stage, capabilities: Json | None = KNOWS) -> tuple[AgentProcess, str]:
    """An agent whose session's second prompt had both children work."""
    process = stage.start(capabilities, ACP_PERMISSION_MODE="full-access")
    session = process.new_session()
    for text in ("Hello.", "Delegate."):
        assert process.prompt(session, text)["result"] == {"stopReason": "end_turn"}
    return process, session


def scripted(agent: Workbench, script: str, capabilities: Json, **environ: str) -> tuple[AgentProcess, str]:
    process = agent(environ=model(agent, script) | environ, unstable=True)
    process.initialize(capabilities)
    return process, process.new_session()


# ---------------------------------------------------------------- clients that know children


def test_a_child_is_announced_by_its_parent_before_anything_it_does_and_ends_idle(stage: Stage) -> None:
    process, session = delegated(stage)
    family = Family(process)
    look, check, deeper = map(family.child, ("Look", "subagent", "Deeper"))
    assert [(parent, update) for parent, update in family.told if update.get("title") in ("Look", "Deeper")] == [
        (session, {"sessionUpdate": "subagent_update", "sessionId": look, "title": "Look",
                   "description": "spawn: Look at a.txt.…", "state": {"state": "running"}}),
        (look, {"sessionUpdate": "subagent_update", "sessionId": deeper, "title": "Deeper",
                "description": "spawn: Count the words.", "state": {"state": "running"}})]
    assert [update["description"] for _, update in family.told if update.get("title") == "subagent"] == [
        "fork: Check what was said."]
    for child in (look, check, deeper):
        mentions = [json.dumps(frame) for frame in process.received if child in json.dumps(frame)]
        assert '"title"' in mentions[0]
        assert [state["state"] for state in family.states(child)] == ["running", "idle"]
        assert family.states(child)[-1]["stopReason"] == "end_turn"
    assert family.states(look)[-1]["usage"] == {
        "totalTokens": 44, "inputTokens": 30, "outputTokens": 6, "cachedReadTokens": 3, "cachedWriteTokens": 5}
    assert "usage" not in family.states(deeper)[-1]
    stage.judge()


def test_a_child_shows_what_it_does_on_its_own_session(stage: Stage) -> None:
    process, session = delegated(stage)
    family = Family(process)
    look, check, deeper = map(family.child, ("Look", "subagent", "Deeper"))
    shown = [update for update in family.updates(look) if update["sessionUpdate"] != "usage_update"]
    assert kinds(shown) == [
        "user_message_chunk", "session_info_update", "agent_thought_chunk", "agent_message_chunk",
        "agent_message_chunk", "tool_call", "tool_call_update", "tool_call_update", "tool_call", "tool_call_update",
        "subagent_update", "subagent_update", "tool_call_update", "agent_message_chunk"]
    assert shown[0]["content"] == {"type": "text", "text": "Look at a.txt.\nThen tell."}
    assert [update["status"] for update in shown if "status" in update] == [
        "pending", "in_progress", "completed", "pending", "in_progress", "completed"]
    assert kinds(family.updates(deeper)) == [
        "user_message_chunk", "session_info_update", "tool_call", "tool_call_update", "plan", "tool_call_update",
        "agent_message_chunk"]
    assert [update["toolCallId"] for update in family.updates(check) if update["sessionUpdate"] == "tool_call"] == ["r"]
    inherited = [update for update in family.updates(check) if "Hello." in json.dumps(update)]
    assert not inherited, "what a fork inherited is not sent again"
    assert process.text(session) == "Welcome.I delegate.Both are done."
    calls = {update["toolCallId"] for update in family.updates(session) if "toolCallId" in update}
    assert calls == {"a", "b"}
    stage.judge()


def test_a_load_shows_children_in_their_places_as_they_were_seen(stage: Stage) -> None:
    process, session = delegated(stage)
    live = Family(process)
    names = {title: live.child(title) for title in ("Look", "subagent", "Deeper")}
    process.close()
    loads: list[list[Json]] = []
    for _ in range(2):
        second = stage.start(KNOWS)
        stage.opening(second, "load", session)
        told = Family(second)
        assert {title: told.child(title) for title in names} == names
        for child in (session, *names.values()):
            assert reduced(told.updates(child)) == reduced(live.updates(child))
        for child in names.values():
            assert told.states(child) == live.states(child)[-1:]
        second.close()
        loads.append([frame["params"] for frame in told.frames if frame["params"]["update"]["sessionUpdate"] not in (
            "available_commands_update", "usage_update")])
    assert loads[0] == loads[1]
    for call, child in (("a", "Look"), ("b", "subagent")):
        places = [at for at, params in enumerate(loads[0]) if names[child] in json.dumps(params)]
        announced, ended = [at for at, params in enumerate(loads[0]) if params["sessionId"] == session
                            and params["update"].get("toolCallId") == call]  # fmt: skip
        assert announced < places[0] < places[-1] < ended
    stage.judge()


def test_a_loaded_session_goes_on_and_its_new_children_are_told_apart(stage: Stage, tmp_path: Path) -> None:
    process, session = delegated(stage)
    process.close()
    stage.file.write_text(FAMILY.replace('call repeat\n  say "Again."', 'call\n  tool a subagent {"description": "Once '
                                         'more", "prompt": "Look again."}\ncall repeat\n  say "Again."')
                          + '\nlane root > a[1]\ncall\n  say "Still there."\n')  # fmt: skip
    second = stage.start(KNOWS)
    stage.opening(second, "load", session)
    assert second.prompt(session, "Once more.")["result"] == {"stopReason": "end_turn"}
    family = Family(second)
    assert family.child("Once more") not in (family.child("Look"), family.child("Deeper"))
    assert second.text(family.child("Once more")) == "Still there."
    third = stage.start(KNOWS)
    second.close()
    stage.opening(third, "load", session)
    assert reduced(Family(third).updates(session)) == reduced(family.updates(session))
    stage.judge()


def test_a_resume_shows_no_children(stage: Stage) -> None:
    process, session = delegated(stage)
    process.close()
    second = stage.start(KNOWS)
    stage.opening(second, "resume", session)
    assert Family(second).told == []
    stage.judge()


@pytest.mark.parametrize("offered", [None, {}, {"subagents": None}])
def test_a_client_that_did_not_declare_children_hears_of_none(stage: Stage, offered: Json | None) -> None:
    process, session = delegated(stage, offered)
    process.close()
    second = stage.start(offered)
    stage.opening(second, "load", session)
    for one in (process, second):
        assert Family(one).told == []
        assert {frame["params"]["sessionId"] for frame in Family(one).frames} == {session}
    stage.judge()


def test_a_child_that_cannot_be_read_is_left_out_of_a_load(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path, FAMILY)
    process, session = delegated(stage)
    damaged = Family(process).child("Look")
    process.close()
    (log,) = [path for path in agent.store.rglob("session.*.jsonl") if log_in(path).header["id"] == damaged]
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:4], b"{not JSON", *lines[5:]]))
    second = stage.start(KNOWS)
    stage.opening(second, "load", session)
    family = Family(second)
    assert [update["title"] for _, update in family.told if "title" in update] == ["subagent"]
    second.wait_for_stderr(damaged)
    second.close()
    agent.unlawful_logs = "one of them is damaged"


def test_a_child_that_was_cut_off_is_shown_as_failed(agent: Workbench) -> None:
    script = f'{WRITING.partition("lane")[0]}lane root > a\ncall\n  say "I wo"\n  hang reached\n'
    process, session = scripted(agent, script, KNOWS)
    process.start_prompt(session, "Go.")
    process.wait_until((agent.workspace / "reached").exists, "the child's call")
    process.kill()
    agent.open_turns = "the agent was killed"
    for _ in range(2):
        second = agent(environ=model(agent, script), unstable=True)
        second.initialize(KNOWS)
        second.call("session/load", {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []})
        family = Family(second)
        assert family.states(family.child("Paint")) == [{
            "state": "idle", "stopReason": "error", "error": {"code": -32603, "message": "the turn was interrupted"}}]
        assert [update["content"]["text"] for update in family.updates(family.child("Paint"))
                if update["sessionUpdate"] == "user_message_chunk"] == ["Paint it."]
        second.close()


def test_the_children_of_one_that_cannot_be_read_are_mended_all_the_same(agent: Workbench) -> None:
    script = (f'{WRITING.partition("lane")[0]}lane root > a\ncall\n  tool g subagent {{"description": "Deeper", '
              '"prompt": "Count."}\nlane root > a > g\ncall\n  hang reached\n')
    process, session = scripted(agent, script, KNOWS)
    process.start_prompt(session, "Go.")
    process.wait_until((agent.workspace / "reached").exists, "the deeper child's call")
    damaged, below = (Family(process).child(title) for title in ("Paint", "Deeper"))
    process.kill()
    agent.unlawful_logs = "one of them is damaged"
    logs = {log_in(path).header["id"]: path for path in agent.store.rglob("session.*.jsonl")}
    lines = logs[damaged].read_bytes().split(b"\n")
    logs[damaged].write_bytes(b"\n".join([*lines[:4], b"{not JSON", *lines[5:]]))
    second = agent(environ=model(agent, script), unstable=True)
    second.initialize(KNOWS)
    second.call("session/load", {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []})
    assert Family(second).told == []
    assert log_in(logs[below]).events[-1]["data"]["reason"] == {"kind": "interrupted"}


def test_a_child_asks_on_its_own_session_and_waits_for_the_user_meanwhile(agent: Workbench) -> None:
    process, session = scripted(agent, WRITING, KNOWS, **ASK)
    process.answers[ASKING] = policies.silent
    prompt = process.start_prompt(session, "Go.")
    question = process.wait_for_request(ASKING)
    family = Family(process)
    child = family.child("Paint")
    assert [state["state"] for state in family.states(child)] == ["running", "requires_action"]
    asked = question["params"]
    assert (asked["sessionId"], asked["toolCall"]["toolCallId"]) == (child, "w")
    assert asked["toolCall"]["title"] == "Write new.txt"
    process.respond(question, **policies.allow(question))
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}
    family = Family(process)
    assert [state["state"] for state in family.states(child)] == ["running", "requires_action", "running", "idle"]
    assert {update["toolCallId"] for update in family.updates(session) if "toolCallId" in update} == {"a"}
    assert (agent.workspace / "new.txt").read_text() == "made"


def test_a_cancel_ends_children_that_wait_for_an_answer(agent: Workbench) -> None:
    process, session = scripted(agent, WRITING, KNOWS, **ASK)
    process.answers[ASKING] = policies.silent
    prompt = process.start_prompt(session, "Go.")
    process.wait_for_request(ASKING)
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    family = Family(process)
    assert family.states(family.child("Paint"))[-1] == {"state": "idle", "stopReason": "cancelled"}
    assert [update["status"] for update in family.updates(family.child("Paint")) if "status" in update] == [
        "pending", "failed"]


@pytest.mark.parametrize(("end", "state"), [
    ('  say "Too lo"\n  finish max-tokens\n', {"stopReason": "max_tokens"}),
    ('  throw REFUSAL "no"\n', {"stopReason": "refusal"}),
    ('  throw AUTH "no key"\n', {"stopReason": "error",
                                 "error": {"code": -32603, "message": "the turn failed: no key"}}),
])
def test_the_state_tells_how_a_childs_work_ended(agent: Workbench, end: str, state: Json) -> None:
    script = f'{WRITING.partition("lane")[0]}lane root > a\ncall\n{end}'
    process, session = scripted(agent, script, KNOWS)
    process.prompt(session, "Go.")
    process.call("session/close", {"sessionId": session})
    position = process.position
    process.call("session/load", {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []})
    for family in (Family(process), Family(process, position)):
        assert family.states(Family(process, position).child("Paint"))[-1] == {"state": "idle", **state}


def test_a_childs_files_and_terminals_are_asked_for_in_its_own_session(agent: Workbench) -> None:
    script = WRITING.replace('call\n  say "Painted."', 'call\n  tool m bash {"command": "make", "description": "d"}\n'
                             'call\n  say "Painted."')
    process, session = scripted(agent, script, KNOWS | FILES | TERMINAL)
    EditorClient(process)
    TerminalClient(process)
    process.prompt(session, "Go.")
    child = Family(process).child("Paint")
    asked = [*requests(process, "fs/"), *requests(process, "terminal/")]
    assert {frame["method"] for frame in asked} >= {"fs/write_text_file", "terminal/create", "terminal/release"}
    assert {frame["params"]["sessionId"] for frame in asked} == {child}
    embedded = [update for update in process.updates(child)
                if update.get("content") == [{"type": "terminal", "terminalId": "t1"}]]
    assert [update["toolCallId"] for update in embedded] == ["m"]


def test_a_child_takes_no_orders_from_the_client(agent: Workbench) -> None:
    process, session = scripted(agent, WRITING, KNOWS, **ASK)
    process.answers[ASKING] = policies.silent
    prompt = process.start_prompt(session, "Go.")
    question = process.wait_for_request(ASKING)
    child = Family(process).child("Paint")
    process.cancel(child)
    for method, params in (("prompt", {"prompt": [{"type": "text", "text": "Stop."}]}), ("close", {}),
                           ("set_mode", {"modeId": "ask"})):
        error = process.call(f"session/{method}", {"sessionId": child, **params})["error"]
        assert error["code"] == -32002, method
        assert child in error["message"]
    error = process.call("session/load", {"sessionId": child, "cwd": str(agent.workspace), "mcpServers": []})["error"]
    assert error["code"] == -32602
    process.respond(question, **policies.allow(question))
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}


def test_a_mode_that_is_set_meanwhile_is_told_of_the_root_alone(agent: Workbench) -> None:
    process, session = scripted(agent, WRITING, KNOWS, **ASK)
    process.answers[ASKING] = policies.silent
    prompt = process.start_prompt(session, "Go.")
    process.wait_for_request(ASKING)
    process.call("session/set_mode", {"sessionId": session, "modeId": "full-access"})
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}
    child = Family(process).child("Paint")
    assert "current_mode_update" in kinds(process.updates(session))
    assert "current_mode_update" not in kinds(process.updates(child))


# ---------------------------------------------------------------- clients that do not


def progress(process: AgentProcess, call: str) -> list[str]:
    """What a call showed of its child, one after the other."""
    return [update["content"][0]["content"]["text"] for update in process.updates()
            if update.get("toolCallId") == call and update.get("status") == "in_progress" and "content" in update]


def test_a_childs_progress_is_shown_in_the_call_that_made_it(stage: Stage) -> None:
    process, session = delegated(stage, None)
    lines = ['- "I look."', "- Read a.txt", "- Deeper", "  - Update the plan", '  - "One word."', '- "It says hello."']
    assert progress(process, "a") == ["\n".join(lines[:count]) for count in (2, 3, 4, 5, 6)]
    assert progress(process, "b") == [
        "- Read missing.txt", "- Read missing.txt (failed)", '- Read missing.txt (failed)\n- "All true."']
    (end,) = [update for update in process.updates(session)
              if update.get("toolCallId") == "a" and update.get("status") == "completed"]
    assert end["content"] == [{"type": "content", "content": {"type": "text", "text": "It says hello."}}]
    process.close()
    second = stage.start()
    stage.opening(second, "load", session)
    assert progress(second, "a") == progress(second, "b") == []
    stage.judge()


def test_of_long_work_the_newest_is_shown(agent: Workbench) -> None:
    calls = "".join(f'call\n  tool r{number} read {{"file_path": "{number}.txt"}}\n' for number in range(25))
    script = f'{WRITING.partition("lane")[0]}lane root > a\n{calls}call\n  say "Done."\n'
    process, session = scripted(agent, script, {})
    process.prompt(session, "Go.")
    assert progress(process, "a")[-1].split("\n") == [
        "- ...", *(f"- Read {number}.txt (failed)" for number in range(6, 25)), '- "Done."']


def test_a_question_of_a_childs_is_put_in_the_session_that_the_client_knows(agent: Workbench) -> None:
    process, session = scripted(agent, WRITING, {}, **ASK)
    process.answers[ASKING] = policies.allow
    process.prompt(session, "Go.")
    (question,) = requests(process, ASKING)
    assert question["params"]["sessionId"] == session
    assert question["params"]["toolCall"]["toolCallId"] == "a/w"
    assert progress(process, "a") == ["- Write new.txt", '- Write new.txt\n- "Painted."']

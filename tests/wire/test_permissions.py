"""Permission: who is asked about what, what each answer means, and what nobody needs to ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame, is_request
from tests.wire.recordings import Log, Part, call, says, script, step, tool, write
from tests.wire.runs import LIVE, begin, data, directory_of, failures, logs_of, results, root_log

ASK = LIVE | {"ACP_PERMISSION_MODE": "ask"}
REJECTED = 'Error: the user rejected tool "bash"'
ASKING = "session/request_permission"


def bash(call_id: str, command: str) -> Part:
    return tool(call_id, "bash", command=command, description="Do it")


def questions(process: AgentProcess) -> list[Frame]:
    """What the agent asked, in order."""
    return [frame["params"] for frame in process.received if is_request(frame)]


def answered(agent: Workbench, replay: Path, policy: policies.Policy) -> tuple[AgentProcess, str]:
    """An agent in the mode `ask` whose client answers by this policy."""
    process, session = begin(agent, replay, ASK)
    process.answers[ASKING] = policy
    return process, session


def option(question: Frame, kind: str) -> str:
    """The name of the option of this kind."""
    (name,) = [one["name"] for one in question["options"] if one["kind"] == kind]
    return str(name)


# ---------------------------------------------------------------- answers


def test_allowing_once_runs_the_call_and_the_next_one_is_asked_about_again(
    agent: Workbench, tmp_path: Path,
) -> None:
    same = [call(bash(name, "echo ran >> out")) for name in "ab"]
    process, session = answered(agent, script(tmp_path / "replay", *same, says("Done.")), policies.allow)
    process.prompt(session, "Run it twice.")
    assert (agent.workspace / "out").read_text() == "ran\nran\n"
    first, second = questions(process)
    assert first["sessionId"] == session
    asked = {key: first["toolCall"][key] for key in ("toolCallId", "title", "kind", "status", "rawInput")}
    assert asked == {"toolCallId": "a", "title": "echo ran >> out", "kind": "execute", "status": "pending",
                     "rawInput": {"command": "echo ran >> out", "description": "Do it"}}
    assert second["toolCall"]["toolCallId"] == "b"


def test_allowing_always_covers_the_same_command_for_the_rest_of_the_session_and_nothing_else(
    agent: Workbench, tmp_path: Path,
) -> None:
    replay = script(tmp_path / "replay", call(bash("a", "echo a >> out")), call(bash("b", "echo a >> out")),
                    says("Once more?"), call(bash("c", "echo a >> out"), bash("d", "echo b >> out")), says("Done."))
    process, session = answered(agent, replay, policies.script([policies.allow_always, policies.reject]))
    process.prompt(session, "Run.")
    process.prompt(session, "Yes.")
    assert (agent.workspace / "out").read_text() == "a\na\na\n"
    asked = questions(process)
    assert [question["toolCall"]["toolCallId"] for question in asked] == ["a", "d"]
    assert option(asked[0], "allow_always") == "Always allow this exact command: echo a >> out"


def test_allowing_an_edit_always_covers_all_edits_and_no_command(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", call(tool("w", "write", file_path="a.txt", content="one\n"),
                                              tool("e", "edit", file_path="a.txt", old_string="one",
                                                   new_string="two"),
                                              bash("b", "cat a.txt")), says("Done."))
    process, session = answered(agent, replay, policies.allow_always)
    process.prompt(session, "Edit.")
    edit, command = questions(process)
    assert option(edit, "allow_always") == "Always allow all file edits in this session"
    assert edit["toolCall"]["content"] == [
        {"type": "diff", "path": str(agent.workspace / "a.txt"), "oldText": None, "newText": "one\n"}]
    assert command["toolCall"]["toolCallId"] == "b"
    process.close()
    assert results(root_log(agent, session))[2] == "two\n"


def test_an_edits_question_shows_what_it_would_change(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 10)))
    replay = script(tmp_path / "replay", call(tool("r", "read", file_path="a.txt")),
                    call(tool("e", "edit", file_path="a.txt", old_string="line 5", new_string="LINE 5")), says("."))
    process, session = answered(agent, replay, policies.reject)
    process.prompt(session, "Edit.")
    (question,) = questions(process)
    (diff,) = question["toolCall"]["content"]
    assert diff["path"] == str(agent.workspace / "a.txt")
    assert "line 5" in diff["oldText"]
    assert diff["newText"] == diff["oldText"].replace("line 5", "LINE 5")
    assert "LINE" not in (agent.workspace / "a.txt").read_text()


def test_a_rejected_call_does_not_run_the_model_is_told_and_the_turn_goes_on(
    agent: Workbench, tmp_path: Path,
) -> None:
    same = [call(bash(name, "touch ran")) for name in "ab"]
    process, session = answered(agent, script(tmp_path / "replay", *same, says("Then not.")), policies.reject)
    assert process.prompt(session, "Run.")["result"] == {"stopReason": "end_turn"}
    assert len(questions(process)) == 2
    process.close()
    log = root_log(agent, session)
    assert results(log) == [REJECTED, REJECTED]
    assert failures(log) == [True, True]
    assert not any("error" in result for result in data(log, "tool/result"))
    assert not (agent.workspace / "ran").exists()


def test_rejecting_always_means_no_second_question(agent: Workbench, tmp_path: Path) -> None:
    same = [call(bash(name, "touch ran")) for name in "ab"]
    process, session = answered(agent, script(tmp_path / "replay", *same, says(".")), policies.reject_always)
    process.prompt(session, "Run.")
    assert len(questions(process)) == 1
    process.close()
    assert results(root_log(agent, session)) == [REJECTED, REJECTED]


ODD: list[Frame] = [
    {"result": {"outcome": {"outcome": "cancelled"}}},
    {"error": {"code": -32800, "message": "cancelled"}},
    {"error": "no"},
    {"result": None},
    {"result": "allow-once"},
    {"result": ["allow-once"]},
    {"result": {}},
    {"result": {"outcome": "selected"}},
    {"result": {"outcome": {"outcome": "selected"}}},
    {"result": {"outcome": {"outcome": "selected", "optionId": "no-such-option"}}},
    {"result": {"outcome": {"outcome": "selected", "optionId": 1}}},
    {"result": {"outcome": {"outcome": "granted", "optionId": "allow-once"}}},
    {},
    {"params": {}},
]


def test_anything_but_a_clear_yes_means_no(agent: Workbench, tmp_path: Path) -> None:
    asked = call(*[bash(f"c{number}", f"touch ran-{number}") for number in range(len(ODD))])

    def giving(members: Frame) -> policies.Policy:
        return lambda request: members

    process, session = answered(agent, script(tmp_path / "replay", asked, says("None.")),
                                policies.script(map(giving, ODD)))
    assert process.prompt(session, "Run all.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert results(root_log(agent, session)) == [REJECTED] * len(ODD)
    assert not list(agent.workspace.iterdir())


@pytest.mark.parametrize("written", [str, float])
def test_a_yes_to_a_question_whose_id_comes_back_written_otherwise_is_a_no_and_the_turn_goes_on(
    agent: Workbench, tmp_path: Path, written: Callable[[int], str | float],
) -> None:
    replay = script(tmp_path / "replay", call(bash("a", "touch a"), bash("b", "touch b")), says("Half."))
    yes = policies.script([lambda request: {"id": written(request["id"])} | policies.allow(request), policies.allow])
    process, session = answered(agent, replay, yes)
    assert process.prompt(session, "Run both.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert results(root_log(agent, session))[0] == REJECTED
    assert [(agent.workspace / name).exists() for name in "ab"] == [False, True]


# ---------------------------------------------------------------- no answer


def test_a_cancel_ends_a_turn_that_waits_for_an_answer_and_takes_the_question_back(
    agent: Workbench, tmp_path: Path,
) -> None:
    replay = script(tmp_path / "replay", call(bash("a", "touch ran")), says("What now?"))
    process, session = answered(agent, replay, policies.silent)
    prompt = process.start_prompt(session, "Run.")
    question = process.wait_for_request(ASKING)
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    taken_back = process.wait_for(lambda frame: frame.get("method") == "$/cancel_request", "the question's end")
    assert taken_back["params"] == {"requestId": question["id"]}
    process.respond(question, **policies.allow(question))
    assert process.prompt(session, "Hello?")["result"] == {"stopReason": "end_turn"}
    process.close()
    log = root_log(agent, session)
    assert [part["outcome"] for part in data(log, "approval/decided")] == ["cancelled"]
    assert results(log) == ["Error: tool call aborted"]
    assert not (agent.workspace / "ran").exists()


def test_at_the_end_of_input_an_open_question_counts_as_refused_and_the_turn_is_finished(
    agent: Workbench, tmp_path: Path,
) -> None:
    replay = script(tmp_path / "replay", call(bash("a", "touch ran"), bash("b", "touch ran")), says("Then not."))
    process, session = answered(agent, replay, policies.silent)
    prompt = process.start_prompt(session, "Run.")
    process.wait_for_request(ASKING)
    assert process.close() == 0
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert results(root_log(agent, session)) == [REJECTED, REJECTED]
    assert not (agent.workspace / "ran").exists()


def test_a_session_that_waits_for_an_answer_does_not_hold_up_another(agent: Workbench, tmp_path: Path) -> None:
    asking = Log("asking").turn("Run.", step(call(bash("a", "touch ran")), "(other)"), says("Ran."))
    talking = Log("talking", created=2000).turn("Talk.", says("All is well."))
    process, first = answered(agent, write(tmp_path / "replay", asking, talking), policies.silent)
    second = process.new_session()
    waiting = process.start_prompt(first, "Run.")
    question = process.wait_for_request(ASKING)
    assert process.prompt(second, "Talk.")["result"] == {"stopReason": "end_turn"}
    assert process.text(second) == "All is well."
    process.respond(question, **policies.allow(question))
    assert process.response(waiting)["result"] == {"stopReason": "end_turn"}
    assert (agent.workspace / "ran").exists()


# ---------------------------------------------------------------- modes


EVERYTHING = call(tool("r", "read", file_path="old.txt"), tool("w", "write", file_path="new.txt", content="x"),
                  tool("o", "write", file_path="../outside.txt", content="x"), bash("b", "touch ran"))


@pytest.mark.parametrize(("mode", "asked", "failed", "made"), [
    ("read-only", [], [False, True, True, True], []),
    ("ask", ["w", "o", "b"], [False, False, True, False], ["new.txt", "ran"]),
    ("accept-edits", ["b"], [False, False, True, False], ["new.txt", "ran"]),
    ("full-access", [], [False, False, False, False], ["../outside.txt", "new.txt", "ran"]),
])
def test_a_mode_decides_what_is_asked_and_what_is_refused(
    agent: Workbench, tmp_path: Path, mode: str, asked: list[str], failed: list[bool], made: list[str],
) -> None:
    (agent.workspace / "old.txt").write_text("old")
    replay = script(tmp_path / "replay", EVERYTHING, says("Done."))
    process, session = begin(agent, replay, LIVE | {"ACP_PERMISSION_MODE": mode})
    process.answers[ASKING] = policies.allow
    process.prompt(session, "Do everything.")
    process.close()
    assert [question["toolCall"]["toolCallId"] for question in questions(process)] == asked
    assert failures(root_log(agent, session)) == failed
    there = [name for name in ("../outside.txt", "new.txt", "ran") if (agent.workspace / name).exists()]
    assert there == made


def test_a_mode_that_is_set_while_a_question_is_open_holds_for_that_call_and_the_next(
    agent: Workbench, tmp_path: Path,
) -> None:
    """An answer that still comes to the question, which was withdrawn, means nothing."""
    replay = script(tmp_path / "replay", call(bash("a", "touch a"), bash("b", "touch b")), says("Done."))
    process, session = answered(agent, replay, policies.silent)
    prompt = process.start_prompt(session, "Run both.")
    question = process.wait_for_request(ASKING)
    assert process.call("session/set_mode", {"sessionId": session, "modeId": "full-access"})["result"] == {}
    process.wait_for_update("current_mode_update", currentModeId="full-access")
    process.respond(question, **policies.reject(question))
    process.response(prompt)
    assert len(questions(process)) == 1
    assert [(agent.workspace / name).exists() for name in "ab"] == [True, True]


# ---------------------------------------------------------------- children


def family(directory: Path) -> Path:
    """A parent whose two children, at work side by side, each ask for one thing."""
    parent = Log("parent").turn(
        "Go.", step(call(tool("p", "subagent", description="Paint", prompt="Paint it."),
                         tool("q", "subagent", description="Quill", prompt="Write it.")), "(other)", "(other)"),
        says("Done."))
    one = parent.spawned("one", "p").turn("Paint it.", step(call(bash("b", "touch painted")), "(other)"),
                                          says("Painted."))
    two = parent.spawned("two", "q").turn("Write it.", step(call(bash("b", "touch written")), "(other)"),
                                          says("Written."))
    return write(directory, parent, one, two)


def test_children_ask_through_the_root_and_the_question_says_which_child_asks(
    agent: Workbench, tmp_path: Path,
) -> None:
    def by_child(request: Frame) -> Any:
        paint = request["params"]["toolCall"]["title"].startswith("Paint: ")
        return policies.allow(request) if paint else policies.reject(request)

    process, session = answered(agent, family(tmp_path / "replay"), by_child)
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "end_turn"}
    process.close()
    asked = questions(process)
    assert {question["sessionId"] for question in asked} == {session}
    assert {question["toolCall"]["title"] for question in asked} == {"Paint: touch painted", "Quill: touch written"}
    announced = {update["toolCallId"]: update["title"] for update in process.updates(session)
                 if update["sessionUpdate"] == "tool_call"}
    assert all(announced[question["toolCall"]["toolCallId"]] == question["toolCall"]["title"] for question in asked)
    ended = {announced[update["toolCallId"]]: update["status"] for update in process.updates(session)
             if update.get("status") in ("completed", "failed")}
    assert (ended["Paint: touch painted"], ended["Quill: touch written"]) == ("completed", "failed")
    parent, *children = logs_of(agent, session)
    assert {log.header["spawn"]["callId"]: results(log)[0] for log in children} == {
        "p": "(no output)", "q": REJECTED}
    assert not data(parent, "approval/asked")
    assert [(agent.workspace / name).exists() for name in ("painted", "written")] == [True, False]


def test_a_cancel_reaches_children_that_wait_for_an_answer(agent: Workbench, tmp_path: Path) -> None:
    process, session = answered(agent, family(tmp_path / "replay"), policies.silent)
    prompt = process.start_prompt(session, "Go.")
    first = process.wait_for_request(ASKING)
    process.wait_for(lambda frame: is_request(frame) and frame != first, "the other child's question")
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    process.close()
    for log in logs_of(agent, session):
        assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["aborted"]
    assert not list(agent.workspace.iterdir())


# ---------------------------------------------------------------- recorded decisions


def test_recorded_decisions_are_applied_and_nobody_is_asked_again(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", call(bash("a", "echo yes"), bash("b", "echo no")), says("Done."))
    first, recorded = answered(agent, replay, policies.script([policies.allow, policies.reject]))
    first.prompt(recorded, "Run.")
    first.close()
    second, session = begin(agent, directory_of(agent, recorded))
    second.answers[ASKING] = policies.script([])
    second.prompt(session, "Run.")
    second.close()
    assert questions(second) == []
    log = root_log(agent, session)
    assert results(log) == ["yes\n", REJECTED]
    assert [part["outcome"] for part in data(log, "approval/decided")] == ["approved", "rejected"]


def test_a_call_recorded_without_a_decision_is_asked_about_and_a_no_is_a_no(
    agent: Workbench, tmp_path: Path,
) -> None:
    log = Log().turn("Run.", step(call(bash("a", "touch ran"), bash("b", "touch ran")), "first\n", "second\n"),
                     says("Done."))
    process, session = begin(agent, write(tmp_path / "replay", log))
    process.answers[ASKING] = policies.script([policies.allow, policies.reject])
    process.prompt(session, "Run.")
    process.close()
    assert results(root_log(agent, session)) == ["first\n", REJECTED]
    assert not (agent.workspace / "ran").exists()


def test_always_means_the_whole_session_also_when_a_child_asked(agent: Workbench, tmp_path: Path) -> None:
    same = [bash(name, "echo ran >> out") for name in "abc"]
    parent = Log("parent").turn(
        "Go.", step(call(tool("p", "subagent", description="Paint", prompt="Paint it.")), "(other)"),
        step(call(tool("q", "subagent", description="Again", prompt="Paint again.")), "(other)"),
        step(call(same[2]), "(other)"), says("Done."))
    one = parent.spawned("one", "p").turn("Paint it.", step(call(same[0]), "(other)"), says("Painted."))
    two = parent.spawned("two", "q").turn("Paint again.", step(call(same[1]), "(other)"), says("Painted."))
    process, session = answered(agent, write(tmp_path / "replay", parent, one, two), policies.allow_always)
    process.prompt(session, "Go.")
    assert (agent.workspace / "out").read_text() == "ran\n" * 3
    assert len(questions(process)) == 1

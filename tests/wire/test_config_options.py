"""Config options: what can be chosen, that a choice holds, and that the mode is one thing under two names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.reopen import KINDS
from tests.support.schema import is_request
from tests.wire.runs import data, directory_of, log_in
from tests.wire.scripted import Json, Stage, kinds, of_kind

ASKING = "session/request_permission"

RUNS = """\
model small-1
call
  tool a bash {"command": "echo ran >> out", "description": "d"}
call repeat
  say "Done."
"""


@pytest.fixture(params=KINDS)
def stage(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    return Stage(agent, request.param, tmp_path)


def values(options: list[Json]) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in options}


def choose(running: AgentProcess, session: str, option: str, value: Any, **more: Any) -> Json:
    """Set an option; the whole answer."""
    return running.call("session/set_config_option", {"sessionId": session, "configId": option, "value": value, **more})


def chosen(running: AgentProcess, session: str, option: str, value: str) -> dict[str, Any]:
    """Set an option; all values afterwards."""
    return values(choose(running, session, option, value)["result"]["configOptions"])


# ---------------------------------------------------------------- what there is


def test_a_session_offers_mode_model_and_thought_level_each_with_a_value_that_it_names(stage: Stage) -> None:
    running = stage.start()
    result = running.new_session_result()
    options = result["configOptions"]
    assert [(option["id"], option["category"], option["type"]) for option in options] == [
        ("mode", "mode", "select"), ("model", "model", "select"), ("thought_level", "thought_level", "select")]
    for option in options:
        assert option["currentValue"] in [one["value"] for one in option["options"]]
    assert values(options) == {"mode": "ask", "model": "scripted/small-1", "thought_level": "default"}
    assert [one["value"] for one in options[0]["options"]] == [one["id"] for one in result["modes"]["availableModes"]]
    assert options[1]["options"] == [{"value": "scripted/small-1", "name": "small-1"}]
    assert [one["value"] for one in options[2]["options"]] == ["default", "low", "medium", "high"]


def test_a_replay_offers_the_models_that_its_recordings_name(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path)
    first = stage.start()
    session = first.new_session()
    first.prompt(session, "Hi")
    first.close()
    replay = stage.start(ACP_REPLAY_DIR=str(directory_of(agent, session)))
    (model,) = [one for one in replay.new_session_result()["configOptions"] if one["id"] == "model"]
    assert (model["currentValue"], len(model["options"])) == ("scripted/small-1", 1)


@pytest.mark.parametrize("environ", [{}, {"ACP_REPLAY_DIR": "/no/such/recording"}, {"ACP_MODEL": "scripted/gone"}])
def test_where_no_model_can_be_named_there_is_none_to_choose(agent: Workbench, environ: dict[str, str]) -> None:
    running = agent(environ=environ)
    running.initialize()
    result = running.new_session_result()
    assert list(values(result["configOptions"])) == ["mode", "thought_level"]
    refused = choose(running, result["sessionId"], "model", "scripted/small-1")
    assert refused["error"]["code"] == -32602
    assert "mode, thought_level" in refused["error"]["message"]


def test_a_script_that_is_mended_after_the_session_was_made_answers(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path, script="call\n  sing\n")
    running = stage.start()
    session = running.new_session()
    stage.file.write_text('model late\ncall\n  say "Mended."\n', encoding="utf-8")
    assert running.prompt(session, "Hi")["result"] == {"stopReason": "end_turn"}
    assert chosen(running, session, "thought_level", "low")["model"] == "scripted/late"


# ---------------------------------------------------------------- choosing


def test_a_thought_level_is_what_the_next_request_says_and_default_says_nothing(stage: Stage) -> None:
    running = stage.start()
    session = running.new_session()
    for level in ("high", "default", "low"):
        assert chosen(running, session, "thought_level", level)["thought_level"] == level
        running.prompt(session, "Hi")
    running.close()
    headers = data(stage.log(session, "looked-at"), "request/header")
    assert [header["header"]["config"].get("reasoningEffort") for header in headers] == ["high", None, "low"]
    stage.judge()


@pytest.mark.parametrize(("option", "value", "more", "said"), [
    ("colour", "red", {}, "configId: unknown option 'colour'; expected one of mode, model, thought_level"),
    ("mode", "yolo", {}, "value: unknown value 'yolo' of mode; expected one of read-only, ask, "),
    ("model", "openai/x", {}, "expected one of scripted/small-1"),
    ("thought_level", "", {}, "expected one of default, low, medium, high"),
    ("thought_level", True, {"type": "boolean"}, "not a boolean"),
    ("thought_level", "low", {"type": "boolean"}, "not a boolean"),
    ("thought_level", False, {}, "not a boolean"),
    ("thought_level", 3, {}, "value"),
    ("mode", None, {}, "value"),
])
def test_what_cannot_be_chosen_is_refused_naming_what_can_and_changes_nothing(
    agent: Workbench, tmp_path: Path, option: str, value: Any, more: Json, said: str,
) -> None:
    stage = Stage(agent, "jsonl", tmp_path)
    running = stage.start()
    session = running.new_session()
    answer = choose(running, session, option, value, **more)
    assert answer["error"]["code"] == -32602
    assert said in answer["error"]["message"]
    assert chosen(running, session, "mode", "ask") == {
        "mode": "ask", "model": "scripted/small-1", "thought_level": "default"}
    running.close()
    assert stage.place.listed() == []


def test_what_is_chosen_already_is_not_written_down_again(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path)
    running = stage.start()
    session = running.new_session()
    for _ in range(2):
        chosen(running, session, "thought_level", "low")
        chosen(running, session, "mode", "read-only")
        chosen(running, session, "model", "scripted/small-1")
    running.close()
    assert data(stage.log(session, "looked-at"), "session/config") == [
        {"options": {"thought_level": "low"}}, {"mode": "read-only"}]


def test_a_session_that_there_is_not_has_no_options(agent: Workbench, tmp_path: Path) -> None:
    running = Stage(agent, "jsonl", tmp_path).start()
    assert choose(running, "nobody", "mode", "ask")["error"]["code"] == -32002


# ---------------------------------------------------------------- in step


def test_setting_a_mode_tells_the_options_and_choosing_one_tells_the_mode_before_the_answer(
    agent: Workbench, tmp_path: Path,
) -> None:
    running = Stage(agent, "jsonl", tmp_path).start()
    session = running.new_session()
    running.wait_for_update("available_commands_update")
    since = running.position
    assert running.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})["result"] == {}
    said = running.updates(session, since=since)
    assert kinds(said) == ["current_mode_update", "config_option_update"]
    assert values(said[1]["configOptions"])["mode"] == said[0]["currentModeId"] == "read-only"
    since = running.position
    assert chosen(running, session, "mode", "accept-edits")["mode"] == "accept-edits"
    assert running.updates(session, since=since) == [
        {"sessionUpdate": "current_mode_update", "currentModeId": "accept-edits"}]
    since = running.position
    running.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
    chosen(running, session, "thought_level", "low")
    assert running.updates(session, since=since) == []


def test_a_mode_that_was_chosen_as_an_option_is_in_force(agent: Workbench, tmp_path: Path) -> None:
    running = Stage(agent, "jsonl", tmp_path, RUNS).start()
    session = running.new_session()
    chosen(running, session, "mode", "full-access")
    running.prompt(session, "Run it.")
    assert (agent.workspace / "out").read_text() == "ran\n"
    assert not any(is_request(frame) for frame in running.received)


# ---------------------------------------------------------------- a question is open


@pytest.mark.parametrize("late", [None, {"result": {"outcome": {"outcome": "cancelled"}}}])
@pytest.mark.parametrize("how", ["set_mode", "set_config_option"])
def test_full_access_withdraws_an_open_question_and_lets_the_call_run(
    agent: Workbench, tmp_path: Path, how: str, late: Json | None,
) -> None:
    stage = Stage(agent, "jsonl", tmp_path, RUNS)
    running = stage.start()
    running.answers[ASKING] = policies.silent
    session = running.new_session()
    prompt = running.start_prompt(session, "Run it.")
    question = running.wait_for_request(ASKING)
    if how == "set_mode":
        running.call("session/set_mode", {"sessionId": session, "modeId": "full-access"})
    else:
        chosen(running, session, "mode", "full-access")
    withdrawn = running.wait_for(lambda frame: frame.get("method") == "$/cancel_request", "the withdrawal")
    assert withdrawn["params"] == {"requestId": question["id"]}
    if late is not None:
        running.respond(question, **late)
    assert running.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert (agent.workspace / "out").read_text() == "ran\n"
    running.close()
    log = stage.log(session, "looked-at")
    assert [one["outcome"] for one in data(log, "approval/decided")] == ["approved"]
    assert data(log, "approval/grant") == []


def test_read_only_withdraws_an_open_question_and_the_call_does_not_run(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path, RUNS)
    running = stage.start()
    running.answers[ASKING] = policies.silent
    session = running.new_session()
    prompt = running.start_prompt(session, "Run it.")
    running.wait_for_request(ASKING)
    running.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})
    assert running.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert not (agent.workspace / "out").exists()
    (failed,) = [one for one in of_kind(running.updates(session), "tool_call_update") if one["status"] == "failed"]
    assert "the permission mode is read-only" in failed["rawOutput"]["text"]


def test_a_mode_that_still_asks_leaves_the_question_open(agent: Workbench, tmp_path: Path) -> None:
    running = Stage(agent, "jsonl", tmp_path, RUNS).start()
    running.answers[ASKING] = policies.silent
    session = running.new_session()
    prompt = running.start_prompt(session, "Run it.")
    question = running.wait_for_request(ASKING)
    running.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
    running.respond(question, **policies.allow(question))
    assert running.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert (agent.workspace / "out").read_text() == "ran\n"
    assert not any(frame.get("method") == "$/cancel_request" for frame in running.received)


def test_full_access_reaches_the_question_of_a_child(agent: Workbench, tmp_path: Path) -> None:
    running = Stage(agent, "jsonl", tmp_path, """\
call
  tool c subagent {"description": "Run", "prompt": "Run it."}
call
  say "Done."
lane root > c
call
  tool a bash {"command": "echo ran >> out", "description": "d"}
call
  say "It ran."
""").start()
    running.answers[ASKING] = policies.silent
    session = running.new_session()
    prompt = running.start_prompt(session, "Have it run.")
    running.wait_for_request(ASKING)
    running.call("session/set_mode", {"sessionId": session, "modeId": "full-access"})
    assert running.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert (agent.workspace / "out").read_text() == "ran\n"


# ---------------------------------------------------------------- kept


def test_choices_are_restored_on_load_and_resume_and_the_next_request_is_made_so(stage: Stage) -> None:
    first = stage.start()
    session = first.new_session()
    first.prompt(session, "Hi")
    chosen(first, session, "thought_level", "medium")
    first.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
    first.close()
    for method in ("load", "resume"):
        running = stage.start()
        result = stage.opening(running, method, session)
        assert result["modes"]["currentModeId"] == "accept-edits"
        assert values(result["configOptions"]) == {
            "mode": "accept-edits", "model": "scripted/small-1", "thought_level": "medium"}
        running.prompt(session, "More")
        running.close()
    headers = data(stage.log(session, "looked-at"), "request/header")
    assert [header["header"]["config"].get("reasoningEffort") for header in headers] == [None, "medium", "medium"]
    stage.judge()


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("active", [True, False])
def test_a_fork_inherits_what_was_chosen_also_after_the_last_turn(stage: Stage, turns: int, active: bool) -> None:
    running = stage.start()
    session = running.new_session()
    chosen(running, session, "thought_level", "low")
    for _ in range(turns):
        running.prompt(session, "Hi")
    chosen(running, session, "mode", "read-only")
    chosen(running, session, "thought_level", "high")
    if not active:
        running.call("session/close", {"sessionId": session})
    result = stage.opening(running, "fork", session)
    fork = result["sessionId"]
    assert result["modes"]["currentModeId"] == "read-only"
    assert values(result["configOptions"])["thought_level"] == "high"
    running.prompt(fork, "Hi")
    assert chosen(running, fork, "thought_level", "default")["thought_level"] == "default"
    running.close()
    later = stage.start()
    assert values(stage.opening(later, "load", session)["configOptions"])["thought_level"] == "high"
    assert values(stage.opening(later, "load", fork)["configOptions"]) == {
        "mode": "read-only", "model": "scripted/small-1", "thought_level": "default"}
    later.close()
    assert data(stage.log(fork, "looked-at"), "request/header")[-1]["header"]["config"]["reasoningEffort"] == "high"
    stage.judge()


def test_children_think_as_hard_as_their_parent(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path, """\
call
  tool c subagent {"description": "Think", "prompt": "Think."}
call
  say "Done."
lane root > c
call
  say "Thought."
""")
    running = stage.start()
    session = running.new_session()
    chosen(running, session, "thought_level", "high")
    running.prompt(session, "Have it think.")
    running.close()
    child = log_in(directory_of(agent, session) / "session.1.jsonl")
    (header,) = data(child, "request/header")
    assert header["header"]["config"]["reasoningEffort"] == "high"

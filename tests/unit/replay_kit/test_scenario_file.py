"""Reading `input.json`: what a script can say, and what is told about one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from replay.failures import ScenarioError
from replay.scenario import LATER, load_scenario, ops, read_scenario
from replay.steps import FileAwaited, NewSession, PromptAndCancel, StartPrompt, WaitForTurnEnd, op_of
from tests.unit.replay_kit.driven import START, op

FILE = Path("golden/some/input.json")
RECORDED = Path(__file__).parents[4] / "shared" / "recorded"


def wrong(document: Any) -> str:
    """What is said about an input file."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(ScenarioError) as caught:
        read_scenario(data, FILE)
    return str(caught.value)


def script(*steps: Any, **members: Any) -> dict[str, Any]:
    return {"steps": [*START, *steps], **members}


def test_a_full_scenario_becomes_typed() -> None:
    scenario = read_scenario(json.dumps(script(
        op("newSession", session="b", cwd="{{cwd}}/sub", timeoutMs=500),
        op("promptAndCancel", text="go", waitForFile={"path": "ready", "timeoutMs": 9}, session="b"),
        op("startPrompt", text="later", name="later"), op("waitForTurnEnd"),
        provenance="by hand", settings={"permissionMode": "read-only", "env": {"A": "b"}},
        capabilities={"fs": {"readTextFile": True}, "other": [1]},
        permissionAnswers=[{"kind": "allow_once"}, {"kind": "hold", "toolCallId": "c"}],
        answers={"files": {"a.txt": "unsaved"}, "elicitations": [{"action": "accept", "content": {"x": 1}}]},
    )).encode(), FILE)

    assert scenario.name == "some"
    assert scenario.seed == Path("golden/some/workspace")
    assert scenario.steps[2:] == (
        NewSession(session="b", cwd="{{cwd}}/sub", timeout_ms=500),
        PromptAndCancel(text="go", wait_for_file=FileAwaited("ready", 9), session="b"),
        StartPrompt(text="later", name="later"), WaitForTurnEnd(),
    )
    assert scenario.permission_mode == "read-only"
    assert scenario.settings.env == {"A": "b"}
    assert scenario.capabilities.fs.read_text_file
    assert not scenario.capabilities.fs.write_text_file
    assert json.loads(bytes(scenario.sent_capabilities)) == {"fs": {"readTextFile": True}, "other": [1]}
    assert [answer.kind for answer in scenario.permission_answers] == ["allow_once", "hold"]
    assert scenario.answers.files == {"a.txt": "unsaved"}


def test_a_plain_scenario_has_defaults() -> None:
    scenario = read_scenario(json.dumps(script()).encode(), FILE)
    assert scenario.permission_mode == "full-access"
    assert scenario.provenance is UNSET
    assert bytes(scenario.sent_capabilities) == b"{}"


def test_a_session_that_is_opened_again_has_two_names() -> None:
    read_scenario(json.dumps(script(
        op("newSession", session="a"), op("restart"), op("initialize"), op("loadSession", session="a", name="b"),
        op("prompt", text="x", session="a"), op("prompt", text="y", session="b"), op("forkSession", session="c"),
        op("repeat", times=3, steps=[op("prompt", text="z", session="c")]))).encode(), FILE)
    read_scenario(b'{"steps": [{"op": "loadSession", "sessionId": "x"}, {"op": "prompt", "text": "x"}]}', FILE)


def test_permission_answers_make_the_agent_ask() -> None:
    scenario = read_scenario(json.dumps(script(permissionAnswers=[{"kind": "allow_once"}])).encode(), FILE)
    assert scenario.permission_mode == "ask"


def test_a_directory_and_its_file_are_the_same_scenario(tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text(json.dumps(script()))
    assert load_scenario(tmp_path) == load_scenario(tmp_path / "input.json")


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded scenarios in {RECORDED}")
def test_the_scripts_of_another_harness_are_read() -> None:
    scenarios = [load_scenario(file) for file in sorted(RECORDED.glob("*/input.json"))]
    assert len(scenarios) >= 14
    assert {op_of(step) for scenario in scenarios for step in scenario.steps} >= {
        "initialize", "newSession", "prompt", "promptExpectError", "promptAndCancel", "waitForTurnEnd"}


def test_every_op_has_a_name_that_its_struct_writes_back() -> None:
    assert {cls.__name__[0].lower() + cls.__name__[1:] for cls in ops().values()} == set(ops())
    assert set(ops()) >= {
        "promptContent", "promptAndWaitForAgentMessage", "waitForTurnStart", "waitForSubagentTurnEnd", "waitForFile",
        "waitForTitleAfterTurnEnd", "waitForEventAfterTurnEnd", "waitForUpdate", "newSessionExpectError", "setMode",
        "cancelRequest", "closeInput", "signal", "startPrompt", "awaitPrompt"}
    assert not set(ops()) & set(LATER)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"input\.json: cannot be read"):
        load_scenario(tmp_path)


def test_broken_json_is_named_with_its_line() -> None:
    message = wrong(b'{"steps": [\n  {"op": "initialize"},\n  oops\n]}')
    assert message.startswith("golden/some/input.json:3: is not JSON")


@pytest.mark.parametrize(("document", "parts"), [
    ({"steps": []}, ["`steps` is empty"]),
    ({}, ["missing required field `steps`", "a scenario has `steps`"]),
    (script(permisionAnswers=[]), ["unknown field `permisionAnswers`", "`permissionAnswers`"]),
    (script(settings={"mode": "ask"}), ["unknown field `mode`", "$.settings"]),
    (script(settings={"permissionMode": "sudo"}), ["'sudo'", "$.settings.permissionMode"]),
    (script(permissionAnswers=[{"kind": "maybe"}]), ["'maybe'", "$.permissionAnswers[0].kind"]),
    (script(capabilities={"fs": {"readTextFile": "yes"}}),
     ["`capabilities`", "$.fs.readTextFile", "`initialize` step"]),
    (script({"text": "x"}), ["step 3", "missing required field `op`"]),
    (script("prompt"), ["step 3", "a step is an object with an `op`"]),
    (script(op("promt", text="x")), ["step 3", "unknown op 'promt'", "did you mean 'prompt'?", "known ops: init"]),
    (script(op("waitForGoalPhase", phase="x")), ["step 3", "needs goals"]),
    (script(op("prompt", txt="x")), ["step 3 (prompt)", "prompt takes `text`, optionally `timeoutMs`, `session`"]),
    (script(op("prompt", text=5)), ["step 3 (prompt)", "Expected `str`, got `int`", "$.text"]),
    (script(op("prompt", text="x", timeoutMs=0)), ["step 3 (prompt)", "$.timeoutMs"]),
    (script(op("startPrompt")), ["step 3 (startPrompt)", "either `text` or `content`"]),
    (script(op("startPrompt", text="x", content=[])), ["either `text` or `content`"]),
    (script(op("promptAndCancel", text="x", waitForFile={"file": "y"})), ["step 3 (promptAndCancel)", "`file`"]),
    (script(op("signal", signal="SIGSTOP")), ["step 3 (signal)", "'SIGSTOP'"]),
    ({"steps": [op("initialize"), op("prompt", text="x")]},
     ["step 2 (prompt)", "no earlier `newSession` step makes a session"]),
    (script(op("prompt", text="x", session="b")),
     ["step 3 (prompt)", "no earlier `newSession` step gave the name 'b'"]),
    (script(op("newSession", session="b"), op("newSession", session="b")), ["step 4 (newSession)", "given before"]),
    (script(op("closeSession", code=-1)), ["step 3 (closeSession)", "`code` belongs to `expectError`"]),
    (script(op("call", method="x", code=-1)), ["step 3 (call)", "`code` belongs to `expectError`"]),
    (script(op("newSession", session="b"), op("loadSession", session="b", sessionId="x")),
     ["step 4 (loadSession)", "`session` and `sessionId` both name a session"]),
    (script(op("newSession", session="b"), op("forkSession", source="b", sourceId="x")),
     ["step 4 (forkSession)", "both name a session"]),
    (script(op("listSessions", pages=2)), ["step 3 (listSessions)", "`pages` belongs to `followCursor`"]),
    (script(op("restart", how="quit")), ["step 3 (restart)", "'quit'"]),
    (script(op("resumeSession", session="b")), ["step 3 (resumeSession)", "gave the name 'b'"]),
    (script(op("forkSession", source="b", session="b")), ["step 3 (forkSession)", "gave the name 'b'"]),
    (script(op("loadSession", name="b"), op("forkSession", session="b")),
     ["step 4 (forkSession)", "the session name 'b' was given before"]),
    ({"steps": [op("initialize"), op("deleteSession")]},
     ["step 2 (deleteSession)", "no earlier `newSession` step makes a session"]),
    ({"steps": [op("initialize"), op("loadSession", sessionId="x", expectError=True), op("prompt", text="x")]},
     ["step 3 (prompt)", "no earlier `newSession` step makes a session"]),
    (script(op("repeat", times=2, steps=[op("newSession", session="b")])),
     ["step 3 (repeat), step 1 (newSession)", "a step that is repeated cannot give the name 'b'"]),
    (script(op("repeat", times=2, steps=[op("prompt", text="x", session="b")])),
     ["step 3 (repeat), step 1 (prompt)", "gave the name 'b'"]),
    (script(op("repeat", times=0, steps=[])), ["step 3 (repeat)", "$.times"]),
    (script(op("awaitPrompt", prompt="p")), ["step 3 (awaitPrompt)", "gave the name 'p'; names so far: none"]),
])
def test_what_is_wrong_is_told_with_its_place_and_what_was_expected(document: Any, parts: list[str]) -> None:
    message = wrong(document)
    assert message.startswith("golden/some/input.json: ")
    assert [part for part in parts if part not in message] == [], message

"""Where a replay's tool results come from: the recording by default, the world when asked to."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Workbench
from tests.wire.recordings import Log, Result, call, patch, says, step, tool, write
from tests.wire.runs import LIVE, begin, data, failures, results, root_log

RECORDED = {"ACP_PERMISSION_MODE": "full-access"}
READ = ("<path>{{cwd}}/a.txt</path>\n<type>file</type>\n<content>\n1: old\n\n(End of file - total 1 lines)\n"
        "</content>")


def recorded() -> Log:
    """A session that read and changed a file, ran a command, and made a plan."""
    asked = call(
        tool("r", "read", file_path="a.txt"), tool("e", "edit", file_path="a.txt", old_string="old", new_string="new"),
        tool("w", "write", file_path="b.txt", content="made\n"),
        tool("b", "bash", command="touch ran; pwd", description="Where?"),
        tool("t", "todo_write", todos=[{"content": "Rest", "status": "pending"}]))
    hunk = {"path": "a.txt", "oldText": "old", "newText": "new"}
    return Log().turn("Work.", step(
        asked, READ, Result("The file {{cwd}}/a.txt has been updated successfully.", meta={"diffs": [hunk]}),
        Result("<path>{{cwd}}/b.txt</path>\n<type>file</type>\n<content>\nCreated file\n</content>",
               meta={"diffs": []}),
        "{{cwd}}\n", "Updated todo list: 1 pending, 0 in progress, 0 completed."), says("Done."))


def test_recorded_results_are_served_in_an_empty_workspace_and_nothing_is_touched(
    agent: Workbench, tmp_path: Path,
) -> None:
    process, session = begin(agent, write(tmp_path / "replay", recorded()), RECORDED)
    assert process.prompt(session, "Work.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert list(agent.workspace.iterdir()) == []
    read, edit, written, bash, todo = results(root_log(agent, session))
    here = agent.workspace
    assert read == READ.replace("{{cwd}}", str(here))
    assert edit == f"The file {here}/a.txt has been updated successfully."
    assert written == f"<path>{here}/b.txt</path>\n<type>file</type>\n<content>\nCreated file\n</content>"
    assert bash == f"{here}\n"
    assert todo == "Updated todo list: 1 pending, 0 in progress, 0 completed."
    final = {update["toolCallId"]: update for update in process.updates(session)
             if update.get("status") == "completed"}
    assert final["e"]["content"] == [
        {"type": "diff", "path": f"{here}/a.txt", "oldText": "old", "newText": "new"}]
    assert final["w"]["content"] == [
        {"type": "diff", "path": f"{here}/b.txt", "oldText": None, "newText": "made\n"}]
    assert [update["entries"][0]["content"] for update in process.updates(session)
            if update["sessionUpdate"] == "plan"] == ["Rest"]
    assert process.stderr == ""


def test_live_effects_do_the_work_again_and_where_the_world_is_the_same_nothing_is_reported(
    agent: Workbench, tmp_path: Path,
) -> None:
    (agent.workspace / "a.txt").write_text("old\n")
    log = recorded()
    receipt = tmp_path / "receipt.json"
    process, session = begin(agent, write(tmp_path / "replay", log), LIVE | {"ACP_REPLAY_RECEIPT": str(receipt)})
    process.prompt(session, "Work.")
    process.close()
    assert (agent.workspace / "a.txt").read_text() == "new\n"
    assert sorted(path.name for path in agent.workspace.iterdir()) == ["a.txt", "b.txt", "ran"]
    assert results(root_log(agent, session))[3] == f"{agent.workspace}\n"
    assert "drift" not in process.stderr
    assert "drift" not in json.loads(receipt.read_text())["lanes"][0]


def test_a_live_result_that_is_not_the_recorded_one_is_reported_at_its_step(
    agent: Workbench, tmp_path: Path,
) -> None:
    (agent.workspace / "a.txt").write_text("other\n")
    receipt = tmp_path / "receipt.json"
    replay = write(tmp_path / "replay", recorded())
    process, session = begin(agent, replay, LIVE | {"ACP_REPLAY_RECEIPT": str(receipt)})
    assert process.prompt(session, "Work.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert "environment drift in lane root (session.jsonl), turn 1 step 1, read:" in process.stderr
    drift = json.loads(receipt.read_text())["lanes"][0]["drift"]
    assert (drift["turn"], drift["step"], drift["position"], drift["tool"]) == (1, 1, 0, "read")
    assert "1: old" in drift["recorded"]
    assert "1: other" in drift["live"]


def test_arguments_are_checked_before_a_recorded_result_is_served(agent: Workbench, tmp_path: Path) -> None:
    log = Log().turn("Go.", step(call(tool("r", "read", path="wrong.txt")), "never valid"), says("."))
    process, session = begin(agent, write(tmp_path / "replay", log))
    process.prompt(session, "Go.")
    process.close()
    stored = root_log(agent, session)
    assert failures(stored) == [True]
    assert results(stored)[0].startswith('Error: invalid arguments for tool "read": ')


def test_a_recorded_failure_is_served_as_the_failure_it_was(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "a.txt").write_text("it is here now\n")
    gone = Result('Error: cannot read "{{cwd}}/a.txt": not found', is_error=True, code="FS_NOT_FOUND")
    log = Log().turn("Go.", step(call(tool("r", "read", file_path="a.txt")), gone), says("."))
    process, session = begin(agent, write(tmp_path / "replay", log))
    process.prompt(session, "Go.")
    process.close()
    (result,) = data(root_log(agent, session), "tool/result")
    assert result["error"]["code"] == "FS_NOT_FOUND"
    assert results(root_log(agent, session)) == [f'Error: cannot read "{agent.workspace}/a.txt": not found']
    assert [update["status"] for update in process.updates(session)
            if update["sessionUpdate"] == "tool_call_update"][-1] == "failed"


def test_a_call_without_a_recorded_result_ends_the_prompt_and_does_not_run(
    agent: Workbench, tmp_path: Path,
) -> None:
    log = Log().turn("Go.", step(call(tool("b", "bash", command="touch ran", description="d"))), says("."))
    process, session = begin(agent, write(tmp_path / "replay", log), RECORDED)
    error = process.prompt(session, "Go.")["error"]
    assert error["code"] == -32603
    assert "turn 1 step 1, tool call 1 (bash, lane root (session.jsonl)): no result is recorded" in error["message"]
    assert "ACP_REPLAY_TOOLS=live" in error["message"]
    assert not (agent.workspace / "ran").exists()


def test_no_result_is_served_for_another_call_than_the_one_it_was_recorded_for(
    agent: Workbench, tmp_path: Path,
) -> None:
    log = Log().turn("Go.", step(call(tool("b", "bash", command="echo a", description="d")), "a\n"), says("."))
    other = call(tool("b", "bash", command="touch ran", description="d"))
    replay = patch(write(tmp_path / "replay", log), {0: other})
    process, session = begin(agent, replay, RECORDED)
    message = process.prompt(session, "Go.")["error"]["message"]
    assert "echo a" in message
    assert "touch ran" in message
    assert not (agent.workspace / "ran").exists()


def test_a_step_that_used_an_id_twice_in_two_steps_gets_each_its_own_result(
    agent: Workbench, tmp_path: Path,
) -> None:
    same = tool("same", "bash", command="date", description="d")
    log = Log().turn("Go.", step(call(same), "first\n"), step(call(same), "second\n"), says("."))
    log.turn("Again.", step(call(same), "third\n"), says("."))
    process, session = begin(agent, write(tmp_path / "replay", log), RECORDED)
    process.prompt(session, "Go.")
    process.prompt(session, "Again.")
    process.close()
    assert results(root_log(agent, session)) == ["first\n", "second\n", "third\n"]
    announced = [update["toolCallId"] for update in process.updates(session)
                 if update["sessionUpdate"] == "tool_call"]
    assert announced == ["same", "same#2", "same#3"]

"""Turns with tools: what all nine do, what the client is shown of it, and what a cancel does to them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import Workbench
from tests.support import processes
from tests.support.schema import Frame
from tests.wire.recordings import Log, Result, call, says, script, step, text, tool, write
from tests.wire.runs import ECHO, LIVE, begin, data, end_of, failures, logs_of, order, results, root_log


def finals(updates: list[Frame]) -> list[Frame]:
    """The final state of each tool call."""
    return [update for update in updates if update.get("status") in ("completed", "failed")]


NINE = call(
    text("All of them."),
    tool("b", "bash", command="printf one > made.txt; echo out; echo err >&2; exit 3", description="Make a file"),
    tool("r", "read", file_path="made.txt"),
    tool("e", "edit", file_path="made.txt", old_string="one", new_string="two"),
    tool("w", "write", file_path="sub/new.txt", content="alpha\nbeta\n"),
    tool("g", "glob", pattern="**/*.txt"),
    tool("s", "grep", pattern="bet."),
    tool("t", "todo_write", todos=[{"content": "Dig", "status": "completed"},
                                   {"content": "Fill", "status": "in_progress"}]),
    tool("c", "subagent", description="Look", prompt="Look around."),
    tool("f", "subagent_fork", description="Recall", prompt="What did I say?"),
)


def test_each_of_the_nine_tools_does_its_work_and_shows_it(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Hello.", says("Hello yourself."))
    fork = parent.forked("fork", "f").turn("What did I say?", ECHO)
    parent.turn("Use everything.", step(NINE, *[Result("(other)")] * 9), says("Done."))
    child = parent.spawned("child", "c").turn("Look around.", says("Nothing there."))
    process, session = begin(agent, write(tmp_path / "replay", parent, child, fork), LIVE)
    process.prompt(session, "Hello.")
    assert process.prompt(session, "Use everything.")["result"] == {"stopReason": "end_turn"}
    process.close()

    made = agent.workspace / "made.txt"
    assert (made.read_text(), (agent.workspace / "sub/new.txt").read_text()) == ("two", "alpha\nbeta\n")
    log = root_log(agent, session)
    bash, read, edit, written, glob, grep, todo, spawned, forked = results(log)
    assert bash == "out\n[stderr]\nerr\n[exit code: 3]"
    assert read == (f"<path>{made}</path>\n<type>file</type>\n<content>\n1: one\n\n"
                    "(End of file - total 1 lines)\n</content>")
    assert edit == f"The file {made} has been updated successfully."
    assert written == (f"<path>{agent.workspace / 'sub/new.txt'}</path>\n<type>file</type>\n<content>\n"
                       "Created file\n</content>")
    assert glob == "made.txt\nsub/new.txt"
    assert grep == "Found 1 matches\n\nsub/new.txt\nLine 2: beta"
    assert todo == "Updated todo list: 0 pending, 1 in progress, 1 completed."
    assert spawned == "Nothing there."
    assert "Hello yourself." in forked
    assert "Use everything." not in forked
    assert not any(failures(log))

    updates = process.updates(session)
    announced = {update["toolCallId"]: update for update in updates if update["sessionUpdate"] == "tool_call"}
    assert [update["kind"] for update in announced.values()] == [
        "execute", "read", "edit", "edit", "search", "search", "think", "think", "think"]
    assert [update["name"] for update in announced.values()] == [
        "bash", "read", "edit", "write", "glob", "grep", "todo_write", "subagent", "subagent_fork"]
    assert announced["r"]["locations"] == [{"path": str(made), "line": 1}]
    assert announced["g"]["rawInput"] == {"pattern": "**/*.txt"}
    assert [update["toolCallId"] for update in finals(updates)] == list("brewgstcf")
    diffs = {update["toolCallId"]: update["content"] for update in finals(updates)
             if update["toolCallId"] in "ew"}
    assert diffs == {
        "e": [{"type": "diff", "path": str(made), "oldText": "one", "newText": "two"}],
        "w": [{"type": "diff", "path": str(agent.workspace / "sub/new.txt"), "oldText": None,
               "newText": "alpha\nbeta\n"}]}
    assert [update["entries"] for update in updates if update["sessionUpdate"] == "plan"] == [[
        {"content": "Dig", "priority": "medium", "status": "completed"},
        {"content": "Fill", "priority": "medium", "status": "in_progress"}]]
    (rooted, *children) = logs_of(agent, session)
    assert rooted.header["id"] == session
    assert {log.header["spawn"]["callId"]: log.header.get("seedLength") is not None for log in children} == {
        "c": False, "f": True}


def test_a_calls_failure_is_told_to_the_model_and_the_turn_goes_on(agent: Workbench, tmp_path: Path) -> None:
    asked = call(tool("u", "teleport", to="Mars"), tool("i", "read"), tool("m", "read", file_path="gone.txt"))
    process, session = begin(agent, script(tmp_path / "replay", asked, ECHO), LIVE)
    assert process.prompt(session, "Fail.")["result"] == {"stopReason": "end_turn"}
    told = process.text(session)
    process.close()
    log = root_log(agent, session)
    assert failures(log) == [True, True, True]
    unknown, invalid, missing = results(log)
    assert unknown == 'Error: unknown tool "teleport"'
    assert invalid.startswith('Error: invalid arguments for tool "read": ')
    assert missing == f'Error: cannot read "{agent.workspace / "gone.txt"}": not found'
    assert [part["error"]["code"] for part in data(log, "tool/result")] == [
        "UNKNOWN_TOOL", "INVALID_ARGS", "FS_NOT_FOUND"]
    assert all(result in told for result in results(log))
    assert [update["status"] for update in finals(process.updates(session))] == ["failed"] * 3


def test_reads_run_ten_at_a_time_and_their_results_keep_the_models_order(
    agent: Workbench, tmp_path: Path,
) -> None:
    for number in range(12):
        (agent.workspace / f"{number}.txt").write_text(f"file {number}\n" * (2000 if number == 0 else 1))
    reads = [tool(f"r{number}", "read", file_path=f"{number}.txt") for number in range(12)]
    process, session = begin(agent, script(tmp_path / "replay", call(*reads), says("Read.")), LIVE)
    process.prompt(session, "Read all.")
    process.close()
    log = root_log(agent, session)
    assert [f"file {number}" in result for number, result in enumerate(results(log))] == [True] * 12
    assert order(log, "tool/call", "tool/result") == [
        *["tool/call"] * 10, "tool/result", "tool/call", "tool/result", "tool/call", *["tool/result"] * 10]
    assert [update["toolCallId"] for update in finals(process.updates(session))] == [f"r{n}" for n in range(12)]


def test_a_command_shows_its_output_while_it_runs(agent: Workbench, tmp_path: Path) -> None:
    gate = agent.workspace / "gate"
    os.mkfifo(gate)
    command = tool("b", "bash", command="echo first; cat gate", description="d")
    process, session = begin(agent, script(tmp_path / "replay", call(command), says("Done.")), LIVE)
    prompt = process.start_prompt(session, "Run.")
    process.wait_for(lambda frame: "first" in str(frame.get("params", {}).get("update", {}).get("content")),
                     "the output of the running command")
    assert not finals(process.updates(session))
    gate.write_text("second\n")
    process.response(prompt)
    process.close()
    assert results(root_log(agent, session)) == ["first\nsecond\n"]


def test_a_cancelled_command_takes_its_whole_process_tree_along_and_the_next_call_never_starts(
    agent: Workbench, tmp_path: Path,
) -> None:
    tree = "setsid sleep 1000 & (trap '' TERM HUP INT; sleep 1000) & touch up; wait"
    both = call(tool("one", "bash", command=tree, description="d"),
                tool("two", "bash", command="touch two", description="d"))
    process, session = begin(agent, script(tmp_path / "replay", both, says("Never.")), LIVE)
    prompt = process.start_prompt(session, "Run both.")
    process.wait_until((agent.workspace / "up").exists, "the command to be up")
    process.wait_until(lambda: len(processes.marked(process.mark)) >= 4, "the command's processes")
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    assert processes.marked(process.mark).keys() == {process.pid}
    process.close()
    log = root_log(agent, session)
    assert results(log) == ["Error: tool call aborted", "Error: tool call aborted before dispatch"]
    assert end_of(log)["kind"] == "aborted"
    assert len(data(log, "request/sent")) == 1, "no model call after the cancel"
    assert not (agent.workspace / "two").exists()
    assert [(update["toolCallId"], update["status"]) for update in finals(process.updates(session))] == [
        ("one", "failed"), ("two", "failed")]


def test_a_killed_agents_command_takes_its_whole_process_tree_along(agent: Workbench, tmp_path: Path) -> None:
    agent.open_turns = "the agent is killed in the middle of a turn"
    tree = "setsid sleep 1000 & (trap '' TERM HUP INT; sleep 1000) & env -i setsid sleep 1000 & touch up; wait"
    command = call(tool("one", "bash", command=tree, description="d"))
    process, session = begin(agent, script(tmp_path / "replay", command, says("Never.")), LIVE)
    process.start_prompt(session, "Run it.")
    process.wait_until((agent.workspace / "up").exists, "the command to be up")
    process.wait_until(lambda: len(processes.marked(process.mark)) >= 4, "the command's processes")
    process.kill()
    process.judge()  # waits until they are gone, and not for long

"""Scenarios of the format's reference (sections 3, 4 and 7) that come without a recording: rebuilt from their
description, with the exact texts it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.schema import Frame
from tests.wire.recordings import Call, Log, Result, call, says, script, step, text, tool, write
from tests.wire.runs import LIVE, begin, behaviour, data, logs_of, order, results, root_log


def replay(
    agent: Workbench, tmp_path: Path, logs: Sequence[Log], prompts: Sequence[str], environ: Mapping[str, str] = LIVE,
) -> tuple[AgentProcess, str, list[Frame]]:
    """Replay recorded sessions with live tools and compare what each did with what was recorded."""
    process, session = begin(agent, write(tmp_path / "replay", *logs), environ)
    answers = [process.prompt(session, prompt) for prompt in prompts]
    assert process.close() == 0
    live = logs_of(agent, session)

    def scrub(said: str) -> str:
        return said.replace(str(agent.workspace), "{{cwd}}")

    assert [behaviour(log.events, scrub) for log in live] == [behaviour(log.events, scrub) for log in logs]
    return process, session, answers


def envelope(path: str, *lines: str) -> str:
    """What read and write say of a file."""
    return "\n".join([f"<path>{{{{cwd}}}}/{path}</path>", "<type>file</type>", "<content>", *lines, "</content>"])


def fs_error(message: str, code: str) -> Result:
    return Result(f"Error: {message}", is_error=True, code=code)


def codes(log: Any) -> list[Any]:
    """The structured error of each tool result."""
    return [part.get("error", {}).get("code") for part in data(log, "tool/result")]


# ---------------------------------------------------------------- no model call


def test_handshake(agent: Workbench, tmp_path: Path) -> None:
    header_only = Log("{{sessionId}}", created=0)
    del header_only.header["cwd"]
    process = agent(replay=write(tmp_path / "replay", header_only))
    result = process.initialize()
    assert result["protocolVersion"] == 1
    assert result["authMethods"] == []
    assert process.new_session()
    assert process.close() == 0
    assert not list(agent.store.rglob("*.jsonl"))


def test_reject_extra_dirs(agent: Workbench, tmp_path: Path) -> None:
    process = agent(replay=write(tmp_path / "replay", Log("{{sessionId}}", created=0)))
    process.initialize()
    answer = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [],
                                          "additionalDirectories": [str(tmp_path / "missing")]})
    assert answer["error"]["code"] == -32602
    assert process.close() == 0
    assert not list(agent.store.rglob("*.jsonl"))


# ---------------------------------------------------------------- model calls


def test_cancel_tool_calls(agent: Workbench, tmp_path: Path) -> None:
    both = call(tool("call_1", "bash", command="touch ready; sleep 1000", description="Wait"),
                tool("call_2", "bash", command="touch second", description="Second"))
    process, session = begin(agent, script(tmp_path / "replay", both), LIVE)
    prompt = process.start_prompt(session, "Run both.")
    process.wait_until((agent.workspace / "ready").exists, "the first command")
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    assert process.close() == 0
    log = root_log(agent, session)
    assert order(log, "tool/call", "tool/result", "step/end", "turn/end") == [
        "tool/call", "tool/result", "tool/call", "tool/result", "step/end", "turn/end"]
    assert results(log) == ["Error: tool call aborted", "Error: tool call aborted before dispatch"]
    assert [part["error"] for part in data(log, "tool/result")] == [
        {"name": "AbortError", "code": "ABORTED"}, {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}]
    assert data(log, "turn/end") == [{"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}]
    assert not (agent.workspace / "second").exists()


def test_empty_response_retry(agent: Workbench, tmp_path: Path) -> None:
    failure = {"message": "the model returned nothing", "code": "EMPTY_RESPONSE"}
    policy = '["normal",2,["EMPTY_RESPONSE"],1,1,0]'
    log = Log().add("turn/start", turn=1).add("step/start", turn=1, step=1)
    log.add("user/message", content=[{"type": "text", "text": "Say something."}], source={"kind": "user"},
            role="user", id="m1")
    place = {"turn": 1, "step": 1}
    log.add("assistant/chunk", **place, chunk={"type": "finish", "reason": {"kind": "error", "failure": failure}})
    log.add("llm/retry", retryId="r1", **place, provider="p", mode="normal", policyKey=policy, retry=1,
            maxRetries=2, delayMs=1, failure=failure)
    log.add("llm/retry-started", retryId="r1", **place, retry=1)
    for chunk in says("Some", "thing."):
        log.add("assistant/chunk", **place, chunk=chunk)
    log.add("assistant/message", **place, message={
        "role": "assistant", "content": [{"type": "text", "text": "Something."}], "source": {"kind": "model"},
        "id": "m2"})
    log.add("step/end", **place).add("turn/end", turn=1, reason={"kind": "completed"})

    process, session, (answer,) = replay(agent, tmp_path, [log], ["Say something."])
    assert answer["result"] == {"stopReason": "end_turn"}
    assert process.text(session) == "Something."
    live = root_log(agent, session)
    (retry,) = data(live, "llm/retry")
    assert (retry["retry"], retry["maxRetries"], retry["failure"]) == (1, 2, failure)
    assert retry["policyKey"].replace("0.0", "0") == policy
    chunks = [event["seq"] for event in live.events if event["type"] == "assistant/chunk"]
    (message,) = [event for event in live.events if event["type"] == "assistant/message"]
    assert message["sourceEventSeqs"] == chunks[1:]
    assert len(data(live, "request/sent")) == 2


def cut_call(state: list[str]) -> Call:
    """An answer cut at the output limit in the middle of a tool call, with a provider's opaque state."""
    chunks = call(text("I will ", "write it."), tool("cut", "write", file_path="a.txt"), finish="max-tokens",
                  replay_state={"response": {"id": "resp_1"}, "blocks": state})
    del chunks[-2]  # the tool call's block never ended
    return chunks


def test_max_tokens_continue(agent: Workbench, tmp_path: Path) -> None:
    log = Log().turn("Write a long file.", cut_call(["sig-text", "sig-call"]), end="max-tokens")
    log.turn("Continue.", call(text("Done."), replay_state={"response": {"id": "resp_2"}}))
    _, session, answers = replay(agent, tmp_path, [log], ["Write a long file.", "Continue."])
    assert [answer["result"]["stopReason"] for answer in answers] == ["max_tokens", "end_turn"]
    live = root_log(agent, session)
    first, second = data(live, "assistant/message")
    assert first["message"]["content"] == [{"type": "text", "text": "I will write it."}]
    assert first["message"]["source"]["replayState"] == {"response": {"id": "resp_1"}, "blocks": ["sig-text"]}
    assert second["message"]["source"]["replayState"] == {"response": {"id": "resp_2"}}
    assert [end["reason"]["kind"] for end in data(live, "turn/end")] == ["max-tokens", "completed"]
    assert not data(live, "tool/call")


def test_max_tokens_with_a_state_that_does_not_fit_drops_the_state(agent: Workbench, tmp_path: Path) -> None:
    log = Log().turn("Write.", cut_call(["one", "two", "three"]), end="max-tokens")
    _, session, _ = replay(agent, tmp_path, [log], ["Write."])
    (message,) = data(root_log(agent, session), "assistant/message")
    assert "replayState" not in message["message"]["source"]


# ---------------------------------------------------------------- files


def test_fs_policy_reject(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "config.txt").write_text("mode = slow\n")
    change = tool("call_1", "edit", file_path="config.txt", old_string="slow", new_string="fast")
    log = Log().turn(
        "Make it fast.",
        step(call(change), fs_error('edit requires reading "{{cwd}}/config.txt" first — read the file, then retry',
                                    "FS_NOT_OBSERVED")),
        step(call(tool("call_2", "read", file_path="config.txt")),
             envelope("config.txt", "1: mode = slow", "", "(End of file - total 1 lines)")),
        step(call(change), "The file {{cwd}}/config.txt has been updated successfully."), says("Fast now."))
    _, session, _ = replay(agent, tmp_path, [log], ["Make it fast."])
    assert codes(root_log(agent, session)) == ["FS_NOT_OBSERVED", None, None]
    assert (agent.workspace / "config.txt").read_text() == "mode = fast\n"


def test_fs_read_window(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 21)))
    log = Log().turn(
        "Look at the middle.",
        step(call(tool("call_1", "read", file_path="long.txt", offset=5, limit=3)),
             envelope("long.txt", "5: line 5", "6: line 6", "7: line 7", "",
                      "(Showing lines 5-7 of 20. Use offset=8 to continue.)")), says("Seen."))
    process, session, _ = replay(agent, tmp_path, [log], ["Look at the middle."])
    (result,) = data(root_log(agent, session), "tool/result")
    assert result["meta"] == {
        "path": str(agent.workspace / "long.txt"), "offset": 5, "totalLines": 20,
        "lines": [{"number": number, "text": f"line {number}"} for number in (5, 6, 7)]}
    announced = next(update for update in process.updates(session) if update["sessionUpdate"] == "tool_call")
    assert announced["locations"] == [{"path": str(agent.workspace / "long.txt"), "line": 5}]


def test_fs_write_overwrite(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "notes.txt").write_text("".join(f"{number}\n" for number in range(1, 11)))
    new = "".join("five\n" if number == 5 else f"{number}\n" for number in range(1, 11))
    listed = [f"{number}: {number}" for number in range(1, 11)]
    log = Log().turn(
        "Spell it out.",
        step(call(tool("call_0", "write", file_path="notes.txt", content=new)),
             fs_error('cannot overwrite existing "{{cwd}}/notes.txt" without reading it first — read the file, '
                      "then retry", "FS_NOT_OBSERVED")),
        step(call(tool("call_1", "read", file_path="notes.txt")),
             envelope("notes.txt", *listed, "", "(End of file - total 10 lines)")),
        step(call(tool("call_2", "write", file_path="notes.txt", content=new)),
             envelope("notes.txt", "Updated file")), says("Done."))
    process, session, _ = replay(agent, tmp_path, [log], ["Spell it out."])
    assert data(root_log(agent, session), "tool/result")[2]["meta"] == {"diffs": [
        {"path": "notes.txt", "oldText": "2\n3\n4\n5\n6\n7\n8", "newText": "2\n3\n4\nfive\n6\n7\n8"}]}
    final = [update for update in process.updates(session) if update.get("status") == "completed"][-1]
    assert final["content"] == [{"type": "diff", "path": str(agent.workspace / "notes.txt"),
                                 "oldText": "2\n3\n4\n5\n6\n7\n8", "newText": "2\n3\n4\nfive\n6\n7\n8"}]


def test_fs_delete_recreate(agent: Workbench, tmp_path: Path) -> None:
    (agent.workspace / "a.txt").write_text("old\n")
    missing = fs_error('cannot read "{{cwd}}/a.txt": not found', "FS_NOT_FOUND")
    log = Log().turn(
        "Make it anew.",
        step(call(tool("call_1", "read", file_path="a.txt")),
             envelope("a.txt", "1: old", "", "(End of file - total 1 lines)")),
        step(call(tool("call_2", "bash", command="rm a.txt", description="Delete")), "(no output)"),
        step(call(tool("call_3", "read", file_path="a.txt")), missing),
        step(call(tool("call_4", "write", file_path="a.txt", content="new\n")), envelope("a.txt", "Created file")),
        says("Anew."))
    _, session, _ = replay(agent, tmp_path, [log], ["Make it anew."])
    live = root_log(agent, session)
    assert codes(live) == [None, None, "FS_NOT_FOUND", None]
    assert data(live, "tool/result")[3]["meta"] == {"diffs": []}
    assert (agent.workspace / "a.txt").read_text() == "new\n"


# ---------------------------------------------------------------- children


def delegating(call_id: str, prompt: str) -> Call:
    return call(tool(call_id, "subagent", description="Delegate", prompt=prompt, run_in_background=False))


def test_subagent_depth_two_rejection(agent: Workbench, tmp_path: Path) -> None:
    refusal = "subagent depth 3 exceeds maxDepth 2"
    parent = Log("parent").turn("Go deep.", step(delegating("call_1", "Level one."), "Level one done."),
                                says("All done."))
    child = parent.spawned("child", None).turn("Level one.", step(delegating("call_1", "Level two."),
                                                                  "Level two done."), says("Level one done."))
    grandchild = child.spawned("grandchild", None).turn(
        "Level two.", step(delegating("call_1", "Level three."), Result(f"Error: {refusal}", is_error=True)),
        says("Level two done."))
    _, session, _ = replay(agent, tmp_path, [parent, child, grandchild], ["Go deep."],
                           LIVE | {"ACP_SUBAGENT_MAX_DEPTH": "2"})
    logs = logs_of(agent, session)
    assert [log.header["delegationDepth"] for log in logs] == [0, 1, 2]
    assert [len(data(log, "request/sent")) for log in logs] == [2, 2, 2]


def test_subagent_max_tokens_partial(agent: Workbench, tmp_path: Path) -> None:
    partial = ("Error: subagent run hit its token limit before finishing\n"
               "Partial output before the run ended:\n"
               "Found two of three.")
    parent = Log("parent").turn("Find three.", step(delegating("call_1", "Find."),
                                                    Result(partial, is_error=True)), says("Only two."))
    child = parent.spawned("child", None).turn(
        "Find.",
        step(call(text("Found two of three."), tool("t", "todo_write", todos=[
            {"content": "Find the third", "status": "in_progress"}])),
             "Updated todo list: 0 pending, 1 in progress, 0 completed."),
        call(tool("lost", "bash", command="never", description="d"), finish="max-tokens"), end="max-tokens")
    del child.events[-3]["data"]["message"]["content"][:]  # tool calls are dropped at the limit
    _, session, (answer,) = replay(agent, tmp_path, [parent, child], ["Find three."])
    assert answer["result"] == {"stopReason": "end_turn"}
    assert "error" not in data(root_log(agent, session), "tool/result")[0]


def test_subagent_parallel(agent: Workbench, tmp_path: Path) -> None:
    both = call(*[tool(f"call_{number}", "subagent", description="Twin", prompt="Count to three.")
                  for number in (1, 2)])
    parent = Log("{{sessionId}}", created=0).turn("Twice.", step(both, "1 2 3", "1 2 3"), says("Counted."))
    twins = [parent.spawned("{{sessionId}}", None).turn("Count to three.", says("1 ", "2 ", "3")) for _ in "ab"]
    for twin in twins:
        twin.header["createdAt"] = 0
    process, session, _ = replay(agent, tmp_path, [parent, *twins], ["Twice."])
    root, *children = logs_of(agent, session)
    assert order(root, "tool/call", "tool/result") == ["tool/call", "tool/call", "tool/result", "tool/result"]
    assert [log.header["spawn"] for log in children] == [{"callId": f"call_{n}", "index": 0} for n in (1, 2)]
    assert "drift" not in process.stderr

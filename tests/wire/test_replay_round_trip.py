"""What the agent stores is what it replays: a run's own directory gives the same wire and the same logs again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.schema import Frame
from tests.wire.recordings import (
    Log,
    Part,
    call,
    failed,
    hang,
    says,
    script,
    step,
    text,
    thought,
    throw,
    tool,
    write,
)
from tests.wire.runs import LIVE, Tokens, begin, directory_of, logs_of, normal_logs, results, root_log, side_by_side

FULL = {"ACP_PERMISSION_MODE": "full-access"}
Drive = Callable[[AgentProcess, str], None]
Traces = tuple[list[str], dict[str, list[str]]]


def run(agent: Workbench, replay: Path, environ: Mapping[str, str], name: str, drive: Drive) -> tuple[Path, Traces]:
    """One session in a new workspace: its stored directory, and what is comparable of its wire and its logs."""
    workspace = agent.workspace / name
    workspace.mkdir()
    process = agent(replay=replay, environ=environ)
    process.initialize()
    session = process.new_session(workspace)
    drive(process, session)
    assert process.close() == 0
    tokens = Tokens(workspace)
    wire = [tokens(json.dumps(frame)) for frame in side_by_side(process.received)]
    directory = directory_of(agent, session)
    return directory, (wire, normal_logs(directory, workspace))


def round_trips(agent: Workbench, replay: Path, environ: Mapping[str, str], drive: Drive) -> Path:
    """Run once, replay what was stored, replay what that stored: all the same. Returns the first directory."""
    directory, first = run(agent, replay, environ, "first", drive)
    stored = directory
    for name in ("second", "third"):
        stored, traces = run(agent, stored, FULL, name, drive)
        assert traces[0] == first[0], f"the wire of the {name} run"
        assert traces[1] == first[1], f"the logs of the {name} run"
    return directory


def spawn(call_id: str, prompt: str, kind: str = "subagent") -> Part:
    return tool(call_id, kind, description=call_id, prompt=prompt)


def ending(answer: Frame) -> object:
    """A prompt's stop reason, or its error's code."""
    return answer["result"]["stopReason"] if "result" in answer else answer["error"]["code"]


# ---------------------------------------------------------------- one session


EVERYTHING = (
    call(thought("Let ", "me ", "see ", "now."), text("Look", "ing", " around", ".")),
    call(tool("w", "write", file_path="a.txt", content="one\ntwo\n"),
         tool("b", "bash", command="cat a.txt; echo bad >&2; exit 4", description="d"),
         tool("x", "read", file_path="gone.txt"), tool("u", "teleport")),
    throw("slow down", "RATE_LIMIT", text("Half")),
    call(tool("e", "edit", file_path="a.txt", old_string="two", new_string="three"),
         tool("r", "read", file_path="a.txt"), tool("g", "grep", pattern="three"),
         tool("t", "todo_write", todos=[{"content": "Go on", "status": "in_progress"}]),
         usage={"inputTokens": 7, "outputTokens": 3}),
    call(text("Cut "), tool("n", "bash", command="never", description="d"), finish="max-tokens"),
    throw("no", "REFUSAL", text("I wo")),
    failed("it broke", "BROKEN", text("Well")),
    hang(),
    says("The ", "end", "."),
)
"""Thoughts, tools of all kinds, a retry, an answer cut short, a refusal, an error, a call to be cancelled."""


def drive_everything(process: AgentProcess, session: str) -> None:
    for number, expected in enumerate(("end_turn", "max_tokens", "refusal", -32603)):
        assert ending(process.prompt(session, f"Prompt {number}.")) == expected
    prompt = process.start_prompt(session, "To be cancelled.")
    process.wait_for_update("agent_message_chunk", content={"type": "text", "text": "partial"})
    process.cancel(session)
    assert ending(process.response(prompt)) == "cancelled"
    assert ending(process.prompt(session, "The last.")) == "end_turn"


def test_a_session_with_everything_in_it_replays_to_itself_twice(agent: Workbench, tmp_path: Path) -> None:
    round_trips(agent, script(tmp_path / "replay", *EVERYTHING), LIVE, drive_everything)
    assert (agent.workspace / "first" / "a.txt").read_text() == "one\nthree\n"
    assert not list((agent.workspace / "second").iterdir()), "a replay touches nothing"


def test_a_stored_session_can_do_its_work_again_elsewhere(agent: Workbench, tmp_path: Path) -> None:
    directory, first = run(agent, script(tmp_path / "replay", *EVERYTHING), LIVE, "first", drive_everything)
    _, second = run(agent, directory, LIVE, "second", drive_everything)
    assert second == first
    assert (agent.workspace / "second" / "a.txt").read_text() == "one\nthree\n"
    assert "drift" not in agent.agents[-1].stderr


def test_a_call_that_was_cancelled_before_its_first_chunk_is_held_again(agent: Workbench, tmp_path: Path) -> None:
    def drive(process: AgentProcess, session: str) -> None:
        prompt = process.start_prompt(session, "Wait.")
        process.wait_for_update("session_info_update")
        process.cancel(session)
        assert ending(process.response(prompt)) == "cancelled"
        assert process.text(session) == ""

    # At this pace the first chunk would come long after the cancel.
    slow = FULL | {"ACP_REPLAY_PACE": "20000"}
    round_trips(agent, script(tmp_path / "replay", says("Never.")), slow, drive)


# ---------------------------------------------------------------- families


def family(directory: Path) -> Path:
    """Twins, a fork and a child of a child, as a foreign harness records them: without spawn keys."""
    parent = Log("parent").turn("Hello.", says("Hi ", "there", ", ", "you."))
    fork = parent.forked("fork", None).turn("Remember?", says("I ", "do", "."))
    parent.turn("Go.", step(call(spawn("a", "Twin."), spawn("b", "Twin."), spawn("c", "Deep.")), *["(other)"] * 3),
                step(call(spawn("f", "Remember?", "subagent_fork")), "(other)"), says("All ", "done", "."))
    twins = [parent.spawned(name, None).turn("Twin.", says(f"I am {name}.")) for name in ("one", "two")]
    deep = parent.spawned("deep", None)
    deep.turn("Deep.", step(call(spawn("a", "Deeper.")), "(other)"), call(text("Cut"), finish="max-tokens"))
    deeper = deep.spawned("deeper", None).turn("Deeper.", says("Deepest."))
    return write(directory, parent, *twins, deep, deeper, fork)


def drive_family(process: AgentProcess, session: str) -> None:
    for prompt in ("Hello.", "Go."):
        assert ending(process.prompt(session, prompt)) == "end_turn"


def test_a_family_recorded_elsewhere_replays_to_a_family_of_our_own_which_replays_to_itself(
    agent: Workbench, tmp_path: Path,
) -> None:
    directory = round_trips(agent, family(tmp_path / "replay"), FULL, drive_family)
    root, *children = logs_of(agent, directory.name)
    assert sorted((log.header["delegationDepth"], log.header["spawn"]["callId"]) for log in children) == [
        (1, "a"), (1, "b"), (1, "c"), (1, "f"), (2, "a")]
    assert results(root) == [
        "I am one.", "I am two.",
        "Error: subagent run hit its token limit before finishing\nPartial output before the run ended:\nCut",
        "I do."]


def test_two_stored_roots_in_one_directory_answer_in_the_order_of_their_first_calls(
    agent: Workbench, tmp_path: Path,
) -> None:
    roots = [Log(name, created=at).turn("1", says(f"{name} 1. ")).turn("2", says(f"{name} 2. "))
             for at, name in enumerate(("left", "right"))]
    first, early = begin(agent, write(tmp_path / "replay", *roots))
    late = first.new_session()
    for session, prompt in ((late, "1"), (early, "1"), (early, "2"), (late, "2")):
        first.prompt(session, prompt)
    first.close()
    assert root_log(agent, early).header["createdAt"] < root_log(agent, late).header["createdAt"]
    both = tmp_path / "both"
    both.mkdir()
    for number, session in enumerate((early, late)):
        stored = directory_of(agent, session) / "session.jsonl"
        shutil.copy(stored, both / ("session.1.jsonl" if number else "session.jsonl"))
    process, one = begin(agent, both)
    two = process.new_session()
    for session, prompt in ((one, "1"), (two, "1"), (two, "2"), (one, "2")):
        process.prompt(session, prompt)
    assert process.text(one) == first.text(late) == "left 1. left 2. "
    assert process.text(two) == first.text(early) == "right 1. right 2. "

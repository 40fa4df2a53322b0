"""Replayed families: every child is served its own recording, whoever runs or finishes first."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from itertools import filterfalse, permutations
from pathlib import Path

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.log_laws import Json
from tests.wire.recordings import Log, Part, call, says, step, text, tool, write
from tests.wire.runs import (
    ECHO,
    LIVE,
    Tokens,
    begin,
    data,
    directory_of,
    end_of,
    failures,
    log_files,
    log_in,
    logs_of,
    normal_logs,
    results,
    root_log,
)

REPEAT = LIVE | {"ACP_REPLAY_SESSIONS": "repeat"}


def spawn(call_id: str, prompt: str) -> Part:
    return tool(call_id, "subagent", description=f"Child {call_id}", prompt=prompt)


def fork(call_id: str, prompt: str) -> Part:
    return tool(call_id, "subagent_fork", description=f"Fork {call_id}", prompt=prompt)


# ---------------------------------------------------------------- side by side


def gated_child(parent: Log, name: str) -> Log:
    """A child that waits at a gate, a named pipe, before it answers."""
    wait = tool("wait", "bash", command=f"cat gate-{name}", description="Wait")
    answer = says(*f"I am {name} .".split(" "))
    return parent.spawned(f"child-{name}", name).turn(f"Be {name}.", step(call(wait), "open\n"), answer)


def child_has_ended(directory: Path, name: str) -> bool:
    """Whether the child of this call has stored its turn's end."""
    for file in log_files(directory)[1:]:
        header, *rows = file.read_bytes().split(b"\n")
        if json.loads(header)["spawn"]["callId"] == name:
            return any(row.startswith(b'{"type":"turn/end"') for row in rows)
    return False


def run_in_order(agent: Workbench, process: AgentProcess, finishing: Sequence[str]) -> tuple[str, Path]:
    """A session of its own, in a directory of its own, whose children finish in this order."""
    workspace = agent.workspace / "-".join(finishing)
    workspace.mkdir()
    for name in finishing:
        os.mkfifo(workspace / f"gate-{name}")
    session = process.new_session(workspace)
    prompt = process.start_prompt(session, "All three.")
    for name in finishing:
        (workspace / f"gate-{name}").write_text("open\n")  # waits for the child to come to its gate
        process.wait_until(partial(child_has_ended, directory_of(agent, session), name), f"the end of child {name}")
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}
    return session, workspace


def is_progress(update: Json) -> bool:
    """How the calls of several children mix is not promised, only what each shows."""
    return update.get("status") == "in_progress" and "content" in update


def test_three_children_at_once_give_the_same_wire_and_logs_in_whatever_order_they_finish(
    agent: Workbench, tmp_path: Path,
) -> None:
    names = ("p", "q", "r")
    parent = Log("parent").turn(
        "All three.", step(call(*[spawn(name, f"Be {name}.") for name in names]), *["(other)"] * 3), ECHO)
    replay = write(tmp_path / "replay", parent, *[gated_child(parent, name) for name in names])
    process = agent(replay=replay, environ=REPEAT)
    process.initialize()
    wires, logs = [], []
    for finishing in permutations(names):
        session, workspace = run_in_order(agent, process, finishing)
        tokens = Tokens(workspace)
        shown = [json.loads(tokens(json.dumps(update))) for update in process.updates(session)]
        progress = {name: [update for update in filter(is_progress, shown) if update["toolCallId"] == name]
                    for name in names}
        wires.append((list(filterfalse(is_progress, shown)), progress))
        logs.append(normal_logs(directory_of(agent, session), workspace))
        assert results(root_log(agent, session)) == ["Iamp.", "Iamq.", "Iamr."]
    for wire, log in zip(wires, logs, strict=True):
        assert wire == wires[0]
        assert log == logs[0]


def test_twins_are_told_apart_by_the_calls_that_made_them(agent: Workbench, tmp_path: Path) -> None:
    same = "Count."
    parent = Log("parent").turn("Go.", step(call(spawn("a", same), spawn("b", same)), "one", "two"), says("."))
    foreign = [parent.spawned("x", None).turn(same, says("one")), parent.spawned("y", None).turn(same, says("two"))]
    process, session = begin(agent, write(tmp_path / "replay", parent, *foreign))
    process.prompt(session, "Go.")
    assert results(root_log(agent, session)) == ["one", "two"]


def test_a_long_answer_and_a_short_one_side_by_side_do_not_mix(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Go.", step(call(spawn("l", "Long."), spawn("s", "Short.")), "(other)", "short"),
                                says("."))
    words = [f"{number} " for number in range(5000)]
    long = parent.spawned("long", "l").turn("Long.", says(*words))
    short = parent.spawned("short", "s").turn("Short.", says("short"))
    process, session = begin(agent, write(tmp_path / "replay", parent, short, long))
    process.prompt(session, "Go.")
    assert results(root_log(agent, session)) == ["".join(words), "short"]


# ---------------------------------------------------------------- one after the other


def test_a_call_id_that_is_used_in_two_turns_leads_to_two_children(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent")
    for turn, name in enumerate(("First", "Second")):
        parent.turn(f"{name}.", step(call(spawn("same", f"{name} task.")), f"{name} answer."), says(f"{turn}"))
    children = [parent.spawned("two", ("same", 1)).turn("Second task.", says("Second answer.")),
                parent.spawned("one", ("same", 0)).turn("First task.", says("First answer."))]
    process, session = begin(agent, write(tmp_path / "replay", parent, *children))
    process.prompt(session, "First.")
    process.prompt(session, "Second.")
    process.close()
    root, *live = logs_of(agent, session)
    assert results(root) == ["First answer.", "Second answer."]
    assert [log.header["spawn"] for log in live] == [{"callId": "same", "index": index} for index in (0, 1)]


def test_a_fork_knows_the_ended_turns_and_is_served_only_its_own_calls(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Say much.", says(*["word "] * 50))
    child = parent.forked("fork", "f").turn("What was it?", ECHO)
    parent.turn("Recall.", step(call(text("Wait."), fork("f", "What was it?")), "(other)"), says("Good."))
    replay = write(tmp_path / "replay", parent, child)
    assert child.header["seedLength"] > len(child.lines()), "the boundary counts events, of which rows hold many"
    process, session = begin(agent, replay)
    process.prompt(session, "Say much.")
    process.prompt(session, "Recall.")
    process.close()
    root, live = logs_of(agent, session)
    (told,) = results(root)
    assert "Say much." in told
    assert "word word" in told
    assert "Recall." not in told
    seed = live.header["seedLength"]
    assert live.events[:seed] == root.events[:seed]
    assert [live.events[at]["type"] for at in (seed - 1, seed)] == ["turn/end", "session/end-seed"]
    assert data(live, "turn/start")[-1] == {"turn": 2}


def test_a_fork_in_the_first_turn_has_nothing_to_inherit_and_is_a_spawn(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Go.", step(call(fork("f", "Task.")), "(other)"), says("."))
    child = parent.spawned("child", "f").turn("Task.", ECHO)
    process, session = begin(agent, write(tmp_path / "replay", parent, child))
    process.prompt(session, "Go.")
    root, live = logs_of(agent, session)
    assert "seedLength" not in live.header
    assert not data(live, "session/end-seed")
    assert "Go." not in results(root)[0]


def test_a_spawn_a_fork_and_a_child_of_a_child_in_one_turn_each_get_their_own(
    agent: Workbench, tmp_path: Path,
) -> None:
    parent = Log("parent").turn("Hello.", says("Hi."))
    forked = parent.forked("forked", "f").turn("Fork task.", says("From the fork."))
    parent.turn("Go.", step(call(spawn("s", "Spawn task."), fork("f", "Fork task.")), "(other)", "(other)"),
                says("."))
    spawned = parent.spawned("spawned", "s").turn(
        "Spawn task.", step(call(spawn("s", "Deep task.")), "(other)"), says("From the spawn."))
    deep = spawned.spawned("deep", "s").turn("Deep task.", says("From the deep."))
    process, session = begin(agent, write(tmp_path / "replay", parent, deep, forked, spawned))
    process.prompt(session, "Hello.")
    process.prompt(session, "Go.")
    process.close()
    root, *children = logs_of(agent, session)
    assert results(root) == ["From the spawn.", "From the fork."]
    (grandchild,) = [log for log in children if log.header["delegationDepth"] == 2]
    (child,) = [log for log in children if log.header["id"] == grandchild.header["parentSession"]]
    assert results(child) == ["From the deep."]


def test_no_child_is_made_below_the_depth_limit(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Go.", step(call(spawn("a", "One.")), "(other)"), says("."))
    child = parent.spawned("child", "a").turn(
        "One.", step(call(spawn("b", "Two.")), "Error: subagent depth 2 exceeds maxDepth 1"), says("Alone."))
    process, session = begin(agent, write(tmp_path / "replay", parent, child), {"ACP_SUBAGENT_MAX_DEPTH": "1"})
    process.prompt(session, "Go.")
    process.close()
    root, live = logs_of(agent, session)
    assert results(root) == ["Alone."]
    assert results(live) == ["Error: subagent depth 2 exceeds maxDepth 1"]
    assert failures(live) == [True]


def test_a_child_nobody_recorded_is_an_error_with_the_recorded_addresses(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("Go.", step(call(spawn("a", "One."), spawn("b", "Two.")), "(other)", "(other)"),
                                says("."))
    child = parent.spawned("child", "a").turn("One.", says("Here."))
    process, session = begin(agent, write(tmp_path / "replay", parent, child))
    process.prompt(session, "Go.")
    process.close()
    first, second = results(root_log(agent, session))
    assert first == "Here."
    assert second.startswith("Error: subagent run failed\nDiagnostic: ")
    assert "stands at root > b, and nothing is recorded there" in second
    assert "root > a (session.1.jsonl)" in second


def test_a_cancel_ends_children_before_their_parent_is_done(agent: Workbench, tmp_path: Path) -> None:
    for name in "pq":
        os.mkfifo(agent.workspace / f"gate-{name}")
    parent = Log("parent").turn("Go.", step(call(spawn("p", "Be p."), spawn("q", "Be q.")), "(other)", "(other)"),
                                says("."))
    replay = write(tmp_path / "replay", parent, *[gated_child(parent, name) for name in "pq"])
    process, session = begin(agent, replay, LIVE)
    prompt = process.start_prompt(session, "Go.")
    # Opening a pipe to write waits until its reader is there: both children are at their gates.
    gates = [(agent.workspace / f"gate-{name}").open("w") for name in "pq"]
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    for gate in gates:
        gate.close()
    process.close()
    root, *children = logs_of(agent, session)
    assert end_of(root) == {"kind": "aborted", "reason": {"kind": "user"}}
    assert [end_of(log) for log in children] == [{"kind": "aborted", "reason": {"kind": "parent"}}] * 2
    assert [results(log) for log in children] == [["Error: tool call aborted"]] * 2
    assert failures(root) == [True, True]
    last = [max(event["time"] for event in log.events) for log in (root, *children)]
    assert last[0] >= max(last[1:]), "children first"


def test_every_stored_directory_of_a_family_names_its_files_in_the_order_of_creation(
    agent: Workbench, tmp_path: Path,
) -> None:
    parent = Log("parent").turn("Go.", step(call(*[spawn(f"c{n}", f"Be {n}.") for n in range(12)]),
                                            *["(other)"] * 12), says("."))
    children = [parent.spawned(f"child-{n}", f"c{n}").turn(f"Be {n}.", says(f"I am {n}.")) for n in range(12)]
    process, session = begin(agent, write(tmp_path / "replay", parent, *children))
    process.prompt(session, "Go.")
    process.close()
    files = log_files(directory_of(agent, session))
    assert [file.name for file in files] == ["session.jsonl", *[f"session.{n}.jsonl" for n in range(1, 13)]]
    assert [log_in(file).header["spawn"]["callId"] for file in files[1:]] == [f"c{n}" for n in range(12)]

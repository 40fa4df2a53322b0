"""Where recorded sessions stand, with and without `spawn` keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay import addresses, fixture
from replay.problems import Findings
from tests.unit.replay.recordings import Log, answers


def places(directory: Path) -> dict[str, str | None]:
    """Each file's address in words."""
    findings = Findings()
    placed = addresses.place(fixture.load(directory, findings), findings)
    assert [str(fault) for fault in findings.faults] == []
    return {
        one.recording.file_name: None if one.path is None else addresses.address(one.path) for one in placed
    }


def faults(directory: Path) -> list[str]:
    findings = Findings()
    addresses.place(fixture.load(directory, findings), findings)
    return [str(fault) for fault in findings.faults]


def test_children_belong_to_the_call_that_asks_for_their_task(tmp_path: Path) -> None:
    Log("root").begin(1).delegate(1, 1, "call-a", "do A").delegate(1, 1, "call-b", "do B").end(1).write(tmp_path)
    answers("x", "b", parent="root", task="do B", created=1).write(tmp_path, "session.1.jsonl")
    answers("y", "a", parent="root", task="do A", created=2).write(tmp_path, "session.2.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.2.jsonl": "root > call-a", "session.1.jsonl": "root > call-b",
    }  # fmt: skip


def test_equal_tasks_pair_up_in_the_order_of_creation(tmp_path: Path) -> None:
    Log("root").begin(1).delegate(1, 1, "first", "twin").delegate(1, 1, "second", "twin").end(1).write(tmp_path)
    answers("late", "x", parent="root", task="twin", created=9).write(tmp_path, "session.1.jsonl")
    answers("early", "x", parent="root", task="twin", created=5).write(tmp_path, "session.2.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.2.jsonl": "root > first", "session.1.jsonl": "root > second",
    }  # fmt: skip


def test_calls_that_were_refused_made_no_child(tmp_path: Path) -> None:
    log = Log("root").begin(1)
    log.delegate(1, 1, "refused", "task", result="Error: subagent depth 2 exceeds maxDepth 1", is_error=True)
    log.delegate(1, 1, "skipped", "task", result="Error: x", is_error=True, code="ABORTED_BEFORE_DISPATCH")
    log.delegate(1, 1, "served", "task").end(1).write(tmp_path)
    answers("child", "x", parent="root", task="task").write(tmp_path, "session.1.jsonl")
    assert places(tmp_path)["session.1.jsonl"] == "root > served"


@pytest.mark.parametrize(
    "headline",
    ["subagent run hit its token limit before finishing", "subagent run was cancelled",
     "subagent declined the task", "subagent run failed", "subagent run ended abnormally"],
)  # fmt: skip
def test_calls_whose_child_failed_made_one(tmp_path: Path, headline: str) -> None:
    log = Log("root").begin(1).delegate(1, 1, "failed", "task", result=f"Error: {headline}\nmore", is_error=True)
    log.delegate(1, 1, "again", "task").end(1).write(tmp_path)
    answers("one", "x", parent="root", task="task", created=1).write(tmp_path, "session.1.jsonl")
    answers("two", "x", parent="root", task="task", created=2).write(tmp_path, "session.2.jsonl")
    assert list(places(tmp_path).values()) == ["root", "root > failed", "root > again"]


def test_an_aborted_call_made_a_child_only_if_no_other_call_accounts_for_it(tmp_path: Path) -> None:
    log = Log("root").begin(1).delegate(1, 1, "aborted", "task", result="Error: a", is_error=True, code="ABORTED")
    log.delegate(1, 1, "open", "other", result=None)
    log.end(1, "aborted").begin(2).delegate(2, 1, "again", "task").end(2).write(tmp_path)
    answers("one", "x", parent="root", task="task", created=2).write(tmp_path, "session.1.jsonl")
    answers("two", "x", parent="root", task="other", created=3).write(tmp_path, "session.2.jsonl")
    assert places(tmp_path)["session.1.jsonl"] == "root > again"
    assert places(tmp_path)["session.2.jsonl"] == "root > open"
    answers("zero", "x", parent="root", task="task", created=1).write(tmp_path, "session.3.jsonl")
    assert places(tmp_path)["session.3.jsonl"] == "root > aborted"


def test_a_refused_call_is_not_taken_for_an_aborted_one(tmp_path: Path) -> None:
    log = Log("root").begin(1).delegate(1, 1, "refused", "task", result="Error: no", is_error=True)
    log.delegate(1, 1, "aborted", "task", result="Error: a", is_error=True, code="ABORTED").end(1, "aborted")
    log.write(tmp_path)
    answers("child", "x", parent="root", task="task").write(tmp_path, "session.1.jsonl")
    assert places(tmp_path)["session.1.jsonl"] == "root > aborted"


def test_an_index_tells_calls_with_one_id_apart(tmp_path: Path) -> None:
    log = Log("root")
    for turn, task in enumerate(("one", "two", "three"), 1):
        log.begin(turn).delegate(turn, 1, "call_0", task).end(turn)
    log.write(tmp_path)
    for number, task in enumerate(("three", "one", "two"), 1):
        answers(task, task, parent="root", task=task, created=number).write(tmp_path, f"session.{number}.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.2.jsonl": "root > call_0", "session.3.jsonl": "root > call_0[1]",
        "session.1.jsonl": "root > call_0[2]",
    }  # fmt: skip


def test_spawn_keys_are_taken_as_they_are(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    answers("b", "x", parent="root", spawn=("call", 1)).write(tmp_path, "session.1.jsonl")
    answers("a", "x", parent="root", spawn=("call", 0)).write(tmp_path, "session.2.jsonl")
    answers("aa", "x", parent="a", depth=2, spawn=("deep", 0)).write(tmp_path, "session.3.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.1.jsonl": "root > call[1]", "session.2.jsonl": "root > call",
        "session.3.jsonl": "root > call > deep",
    }  # fmt: skip


def test_inherited_calls_of_a_fork_made_none_of_its_children(tmp_path: Path) -> None:
    log = Log("root").begin(1).delegate(1, 1, "old", "task").end(1)
    seed = len(log.events)
    log.begin(2).delegate(2, 1, "fork", "go on").end(2).write(tmp_path)
    fork = Log("child", parent="root", seed=seed, created=2)
    fork.events = log.events[:seed]
    fork.add("session/end-seed").begin(2).user("go on").delegate(2, 1, "new", "task").end(2)
    fork.write(tmp_path, "session.2.jsonl")
    answers("first", "x", parent="root", task="task", created=1).write(tmp_path, "session.1.jsonl")
    answers("deep", "x", parent="child", depth=2, task="task", created=3).write(tmp_path, "session.3.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.1.jsonl": "root > old", "session.2.jsonl": "root > fork",
        "session.3.jsonl": "root > fork > new",
    }  # fmt: skip


def test_sessions_without_ids_are_related_by_depth_and_task(tmp_path: Path) -> None:
    token = "{{sessionId}}"
    Log(token).begin(1).delegate(1, 1, "a", "A").delegate(1, 1, "b", "B").end(1).write(tmp_path)
    for number, (task, below) in enumerate((("A", "AA"), ("B", "BB")), 1):
        log = Log(token, parent=token).begin(1).user(task).delegate(1, 1, f"to-{below}", below).end(1)
        log.write(tmp_path, f"session.{number}.jsonl")
    answers(token, "x", parent=token, depth=2, task="BB").write(tmp_path, "session.3.jsonl")
    answers(token, "x", parent=token, depth=2, task="AA").write(tmp_path, "session.4.jsonl")
    assert places(tmp_path) == {
        "session.jsonl": "root", "session.1.jsonl": "root > a", "session.4.jsonl": "root > a > to-AA",
        "session.2.jsonl": "root > b", "session.3.jsonl": "root > b > to-BB",
    }  # fmt: skip


def test_a_child_without_a_task_takes_a_call_nobody_else_answers_for(tmp_path: Path) -> None:
    log = Log("root").begin(1).delegate(1, 1, "ok", "A")
    log.delegate(1, 1, "bad", "B", result="Error: subagent run failed", is_error=True).end(1).write(tmp_path)
    Log("idle", parent="root").add("approval/policy", policy="never").write(tmp_path, "session.1.jsonl")
    answers("a", "x", parent="root", task="A").write(tmp_path, "session.2.jsonl")
    assert places(tmp_path)["session.1.jsonl"] == "root > bad"


def test_a_child_nothing_asks_for_is_doubted_and_has_no_address(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    child = answers("child", "x", parent="root", task="mystery").write(tmp_path, "session.1.jsonl")
    findings = Findings()
    placed = addresses.place(fixture.load(tmp_path, findings), findings)
    assert [one.path for one in placed] == [(), None]
    assert [str(doubt) for doubt in findings.doubts] == [
        f"{child}:1: no delegating call in session.jsonl asks for this child's task, so nothing can ask for its"
        " recorded calls"
    ]


def test_a_delegated_session_without_its_parent_is_told(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    child = answers("child", "x", parent="elsewhere").write(tmp_path, "session.1.jsonl")
    assert faults(tmp_path) == [
        f"{child}:1: this is a delegated session, but its parent elsewhere is not in the directory; put the"
        " parent's log beside it"
    ]


def test_sessions_that_are_each_other_s_parents_are_told(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    answers("a", "x", parent="b").write(tmp_path, "session.1.jsonl")
    answers("b", "x", parent="a").write(tmp_path, "session.2.jsonl")
    assert [fault.partition(": ")[2] for fault in faults(tmp_path)] == [
        "this child and its parents name each other; restore the headers"
    ] * 2


def test_two_children_at_one_address_are_told(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    answers("a", "x", parent="root", spawn=("call", 0), created=1).write(tmp_path, "session.1.jsonl")
    second = answers("b", "x", parent="root", spawn=("call", 0), created=2).write(tmp_path, "session.2.jsonl")
    assert faults(tmp_path) == [f"{second}:1: two sessions stand at root > call; remove one of them"]


def test_a_session_forked_by_a_client_is_a_root(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    fork = answers("fork", "x", depth=0, created=4)
    fork.header["parentSession"] = "root"
    fork.write(tmp_path, "session.1.jsonl")
    assert places(tmp_path) == {"session.jsonl": "root", "session.1.jsonl": "root"}


def test_roots_are_ordered_by_what_they_logged_of_their_first_call(tmp_path: Path) -> None:
    for name, root, created in (("session.jsonl", 2, 1), ("session.1.jsonl", 0, 9), ("session.2.jsonl", 1, 5)):
        log = Log(f"id-{root}", created=created).begin(1).sent(1, 1, 0, root=root).say(1, 1, "x").end(1)
        log.write(tmp_path, name)
    assert list(places(tmp_path)) == ["session.1.jsonl", "session.2.jsonl", "session.jsonl"]


def test_roots_that_did_not_log_it_follow_the_main_file_by_creation(tmp_path: Path) -> None:
    answers("z", "x", created=9).write(tmp_path, "session.jsonl")
    answers("b", "x", created=3).write(tmp_path, "session.1.jsonl")
    answers("a", "x", created=3).write(tmp_path, "session.2.jsonl")
    answers("c", "x", created=1).write(tmp_path, "session.3.jsonl")
    assert list(places(tmp_path)) == ["session.jsonl", "session.3.jsonl", "session.2.jsonl", "session.1.jsonl"]

"""Cutting a log into model calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_agent.session.events import BlockEnd, BlockStart, Finish, FinishReason, TextBlock, Usage, UsageChunk
from replay import fixture, script
from replay.problems import Findings
from replay.script import Call, Chunks, Held, Unfinished
from replay.stream import count, expand
from tests.unit.replay.recordings import Log, answers

ERROR = {"type": "finish", "reason": {"kind": "error", "failure": {"message": "busy", "code": "SERVER"}}}
ABORTED = {"type": "finish", "reason": {"kind": "aborted"}}


def cut(directory: Path, log: Log) -> list[Call]:
    log.write(directory)
    findings = Findings()
    (recording,) = fixture.load(directory, findings)
    calls = script.cut(recording, findings)
    assert findings.faults == []
    return calls


def kinds(calls: list[Call]) -> list[tuple[str, int | None, int | None, str, int]]:
    shown = []
    for call in calls:
        pieces = call.action.pieces if isinstance(call.action, Chunks | Held) else ()
        shown.append((call.purpose, call.turn, call.step, type(call.action).__name__, count(pieces)))
    return shown


def test_each_finish_ends_a_call(tmp_path: Path) -> None:
    log = Log().begin(1).say(1, 1, "one").add("step/start", turn=1, step=2).say(1, 2, "two").end(1, step=2)
    log.begin(2).say(2, 1, "three").end(2)
    assert kinds(cut(tmp_path, log)) == [
        ("main", 1, 1, "Chunks", 4), ("main", 1, 2, "Chunks", 4), ("main", 2, 1, "Chunks", 4),
    ]  # fmt: skip


def test_attempts_of_one_step_are_calls_of_their_own(tmp_path: Path) -> None:
    retry = {"retryId": "r", "turn": 1, "step": 1, "retry": 1, "maxRetries": 2, "delayMs": 1, "policyKey": "[]"}
    log = Log().begin(1).say(1, 1, "lost", finish=ERROR).add("llm/retry", **retry).add("llm/retry-started")
    assert kinds(cut(tmp_path, log.say(1, 1, "kept").end(1))) == [
        ("main", 1, 1, "Chunks", 4), ("main", 1, 1, "Chunks", 4),
    ]  # fmt: skip


def test_inherited_calls_are_no_part_of_a_fork_script(tmp_path: Path) -> None:
    log = answers("fork", "inherited", seed=10, depth=0)
    assert len(log.events) == 10
    log.add("session/end-seed").begin(2).say(2, 1, "own").end(2)
    assert kinds(cut(tmp_path, log)) == [("main", 2, 1, "Chunks", 4)]


def test_the_purpose_is_that_of_the_request_sent(tmp_path: Path) -> None:
    log = Log().begin(1).sent(1, 1, 0, purpose="title").say(1, 1, "t").sent(1, 1, 0).say(1, 1, "m").end(1)
    assert [(call.purpose, call.turn) for call in cut(tmp_path, log)] == [("title", 1), ("main", 1)]


@pytest.mark.parametrize("end", ["aborted", "interrupted"])
def test_a_call_cut_short_in_a_halted_turn_is_held(tmp_path: Path, end: str) -> None:
    log = Log().begin(1).say(1, 1, "part", finish=None).end(1, end).begin(2).say(2, 1, "whole").end(2)
    assert kinds(cut(tmp_path, log)) == [("main", 1, 1, "Held", 2), ("main", 2, 1, "Chunks", 4)]


def test_an_aborted_finish_in_a_halted_turn_is_held_before_it(tmp_path: Path) -> None:
    log = Log().begin(1).sent(1, 1, 0).say(1, 1, "part", finish=ABORTED).end(1, "aborted")
    (call,) = cut(tmp_path, log)
    assert isinstance(call.action, Held)
    assert not any(isinstance(chunk, Finish) for piece in call.action.pieces for chunk in expand(piece))


def test_an_aborted_finish_in_a_turn_that_went_on_is_served(tmp_path: Path) -> None:
    log = Log().begin(1).say(1, 1, "part", finish=ABORTED).end(1, "error")
    assert kinds(cut(tmp_path, log)) == [("main", 1, 1, "Chunks", 4)]


def test_a_call_cancelled_before_its_first_chunk_is_held(tmp_path: Path) -> None:
    foreign = Log().begin(1).user("go").end(1, "aborted").begin(2).say(2, 1, "ok").end(2)
    assert kinds(cut(tmp_path, foreign)) == [("main", 1, 1, "Held", 0), ("main", 2, 1, "Chunks", 4)]
    ours = Log().begin(1).sent(1, 1, 0).end(1, "interrupted")
    assert kinds(cut(tmp_path, ours)) == [("main", 1, 1, "Held", 0)]


def test_a_retry_cancelled_before_its_first_chunk_is_held(tmp_path: Path) -> None:
    retry = {"retryId": "r", "turn": 1, "step": 1, "retry": 1, "delayMs": 1}
    log = Log().begin(1).say(1, 1, "x", finish=ERROR).add("llm/retry", **retry)
    waiting = Log().begin(1).say(1, 1, "x", finish=ERROR).add("llm/retry", **retry).end(1, "aborted")
    assert kinds(cut(tmp_path, waiting)) == [("main", 1, 1, "Chunks", 4)]
    log.add("llm/retry-started").end(1, "aborted")
    assert kinds(cut(tmp_path, log)) == [("main", 1, 1, "Chunks", 4), ("main", 1, 1, "Held", 0)]


def test_a_step_that_logs_requests_and_sent_none_made_no_call(tmp_path: Path) -> None:
    log = Log().begin(1).sent(1, 1, 0).say(1, 1, "a").end(1).begin(2).end(2, "aborted")
    assert kinds(cut(tmp_path, log)) == [("main", 1, 1, "Chunks", 4)]


def test_a_turn_aborted_while_tools_ran_holds_no_further_call(tmp_path: Path) -> None:
    log = Log().begin(1).say(1, 1, "a").tool(1, 1, "c", "bash", "{}", "x").end(1, "aborted")
    assert kinds(cut(tmp_path, log)) == [("main", 1, 1, "Chunks", 4)]


def cut_short() -> Log:
    return Log().begin(1).say(1, 1, "a", finish=None)


UNFINISHED = [
    pytest.param(cut_short().end(1), 1, 1, id="completed turn"),
    pytest.param(Log().begin(2).say(2, 1, "a", finish=None), 2, 1, id="end of log"),
    pytest.param(cut_short().say(1, 2, "b").end(1), 1, 1, id="next step"),
    pytest.param(cut_short().begin(2).say(2, 1, "b").end(2), 1, 1, id="next turn"),
    pytest.param(cut_short().sent(1, 1, 1).say(1, 1, "b").end(1), 1, 1, id="next request"),
    pytest.param(Log().begin(1).sent(1, 1, 0).end(1), 1, 1, id="no chunk at all"),
    pytest.param(Log().begin(1).sent(1, 1, 0), 1, 1, id="no chunk, end of log"),
]


@pytest.mark.parametrize(("log", "turn", "step"), UNFINISHED)
def test_any_other_unfinished_call_asks_for_an_override(tmp_path: Path, log: Log, turn: int, step: int) -> None:
    action = cut(tmp_path, log)[0].action
    assert isinstance(action, Unfinished)
    assert action.message == (
        f"the model call of turn {turn} step {step} has no finish chunk; say in replay.override.json what to serve"
        " for it (chunks, throw or hang)")
    assert action.line == 4


def test_a_summary_marked_as_a_model_call_is_one(tmp_path: Path) -> None:
    usage = {"inputTokens": 3, "outputTokens": 1}
    blocks: list[Any] = [{"type": "text", "text": "short"}]
    log = Log().add("compaction/summary", llmStreamCall=True, rawOutput=blocks, usage=usage)
    log.add("compaction/summary", summary="no call of a model").begin(1).say(1, 1, "x").end(1)
    summary, main = cut(tmp_path, log)
    assert (summary.purpose, main.purpose) == ("compaction", "main")
    assert isinstance(summary.action, Chunks)
    assert [chunk for piece in summary.action.pieces for chunk in expand(piece)] == [
        BlockStart(0, "text"), BlockEnd(0, TextBlock("short")), UsageChunk(Usage(3, 1)),
        Finish(FinishReason("stop")),
    ]  # fmt: skip


def test_a_summary_marked_as_a_model_call_without_output_is_told(tmp_path: Path) -> None:
    file = Log().add("compaction/summary", llmStreamCall=True).write(tmp_path)
    findings = Findings()
    (recording,) = fixture.load(tmp_path, findings)
    script.cut(recording, findings)
    (found,) = map(str, findings.faults)
    assert found.startswith(f"{file}:2: compaction/summary is marked as a model call but holds no rawOutput")

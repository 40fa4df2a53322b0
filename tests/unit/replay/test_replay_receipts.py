"""The receipt file, and the explanation of a directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.errors import RecordingError
from acp_agent.ids import CallId, SessionId
from acp_agent.tools.base import CallKey, Outcome
from replay.explain import explain, render, to_json
from tests.unit.replay.recordings import Log, answers, asked, caller, hops, opened, prepared


def receipt(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    return document


def recording(directory: Path) -> Path:
    directory.mkdir()
    log = Log("root").begin(1).say(1, 1, "one").delegate(1, 1, "call", "task").end(1)
    log.begin(2).say(2, 1, "two").end(2).write(directory)
    answers("child", "c", parent="root", task="task", created=1).write(directory, "session.1.jsonl")
    answers("lost", "c", parent="root", task="nobody asks", created=2).write(directory, "session.2.jsonl")
    answers("other", "o", created=5).write(directory, "session.3.jsonl")
    return directory


def test_a_receipt_says_what_was_used_left_and_asked_for_in_vain(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    replay = opened(recording(tmp_path / "rec"), tools="live", receipt=file)
    asked(replay, caller("live"))
    asked(replay, caller("kid", root="live", path=hops("call")))
    with pytest.raises(RecordingError):
        prepared(replay, caller("kid", root="live", path=hops("call"), ordinal=1))
    replay.effects.observe(CallKey(SessionId("live"), 1, 1, 0, CallId("call"), "subagent", "{}", "/w"),
                           Outcome.text("not done"))
    asyncio.run(replay.aclose())
    assert receipt(file) == {
        "format": 1, "directory": str(tmp_path / "rec"), "tools": "live", "sessions": "once",
        "lanes": [
            {"lane": "root", "file": "session.jsonl", "address": [], "sessions": ["live"],
             "calls": {"main": {"recorded": 2, "used": 1, "left": 1, "over": 0}},
             "drift": {"turn": 1, "step": 1, "position": 0, "tool": "subagent", "recorded": "done",
                       "live": "not done"}},
            {"lane": "child", "file": "session.1.jsonl", "address": ["call"], "sessions": ["kid"],
             "calls": {"main": {"recorded": 1, "used": 1, "left": 0, "over": 1}}},
            {"lane": "other", "file": "session.3.jsonl", "address": [], "sessions": [],
             "calls": {"main": {"recorded": 1, "used": 0, "left": 1, "over": 0}}},
        ],
        "unbound": ["other"], "unaddressed": ["session.2.jsonl"],
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["receipt.json"]


def test_a_receipt_of_a_faulty_recording_says_why(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    asyncio.run(opened(tmp_path / "nowhere", receipt=file).aclose())
    assert receipt(file)["lanes"] == []
    assert "does not exist" in receipt(file)["error"]


def test_a_receipt_of_a_replay_nobody_used_lists_every_lane(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    asyncio.run(opened(recording(tmp_path / "rec"), receipt=file).aclose())
    assert receipt(file)["unbound"] == ["root", "child", "other"]


def test_closing_twice_writes_once(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    replay = opened(recording(tmp_path / "rec"), receipt=file)

    async def twice() -> None:
        await replay.aclose()
        file.unlink()
        await replay.aclose()

    asyncio.run(twice())
    assert not file.exists()


def test_a_receipt_that_cannot_be_written_is_logged(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "no" / "receipt.json"
    asyncio.run(opened(recording(tmp_path / "rec"), receipt=file, said=said).aclose())
    assert said[-1] == f"the replay receipt {file} cannot be written: No such file or directory"


# ---------------------------------------------------------------- explain


def test_an_explanation_shows_lanes_calls_results_and_doubts(tmp_path: Path) -> None:
    directory = recording(tmp_path / "rec")
    explanation = explain(directory)
    assert explanation.problems == []
    shown = render(explanation)
    assert shown.splitlines() == [
        f"{directory}: 4 recorded sessions",
        "",
        "root  (session.jsonl, session root, 20 events)",
        '  main 1  turn 1 step 1  chunks, 4 chunks stop  "one"',
        '  main 2  turn 2 step 1  chunks, 4 chunks stop  "two"',
        '  tool    turn 1 step 1  subagent (call): ok  "done"',
        "",
        "  root > call  (session.1.jsonl, session child, 10 events)",
        '    main 1  turn 1 step 1  chunks, 4 chunks stop  "c"',
        "",
        "without an address  (session.2.jsonl, session lost, 10 events)",
        '  main 1  turn 1 step 1  chunks, 4 chunks stop  "c"',
        "",
        "root  (session.3.jsonl, session other, 10 events)",
        '  main 1  turn 1 step 1  chunks, 4 chunks stop  "o"',
        "",
        "Doubts:",
        f"  {directory}/session.2.jsonl:1: no delegating call in session.jsonl asks for this child's task, so"
        " nothing can ask for its recorded calls",
        "",
        "Nothing stands in the way of a replay.",
    ]


def test_an_explanation_tells_every_problem_at_once(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "x", finish=None).end(1).write(tmp_path)
    answers("orphan", "x", parent="gone").write(tmp_path, "session.1.jsonl")
    (tmp_path / "session.2.jsonl").write_bytes(answers("b", "x").lines()[0] + b"broken\n")
    log = Log("bad", created=4).begin(1).say(1, 1, "x").add("tool/result", turn=1, step=1).end(1)
    log.write(tmp_path, "session.3.jsonl")
    (tmp_path / "replay.override.json").write_text('{"patches":[{"at":9,"entry":{"kind":"hang"}}]}')
    problems = [str(problem) for problem in explain(tmp_path).problems]
    assert [problem.partition(f"{tmp_path}/")[2].partition(": ")[0] for problem in problems] == [
        "session.2.jsonl:2", "session.1.jsonl:1", "replay.override.json", "session.jsonl:4", "session.3.jsonl:9",
    ]  # fmt: skip
    assert "Nothing stands in the way" not in render(explain(tmp_path))


def test_an_explanation_of_a_missing_directory_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    assert "does not exist" in render(explain(tmp_path / "nowhere"))


def test_an_explanation_shows_overridden_held_and_refused_calls(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x")
    log.add("approval/asked", id="q", toolName="bash", callId="c", reason="r")
    log.add("approval/decided", id="q", outcome="rejected").called(1, 1, "c", "bash", "{}")
    log.result(1, 1, "c", "Error: no", is_error=True).end(1).begin(2).say(2, 1, "part", finish=None)
    log.end(2, "aborted").write(tmp_path)
    (tmp_path / "replay.override.json").write_text(
        '{"patches":[{"at":0,"entry":{"kind":"throw","chunks":[],"message":"m","code":"C"}}]}')
    shown = render(explain(tmp_path)).splitlines()
    assert shown[1] == "replay.override.json is in force for the first root"
    assert shown[4:7] == [
        '  main 1  override  throw, 0 chunks  "C: m"',
        '  main 2  turn 2 step 1  held, 2 chunks  "part"',
        '  tool    turn 1 step 1  bash (c): error, refused  "Error: no"',
    ]


def test_an_explanation_is_json_too(tmp_path: Path) -> None:
    document = msgspec.json.decode(to_json(explain(recording(tmp_path / "rec"))))
    assert document["lanes"][1]["address"] == ["call"]
    assert document["problems"] == []

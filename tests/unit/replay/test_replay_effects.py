"""Recorded tool results: which call gets which, working directories, approvals, and drift of live ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import RecordingError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.events import TextBlock, ToolError
from acp_agent.tools.base import CallKey, Observation, Outcome, RecordedCall
from replay.engine import Replay
from replay.paths import expander, replace_path, tokenise
from tests.unit.replay.recordings import Log, answers, caller, hops, opened, prepared


def key(
    call_id: str, name: str = "bash", arguments: str = "{}", *, session: str = "live", turn: int = 1,
    step: int = 1, position: int = 0, cwd: str = "/live",
) -> CallKey:
    return CallKey(SessionId(session), turn, step, position, CallId(call_id), name, arguments, cwd)


def bound(directory: Path, **options: Any) -> Replay:
    """A replay whose first root is bound to the live session `live`."""
    replay = opened(directory, **options)
    prepared(replay, caller("live"))
    return replay


def text(call: RecordedCall | None) -> str:
    assert call is not None
    (block,) = call.outcome.content
    assert isinstance(block, TextBlock)
    return block.text


# ---------------------------------------------------------------- recorded


def test_results_are_found_by_turn_step_and_call(tmp_path: Path) -> None:
    log = Log("root")
    for turn in (1, 2):
        log.begin(turn).say(turn, 1, "x").tool(turn, 1, "call_0", "bash", "{}", f"turn {turn}")
        log.add("step/start", turn=turn, step=2).tool(turn, 2, "call_0", "bash", "{}", f"turn {turn} step 2")
        log.end(turn, step=2)
    log.write(tmp_path)
    effects = bound(tmp_path).effects
    heard = [text(effects.recorded(key("call_0", turn=turn, step=step)))
             for turn, step in ((2, 1), (1, 2), (1, 1), (2, 2))]
    assert heard == ["turn 2", "turn 1 step 2", "turn 1", "turn 2 step 2"]


def test_results_of_parallel_calls_are_told_apart_by_id_and_position(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x")
    for call_id in ("a", "b", "same", "same"):
        log.called(1, 1, call_id, "read", "{}")
    for call_id, result in (("a", "1"), ("b", "2"), ("same", "3"), ("same", "4")):
        log.result(1, 1, call_id, result)
    log.end(1).write(tmp_path)
    effects = bound(tmp_path).effects
    keys = [key("same", "read", position=3), key("b", "read", position=1), key("a", "read", position=0),
            key("same", "read", position=2), key("b", "read", position=0)]
    assert [text(effects.recorded(one)) for one in keys] == ["4", "2", "1", "3", "2"]


def test_everything_recorded_of_a_result_is_served(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x").called(1, 1, "c", "edit", "{}")
    log.add("file/seen", path="{{cwd}}/a.txt", version="v1").add("file/seen", path="/other/b", version=None)
    log.result(1, 1, "c", "Error: no", is_error=True, code="FS_STALE", meta={"diffs": [{"path": "{{cwd}}/a.txt"}]})
    log.called(1, 1, "d", "read", "{}").result(1, 1, "d", "fine").end(1).write(tmp_path)
    effects = bound(tmp_path).effects
    assert effects.recorded(key("c", "edit")) == RecordedCall(Outcome(
        (TextBlock("Error: no"),), is_error=True, error=ToolError("E", "FS_STALE"),
        meta={"diffs": [{"path": "/live/a.txt"}]},
        observed=(Observation("/live/a.txt", "v1"), Observation("/other/b", None)),
    ))  # fmt: skip
    assert effects.recorded(key("d", "read", position=1)) == RecordedCall(Outcome((TextBlock("fine"),)))


@pytest.mark.parametrize("cwd", ["{{cwd}}", "/recorded/w"])
def test_the_recorded_working_directory_becomes_the_live_one(tmp_path: Path, cwd: str) -> None:
    log = Log("root", cwd=cwd).begin(1).say(1, 1, "x")
    recorded = f"<path>{cwd}/a</path> in {cwd}. not {cwd}s".replace("not {{cwd}}s", "not /recorded/ws")
    log.called(1, 1, "c", "read", "{}").result(1, 1, "c", recorded, meta={"path": f"{cwd}/a"})
    log.end(1).write(tmp_path)
    call = bound(tmp_path).effects.recorded(key("c", "read"))
    assert text(call) == "<path>/live/a</path> in /live. not /recorded/ws"
    assert call is not None
    assert call.outcome.meta == {"path": "/live/a"}


@pytest.mark.parametrize(
    ("outcome", "approved"),
    [("approved", True), ("allowed-once", True), ("allow_once", True), ("allow-always", True), ("allowed", True),
     ("accepted", True), ("rejected", False), ("cancelled", None), ("reject_once", False)],
)  # fmt: skip
def test_a_recorded_decision_comes_with_the_result(tmp_path: Path, outcome: str, approved: bool | None) -> None:
    log = Log("root").begin(1).say(1, 1, "x")
    log.add("approval/asked", id="q", toolName="bash", callId="asked", reason="r")
    log.add("approval/decided", id="q", outcome=outcome).tool(1, 1, "asked", "bash", "{}", "ran")
    log.tool(1, 1, "free", "bash", "{}", "ran").end(1).write(tmp_path)
    effects = bound(tmp_path).effects
    first, second = effects.recorded(key("asked")), effects.recorded(key("free", position=1))
    assert first is not None
    assert second is not None
    assert (first.approved, second.approved) == (approved, None)


def test_a_question_asked_while_the_call_was_open_counts_as_well(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x").called(1, 1, "c", "bash", "{}")
    log.add("approval/asked", id="q", toolName="bash", callId="c", reason="r")
    log.add("approval/decided", id="q", outcome="rejected").result(1, 1, "c", "no").end(1).write(tmp_path)
    call = bound(tmp_path).effects.recorded(key("c"))
    assert call is not None
    assert call.approved is False


def test_a_fork_s_results_are_its_own(tmp_path: Path) -> None:
    root = Log("root").begin(1).say(1, 1, "x").tool(1, 1, "c", "bash", "{}", "parent's").end(1)
    seed = len(root.events)
    root.begin(2).say(2, 1, "y").delegate(2, 1, "fork", "go").end(2).write(tmp_path)
    fork = Log("child", parent="root", seed=seed)
    fork.events = root.events[:seed]
    fork.add("session/end-seed").begin(2).user("go").say(2, 1, "z").tool(2, 1, "c", "bash", "{}", "child's")
    fork.end(2).write(tmp_path, "session.1.jsonl")
    replay = bound(tmp_path)
    prepared(replay, caller("kid", root="live", path=hops("fork")))
    assert text(replay.effects.recorded(key("c", session="kid", turn=2))) == "child's"
    with pytest.raises(RecordingError, match="no result is recorded"):
        replay.effects.recorded(key("c", session="kid", turn=1))


def test_a_call_without_a_recorded_result_is_an_error_with_numbers(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "x").tool(1, 1, "c", "bash", "{}", "r").end(1).write(tmp_path)
    with pytest.raises(RecordingError) as caught:
        bound(tmp_path).effects.recorded(key("other", position=1))
    assert caught.value.message == (
        "turn 1 step 1, tool call 2 (bash, lane root (session.jsonl)): no result is recorded (the step has 1"
        " recorded calls); record the session again or set ACP_REPLAY_TOOLS=live")


@pytest.mark.parametrize(("name", "arguments"), [("write", '{"a":1}'), ("bash", '{"a":2}')])
def test_a_result_is_not_served_for_another_call(tmp_path: Path, name: str, arguments: str) -> None:
    Log("root").begin(1).say(1, 1, "x").tool(1, 1, "c", "bash", '{"a":1}', "r").end(1).write(tmp_path)
    with pytest.raises(RecordingError, match=r'the recorded call is bash \{"a":1\}, the live one'):
        bound(tmp_path).effects.recorded(key("c", name, arguments))


def test_a_result_of_a_call_that_never_started_is_served(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x")
    log.result(1, 1, "c", "Error: not started", is_error=True, code="TOOL_NOT_STARTED").end(1, "interrupted")
    log.write(tmp_path)
    assert text(bound(tmp_path).effects.recorded(key("c"))) == "Error: not started"


def test_a_broken_result_is_told_with_its_line(tmp_path: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "x").called(1, 1, "c", "bash", "{}")
    file = log.add("tool/result", turn=1, step=1, message={"content": []}).end(1).write(tmp_path)
    with pytest.raises(RecordingError, match=f"{file}:10: broken tool/result: "):
        bound(tmp_path).effects.recorded(key("c"))


def test_a_session_that_called_no_model_has_no_results(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    with pytest.raises(RecordingError, match="session stranger has called no model yet"):
        bound(tmp_path).effects.recorded(key("c", session="stranger"))


# ---------------------------------------------------------------- live


def live(directory: Path, said: list[str]) -> Replay:
    log = Log("root").begin(1).say(1, 1, "x").tool(1, 1, "c", "bash", "{}", "in {{cwd}}/a")
    log.tool(1, 1, "d", "bash", "{}", "second").end(1).write(directory)
    return bound(directory, tools="live", said=said)


def test_live_tools_are_served_nothing(tmp_path: Path) -> None:
    assert live(tmp_path, []).effects.recorded(key("c")) is None


def test_a_live_result_that_equals_the_recorded_one_is_no_drift(tmp_path: Path) -> None:
    said: list[str] = []
    replay = live(tmp_path, said)
    replay.effects.observe(key("c"), Outcome.text("in /live/a"))
    assert (said, replay.lanes.primary.drift) == ([], None)


def test_the_first_differing_result_of_a_lane_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    replay = live(tmp_path, said)
    replay.effects.observe(key("d", position=1), Outcome.text("changed"))
    replay.effects.observe(key("c"), Outcome.text("in /live/a, changed too"))
    assert said == ["environment drift in lane root (session.jsonl), turn 1 step 1, bash: recorded 'second', live"
                    " 'changed'; later differences of this lane are not told"]
    drift = replay.lanes.primary.drift
    assert drift is not None
    assert (drift.position, drift.live) == (0, "in {{cwd}}/a, changed too")


@pytest.mark.parametrize(
    ("call_id", "outcome"),
    [("c", Outcome.failure("in /live/a")), ("c", Outcome((TextBlock("in /live/a"),), is_error=True)),
     ("unknown", Outcome.text("x"))],
)  # fmt: skip
def test_another_error_flag_or_an_unrecorded_call_is_drift(tmp_path: Path, call_id: str, outcome: Outcome) -> None:
    replay = live(tmp_path, [])
    replay.effects.observe(key(call_id, position=5), outcome)
    assert replay.lanes.primary.drift is not None


@pytest.mark.parametrize("code", ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"])
def test_what_a_tool_says_does_not_differ_from_what_nobody_knows(tmp_path: Path, code: str) -> None:
    """The process of the recording was killed before it could store the result."""
    log = Log("root").begin(1).say(1, 1, "x").called(1, 1, "c", "bash", "{}")
    log.result(1, 1, "c", "Error: unknown", is_error=True, code=code).end(1, "interrupted").write(tmp_path)
    said: list[str] = []
    replay = bound(tmp_path, tools="live", said=said)
    replay.effects.observe(key("c"), Outcome.text("done"))
    assert (said, replay.lanes.primary.drift) == ([], None)


def test_a_live_result_that_cannot_be_compared_is_logged_and_does_no_harm(tmp_path: Path) -> None:
    said: list[str] = []
    live(tmp_path, said).effects.observe(key("c", session="stranger"), Outcome.text("x"))
    assert said == ["a live tool result cannot be compared with the recording: session stranger has called no"
                    " model yet, so no recording is bound to it"]


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("/w", "@"), ("/w/a", "@/a"), ("see /w.", "see @."), ("'/w'", "'@'"), ("cd /w; ls /w/x", "cd @; ls @/x"),
        ("/ws", "/ws"), ("/w-1", "/w-1"), ("/w.d/x", "/w.d/x"), ("/x/w", "/x/w"), ("a/w", "a/w"), ("", ""),
    ],
)  # fmt: skip
def test_a_directory_is_replaced_at_path_boundaries_only(text: str, replaced: str) -> None:
    assert replace_path(text, "/w", "@") == replaced


def test_the_root_directory_and_relative_ones_are_never_replaced() -> None:
    assert expander("/", "/live")("a / b /x") == "a / b /x"
    assert expander("w", "/live")("w") == "w"
    assert tokenise("/ /a", ["/", ""]) == "/ /a"


def test_the_longest_spelling_is_tokenised_first() -> None:
    assert tokenise("/private/w/a /w/b", ["/w", "/private/w/"]) == "{{cwd}}/a {{cwd}}/b"


@pytest.mark.parametrize(("kind", "code", "held"), [
    ("aborted", "ABORTED", True), ("interrupted", "TOOL_OUTCOME_UNKNOWN", True),
    ("aborted", "ABORTED_BEFORE_DISPATCH", False), ("completed", "ABORTED", False),
])  # fmt: skip
def test_a_call_that_was_cut_short_in_a_halted_turn_is_held(tmp_path: Path, kind: str, code: str, held: bool) -> None:
    log = Log("root").begin(1).say(1, 1, "x").called(1, 1, "asked", "bash", "{}")
    log.result(1, 1, "asked", "Error: cut", is_error=True, code=code)
    log.end(1, kind).write(tmp_path)
    call = bound(tmp_path).effects.recorded(key("asked"))
    assert call is not None
    assert call.held is held

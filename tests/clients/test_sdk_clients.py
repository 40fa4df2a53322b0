"""The clients of the two official SDKs meet our agent. What they report is compared with what was recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.clients.meeting import Meeting
from tests.clients.recorded import Turn, turns, writing
from tests.wire.recordings import call, failed, hang, patch, says, script, text, thought, tool
from tests.wire.runs import LIVE

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden"
FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
ASK = LIVE | {"ACP_PERMISSION_MODE": "ask"}
ALL_KINDS = ["allow_once", "allow_always", "reject_once", "reject_always"]
SDKS = ("typescript", "python")
START = ({"op": "initialize"}, {"op": "new"})
CHANGED = ["config_option_update", "current_mode_update"]
"""What a client hears of a changed mode, sorted: the protocol knows no order."""

Json: TypeAlias = dict[str, Any]
Play: TypeAlias = Callable[..., list[Json]]


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> str:
    """Which SDK's client it is."""
    return str(request.param)


@pytest.fixture
def play(sdk: str, meeting: Meeting, tmp_path: Path, request: pytest.FixtureRequest) -> Play:
    """Plays steps with a client and an agent of their own; returns the client's report on each."""
    if sdk == "typescript":
        npm = request.getfixturevalue("clients")
        program = [npm.node, str(HERE / "sdk_client.mjs"), str(npm.directory)]
    else:
        program = [sys.executable, str(HERE / "sdk_client.py")]

    def played(*steps: Json, replay: Path, environ: dict[str, str] | None = None) -> list[Json]:
        meeting.settings |= {"ACP_REPLAY_DIR": str(replay)} | (environ or {})
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"cwd": str(meeting.workspace), "capabilities": FILES,
                                    "unstable": meeting.unstable, "steps": steps}))
        out = meeting.run(*program, str(plan), *meeting.command)
        reports = [json.loads(line) for line in out.splitlines()]
        assert [report["did"] for report in reports] == [one["op"] for one in steps]
        return reports

    return played


def prompt(words: str, **more: Any) -> Json:
    """A prompt to the first session, unless `session` names another."""
    return {"op": "prompt", "text": words, **more}


def heard(report: Json) -> Turn:
    """What a prompt's report says, in the words of a recording."""
    said = report["heard"]
    return Turn(said["user"], said["thought"], said["text"], {one["id"]: one["status"] for one in said["tools"]},
                report["stop"])


def unprompted(turn: Turn) -> Turn:
    """A recorded turn as the client hears it whose prompt it answers: that is not told back."""
    return Turn("", turn.thought, turn.text, turn.tools, turn.stop)


def mode_news(report: Json) -> list[str]:
    """The other updates of a step, sorted, without the commands: a session's come after its answer, maybe steps later.
    """
    return sorted(kind for kind in report["heard"]["other"] if kind != "available_commands_update")


# ---------------------------------------------------------------- recorded sessions


@pytest.mark.parametrize("golden", ["tool-turn", "subagent-mixed", "permission-rejected", "max-tokens"])
def test_a_client_hears_what_was_recorded(golden: str, play: Play, meeting: Meeting) -> None:
    scenario = json.loads((GOLDEN / golden / "input.json").read_text())
    asked = [prompt(one["text"]) for one in scenario["steps"] if one["op"] == "prompt"]
    mode = scenario.get("settings", {}).get("permissionMode", "full-access")
    begun, made, *reports = play(*START, *asked, replay=GOLDEN / golden, environ={"ACP_PERMISSION_MODE": mode})
    assert (begun["agent"], begun["version"], made["mode"]) == ("acp-replay", 1, mode)
    recorded = turns(GOLDEN / golden, meeting.workspace)
    assert [heard(report) for report in reports] == [unprompted(turn) for turn in recorded]
    assert recorded


# ---------------------------------------------------------------- permission


def test_what_is_allowed_runs(play: Play, meeting: Meeting, tmp_path: Path) -> None:
    replay = writing(tmp_path / "replay")
    *_, report = play(*START, prompt("Write.", answers=["allow_once", "allow_once"]), replay=replay, environ=ASK)
    assert [heard(report)] == [unprompted(turn) for turn in turns(replay, meeting.workspace)]
    assert report["heard"]["asked"] == [{"id": name, "kinds": ALL_KINDS} for name in "wb"]
    tools = [(one["title"], one["kind"]) for one in report["heard"]["tools"]]
    assert tools[:2] == [("Write note.txt", "edit"), ("printf ran > ran.txt", "execute")]
    assert {"plan", "session_info_update"} <= set(report["heard"]["other"])
    assert (meeting.workspace / "note.txt").read_text() == "remember\n"
    assert (meeting.workspace / "ran.txt").read_text() == "ran"


@pytest.mark.parametrize("answers", [["reject_once", "reject_always"], []])
def test_what_is_refused_does_not_run_and_the_turn_goes_on(
    answers: list[str], play: Play, meeting: Meeting, tmp_path: Path,
) -> None:
    replay = writing(tmp_path / "replay")
    *_, report = play(*START, prompt("Write.", answers=answers), replay=replay, environ=ASK)
    (recorded,) = turns(replay, meeting.workspace)
    assert heard(report) == Turn("", recorded.thought, recorded.text, {"w": "failed", "b": "failed", "t": "completed"},
                                 "end_turn")
    assert [one["id"] for one in report["heard"]["asked"]] == ["w", "b"]
    assert list(meeting.workspace.iterdir()) == []


def test_in_a_mode_without_questions_nothing_is_asked(play: Play, meeting: Meeting, tmp_path: Path) -> None:
    replay = writing(tmp_path / "replay")
    *_, wrong, changed, report = play(
        *START, {"op": "mode", "mode": "bold"}, {"op": "mode", "mode": "full-access"}, prompt("Write."),
        replay=replay, environ=ASK)
    assert wrong["error"] == -32602
    assert mode_news(wrong) == []
    assert mode_news(changed) == CHANGED
    assert report["heard"]["asked"] == []
    assert [heard(report)] == [unprompted(turn) for turn in turns(replay, meeting.workspace)]
    assert (meeting.workspace / "ran.txt").read_text() == "ran"


# ---------------------------------------------------------------- cancel, errors


def test_a_cancelled_stream_and_a_cancelled_command_end_and_the_session_goes_on(
    play: Play, meeting: Meeting, tmp_path: Path,
) -> None:
    runs = call(text("Running. "), tool("b", "bash", command="sleep 300", description="Sleep"),
                tool("w", "write", file_path="never.txt", content="x"))
    replay = script(tmp_path / "replay", hang(), runs, says("Fine."))
    *_, stream, command, after = play(
        *START, prompt("1", cancelAt="text"), prompt("2", cancelAt="running"), prompt("3"),
        replay=replay, environ=LIVE)
    assert heard(stream) == Turn("", "", "partial", {}, "cancelled")
    assert heard(command) == Turn("", "", "Running. ", {"b": "failed", "w": "failed"}, "cancelled")
    assert heard(after) == Turn("", "", "Fine.", {}, "end_turn")
    assert list(meeting.workspace.iterdir()) == []


@pytest.mark.parametrize("sdk", ["typescript"], indirect=True)
def test_a_request_that_the_client_gives_up_is_a_cancelled_turn(play: Play, meeting: Meeting, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", hang(), says("Fine."))
    *_, given_up, after = play(*START, prompt("1", cancelAt="text", cancelBy="request"), prompt("2"), replay=replay)
    (wire,) = meeting.wires()
    assert len(wire.sent("$/cancel_request")) == 1
    assert wire.sent("session/cancel") == []
    assert heard(given_up) == Turn("", "", "partial", {}, "cancelled")
    assert heard(after) == Turn("", "", "Fine.", {}, "end_turn")


def test_a_failed_model_call_is_an_error_that_says_why_and_the_session_goes_on(
    play: Play, tmp_path: Path,
) -> None:
    replay = script(tmp_path / "replay", failed("the key was refused", "auth_failed", text("Let me ")), says("Fine."))
    *_, broken, after = play(*START, prompt("1"), prompt("2"), replay=replay)
    assert broken["error"] == -32603
    assert "the key was refused" in broken["message"]
    assert broken["heard"]["text"] == "Let me "
    assert heard(after) == Turn("", "", "Fine.", {}, "end_turn")


@pytest.mark.parametrize("sdk", ["typescript"], indirect=True)
def test_the_sdk_gathers_the_text_of_a_session_it_made(play: Play, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", call(thought("Hm."), text("One ", "and ", "two.")))
    *_, report = play({"op": "initialize"}, {"op": "talk", "text": "Count."}, replay=replay)
    assert (report["gathered"], report["stop"]) == ("One and two.", "end_turn")


# ---------------------------------------------------------------- sessions of an earlier process


def test_a_second_client_lists_loads_and_resumes_what_the_first_one_left(
    play: Play, meeting: Meeting, tmp_path: Path,
) -> None:
    replay = writing(tmp_path / "replay")
    patch(replay, {2: says("And ", "again."), 3: says("Once more.")})
    _, made, mode, _ = play(*START, {"op": "mode", "mode": "full-access"}, prompt("Write."),
                            replay=replay, environ=ASK)
    old = {"id": made["session"]}
    _, listed, loaded, again, closed, late, resumed, more, gone = play(
        {"op": "initialize"}, {"op": "list"}, {"op": "load", **old}, prompt("Again?", **old), {"op": "close", **old},
        prompt("Too late.", **old), {"op": "resume", **old}, prompt("More?", **old), {"op": "load", "id": "nobody"},
        replay=replay, environ=ASK)
    assert mode_news(mode) == CHANGED
    assert listed["listed"] == [{"session": made["session"], "title": "Write."}]

    (recorded,) = turns(replay, meeting.workspace)
    assert heard(loaded | {"stop": "end_turn"}) == recorded
    assert loaded["heard"]["user"] == "Write."
    assert loaded["mode"] == resumed["mode"] == "full-access"
    assert heard(again) == Turn("", "", "And again.", {}, "end_turn")
    assert "error" not in closed
    assert late["error"] == gone["error"] == -32002
    assert (resumed["heard"]["user"], resumed["heard"]["text"], resumed["heard"]["tools"]) == ("", "", [])
    assert heard(more) == Turn("", "", "Once more.", {}, "end_turn")


def test_a_fork_knows_what_its_parent_said_and_goes_its_own_way(play: Play, meeting: Meeting, tmp_path: Path) -> None:
    meeting.unstable = True
    replay = script(tmp_path / "replay", says("The code is 4711."), says(r"{{fromRequest:[\s\S]+}}"), says("Mine."))
    *_, forked, asked, own = play(
        *START, prompt("Choose a code."), {"op": "fork"}, prompt("Say it.", session=1), prompt("And you?"),
        replay=replay, environ={"ACP_REPLAY_SESSIONS": "repeat"})
    assert "error" not in forked
    assert "The code is 4711." in asked["heard"]["text"]
    assert own["stop"] == "end_turn"


@pytest.mark.parametrize("sdk", ["typescript"], indirect=True)
def test_a_deleted_session_is_gone(play: Play, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", says("one"))
    *_, deleted, listed, again = play(
        *START, prompt("1"), {"op": "delete"}, {"op": "list"}, {"op": "load"}, replay=replay)
    assert "error" not in deleted
    assert listed["listed"] == []
    assert again["error"] == -32002

"""The driver with our agent: recordings are replayed, stored logs are waited for and harvested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.artefacts import Artefacts, FileState
from replay.driver import play
from replay.scenario import load_scenario
from replay.transports import TransportName
from replay.workspace import StoreName
from tests.support.log_laws import check_store_laws
from tests.unit.replay_kit.driven import (
    OWN_AGENT,
    TIMEOUT,
    ends,
    frames,
    op,
    own,
    requests,
    running,
    said,
    updates,
)
from tests.wire.recordings import Log, call, hang, says, script, step, text, tool, write

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
SCENARIOS = sorted(file.parent.name for file in RECORDED.glob("*/input.json"))
TRANSPORTS: tuple[TransportName, ...] = ("pipe", "pty")
STORES: tuple[StoreName, ...] = ("jsonl", "sqlite")


def receipt(run: Artefacts) -> Any:
    assert run.receipt is not None
    return json.loads(run.receipt)


def test_a_question_of_a_childs_is_held_and_answered_when_its_root_is_cancelled(tmp_path: Path) -> None:
    parent = Log("parent").turn("Go.", step(call(tool("p", "subagent", description="Paint", prompt="Paint it.")),
                                            "(other)"), says("Done."))
    child = parent.spawned("one", "p").turn("Paint it.", step(call(tool("w", "write", file_path="a", content="b")),
                                                              "(other)"), says("Painted."))
    run = own(tmp_path, write(tmp_path / "recording", parent, child), op("startPrompt", text="Go."),
              op("waitForRequest", method="session/request_permission"), op("cancel"), op("awaitPrompt"),
              permissionAnswers=[{"kind": "hold"}], capabilities={"subagents": {}})
    assert ends(run) == ["cancelled"]
    (asked,), (made, *_) = requests(run, "session/request_permission"), updates(run, "subagent_update")
    assert asked["sessionId"] == made["sessionId"]
    order = [(line.sender, json.loads(line.line).get("method", "answer")) for line in run.wire]
    cancelled = order.index(("client", "session/cancel"))
    assert order[cancelled + 1] == ("client", "answer"), "at once, not when the script ends"


@pytest.mark.skipif(not SCENARIOS, reason=f"no recorded scenarios in {RECORDED}")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_of_another_harness_is_played_and_uses_its_recording_up(tmp_path: Path, name: str) -> None:
    directory = RECORDED / name
    run = play(load_scenario(directory), OWN_AGENT, root=tmp_path / "run", recording=directory, timeout=TIMEOUT)

    assert (run.status, run.stderr) == (0, "")
    lanes = receipt(run)["lanes"]
    assert len(run.logs) == len(lanes) == len(list(directory.glob("session*.jsonl")))
    assert [lane["calls"]["main"]["left"] for lane in lanes] == [0] * len(lanes)
    assert check_store_laws(tmp_path / "run" / "sessions") == []
    expected = [json.loads(line) for line in (directory / "stdout.expected.jsonl").read_text().splitlines()]
    kinds = [frame["result"]["stopReason"] if "result" in frame else str(frame["error"]["code"])
             for frame in expected if "stopReason" in frame.get("result", {}) or "error" in frame]
    assert ends(run) == kinds


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_terminal_and_pipes_carry_the_same(tmp_path: Path, transport: TransportName) -> None:
    answer = [f"{number} \x7f\x04\x15 ü\u2028 " for number in range(2000)]
    recording = script(tmp_path / "replay", says(*answer), says("y" * 100_000))
    run = own(tmp_path, recording, op("prompt", text="x" * 100_000), op("prompt", text="\x7f"), transport=transport)
    assert run.status == 0
    assert said(run) == ["".join(answer), "y" * 100_000]
    logged = [json.loads(line) for line in run.logs[0].data.splitlines()]
    texts = [row["data"]["content"][0]["text"] for row in logged if row["type"] == "user/message"]
    assert texts == ["x" * 100_000, "\x7f"]


@pytest.mark.parametrize("store", STORES)
def test_a_running_turn_is_cancelled_once_its_start_is_stored(tmp_path: Path, store: StoreName) -> None:
    recording = script(tmp_path / "replay", says("first"), hang())
    run = own(tmp_path, recording, op("prompt", text="one"), op("promptAndCancel", text="two"), op("waitForTurnEnd"),
              store=store)
    assert ends(run) == ["end_turn", "cancelled"]
    assert run.status == 0


def test_turns_are_waited_for_in_the_log(tmp_path: Path) -> None:
    recording = script(tmp_path / "replay", hang("ready"), hang("ready-too"))
    run = own(
        tmp_path, recording, op("startPrompt", text="one", name="one"), op("waitForTurnStart"),
        op("waitForFile", path="ready"), op("startPrompt", text="two", name="two"),
        op("waitForTurnStart", minimumTurn=1), op("cancelRequest", prompt="one"), op("awaitPrompt", prompt="one"),
        op("waitForTurnStart"), op("waitForFile", path="ready-too"), op("cancel"), op("awaitPrompt"),
        op("waitForTurnEnd"))
    assert ends(run) == ["cancelled", "cancelled"]
    assert requests(run, "$/cancel_request") == [{"requestId": 3}]
    assert [file.path for file in run.files] == ["ready", "ready-too"]


@pytest.mark.parametrize("store", STORES)
def test_events_after_a_turn_are_waited_for_in_the_log(tmp_path: Path, store: StoreName) -> None:
    """The mode is stored as an event; before the turn there is one of the same type that does not count."""
    recording = script(tmp_path / "replay", says("done"))
    run = own(tmp_path, recording, op("setMode", mode="ask"), op("prompt", text="go"), op("setMode", mode="read-only"),
              op("waitForEventAfterTurnEnd", type="session/config"), store=store)
    last = json.loads(run.logs[0].data.splitlines()[-1])
    assert (last["type"], last["data"]) == ("session/config", {"mode": "read-only"})


@pytest.mark.parametrize("store", STORES)
def test_a_childs_turn_is_waited_for_in_its_log(tmp_path: Path, store: StoreName) -> None:
    ask = call(tool("c1", "subagent", description="Greet", prompt="Say hello"))
    parent = Log().turn("go", step(ask, "hello"), says("done"))
    child = parent.spawned("child", "c1").turn("Say hello", says("hello"))
    run = own(tmp_path, write(tmp_path / "replay", parent, child), op("startPrompt", text="go"),
              op("waitForSubagentTurnEnd", child=1), op("awaitPrompt"), store=store)
    assert said(run) == ["done"]
    assert len(run.logs) == 2


def test_two_sessions_replay_side_by_side(tmp_path: Path) -> None:
    recording = script(tmp_path / "replay", hang("ready"))
    write(recording, Log("one").turn("go", says("first")), Log("two").turn("go", says("second")))
    (recording / "replay.override.json").write_text(json.dumps([{"kind": "hang", "readyFile": "ready"}]))
    run = own(
        tmp_path, recording, op("newSession", session="b"), op("newSession", session="a"),
        op("startPrompt", text="go", session="a"), op("waitForFile", path="ready"),
        op("prompt", text="go", session="b"), op("cancel", session="a"), op("awaitPrompt", session="a"))
    assert ends(run) == ["end_turn", "cancelled"]
    assert len(run.logs) == 2


def test_the_agent_asks_when_there_are_answers_and_files_are_harvested(tmp_path: Path) -> None:
    asked = call(tool("c1", "write", file_path="made.txt", content="new\n"),
                 tool("c2", "write", file_path="no.txt", content=""))
    recording = script(tmp_path / "replay", asked, call(text("done")))
    run = own(tmp_path, recording, op("prompt", text="go"), permissionAnswers=[
        {"kind": "reject_once", "toolCallId": "c2"}, {"kind": "allow_once"}])
    assert run.files == (FileState("made.txt", b"new\n"),)
    assert sorted(update["status"] for update in updates(run, "tool_call_update")
                  if update["status"] != "in_progress") == ["completed", "failed"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_was_sent_before_the_end_of_input_arrives(tmp_path: Path, transport: TransportName) -> None:
    recording = script(tmp_path / "replay", says("done"))
    run = own(tmp_path, recording, op("startPrompt", text="x" * 600_000), op("closeInput"), op("awaitPrompt"),
              transport=transport)
    assert ends(run) == ["end_turn"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_end_of_input_cancels_what_is_still_open(tmp_path: Path, transport: TransportName) -> None:
    recording = script(tmp_path / "replay", hang("ready"))
    run = own(tmp_path, recording, op("startPrompt", text="go"), op("waitForFile", path="ready"), transport=transport)
    assert run.status == 0
    assert running(tmp_path / "run") == []
    assert list(frames(run))[-1]["result"]["stopReason"] == "cancelled"


def test_a_scenarios_own_settings_win(tmp_path: Path) -> None:
    recording = script(tmp_path / "replay", says("done"))
    elsewhere = tmp_path / "run" / "elsewhere"
    run = own(tmp_path, recording, op("prompt", text="go"), settings={
        "env": {"ACP_IDS": "sequential", "ACP_SESSION_STORE": f"jsonl:{elsewhere}"}})
    assert requests(run, "session/prompt")[0]["sessionId"] == "session-1"
    assert run.logs == ()
    assert list(elsewhere.rglob("session.jsonl"))

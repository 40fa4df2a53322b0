"""How often, how fast and to whom recorded calls are served, and the receipt that says so."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import processes
from tests.support.client import AGENT, AgentProcess
from tests.wire.recordings import Log, call, says, script, step, tool, write
from tests.wire.runs import begin, data, directory_of, root_log

END_TURN = {"stopReason": "end_turn"}


def two_roots(directory: Path, words: int = 1) -> Path:
    """Two recorded root sessions of two turns each."""
    logs = [Log(name, created=created).turn("One.", says(*[f"{name} one. "] * words))
            .turn("Two.", says(*[f"{name} two. "] * words)) for name, created in (("left", 1), ("right", 2))]
    return write(directory, *logs)


# ---------------------------------------------------------------- roots


def test_roots_are_bound_in_the_order_of_their_first_model_call_and_keep_apart(
    agent: Workbench, tmp_path: Path,
) -> None:
    process, first = begin(agent, two_roots(tmp_path / "replay"))
    second = process.new_session()
    for session, prompt in ((second, "One."), (first, "One."), (second, "Two."), (first, "Two.")):
        assert process.prompt(session, prompt)["result"] == END_TURN
    assert process.text(second) == "left one. left two. "
    assert process.text(first) == "right one. right two. "
    process.close()
    assert data(root_log(agent, second), "replay/bound") == [{"lane": "left", "ordinal": 0}]
    assert data(root_log(agent, first), "replay/bound") == [{"lane": "right", "ordinal": 1}]


def test_two_roots_that_stream_at_the_same_time_never_mix(agent: Workbench, tmp_path: Path) -> None:
    process, first = begin(agent, two_roots(tmp_path / "replay", 300), {"ACP_REPLAY_PACE": "1"})
    second = process.new_session()
    prompts = [process.start_prompt(session, "One.") for session in (first, second)]
    for prompt in prompts:
        assert process.response(prompt)["result"] == END_TURN
    assert process.text(first) == "left one. " * 300
    assert process.text(second) == "right one. " * 300
    streamed = [frame["params"]["sessionId"] for frame in process.received if "params" in frame]
    assert streamed.index(second) < len(streamed) - streamed[::-1].index(first), "they did overlap"


def test_one_more_session_than_recorded_is_an_error_that_names_the_setting(
    agent: Workbench, tmp_path: Path,
) -> None:
    process, first = begin(agent, script(tmp_path / "replay", says("Hi.")))
    process.prompt(first, "Hello.")
    second = process.new_session()
    error = process.prompt(second, "Hello.")["error"]
    assert error["code"] == -32603
    assert "root session 2" in error["message"]
    assert "recording has 1" in error["message"]
    assert "ACP_REPLAY_SESSIONS=repeat" in error["message"]


def test_with_repeat_every_new_session_gets_the_whole_recording_again(agent: Workbench, tmp_path: Path) -> None:
    process = agent(replay=script(tmp_path / "replay", says("One."), says("Two.")),
                    environ={"ACP_REPLAY_SESSIONS": "repeat"})
    process.initialize()
    for _ in range(3):
        session = process.new_session()
        process.prompt(session, "First.")
        process.prompt(session, "Second.")
        assert process.text(session) == "One.Two."


def test_one_more_call_than_recorded_is_an_error_with_both_numbers(agent: Workbench, tmp_path: Path) -> None:
    process, session = begin(agent, script(tmp_path / "replay", says("One."), says("Two.")))
    process.prompt(session, "1")
    process.prompt(session, "2")
    message = process.prompt(session, "3")["error"]["message"]
    assert f"call 3 of session {session} (lane root (session.jsonl)): only 2 recorded" in message
    assert "replay.override.json" in message


def test_a_call_that_was_cut_short_is_served_as_far_as_it_went_and_then_held(
    agent: Workbench, tmp_path: Path,
) -> None:
    cut = says("Once ", "upon ")[:-2]
    log = Log().turn("A story.", cut, end="aborted").turn("Something else.", says("Fine."))
    process, session = begin(agent, write(tmp_path / "replay", log))
    prompt = process.start_prompt(session, "A story.")
    process.wait_for_update("agent_message_chunk", content={"type": "text", "text": "upon "})
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    assert process.prompt(session, "Something else.")["result"] == END_TURN
    assert process.text(session) == "Once upon Fine."


# ---------------------------------------------------------------- receipts


def receipt_after(agent: Workbench, replay: Path, prompts: int) -> tuple[Any, str]:
    """The receipt of a run with so many prompts, and its session."""
    file = agent.home / "receipt.json"
    process, session = begin(agent, replay, {"ACP_REPLAY_RECEIPT": str(file)})
    for number in range(prompts):
        process.prompt(session, f"{number}")
    assert process.close() == 0
    return json.loads(file.read_text()), session


def test_a_receipt_says_what_was_used_left_and_asked_for_in_vain(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent").turn("0", step(call(tool("c", "subagent", description="d", prompt="Task.")), "x"),
                                says(".")).turn("1", says("never asked for"))
    child = parent.spawned("child", "c").turn("Task.", says("x"))
    other = Log("other", created=9000).turn("0", says("nobody comes"))
    replay = write(tmp_path / "replay", parent, child, other)
    receipt, session = receipt_after(agent, replay, 1)
    lanes = {lane["lane"]: lane for lane in receipt.pop("lanes")}
    assert receipt == {"format": 1, "directory": str(replay), "tools": "recorded", "sessions": "once",
                       "unbound": ["other"], "unaddressed": []}
    assert lanes["parent"] == {"lane": "parent", "file": "session.jsonl", "address": [], "sessions": [session],
                               "calls": {"main": {"recorded": 3, "used": 2, "left": 1, "over": 0}}}
    assert lanes["child"]["address"] == ["c"]
    assert lanes["child"]["calls"] == {"main": {"recorded": 1, "used": 1, "left": 0, "over": 0}}
    assert (lanes["other"]["sessions"], lanes["other"]["calls"]["main"]["left"]) == ([], 1)


def test_a_receipt_counts_calls_beyond_the_recorded_ones(agent: Workbench, tmp_path: Path) -> None:
    receipt, _ = receipt_after(agent, script(tmp_path / "replay", says("One.")), 3)
    assert receipt["lanes"][0]["calls"] == {"main": {"recorded": 1, "used": 1, "left": 0, "over": 2}}


def test_the_receipt_of_a_faulty_recording_says_why_it_is_empty(agent: Workbench, tmp_path: Path) -> None:
    receipt, _ = receipt_after(agent, tmp_path / "nowhere", 1)
    assert receipt["lanes"] == []
    assert "does not exist" in receipt["error"]


def test_a_receipt_is_written_when_the_agent_is_told_to_stop(agent: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    process, session = begin(agent, script(tmp_path / "replay", says("One."), says("Two.")),
                             {"ACP_REPLAY_RECEIPT": str(file)})
    process.prompt(session, "1")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert json.loads(file.read_text())["lanes"][0]["calls"]["main"]["left"] == 1


# ---------------------------------------------------------------- pace


def streaming_time(process: AgentProcess) -> float:
    """Seconds between the first and the last chunk of text."""
    times = [entry.at for entry in process.transcript
             if entry.sender == "agent" and b"agent_message_chunk" in entry.raw]
    return times[-1] - times[0]


def test_chunks_come_as_far_apart_as_asked_and_a_recording_of_that_can_be_replayed_at_its_own_pace(
    agent: Workbench, tmp_path: Path,
) -> None:
    words = says(*["tick "] * 11)
    slow, recorded = begin(agent, script(tmp_path / "replay", words), {"ACP_REPLAY_PACE": "20"})
    slow.prompt(recorded, "Slowly.")
    assert streaming_time(slow) >= 0.15
    slow.close()
    again, session = begin(agent, directory_of(agent, recorded), {"ACP_REPLAY_PACE": "recorded"})
    again.prompt(session, "Slowly.")
    assert again.text(session) == slow.text(recorded)
    assert streaming_time(again) >= 0.15


def test_a_paced_answer_can_be_cancelled_between_two_chunks(agent: Workbench, tmp_path: Path) -> None:
    process, session = begin(agent, script(tmp_path / "replay", says("One.", "Two.")), {"ACP_REPLAY_PACE": "20000"})
    prompt = process.start_prompt(session, "Slowly.")
    process.wait_for_update("session_info_update")
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}


# ---------------------------------------------------------------- settings


def test_with_sequential_ids_a_script_can_name_its_sessions_before_it_runs(
    agent: Workbench, tmp_path: Path,
) -> None:
    settings = {"ACP_IDS": "sequential", "ACP_REPLAY_SESSIONS": "repeat"}
    replay = script(tmp_path / "replay", says("Hi."))
    for number in ("session-1", "session-2"):
        process = agent(replay=replay, environ=settings)
        cwd = str(agent.workspace)
        frames = [{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
                  {"id": 2, "method": "session/new", "params": {"cwd": cwd, "mcpServers": []}},
                  {"id": 3, "method": "session/prompt",
                   "params": {"sessionId": number, "prompt": [{"type": "text", "text": "Hello."}]}}]
        process.send_bytes(b"".join(json.dumps({"jsonrpc": "2.0"} | frame).encode() + b"\n" for frame in frames))
        assert process.response(3)["result"] == END_TURN
        assert process.close() == 0
        assert process.text(number) == "Hi."


@pytest.mark.parametrize(("environ", "flags", "named"), [
    ({"ACP_REPLAY_TOOLS": "dead"}, [], ["ACP_REPLAY_TOOLS", "dead", "recorded", "live"]),
    ({"ACP_REPLAY_SESSIONS": "twice"}, [], ["ACP_REPLAY_SESSIONS", "once", "repeat"]),
    ({"ACP_REPLAY_PACE": "fast"}, [], ["ACP_REPLAY_PACE", "burst", "recorded"]),
    ({"ACP_PERMISSION_MODE": "yolo"}, [], ["ACP_PERMISSION_MODE", "full-access"]),
    ({"ACP_SUBAGENT_MAX_DEPTH": "-1"}, [], ["ACP_SUBAGENT_MAX_DEPTH", "-1"]),
    ({"ACP_REPLAY_DIRS": "x"}, [], ["ACP_REPLAY_DIRS", "ACP_REPLAY_DIR"]),
    ({"acp_replay_dir": "x"}, [], ["acp_replay_dir", "ACP_REPLAY_DIR"]),
    ({}, ["--replay-dirs", "x"], ["--replay-dirs", "--replay-dir"]),
    ({}, ["--ids", "serial"], ["--ids", "serial", "sequential"]),
    ({"ACP_CONFIG": "/nowhere/config.toml"}, [], ["/nowhere/config.toml"]),
])
def test_a_setting_that_cannot_be_meant_is_refused_at_the_start(
    tmp_path: Path, environ: dict[str, str], flags: list[str], named: list[str],
) -> None:
    done = subprocess.run([*AGENT, *flags], env=processes.clean_environment(tmp_path) | environ, input=b"",
                          capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (2, b"")
    missing = [name for name in named if name not in done.stderr.decode()]
    assert missing == [], done.stderr.decode()


def test_settings_of_somebody_else_are_left_alone(agent: Workbench, tmp_path: Path) -> None:
    process, session = begin(agent, script(tmp_path / "replay", says("Hi.")), {"ACP_THEME": "dark"})
    assert process.prompt(session, "Hello.")["result"] == END_TURN
    assert process.stderr == ""

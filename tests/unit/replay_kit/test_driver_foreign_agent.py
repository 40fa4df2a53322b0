"""The driver with an agent that is not ours, over pipes and over a raw terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from replay.artefacts import FileState
from replay.transports import TransportName
from tests.unit.replay_kit.driven import ends, frames, op, requests, running, said, sdk, updates

TRANSPORTS: tuple[TransportName, ...] = ("pipe", "pty")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_prompts_are_sent_and_everything_that_passes_is_kept_in_order(tmp_path: Path, transport: TransportName) -> None:
    run = sdk(tmp_path, "say hello there", op("promptContent", content=[
        {"type": "text", "text": "echo-blocks"}, {"type": "resource_link", "uri": "file://{{cwd}}/a", "name": "a"},
    ]), op("promptExpectError", text="fail on purpose", code=-32050), transport=transport)

    assert run.status == 0
    assert said(run) == ["hello there", "text resource_link", ""]
    assert ends(run) == ["end_turn", "end_turn", "-32050"]
    senders = "".join(line.sender[0] for line in run.wire)
    assert senders.startswith("cacacaaaca")  # initialize, session/new, the first prompt with two chunks
    ours = list(frames(run, "client"))
    assert [frame["id"] for frame in ours] == [1, 2, 3, 4, 5]
    assert ours[0]["params"] == {"protocolVersion": 1, "clientCapabilities": {},
                                 "clientInfo": {"name": "acp-replay", "version": "1"}}
    assert ours[1]["params"] == {"cwd": run.workspace[0], "mcpServers": []}
    assert ours[3]["params"]["prompt"][1]["uri"] == f"file://{run.workspace[0]}/a"
    assert (run.logs, run.files, run.receipt) == ((), (), None)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_lines_longer_than_a_terminals_pass_both_ways(tmp_path: Path, transport: TransportName) -> None:
    text = "päck " * 20_000 + "\x7f\u2028\x1b end"
    run = sdk(tmp_path, "big 300000", "big-tool 100000", op("promptContent", content=[
        {"type": "text", "text": "echo-blocks"}, {"type": "text", "text": text}]), transport=transport)

    assert said(run) == ["x" * 300_000, "", "text text"]
    assert len(updates(run, "tool_call_update")[0]["content"][0]["content"]["text"]) == 100_000
    assert list(frames(run, "client"))[-1]["params"]["prompt"][1]["text"] == text


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stderr_is_kept_apart_from_the_wire(tmp_path: Path, transport: TransportName) -> None:
    run = sdk(tmp_path, "complain of much", "say well", transport=transport)
    assert run.stderr == "of much\n"
    assert said(run) == ["", "well"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_running_prompt_is_cancelled_once_its_update_was_seen(tmp_path: Path, transport: TransportName) -> None:
    run = sdk(tmp_path, op("startPrompt", text="hang"), op("waitForUpdate", update="agent_message_chunk"),
              op("cancel"), op("awaitPrompt"), transport=transport)
    assert ends(run) == ["cancelled"]


def test_a_cancel_may_wait_for_a_file(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("startPrompt", text="hang"), op("newSession"), op("prompt", text="touch ready"),
              op("newSession", session="late"), "say nothing", op("cancel", waitForFile={"path": "ready"}))
    assert ends(run) == ["end_turn", "end_turn"]  # the first session's prompt stays open: another one was cancelled
    assert [file.path for file in run.files] == ["ready"]


def test_sessions_have_names_and_run_side_by_side(tmp_path: Path) -> None:
    run = sdk(
        tmp_path, op("newSession", session="a"), op("newSession", session="b"),
        op("startPrompt", text="hang", session="a", name="slow"), op("prompt", text="say quick", session="b"),
        op("startPrompt", text="hang", session="b"), op("waitForUpdate", update={"content": {"text": "hanging"}}),
        op("cancel", session="b"), op("awaitPrompt", session="b"),
        op("cancel", session="a"), op("awaitPrompt", session="a", prompt="slow"))

    ids = [frame["result"]["sessionId"] for frame in frames(run) if "sessionId" in frame.get("result", {})]
    assert [params["sessionId"] for params in requests(run, "session/prompt")] == [ids[1], ids[2], ids[2]]
    assert ends(run) == ["end_turn", "cancelled", "cancelled"]


def test_modes_and_any_other_request_can_be_sent(tmp_path: Path) -> None:
    run = sdk(
        tmp_path, op("setMode", mode="calm"), op("setMode", mode="nowhere", expectError=True),
        op("newSessionExpectError", cwd="relative", code=-32602),
        op("newSession", session="named", cwd="{{cwd}}/x", mcpServers=[], additionalDirectories=["{{home}}"]),
        op("call", method="session/set_mode", params={"sessionId": "{{session:named}}", "modeId": "wild"}),
        op("call", method="no/such", expectError=True))

    assert [update["content"]["text"] for update in updates(run, "agent_message_chunk")] == [
        "mode", " calm", "mode", " wild"]
    assert requests(run, "session/new")[2] == {
        "cwd": f"{run.workspace[0]}/x", "mcpServers": [], "additionalDirectories": [run.home]}
    assert "params" not in list(frames(run, "client"))[-1]


def test_an_agent_message_is_awaited_whole(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("promptAndWaitForAgentMessage", text="say one two three", waitForText="one two three"))
    assert ends(run) == ["end_turn"]


def test_updates_are_awaited_one_after_the_other(tmp_path: Path) -> None:
    """The second wait needs a second update: it does not find the first one's again."""
    run = sdk(
        tmp_path, op("startPrompt", text="say one two three"),
        op("waitForUpdate", update="agent_message_chunk", text="one tw"),
        op("waitForUpdate", update={"sessionUpdate": "agent_message_chunk", "content": {"text": " three"}}),
        op("awaitPrompt"), op("startPrompt", text="say one"),
        op("waitForUpdate", update="agent_message_chunk", text="one"), op("awaitPrompt"))
    assert ends(run) == ["end_turn", "end_turn"]


def test_the_environment_has_no_secrets_and_no_settings_of_the_drivers_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    monkeypatch.setenv("ACP_REPLAY_DIR", "/elsewhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    names = ("MY_API_KEY", "ACP_REPLAY_DIR", "XDG_CONFIG_HOME", "HOME", "TMPDIR", "ACP_PERMISSION_MODE", "EXTRA",
             "OWN", "ACP_REPLAY_TOOLS")
    run = sdk(tmp_path, *(f"environment {name}" for name in names), extra_env={"EXTRA": "extra", "OWN": "extra"},
              settings={"permissionMode": "accept-edits", "env": {"OWN": "{{cwd}}/own"}})

    root = tmp_path / "run"
    assert said(run) == ["(unset)", "(unset)", str(root / "home/.config"), str(root / "home"), str(root / "tmp"),
                         "accept-edits", "extra", f"{run.workspace[0]}/own", "live"]


def test_a_workspace_is_seeded_and_what_changed_in_it_is_told(tmp_path: Path) -> None:
    seed = tmp_path / "scenario" / "workspace"
    (seed / "deep").mkdir(parents=True)
    (seed / "kept.txt").write_text("kept")
    (seed / "deep" / "changed.txt").write_text("before")
    (seed / "gone.txt").write_text("gone")
    (seed / "tool").write_text("#!/bin/sh\n")
    (seed / "link").symlink_to("kept.txt")
    command = ("printf after > deep/changed.txt; rm gone.txt; chmod 755 tool; ln -s tool new-link; "
               "mkdir -p .git empty; touch .git/index; printf '\\000' > made.bin")
    run = sdk(tmp_path, f"run sh -c \"{command}\"", capabilities={"terminal": True})

    assert run.files == (
        FileState("deep/changed.txt", b"after"), FileState("gone.txt", None), FileState("made.bin", b"\0"),
        FileState("new-link", b"tool", 0o120777), FileState("tool", b"#!/bin/sh\n", 0o755))
    assert (seed / "gone.txt").exists()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_process_is_left_behind_however_far_it_went(tmp_path: Path, transport: TransportName) -> None:
    run = sdk(tmp_path, "orphan", "leave sleep 300", capabilities={"terminal": True}, transport=transport)
    assert said(run)[1] == "terminal-1"
    assert running(tmp_path / "run") == []
    assert said(run)[0].isdigit()


def test_input_can_be_closed_before_the_script_ends(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("startPrompt", text="touch made"), op("waitForFile", path="made"), op("awaitPrompt"),
              op("closeInput"), op("waitForFile", path="made"), op("closeInput"))
    assert run.status == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_signal_ends_the_agent_and_its_status_says_so(tmp_path: Path, transport: TransportName) -> None:
    run = sdk(tmp_path, "say hello", op("signal", signal="SIGKILL"), transport=transport)
    assert run.status == -9
    assert said(run) == ["hello"]


def test_an_agents_own_exit_status_is_kept(tmp_path: Path) -> None:
    assert sdk(tmp_path, op("startPrompt", text="exit 3")).status == 3


def test_a_command_may_be_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replay.driver import play
    from tests.unit.replay_kit.driven import SDK_AGENT, START, TIMEOUT, scripted

    (tmp_path / "agent.py").symlink_to(SDK_AGENT[1])
    (tmp_path / "say").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(SDK_AGENT[0]).parent}:{os.environ['PATH']}")
    scenario = scripted(tmp_path, *START)
    run = play(scenario, ["python", "agent.py", "say"], root=tmp_path / "run", timeout=TIMEOUT)
    assert run.status == 0


def test_capabilities_can_be_wrong_on_purpose(tmp_path: Path) -> None:
    from replay.driver import play
    from tests.unit.replay_kit.driven import SDK_AGENT, TIMEOUT, scripted

    scenario = scripted(tmp_path, op("initialize", capabilities={"odd": [1, None]}, protocolVersion=7))
    run = play(scenario, SDK_AGENT, root=tmp_path / "run", timeout=TIMEOUT)
    assert json.loads(run.wire[0].line)["params"]["clientCapabilities"] == {"odd": [1, None]}
    assert json.loads(run.wire[1].line)["result"]["protocolVersion"] == 7

"""`acp-agent replay`, `refresh` and `demo` as real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay_kit.scenario_files import HELLO, READS, SDK, names, scenario, seeded, stamps

FAMILY = """
call
  think "Somebody else shall look."
  tool ask subagent {"description": "Look", "prompt": "Look at a.txt."}
call
  say "It is about beans."

lane root > ask
call
  tool look read {"file_path": "a.txt"}
call
  say "Beans."
"""


def command(*words: str | Path, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ACP") and name != "CI"}
    return subprocess.run([sys.executable, "-m", "acp_agent", *map(str, words)], env=clean | environ, cwd=cwd,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def recorded(directory: Path) -> Path:
    """A scenario that was recorded from its model script."""
    done = command("refresh", "--record", directory)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return directory


@pytest.fixture
def family(tmp_path: Path) -> Path:
    asking = scenario(tmp_path / "golden" / "family", "What is it about?", script=FAMILY)
    return recorded(seeded(asking, a_txt="beans\n"))


def test_a_replay_shows_the_tree_of_sessions_and_the_verdict(family: Path) -> None:
    done = command("replay", family)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    story = [line.rstrip() for line in lines if line.startswith(("root", "│"))]
    assert story == [
        "root · {{session:1}} · What is it about? · scripted/script",
        "│ > What is it about?",
        "│ Somebody else shall look.",
        '│ subagent {"description":"Look","prompt":"Look at a.txt."}  ask',
        "│ → Beans.",
        "│ root > ask · {{session:2}} · Look at a.txt.",
        "│ │ set: mode full-access",
        "│ │ > Look at a.txt.",
        '│ │ read {"file_path":"a.txt"}  look',
        "│ │ → <path>{{cwd}}/a.txt</path>", "│ │   <type>file</type>", "│ │   <content>", "│ │   1: beans", "│ │",
        "│ │   (End of file - total 1 lines)", "│ │   </content>",
        "│ │ Beans.",
        "│ It is about beans.",
    ]
    assert lines[-1].startswith(f"{family}: passed (2 sessions, ")
    assert lines[-1].endswith(", 0 files, 4 of 4 recorded calls used)")
    assert "\x1b" not in done.stdout


def test_a_replay_shows_the_commands_that_the_agent_ran_itself(tmp_path: Path) -> None:
    renamed = recorded(scenario(tmp_path / "renamed", "Hi.", "/rename Beans", script=HELLO))
    done = command("replay", renamed)
    assert (done.returncode, done.stderr) == (0, "")
    story = [line.rstrip() for line in done.stdout.splitlines() if line.startswith(("root", "│"))]
    assert story == ["root · {{session:1}} · Beans · scripted/script", "│ > Hi.", "│ Hello there.",
                     "│ > /rename Beans", "│ → The session is called: Beans"]


def test_a_tree_is_played_whole_and_one_failure_fails_it(family: Path) -> None:
    hello = recorded(scenario(family.parent / "hello", "Hi.", script=HELLO))
    assert command("replay", "-q", family.parent).returncode == 0
    wire = hello / "stdout.jsonl"
    wire.write_text(wire.read_text().replace('"there."', '"you."'))
    done = command("replay", "-q", family.parent)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{family}: passed")
    assert lines[1] == f"{hello}: failed"
    assert lines[-1] == "1 of 2 passed"
    assert '- agent_message_chunk "you."' in done.stdout


def test_json_is_one_object_a_line_with_the_stories(family: Path) -> None:
    (family / "files.json").unlink()
    done = command("replay", "--json", family, recorded(scenario(family.parent / "hello", "Hi.", script=HELLO)))
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["passed"], first["golden"], second["passed"]) == (False, True, True)
    assert "files.json: is missing" in first["report"]
    [root] = first["sessions"]
    kinds = [moment["kind"] for moment in root["moments"]]
    assert kinds == ["prompt", "thought", "tool", "child", "text"]
    child = root["moments"][3]["story"]
    assert child["address"] == "root > ask"
    tool = next(moment for moment in child["moments"] if moment["kind"] == "tool")
    assert (tool["name"], tool["call"], tool.get("failed", False)) == ("read", "look", False)
    assert [lane["calls"]["main"]["left"] for lane in first["receipt"]["lanes"]] == [0, 0]


def logs_alone(directory: Path, to: Path) -> Path:
    to.mkdir()
    for log in directory.glob("*.jsonl"):
        if log.name != "stdout.jsonl":
            shutil.copy(log, to)
    return to


def test_a_recording_without_a_script_is_replayed_from_its_prompts(family: Path, tmp_path: Path) -> None:
    bug = logs_alone(family, tmp_path / "bug-report")
    done = command("replay", bug)
    assert (done.returncode, done.stderr) == (0, "")
    assert "│ It is about beans." in done.stdout
    assert "no golden to compare with (2 sessions" in done.stdout
    assert names(bug) == ["session.1.jsonl", "session.jsonl"]


CUT: list[tuple[str, list[dict[str, Any]]]] = [
    ('call\n  say "Once upon a time"\n  hang\n', [
        {"op": "startPrompt", "text": "Go."},
        {"op": "waitForUpdate", "update": "agent_message_chunk", "text": "time"}]),
    ('call\n  think "Well"\n  hang\n', [
        {"op": "startPrompt", "text": "Go."}, {"op": "waitForUpdate", "update": "agent_thought_chunk"}]),
    ('call\n  tool r bash {"command": "touch here; exec sleep 99", "description": "Wait"}\n', [
        {"op": "startPrompt", "text": "Go."}, {"op": "waitForFile", "path": "here"}]),
    ('call\n  hang here\n', [{"op": "startPrompt", "text": "Go."}, {"op": "waitForFile", "path": "here"}]),
]


@pytest.mark.parametrize(("script", "steps"), CUT, ids=["text", "thought", "tool", "nothing"])
def test_a_turn_that_was_cancelled_is_cancelled_where_it_was(
    tmp_path: Path, script: str, steps: list[dict[str, Any]],
) -> None:
    end = [{"op": "cancel"}, {"op": "awaitPrompt"}, {"op": "prompt", "text": "And?"}]
    live = scenario(tmp_path / "golden" / "cut", *steps, *end, script=f'{script}call\n  say "Stopped."\n')
    done = command("refresh", live)  # the run's log is the same whether or not its files would be there in a replay
    assert done.returncode == 0, done.stdout
    bug = logs_alone(live, tmp_path / "bug")
    done = command("replay", bug)
    assert done.returncode == 0, done.stdout
    assert "turn ended: aborted: user" in done.stdout
    assert "│ Stopped." in done.stdout
    assert "2 of 2 recorded calls used" in done.stdout


DEEP = """
call
  tool quick subagent {"description": "Quick", "prompt": "Be quick."}
  tool slow subagent {"description": "Slow", "prompt": "Take your time."}
call
  say "Never said."

lane root > quick
call
  say "Done."

lane root > slow
call
  tool inner subagent {"description": "Inner", "prompt": "Go deeper."}
call
  say "Never said."

lane root > slow > inner
call
  say "Here I am."
  tool b bash {"command": "true", "description": "Pass"}
call
  tool c bash {"command": "touch here; exec sleep 99", "description": "Wait"}
"""


def deep(tmp_path: Path, **settings: Any) -> Path:
    """The logs of a turn that was cut in the tool call of a grandchild, when a child had ended already."""
    live = scenario(tmp_path / "golden" / "deep", {"op": "startPrompt", "text": "Go."}, {
        "op": "waitForSubagentTurnEnd", "child": 1, "minimumTurn": 1}, {"op": "waitForFile", "path": "here"},
        {"op": "cancel"}, {"op": "awaitPrompt"}, script=DEEP, **settings)
    done = command("refresh", live)
    assert done.returncode == 0, done.stdout
    return logs_alone(live, tmp_path / "bug")


@pytest.mark.parametrize("killed", [False, True], ids=["cancelled", "killed"])
def test_a_cut_turn_is_cut_where_its_deepest_child_was(tmp_path: Path, killed: bool) -> None:
    bug = deep(tmp_path)
    if killed:
        for log in bug.glob("*.jsonl"):  # as a load closes what a killed process left open
            text = re.sub(r'"reason":\{"kind":"aborted","reason":\{[^}]*\}\}', '"reason":{"kind":"interrupted"}',
                          log.read_text())
            log.write_text(text.replace('"code":"ABORTED"', '"code":"TOOL_OUTCOME_UNKNOWN"'))
        assert "interrupted" in (bug / "session.3.jsonl").read_text()
    done = command("replay", bug)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 recorded calls used" in done.stdout
    story = [line.strip("│ ").rstrip() for line in done.stdout.splitlines()]
    assert ("Here I am." in story, "Never said." in story) == (True, False)
    assert sum(line.startswith("turn ended: aborted") for line in story) == 3
    told = json.loads(command("replay", "--json", bug).stdout)
    again = json.loads(command("replay", "--json", bug).stdout)
    assert again["sessions"] == told["sessions"]


def test_a_damaged_recording_is_refused_with_file_and_line(family: Path, tmp_path: Path) -> None:
    bug = logs_alone(family, tmp_path / "bug")
    log = bug / "session.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:3], "{broken", *lines[4:]]) + "\n")
    done = command("replay", bug)
    assert done.returncode == 1
    assert f"{log}:4" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_foreign_agents_wire_is_shown(tmp_path: Path) -> None:
    foreign = scenario(tmp_path / "foreign", "say hello there", "ask")
    done = command("replay", "--agent", SDK, foreign)
    assert done.returncode == 0, done.stdout
    assert "hello there" in done.stdout
    assert "turn ended: end_turn" in done.stdout
    assert "no golden to compare with" in done.stdout
    told = json.loads(command("replay", "--json", "--agent", SDK, foreign).stdout)
    assert (told["passed"], told["golden"], told.get("sessions", [])) == (True, False, [])
    assert told["wire"][0]["result"]["protocolVersion"] == 1


# ---------------------------------------------------------------- refresh


def test_a_refresh_rewrites_what_changed_and_names_it(family: Path) -> None:
    before = stamps(family)
    done = command("refresh", family)
    assert (done.returncode, done.stdout) == (0, f"{family}: as it was\n")
    assert stamps(family) == before
    (family / "workspace" / "a.txt").write_text("peas\n")
    done = command("refresh", family)
    assert (done.returncode, done.stdout) == (0, f"{family}: changed\n  session.1.jsonl\n")
    changed = {name for name, stamp in stamps(family).items() if stamp != before[name]}
    assert changed == {"session.1.jsonl", "workspace/a.txt"}
    assert "peas" in (family / "session.1.jsonl").read_text()


def test_a_recording_is_made_again_from_its_script(tmp_path: Path) -> None:
    reads = recorded(seeded(scenario(tmp_path / "golden" / "reads", "What?", script=READS), a_txt="beans\n"))
    (reads / "model.script").write_text(READS.replace("beans.", "peas."))
    assert command("refresh", reads).stdout == f"{reads}: as it was\n"
    done = command("refresh", "--record", reads)
    assert done.stdout == f"{reads}: changed\n  session.jsonl\n  stdout.jsonl\n"
    assert command("replay", "-q", reads).returncode == 0


def test_a_scenario_without_a_script_cannot_be_recorded(tmp_path: Path) -> None:
    bare = scenario(tmp_path / "golden" / "bare", "Hi.")
    done = command("refresh", "--record", bare)
    assert done.returncode == 1
    assert f"{bare}: there is no model.script to record from" in done.stdout


def test_a_refresh_is_refused_under_ci(family: Path) -> None:
    before = stamps(family)
    (family / "workspace" / "a.txt").write_text("peas\n")
    done = command("refresh", family, CI="true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "refused because CI is set" in done.stderr
    assert {name for name, stamp in stamps(family).items() if stamp != before[name]} == {"workspace/a.txt"}


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(("words", "message"), [
    (["replay"], "the following arguments are required: DIR"),
    (["replay", "."], ".: no input.json in it, no session logs in it, and no scenarios below it"),
    (["refresh", "."], ".: no input.json in it and no scenarios below it"),
    (["replay", "--agent", "no-such-agent", "."], "--agent: the agent's command does not exist"),
    (["replay", "--quite", "."], "unrecognized arguments: --quite"),
    (["demo", "now"], "unrecognized arguments: now"),
])
def test_words_that_cannot_be_used_end_with_status_2(tmp_path: Path, words: list[str], message: str) -> None:
    done = command(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("name", ["replay", "refresh", "demo", "explain"])
def test_every_command_has_a_help_that_teaches(name: str) -> None:
    done = command(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"acp-agent {name}" in done.stdout
    assert len(done.stdout.splitlines()) > 8


def test_the_demo_shows_the_whole_story(tmp_path: Path) -> None:
    done = command("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("> The greeting in greet.py is misspelled.", "-Helo", "+Hello", "Yes, it says Hello", "Hello, world",
                 "turn ended: end_turn", "stored and replayable as it stands: session.1.jsonl, session.jsonl"):
        assert part in done.stdout
    assert names(tmp_path) == []

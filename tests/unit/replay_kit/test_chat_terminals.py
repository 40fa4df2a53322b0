"""`acp-agent chat` shows what commands in its terminals print while they run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.unit.replay_kit.chatting import chat, running

SCRIPT = """
call
  tool c1 bash {"command": "COMMAND", "description": "Wait"}
call
  say "Done."
"""

UNTIL_GO = "while [ ! -e go ]; do sleep 0.01; done"


def create(command: str, **members: object) -> str:
    """A prompt to the tiny agent: start a command in a terminal."""
    return f"call terminal/create {json.dumps({'command': 'sh', 'args': ['-c', command], **members})}"


def on_terminal(method: str, number: int = 1) -> str:
    return f"call terminal/{method} {json.dumps({'terminalId': f'terminal-{number}'})}"


def until(process: subprocess.Popen[str], *wanted: str) -> list[str]:
    """The lines shown until all of some were, in whatever order."""
    assert process.stdout is not None
    seen: list[str] = []
    while not set(wanted) <= set(seen):
        line = process.stdout.readline()
        assert line, f"the chat ended before it showed all of {wanted}"
        seen.append(line.removesuffix("\n"))
    return seen


def type_in(process: subprocess.Popen[str], *prompts: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{prompt}\n" for prompt in prompts))
    process.stdin.flush()


def outputs(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("  terminal-")]


def test_a_line_is_shown_before_the_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "model.script").write_text(SCRIPT.replace("COMMAND", f"echo one; {UNTIL_GO}; echo two"))
    with running(tmp_path, "--yes", "Run it", agent=None, ACP_MODEL="scripted/model.script") as process:
        before = until(process, "  terminal-1: one")
        (tmp_path / "go").touch()
        assert process.stdout is not None
        after = process.stdout.read()
    assert outputs("\n".join(before)) == ["terminal-1: one"]
    assert outputs(after) == ["terminal-1: two"]
    assert after.endswith("Done.\nturn ended: end_turn\n")


def test_terminals_that_run_at_once_are_told_apart_and_a_line_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        type_in(process, create(f"echo a; printf b; {UNTIL_GO}; echo c"), create(f"echo A; {UNTIL_GO}; printf B"))
        before = until(process, "  terminal-1: a", "  terminal-2: A")
        (tmp_path / "go").touch()
        type_in(process, on_terminal("wait_for_exit", 1), on_terminal("wait_for_exit", 2))
        after, _ = process.communicate()
    assert sorted(outputs("\n".join(before))) == ["terminal-1: a", "terminal-2: A"]
    assert sorted(outputs(after)) == ["terminal-1: bc", "terminal-2: B"]


def test_nothing_is_shown_of_a_terminal_that_was_released(tmp_path: Path) -> None:
    """A process that left the command's group goes on writing into the terminal."""
    deserter = f"setsid sh -c '{UNTIL_GO}; echo late; touch written'"
    with running(tmp_path) as process:
        type_in(process, create(f"{deserter} & echo early; exec sleep 300"))
        until(process, "  terminal-1: early")
        type_in(process, on_terminal("release"), create(f"touch go; {UNTIL_GO.replace('go', 'written')}"),
                on_terminal("wait_for_exit", 2), create("echo last"), on_terminal("wait_for_exit", 3))
        after, _ = process.communicate()
    assert outputs(after) == ["terminal-3: last"]


def test_what_a_command_printed_before_it_was_killed_is_shown(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        type_in(process, create("echo whole; printf part; touch there; exec sleep 300"),
                create(UNTIL_GO.replace("go", "there")), on_terminal("wait_for_exit", 2), on_terminal("kill"),
                on_terminal("output"), on_terminal("release"))
        shown, _ = process.communicate()
    assert outputs(shown) == ["terminal-1: whole", "terminal-1: part"]


def test_of_more_than_the_agent_lets_a_terminal_keep_the_end_is_shown(tmp_path: Path) -> None:
    command = "printf 'one\\ntwo\\n\\303\\244\\303\\244\\nend\\n'"
    done = chat(tmp_path, stdin=f"{create(command, outputByteLimit=8)}\n{on_terminal('wait_for_exit')}\n")
    assert outputs(done.stdout) == ["terminal-1: [10 bytes left out]", "terminal-1: ä", "terminal-1: end"]
    done = chat(tmp_path, stdin=f"{create('echo one', outputByteLimit=0)}\n{on_terminal('wait_for_exit')}\n")
    assert outputs(done.stdout) == ["terminal-1: [4 bytes left out]"]


def test_json_leaves_output_to_the_frames(tmp_path: Path) -> None:
    done = chat(tmp_path, "--json", stdin=f"{create('echo hello')}\n{on_terminal('wait_for_exit')}\n")
    assert all("frame" in row or "note" in row or "status" in row for row in done.rows)
    assert not any("hello" in row.get("note", "") for row in done.rows)

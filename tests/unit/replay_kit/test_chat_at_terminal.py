"""`acp-agent chat` with somebody at the terminal: typing, Ctrl-C and Ctrl-D at a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
from pathlib import Path

import pytest

from tests.unit.replay_kit.chatting import Terminal

SCRIPT = """
call
  think "Hmm."
  tool c0 read {"file_path": "notes.txt"}
  tool c1 edit {"file_path": "notes.txt", "old_string": "old", "new_string": "new"}
  tool c2 bash {"command": "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two", "description": "Count"}
call
  say "All done."
call
  say "Working"
  hang
call repeat
  say "Still here."
"""


def plain(text: str) -> str:
    """What was shown, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")


def test_a_session_with_our_own_agent_with_questions_diffs_a_live_terminal_and_colours(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("first\nold\nlast\n")
    (tmp_path / "model.script").write_text(SCRIPT)
    with Terminal(tmp_path, agent=None, ACP_MODEL="scripted/model.script", ACP_PERMISSION_MODE="ask") as terminal:
        terminal.see("> ")
        terminal.type("Change it")
        shown = terminal.see("choose [1-4]: ")
        assert "\x1b[31m    -old\x1b[0m" in shown
        assert "\x1b[32m    +new\x1b[0m" in shown
        assert "\x1b[2;3mHmm.\x1b[0m" in shown
        assert "asks to run: Edit notes.txt" in plain(shown)
        terminal.type("1")
        terminal.see("answered: Allow")
        terminal.see("choose [1-4]: ")
        assert (tmp_path / "notes.txt").read_text() == "first\nnew\nlast\n"
        terminal.type("y")
        shown = terminal.see("\x1b[2;36m  terminal-1: \x1b[0m\x1b[2mone\x1b[0m")  # the command waits for `go`
        (tmp_path / "go").touch()
        shown += terminal.see("\x1b[2;36m  terminal-1: \x1b[0m\x1b[2mtwo\x1b[0m")
        assert "    [terminal terminal-1]\x1b[0m" in shown
        shown += terminal.see("\x1b[32m  done\x1b[0m echo one")
        assert "terminal-1: " not in plain(shown)  # nothing is told a second time
        assert "    two" not in plain(shown)
        terminal.see("All done.")
        terminal.see("turn ended: end_turn")
        terminal.see("> ")
        terminal.type("Again")
        terminal.see("Working")
        terminal.interrupt()
        terminal.see("turn ended: cancelled")
        terminal.see("> ")
        terminal.type("And now?")
        terminal.see("Still here.")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_ctrl_c_cancels_a_second_one_ends_the_agent(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("stubborn")
        terminal.see("no")
        terminal.interrupt()
        terminal.see("Ctrl-C again ends the agent")
        terminal.interrupt()
        assert terminal.status() == 1


def test_ctrl_c_while_nothing_runs_says_how_to_end_and_the_next_one_does(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("Ctrl-C again ends")
        terminal.see("> ")
        terminal.type("say once")
        terminal.see("turn ended")
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("Ctrl-C again ends")
        terminal.see("> ")
        terminal.interrupt()
        assert terminal.status() == 0


def test_ctrl_c_while_the_agent_starts_ends_it(tmp_path: Path) -> None:
    with Terminal(tmp_path, agent="sh -c 'echo starting >&2; exec sleep 300'") as terminal:
        terminal.see("starting")
        terminal.interrupt()
        assert terminal.status() == 1


@pytest.mark.parametrize("way", ["/quit", "Ctrl-D"])
def test_the_user_ends_it(tmp_path: Path, way: str) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        if way == "/quit":
            terminal.type(way)
            assert terminal.status() == 0
        else:
            assert terminal.leave() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_its_agent_in_the_middle_of_a_turn(tmp_path: Path, number: signal.Signals) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("hang")
        terminal.see("hanging")
        terminal.child.kill(number)
        assert terminal.status() == 1


def test_a_question_is_cancelled_with_its_turn(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("ask Something")
        terminal.see("choose [1-3]: ")
        terminal.interrupt()
        shown = plain(terminal.see("turn ended: cancelled"))
        assert shown.index("cancel\n") < shown.index("answered: cancelled\n")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_a_question_takes_numbers_and_yes_and_no_and_nothing_else(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        for typed, answer in (("2", "o-allow_always"), ("y", "o-allow_once"), ("No", "o-reject_once")):
            terminal.see("> ")
            terminal.type("ask Something")
            terminal.see("choose [1-3]: ")
            for wrong in ("0", "4", "", "perhaps"):
                terminal.type(wrong)
                terminal.see("a number from 1 to 3, please")
                terminal.see("choose [1-3]: ")
            terminal.type(typed)
            terminal.see(answer)
        terminal.see("> ")
        assert terminal.leave() == 0


def test_ctrl_d_at_a_question_is_no_answer_and_ends_the_chat_after_the_turn(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("ask-two")
        terminal.see("choose [1-3]: ")
        terminal.child.sendeof()
        terminal.see("cancelled then cancelled")
        terminal.see("turn ended: end_turn")
        assert terminal.status() == 0


def test_two_questions_at_once_are_put_one_after_the_other(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("ask-two")
        terminal.see("choose [1-3]: ")
        terminal.type("n")
        terminal.see("choose [1-3]: ")
        terminal.type("y")
        terminal.see("o-reject_once then o-allow_once")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_a_question_that_the_agent_takes_back_is_over(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("ask-withdraw")
        terminal.see("error -32800: the request was cancelled")
        terminal.see("> ")
        terminal.type("say fine")
        terminal.see("fine")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_what_is_typed_before_a_question_is_never_its_answer(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("hang")
        terminal.see("hanging")
        terminal.type("ask Something")
        terminal.type("say 1")
        terminal.type("/cancel")  # Ctrl-C would make the terminal forget what it has not passed on
        terminal.see("turn ended: cancelled")
        shown = terminal.see("choose [1-3]: ")
        assert "> ask Something" in plain(shown)
        terminal.type("3")
        terminal.see("o-reject_once")
        terminal.see("> say 1")
        terminal.see("turn ended: end_turn")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_commands_work_while_a_turn_runs(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("hang")
        terminal.see("hanging")
        terminal.type("/wire")
        terminal.see("frames on")
        terminal.type("/cancel")
        terminal.see('"method":"session/cancel"')
        terminal.see("turn ended: cancelled")
        terminal.see("> ")
        terminal.type("/wire")
        terminal.see("frames off")
        terminal.see("> ")
        terminal.type("/mode fast")
        terminal.see("mode: fast")
        terminal.see("> ")
        terminal.type("/new")
        terminal.see("session session-2 in ")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_a_line_that_ends_in_a_backslash_goes_on(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("say one\\")
        terminal.see(". ")
        terminal.type("two")
        terminal.see("one\r\ntwo\r\n")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_an_agent_that_dies_while_nobody_asks_it_anything_is_told_at_once(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("pid")
        terminal.see("pid ")
        terminal.child.expect(r"\d+")
        agent = int(str(terminal.child.after))
        terminal.see("> ")
        os.kill(agent, signal.SIGKILL)
        terminal.see("the agent was ended by SIGKILL")
        assert terminal.status() == 1


def test_stderr_and_junk_are_told_apart_from_what_the_agent_says(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type("complain dear me")
        assert "stderr: " in terminal.see("dear me\x1b[0m")
        terminal.type("line dear you")
        terminal.see("not a message")
        terminal.see("turn ended")
        terminal.see("> ")
        assert terminal.leave() == 0


FORM = {
    "properties": {
        "name": {"type": "string", "title": "Your name"}, "age": {"type": "integer"},
        "sure": {"type": "boolean", "default": False}, "colour": {"type": "string", "enum": ["red", "blue"]},
        "sizes": {"type": "array", "items": {"anyOf": [{"const": "s", "title": "Small"}, {"const": "l"}]}},
        "note": {"type": "string"}},
    "required": ["name", "age", "colour"],
}


def test_a_form_is_filled_in_a_field_a_line(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.see("> ")
        terminal.type(f"form {json.dumps(FORM)}")
        terminal.see("About you")
        for prompt, typed in (
            ("Your name [string]: ", "Ada"), ("age [integer]: ", "old"), ("age [integer]: ", ""),
            ("age [integer]: ", "36"), ("sure [y/n, default False, optional]: ", ""), ("colour [1-2]: ", "3"),
            ("colour [1-2]: ", "2"), ("sizes [1-2, with commas, optional]: ", "1, 2"),
            ("note [string, optional]: ", ""),
        ):
            terminal.see(prompt)
            terminal.type(typed)
        terminal.see(json.dumps({"action": "accept", "content": {
            "name": "Ada", "age": 36, "sure": False, "colour": "blue", "sizes": ["s", "l"]}}))
        terminal.see("> ")
        assert terminal.leave() == 0


def test_a_form_can_be_declined_or_cancelled(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        for typed in ("/decline", None):
            terminal.see("> ")
            terminal.type(f"form {json.dumps(FORM)}")
            terminal.see("Your name [string]: ")
            if typed is None:
                terminal.interrupt()
            else:
                terminal.type(typed)
            terminal.see('{"action": "cancel"}' if typed is None else '{"action": "decline"}')
        terminal.see("> ")
        assert terminal.leave() == 0


def test_a_login_is_chosen_and_the_session_opened(tmp_path: Path) -> None:
    with Terminal(tmp_path, AGENT_LOGIN="1") as terminal:
        shown = plain(terminal.see("choose [1-2]: "))
        assert "the agent wants a login first" in shown
        assert "1  In the browser" in shown
        assert "2  With a key" in shown
        terminal.type("2")
        terminal.see("session session-1 in ")
        terminal.see("> ")
        assert terminal.leave() == 0


def test_the_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        before = termios.tcgetattr(terminal.child.child_fd)
        terminal.see("> ")
        terminal.type("say hi")
        terminal.see("turn ended")
        terminal.see("> ")
        assert termios.tcgetattr(terminal.child.child_fd) == before
        assert terminal.leave() == 0

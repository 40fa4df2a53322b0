"""`acp-agent chat` without anybody at a terminal: one prompt, or prompts through a pipe."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.support.schema import Pending, validate_frame
from tests.unit.replay_kit.chatting import SDK, TINY, chat, running

SCRIPT = """
model tiny window 1000
call
  think "First I look."
  say "Let me " "write it."
  tool c1 write {"file_path": "notes.txt", "content": "a\\nb\\n"}
  tool c2 bash {"command": "echo from the shell", "description": "Say so"}
  usage 120 8
call
  say "Done."
  usage 140 2
"""


def own(directory: Path, *words: str, script: str = SCRIPT, **environ: str) -> tuple[int, str]:
    """Exit status and output of a chat with our own agent."""
    (directory / "model.script").write_text(script)
    done = chat(directory, *words, agent=None, ACP_MODEL="scripted/model.script", ACP_IDS="sequential", **environ)
    assert done.stderr == ""
    return done.returncode, done.stdout.replace(str(directory.resolve()), "CWD")


def test_one_prompt_is_run_with_our_own_agent_and_a_no_to_every_question(tmp_path: Path) -> None:
    status, shown = own(tmp_path, "Write", "some notes")
    commands = "commands: /help /usage /tools /mcp /rename\n"  # told once the session is there, after the prompt or not
    assert shown.count(commands) == 1
    assert (status, shown.replace(commands, "")) == (0, """\
agent: acp-replay 0.1.0
session session-1 in CWD, mode ask
> Write some notes
title: Write some notes
First I look.
Let me write it.
write Write notes.txt
bash echo from the shell
agent asks: fs/read_text_file CWD/notes.txt
client refuses: CWD/notes.txt does not exist
asks to run: Write notes.txt
    new file CWD/notes.txt
    +a
    +b
answered: Reject
  failed Write notes.txt
    Error: the user rejected tool "write"
asks to run: echo from the shell
answered: Reject
  failed echo from the shell
    Error: the user rejected tool "bash"
Done.
turn ended: end_turn (142 of 1,000 tokens)
""")
    assert not (tmp_path / "notes.txt").exists()


def test_yes_allows_what_the_agent_asks_for(tmp_path: Path) -> None:
    status, shown = own(tmp_path, "--yes", "Write some notes")
    assert status == 0
    assert (tmp_path / "notes.txt").read_text() == "a\nb\n"
    assert shown.count("answered: Allow\n") == 2
    assert "\n  done echo from the shell\n" in shown
    assert "\n  terminal-1: from the shell\n" in shown


def test_an_agent_on_the_python_sdk_reads_writes_and_runs_commands_through_the_client(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    done = chat(tmp_path, agent=SDK, stdin="read a.txt 2 1\nwrite b/c.txt hey\nrun sh -c 'echo out; exit 3'\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b/c.txt").read_text() == "hey"
    assert "agent asks: fs/read_text_file" in done.stdout
    assert "\ntwo\nturn ended: end_turn\n" in done.stdout
    assert "  terminal-1: out\n" in done.stdout
    assert "[out\n]False/3/None" in done.stdout


def test_the_client_serves_no_file_outside_of_the_working_directory(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "secret.txt"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "link").symlink_to(outside)
    (inside / "binary").write_bytes(b"\xff\xfe")
    paths = [outside, inside / "link", inside / "../secret.txt", "relative.txt", inside / "missing", inside,
             inside / "binary"]
    prompts = [f'call fs/read_text_file {json.dumps({"path": str(path)})}\n' for path in paths]
    prompts.append(f'call fs/write_text_file {json.dumps({"path": str(inside / "link"), "content": "x"})}\n')
    prompts.append(f'call fs/read_text_file {json.dumps({"path": str(inside / "x"), "line": 0})}\n')
    done = chat(tmp_path, "--cwd", "in", stdin="".join(prompts))
    answers = [line.split(":", 1)[0] for line in done.stdout.splitlines() if line.startswith("error -")]
    assert answers == ["error -32602"] * 4 + ["error -32002", "error -32603", "error -32603"] + ["error -32602"] * 2
    assert outside.read_text() == "secret"


def test_a_session_works_elsewhere_while_the_agent_is_started_where_the_user_is(tmp_path: Path) -> None:
    """So that a relative path in the agent's command or variables means what it meant when it was typed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "agent.py").write_bytes(Path(TINY.split()[-1]).read_bytes())
    command = json.dumps({"command": "sh", "args": ["-c", "pwd > here"]})
    prompts = ["cwd", f"call terminal/create {command}", 'call terminal/wait_for_exit {"terminalId": "terminal-1"}']
    done = chat(tmp_path, "--cwd", "elsewhere", agent=f"{TINY.split()[0]} agent.py", stdin="\n".join(prompts))
    assert f"session session-1 in {elsewhere.resolve()}" in done.stdout
    assert f"\n{tmp_path.resolve()}\n" in done.stdout
    assert (elsewhere / "here").read_text() == f"{elsewhere.resolve()}\n"


def test_json_has_every_frame_of_both_sides_and_what_the_client_says_is_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    prompts = ["say a b", "ask Something", 'call terminal/create {"command": "true"}',
               'call terminal/output {"terminalId": "terminal-1"}', 'call terminal/wait_for_exit {"terminalId": "?"}',
               f'call fs/read_text_file {json.dumps({"path": str(tmp_path / "a.txt")})}', "/mode fast"]
    done = chat(tmp_path, "--json", stdin="\n".join(prompts))
    assert done.stderr == ""
    frames = [(row["sender"], row["frame"]) for row in done.rows if "frame" in row]
    pending = Pending()
    for sender, frame in frames:
        problems = validate_frame(frame, sender, pending)
        assert sender == "agent" or problems == [], frame
    methods = [frame["method"] for sender, frame in frames if sender == "client" and "method" in frame]
    assert methods == ["initialize", "session/new", *["session/prompt"] * 6, "session/set_mode"]
    assert done.rows[-1] == {"status": 0}


def test_json_tells_everything_that_is_no_frame_by_its_own_key(tmp_path: Path) -> None:
    done = chat(tmp_path, "--json", stdin="line no json\ncomplain oh\nexit 3\n")
    assert {"sender": "agent", "stderr": "oh"} in done.rows
    junk = [row for row in done.rows if "junk" in row]
    assert [(row["sender"], row["junk"]) for row in junk] == [("agent", "no json")]
    assert "not JSON" in junk[0]["why"]
    assert done.rows[-2:] == [
        {"note": "the agent ended with status 3, before it answered session/prompt"}, {"status": 1}]


@pytest.mark.parametrize(("agent", "told"), [
    ("no-such-command-anywhere", "the agent's command does not exist or cannot be executed: no-such-command-anywhere"),
    ("false", "the agent ended with status 1, before it answered initialize"),
    ("true", "the agent ended with status 0, before it answered initialize"),
    ("sh -c 'kill -9 $$'", "the agent was ended by SIGKILL, before it answered initialize"),
    ("sh -c 'exec >/dev/null; cat'", "the agent closed its stdout, before it answered initialize"),
    ("cat", "the agent refused initialize: error -32601: this client does not offer initialize"),
])
def test_an_agent_that_cannot_be_talked_to_is_told_clearly(tmp_path: Path, agent: str, told: str) -> None:
    done = chat(tmp_path, "hi", agent=agent)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (1, told, "")


@pytest.mark.parametrize(("prompt", "told"), [
    ("exit 3", "the agent ended with status 3, before it answered session/prompt"),
    ("die", "the agent was ended by SIGKILL, before it answered session/prompt"),
    ("close", "the agent closed its stdout, before it answered session/prompt"),
])
def test_an_agent_that_goes_away_in_a_turn_is_told_and_ends_the_chat(tmp_path: Path, prompt: str, told: str) -> None:
    done = chat(tmp_path, stdin=f"{prompt}\nsay more\n")
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (1, [f"> {prompt}", told])


def test_what_the_agent_said_last_is_shown_before_its_death_is(tmp_path: Path) -> None:
    done = chat(tmp_path, "x", agent="sh -c 'echo last words; echo and more >&2; exit 5'")
    assert done.stdout.splitlines()[-2:] == [
        "not a message (the line is not JSON: JSON is malformed: invalid character (byte 0)): last words",
        "the agent ended with status 5, before it answered initialize"]
    assert done.stderr == "and more\n"


AT_ONCE = """
import json, sys
results = {"initialize": {"protocolVersion": 1}, "session/new": {"sessionId": "s"},
           "session/prompt": {"stopReason": "end_turn"}}
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
    news = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": {
        "sessionUpdate": "current_mode_update", "currentModeId": asked["method"]}}}
    print(json.dumps(answer), json.dumps(news), sep=chr(10), flush=True)
"""
"""An agent that writes each answer and what follows it with one stroke."""


def test_what_comes_of_an_answer_is_shown_before_what_the_agent_said_after_it(tmp_path: Path) -> None:
    done = chat(tmp_path, "go", agent=shlex.join([sys.executable, "-c", AT_ONCE]))
    assert done.returncode == 0
    assert done.stdout.splitlines()[:5] == [
        "mode: initialize", f"session s in {tmp_path.resolve()}", "> go", "mode: session/new", "turn ended: end_turn"]


def test_an_answer_that_came_to_nothing_is_told_and_ends_the_turn(tmp_path: Path) -> None:
    empty = AT_ONCE.replace('"session/prompt": {"stopReason": "end_turn"}', '"session/prompt": ...').replace(
        "    print", "    if answer['result'] is ...:\n        del answer['result']\n    print")
    done = chat(tmp_path, "go", agent=shlex.join([sys.executable, "-c", empty]))
    assert done.returncode == 1
    assert "the agent's answer to session/prompt has neither a result nor an error" in done.stdout.splitlines()


def test_lines_that_are_no_messages_are_told_and_the_turn_goes_on(tmp_path: Path) -> None:
    done = chat(tmp_path, stdin='line hello\nline []\nline {"id": 1}\nsay fine\n')
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("not a message")] == [
        "not a message (the line is not JSON: JSON is malformed: invalid character (byte 0)): hello",
        "not a message (batches are not part of this protocol: send one message a line): []",
        'not a message (not a request, notification or response: it has no method, result or error): {"id": 1}']
    assert "\nfine\n" in done.stdout


def test_a_turn_that_does_not_end_with_end_turn_is_a_failure(tmp_path: Path) -> None:
    assert chat(tmp_path, stdin="say a\ncall nobody/knows {}\n").returncode == 0
    status, shown = own(tmp_path, "go", script='call\n  throw AUTH "no key"\n')
    assert status == 1
    assert shown.splitlines()[-1] == 'session/prompt: error -32603: the turn failed: no key {"code":"AUTH"}'


def test_prompts_through_a_pipe_are_run_one_after_another_and_a_backslash_joins_lines(tmp_path: Path) -> None:
    done = chat(tmp_path, stdin="say one\\\ntwo\r\n\n//say literally\nsay last")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("> ")] == [
        "> say one", "> /say literally", "> say last"]
    assert "\none\ntwo\nturn ended" in done.stdout


def test_prompts_from_a_file_are_run_too(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("say one\nsay two\n/quit\nsay three\n")
    done = chat(tmp_path, stdin=tmp_path / "prompts")
    assert done.returncode == 0
    assert ("\ntwo\n" in done.stdout, "three" in done.stdout) == (True, False)


def test_a_command_that_nobody_has_goes_to_the_agent_unless_it_is_a_slip(tmp_path: Path) -> None:
    done = chat(tmp_path, stdin="/qiut\n/compact now\n/mode\n/new\n/help\n/cancel\n/quit\nsay no more\n")
    assert done.returncode == 0
    assert "did you mean /quit? //qiut sends the line as it is\n" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("> ")] == ["> /compact now"]
    assert "  slow  Slow and careful\n  fast  Fast: hurries\n" in done.stdout
    assert "session session-2 in " in done.stdout
    assert "/mode [NAME]" in done.stdout
    assert "no turn is running" in done.stdout


def test_a_mode_is_set_by_its_name_or_its_id(tmp_path: Path) -> None:
    done = chat(tmp_path, stdin="/mode slow and CAREFUL\n/mode fast\n/mode unknown\n")
    assert [line for line in done.stdout.splitlines() if line.startswith("mode: ")] == [
        "mode: slow", "mode: fast", "mode: unknown"]


def test_questions_are_answered_by_rule_and_one_without_a_fitting_option_is_cancelled(tmp_path: Path) -> None:
    prompts = "ask A\nask-two\nask-strange\nask-withdraw\n"
    answers = ("o-allow_once", "o-reject_once")
    for flags, answer in ((["--yes"], answers[0]), ([], answers[1])):
        done = chat(tmp_path, *flags, stdin=prompts)
        assert f"\n{answer}\nturn ended" in done.stdout
        assert f"\n{answer} then {answer}\n" in done.stdout
        assert "\ncancelled\nturn ended" in done.stdout


def test_forms_are_not_offered_when_nobody_is_there_to_fill_them_in(tmp_path: Path) -> None:
    done = chat(tmp_path, "--json", 'form {"properties": {}}')
    frames = [row["frame"] for row in done.rows if row.get("sender") == "client" and "frame" in row]
    assert "elicitation" not in frames[0]["params"]["clientCapabilities"]
    assert frames[-1]["error"]["code"] == -32601


def test_frames_are_shown_with_their_direction_cut_or_whole(tmp_path: Path) -> None:
    text = "word" * 200
    for flag, cut in (("--wire", True), ("--wire=full", False)):
        lines = chat(tmp_path, flag, f"say {text}").stdout.splitlines()
        chunk = next(line for line in lines if line.startswith("<- ") and "agent_message_chunk" in line)
        assert (text in chunk, len(chunk) < 260) == (not cut, cut)
        assert any(line.startswith('-> {"id":3,"method":"session/prompt"') for line in lines)
        assert text in lines  # and the message itself, whole, on a line of its own
    assert "<- " not in chat(tmp_path, f"say {text}").stdout


def test_frames_between_its_pieces_do_not_tear_a_message(tmp_path: Path) -> None:
    lines = chat(tmp_path, "--wire", "say one two three").stdout.splitlines()
    assert "one two three" in lines


def test_output_that_is_piped_has_no_control_codes_whatever_the_agent_says(tmp_path: Path) -> None:
    status, shown = own(tmp_path, "go", script='call\n  say "\\u001b[31mred\\u0007\\u001b]0;title\\u009b2J\\rback"\n',
                        COLORTERM="truecolor")
    assert status == 0
    assert not any((ord(char) < 32 and char != "\n") or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert "␛[31mred␇" in shown


def test_an_agent_of_another_protocol_version_is_refused(tmp_path: Path) -> None:
    done = chat(tmp_path, "hi", AGENT_VERSION="2")
    assert done.returncode == 1
    assert done.stdout == "the agent speaks version 2 of the protocol, this client version 1\n"


def test_a_login_that_is_missing_is_told_with_the_ways_to_it(tmp_path: Path) -> None:
    done = chat(tmp_path, "hi", AGENT_LOGIN="1")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "the agent opened no session: error -32000: who are you?; log in with the agent's own means first "
        "(it offers: web, key)")


def test_a_process_that_the_agent_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    done = chat(tmp_path, "left")  # looks for processes itself
    assert "\nleft\n" in done.stdout


def test_a_command_in_a_terminal_that_was_never_released_is_ended(tmp_path: Path) -> None:
    done = chat(tmp_path, 'call terminal/create {"command": "sleep", "args": ["300"]}')
    assert "terminal-1" in done.stdout


def test_an_agent_that_will_not_end_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "stubborn") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("> "):
            pass
        assert process.stdout.read(2) == "no"
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 1


def test_ctrl_c_cancels_the_turn_and_the_failure_is_told_by_the_exit_status(tmp_path: Path) -> None:
    with running(tmp_path, "hang") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("> "):
            pass
        assert process.stdout.read(7) == "hanging"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 1
    assert rest.splitlines() == [
        "", "cancel", "cancelling; Ctrl-C again ends the agent", "turn ended: cancelled"]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_everything_quietly(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with running(tmp_path, *flags, "say " + "word " * 20_000) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(("words", "told"), [
    (["--agnet", "x"], "unknown flag --agnet; did you mean --agent? "),
    (["--wire=half"], "unknown flag --wire=half; did you mean --wire? "),
    (["--agent"], "--agent needs a value"),
    (["--agent", "  "], "--agent is empty"),
    (["--agent", "a 'b"], "--agent cannot be read as a command line"),
    (["--cwd", "nowhere"], "--cwd is not a directory"),
])
def test_a_wrong_command_line_is_refused_with_status_2(tmp_path: Path, words: list[str], told: str) -> None:
    done = chat(tmp_path, *words, agent=None)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"acp-agent: chat: {told}" in done.stderr


def test_help_of_the_command_teaches_it(tmp_path: Path) -> None:
    done = chat(tmp_path, "--help", agent=None)
    assert done.returncode == 0
    for word in ("--agent COMMAND", "--cwd DIR", "--wire=full", "--yes", "--json", "/mode [NAME]", "Ctrl-C"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_prompt_that_looks_like_a_flag_goes_behind_two_dashes(tmp_path: Path) -> None:
    assert "> --help --yes\n" in chat(tmp_path, "--", "--help", "--yes").stdout

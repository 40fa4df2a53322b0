"""A model script through the real agent: what a client sees of it, and that what was stored replays exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame
from tests.wire.runs import Tokens, data, directory_of, log_in, logs_of, normal_logs, results, side_by_side

FULL = {"ACP_PERMISSION_MODE": "full-access"}
Drive = Callable[[AgentProcess, str], None]
Traces = tuple[list[str], dict[str, list[str]]]


def script(bench: Workbench, text: str) -> dict[str, str]:
    """The settings under which this script answers."""
    file = bench.store.parent / "a.script"
    file.write_text(text, encoding="utf-8")
    return {"ACP_MODEL": f"scripted/{file}"}


def ending(answer: Frame) -> object:
    """A prompt's stop reason, or its error's message."""
    return answer["result"]["stopReason"] if "result" in answer else answer["error"]["message"]


def run(bench: Workbench, environ: Mapping[str, str], name: str, drive: Drive) -> tuple[Path, Traces]:
    """One session in a new workspace: its stored directory, and what is comparable of its wire and its logs."""
    workspace = bench.workspace / name
    workspace.mkdir()
    process = bench(environ=environ)
    process.initialize()
    session = process.new_session(workspace)
    drive(process, session)
    assert process.close() == 0
    tokens = Tokens(workspace)
    wire = [tokens(json.dumps(frame)) for frame in side_by_side(process.received)]
    directory = directory_of(bench, session)
    return directory, (wire, normal_logs(directory, workspace))


SECOND_ROOT = '\nlane root 2\ncall\n  say "Never asked."\n'
"""With roots told apart, the log says which one it is, as a replay's does: so both are equal to the last number."""


def replays(bench: Workbench, text: str, drive: Drive, extra: Mapping[str, str] = FULL) -> Path:
    """Run a script, replay what was stored: the same wire and logs. Returns the first run's directory."""
    directory, first = run(bench, {**script(bench, text + SECOND_ROOT), **extra}, "scripted", drive)
    _, second = run(bench, {"ACP_REPLAY_DIR": str(directory), **extra}, "replayed", drive)
    assert second[0] == first[0], "the wire"
    assert second[1].keys() == first[1].keys(), "the logs"
    for name, rows in first[1].items():
        assert second[1][name] == rows, name
    assert not list((bench.workspace / "replayed").iterdir()), "a replay touches nothing"
    return directory


# ---------------------------------------------------------------- round trips


EVERYTHING = r"""
model small-1 window 64000
call
  think "Let " "me " "see."
  say by 3 "Looking around."
  tool by 7 w write {"file_path": "a.txt", "content": "one\ntwo\n"}
  tool b bash {"command": "cat a.txt; exit 4", "description": "d"}
  tool x read {"file_path": "gone.txt"}
  tool u teleport
  tool j read "{not JSON"
  usage 100 20 cached 50 written 7 reasoning 3
call
  say "Half"
  throw RATE_LIMIT "slow down" retry-after 200 status 429
call
call
  tool e edit {"file_path": "a.txt", "old_string": "two", "new_string": "three"}
  tool t todo_write {"todos": [{"content": "Go on", "status": "in_progress"}]}
call
  say "Done."
call
  say "Cut "
  tool n bash {"command": "never", "description": "d"}
  finish max-tokens
call
  say "I wo"
  throw REFUSAL "no"
call
  say "Well"
  throw SERVER "it broke" final
call
  say "partial"
  hang
call
  think "Hm"
  hang
call repeat
  say "The " "end."
"""


def drive_everything(process: AgentProcess, session: str) -> None:
    for number, expected in enumerate(("end_turn", "max_tokens", "refusal", "the turn failed: it broke")):
        assert ending(process.prompt(session, f"Prompt {number}.")) == expected
    for kind, text in (("agent_message_chunk", "partial"), ("agent_thought_chunk", "Hm")):
        prompt = process.start_prompt(session, "To be cancelled.")
        process.wait_for_update(kind, content={"type": "text", "text": text})
        process.cancel(session)
        assert ending(process.response(prompt)) == "cancelled"
    for _ in range(2):
        assert ending(process.prompt(session, "The last.")) == "end_turn"


def test_a_session_with_everything_in_it_replays_to_itself(agent: Workbench) -> None:
    directory = replays(agent, EVERYTHING, drive_everything)
    assert (agent.workspace / "scripted" / "a.txt").read_text() == "one\nthree\n"
    (header,) = data(log_in(directory / "session.jsonl"), "request/header")
    assert header["header"]["config"] == {"provider": "scripted", "model": "small-1"}
    (context,) = data(log_in(directory / "session.jsonl"), "request/context")
    assert context["contextWindow"] == 64000


FAMILY = """
call
  say "Hi."
call
  tool a subagent {"description": "one", "prompt": "Go."}
  tool b subagent {"description": "two", "prompt": "Go."}
  tool c subagent {"description": "deep", "prompt": "Go."}
call
  tool a subagent {"description": "again", "prompt": "Go."}
  tool f subagent_fork {"description": "fork", "prompt": "Remember?"}
call
  say "All done."
lane root > a
call
  say "I am one."
lane root > b
call
  say "I am two."
lane root > c
call
  tool a subagent {"description": "deeper", "prompt": "Go."}
call
  say "Cut"
  finish max-tokens
lane root > c > a
call
  say "Deepest."
lane root > a[1]
call
  say "I am one's namesake."
lane root > f
call
  say "I do."
"""


def drive_family(process: AgentProcess, session: str) -> None:
    for prompt in ("Hello.", "Go."):
        assert ending(process.prompt(session, prompt)) == "end_turn"


def test_a_family_replays_to_itself_each_child_from_its_own_lane(agent: Workbench) -> None:
    directory = replays(agent, FAMILY, drive_family)
    root, *children = logs_of(agent, directory.name)
    assert sorted((log.header["delegationDepth"], log.header["spawn"]["callId"], log.header["spawn"]["index"])
                  for log in children) == [(1, "a", 0), (1, "a", 1), (1, "b", 0), (1, "c", 0), (1, "f", 0), (2, "a", 0)]
    assert results(root) == [
        "I am one.", "I am two.",
        "Error: subagent run hit its token limit before finishing\nPartial output before the run ended:\nCut",
        "I am one's namesake.", "I do."]


PERMISSION = """
call
  tool w write {"file_path": "a.txt", "content": "x"}
  tool b bash {"command": "touch b.txt", "description": "d"}
call
  say "One of two."
"""


def test_permission_questions_and_their_answers_replay_to_themselves(agent: Workbench) -> None:
    def drive(process: AgentProcess, session: str) -> None:
        process.answers["session/request_permission"] = policies.script([policies.allow, policies.reject])
        assert ending(process.prompt(session, "Go.")) == "end_turn"

    directory, first = run(agent, script(agent, PERMISSION + SECOND_ROOT), "scripted", drive)
    assert [path.name for path in (agent.workspace / "scripted").iterdir()] == ["a.txt"]
    _, second = run(agent, {"ACP_REPLAY_DIR": str(directory), "ACP_REPLAY_TOOLS": "live"}, "replayed", drive)
    assert second == first


def test_with_one_root_the_log_lacks_only_what_says_which_recording_was_bound(agent: Workbench) -> None:
    def drive(process: AgentProcess, session: str) -> None:
        assert ending(process.prompt(session, "Go.")) == "end_turn"

    directory, first = run(agent, script(agent, 'call\n  say by 2 "Hello."'), "scripted", drive)
    _, second = run(agent, {"ACP_REPLAY_DIR": str(directory)}, "replayed", drive)
    assert second[0] == first[0]
    kinds, again = ([json.loads(row)["type"] for row in logs["session.jsonl"]] for logs in (first[1], second[1]))
    assert "replay/bound" not in kinds
    assert [kind for kind in again if kind != "replay/bound"] == kinds


# ---------------------------------------------------------------- what a client author sees


def test_a_client_can_open_as_many_sessions_as_it_likes_at_once(agent: Workbench) -> None:
    process = agent(environ=script(agent, 'call\n  say "One."\n  wait go\ncall\n  say "Two."'))
    process.initialize()
    sessions = [process.new_session() for _ in range(3)]
    prompts = [process.start_prompt(session, "Go.") for session in sessions]
    for session in sessions:
        process.wait_for_update("agent_message_chunk", session=session)
    (agent.workspace / "go").touch()
    assert [ending(process.response(prompt)) for prompt in prompts] == ["end_turn"] * 3
    for session in sessions:
        process.prompt(session, "Again.")
        assert process.text(session) == "One.Two."


def test_a_hanging_call_makes_its_file_in_the_session_s_directory(agent: Workbench) -> None:
    process = agent(environ=script(agent, 'call\n  say "Wait"\n  hang ready'))
    process.initialize()
    session = process.new_session()
    prompt = process.start_prompt(session, "Go.")
    process.wait_until((agent.workspace / "ready").exists, "the ready file")
    process.cancel(session)
    assert ending(process.response(prompt)) == "cancelled"
    assert process.text(session) == "Wait"


@pytest.mark.parametrize(("text", "message"), [
    ("call\n  sing", ":2: expected an action: say"),
    (None, ": the model script cannot be read: No such file or directory; ACP_MODEL=scripted/FILE names it"),
])
def test_a_script_that_cannot_be_used_fails_the_prompt_and_is_told_on_stderr(
    agent: Workbench, text: str | None, message: str,
) -> None:
    environ = script(agent, text or "")
    file = Path(environ["ACP_MODEL"].partition("/")[2])
    if text is None:
        file.unlink()
    process = agent(environ=environ)
    process.initialize()
    session = process.new_session()
    for _ in range(2):
        answer = process.prompt(session, "Go.")
        assert answer["error"]["message"].startswith(f"the turn failed: {file}{message}")
    process.close()
    assert process.stderr.count(f"{file}{message}") == 1


def test_a_relative_script_is_found_where_the_agent_was_started_and_a_recording_beats_it(
    agent: Workbench, tmp_path: Path,
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.script").write_text('call\n  say "Relative."')
    environ = {"ACP_MODEL": "scripted/scripts/a.script"}
    process = agent(environ=environ, cwd=tmp_path)
    process.initialize()
    session = process.new_session(agent.workspace)
    process.prompt(session, "Go.")
    assert process.text(session) == "Relative."
    process.close()
    recording = directory_of(agent, session)
    (tmp_path / "scripts" / "a.script").unlink()
    replaying = agent(environ=environ, cwd=tmp_path, replay=recording)
    replaying.initialize()
    again = replaying.new_session(agent.workspace)
    replaying.prompt(again, "Go.")
    assert replaying.text(again) == "Relative."


def test_an_unknown_provider_is_refused_at_start(agent: Workbench) -> None:
    process = agent(environ={"ACP_MODEL": "script/a.script"})
    assert process.close() == 2
    assert "ACP_MODEL: no provider is named 'script' (script/a.script); known: scripted" in process.stderr

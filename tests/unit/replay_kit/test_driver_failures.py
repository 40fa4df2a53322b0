"""How the driver fails: it says where in the script, what was awaited, what was seen, and leaves nothing running."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from replay.artefacts import Artefacts
from replay.driver import play
from replay.failures import AgentGone, CannotStart, NotProtocol, RunFailed, ScriptError, StepFailed, Stuck
from replay.transports import TransportName
from tests.unit.replay_kit.driven import START, TIMEOUT, op, running, scripted

PUPPET = (sys.executable, str(Path(__file__).parents[2] / "support" / "puppet_agent.py"))


def puppet(directory: Path, *prompts: str | dict[str, Any], **members: Any) -> Artefacts:
    """Play prompts, and other steps between them, with the puppet agent."""
    rest = [op("prompt", text=prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    options = {name: members.pop(name) for name in ("transport", "timeout") if name in members}
    return play(scripted(directory, *START, *rest, **members), PUPPET, root=directory / "run",
                **{"timeout": TIMEOUT, **options})


def failing(kind: type[RunFailed], directory: Path, *prompts: str | dict[str, Any], **members: Any) -> RunFailed:
    """How a run fails, which must be in this way, with nothing left running."""
    with pytest.raises(kind) as caught:
        puppet(directory, *prompts, **members)
    assert running(directory / "run") == []
    return caught.value


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_a_stuck_agent_ends_with_what_was_awaited_and_what_was_seen(
    tmp_path: Path, transport: TransportName,
) -> None:
    failure = failing(Stuck, tmp_path, "complain I am tired", "orphan", "silence", timeout=1, transport=transport)

    assert isinstance(failure, Stuck)
    assert failure.awaited == "the response to session/prompt"
    assert failure.where == f"{tmp_path}/scenario/input.json: step 5 (prompt)"
    told = str(failure)
    assert told.startswith(f"{failure.where}: waited 1 s for the response to session/prompt\nlast frames:\n")
    assert '"text":"silence"' in told.split("stderr:")[0].rstrip().rsplit("\n", 1)[1]
    assert told.count("<- ") == 4
    assert told.endswith("stderr:\n  I am tired")


def test_a_step_may_have_its_own_time_limit(tmp_path: Path) -> None:
    failure = failing(Stuck, tmp_path, op("prompt", text="silence", timeoutMs=20))
    assert failure.problem == "waited 0.02 s for the response to session/prompt"


@pytest.mark.parametrize(("step", "awaited"), [
    (op("waitForFile", path="never", timeoutMs=20), "the file never in the workspace"),
    (op("cancel", waitForFile={"path": "never", "timeoutMs": 20}), "the file never in the workspace"),
    (op("waitForUpdate", update={"sessionUpdate": "plan"}, timeoutMs=20), 'an update like {"sessionUpdate":"plan"}'),
    (op("waitForUpdate", update="agent_message_chunk", text="yours", timeoutMs=20),
     """an update like {"sessionUpdate":"agent_message_chunk"} with the text 'yours'"""),
    (op("waitForRequest", method="fs/read_text_file", timeoutMs=20), "request number 1 of fs/read_text_file"),
    (op("promptAndWaitForAgentMessage", text="mine", waitForText="min", timeoutMs=50), "the agent message 'min'"),
])
def test_every_wait_says_what_it_is_for(tmp_path: Path, step: dict[str, Any], awaited: str) -> None:
    failure = failing(Stuck, tmp_path, "mine", step)
    assert isinstance(failure, Stuck)
    assert failure.awaited == awaited
    assert failure.where.endswith(f"step 4 ({step['op']})")


@pytest.mark.parametrize("steps", [
    [op("startPrompt", text="mine"), op("waitForUpdate", update="agent_message_chunk")],
    ["mine", op("startPrompt", text="silence")],
])
def test_an_update_that_was_waited_for_or_came_before_the_prompt_does_not_count(
    tmp_path: Path, steps: list[Any],
) -> None:
    again = op("waitForUpdate", update="agent_message_chunk", timeoutMs=200)
    assert failing(Stuck, tmp_path, *steps, again).where.endswith("step 5 (waitForUpdate)")


@pytest.mark.parametrize("transport", ["pipe", "pty"])
@pytest.mark.parametrize(("line", "why"), [
    ("Welcome!", "JSON is malformed"), ("{}", "missing required field `jsonrpc`"), ("[]", "Expected `object`"),
    ('{"jsonrpc": "2.0"}', "neither a request nor a response"),
    ('{"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": ""}}', "neither a request"),
    ('{"jsonrpc": "1.0", "method": "x"}', "'1.0'"),
])
def test_a_line_on_stdout_that_is_not_protocol_ends_the_run(
    tmp_path: Path, line: str, why: str, transport: TransportName,
) -> None:
    failure = failing(NotProtocol, tmp_path, f"print {line}", transport=transport)
    assert isinstance(failure, NotProtocol)
    assert failure.line.decode() == line
    assert why in failure.problem


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    assert puppet(tmp_path, "print  ", "print").status == 0


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_an_agent_that_writes_before_it_reads_on_is_read_while_it_is_written_to(
    tmp_path: Path, transport: TransportName,
) -> None:
    """Both pipes are full at some time: whoever only wrote then would wait for ever."""
    floods = [op("startPrompt", text="flood 100") for _ in range(3)]
    said = [op("startPrompt", text="y" * 200_000) for _ in range(3)]
    run = puppet(tmp_path, *floods, *said, *[op("awaitPrompt")] * 6, transport=transport)
    assert sum(b'"stopReason"' in line.line for line in run.wire) == 6


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_an_agent_that_is_gone_is_not_waited_for(tmp_path: Path, transport: TransportName) -> None:
    failure = failing(AgentGone, tmp_path, "complain farewell", "exit 7", transport=transport)
    assert "the agent was gone before the response to session/prompt came" in str(failure)
    assert "the agent ended with status 7" in str(failure)
    assert "farewell" in str(failure)


def test_an_agent_that_left_a_process_with_its_stdout_is_seen_to_be_gone(tmp_path: Path) -> None:
    """The process keeps the pipe open, so its end alone would never tell."""
    command = ["/bin/sh", "-c", "sleep 300 & exec " + " ".join(PUPPET)]
    scenario = scripted(tmp_path, *START, op("prompt", text="exit 0"))
    with pytest.raises(AgentGone):
        play(scenario, command, root=tmp_path / "run", timeout=TIMEOUT)
    assert running(tmp_path / "run") == []


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_a_command_that_does_not_exist_is_told(tmp_path: Path, transport: TransportName) -> None:
    for command in (["no-such-agent"], [str(tmp_path)], []):
        with pytest.raises(CannotStart, match=r"the agent's command"):
            play(scripted(tmp_path, *START), command, root=tmp_path / f"run-{len(command)}{command}",
                 transport=transport)


def test_a_root_is_used_once(tmp_path: Path) -> None:
    puppet(tmp_path)
    with pytest.raises(CannotStart, match="cannot make the run's directories"):
        puppet(tmp_path)


def test_an_answer_that_a_step_does_not_expect_fails_it(tmp_path: Path) -> None:
    failure = failing(StepFailed, tmp_path, op("setMode", mode="x"))
    assert failure.problem == ("session/set_mode was answered with error -32601: no such method, where a result was "
                               "expected (a step that expects an error has to say so)")


def test_a_result_where_an_error_was_expected_fails_the_step(tmp_path: Path) -> None:
    failure = failing(StepFailed, tmp_path, op("promptExpectError", text="mine"))
    assert failure.problem == "session/prompt was answered with a result where an error was expected"


def test_another_error_than_the_expected_one_fails_the_step(tmp_path: Path) -> None:
    scenario = scripted(tmp_path, op("initialize"), op("call", method="no/such", expectError=True),
                        op("newSessionExpectError", code=-32602))
    with pytest.raises(StepFailed, match="a result where an error was expected"):
        play(scenario, PUPPET, root=tmp_path / "run", timeout=TIMEOUT)


def test_an_answer_of_a_kind_that_is_not_offered_is_the_scripts_mistake_after_the_step(tmp_path: Path) -> None:
    failure = failing(ScriptError, tmp_path, "ask", "mine", permissionAnswers=[{"kind": "allow_always"}])
    assert failure.where.endswith("step 3 (prompt)")
    assert failure.problem == ("the permission answer 'allow_always' was not offered for the call 'c'; offered: "
                               "allow_once, reject_once")
    assert '{"stopReason": "end_turn"}' in str(failure)  # the step was finished first


@pytest.mark.parametrize("step", [
    op("waitForTurnStart"), op("waitForTurnEnd"), op("waitForSubagentTurnEnd"), op("waitForTitleAfterTurnEnd"),
    op("waitForEventAfterTurnEnd", type="x"),
])
def test_waiting_for_the_log_of_an_agent_that_stores_none_is_the_scripts_mistake(
    tmp_path: Path, step: dict[str, Any],
) -> None:
    """Found without waiting: once a prompt is answered, the log would be there."""
    failure = failing(ScriptError, tmp_path, "mine", step)
    assert "cannot be waited for" in failure.problem
    assert "use waitForUpdate or waitForFile" in failure.problem


def test_a_cancel_that_would_wait_for_the_log_of_a_silent_agent_is_the_scripts_mistake_too(tmp_path: Path) -> None:
    failure = failing(ScriptError, tmp_path, op("promptAndCancel", text="silence", timeoutMs=50))
    assert "the start of turn 1" in failure.problem
    assert "the agent stored no log of this session" in failure.problem


@pytest.mark.parametrize(("steps", "problem"), [
    (["mine", op("awaitPrompt")], "every prompt of this session was awaited already"),
    ([op("newSession", session="b"), op("startPrompt", text="mine", name="p"), op("newSession"),
      op("awaitPrompt", prompt="p")], "the prompt 'p' was sent in another session; name that in `session`"),
    ([op("call", method="x", params={"sessionId": "{{session:b}}"})], "no session was made for {{session:b}}"),
])
def test_steps_about_what_does_not_exist_are_the_scripts_mistake(
    tmp_path: Path, steps: list[Any], problem: str,
) -> None:
    assert failing(ScriptError, tmp_path, *steps).problem == problem


def test_an_agent_that_does_not_end_when_its_input_does_is_stuck(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", " ".join(PUPPET) + "; exec sleep 300"]
    scenario = scripted(tmp_path, *START)
    with pytest.raises(Stuck, match="the end of the agent's output") as caught:
        play(scenario, command, root=tmp_path / "run", timeout=1)
    assert caught.value.where.endswith("after the last step")
    assert running(tmp_path / "run") == []

"""Scripts over several sessions and processes: what is sent, what the names mean, and what the golden wire says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from replay.artefacts import Artefacts, Restart
from replay.driver import play
from replay.exchange import Exchange, Frame
from replay.failures import RunFailed, ScriptError, StepFailed, Stuck
from replay.normalize import normalise
from replay.transports import TransportName
from tests.unit.replay_kit.driven import TIMEOUT, frames, op, requests, running, said, scripted, updates

AGENT = (sys.executable, str(Path(__file__).with_name("storing_agent.py")))
RESTART, INITIALIZE = op("restart"), op("initialize")


def played(directory: Path, *steps: dict[str, Any], **members: Any) -> Artefacts:
    """Play steps, after `initialize`, with the agent that keeps its sessions."""
    options = {name: members.pop(name) for name in ("transport", "timeout", "extra_env", "store") if name in members}
    return play(scripted(directory, INITIALIZE, *steps, **members), AGENT, root=directory / "run",
                **{"timeout": TIMEOUT, **options})


def asked(run: Artefacts, method: str) -> list[Any]:
    """The params the client sent with a method."""
    sent = [json.loads(line.line) for line in run.wire if line.sender == "client"]
    return [frame.get("params") for frame in sent if frame.get("method") == method]


def listed(run: Artefacts) -> list[list[str]]:
    """The sessions on each page that came."""
    pages = [frame["result"]["sessions"] for frame in frames(run) if "sessions" in frame.get("result", {})]
    return [[entry["sessionId"] for entry in page] for page in pages]


def new(name: str) -> dict[str, Any]:
    return op("newSession", session=name)


# ---------------------------------------------------------------- sessions


def test_a_session_is_known_by_its_names_whoever_opened_it(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), op("prompt", text="one"), new("b"),
        op("loadSession", session="a", name="again"), op("prompt", text="two"), op("prompt", session="b", text="three"),
        op("prompt", session="again", text="four"), op("resumeSession", session="b"), op("prompt", text="five"))
    first, second = ("kept-session-1-1", "kept-session-1-2")
    assert [params["sessionId"] for params in asked(run, "session/prompt")] == [first, first, second, first, second]
    places = {"cwd": str(tmp_path / "run" / "workspace"), "mcpServers": []}
    assert asked(run, "session/load") == [{"sessionId": first} | places]
    assert asked(run, "session/resume") == [{"sessionId": second} | places]
    assert said(run)[1] == "1: one1: two"  # the load showed what had been said


def test_a_fork_is_a_session_of_its_own_and_has_its_sources_past(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), op("prompt", text="one"), op("forkSession", source="a", session="b", cwd="{{cwd}}/deep"),
        op("prompt", text="two"), op("forkSession", session="c", additionalDirectories=["{{home}}"]),
        op("loadSession", session="c"), op("prompt", session="a", text="three"))
    names = [f"kept-session-1-{number}" for number in (1, 2, 3)]
    workspace = str(tmp_path / "run" / "workspace")
    assert asked(run, "session/fork") == [
        {"sessionId": names[0], "cwd": f"{workspace}/deep", "mcpServers": []},
        {"sessionId": names[1], "cwd": workspace, "mcpServers": [],
         "additionalDirectories": [str(tmp_path / "run" / "home")]}]
    assert [params["sessionId"] for params in asked(run, "session/prompt")] == [names[0], names[1], names[0]]
    assert said(run)[-1] == "1: one1: two1: three"


def test_sessions_are_closed_and_deleted_and_refusals_are_expected(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), new("b"), op("closeSession"), op("closeSession", expectError=True, code=-32002),
        op("promptExpectError", text="x"), op("deleteSession", session="a"), op("deleteSession", sessionId="nobody"),
        op("loadSession", session="a", expectError=True, code=-32002), op("resumeSession", sessionId="nobody",
                                                                         expectError=True),
        op("forkSession", sourceId="nobody", expectError=True, code=-32002), op("listSessions"))
    assert asked(run, "session/close") == [{"sessionId": "kept-session-1-2"}] * 2
    assert listed(run) == [["kept-session-1-2"]]
    assert asked(run, "session/fork")[0]["sessionId"] == "nobody"


def test_of_deleted_sessions_the_one_before_is_the_latest(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), new("b"), new("c"), op("loadSession", session="a"), op("repeat", times=2, steps=[
            op("deleteSession")]), op("prompt", text="still there"))
    assert [params["sessionId"][-1] for params in asked(run, "session/delete")] == ["1", "3"]
    assert asked(run, "session/prompt")[0]["sessionId"] == "kept-session-1-2"


@pytest.mark.parametrize(("step", "problem"), [
    (op("loadSession", sessionId="nobody"), "session/load was answered with error -32002"),
    (op("loadSession", expectError=True), "session/load was answered with a result where an error was expected"),
    (op("forkSession", sourceId="nobody", expectError=True, code=-1), "expected the code -1"),
    (op("listSessions", cursor="{{cursor}}"), "no page of a list said where {{cursor}} would be"),
])
def test_an_answer_of_another_kind_fails_the_step(tmp_path: Path, step: dict[str, Any], problem: str) -> None:
    with pytest.raises(RunFailed, match=problem) as caught:
        played(tmp_path, new("a"), step)
    assert caught.value.where.endswith(f"step 3 ({step['op']})")


def test_pages_of_a_list_are_followed_as_far_as_the_step_says(tmp_path: Path) -> None:
    made = [op("repeat", times=5, steps=[op("newSession"), op("prompt", text="x")])]
    run = played(
        tmp_path, *made, op("listSessions", followCursor=True), op("listSessions", followCursor=True, pages=2),
        op("listSessions", cursor="{{cursor}}", cwd="{{home}}"), op("listSessions"))
    assert [len(page) for page in listed(run)] == [2, 2, 1, 2, 2, 1, 2]
    assert asked(run, "session/list") == [
        {}, {"cursor": "behind-number-2"}, {"cursor": "behind-number-4"}, {}, {"cursor": "behind-number-2"},
        {"cwd": str(tmp_path / "run" / "home"), "cursor": "behind-number-4"}, {}]
    shown = [frame.value["result"] for frame in normalise(run).wire if "sessions" in frame.value.get("result", {})]
    assert [page.get("nextCursor") for page in shown] == [
        "{{cursor:1}}", "{{cursor:2}}", None, "{{cursor:1}}", "{{cursor:2}}", None, "{{cursor:1}}"]
    assert shown[2]["sessions"] == [{"sessionId": "{{session:5}}", "cwd": "/", "updatedAt": "{{time}}"}]


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_a_second_process_goes_on_where_the_first_one_ended(tmp_path: Path, transport: TransportName) -> None:
    run = played(
        tmp_path, new("a"), op("prompt", text="one"), RESTART, INITIALIZE,
        op("promptExpectError", text="no", session="a"), op("loadSession", session="a"), op("prompt", text="two"),
        transport=transport)
    assert said(run) == ["1: one", "", "1: one2: two"]
    assert [json.loads(line.line)["id"] for line in run.wire if line.sender == "client"] == list(range(1, 8))
    (restart,) = run.restarts
    assert (restart.how, run.wire[restart.at].sender) == ("eof", "client")
    assert b"initialize" in run.wire[restart.at].line


def test_a_line_stands_between_two_processes_in_the_golden(tmp_path: Path) -> None:
    run = normalise(played(
        tmp_path, new("a"), op("prompt", text="ask"), op("startPrompt", text="hang"),
        op("waitForUpdate", update="agent_message_chunk", text="hanging"), op("restart", how="kill"), INITIALIZE,
        op("loadSession"), op("prompt", text="ask"), permissionAnswers=[{"kind": "allow_once"}, {"kind": "cancelled"}]))
    assert run.broken == ()
    told = [frame.value.get("method") or frame.value.get("restart") or frame.value["id"] for frame in run.wire]
    assert told == [
        1, 2, "session/request_permission", "session/update", 3, "session/update", "kill",
        5, "session/update", 6, "session/request_permission", "session/update", 7]
    assert [frame.value["id"] for frame in run.wire if frame.value.get("method") == "session/request_permission"] == [
        1, 2]
    assert [frame.line for frame in run.wire if "restart" in frame.value] == ['{"restart":"kill"}']


def test_a_killed_agent_takes_its_open_prompts_and_what_it_started_with_it(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), op("startPrompt", text="hang", name="lost"),
        op("waitForUpdate", update="agent_message_chunk"), op("restart", how="kill"), INITIALIZE, op("loadSession"),
        op("startPrompt", text="two"), op("awaitPrompt"))
    assert said(run) == ["hanging2: two"]
    assert run.restarts == (Restart(6, "kill"),)
    assert running(tmp_path / "run") == []


def test_nothing_is_waited_for_that_only_the_killed_agent_could_say(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="every prompt of this session was awaited already"):
        played(tmp_path, new("a"), op("startPrompt", text="hang"), op("waitForUpdate", update="agent_message_chunk"),
               op("restart", how="kill"), INITIALIZE, op("awaitPrompt"))


def test_an_agent_that_does_not_end_well_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="ended with status 3 when its input was closed"):
        played(tmp_path, RESTART, extra_env={"END_BADLY": "yes"})


def test_a_question_that_is_held_is_answered_before_the_input_ends_and_dropped_with_a_killed_agent(
    tmp_path: Path,
) -> None:
    held = [op("startPrompt", text="ask"), op("waitForRequest", method="session/request_permission")]
    run = played(
        tmp_path, new("a"), *held, RESTART, INITIALIZE, op("loadSession"), *held, op("restart", how="kill"),
        INITIALIZE, op("loadSession"), op("prompt", text="ask"),
        permissionAnswers=[{"kind": "hold"}, {"kind": "hold"}, {"kind": "allow_once"}])
    assert [restart.how for restart in run.restarts] == ["eof", "kill"]
    answers = [json.loads(line.line)["result"]["outcome"]["outcome"] for line in run.wire
               if line.sender == "client" and b'"outcome"' in line.line]
    assert answers == ["cancelled", "selected"]


class Dying:
    """A process that wrote this before it was killed."""

    read_fd = write_fd = pid = 0

    def __init__(self, *written: bytes) -> None:
        self._left = list(written)

    def read(self, _seconds: float) -> bytes | None:
        return self._left.pop(0) if self._left else None

    def write(self, data: bytes) -> int:
        return len(data)

    def fit(self, line: bytes) -> bytes:
        return line

    def all_read(self) -> bool:
        return True

    def close_input(self) -> None:
        """Nothing reads it."""

    def status(self) -> int | None:
        return -9

    def close(self) -> None:
        """Nothing is open."""


def test_the_last_words_of_a_killed_agent_are_kept_and_not_answered() -> None:
    """They were written before the kill and read after it; the last line never got its end."""
    asked_last = b'{"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": {}}\n'
    exchange = Exchange(Dying(asked_last, b'{"jsonrpc": "2.0", "meth'), TIMEOUT, lambda: "")
    questions: list[Frame] = []
    exchange.on_request = questions.append
    exchange.drain()
    assert ([passed.line for passed in exchange.passed], questions) == ([asked_last.rstrip()], [])
    exchange.resume(Dying(asked_last), "kill")
    exchange.wait(lambda: questions or None, "a question")
    assert len(questions) == 1


# ---------------------------------------------------------------- a database


def test_turns_in_a_database_are_waited_for_and_its_logs_are_packed(tmp_path: Path) -> None:
    run = played(
        tmp_path, new("a"), op("prompt", text="one"), op("waitForTurnEnd"), op("startPrompt", text="hang"),
        op("waitForTurnStart"), op("restart", how="kill"), INITIALIZE, op("loadSession"), op("prompt", text="three"),
        new("b"), store="sqlite")
    assert [log.path.relative_to(tmp_path / "run" / "packed").as_posix() for log in run.logs] == [
        "1/session.jsonl", "2/session.jsonl"]
    ids = [json.loads(log.data.splitlines()[0])["id"] for log in run.logs]
    assert sorted(ids) == ["kept-session-1-1", "kept-session-2-2"]


def test_the_turns_of_a_fork_are_counted_from_its_sources_on(tmp_path: Path) -> None:
    """The fork's own first turn is its second one."""
    run = played(tmp_path, new("a"), op("prompt", text="one"), op("forkSession"), op("startPrompt", text="hang"),
                 op("waitForTurnStart"), op("restart", how="kill"), store="sqlite")
    assert b'"turn": 2' in run.logs[1].data
    with pytest.raises(Stuck, match="the start of turn 2 in the session's log"):
        played(tmp_path / "other", new("a"), op("prompt", text="one"), op("forkSession"),
               op("startPrompt", text="silence"), op("waitForTurnStart", timeoutMs=300), store="sqlite")


def test_a_prompt_that_was_lost_with_its_process_is_not_waited_for(tmp_path: Path) -> None:
    """The killed agent never began its turn."""
    run = played(tmp_path, new("a"), op("prompt", text="one"), op("startPrompt", text="silence"),
                 op("restart", how="kill"), INITIALIZE, op("waitForTurnEnd"), store="sqlite")
    assert said(run) == ["1: one"]


def test_a_run_that_stored_nothing_has_no_logs(tmp_path: Path) -> None:
    assert played(tmp_path, store="sqlite").logs == ()


def test_requests_are_seen_in_both_processes(tmp_path: Path) -> None:
    run = played(tmp_path, new("a"), op("prompt", text="ask"), RESTART, INITIALIZE, op("loadSession"),
                 op("startPrompt", text="ask"), op("waitForRequest", method="session/request_permission"),
                 op("awaitPrompt"), permissionAnswers=[{"kind": "allow_once"}] * 2)
    assert len(requests(run, "session/request_permission")) == 2
    assert len(updates(run, "agent_message_chunk")) == 3

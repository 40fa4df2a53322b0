"""Stored sessions on the wire, in both stores: what a load shows, and that a session goes on as if nothing had been."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.history_laws import check_history, reduced
from tests.support.log_laws import check_store_laws
from tests.support.reopen import KINDS, StorePlace
from tests.wire.moves import line, request, stop_reason, text_prompt
from tests.wire.recordings import Entry, call, hang, says, script, text, thought, tool
from tests.wire.runs import ECHO, LIVE, data, results

Json = dict[str, Any]

NOT_FOUND, BUSY, INVALID = -32002, -32600, -32602


class Desk:
    """One store of one test, and the agents that use it one after the other."""

    def __init__(self, bench: Workbench, kind: str, directory: Path) -> None:
        self.bench = bench
        self.place = StorePlace(kind, bench.store if kind == "jsonl" else bench.store.with_suffix(".db"))
        self.directory = directory
        self.recording = directory / "recording"
        self.agents: list[AgentProcess] = []

    def record(self, *entries: Entry) -> None:
        """Say what the model answers, in the order of the calls of all processes together."""
        script(self.recording, *entries)

    def start(self, *, unlawful: str | None = None, **environ: str) -> AgentProcess:
        """A new process on the store."""
        running = self.bench(replay=self.recording, environ=self.place.environ | environ, unstable=True,
                             unlawful=unlawful)
        running.initialize()
        self.agents.append(running)
        return running

    def params(self, session: str, **more: Any) -> Json:
        return {"sessionId": session, "cwd": str(self.bench.workspace), "mcpServers": [], **more}

    def load(self, running: AgentProcess, session: str) -> list[Json]:
        """Load a session; what it was shown with, without what follows the answer."""
        since = running.position
        assert "modes" in running.call("session/load", self.params(session))["result"]
        return shown(running, session, since=since)

    def resume(self, running: AgentProcess, session: str) -> Json:
        """Resume a session; the result."""
        result: Json = running.call("session/resume", self.params(session))["result"]
        return result

    def judge(self, *, history: bool = True) -> None:
        """Close all agents and judge what they stored."""
        for running in self.agents:
            if not running.judged:
                running.close()
        logs = self.directory / "exported"
        self.place.export(logs)
        problems = check_store_laws(logs)
        if history:
            problems += check_history([running.transcript for running in self.agents], logs)
        assert not problems, "\n".join(problems)

    def log(self, session: str) -> Any:
        """A root session's log."""
        return self.place.export(self.directory / "looked-at")[session][0]


def shown(running: AgentProcess, session: str, *, since: int = 0) -> list[Json]:
    """The updates of a session, but for the commands that every session has: they are told at a moment of their own."""
    return [update for update in running.updates(session, since=since)
            if update["sessionUpdate"] != "available_commands_update"]


@pytest.fixture(params=KINDS)
def desk(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    """A desk with each kind of store."""
    return Desk(agent, request.param, tmp_path)


def texts(updates: Iterable[Json], kind: str) -> list[str]:
    return [update["content"]["text"] for update in updates if update["sessionUpdate"] == kind]


EVENTFUL = (
    call(thought("Let me ", "look."), text("I look. "), tool("a", "bash", command="echo hi > made", description="d"),
         tool("b", "read", file_path="made"), tool("x", "nobody", z=1)),
    call(text("Now ", "a plan."), tool("a", "todo_write", todos=[{"content": "rest", "status": "pending"}])),
    says("All ", "is ", "well."),
)


# ---------------------------------------------------------------- what a load shows


def test_two_loads_show_the_same_and_what_was_streamed(desk: Desk) -> None:
    desk.record(*EVENTFUL, says("More."))
    first = desk.start(**LIVE)
    session = first.new_session()
    assert stop_reason(first.prompt(session, "Please work")) == "end_turn"
    first.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})
    first.prompt(session, "and more")
    live = first.updates(session)
    first.close()
    second, third = desk.start(**LIVE), None
    loaded = desk.load(second, session)
    second.close()
    third = desk.start(**LIVE)
    assert desk.load(third, session) == loaded
    assert reduced(loaded) == reduced(live)
    assert texts(loaded, "user_message_chunk") == ["Please work", "and more"]
    assert texts(loaded, "agent_message_chunk") == ["I look. ", "Now a plan.", "All is well.", "More."]
    assert texts(loaded, "agent_thought_chunk") == ["Let me look."]
    kinds = {update["sessionUpdate"] for update in loaded}
    assert kinds >= {"tool_call", "tool_call_update", "plan", "session_info_update", "current_mode_update"}
    assert {update["status"] for update in loaded if update["sessionUpdate"] == "tool_call_update"} == {
        "completed", "failed"}
    desk.judge()


def test_a_session_is_closed_and_loaded_in_one_process_with_the_same_transcript(desk: Desk) -> None:
    desk.record(*EVENTFUL, says("More."))
    running = desk.start(**LIVE)
    session = running.new_session()
    running.prompt(session, "Please work")
    before = running.updates(session)
    loads = []
    for _ in range(2):
        assert running.call("session/close", {"sessionId": session})["result"] == {}
        loads.append(desk.load(running, session))
    assert loads[0] == loads[1]
    assert reduced(loads[0]) == reduced(before)
    assert stop_reason(running.prompt(session, "more")) == "end_turn"
    desk.judge()


def test_a_load_asks_nothing_runs_nothing_and_writes_nothing(desk: Desk) -> None:
    edit = call(tool("w", "write", file_path="file", content="x"))
    desk.record(edit, says("done"))
    first = desk.start(ACP_REPLAY_TOOLS="live")
    first.answers["session/request_permission"] = policies.allow
    session = first.new_session()
    first.prompt(session, "write")
    first.close()
    (desk.bench.workspace / "file").unlink()
    before = desk.place.content()
    second = desk.start(ACP_REPLAY_TOOLS="live")
    desk.load(second, session)
    assert [entry.frame for entry in second.transcript if entry.sender == "agent" and "id" in entry.frame
            and "method" in entry.frame] == []
    assert not (desk.bench.workspace / "file").exists()
    second.close()
    assert desk.place.content() == before
    desk.judge()


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("method", ["load", "resume"])
def test_a_session_goes_on_in_the_next_process_with_its_context_and_its_recording(desk: Desk, method: str) -> None:
    desk.record(says("The first ", "answer."), ECHO, says("unused"))
    first = desk.start()
    session = first.new_session()
    first.prompt(session, "Remember me")
    first.close()
    second = desk.start()
    other = second.new_session()
    if method == "load":
        desk.load(second, session)
    else:
        desk.resume(second, session)
        assert shown(second, session) == []
    since = second.position
    assert stop_reason(second.prompt(session, "And now")) == "end_turn"
    told = second.text(session, since=since)
    assert all(part in told for part in ("Remember me", "The first answer.", "And now"))
    second.close()
    log = desk.log(session)
    assert [one["ordinal"] for one in data(log, "request/sent")] == [0, 1]
    assert [one["reason"] for one in data(log, "request/header")] == ["initial", "resume"]
    assert len(data(log, "replay/bound")) == len(data(log, "session/end-seed")) == 1
    assert other not in desk.place.listed()
    desk.judge(history=method == "load")


def test_mode_and_grants_come_back(desk: Desk) -> None:
    def edit(name: str) -> Any:
        return call(tool(name, "bash", command="echo x", description="d"))

    desk.record(edit("a"), says("one"), edit("b"), says("two"))
    first = desk.start(ACP_REPLAY_TOOLS="live")
    first.answers["session/request_permission"] = policies.allow_always
    session = first.new_session()
    first.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
    first.prompt(session, "go")
    first.close()
    second = desk.start(ACP_REPLAY_TOOLS="live", ACP_PERMISSION_MODE="read-only")
    result = desk.resume(second, session)
    assert result["modes"]["currentModeId"] == "accept-edits"
    assert stop_reason(second.prompt(session, "again")) == "end_turn"
    assert "session/request_permission" not in [frame.get("method") for frame in second.received]
    assert results(desk.log(session)) == results(desk.log(session))[:1] * 2


def test_call_ids_stay_unique_when_the_model_uses_them_again_after_a_load(desk: Desk) -> None:
    look = call(tool("a", "read", file_path="nothing"))
    desk.record(look, says("one"), look, says("two"), look, says("three"))
    running = desk.start(**LIVE)
    session = running.new_session()
    running.prompt(session, "1")
    for method in ("load", "resume"):
        running.close()
        running = desk.start(**LIVE)
        getattr(desk, method)(running, session)
        running.prompt(session, method)
    ids = [update["toolCallId"] for update in running.updates(session) if update["sessionUpdate"] == "tool_call"]
    assert ids == ["a#3"]
    running.close()
    again = desk.start(**LIVE)
    loaded = desk.load(again, session)
    assert [update["toolCallId"] for update in loaded if update["sessionUpdate"] == "tool_call"] == ["a", "a#2", "a#3"]
    desk.judge()


def test_what_is_sent_right_behind_a_load_waits_for_it(desk: Desk) -> None:
    desk.record(says("one"), says("two"))
    first = desk.start()
    session = first.new_session()
    first.prompt(session, "1")
    first.close()
    second = desk.start()
    second.call("session/list", {})  # from here on nothing is imported any more
    mode = request("mode", "session/set_mode", sessionId=session, modeId="read-only")
    second.send_bytes(b"".join(line(one) for one in (
        request("load", "session/load", **desk.params(session)),
        request("early", "session/prompt", sessionId=session, prompt=text_prompt("cancelled")),
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}},
        request("prompt", "session/prompt", sessionId=session, prompt=text_prompt("2")), mode,
        request("close", "session/close", sessionId=session),
    )))
    assert "modes" in second.response("load")["result"]
    assert stop_reason(second.response("early")) == "cancelled"
    assert second.response("mode").get("result") == {}, second.response("mode")
    assert stop_reason(second.response("prompt")) in ("cancelled", "end_turn")
    assert second.response("close")["result"] == {}
    desk.judge()


def test_a_killed_agents_session_is_closed_at_load_and_goes_on(desk: Desk) -> None:
    both = call(tool("a", "bash", command="touch started; until [ -e go ]; do sleep 0.02; done", description="d"),
                tool("b", "bash", command="touch never", description="d"))
    desk.record(both, says("recovered"))
    desk.bench.open_turns = "an agent is killed"
    first = desk.start(**LIVE)
    session = first.new_session()
    first.start_prompt(session, "go")
    first.wait_until((desk.bench.workspace / "started").exists, "the command to start")
    first.kill()
    (desk.bench.workspace / "go").touch()  # nobody else ends the command now
    second = desk.start(**LIVE)
    loaded = desk.load(second, session)
    failed = [update for update in loaded if update.get("status") == "failed"]
    assert [update["toolCallId"] for update in failed] == ["a", "b"]
    told = [update["content"][0]["content"]["text"] for update in failed]
    assert "unknown" in told[0]
    assert "never started" in told[1]
    second.close()
    content = desk.place.content()
    third = desk.start(**LIVE)
    assert desk.load(third, session) == loaded
    assert desk.place.content() == content
    assert stop_reason(third.prompt(session, "on")) == "end_turn"
    assert third.text(session).endswith("recovered")
    desk.judge(history=False)
    assert not (desk.bench.workspace / "never").exists()
    assert [end["reason"]["kind"] for end in data(desk.log(session), "turn/end")] == ["interrupted", "completed"]


# ---------------------------------------------------------------- refusals


def test_what_is_not_stored_or_open_already_is_refused_and_nothing_comes_of_it(desk: Desk) -> None:
    desk.record(says("one"), says("two"))
    running = desk.start()
    session = running.new_session()
    running.prompt(session, "1")
    for method in ("session/load", "session/resume", "session/fork"):
        error = running.call(method, desk.params("nobody"))["error"]
        assert (error["code"], error["data"]) == (NOT_FOUND, {"sessionId": "nobody"})
        assert running.call("session/prompt", {"sessionId": "nobody", "prompt": text_prompt("x")})["error"][
            "code"] == NOT_FOUND
    for method in ("session/load", "session/resume"):
        error = running.call(method, desk.params(session))["error"]
        assert error["code"] == BUSY
        assert "close" in error["message"]
    assert stop_reason(running.prompt(session, "2")) == "end_turn"
    assert desk.place.listed() == [session]
    desk.judge()


def test_a_session_open_in_another_process_is_refused_naming_it_until_that_ends(desk: Desk) -> None:
    desk.record(says("one"), says("two"))
    first, second = desk.start(), desk.start()
    session = first.new_session()
    first.prompt(session, "1")
    for method in ("session/load", "session/resume", "session/delete"):
        error = second.call(method, desk.params(session))["error"]
        assert error["code"] == BUSY
        assert str(first.pid) in error["message"]
    first.close()
    desk.load(second, session)
    assert stop_reason(second.prompt(session, "2")) == "end_turn"
    desk.judge()


def test_wrong_params_are_refused_naming_them(desk: Desk, tmp_path: Path) -> None:
    desk.record(says("one"), says("two"))
    first = desk.start()
    session = first.new_session()
    first.prompt(session, "1")
    first.call("session/close", {"sessionId": session})
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    http = [{"type": "http", "name": "far", "url": "x", "headers": []}]
    for method in ("session/load", "session/resume", "session/fork"):
        for wrong, named in (({"sessionId": 5}, "sessionId"), ({"cwd": "here"}, "cwd"), ({"cwd": None}, "cwd"),
                             ({"mcpServers": http}, "mcpServers[0]"), ({"mcpServers": 3}, "mcpServers"),
                             ({"additionalDirectories": ["/x"]}, "additionalDirectories"),
                             ({"cwd": str(tmp_path / "gone")}, "cwd")):
            error = first.call(method, desk.params(session) | wrong)["error"]
            assert error["code"] == INVALID, (method, wrong)
            assert named in error["message"]
        if method != "session/fork":
            error = first.call(method, desk.params(session, cwd=str(stranger)))["error"]
            assert error["code"] == INVALID
            assert str(stranger) in error["message"]
            assert str(desk.bench.workspace) in error["message"]
    missing = {key: value for key, value in desk.params(session).items() if key != "mcpServers"}
    assert first.call("session/load", missing)["error"]["code"] == INVALID
    assert "result" in first.call("session/resume", missing)
    for method in ("session/close", "session/delete", "session/list"):
        field = "cwd" if method == "session/list" else "sessionId"
        error = first.call(method, {field: 5})["error"]
        assert error["code"] == INVALID
        assert field in error["message"]
    desk.judge(history=False)


def test_a_damaged_session_is_refused_by_name_and_line_and_the_others_stay(agent: Workbench, tmp_path: Path) -> None:
    desk = Desk(agent, "jsonl", tmp_path)
    desk.record(says("one"))
    first = desk.start(ACP_REPLAY_SESSIONS="repeat")
    good, bad, headless = (first.new_session() for _ in range(3))
    for session in (good, bad, headless):
        first.prompt(session, "1")
    first.close()
    logs = {session: next(agent.store.glob(f"--*--/{session}/session.jsonl")) for session in (bad, headless)}
    rows = logs[bad].read_bytes().split(b"\n")
    damaged = b"\n".join([*rows[:4], b'{"type":"turn/start"', *rows[5:]])
    logs[bad].write_bytes(damaged)
    logs[headless].write_bytes(b"nonsense\n")
    agent.unlawful_logs = "logs are damaged on purpose"
    second = desk.start()
    error = second.call("session/load", desk.params(bad))["error"]
    assert re.search(r"session\.jsonl:5\b", error["message"]), error
    assert second.call("session/prompt", {"sessionId": bad, "prompt": text_prompt("x")})["error"]["code"] == NOT_FOUND
    assert logs[bad].read_bytes() == damaged
    listed = [entry["sessionId"] for entry in second.call("session/list", {})["result"]["sessions"]]
    assert good in listed
    assert headless not in listed
    second.wait_for_stderr(headless)
    desk.load(second, good)


# ---------------------------------------------------------------- forks


def test_a_fork_in_the_middle_of_a_turn_has_the_ended_ones_and_goes_its_own_way(desk: Desk) -> None:
    desk.record(says("one"), hang("ready"), says("source goes on"))
    running = desk.start(ACP_REPLAY_SESSIONS="repeat")
    source = running.new_session()
    running.call("session/set_mode", {"sessionId": source, "modeId": "accept-edits"})
    running.prompt(source, "first prompt")
    hung = running.start_prompt(source, "second prompt")
    running.wait_until((running.cwd / "ready").exists, "the answer to hang")
    result = running.call("session/fork", desk.params(source))["result"]
    fork = result["sessionId"]
    assert fork != source
    assert result["modes"]["currentModeId"] == "accept-edits"
    assert shown(running, fork) == []
    running.cancel(source)
    assert stop_reason(running.response(hung)) == "cancelled"
    assert stop_reason(running.prompt(fork, "its own")) == "end_turn"
    assert running.text(fork) == "one"
    assert stop_reason(running.prompt(source, "third")) == "end_turn"
    again = running.call("session/fork", desk.params(fork))["result"]["sessionId"]
    running.close()
    later = desk.start(ACP_REPLAY_SESSIONS="repeat")
    assert texts(desk.load(later, again), "user_message_chunk") == ["first prompt", "its own"]
    assert texts(desk.load(later, fork), "user_message_chunk") == ["first prompt", "its own"]
    header = desk.log(fork).header
    assert "parentSession" not in header
    assert "origin" not in header
    assert desk.log(fork).events[header["seedLength"]]["type"] == "session/end-seed"
    desk.judge()

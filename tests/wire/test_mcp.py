"""MCP servers of sessions, on the real agent: real servers, real processes, every frame judged."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import mcp_servers, policies, processes
from tests.support.client import AgentProcess
from tests.support.schema import Frame, is_request
from tests.wire.recordings import Entry, Log, Step, call, says, script, step, tool, write
from tests.wire.runs import ECHO, LIVE, data, failures, logs_of, results, root_log

ASK = LIVE | {"ACP_PERMISSION_MODE": "ask"}
NOTICES: Frame = {"session": {"notices": {}}}
HUSH = "hush-hush-secret"


def serving(
    agent: Workbench, tmp_path: Path, *entries: Entry, environ: Mapping[str, str] = LIVE,
    capabilities: Frame | None = None, unstable: bool = False,
) -> AgentProcess:
    """An initialised agent whose model says these things; its tools run."""
    replay = script(tmp_path / "replay", *entries) if entries else None
    process = agent(replay=replay, environ=environ, unstable=unstable)
    result = process.initialize(capabilities)
    assert result["agentCapabilities"]["mcpCapabilities"] == {"http": True, "sse": False}
    return process


def server(process: AgentProcess, kind: str, *arguments: str, name: str | None = None, **env: str) -> Frame:
    """The entry of a server whose processes are recognised as the agent's."""
    return mcp_servers.stdio(kind, *arguments, name=name, env={processes.MARK: process.mark, **env})


def setup(process: AgentProcess, method: str, *entries: Frame, **params: Any) -> Frame:
    """The whole answer to a request that makes or opens a session with these servers."""
    return process.call(method, {"cwd": str(process.cwd), "mcpServers": list(entries), **params})


def new(process: AgentProcess, *entries: Frame) -> str:
    session: str = setup(process, "session/new", *entries)["result"]["sessionId"]
    return session


def questions(process: AgentProcess) -> list[Frame]:
    return [frame["params"] for frame in process.received if is_request(frame)]


def finals(process: AgentProcess, session: str) -> list[Frame]:
    return [update for update in process.updates(session) if update.get("status") in ("completed", "failed")]


ADD = call(tool("a", "mcp__friendly__add", a=2, b=3))

# ---------------------------------------------------------------- calls


def test_a_servers_tool_is_offered_called_and_shown(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, ADD, ECHO)
    session = new(process, server(process, "friendly"))
    assert process.prompt(session, "Add.")["result"] == {"stopReason": "end_turn"}
    announced = process.wait_for_update("tool_call", session=session)
    assert {key: announced[key] for key in ("title", "name", "kind", "rawInput")} == {
        "title": "friendly: add", "name": "mcp__friendly__add", "kind": "other", "rawInput": {"a": 2, "b": 3}}
    (final,) = finals(process, session)
    assert final["content"] == [{"type": "content", "content": {"type": "text", "text": "5"}}]
    process.close()
    log = root_log(agent, session)
    assert results(log) == ["5"]
    (header,) = data(log, "request/header")
    offered = {one["name"]: one for one in header["header"]["tools"]}
    assert offered["mcp__friendly__add"]["description"] == "Add two numbers."
    assert set(offered["mcp__friendly__add"]["parameters"]["properties"]) == {"a", "b"}


def test_a_server_behind_an_address(agent: Workbench, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with mcp_servers.friendly_http(tmp_path / "server", f"X-Key={HUSH}") as (url, _):
        entry = {"type": "http", "name": "web", "url": url, "headers": [{"name": "X-Key", "value": HUSH}]}
        process = serving(agent, tmp_path, call(tool("a", "mcp__web__greet", name="you")), says("Done."),
                          environ=LIVE | {"ACP_LOG_LEVEL": "debug"})
        session = new(process, entry)
        process.prompt(session, "Greet.")
        process.close()
    assert results(root_log(agent, session)) == ["Hello you!"]
    assert HUSH not in process.stderr


def test_always_covers_the_tool_whatever_its_arguments_and_no_other_tool(agent: Workbench, tmp_path: Path) -> None:
    calls = [call(tool("a", "mcp__friendly__add", a=2, b=3)), call(tool("b", "mcp__friendly__add", a=4, b=5)),
             call(tool("c", "mcp__friendly__greet", name="you")), says("Done.")]
    process = serving(agent, tmp_path, *calls, environ=ASK)
    process.answers["session/request_permission"] = policies.script([policies.allow_always, policies.reject])
    session = new(process, server(process, "friendly"))
    process.prompt(session, "Work.")
    first, second = questions(process)
    assert [one["name"] for one in first["options"]][1] == (
        "Always allow the tool add of the MCP server friendly in this session")
    assert (first["toolCall"]["toolCallId"], second["toolCall"]["toolCallId"]) == ("a", "c")
    process.close()
    log = root_log(agent, session)
    assert results(log) == ["5", "9", 'Error: the user rejected tool "mcp__friendly__greet"']
    assert [grant["key"] for grant in data(log, "approval/grant")] == ["mcp:friendly__add"]


def test_the_next_request_offers_what_the_server_added(agent: Workbench, tmp_path: Path) -> None:
    gate = tool("w", "bash", command="while ! test -e go; do sleep 0.01; done", description="Wait")
    process = serving(agent, tmp_path, call(tool("g", "mcp__friendly__grow")), call(gate),
                      call(tool("l", "mcp__friendly__late", name="you")), says("Done."))
    session = new(process, server(process, "friendly"))
    request = process.start_prompt(session, "Grow.")
    process.wait_for_update("tool_call", toolCallId="w")
    (process.cwd / "go").touch()
    process.response(request)
    process.close()
    log = root_log(agent, session)
    assert results(log)[0] == "grown"
    assert results(log)[2] == "Hello you!"
    offered = [{one["name"] for one in header["header"]["tools"]} for header in data(log, "request/header")]
    assert "mcp__friendly__late" not in offered[0]
    assert "mcp__friendly__late" in offered[-1]


def test_a_cancelled_call_was_showing_its_progress_and_its_server_is_told(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, call(tool("s", "mcp__friendly__slow")), says("Never."))
    session = new(process, server(process, "friendly"))
    request = process.start_prompt(session, "Dig.")
    process.wait_for(lambda frame: "Digging (1 of 2)" in str(frame.get("params")), "the progress")
    begun = time.monotonic()
    process.cancel(session)
    assert process.response(request)["result"] == {"stopReason": "cancelled"}
    assert time.monotonic() - begun < 2
    process.wait_until((process.cwd / "told").exists, "the server's knowing of it")
    process.close()
    assert results(root_log(agent, session)) == ["Error: tool call aborted"]


def test_a_server_that_ends_fails_the_call_and_the_turn_goes_on(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, call(tool("a", "mcp__friendly__stop", status=7)), ADD, says("Done."),
                      capabilities=NOTICES)
    session = new(process, server(process, "friendly"))
    assert process.prompt(session, "Stop.")["result"] == {"stopReason": "end_turn"}
    notice = process.wait_for_update("notice")
    process.close()
    why = "it ended with exit status 7: goodbye, cruel world"
    log = root_log(agent, session)
    assert results(log) == [f"Error: the MCP server 'friendly': {why}", 'Error: unknown tool "mcp__friendly__add"']
    assert failures(log) == [True, True]
    assert notice["description"] == why
    assert f"the MCP server friendly is not available: {why}" in process.stderr


def test_a_child_uses_its_roots_servers(agent: Workbench, tmp_path: Path) -> None:
    parent = Log("parent")
    child = parent.spawned("child", "c")
    parent.turn("Delegate.", step(call(tool("c", "subagent", description="Add", prompt="Add it.")), "5"), says("Done."))
    child.turn("Add it.", Step(ADD), says("It is 5."))
    process = agent(replay=write(tmp_path / "replay", parent, child), environ=LIVE)
    process.initialize()
    session = new(process, server(process, "friendly"))
    process.prompt(session, "Delegate.")
    process.close()
    assert [results(log) for log in logs_of(agent, session)] == [["It is 5."], ["5"]]


# ---------------------------------------------------------------- sessions


def test_load_resume_and_fork_have_the_servers_they_name_and_no_others(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, *[ADD, says("Done.")] * 5, unstable=True,
                      environ=LIVE | {"ACP_REPLAY_SESSIONS": "repeat"})
    session = new(process, server(process, "friendly"))
    process.prompt(session, "Add.")
    fork = setup(process, "session/fork", server(process, "friendly"), sessionId=session)["result"]["sessionId"]
    process.prompt(fork, "Add.")
    for method, entries in (("session/load", [server(process, "friendly")]), ("session/resume", []),
                            ("session/resume", [server(process, "friendly")])):
        process.call("session/close", {"sessionId": session})
        process.wait_until(lambda: len(processes.marked(process.mark)) <= 3, "the end of the closed session's server")
        setup(process, method, *entries, sessionId=session)
        process.prompt(session, "Add.")
    process.close()
    unknown = 'Error: unknown tool "mcp__friendly__add"'
    assert results(root_log(agent, session)) == ["5", "5", unknown, "5"]
    assert results(root_log(agent, fork)) == ["5", "5"]


def test_every_session_has_servers_of_its_own(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, call(tool("g", "mcp__friendly__grow")), says("Done."),
                      environ=LIVE | {"ACP_REPLAY_SESSIONS": "repeat"})
    one, two = (new(process, server(process, "friendly"), server(process, "friendly", name="other")) for _ in "ab")
    process.prompt(one, "Grow.")
    process.prompt(two, "Grow.")
    assert [results(root_log(agent, session)) for session in (one, two)] == [["grown"], ["grown"]]
    assert len(processes.marked(process.mark)) == 1 + 2 * 4
    process.call("session/close", {"sessionId": one})
    assert len(processes.marked(process.mark)) == 1 + 4
    process.close()


def test_a_server_that_hangs_holds_up_neither_session_new_nor_a_cancel(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, says("Never."))
    begun = time.monotonic()
    session = new(process, server(process, "rude", "hang"))
    assert time.monotonic() - begun < 5
    process.wait_until((process.cwd / "hanging").exists, "the server")
    request = process.start_prompt(session, "Go.")
    other = new(process)
    begun = time.monotonic()
    process.cancel(session)
    assert process.response(request)["result"] == {"stopReason": "cancelled"}
    assert time.monotonic() - begun < 2
    assert other != session
    process.call("session/close", {"sessionId": session})
    assert processes.marked(process.mark).keys() == {process.pid}
    process.close()
    assert [part["content"] for part in data(root_log(agent, session), "user/message")] == [
        [{"type": "text", "text": "Go."}]]


@pytest.mark.parametrize("shown", [True, False])
def test_a_failure_is_told_to_the_user_without_secrets(agent: Workbench, tmp_path: Path, shown: bool) -> None:
    process = serving(agent, tmp_path, says("Done."), capabilities=NOTICES if shown else {},
                      environ=LIVE | {"ACP_LOG_LEVEL": "debug"})
    session = new(process, server(process, "rude", "die", f"no such token: {HUSH}", name="broken", TOKEN=HUSH))
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "end_turn"}
    process.close()
    why = "it ended with exit status 3: no such token: [hidden]"
    assert [update for update in process.updates(session) if update["sessionUpdate"] == "notice"] == [
        {"sessionUpdate": "notice", "severity": "warning", "title": "The MCP server broken is not available",
         "description": why}][: int(shown)]
    assert f"session {session}: the MCP server broken is not available: {why}" in process.stderr
    assert HUSH not in process.stderr


@pytest.mark.parametrize("shown", [True, False])
def test_tools_that_cannot_be_used_are_told_to_the_user_and_the_others_can(
    agent: Workbench, tmp_path: Path, shown: bool,
) -> None:
    process = serving(agent, tmp_path, call(tool("g", "mcp__rude__good")), says("Done."),
                      capabilities=NOTICES if shown else {})
    session = new(process, server(process, "rude", "forbidden"))
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "end_turn"}
    process.prompt(session, "/mcp")
    process.close()
    assert [update["status"] for update in finals(process, session)] == ["completed"]
    notices = [update for update in process.updates(session) if update["sessionUpdate"] == "notice"]
    assert [notice["title"] for notice in notices] == ["Tools of the MCP server rude cannot be used"][: int(shown)]
    why = "6 of 8 tools cannot be used: untyped: inputSchema.type: Field required; "
    assert all(notice["description"].startswith(why) for notice in notices)
    assert f"session {session}: the MCP server rude: {why}" in process.stderr


def test_without_the_package_the_session_is_made_and_says_what_to_install(agent: Workbench, tmp_path: Path) -> None:
    (tmp_path / "missing" / "mcp").mkdir(parents=True)
    (tmp_path / "missing" / "mcp" / "__init__.py").write_text("raise ModuleNotFoundError('no mcp', name='mcp')\n")
    source = processes.clean_environment(tmp_path)["PYTHONPATH"]
    process = serving(agent, tmp_path, says("Done."), capabilities=NOTICES,
                      environ=LIVE | {"PYTHONPATH": f"{tmp_path / 'missing'}:{source}"})
    session = new(process, server(process, "friendly"))
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "end_turn"}
    assert "install acp-replay[mcp]" in process.wait_for_update("notice")["description"]
    process.close()
    assert "install acp-replay[mcp]" in process.stderr


def test_without_a_server_the_package_is_not_imported(agent: Workbench, tmp_path: Path) -> None:
    (tmp_path / "missing" / "mcp").mkdir(parents=True)
    (tmp_path / "missing" / "mcp" / "__init__.py").write_text("import os; os._exit(99)\n")
    source = processes.clean_environment(tmp_path)["PYTHONPATH"]
    process = serving(agent, tmp_path, says("Done."),
                      environ=LIVE | {"PYTHONPATH": f"{tmp_path / 'missing'}:{source}"})
    process.prompt(new(process), "Go.")
    assert process.close() == 0


GOOD: Frame = {"name": "a", "command": "true", "args": [], "env": []}
WEB: Frame = {"type": "http", "name": "a", "url": "http://127.0.0.1/", "headers": []}


@pytest.mark.parametrize(("entry", "told"), [
    (5, "mcpServers[1]: Expected `object`, got `int`"),
    ({}, "mcpServers[1]: Object missing required field `name`"),
    ({**GOOD, "name": " "}, "mcpServers[1].name: expected a name, got ' '"),
    ({**GOOD, "name": 7}, "mcpServers[1].name: Expected `str`, got `int`"),
    ({**GOOD, "name": "first"}, "mcpServers[1].name: a second server is named 'first'"),
    ({**GOOD, "command": ""}, "mcpServers[1].command: expected a program"),
    ({**GOOD, "command": "a\0b"}, "mcpServers[1].command: "),
    ({**GOOD, "args": "x"}, "mcpServers[1].args: Expected `array | null`, got `str`"),
    ({**GOOD, "args": ["x", 1]}, "mcpServers[1].args[1]: Expected `str`, got `int`"),
    ({"name": "a", "command": "true", "args": []}, "mcpServers[1]: Object missing required field `env`"),
    ({**GOOD, "env": [{"name": "A", "value": 1}]}, "mcpServers[1].env[0].value: Expected `str`, got `int`"),
    ({**GOOD, "env": [{"name": "A=B", "value": HUSH}]}, "mcpServers[1].env[0].name: 'A=B' cannot name"),
    ({**GOOD, "env": [{"name": "A", "value": f"{HUSH}\0"}]}, "mcpServers[1].env[0].value: "),
    ({**WEB, "type": "sse"}, "mcpServers[1].type: the server 'a' has the transport 'sse'; stdio and http are"),
    ({**WEB, "type": None}, "mcpServers[1].type: Expected `str`, got `null`"),
    ({**WEB, "url": f"ftp://{HUSH}@x/"}, "mcpServers[1].url: expected the http or https address of the server 'a'"),
    ({**WEB, "url": "http://"}, "mcpServers[1].url: "),
    ({**WEB, "url": "http://x:port/"}, "mcpServers[1].url: "),
    ({**WEB, "headers": {}}, "mcpServers[1].headers: Expected `array | null`, got `object`"),
    ({"type": "http", "name": "a", "url": "http://x"}, "mcpServers[1]: Object missing required field `headers`"),
    ({**WEB, "headers": [{"name": "a b", "value": HUSH}]}, "mcpServers[1].headers[0].name: 'a b' cannot name a header"),
    ({**WEB, "headers": [{"name": "a", "value": f"{HUSH}\r\nb: c"}]}, "mcpServers[1].headers[0].value: "),
])
def test_a_bad_entry_is_refused_by_its_place_and_makes_no_session(
    agent: Workbench, tmp_path: Path, entry: Any, told: str,
) -> None:
    process = agent()
    process.initialize()
    trap = {**GOOD, "name": "first", "command": "touch", "args": [str(tmp_path / "started")]}
    for method in ("session/new", "session/load", "session/resume", "session/fork"):
        error = setup(process, method, trap, entry, sessionId="s")["error"]
        assert error["code"] == -32602
        assert error["message"].startswith(told)
        assert HUSH not in str(error)
    assert process.call("session/list")["result"] == {"sessions": []}
    process.close()
    assert not (tmp_path / "started").exists()
    assert HUSH not in process.stderr


def test_null_lists_are_empty_and_an_entry_may_say_stdio(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path, ADD, says("Done."))
    entry = server(process, "friendly") | {"type": "stdio", "_meta": {"a": 1}, "unknown": True}
    trap = {"name": "null", "command": "true", "args": None, "env": None}
    session = new(process, entry, trap)
    process.prompt(session, "Add.")
    process.close()
    assert results(root_log(agent, session)) == ["5"]


# ---------------------------------------------------------------- recorded effects


def test_with_recorded_effects_no_server_starts_and_recorded_results_are_served(
    agent: Workbench, tmp_path: Path,
) -> None:
    log = Log().turn("Add.", step(ADD, "recorded: 5"), says("Done."))
    process = agent(replay=write(tmp_path / "replay", log), environ={"ACP_PERMISSION_MODE": "full-access"})
    process.initialize(NOTICES)
    session = new(process, {**GOOD, "name": "friendly", "command": "touch", "args": [str(tmp_path / "started")]})
    assert process.prompt(session, "Add.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert results(root_log(agent, session)) == ["recorded: 5"]
    assert not (tmp_path / "started").exists()
    assert "friendly" not in process.stderr


def test_what_was_recorded_with_a_server_replays_without_it_permission_included(
    agent: Workbench, tmp_path: Path,
) -> None:
    process = serving(agent, tmp_path, ADD, says("Done."), environ=ASK)
    process.answers["session/request_permission"] = policies.allow
    session = new(process, server(process, "friendly"))
    process.prompt(session, "Add.")
    process.close()
    (stored,) = agent.store.glob(f"--*--/{session}")

    again = agent(replay=stored, environ={"ACP_PERMISSION_MODE": "ask", "ACP_REPLAY_DRIFT": "ignore"})
    again.initialize()
    replayed = new(again)
    again.prompt(replayed, "Add.")
    again.close()
    assert results(root_log(agent, replayed)) == ["5"]
    assert questions(again) == []
    shown = [[update for update in one.updates(id_) if update["sessionUpdate"] == "tool_call"]
             for one, id_ in ((process, session), (again, replayed))]
    assert shown[0] == shown[1]


# ---------------------------------------------------------------- ends


def both(process: AgentProcess) -> str:
    """A session with a server that ends when it is told to, and one that does not; both run."""
    session = new(process, server(process, "friendly"), server(process, "rude", "hang"))
    process.wait_until((process.cwd / "hanging").exists, "the server that hangs")
    process.wait_until(lambda: len(processes.marked(process.mark)) == 6, "all processes")
    return session


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_no_process_is_left_after_a_session_ends(agent: Workbench, tmp_path: Path, method: str) -> None:
    process = serving(agent, tmp_path)
    session = both(process)
    begun = time.monotonic()
    assert process.call(method, {"sessionId": session})["result"] == {}
    assert time.monotonic() - begun < 4
    assert processes.marked(process.mark).keys() == {process.pid}
    process.close()


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_no_process_is_left_when_the_agent_ends(
    agent: Workbench, tmp_path: Path, number: signal.Signals | None,
) -> None:
    process = serving(agent, tmp_path)
    both(process)
    begun = time.monotonic()
    if number is None:
        process.end_input()
    else:
        process.signal(number)
    process.wait()
    assert time.monotonic() - begun < 4
    assert processes.marked(process.mark) == {}
    process.judge()


def test_no_process_is_left_when_the_agent_is_killed(agent: Workbench, tmp_path: Path) -> None:
    process = serving(agent, tmp_path)
    both(process)
    process.kill()
    process.judge()  # waits until they are gone, and not for long

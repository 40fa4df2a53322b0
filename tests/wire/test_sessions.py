"""Sessions: how they are made, what may be asked of them, and that they do not disturb each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.schema import is_response
from tests.wire.moves import line, opened, recording, request, stop_reason, text_prompt
from tests.wire.recordings import Log, call, hang, override, says, tool, write
from tests.wire.runs import ECHO, LIVE, data, order, results, root_log

INVALID_PARAMS, NOT_FOUND = -32602, -32002
SEQUENTIAL = {"ACP_IDS": "sequential"}
STDIO = {"name": "files", "command": "/bin/files", "args": ["-v"], "env": [{"name": "A", "value": "1"}]}


def hanging(bench: Workbench, *texts: str) -> tuple[AgentProcess, str]:
    """A session that hangs in its first turn, which made the file `ready`; later prompts get the texts."""
    running, session = opened(bench, hang("ready"), *map(says, texts))
    return running, session


def wait_until_ready(running: AgentProcess) -> None:
    """Wait until the model's answer has begun and hangs."""
    running.wait_until((running.cwd / "ready").exists, "the file that shows that the answer hangs")


def answers(running: AgentProcess, since: int = 0) -> list[Any]:
    """The ids of the responses from there on, in order."""
    return [entry.frame["id"] for entry in running.transcript[since:]
            if entry.sender == "agent" and is_response(entry.frame)]


# ---------------------------------------------------------------- session/new


def test_a_session_needs_an_absolute_directory_that_exists(agent: Workbench, tmp_path: Path) -> None:
    running = agent(environ=SEQUENTIAL)
    running.initialize()
    (tmp_path / "file").touch()
    missing, file = str(tmp_path / "missing"), str(tmp_path / "file")
    for cwd in ("work", "", ".", "~", "../x", missing, file, f"{file}/below", "/no\0where", 5, None, ["/tmp"]):
        error = running.call("session/new", {"cwd": cwd, "mcpServers": []})["error"]
        assert error["code"] == INVALID_PARAMS, cwd
        if isinstance(cwd, str):
            assert "cwd" in error["message"]
            assert repr(cwd) in error["message"]
    assert running.new_session() == "session-1"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may enter every directory")
def test_a_directory_that_cannot_be_entered_is_refused_by_name(agent: Workbench, tmp_path: Path) -> None:
    running = agent()
    running.initialize()
    (tmp_path / "closed").mkdir(mode=0)
    error = running.call("session/new", {"cwd": str(tmp_path / "closed"), "mcpServers": []})["error"]
    assert error["code"] == INVALID_PARAMS
    assert str(tmp_path / "closed") in error["message"]


BAD_MEMBERS: list[dict[str, Any]] = [
    {},
    {"mcpServers": "none"},
    {"mcpServers": ["x"]},
    {"mcpServers": [{}]},
    {"mcpServers": [STDIO, {"name": "files"}]},
    {"mcpServers": [STDIO | {"args": [1]}]},
    {"mcpServers": [STDIO | {"env": {"A": "1"}}]},
    {"mcpServers": [STDIO | {"env": [{"name": "A"}]}]},
    {"mcpServers": [{"type": "sse", "name": "web", "url": "http://localhost", "headers": []}]},
    {"mcpServers": [{"type": "acp", "name": "web", "serverId": "x"}]},
    {"mcpServers": [{"type": "new", "name": "web"}]},
    {"mcpServers": [], "additionalDirectories": "/tmp"},
    {"mcpServers": [], "additionalDirectories": [5]},
    {"mcpServers": [], "additionalDirectories": [""]},
    {"mcpServers": [], "additionalDirectories": ["tmp"]},
    {"mcpServers": [], "additionalDirectories": ["/", "/nowhere-at-all"]},
]
GOOD_MEMBERS: list[dict[str, Any]] = [
    {"mcpServers": None},
    {"mcpServers": []},
    {"mcpServers": [], "additionalDirectories": []},
    {"mcpServers": [], "additionalDirectories": None},
    {"mcpServers": [], "additionalDirectories": ["/", "/"]},
    {"mcpServers": [STDIO]},
    {"mcpServers": [STDIO | {"type": "stdio"}]},
    {"mcpServers": [STDIO | {"args": None, "env": None}]},
]


def test_a_session_with_what_is_not_offered_or_is_malformed_is_refused(agent: Workbench) -> None:
    running = agent(environ=SEQUENTIAL)
    running.initialize()
    for members in BAD_MEMBERS:
        answer = running.call("session/new", {"cwd": str(agent.workspace)} | members)
        assert answer.get("error", {}).get("code") == INVALID_PARAMS, members
    named = running.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [
        {"type": "sse", "name": "the-web", "url": "http://localhost", "headers": []}]})
    assert "the-web" in named["error"]["message"]
    assert running.new_session() == "session-1"


def test_empty_and_null_lists_and_stdio_servers_are_accepted_and_every_session_is_new(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    sessions = set()
    for members in GOOD_MEMBERS:
        answer = running.call("session/new", {"cwd": str(agent.workspace)} | members)
        sessions.add(answer["result"]["sessionId"])
    assert len(sessions) == len(GOOD_MEMBERS)


def test_a_session_works_in_its_own_directory_wherever_the_agent_was_started(
    agent: Workbench, tmp_path: Path,
) -> None:
    odd = tmp_path / "é space's"
    odd.mkdir()
    (odd / "note").write_text("found in the session's directory")
    running = agent(replay=recording(agent, call(tool("c", "read", file_path="note")), says("done")), environ=LIVE)
    running.initialize()
    session = running.new_session(odd)
    running.prompt(session, "go")
    assert "found in the session's directory" in results(root_log(agent, session))[0]


# ---------------------------------------------------------------- prompts


def test_text_and_links_of_a_prompt_reach_the_model_in_order(agent: Workbench) -> None:
    running, session = opened(agent, ECHO)
    link = {"type": "resource_link", "uri": "file:///a b.txt", "name": "a b", "mimeType": 5, "size": "?"}
    content = [*text_prompt("see "), link, *text_prompt(" and say")]
    answer = running.call("session/prompt", {"sessionId": session, "prompt": content})
    assert stop_reason(answer) == "end_turn"
    assert "see [a b](file:///a b.txt) and say" in running.text(session)


BAD_BLOCKS: list[Any] = [
    [], "go", None, [None], ["go"], [{}], [{"type": "text"}], [{"type": "text", "text": 5}], [{"type": 5}],
    [{"type": "resource_link", "uri": "file:///a"}], [{"type": "resource_link", "name": "a"}],
    [{"type": "image", "data": "", "mimeType": "image/png"}], [{"type": "audio", "data": "", "mimeType": "audio/ogg"}],
    [{"type": "resource", "resource": {"uri": "file:///a"}}],
    [{"type": "text", "text": "go"}, {"type": "video"}],
]


def test_a_prompt_with_content_that_was_not_offered_is_refused_and_starts_no_turn(agent: Workbench) -> None:
    running, session = opened(agent, says("fine"))
    for prompt in BAD_BLOCKS:
        answer = running.call("session/prompt", {"sessionId": session, "prompt": prompt})
        assert answer.get("error", {}).get("code") == INVALID_PARAMS, prompt
    assert [update["sessionUpdate"] for update in running.updates(session)] == ["available_commands_update"]
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert order(root_log(agent, session), "turn/start") == ["turn/start"]


def test_an_unknown_session_is_not_found_and_the_error_says_which(agent: Workbench) -> None:
    running, session = opened(agent, says("fine"))
    for method, members in (("session/prompt", {"prompt": text_prompt("go")}), ("session/set_mode", {"modeId": "ask"})):
        for wrong in ("nobody", "", session.upper() + "x"):
            error = running.call(method, {"sessionId": wrong} | members)["error"]
            assert error["code"] == NOT_FOUND
            assert error["data"]["sessionId"] == wrong
            assert repr(wrong) in error["message"]
        assert running.call(method, {"sessionId": 5} | members)["error"]["code"] == INVALID_PARAMS


def test_there_is_nothing_to_log_in_to(agent: Workbench) -> None:
    running = agent()
    assert running.initialize()["authMethods"] == []
    error = running.call("authenticate", {"methodId": "browser"})["error"]
    assert error["code"] == INVALID_PARAMS
    assert "browser" in error["message"]


def test_prompts_to_a_busy_session_are_worked_in_order_and_never_mixed(agent: Workbench) -> None:
    running, session = opened(agent, *(says(*[f"{number}"] * 200) for number in range(4)))
    asked = [running.start_prompt(session, f"prompt {number}") for number in range(4)]
    running.response(asked[-1])
    assert answers(running)[-4:] == asked
    seen = [update["content"]["text"] for update in running.updates(session)
            if update["sessionUpdate"] == "agent_message_chunk"]
    assert seen == [str(number) for number in range(4) for _ in range(200)]
    for number, request_id in enumerate(asked):
        position = running.received.index(running.response(request_id))
        before = [frame for frame in running.received[:position] if "agent_message_chunk" in str(frame)]
        assert len(before) == 200 * (number + 1)
    prompts = [part["content"] for part in data(root_log(agent, session), "user/message")]
    assert prompts == [text_prompt(f"prompt {number}") for number in range(4)]


def two_roots(bench: Workbench) -> AgentProcess:
    """An agent whose first session to ask hangs, and whose second one answers."""
    directory = write(bench.store.parent / "two", Log("first").turn("1", says("-")),
                      Log("second", created=2000).turn("1", says("served")).turn("2", says("again")))
    running = bench(replay=override(directory, hang("ready"), says("later")))
    running.initialize()
    return running


def test_a_session_that_hangs_keeps_nobody_else_from_working(agent: Workbench) -> None:
    running = two_roots(agent)
    first = running.new_session()
    open_prompt = running.start_prompt(first, "go")
    wait_until_ready(running)
    second = running.new_session()
    assert stop_reason(running.prompt(second, "go")) == "end_turn"
    assert running.call("session/set_mode", {"sessionId": second, "modeId": "read-only"})["result"] == {}
    running.cancel(first)
    assert stop_reason(running.response(open_prompt)) == "cancelled"
    assert stop_reason(running.prompt(second, "go")) == "end_turn"
    assert stop_reason(running.prompt(first, "go")) == "end_turn"
    assert running.text(first) == "partiallater"
    assert running.text(second) == "servedagain"


# ---------------------------------------------------------------- session/cancel


def test_cancel_ends_what_runs_and_what_is_queued_and_the_session_goes_on(agent: Workbench) -> None:
    running, session = hanging(agent, "after")
    asked = [running.start_prompt(session, f"{number}") for number in range(3)]
    wait_until_ready(running)
    running.cancel(session)
    assert [stop_reason(running.response(one)) for one in asked] == ["cancelled"] * 3
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert running.text(session) == "partialafter"
    ends = [part["reason"]["kind"] for part in data(root_log(agent, session), "turn/end")]
    assert ends == ["aborted", "completed"]


def test_a_cancel_for_nobody_or_too_late_says_nothing_and_does_nothing(agent: Workbench) -> None:
    running, session = opened(agent, says("one"), says("two"), hang("ready"), says("three"))
    running.cancel(session)
    running.cancel("nobody")
    running.prompt(session, "1")
    running.cancel(session)
    running.cancel(session)
    assert stop_reason(running.prompt(session, "2")) == "end_turn"
    hung = running.start_prompt(session, "3")
    wait_until_ready(running)
    for _ in range(3):
        running.cancel(session)
    assert stop_reason(running.response(hung)) == "cancelled"
    since = running.position
    running.cancel(session)
    probe = running.request("foo/bar")
    running.response(probe)
    assert [entry.frame.get("id") for entry in running.transcript[since:] if entry.sender == "agent"] == [probe]
    assert stop_reason(running.prompt(session, "4")) == "end_turn"
    assert running.text(session) == "onetwopartialthree"


def test_a_cancel_means_the_prompts_that_were_sent_before_it_and_no_others(agent: Workbench) -> None:
    running, session = opened(agent, says("one"), says("two"))

    def ask(name: str) -> bytes:
        return line(request(name, "session/prompt", sessionId=session, prompt=text_prompt(name)))

    cancel = line({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
    running.send_bytes(ask("a") + ask("b") + cancel + ask("c"))
    assert [stop_reason(running.response(name)) for name in "abc"] == ["cancelled", "cancelled", "end_turn"]
    running.send_bytes(cancel + ask("d"))
    running.response("d")
    assert running.text(session) == "onetwo"


# ---------------------------------------------------------------- $/cancel_request


def test_a_running_prompt_that_is_called_back_is_answered_once_and_the_queue_goes_on(agent: Workbench) -> None:
    running, session = hanging(agent, "next")
    hung, queued = running.start_prompt(session, "1"), running.start_prompt(session, "2")
    wait_until_ready(running)
    for wrong in (str(hung), "nobody", 991, None):
        running.notify("$/cancel_request", {"requestId": wrong})
    running.notify("$/cancel_request", {"requestId": hung})
    running.notify("$/cancel_request", {"requestId": hung})
    assert stop_reason(running.response(hung)) == "cancelled"
    assert stop_reason(running.response(queued)) == "end_turn"
    running.notify("$/cancel_request", {"requestId": queued})
    running.call("foo/bar")
    assert answers(running).count(hung) == answers(running).count(queued) == 1
    assert running.text(session) == "partialnext"


def test_a_queued_prompt_can_be_called_back_alone(agent: Workbench) -> None:
    running, session = hanging(agent, "third")
    first, second, third = (running.start_prompt(session, f"{number}") for number in range(3))
    wait_until_ready(running)
    running.notify("$/cancel_request", {"requestId": second})
    assert stop_reason(running.response(second)) == "cancelled"
    assert first not in answers(running)
    running.notify("$/cancel_request", {"requestId": first})
    assert stop_reason(running.response(third)) == "end_turn"
    prompts = [part["content"] for part in data(root_log(agent, session), "user/message")]
    assert prompts == [text_prompt("0"), text_prompt("2")]


# ---------------------------------------------------------------- session/set_mode


def test_the_modes_are_the_four_and_an_unknown_one_is_refused_naming_them(agent: Workbench) -> None:
    running = agent(replay=recording(agent, says("fine")))
    running.initialize()
    result = running.new_session_result()
    session, modes = result["sessionId"], [mode["id"] for mode in result["modes"]["availableModes"]]
    assert modes == ["read-only", "ask", "accept-edits", "full-access"]
    assert result["modes"]["currentModeId"] == "ask"
    for wrong in ("", "yolo", "ASK"):
        error = running.call("session/set_mode", {"sessionId": session, "modeId": wrong})["error"]
        assert error["code"] == INVALID_PARAMS
        assert all(mode in error["message"] for mode in modes)
    for mode in modes:
        assert running.call("session/set_mode", {"sessionId": session, "modeId": mode})["result"] == {}
    changes = [update["currentModeId"] for update in running.updates(session)
               if update["sessionUpdate"] == "current_mode_update"]
    assert changes == ["read-only", "ask", "accept-edits", "full-access"]


def test_a_mode_set_in_the_middle_of_a_turn_is_in_force_for_its_next_call(agent: Workbench) -> None:
    wait = "touch started; until [ -e go ]; do sleep 0.01; done"
    asked = call(tool("a", "bash", command=wait, description="d"),
                 tool("b", "bash", command="touch ran", description="d"))
    running, session = opened(agent, asked, says("done"), **LIVE)
    prompt = running.start_prompt(session, "go")
    running.wait_until((agent.workspace / "started").exists, "the first command to start")
    assert running.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})["result"] == {}
    (agent.workspace / "go").touch()
    assert stop_reason(running.response(prompt)) == "end_turn"
    refused = results(root_log(agent, session))[1]
    assert refused == 'Error: the permission mode is read-only, and tool "bash" runs commands'
    assert not (agent.workspace / "ran").exists()

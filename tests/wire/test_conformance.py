"""The protocol's 94 conformance statements (`replay.lint.statements`), each on a real process, by number.

Beside what a test says, every frame of every test is checked against the protocol's schema and every law
(`tests.conftest`).
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from replay.lint.statements import STATEMENTS
from tests.conftest import Workbench
from tests.support import mcp_servers, policies
from tests.support.client import AgentProcess
from tests.support.conformance_moves import (
    HANGING,
    answered,
    asked,
    code,
    final,
    hung,
    kinds,
    lines,
    listed,
    opening,
    pages,
    reason,
    responses,
    statuses,
    wait_for_file,
)
from tests.support.images import PNG
from tests.support.schema import Frame, is_request
from tests.wire import moves
from tests.wire.moves import text_prompt
from tests.wire.recordings import says, throw
from tests.wire.runs import ECHO, failures, results, root_log
from tests.wire.services import (
    FILES,
    NO,
    QUESTIONS,
    TERMINAL,
    EditorClient,
    TerminalClient,
    bash,
    model,
    opened,
    requests,
    tools,
)

PARSE_ERROR, INVALID_REQUEST, NOT_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL, LOGIN, NOT_FOUND, CANCELLED = -32603, -32000, -32002, -32800

SEQUENTIAL = {"ACP_IDS": "sequential"}
ASK = {"ACP_PERMISSION_MODE": "ask"}
PERMISSION = "session/request_permission"
OK = 'call repeat\n  say "ok"\n'
NOBODY = "no-such-session"
WRITE = ("write", {"file_path": "new.txt", "content": "made\n"})
KEY = {"ACP_MODEL": "openai/some-model"}
"""A provider that needs a login."""


def started(
    bench: Workbench, *settings: Mapping[str, str], capabilities: Frame | None = None, unstable: bool = False,
) -> AgentProcess:
    """An initialized agent without a session."""
    environ = {name: value for some in settings for name, value in some.items()}
    process = bench(environ=environ, unstable=unstable)
    process.initialize(capabilities)
    return process


class Absent(NamedTuple):
    """What this agent does not have: why, the methods that are missing, and the capability that is not advertised."""

    why: str
    methods: tuple[str, ...]
    capabilities: tuple[tuple[str, ...], ...]


NOT_OFFERED: Mapping[int, Absent] = {
    89: Absent("sessions are deleted or kept; there is no third state", ("session/archive", "session/unarchive"),
               (("sessionCapabilities", "archive"),)),
    90: Absent("the list says what there is to know, and /rename gives a title",
               ("session/status", "session/set_title"),
               (("sessionCapabilities", "status"), ("sessionCapabilities", "title"))),
    91: Absent("a login shows when a session is made", ("auth/status",), (("auth", "status"),)),
    92: Absent("providers are the user's settings, not the client's",
               ("providers/list", "providers/set", "providers/disable"), (("providers",),)),
    94: Absent("instructions are the agent's own, and MCP servers are reached directly",
               ("mcp/message", "mcp/connect"), (("sessionCapabilities", "systemPrompt"), ("mcpCapabilities", "acp"))),
}
"""Statements about parts of the protocol that this agent leaves out, all unstable. Tested by their absence.

Parts of others: compaction (87) and plans by id (93) are never sent, and there are no boolean options (84).
"""


def check_absent(bench: Workbench, number: int) -> None:
    """Neither advertised nor there."""
    process = bench()
    offered = process.initialize()["agentCapabilities"]
    for method in NOT_OFFERED[number].methods:
        assert code(process.call(method, {"sessionId": NOBODY})) == NOT_METHOD, method
    for path in NOT_OFFERED[number].capabilities:
        value: Any = offered
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        assert value in (None, False), path


# ---------------------------------------------------------------- framing and JSON-RPC


def test_01_stdout_is_json_rpc_and_nothing_else(agent: Workbench) -> None:
    script = tools(bash("echo out; echo err >&2; printf no-newline"), bash("cat /dev/stdin; exit 3"))
    process, session = opened(agent, script, {})
    assert reason(process.prompt(session, "Print.")) == "end_turn"
    process.close()
    raw = b"".join(entry.raw for entry in process.transcript if entry.sender == "agent")
    assert raw.endswith(b"\n")
    assert all(json.loads(one)["jsonrpc"] == "2.0" for one in raw[:-1].split(b"\n"))


def test_02_any_text_is_one_line_of_utf8(agent: Workbench) -> None:
    text = 'LF \n CR \r CRLF \r\n LS \u2028 PS \u2029 NEL \x85 FF \f " \\ é 日本 🎈 end'
    process, session = opened(agent, f"call\n  say by 1 {json.dumps(text)}\n", {})
    process.prompt(session, "Speak.")
    assert process.text(session) == text
    assert all(b"\n" not in entry.raw[:-1] and entry.raw.decode() for entry in process.transcript)


def test_03_blank_lines_are_skipped_and_crlf_is_read(agent: Workbench) -> None:
    process = started(agent)
    process.send_bytes(b'\n   \n\r\n{"jsonrpc":"2.0","id":"crlf","method":"session/list"}\r\n')
    assert process.response("crlf")["result"] == {"sessions": []}
    assert len(responses(process)) == 2


def test_04_what_is_not_json_gets_one_parse_error(agent: Workbench) -> None:
    process = started(agent)
    for raw in (b"{bad", b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}'):
        (answer,) = lines(process, raw)
        assert (code(answer), answer["id"]) == (PARSE_ERROR, None)


NO_MESSAGES = (
    b"42", b'"x"', b"null", b'{"jsonrpc":"2.0","id":700}', b'{"jsonrpc":"1.0","id":700,"method":"session/list"}',
    b'{"id":700,"method":"session/list"}', b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}',
)


def test_05_what_is_no_message_is_an_invalid_request(agent: Workbench) -> None:
    process = started(agent)
    for raw in NO_MESSAGES:
        (answer,) = lines(process, raw)
        assert code(answer) == INVALID_REQUEST, raw
        assert answer["id"] in (None, 700)


def test_06_a_batch_is_refused_whole(agent: Workbench) -> None:
    process = started(agent)
    one = moves.request("a", "session/new", cwd=str(agent.workspace), mcpServers=[])
    for batch in ([one, one | {"id": "b"}], []):
        (answer,) = lines(process, batch)
        assert (code(answer), answer["id"]) == (INVALID_REQUEST, None)


def test_07_ids_come_back_as_they_were(agent: Workbench) -> None:
    process = started(agent)
    ids: list[Any] = [0, -1, 2**53 - 1, "2", "é", 2]
    for one in ids:
        process.send({"id": one, "method": "session/list"})
        assert "result" in process.response(one)
    assert [json.dumps(answer["id"]) for answer in responses(process)[1:]] == [json.dumps(one) for one in ids]


def test_08_a_null_id_is_an_id(agent: Workbench) -> None:
    process = started(agent)
    process.send({"id": None, "method": "session/list"})
    assert process.response(None)["result"] == {"sessions": []}


NOTES: list[Frame] = [
    {"method": "session/cancel", "params": {"sessionId": NOBODY}}, {"method": "session/cancel"},
    {"method": "session/cancel", "params": [1]}, {"method": "session/new", "params": {"cwd": "/"}},
    {"method": "_x/y"}, {"method": "$/foo", "params": {"a": 1}}, {"method": "foo/bar"},
    {"method": "$/cancel_request", "params": {"requestId": {}}},
]


def test_09_notifications_are_never_answered(agent: Workbench) -> None:
    assert lines(started(agent), *({"jsonrpc": "2.0"} | note for note in NOTES)) == []


def test_10_unknown_requests_are_not_found(agent: Workbench) -> None:
    process = started(agent)
    for method in ("foo/bar", "_x/y", "session/archive", ""):
        assert code(process.call(method, {})) == NOT_METHOD


def test_11_unknown_notifications_do_no_harm(agent: Workbench) -> None:
    process, session = opened(agent, OK, {})
    for method in ("_x/y", "$/foo", "foo/bar"):
        process.notify(method, {"sessionId": session})
    assert reason(process.prompt(session, "Go.")) == "end_turn"


def test_12_stray_responses_are_dropped(agent: Workbench) -> None:
    strays: list[Frame] = [{"id": 99, "result": {}}, {"id": 1, "error": "bad"},
                           {"id": "x", "error": {"code": 1, "message": "m"}}]
    assert lines(started(agent), *({"jsonrpc": "2.0"} | stray for stray in strays)) == []


def test_13_wrong_params_are_invalid_params(agent: Workbench) -> None:
    process = started(agent)
    wrong: list[Any] = [{}, {"mcpServers": []}, ["/tmp", []], "text", 5]
    for number, params in enumerate(wrong):
        process.send({"id": f"wrong {number}", "method": "session/new", "params": params})
        assert code(process.response(f"wrong {number}")) == INVALID_PARAMS, params
    process.send({"id": "null", "method": "session/list", "params": None})
    assert process.response("null")["result"] == process.call("session/list", {})["result"]


@pytest.mark.parametrize("meta", [{"a": {"b": 1}}, "x", None])
def test_14_extra_members_and_meta_are_accepted(agent: Workbench, meta: Any) -> None:
    extra = {"_meta": meta, "unknown": {"deep": [1]}}
    process = agent(environ=model(agent, OK))
    capabilities = {"fs": {"readTextFile": False} | extra} | extra
    hello = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
    assert "result" in process.call("initialize", hello | extra)
    variable = {"name": "A", "value": "b"} | extra
    server = {"name": "gone", "command": "/no/such/server", "args": [], "env": [variable]} | extra
    session = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [server]} | extra)[
        "result"]["sessionId"]
    block = {"type": "text", "text": "Go.", "annotations": {"audience": ["user"]} | extra} | extra
    prompt = {"sessionId": session, "prompt": [block]} | extra
    assert reason(process.call("session/prompt", prompt)) == "end_turn"
    for method, params in (("session/set_mode", {"modeId": "ask"}), ("session/close", {})):
        assert "result" in process.call(method, {"sessionId": session} | params | extra)


@pytest.mark.parametrize("mebibytes", [1, 8])
def test_15_long_prompts_are_accepted(agent: Workbench, mebibytes: int) -> None:
    process, session = opened(agent, OK, {})
    assert reason(process.prompt(session, "x" * (mebibytes << 20))) == "end_turn"


def test_16_pipelined_requests_are_answered_once_each(agent: Workbench) -> None:
    process = started(agent)
    place = {"cwd": str(agent.workspace), "mcpServers": []}
    sent = [process.request("session/new" if number % 2 else "session/list", place) for number in range(50)]
    for one in sent:
        process.response(one)
    assert sorted(answered(process, *sent)) == sent


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a turn"])
def test_17_the_end_of_input_ends_the_agent(agent: Workbench, busy: bool) -> None:
    process, session = opened(agent, tools(bash("touch running; sleep 600")), {})
    if busy:
        process.start_prompt(session, "Sleep.")
        wait_for_file(process, "running")
    begun = time.monotonic()
    assert process.close() == 0  # no process of it is left: a law
    assert time.monotonic() - begun < 5


# ---------------------------------------------------------------- initialisation


def test_18_version_1_is_answered_with_1(agent: Workbench) -> None:
    answer = agent().initialize()["protocolVersion"]
    assert (answer, type(answer)) == (1, int)


@pytest.mark.parametrize("version", [2, 65535, 0])
def test_19_another_version_is_answered_with_our_own(agent: Workbench, version: int) -> None:
    assert agent().initialize(version=version)["protocolVersion"] == 1


def test_20_a_version_that_is_none_is_refused(agent: Workbench) -> None:
    process = agent()
    for params in (*({"protocolVersion": wrong} for wrong in ("1", 1.5, -1, 65536, None, True)), {}):
        assert code(process.call("initialize", params)) == INVALID_PARAMS, params
    assert process.initialize()["protocolVersion"] == 1


EVERYTHING = (
    'call\n  tool a read {"file_path": "a.txt"}\n  tool b write {"file_path": "b.txt", "content": "b"}\n'
    '  tool c bash {"command": "echo hi", "description": "d"}\n'
    '  tool d todo_write {"todos": [{"content": "one", "status": "pending"}]}\n'
    '  tool e ask_user {"message": "Sure?"}\n  tool f subagent {"description": "d", "prompt": "p"}\n'
    'call repeat\n  say "Done."\nlane root > f\ncall\n  say "Child."\n')
"""A model that uses every kind of tool."""


@pytest.mark.parametrize("offered", [None, {}], ids=["absent", "empty"])
def test_21_a_client_that_declares_nothing_is_asked_for_nothing(agent: Workbench, offered: Frame | None) -> None:
    (agent.workspace / "a.txt").write_text("a\n")
    process = agent(environ=model(agent, EVERYTHING))
    hello: Frame = {"protocolVersion": 1} | ({} if offered is None else {"clientCapabilities": offered})
    answer = process.call("initialize", hello)["result"]
    assert not any(method.get("type") == "terminal" for method in answer.get("authMethods", ()))
    made = process.new_session_result()
    assert all(option["type"] != "boolean" for option in made.get("configOptions", ()))
    assert reason(process.prompt(made["sessionId"], "Do it all.")) == "end_turn"
    assert not [frame for frame in process.received if is_request(frame)]
    gated = {"notice", "compaction_update", "compaction_summary_chunk", "plan_update", "plan_removed",
             "subagent_update", "session_message", "session_message_chunk"}
    assert not gated & set(kinds(process.updates()))


def test_22_malformed_capabilities_count_as_absent(agent: Workbench) -> None:
    (agent.workspace / "a.txt").write_text("a\n")
    wrong = {"fs": "yes", "elicitation": 5, "terminal": "no", "session": [], "auth": None}
    process = agent(environ=model(agent, EVERYTHING))
    assert "result" in process.call("initialize", {"protocolVersion": 1, "clientCapabilities": wrong})
    assert reason(process.prompt(process.new_session(), "Do it all.")) == "end_turn"
    assert not [frame for frame in process.received if is_request(frame)]


OPTIONAL: Mapping[tuple[str, ...], str] = {
    ("loadSession",): "session/load", ("auth", "logout"): "logout", ("auth", "status"): "auth/status",
    ("providers",): "providers/list",
    **{("sessionCapabilities", name): f"session/{name}" for name in ("list", "resume", "delete", "close", "fork",
                                                                      "archive", "status")},
    ("sessionCapabilities", "title"): "session/set_title",
}


@pytest.mark.parametrize("environ", [{}, KEY], ids=["no login", "login"])
def test_23_what_is_advertised_is_there_and_what_is_not_is_not(agent: Workbench, environ: dict[str, str]) -> None:
    process = agent(environ=environ)
    offered = process.initialize()["agentCapabilities"]
    for path, method in OPTIONAL.items():
        value: Any = offered
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        missing = code(process.call(method, opening(NOBODY, agent.workspace))) == NOT_METHOD
        assert missing == (value in (None, False)), method


def test_24_the_agent_says_who_it_is(agent: Workbench) -> None:
    info = agent().initialize()["agentInfo"]
    assert info["name"]
    assert re.fullmatch(r"\d+\.\d+.*", info["version"])


def test_25_nothing_is_served_before_initialize(agent: Workbench) -> None:
    process = agent()
    assert code(process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": []})) == INVALID_REQUEST
    process.initialize()
    assert process.call("session/list", {})["result"] == {"sessions": []}
    assert process.new_session()


def test_26_a_second_initialize_keeps_the_sessions(agent: Workbench) -> None:
    process, session = opened(agent, OK, {})
    assert process.initialize()["protocolVersion"] == 1
    assert reason(process.prompt(session, "Go.")) == "end_turn"


# ---------------------------------------------------------------- authentication


def test_27_a_missing_login_is_32000_and_nothing_else_is(agent: Workbench) -> None:
    process = started(agent, KEY)
    place = {"cwd": str(agent.workspace), "mcpServers": []}
    assert code(process.call("session/new", place)) == LOGIN
    others = [process.call("session/prompt", {"sessionId": NOBODY, "prompt": text_prompt("x")}),
              process.call("session/new", {}), process.call("foo", {}), process.call("authenticate", {"methodId": "x"})]
    assert LOGIN not in map(code, others)
    # an agent that needs no login never says -32000: a law of every transcript


def test_28_after_authenticate_sessions_are_made(agent: Workbench) -> None:
    process = agent(environ=KEY | {"OPENAI_API_KEY": "not-a-key"})
    methods = process.initialize()["authMethods"]
    (method,) = [one["id"] for one in methods if one.get("type", "agent") == "agent"]
    assert process.call("authenticate", {"methodId": method})["result"] == {}
    assert process.new_session()


def test_29_an_unknown_or_terminal_method_is_refused(agent: Workbench) -> None:
    process = agent(environ=KEY)
    methods = process.initialize({"auth": {"terminal": True}})["authMethods"]
    (terminal,) = [one["id"] for one in methods if one.get("type") == "terminal"]
    for method in ("nothing", "", terminal):
        assert code(process.call("authenticate", {"methodId": method})) == INVALID_PARAMS, method


def test_30_after_a_logout_sessions_need_a_login(agent: Workbench) -> None:
    process = agent(environ=KEY | {"OPENAI_API_KEY": "not-a-key"})
    offered = process.initialize()
    assert offered["agentCapabilities"]["auth"]["logout"] == {}
    place = {"cwd": str(agent.workspace), "mcpServers": []}
    assert "result" in process.call("session/new", place)
    assert process.call("logout", {})["result"] == {}
    assert code(process.call("session/new", place)) == LOGIN
    process.call("authenticate", {"methodId": offered["authMethods"][0]["id"]})
    assert "result" in process.call("session/new", place)


def test_31_a_terminal_login_is_for_clients_that_run_one_and_works(agent: Workbench) -> None:
    process = agent(environ=KEY)
    assert all(method.get("type") != "terminal" for method in process.initialize()["authMethods"])
    methods = process.initialize({"auth": {"terminal": True}})["authMethods"]
    (method,) = [one for one in methods if one.get("type") == "terminal"]
    logins = []
    for given in (b"\n", b"not-a-key\n"):
        login = agent.prepare(*method["args"], environ=KEY | method.get("env", {}), unlawful="it logs in")
        logins.append(login)
        login.start()
        login.send_bytes(given)
        login.end_input()
        assert (login.wait() == 0) == bool(given.strip())
    fresh = started(agent, KEY)
    assert fresh.new_session()


# ---------------------------------------------------------------- sessions


def test_32_sessions_have_ids_of_their_own(agent: Workbench) -> None:
    process = started(agent)
    first, second = process.new_session(), process.new_session()
    assert first
    assert second
    assert first != second


def test_33_mcp_servers_must_be_said(agent: Workbench) -> None:
    process = started(agent)
    place = {"cwd": str(agent.workspace)}
    assert code(process.call("session/new", place)) == INVALID_PARAMS
    nothing: tuple[Any, ...] = (None, [])
    for none in nothing:
        assert "result" in process.call("session/new", place | {"mcpServers": none})


def test_34_a_relative_directory_is_refused(agent: Workbench) -> None:
    process = started(agent, SEQUENTIAL)
    for cwd in ("", ".", "work", "../up", "~"):
        answer = process.call("session/new", {"cwd": cwd, "mcpServers": []})
        assert code(answer) == INVALID_PARAMS, cwd
    assert process.new_session() == "session-1"


def test_35_relative_paths_start_at_the_sessions_directory(agent: Workbench, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    process = started(agent, model(agent, tools(WRITE, bash("pwd > where"))))
    assert reason(process.prompt(process.new_session(place), "Write.")) == "end_turn"
    assert (place / "new.txt").read_text() == "made\n"
    assert (place / "where").read_text() == f"{place}\n"


@pytest.mark.parametrize("kind", [{}, {"type": "stdio"}], ids=["no type", "stdio"])
def test_36_a_stdio_mcp_server_is_started_and_its_tools_called(agent: Workbench, kind: Frame) -> None:
    process = started(agent, model(agent, tools(("mcp__friendly__add", {"a": 40, "b": 2}))))
    server = mcp_servers.stdio("friendly", env={"MINE": "1"}) | kind
    session = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [server]})["result"]["sessionId"]
    assert reason(process.prompt(session, "Add.")) == "end_turn"
    assert final(process, session, "c1")["status"] == "completed"
    assert "42" in results(root_log(agent, session))[0]


BAD_SERVERS: list[Any] = [
    {"type": "sse", "name": "web", "url": "https://example.invalid", "headers": []},
    {"type": "acp", "name": "web", "serverId": "x"}, "x", {}, {"name": "a"},
    {"name": "a", "command": "/bin/true", "args": [1], "env": []},
    {"name": "a", "command": "/bin/true", "args": [], "env": {"A": "b"}},
    {"type": "http", "name": "web", "headers": []},
]


def test_37_a_server_that_cannot_be_used_is_refused(agent: Workbench) -> None:
    process = agent(environ={"ACP_IDS": "sequential"})
    assert process.initialize()["agentCapabilities"]["mcpCapabilities"].get("sse", False) is False
    for server in BAD_SERVERS:
        answer = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [server]})
        assert code(answer) == INVALID_PARAMS, server
    assert process.new_session() == "session-1"


@pytest.mark.parametrize("server", [
    {"name": "missing", "command": "/no/such/server", "args": [], "env": []},
    {"name": "silent", "command": "/bin/sleep", "args": ["600"], "env": []},
], ids=["missing", "silent"])
def test_38_a_server_that_hangs_holds_nothing_up(agent: Workbench, server: Frame) -> None:
    process = started(agent, model(agent, OK))
    begun = time.monotonic()
    answer = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [server]})
    assert time.monotonic() - begun < 10
    if server["name"] == "missing":
        assert reason(process.prompt(answer["result"]["sessionId"], "Go.")) == "end_turn"


def test_39_further_roots_are_checked(agent: Workbench, tmp_path: Path) -> None:
    process = agent(environ={"ACP_IDS": "sequential"})
    offered = process.initialize()["agentCapabilities"]["sessionCapabilities"]
    place = {"cwd": str(agent.workspace), "mcpServers": []}
    for wrong in ("", "relative", 5, None):
        assert code(process.call("session/new", place | {"additionalDirectories": [wrong]})) == INVALID_PARAMS, wrong
    assert code(process.call("session/new", place | {"additionalDirectories": "/tmp"})) == INVALID_PARAMS
    answer = process.call("session/new", place | {"additionalDirectories": [str(tmp_path)]})
    assert ("result" in answer) == ("additionalDirectories" in offered)
    assert process.new_session() == ("session-2" if "result" in answer else "session-1")


def test_40_no_update_comes_before_the_sessions_id(agent: Workbench) -> None:
    process = started(agent)
    for _ in range(3):
        since = process.position
        session = process.new_session()
        process.call("_tests/barrier", {})
        first = next(entry.frame for entry in process.transcript[since:] if entry.sender == "agent")
        assert first["result"]["sessionId"] == session


STORY = (
    'call\n  think "Hm."\n  say "I write."\n  tool a write {"file_path": "a.txt", "content": "a"}\n'
    'call\n  say "Written."\ncall\n  say "Again."\ncall repeat\n  say "More."\n')


def told(bench: Workbench) -> tuple[AgentProcess, str]:
    """A session with two turns, stored by a process that has ended; and a new process."""
    first, session = opened(bench, STORY, {})
    first.prompt(session, "Please write")
    first.prompt(session, "and again")
    first.close()
    return started(bench, model(bench, STORY)), session


def test_41_a_load_sends_the_whole_history_before_its_response(agent: Workbench) -> None:
    process, session = told(agent)
    asked_at = process.position
    loading = process.request("session/load", opening(session, agent.workspace))
    process.response(loading)
    until = next(at for at, entry in enumerate(process.transcript) if entry.sender == "agent"
                 and entry.frame.get("id") == loading)
    updates = [entry.frame["params"]["update"] for entry in process.transcript[asked_at:until]
               if entry.sender == "agent"]
    order = [kind for kind in kinds(updates) if kind.endswith("_chunk") or kind == "tool_call"]
    assert order == ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call",
                     "agent_message_chunk", "user_message_chunk", "agent_message_chunk"]
    said = [update["content"]["text"] for update in updates if "content" in update and "messageId" in update]
    assert said == ["Please write", "Hm.", "I write.", "Written.", "and again", "Again."]
    assert final(process, session, "a")["status"] == "completed"


def test_42_a_load_has_no_side_effects(agent: Workbench) -> None:
    process, session = told(agent)
    (agent.workspace / "a.txt").unlink()
    process.call("session/load", opening(session, agent.workspace))
    process.call("_tests/barrier", {})
    assert not [frame for frame in process.received if is_request(frame)]
    assert "notice" not in kinds(process.updates())
    assert not (agent.workspace / "a.txt").exists()
    assert "More." not in process.text(session)


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_43_after_a_load_the_model_knows_the_past(agent: Workbench, method: str) -> None:
    """And statement 45's second half."""
    first, session = moves.opened(agent, says("I answered that."), ECHO)
    first.prompt(session, "The first question")
    first.close()
    process = started(agent, {"ACP_REPLAY_DIR": str(agent.store.parent / "recording")})
    assert "result" in process.call(method, opening(session, agent.workspace))
    since = process.position
    process.prompt(session, "The second one")
    heard = process.text(session, since=since)
    assert heard.index("The first question") < heard.index("I answered that.") < heard.index("The second one")


def test_44_unknown_sessions_are_not_found(agent: Workbench) -> None:
    process = started(agent, unstable=True)
    for method, params in (
        ("session/load", opening(NOBODY, agent.workspace)), ("session/resume", opening(NOBODY, agent.workspace)),
        ("session/fork", opening(NOBODY, agent.workspace)), ("session/prompt", {"prompt": text_prompt("x")}),
        ("session/set_mode", {"modeId": "ask"}), ("session/set_config_option", {"configId": "mode", "value": "ask"}),
        ("session/close", {}),
    ):
        error = process.call(method, {"sessionId": NOBODY} | params)["error"]
        assert (error["code"], error["data"]["sessionId"]) == (NOT_FOUND, NOBODY), method


def test_45_a_resume_sends_no_history(agent: Workbench) -> None:
    process, session = told(agent)
    resuming = process.request("session/resume", opening(session, agent.workspace))
    process.response(resuming)
    before = [frame for frame in process.received if frame.get("method") == "session/update"
              and process.received.index(frame) < process.received.index(process.response(resuming))]
    assert before == []
    since = process.position
    assert reason(process.prompt(session, "More?")) == "end_turn"
    assert process.text(session, since=since) == "More."
    # that the context is kept: test 43


@pytest.mark.parametrize(("method", "servers"), [
    ("session/load", [mcp_servers.stdio("friendly")]), ("session/resume", []),
], ids=["load", "resume"])
def test_46_roots_and_servers_are_those_of_the_request(
    agent: Workbench, tmp_path: Path, method: str, servers: list[Frame],
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "file").write_text("found\n")
    greet = ("mcp__friendly__greet", {"name": "you"})
    deeds = [("read", {"file_path": str(extra / "file")}), *[greet][:len(servers)]]
    first = started(agent, model(agent, tools(*deeds)), ASK)
    first.answers[PERMISSION] = policies.allow
    place = {"cwd": str(agent.workspace), "mcpServers": servers, "additionalDirectories": [str(extra)]}
    session = first.call("session/new", place)["result"]["sessionId"]
    first.prompt(session, "Read.")
    names = [f"c{number}" for number in range(1, len(deeds) + 1)]
    assert [final(first, session, name)["status"] for name in names] == ["completed"] * len(deeds)
    first.close()
    again = 'call\n  say "-"\n' * (len(deeds) + 1) + tools(*deeds).replace("tool c", "tool d")
    second = started(agent, model(agent, again), ASK)
    second.answers[PERMISSION] = policies.allow
    assert "result" in second.call(method, opening(session, agent.workspace))
    second.prompt(session, "Read again.")
    later = [name.replace("c", "d") for name in names]
    assert [final(second, session, name)["status"] for name in later] == ["failed"] * len(deeds)


def test_47_a_list_can_be_for_one_directory(agent: Workbench, tmp_path: Path) -> None:
    process, session = opened(agent, OK, {})
    other = tmp_path / "other"
    other.mkdir()
    elsewhere = process.new_session(other)
    for one in (session, elsewhere):
        process.prompt(one, "Go.")
    assert process.call("session/list", {"cwd": str(tmp_path / "none")})["result"] == {"sessions": []}
    assert listed(process, cwd=str(other)) == [elsewhere]
    assert {entry["cwd"] for page in pages(process, cwd=str(other)) for entry in page["sessions"]} == {str(other)}
    assert set(listed(process)) == {session, elsewhere}


def test_48_pages_give_every_session_once(agent: Workbench) -> None:
    process = started(agent, model(agent, OK))
    made = [process.new_session() for _ in range(60)]
    for prompt in [process.start_prompt(session, "Go.") for session in made]:
        process.response(prompt)
    found = list(pages(process))
    assert len(found) > 1
    assert found[-1].get("nextCursor") is None
    entries = [entry for page in found for entry in page["sessions"]]
    assert sorted(entry["sessionId"] for entry in entries) == sorted(made)
    for entry in entries:
        assert Path(entry["cwd"]).is_absolute()
        assert datetime.fromisoformat(entry["updatedAt"]).tzinfo is not None


def test_49_a_garbage_cursor_is_refused(agent: Workbench) -> None:
    process = started(agent)
    for cursor in ("garbage", "", "AAAA", 'é"'):
        assert code(process.call("session/list", {"cursor": cursor})) == INVALID_PARAMS, cursor


def test_50_a_deleted_session_is_gone(agent: Workbench) -> None:
    process, session = opened(agent, OK, {})
    process.prompt(session, "Go.")
    assert listed(process) == [session]
    for _ in range(2):
        assert process.call("session/delete", {"sessionId": session})["result"] == {}
        assert listed(process) == []
    assert process.call("session/delete", {"sessionId": NOBODY})["result"] == {}
    assert code(process.call("session/load", opening(session, agent.workspace))) == NOT_FOUND


@pytest.mark.parametrize("capabilities", [{}, TERMINAL], ids=["process", "terminal"])
def test_51_closing_in_a_turn_cancels_and_frees(agent: Workbench, capabilities: Frame) -> None:
    process, session = opened(agent, tools(bash("touch running; sleep 600")), capabilities)
    client = TerminalClient(process)
    client.ends = False
    prompt = process.start_prompt(session, "Sleep.")
    if capabilities:
        process.wait_for_request("terminal/wait_for_exit")
    else:
        wait_for_file(process, "running")
    closing = process.request("session/close", {"sessionId": session})
    assert process.response(closing)["result"] == {}
    assert reason(process.response(prompt)) == "cancelled"
    assert answered(process, prompt, closing) == [prompt, closing]
    assert len(asked(process, "terminal/release")) == len(capabilities)
    assert session in listed(process)


def test_52_a_closed_session_is_not_found_until_it_is_opened(agent: Workbench) -> None:
    process, session = opened(agent, OK, {})
    process.prompt(session, "Go.")
    assert process.call("session/close", {"sessionId": session})["result"] == {}
    assert code(process.prompt(session, "Still there?")) == NOT_FOUND
    assert "result" in process.call("session/resume", opening(session, agent.workspace))
    assert reason(process.prompt(session, "And now?")) == "end_turn"
    assert code(process.call("session/close", {"sessionId": NOBODY})) == NOT_FOUND


# ---------------------------------------------------------------- prompt turn


def test_53_an_answer_is_streamed_and_ends_with_a_reason(agent: Workbench) -> None:
    process, session = opened(agent, 'call\n  say "One, " "two."\n', {})
    assert reason(process.prompt(session, "Count.")) == "end_turn"
    assert kinds(process.updates(session)).count("agent_message_chunk") >= 1
    assert process.text(session) == "One, two."


def test_54_text_and_links_reach_the_model(agent: Workbench) -> None:
    process, session = moves.opened(agent, ECHO)
    link = {"type": "resource_link", "uri": "file:///somewhere/notes.txt", "name": "notes"}
    assert reason(process.call("session/prompt", {"sessionId": session, "prompt": [*text_prompt("See "), link]})) == (
        "end_turn")
    heard = process.text(session)
    assert "See " in heard
    assert "file:///somewhere/notes.txt" in heard


BAD_PROMPTS: list[Any] = [
    [], [{"type": "audio", "data": "", "mimeType": "audio/wav"}], [{"type": "video"}], [{"type": "text"}],
    [{"type": "resource_link", "name": "a"}], [{"type": "resource", "resource": {"text": "a"}}],
    [{"type": "image", "mimeType": "image/png"}], [{"type": "image", "data": "!", "mimeType": "image/png"}],
    [{"text": "no type"}], ["text"], [*text_prompt("good"), {"type": "audio", "data": "", "mimeType": "audio/wav"}],
]


def test_55_unusable_blocks_are_refused_and_advertised_ones_taken(agent: Workbench) -> None:
    process = agent(environ=model(agent, OK))
    offered = process.initialize()["agentCapabilities"]["promptCapabilities"]
    assert offered.get("audio", False) is False
    session = process.new_session()
    for prompt in BAD_PROMPTS:
        assert code(process.call("session/prompt", {"sessionId": session, "prompt": prompt})) == INVALID_PARAMS, prompt
    assert process.text(session) == ""
    taken = {"image": {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
             "embeddedContext": {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}}}
    for capability, block in taken.items():
        assert offered[capability] is True
        prompt = {"sessionId": session, "prompt": [*text_prompt("Look."), block]}
        assert reason(process.call("session/prompt", prompt)) == "end_turn", capability


def test_56_limits_and_refusals_are_stop_reasons(agent: Workbench) -> None:
    script = 'call\n  say "Cut"\n  finish max-tokens\n'
    process, session = opened(agent, script, {})
    assert reason(process.prompt(session, "Long.")) == "max_tokens"
    refusing, refused = moves.opened(agent, throw("no", "REFUSAL"), ECHO)
    assert reason(refusing.prompt(refused, "Something forbidden")) == "refusal"
    assert reason(refusing.prompt(refused, "Something else")) == "end_turn"
    assert "Something forbidden" not in refusing.text(refused)


def test_56_too_many_model_requests_are_a_stop_reason(agent: Workbench) -> None:
    process = agent(environ=model(agent, 'call repeat\n  tool a todo_write {"todos": []}\n'),
                    unlawful="a thousand frames take long to judge; shorter turns are judged everywhere")
    process.initialize()
    assert reason(process.prompt(process.new_session(), "Never stop.")) == "max_turn_requests"


def test_57_a_failing_model_is_an_error_and_the_next_prompt_works(agent: Workbench) -> None:
    process, session = opened(agent, 'call\n  throw AUTH "the key is wrong" final\ncall\n  say "Better."\n', {})
    error = process.prompt(session, "Go.")["error"]
    assert error["code"] == INTERNAL
    assert "Traceback" not in json.dumps(error)
    assert reason(process.prompt(session, "Again.")) == "end_turn"


def test_58_a_message_id_means_one_message(agent: Workbench) -> None:
    script = ('call\n  think "a" "b"\n  say "c" "d"\n  tool t todo_write {"todos": []}\ncall\n  say "e" "f"\n'
              'call\n  say "g"\n')
    process, session = opened(agent, script, {})
    for text in ("One.", "Two."):
        process.prompt(session, text)
    parts: dict[str, str] = {}
    for update in process.updates(session):
        if update["sessionUpdate"].endswith("_chunk"):
            kind = update["sessionUpdate"].removesuffix("_chunk")
            key = f"{kind} {update['messageId']}"
            parts[key] = parts.get(key, "") + update["content"]["text"]
    assert list(parts.values()) == ["ab", "cd", "ef", "g"]
    assert len({key.split(" ")[1] for key in parts}) == 4


def test_59_other_requests_are_answered_in_the_middle_of_a_turn(agent: Workbench) -> None:
    process, session = opened(agent, HANGING, {})
    prompt = hung(process, session)
    assert "result" in process.call("session/list", {})
    assert process.new_session() != session
    assert process.call("session/set_mode", {"sessionId": session, "modeId": "ask"})["result"] == {}
    option = {"sessionId": session, "configId": "mode", "value": "read-only"}
    assert "result" in process.call("session/set_config_option", option)
    assert answered(process, prompt) == []
    process.cancel(session)
    assert reason(process.response(prompt)) == "cancelled"


def test_60_turns_of_two_sessions_do_not_touch_each_other(agent: Workbench) -> None:
    script = 'call\n  say "first"\n  hang hanging\nlane root 2\ncall\n  say "second"\n  wait go\n  say " done"\n'
    process, first = opened(agent, script, {})
    second = process.new_session()
    one = hung(process, first)
    other = process.start_prompt(second, "Go.")
    process.wait_for_update("agent_message_chunk", session=second)
    process.cancel(first)
    assert reason(process.response(one)) == "cancelled"
    assert answered(process, other) == []
    (agent.workspace / "go").touch()
    assert reason(process.response(other)) == "end_turn"
    assert (process.text(first), process.text(second)) == ("first", "second done")


def test_61_prompts_of_a_busy_session_are_queued(agent: Workbench) -> None:
    script = 'call\n  say "One"\n  wait go\n  say " done."\ncall\n  say "Two."\ncall\n  say "Three."\n'
    process, session = opened(agent, script, {})
    prompts = [process.start_prompt(session, text) for text in ("1", "2", "3")]
    process.wait_for_update("agent_message_chunk", session=session)
    (agent.workspace / "go").touch()
    assert [reason(process.response(prompt)) for prompt in prompts] == ["end_turn"] * 3
    assert answered(process, *prompts) == prompts
    assert process.text(session) == "One done.Two.Three."


def test_62_nothing_of_a_turn_follows_its_response(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("echo a; echo b"), WRITE), {})
    process.prompt(session, "Work.")
    ended = process.position
    process.call("_tests/barrier", {})
    late = kinds(process.updates(session, since=ended))
    assert not [kind for kind in late if kind.endswith("_chunk") or kind.startswith("tool_call")]


def test_63_every_advertised_command_runs(agent: Workbench) -> None:
    process, session = opened(agent, 'call repeat\n  say "The model."\n', {})
    commands = process.wait_for_update("available_commands_update", session=session)["availableCommands"]
    assert {command["name"] for command in commands} >= {"help", "usage", "tools", "mcp", "rename"}
    for command in commands:
        since = process.position
        assert reason(process.prompt(session, f"/{command['name']} some words")) == "end_turn"
        shown = process.text(session, since=since)
        assert shown != "The model."
        assert shown, command["name"]
    since = process.position
    assert reason(process.prompt(session, "/no-such-command at all")) == "end_turn"
    assert process.text(session, since=since) == "The model."


# ---------------------------------------------------------------- cancellation


def test_64_a_cancel_while_streaming_ends_the_turn_as_cancelled(agent: Workbench) -> None:
    process, session = opened(agent, HANGING, {})
    prompt = hung(process, session)
    begun = time.monotonic()
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("capabilities", [{}, TERMINAL], ids=["process", "terminal"])
def test_65_a_cancel_stops_a_running_tool(agent: Workbench, capabilities: Frame) -> None:
    process, session = opened(agent, tools(bash("touch running; sleep 600 & sleep 600")), capabilities)
    client = TerminalClient(process)
    client.ends = False
    prompt = process.start_prompt(session, "Sleep.")
    if capabilities:
        process.wait_for_request("terminal/wait_for_exit")
    else:
        wait_for_file(process, "running")
    process.cancel(session)
    assert reason(process.response(prompt)) == "cancelled"
    order = [frame for frame in process.received if frame.get("id") == prompt or "update" in frame.get("params", {})]
    assert order[-1].get("id") == prompt or "toolCallId" not in order[-1]["params"]["update"]
    assert statuses(process, "c1")[-1] == "failed"
    assert len(asked(process, "terminal/release")) == len(capabilities)


@pytest.mark.parametrize("answer", [
    policies.cancel, lambda _: {"error": {"code": CANCELLED, "message": "cancelled"}}, policies.silent,
], ids=["cancelled", "error", "silence"])
def test_66_a_cancel_while_a_permission_is_asked_for(agent: Workbench, answer: policies.Policy) -> None:
    process, session = opened(agent, tools(WRITE), {}, **ASK)
    process.answers[PERMISSION] = policies.silent
    prompt = process.start_prompt(session, "Write.")
    question = process.wait_for_request(PERMISSION)
    process.cancel(session)
    members = answer(question)
    if members is not None:
        process.respond(question, **members)
    assert reason(process.response(prompt)) == "cancelled"
    assert statuses(process, "c1")[-1] == "failed"
    assert not (agent.workspace / "new.txt").exists()


def test_67_after_a_cancelled_response_nothing_comes_and_the_next_prompt_works(agent: Workbench) -> None:
    process, session = opened(agent, HANGING, {})
    prompt = hung(process, session)
    process.cancel(session)
    process.response(prompt)
    ended = process.position
    process.call("_tests/barrier", {})
    assert not [kind for kind in kinds(process.updates(session, since=ended)) if kind.endswith("_chunk")]
    assert reason(process.prompt(session, "Next?")) == "end_turn"
    assert process.text(session, since=ended) == "Next."


def test_68_a_cancel_of_nothing_does_nothing(agent: Workbench) -> None:
    process, session = opened(agent, OK, {})
    process.call("_tests/barrier", {})
    since = process.position
    for name in (session, NOBODY):
        process.cancel(name)
    assert lines(process) == []
    assert process.updates(since=since) == []
    assert reason(process.prompt(session, "Go.")) == "end_turn"
    process.cancel(session)
    assert reason(process.prompt(session, "Go on.")) == "end_turn"


def test_69_a_withdrawn_prompt_is_answered_once(agent: Workbench) -> None:
    process, session = opened(agent, HANGING, {})
    prompt = hung(process, session)
    for _ in range(2):
        process.notify("$/cancel_request", {"requestId": prompt})
    answer = process.response(prompt)
    assert code(answer) == CANCELLED or reason(answer) == "cancelled"
    for name in (prompt, 12345, "nothing", None):
        process.notify("$/cancel_request", {"requestId": name})
    assert lines(process) == []
    assert answered(process, prompt) == [prompt]
    assert reason(process.prompt(session, "Next?")) == "end_turn"


# ---------------------------------------------------------------- tools and permissions


def test_70_tool_calls_have_ids_of_their_own_and_end_once(agent: Workbench) -> None:
    """The model uses one id again and again."""
    script = ('call\n  tool x todo_write {"todos": []}\n  tool y read {"file_path": "none"}\ncall\n'
              '  tool x todo_write {"todos": []}\ncall\n  say "."\ncall\n  tool x todo_write {"todos": []}\n'
              'call\n  say "."\n')
    process, session = opened(agent, script, {})
    for _ in range(2):
        assert reason(process.prompt(session, "Go.")) == "end_turn"
    announced = [update["toolCallId"] for update in process.updates(session) if update["sessionUpdate"] == "tool_call"]
    assert len(announced) == len(set(announced)) == 4
    for name in announced:
        order = [update["sessionUpdate"] for update in process.updates(session) if update.get("toolCallId") == name]
        assert order[0] == "tool_call"
        assert [status for status in statuses(process, name) if status in ("completed", "failed")] == [
            statuses(process, name)[-1]]


def test_71_a_file_change_is_a_diff(agent: Workbench) -> None:
    (agent.workspace / "old.txt").write_text("one\ntwo\n")
    script = tools(WRITE, ("read", {"file_path": "old.txt"}),
                   ("edit", {"file_path": "old.txt", "old_string": "two", "new_string": "2"}))
    process, session = opened(agent, script, {})
    process.prompt(session, "Change.")
    made, _, changed = (final(process, session, call) for call in ("c1", "c2", "c3"))
    for update, old, new in ((made, None, "made\n"), (changed, "two", "2")):
        (diff,) = [item for item in update["content"] if item["type"] == "diff"]
        assert Path(diff["path"]).is_absolute()
        assert (diff["oldText"] is None) if old is None else (old in diff["oldText"])
        assert new in diff["newText"]
    for update in process.updates(session):
        assert all(item["type"] in ("content", "diff", "terminal") for item in update.get("content") or ()
                   if "toolCallId" in update)
        assert all(Path(place["path"]).is_absolute() and place.get("line", 1) >= 1
                   for place in update.get("locations") or ())


def test_72_a_failing_tool_is_a_failed_call_and_the_turn_goes_on(agent: Workbench) -> None:
    process, session = opened(agent, tools(("read", {"file_path": "none"}), ("nobody", {})), {})
    assert reason(process.prompt(session, "Read.")) == "end_turn"
    for name in ("c1", "c2"):
        update = final(process, session, name)
        assert update["status"] == "failed"
        assert update["content"][0]["content"]["text"]
    assert process.text(session) == "Done."


def test_73_a_permission_question_is_about_a_reported_call(agent: Workbench) -> None:
    process, session = opened(agent, tools(WRITE), {}, **ASK)
    process.answers[PERMISSION] = policies.silent
    prompt = process.start_prompt(session, "Write.")
    question = process.wait_for_request(PERMISSION)
    process.call("_tests/barrier", {})
    options = question["params"]["options"]
    assert len({option["optionId"] for option in options}) == len(options)
    assert {option["kind"] for option in options} == {"allow_once", "allow_always", "reject_once", "reject_always"}
    assert question["params"]["toolCall"]["toolCallId"] == "c1"
    assert "in_progress" not in statuses(process, "c1")
    assert not (agent.workspace / "new.txt").exists()
    process.respond(question, **(policies.allow(question)))
    assert reason(process.response(prompt)) == "end_turn"
    assert statuses(process, "c1")[-2:] == ["in_progress", "completed"]


UNCLEAR: list[Frame] = [
    {"result": {"outcome": {"outcome": "selected", "optionId": "no-such-option"}}},
    {"result": {"outcome": {"outcome": "sure"}}}, {"error": {"code": 1, "message": "no"}}, {"result": 5},
    {"result": {"outcome": {"outcome": "cancelled"}}},
]


@pytest.mark.parametrize(("answer", "runs"), [
    (policies.allow, True), (policies.reject, False), *((lambda _, one=one: one, False) for one in UNCLEAR),
], ids=["allow", "reject", "unknown option", "unknown outcome", "error", "garbage", "cancelled"])
def test_74_a_tool_runs_only_when_it_is_allowed(agent: Workbench, answer: policies.Policy, runs: bool) -> None:
    process, session = opened(agent, tools(WRITE), {}, **ASK)
    process.answers[PERMISSION] = answer
    assert reason(process.prompt(session, "Write.")) == "end_turn"
    assert (agent.workspace / "new.txt").exists() == runs
    assert statuses(process, "c1")[-1] == ("completed" if runs else "failed")
    assert failures(root_log(agent, session)) == [not runs]


@pytest.mark.parametrize(("answer", "runs"), [(policies.allow_always, True), (policies.reject_always, False)])
def test_75_an_answer_for_always_is_not_asked_for_again(
    agent: Workbench, answer: policies.Policy, runs: bool,
) -> None:
    process, session = opened(agent, tools(bash("echo ran >> out"), bash("echo ran >> out")), {}, **ASK)
    process.answers[PERMISSION] = answer
    process.prompt(session, "Run.")
    assert len(asked(process, PERMISSION)) == 1
    assert [statuses(process, name)[-1] for name in ("c1", "c2")] == ["completed" if runs else "failed"] * 2


# ---------------------------------------------------------------- client services


def test_76_only_the_offered_file_methods_are_used(agent: Workbench) -> None:
    (agent.workspace / "old.txt").write_text("one\ntwo\n")
    script = tools(("read", {"file_path": "old.txt", "offset": 2, "limit": 1}),
                   ("edit", {"file_path": "old.txt", "old_string": "two", "new_string": "2"}), WRITE)
    process, session = opened(agent, script, {"fs": {"readTextFile": True}})
    EditorClient(process)
    assert reason(process.prompt(session, "Change.")) == "end_turn"
    reads = asked(process, "fs/read_text_file")
    assert reads
    assert asked(process, "fs/write_text_file") == []
    assert all(Path(read["path"]).is_absolute() and (read.get("line") or 1) >= 1 for read in reads)
    assert (agent.workspace / "new.txt").read_text() == "made\n"


@pytest.mark.parametrize(("capabilities", "method", "deed"), [
    (FILES, "fs/read_text_file", ("read", {"file_path": "a.txt"})),
    (FILES, "fs/write_text_file", WRITE),
    (TERMINAL, "terminal/create", bash("echo")), (TERMINAL, "terminal/wait_for_exit", bash("echo")),
    (QUESTIONS, "elicitation/create", ("ask_user", {"message": "Which?"})),
], ids=["read", "write", "create", "wait", "question"])
def test_77_a_failing_client_service_is_a_failed_call(
    agent: Workbench, capabilities: Frame, method: str, deed: tuple[str, Frame],
) -> None:
    (agent.workspace / "a.txt").write_text("a\n")
    process, session = opened(agent, tools(deed), capabilities)
    EditorClient(process)
    TerminalClient(process)
    process.answers[method] = lambda _: NO
    assert reason(process.prompt(session, "Try.")) == "end_turn"
    assert asked(process, method)
    assert statuses(process, "c1")[-1] == "failed"
    assert process.text(session) == "Done."


ENDS: Mapping[str, Callable[[AgentProcess, str], object]] = {
    "cancel": lambda process, session: process.cancel(session),
    "close": lambda process, session: process.request("session/close", {"sessionId": session}),
    "delete": lambda process, session: process.request("session/delete", {"sessionId": session}),
}


@pytest.mark.parametrize("how", ["success", "failure", "timeout", *ENDS])
def test_78_every_terminal_is_released_once(agent: Workbench, how: str) -> None:
    deed = bash("sleep 600", timeoutMs=50 if how == "timeout" else 60_000)
    process, session = opened(agent, tools(deed) if how == "timeout" else tools(deed, bash("echo")), TERMINAL)
    client = TerminalClient(process)
    client.ends = how in ("success", "failure")
    if how == "failure":
        client.answers["output"] = NO
    prompt = process.start_prompt(session, "Run.")
    if how in ENDS:
        process.wait_for_request("terminal/wait_for_exit")
        ENDS[how](process, session)
    process.response(prompt)
    process.call("_tests/barrier", {})
    made = len(asked(process, "terminal/create"))
    assert made == (2 if how in ("success", "failure") else 1)
    assert [params["terminalId"] for params in asked(process, "terminal/release")] == [
        f"t{number + 1}" for number in range(made)]
    embedded = next(at for at, entry in enumerate(process.transcript) if b'"type":"terminal"' in entry.raw)
    released = next(at for at, entry in enumerate(process.transcript) if b"terminal/release" in entry.raw)
    assert embedded < released


def test_79_a_command_that_takes_too_long_is_killed_and_its_output_told(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("sleep 600", timeoutMs=50)), TERMINAL)
    TerminalClient(process, "half done\n").ends = False
    process.prompt(session, "Run.")
    deeds = [frame["method"] for frame in requests(process, "terminal/")]
    assert deeds == [f"terminal/{deed}" for deed in ("create", "wait_for_exit", "kill", "output", "release")]
    (told_model,) = results(root_log(agent, session))
    assert "half done" in told_model
    assert "timed out" in told_model


FORM, PAGE = ("ask_user", {"message": "Which?"}), ("ask_user", {"message": "Log in.", "url": "https://example.com/"})


@pytest.mark.parametrize(("offered", "modes"), [
    ({}, []), ({"elicitation": {}}, []), ({"elicitation": {"form": None, "url": None}}, []),
    ({"elicitation": {"form": {}}}, ["form"]), ({"elicitation": {"url": {}}}, ["url"]), (QUESTIONS, ["form", "url"]),
], ids=["none", "empty", "null", "form", "url", "both"])
def test_80_questions_come_only_in_offered_modes(agent: Workbench, offered: Frame, modes: list[str]) -> None:
    process, session = opened(agent, tools(FORM, PAGE), offered)
    process.answers["elicitation/create"] = lambda _: {"result": {"action": "accept", "content": {"answer": "this"}}}
    assert reason(process.prompt(session, "Ask.")) == "end_turn"
    questions = asked(process, "elicitation/create")
    assert [question["mode"] for question in questions] == modes
    assert all(question["sessionId"] == session and "requestId" not in question for question in questions)


@pytest.mark.parametrize("answer", [
    {"result": {"action": "decline"}}, {"result": {"action": "cancel"}}, {"result": {"action": "_maybe"}}, NO,
    {"result": {"action": "accept", "content": {"answer": 5}}},
], ids=["decline", "cancel", "unknown", "error", "wrong content"])
def test_80_any_answer_but_a_yes_is_no_answer(agent: Workbench, answer: Frame) -> None:
    process, session = opened(agent, tools(FORM), QUESTIONS)
    process.answers["elicitation/create"] = lambda _: answer
    assert reason(process.prompt(session, "Ask.")) == "end_turn"
    (heard,) = results(root_log(agent, session))
    assert "The user answered" not in heard


def test_81_pages_have_ids_of_their_own_and_forms_ask_for_no_secret(agent: Workbench) -> None:
    secret = ("ask_user", {"message": "Log in.", "fields": [{"name": "password"}]})
    process, session = opened(agent, tools(PAGE, PAGE, secret), QUESTIONS)
    process.answers["elicitation/create"] = lambda _: {"result": {"action": "accept"}}
    process.prompt(session, "Ask.")
    ids = [question["elicitationId"] for question in asked(process, "elicitation/create")]
    assert len(set(ids)) == len(ids) == 2
    done = [frame["params"]["elicitationId"] for frame in process.received
            if frame.get("method") == "elicitation/complete"]
    assert set(done) <= set(ids)
    assert statuses(process, "c3")[-1] == "failed"


# ---------------------------------------------------------------- modes, options, other updates


def test_82_modes_can_be_set_and_take_effect(agent: Workbench) -> None:
    process = started(agent, model(agent, tools(WRITE)), ASK)
    made = process.new_session_result()
    session, state = made["sessionId"], made["modes"]
    known = [mode["id"] for mode in state["availableModes"]]
    assert state["currentModeId"] in known
    for wrong in ("nowhere", ""):
        answer = process.call("session/set_mode", {"sessionId": session, "modeId": wrong})
        assert code(answer) == INVALID_PARAMS
    assert process.call("session/set_mode", {"sessionId": session, "modeId": "full-access"})["result"] == {}
    process.prompt(session, "Write.")
    assert asked(process, PERMISSION) == []
    assert (agent.workspace / "new.txt").exists()
    since = process.position
    option = {"sessionId": session, "configId": "mode", "value": "read-only"}
    assert "result" in process.call("session/set_config_option", option)
    assert process.wait_for_update("current_mode_update", since=since)["currentModeId"] == "read-only"


def values(option: Frame) -> list[str]:
    return [one["value"] for one in option["options"]]


def test_83_options_are_valid_and_can_be_set(agent: Workbench) -> None:
    process = started(agent, model(agent, OK))
    made = process.new_session_result()
    session, options = made["sessionId"], made["configOptions"]
    assert {option["category"] for option in options} >= {"mode", "thought_level"}
    for option in options:
        assert option["currentValue"] in values(option)
        other = values(option)[-1]
        params = {"sessionId": session, "configId": option["id"], "value": other}
        after = process.call("session/set_config_option", params)["result"]["configOptions"]
        assert [one["id"] for one in after] == [one["id"] for one in options]
        assert next(one["currentValue"] for one in after if one["id"] == option["id"]) == other
        for wrong in ({"value": "nothing"}, {"value": True}, {"value": True, "type": "boolean"}, {"value": 5},
                      {"configId": "nothing"}):
            assert code(process.call("session/set_config_option", params | wrong)) == INVALID_PARAMS, wrong
        same = process.call("session/set_config_option", params)["result"]["configOptions"]
        assert same == after


@pytest.mark.parametrize("gate", [{}, {"session": {"configOptions": {"boolean": {}}}}], ids=["no gate", "gate"])
def test_84_modes_and_their_option_keep_step(agent: Workbench, gate: Frame) -> None:
    process = started(agent, capabilities=gate)
    made = process.new_session_result()
    session = made["sessionId"]
    if not gate:
        assert all(option["type"] == "select" for option in made["configOptions"])
    (mode,) = [option for option in made["configOptions"] if option["category"] == "mode"]
    assert mode["currentValue"] == made["modes"]["currentModeId"]
    assert values(mode) == [one["id"] for one in made["modes"]["availableModes"]]
    since = process.position
    process.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})
    told_options = process.wait_for_update("config_option_update", since=since)["configOptions"]
    assert next(one["currentValue"] for one in told_options if one["id"] == mode["id"]) == "read-only"


def test_85_plans_are_whole_and_commands_described(agent: Workbench) -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "in_progress"},
             {"content": "three", "status": "pending"}]
    script = tools(("todo_write", {"todos": todos[:1]}), ("todo_write", {"todos": todos}))
    process, session = opened(agent, script, {})
    process.prompt(session, "Plan.")
    plans = [update["entries"] for update in process.updates(session) if update["sessionUpdate"] == "plan"]
    assert [[entry["content"] for entry in plan] for plan in plans] == [["one"], ["one", "two", "three"]]
    assert [entry["status"] for entry in plans[1]] == ["completed", "in_progress", "pending"]
    assert {entry["priority"] for entry in plans[1]} <= {"high", "medium", "low"}
    commands = process.wait_for_update("available_commands_update", session=session)["availableCommands"]
    assert all(command["name"] and command["description"] for command in commands)


def test_86_usage_and_session_info_hold_what_they_may(agent: Workbench) -> None:
    script = 'model small window 1000\ncall\n  say "ok"\n  usage 120 8 cached 64\n'
    process, session = opened(agent, script, {})
    process.prompt(session, "A title for this")
    usage = process.wait_for_update("usage_update", session=session)
    assert (usage["used"], usage["size"]) == (192, 1000)
    assert set(usage.get("cost") or {"amount": 0, "currency": ""}) == {"amount", "currency"}
    info = process.wait_for_update("session_info_update", session=session)
    assert set(info) <= {"sessionUpdate", "title", "updatedAt", "_meta"}
    assert info["title"] == "A title for this"


@pytest.mark.parametrize("gate", [{}, {"session": {"notices": {}, "compaction": {}}}], ids=["gates off", "gates on"])
def test_87_notices_reach_who_wants_them(agent: Workbench, gate: Frame) -> None:
    process = started(agent, model(agent, OK), capabilities=gate)
    missing = {"name": "missing", "command": "/no/such/server", "args": [], "env": []}
    session = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [missing]})["result"]["sessionId"]
    process.prompt(session, "Go.")  # begins when the servers are settled
    notices = [update for update in process.updates(session) if update["sessionUpdate"] == "notice"]
    assert len(notices) == len(gate)
    assert all(notice["title"] and notice["severity"] in ("info", "warning", "error") for notice in notices)
    assert not {"compaction_update", "compaction_summary_chunk"} & set(kinds(process.updates()))


# ---------------------------------------------------------------- unstable


def test_88_a_fork_is_a_session_of_its_own(agent: Workbench, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "file").write_text("x\n")
    script = 'call\n  say "One."\nlane root 2\n' + tools(("read", {"file_path": str(extra / "file")}))
    process = started(agent, model(agent, script), ASK, unstable=True)
    place = {"cwd": str(agent.workspace), "mcpServers": [], "additionalDirectories": [str(extra)]}
    source = process.call("session/new", place)["result"]["sessionId"]
    process.prompt(source, "Go.")
    before = root_log(agent, source).events
    fork = process.call("session/fork", opening(source, agent.workspace))["result"]["sessionId"]
    assert fork != source
    assert reason(process.prompt(fork, "On.")) == "end_turn"
    assert [update["status"] for update in process.updates(fork) if update.get("status")][-1] == "failed"
    assert root_log(agent, source).events == before


@pytest.mark.parametrize("number", NOT_OFFERED)
def test_89_90_91_92_94_what_is_left_out_is_not_there(agent: Workbench, number: int) -> None:
    check_absent(agent, number)


def test_94_a_system_prompt_is_not_heeded_as_one(agent: Workbench) -> None:
    """It is an unknown member like any other: not advertised, so no client sends it."""
    process = started(agent, SEQUENTIAL)
    answer = process.call("session/new", {"cwd": str(agent.workspace), "mcpServers": [],
                                          "systemPrompt": {"mode": "override", "content": text_prompt("x")}})
    assert "result" in answer or code(answer) == INVALID_PARAMS


@pytest.mark.parametrize("gate", [{}, {"plan": {}}, {"subagents": {}}], ids=["no gates", "plan", "subagents"])
def test_93_subagents_and_plans_by_id_need_a_client_that_knows_them(agent: Workbench, gate: Frame) -> None:
    script = ('call\n  tool f subagent {"description": "Look", "prompt": "Look."}\n'
              '  tool p todo_write {"todos": [{"content": "one", "status": "pending"}]}\n'
              'call\n  say "Done."\nlane root > f\ncall\n  say "Child."\n')
    process, session = opened_unstable(agent, script, gate)
    assert reason(process.prompt(session, "Delegate.")) == "end_turn"
    assert "plan" in kinds(process.updates(session))
    assert not {"plan_update", "plan_removed"} & set(kinds(process.updates()))
    announced = [session]
    for frame in process.received:
        if frame.get("method") == "session/update":
            params = frame["params"]
            assert params["sessionId"] in announced
            if params["update"]["sessionUpdate"] == "subagent_update":
                assert gate == {"subagents": {}}
                announced.append(params["update"]["sessionId"])
    assert len(set(announced)) == (2 if gate == {"subagents": {}} else 1)
    assert {frame["params"]["sessionId"] for frame in process.received
            if frame.get("method") == "session/update"} == set(announced)


def opened_unstable(bench: Workbench, script: str, capabilities: Frame) -> tuple[AgentProcess, str]:
    process = started(bench, model(bench, script), capabilities=capabilities, unstable=True)
    return process, process.new_session()


# ---------------------------------------------------------------- the file itself


def test_every_statement_has_a_test() -> None:
    names = [name for name in globals() if name.startswith("test_")]
    numbers = {int(number) for name in names for number in re.findall(r"_(\d\d)(?=_)", name)}
    assert numbers == {statement.number for statement in STATEMENTS} == set(range(1, 95))

"""What may come in on stdin, good and bad, and what is answered (ACP digest 1.3, statements 1 to 20)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.schema import id_key, is_response
from tests.wire.moves import line, opened, peak_memory, recording, request, stop_reason, text_prompt
from tests.wire.recordings import says
from tests.wire.runs import data, root_log

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
TRICKY = "LF \n CR \r tab \t quote \" back\\slash NUL \x00 NEL \x85 LS \u2028 PS \u2029 é 日本 🎈 end"

JUNK: list[tuple[bytes, int, Any]] = [
    (b"{bad", PARSE_ERROR, None),
    (b"nonsense", PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"session/new"', PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"foo"} trailing', PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"foo"}{"jsonrpc":"2.0"}', PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"foo","params":{"a":NaN}}x', PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', PARSE_ERROR, None),
    (b"\x00\x01\x02", PARSE_ERROR, None),
    (b"[" * 100_000, PARSE_ERROR, None),
    (b"42", INVALID_REQUEST, None),
    (b'"x"', INVALID_REQUEST, None),
    (b"null", INVALID_REQUEST, None),
    (b"true", INVALID_REQUEST, None),
    (b"[]", INVALID_REQUEST, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"foo"},{"jsonrpc":"2.0","id":2,"method":"foo"}]', INVALID_REQUEST, None),
    (b"{}", INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":7}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":7,"params":{}}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"foo"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"foo"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":{},"method":"foo"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"1.0","id":7,"method":"foo"}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":2,"id":"seven","method":"foo"}', INVALID_REQUEST, "seven"),
    (b'{"id":7,"method":"foo"}', INVALID_REQUEST, 7),
]
"""A line, the code of its only answer, and that answer's id."""

SILENT: list[bytes] = [
    b"", b"   ", b"\r", b"\t \r",
    b'{"jsonrpc":"2.0","method":"foo/bar"}',
    b'{"jsonrpc":"2.0","method":"_x/y","params":{"a":1}}',
    b'{"jsonrpc":"2.0","method":"$/foo"}',
    b'{"jsonrpc":"2.0","method":"session/cancel"}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":5}}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":[1]}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nobody"}}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request"}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"nobody"}}',
    b'{"jsonrpc":"2.0","id":991,"result":{}}',
    b'{"jsonrpc":"2.0","id":"who","result":null}',
    b'{"jsonrpc":"2.0","id":992,"error":{"code":-1,"message":"no"}}',
    b'{"jsonrpc":"2.0","id":993,"error":"garbage"}',
    b'{"jsonrpc":"2.0","id":994,"result":1,"error":{"code":-1,"message":"both"}}',
    b'{"id":995,"result":{}}',
    b'{"jsonrpc":"2.0","result":{}}',
]
"""Lines that are answered with nothing: blanks, notifications, responses to nobody."""


METHODS = ("session/new", "session/prompt", "session/set_mode", "authenticate", "initialize")
NO_PARAMS: list[Any] = [[], ["a"], "text", 5, {}, None]
IDS = [0, -1, 2**53 - 1, -(2**63), 2**64, "1", "", "é", "\u2028", 'a"b\\c', "x" * 1000, None]


def errors(agent: AgentProcess) -> list[tuple[int, Any]]:
    """Code and id of the errors the agent sent so far."""
    return [(frame["error"]["code"], frame["id"]) for frame in agent.received if "error" in frame]




@pytest.mark.parametrize("initialized", [False, True], ids=["before initialize", "after initialize"])
def test_each_line_that_is_no_message_gets_one_error_and_the_next_request_works(
    agent: Workbench, initialized: bool,
) -> None:
    running = agent()
    if initialized:
        running.initialize()
    running.send_bytes(b"".join(raw + b"\n" for raw, _, _ in JUNK))
    if not initialized:
        running.initialize()
    assert running.call("foo/bar")["error"]["code"] == METHOD_NOT_FOUND
    assert errors(running)[:-1] == [(code, echoed) for _, code, echoed in JUNK]
    assert all(len(frame["error"]["message"]) < 160 for frame in running.received if "error" in frame)


def test_nothing_is_answered_where_nothing_was_asked(agent: Workbench) -> None:
    running = agent()
    running.send_bytes(b"".join(raw + b"\n" for raw in SILENT))
    running.initialize()
    running.send_bytes(b"".join(raw + b"\n" for raw in SILENT))
    running.call("foo/bar")
    assert len(running.received) == 2


def test_an_id_comes_back_with_the_same_value_and_the_same_type(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    for request_id in IDS:
        running.send(request(request_id, "foo/bar"))
        assert running.response(request_id)["error"]["code"] == METHOD_NOT_FOUND
    answered = [frame["id"] for frame in running.received if "error" in frame]
    assert [id_key(one) for one in answered] == [id_key(one) for one in IDS]


def test_an_unknown_or_unadvertised_method_is_not_found(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    for method in ("foo/bar", "_x/y", "", "initialize ", "session/set_title", "session/archive",
                   "logout", "session/update", "session/request_permission"):
        assert running.call(method, {})["error"]["code"] == METHOD_NOT_FOUND, method


def test_params_that_are_no_object_or_lack_a_member_are_invalid_params(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    for number, (method, params) in enumerate(itertools.product(METHODS, NO_PARAMS)):
        running.send({"id": f"bad {number}", "method": method, "params": params})
        assert running.response(f"bad {number}")["error"]["code"] == INVALID_PARAMS, (method, params)
    for method in METHODS:
        running.send({"id": method, "method": method})
        assert running.response(method)["error"]["code"] == INVALID_PARAMS, method
    running.new_session()


def test_unknown_members_and_any_meta_are_accepted_at_every_level(agent: Workbench) -> None:
    running = agent(replay=recording(agent, says("fine")))
    extra = {"_meta": {"trace": [1]}, "unheardOf": {"deep": [None]}}
    capabilities = {"fs": {"readTextFile": True, **extra}, **extra}
    info = {"name": "x", "version": "1", **extra}
    running.send(request("i", "initialize", protocolVersion=1, clientInfo=info, clientCapabilities=capabilities,
                         **extra) | {"more": 1})
    assert running.response("i")["result"]["protocolVersion"] == 1
    running.send(request("n", "session/new", cwd=str(agent.workspace), mcpServers=[], **extra) | {"more": []})
    session = running.response("n")["result"]["sessionId"]
    prompt = [{"type": "text", "text": "go", **extra}]
    running.send(request("p", "session/prompt", sessionId=session, prompt=prompt, _meta="no object"))
    assert stop_reason(running.response("p")) == "end_turn"


# ---------------------------------------------------------------- lines


def test_a_byte_order_mark_blank_lines_crlf_and_a_missing_last_newline_change_nothing(agent: Workbench) -> None:
    running = agent()
    running.send_bytes(b"\xef\xbb\xbf" + line(request(1, "initialize", protocolVersion=1), end=b"\r\n"))
    running.send_bytes(b"\r\n\n \t \n" + line(request(2, "foo/bar"), end=b" \r\n\n"))
    running.send_bytes(line(request(3, "foo/bar"), end=b""))
    assert running.close() == 0
    assert [frame["id"] for frame in running.received] == [1, 2, 3]


def test_half_a_message_at_the_end_of_input_is_a_parse_error(agent: Workbench) -> None:
    running = agent()
    running.send_bytes(line(request(1, "initialize", protocolVersion=1)) + b'{"jsonrpc":"2.0","id":2,"met')
    assert running.close() == 0
    assert errors(running) == [(PARSE_ERROR, None)]


def test_text_full_of_separators_passes_both_ways_unchanged(agent: Workbench) -> None:
    running, session = opened(agent, says(TRICKY, TRICKY[::-1]), says("fine"))
    # Unescaped: the separators themselves are on the line.
    running.send_bytes(line(request("raw", "session/prompt", sessionId=session, prompt=text_prompt(TRICKY))))
    assert stop_reason(running.response("raw")) == "end_turn"
    assert running.text(session) == TRICKY + TRICKY[::-1]
    half = line(request("half", "session/prompt", sessionId=session, prompt=text_prompt("half an emoji: HALF")))
    running.send_bytes(half.replace(b"HALF", rb"\ud83d"))
    assert stop_reason(running.response("half")) == "end_turn"
    log = root_log(agent, session)
    assert [one["content"] for one in data(log, "user/message")] == [
        text_prompt(TRICKY), text_prompt("half an emoji: \ufffd")]


def test_input_that_comes_byte_by_byte_means_the_same(agent: Workbench) -> None:
    running = agent(replay=recording(agent, says("é🎈")), environ={"ACP_IDS": "sequential"})
    for frame in (request(1, "initialize", protocolVersion=1),
                  request(2, "session/new", cwd=str(agent.workspace), mcpServers=[]),
                  request(3, "session/prompt", sessionId="session-1", prompt=text_prompt("日本🎈"))):
        for byte in line(frame):
            running.send_bytes(bytes([byte]))
    assert stop_reason(running.response(3)) == "end_turn"
    assert running.text("session-1") == "é🎈"


def test_a_prompt_of_8_mib_is_taken_whole(agent: Workbench) -> None:
    running, session = opened(agent, says("fine"))
    long = "0123456é" * (8 << 17)  # nine bytes each
    assert stop_reason(running.prompt(session, long)) == "end_turn"
    assert data(root_log(agent, session), "user/message")[0]["content"] == text_prompt(long)


def test_a_line_of_64_mib_is_read_and_a_longer_one_is_refused_without_being_kept(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    before = peak_memory(running.pid)
    running.send_bytes(b"y" * (160 << 20) + b"\n")
    refused = running.wait_for(lambda frame: frame.get("id", 0) is None, "an error")["error"]
    assert refused["code"] == PARSE_ERROR
    assert str(160 << 20) in refused["message"]
    assert peak_memory(running.pid) - before < 100 << 20
    running.send_bytes(line(request("big", "foo/bar", text="x" * (64 << 20))))
    assert running.response("big")["error"]["code"] == METHOD_NOT_FOUND


def test_fifty_requests_in_one_write_are_each_answered_once(agent: Workbench) -> None:
    running = agent()
    running.initialize()
    asked = [request(f"r{number}", "session/new", cwd=str(agent.workspace), mcpServers=[]) if number % 2
             else request(f"r{number}", "foo/bar") for number in range(50)]
    running.send_bytes(b"".join(map(line, asked)))
    for frame in asked:
        assert ("result" in running.response(frame["id"])) == (frame["method"] == "session/new")
    answered = [frame["id"] for frame in running.received if is_response(frame)]
    assert sorted(answered[1:]) == sorted(frame["id"] for frame in asked)


def test_a_whole_conversation_in_one_write_works(agent: Workbench) -> None:
    running = agent(replay=recording(agent, says("one"), says("two")), environ={"ACP_IDS": "sequential"})
    running.send_bytes(b"".join(map(line, [
        request(1, "initialize", protocolVersion=1),
        request(2, "session/new", cwd=str(agent.workspace), mcpServers=[]),
        request(3, "session/prompt", sessionId="session-1", prompt=text_prompt("go")),
        request(4, "session/prompt", sessionId="session-1", prompt=text_prompt("on")),
    ])))
    assert stop_reason(running.response(4)) == "end_turn"
    assert [frame["id"] for frame in running.received if is_response(frame)] == [1, 2, 3, 4]
    assert running.text("session-1") == "onetwo"


# ---------------------------------------------------------------- initialize


def test_whatever_version_is_asked_for_the_answer_is_version_1(agent: Workbench) -> None:
    running = agent()
    for version in (1, 2, 65535, 0):
        result = running.initialize(version=version)
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"]
        assert result["agentInfo"]["version"]
        assert result["agentCapabilities"]["loadSession"] is True


def test_a_version_that_is_none_is_refused_and_a_correct_one_still_works(agent: Workbench) -> None:
    running = agent()
    for number, version in enumerate(["1", 1.5, -1, 65536, None, True, [1]]):
        running.send(request(f"bad {number}", "initialize", protocolVersion=version))
        assert running.response(f"bad {number}")["error"]["code"] == INVALID_PARAMS, version
    assert running.call("session/new", {"cwd": str(agent.workspace), "mcpServers": []})["error"]["code"] == -32600
    running.initialize()
    running.new_session()


def test_requests_before_initialize_are_refused_and_do_nothing(agent: Workbench) -> None:
    running = agent(replay=recording(agent, says("fine")), environ={"ACP_IDS": "sequential"})
    new = {"cwd": str(agent.workspace), "mcpServers": []}
    for method, params in (("session/new", new), ("foo/bar", {}), ("authenticate", {"methodId": "x"})):
        assert running.call(method, params)["error"]["code"] == INVALID_REQUEST, method
    running.initialize()
    session = running.new_session()
    assert session == "session-1"
    assert stop_reason(running.prompt(session, "go")) == "end_turn"


def test_a_second_initialize_is_answered_and_sessions_stay(agent: Workbench) -> None:
    running, session = opened(agent, says("one"), says("two"))
    running.prompt(session, "go")
    capabilities = {"fs": "yes", "terminal": 5, "elicitation": None, "session": []}
    again = running.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
    assert again["result"]["protocolVersion"] == 1
    assert stop_reason(running.prompt(session, "on")) == "end_turn"
    assert running.text(session) == "onetwo"

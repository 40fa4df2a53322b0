"""The parts of MCP that need no server: names, schemas, secrets, how calls are shown and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_types import Implementation, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError

from acp_agent.mcp.config import HttpServer, StdioServer
from acp_agent.mcp.mending import Mending
from acp_agent.mcp.names import MAX_NAME, mcp_parts, server_names, tool_name
from acp_agent.mcp.sdk import in_words
from acp_agent.mcp.secrets import Secrets
from acp_agent.mcp.shown import AbsentTool
from acp_agent.mcp.tools import object_schema
from acp_agent.tools.base import ToolFailure
from acp_agent.tools.permission import Allow, Ask, Deny, Mode, judge

# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("names", "made"), [
    (["git", "web"], ("git", "web")),
    (["a b", "a/b", "a-b"], ("a_b", "a_b-2", "a-b")),
    (["a__b", "a_b", "_a_", "__"], ("a_b", "a_b-2", "a", "server")),
    (["日本", "日本語"], ("server", "server-2")),
    (["x" * 30, "x" * 31], ("x" * 24, "x" * 22 + "-2")),
])
def test_servers_are_named_apart_and_without_the_mark_between_server_and_tool(
    names: list[str], made: tuple[str, ...],
) -> None:
    assert server_names(names) == made
    assert all("__" not in name and name[-1] != "_" for name in made)


def test_no_tool_of_one_server_is_ever_named_like_one_of_another() -> None:
    one, other = server_names(["a", "a__b"])
    assert tool_name(one, "b__c") == "mcp__a__b__c"
    assert mcp_parts(tool_name(one, "b__c"))[0] != mcp_parts(tool_name(other, "c"))[0]


def test_a_tools_name_is_short_safe_and_not_taken() -> None:
    taken: list[str] = []
    for tool in ("Read File", "Read/File", "x" * 100, "x" * 101, "", "é"):
        name = tool_name("server", tool, taken)
        assert len(name) <= MAX_NAME
        assert name not in taken
        assert name.isascii()
        taken.append(name)
    assert taken[:2] == ["mcp__server__Read_File", "mcp__server__Read_File_2"]


# ---------------------------------------------------------------- schemas

A = {"a": {"type": "string"}}


@pytest.mark.parametrize(("schema", "made"), [
    ({}, {"type": "object", "properties": {}}),
    ({"type": "string"}, {"type": "object", "properties": {}}),
    ({"type": "object", "properties": None, "required": ["a"]}, {"type": "object", "properties": {}}),
    ({"type": "object", "properties": A, "required": ["a", "b", 3]},
     {"type": "object", "properties": A, "required": ["a"]}),
    ({"properties": A, "required": "a"}, {"type": "object", "properties": A}),
    ({"type": "object", "properties": A, "additionalProperties": False, "anyOf": [{"required": ["a"]}]},
     {"type": "object", "properties": A, "additionalProperties": False, "anyOf": [{"required": ["a"]}]}),
    ({"$ref": "#/$defs/x~1y", "$defs": {"x/y": {"properties": A, "required": ["a"]}}},
     {"type": "object", "properties": A, "required": ["a"], "$defs": {"x/y": {"properties": A, "required": ["a"]}}}),
    ({"$ref": "#/nowhere"}, {"type": "object", "properties": {}, "$ref": "#/nowhere"}),
    ({"$ref": "https://example.org/x.json"}, {"type": "object", "properties": {}, "$ref": "https://example.org/x.json"}),
    ({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}},
     {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
])
def test_any_schema_becomes_one_of_an_object(schema: dict[str, Any], made: dict[str, Any]) -> None:
    assert object_schema(schema) == made


# ---------------------------------------------------------------- secrets


def test_what_a_server_is_given_is_hidden_wherever_it_turns_up() -> None:
    program = Secrets(StdioServer("a", "x", (), (("KEY", "abcdef"), ("ON", "1"), ("AUTH", "Bearer tok-12345"))))
    assert program.hide("abcdef is 1 of Bearer things, tok-12345 too") == "[hidden] is 1 of Bearer things, [hidden] too"
    url = "https://user:pass-word@example.org/mcp?key=k%2Fvalue&x#frag"
    web = Secrets(HttpServer("a", url, (("X-Key", "hush-hush"),)))
    told = web.hide(f"cannot reach {url}: k/value, pass-word, hush-hush")
    assert told == "cannot reach https://[hidden]@example.org/mcp?[hidden]#[hidden]: [hidden], [hidden], [hidden]"


@pytest.mark.parametrize("size", range(4, 25))
def test_the_beginning_of_a_value_at_which_a_text_was_cut_is_hidden(size: int) -> None:
    secret = "hush-" + "0123456789" * 2
    web = Secrets(HttpServer("a", "http://x/", (("X-Key", secret),)))
    assert web.hide(f"went to {secret[:size]}…, then on") == "went to [hidden]…, then on"
    assert web.hide("went to hus… and to a hush") == "went to hus… and to a hush"



# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(("mode", "verdict"), [
    (Mode.READ_ONLY, Deny), (Mode.ASK, Ask), (Mode.ACCEPT_EDITS, Ask), (Mode.FULL_ACCESS, Allow)])
def test_a_servers_tool_is_judged_like_a_command(mode: Mode, verdict: type) -> None:
    assert type(judge(mode, AbsentTool("mcp__git__log"), {}, {})) is verdict


def test_a_grant_covers_one_tool_with_any_arguments() -> None:
    asked = judge(Mode.ASK, AbsentTool("mcp__git__log"), {"n": 1}, {})
    assert isinstance(asked, Ask)
    assert asked.covers == "the tool log of the MCP server git in this session"
    grants = {asked.key: True}
    assert judge(Mode.ASK, AbsentTool("mcp__git__log"), {"n": 2}, grants) == Allow()
    assert isinstance(judge(Mode.ASK, AbsentTool("mcp__git__push"), {}, grants), Ask)
    assert isinstance(judge(Mode.ASK, AbsentTool("mcp__web__log"), {}, grants), Ask)
    assert isinstance(judge(Mode.ASK, AbsentTool("mcp__git__log"), {}, {asked.key: False}), Deny)


@pytest.mark.parametrize("arguments", ["[]", "5", "{", '"x"'])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    with pytest.raises(ToolFailure, match="mcp__git__log"):
        AbsentTool("mcp__git__log").decode(arguments)


def test_a_call_is_shown_by_its_name_alone() -> None:
    assert AbsentTool("mcp__git__log").announce({}, Path("/")).title == "git: log"
    assert AbsentTool("mcp__odd").announce({}, Path("/")).title == "odd"
    assert AbsentTool("mcp__git__log").decode("") == {}


@pytest.mark.parametrize("initialized", [True, False])
def test_a_tool_that_the_sdk_would_drop_without_a_word_is_named_in_versions_that_have_it_dropped(
    initialized: bool,
) -> None:
    mending = Mending()
    if initialized:
        mending.arriving(JSONRPCResponse(jsonrpc="2.0", id=0, result={"protocolVersion": "2025-11-25"}))
    mending.leaving(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))
    good, bad = ({"name": name, "inputSchema": {"type": "object", "properties": {
        "a": {"type": "string", "x-mcp-header": header}}}} for name, header in (("good", "A"), ("bad", "not a header")))
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": [good, bad], **more})
    mending.arriving(answer)
    if initialized:
        assert (answer.result["tools"], mending.unusable) == ([good, bad], [])
    else:
        assert answer.result == {"tools": [good], **more}
        ((name, why),) = mending.unusable
        assert name == "bad"
        assert "x-mcp-header" in why


def test_answers_to_anything_else_are_left_as_they_are() -> None:
    mending = Mending()
    odd = {"tools": [5], "content": [5]}
    mending.leaving(JSONRPCRequest(jsonrpc="2.0", id=1, method="prompts/list"))
    for number in (1, 2):
        answer = JSONRPCResponse(jsonrpc="2.0", id=number, result=odd)
        mending.arriving(answer)
        assert answer.result == odd
    assert mending.unusable == []


@pytest.mark.parametrize("given", ["{bad", "{}", "5"])
def test_a_validations_own_text_inside_of_an_error_is_cut_to_what_it_says(given: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Implementation.model_validate_json(given)
    told = in_words(Exception(f"Failed to parse: {caught.value}"))
    assert told.startswith("Failed to parse: ")
    assert "pydantic" not in told
    assert "validation error" not in told
    assert "␊" not in told
    assert len(told) <= 200

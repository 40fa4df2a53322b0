"""What a client sends: prompts taken or refused by block, capabilities read leniently, the version answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acp_agent.acp.capabilities import ClientCapabilities, read_capabilities
from acp_agent.acp.content import prompt_parts
from acp_agent.acp.handshake import Handshake
from acp_agent.errors import InvalidParams
from acp_agent.rpc.dispatch import RequestContext
from acp_agent.rpc.envelope import Request
from acp_agent.session.prompts import TextPart
from tests.support.schema import Pending, validate_frame


def blocks(*values: Any) -> list[Raw]:
    return [Raw(msgspec.json.encode(value)) for value in values]


def prompt_text(values: list[Raw]) -> str:
    """The text of a prompt that is nothing else."""
    (part,) = prompt_parts(values)
    assert isinstance(part, TextPart)
    return part.text


TEXT = {"type": "text", "text": "a"}
LINK = {"type": "resource_link", "uri": "file:///x.py", "name": "x.py"}


def test_text_and_links_are_joined_in_order() -> None:
    assert prompt_text(blocks(TEXT, LINK, TEXT)) == "a[x.py](file:///x.py)a"


def test_what_a_block_has_besides_is_ignored() -> None:
    rich: dict[str, Any] = {**LINK, "icons": [], "title": None, "annotations": {"a": 1}, "_meta": {}}
    assert prompt_text(blocks({**TEXT, "annotations": None, "_meta": {"x": 1}}, rich)) == "a[x.py](file:///x.py)"


def test_a_prompt_needs_a_block() -> None:
    with pytest.raises(InvalidParams, match="prompt: expected at least one content block"):
        prompt_text([])


def test_audio_is_refused_naming_the_capability() -> None:
    with pytest.raises(InvalidParams, match=r"prompt\[1\]: audio .*audio, which is not offered"):
        prompt_parts(blocks(TEXT, {"type": "audio", "data": "x", "mimeType": "audio/wav"}))


@pytest.mark.parametrize("block", [
    {"type": "video"}, {}, {"type": None}, {"type": 1}, [], 7, None, "text", {"type": "text"},
    {"type": "text", "text": None}, {"type": "text", "text": 7}, {"type": "resource_link", "uri": "x"},
    {"type": "resource_link", "name": "x", "uri": 1}, {"type": "TEXT", "text": "a"},
])
def test_a_block_that_is_none_is_refused_by_its_position(block: Any) -> None:
    with pytest.raises(InvalidParams, match=r"prompt\[1\]: ") as caught:
        prompt_text(blocks(TEXT, block))
    assert caught.value.code == -32602


FULL = {
    "fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "auth": {"terminal": True},
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}}, "subagents": {},
}
LEAVES = {
    "read_text_file": ("fs", "readTextFile"), "write_text_file": ("fs", "writeTextFile"),
    "terminal": ("terminal",), "terminal_auth": ("auth", "terminal"),
    "boolean_options": ("session", "configOptions", "boolean"), "notices": ("session", "notices"),
    "compaction": ("session", "compaction"), "elicitation_form": ("elicitation", "form"),
    "elicitation_url": ("elicitation", "url"), "subagents": ("subagents",),
}


def read(value: Any) -> ClientCapabilities:
    return read_capabilities(Raw(msgspec.json.encode(value)))


def test_all_capabilities_are_understood() -> None:
    assert read(FULL) == ClientCapabilities(*[True] * len(LEAVES))
    assert set(LEAVES) == set(ClientCapabilities.__struct_fields__)


def test_nothing_declared_means_nothing_can_be_asked() -> None:
    assert read_capabilities(UNSET) == ClientCapabilities()


@pytest.mark.parametrize("value", [None, [], 7, "x", True, {}, {"fs": None}, {"fs": []}, {"session": "x"}])
def test_what_is_malformed_counts_as_absent(value: Any) -> None:
    assert read(value) == ClientCapabilities()


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.parametrize("value", [None, False, 0, 1, "true", [], "{}"])
def test_a_malformed_member_takes_down_itself_alone(name: str, value: Any) -> None:
    tree = msgspec.json.decode(msgspec.json.encode(FULL))
    *path, leaf = LEAVES[name]
    node = tree
    for key in path:
        node = node[key]
    node[leaf] = value
    found = read(tree)
    assert [field for field in LEAVES if not getattr(found, field)] == [name]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["fs", "readTextFile", "session", "elicitation", "form", "x"]), inner))


@given(JSON)
def test_no_json_makes_reading_capabilities_fail(value: Any) -> None:
    assert isinstance(read(value), ClientCapabilities)


# ---------------------------------------------------------------- initialize


async def initialize(params: Any) -> tuple[Handshake, Any]:
    handshake = Handshake()
    raw = Raw(msgspec.json.encode(params))
    context = RequestContext(Request(b"1", b"1", "initialize", raw))
    return handshake, msgspec.to_builtins(await handshake.initialize(raw, context))


@pytest.mark.anyio
@pytest.mark.parametrize("version", [0, 1, 2, 65535])
async def test_version_one_is_the_answer_to_every_version(version: int) -> None:
    handshake, answer = await initialize({"protocolVersion": version, "clientCapabilities": FULL})
    assert answer["protocolVersion"] == 1
    assert answer["agentInfo"]["name"] == "acp-replay"
    assert answer["authMethods"] == []
    assert handshake.capabilities.terminal
    pending = Pending()
    pending.asked("client", {"id": 1, "method": "initialize"})
    assert validate_frame({"jsonrpc": "2.0", "id": 1, "result": answer}, "agent", pending) == []


@pytest.mark.anyio
@pytest.mark.parametrize("params", [{}, {"protocolVersion": "1"}, {"protocolVersion": -1},
                                    {"protocolVersion": 65536}, {"protocolVersion": None}])
async def test_a_version_that_is_none_is_refused(params: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        await initialize(params)


@pytest.mark.anyio
async def test_odd_capabilities_do_not_spoil_the_handshake() -> None:
    handshake, _ = await initialize({"protocolVersion": 1, "clientCapabilities": 7, "clientInfo": []})
    assert handshake.capabilities == ClientCapabilities()

"""Children in this process: how they begin, what they inherit, and what their end means for the parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.providers.base import Hop
from acp_agent.session.events import (
    Completed,
    Failed,
    RequestHeader,
    RequestSent,
    SessionConfig,
    SessionHeader,
    SpawnKey,
    SubagentDescriptor,
    ToolResult,
    UserMessage,
)
from acp_agent.tools.permission import Mode
from acp_agent.tools.subagent import Subagent, SubagentFork
from tests.support.fakes import (
    FakeTool,
    Script,
    ScriptedProvider,
    asks,
    call,
    fails,
    finish,
    says,
    text_chunks,
    thought_chunks,
)
from tests.support.world import World, bodies, own_shape, shape

pytestmark = pytest.mark.anyio


def spawn(call_id: str, prompt: str = "do it", description: str = "a job") -> Script:
    return asks(call(call_id, "subagent", description=description, prompt=prompt))


def fork(call_id: str, prompt: str = "do it", description: str = "a job") -> Script:
    return asks(call(call_id, "subagent_fork", description=description, prompt=prompt))


def family(tmp_path: Path, provider: ScriptedProvider, *tools: Any, **more: Any) -> World:
    return World(tmp_path, provider, Subagent(), SubagentFork(), *tools, **more)


def told(world: World) -> list[tuple[str, bool]]:
    """Text and failure of each result in the first root session."""
    blocks = [result.message.content[0] for result in bodies(world.view.events, ToolResult)]
    return [(block.content[0].text, block.is_error) for block in blocks]


async def test_a_spawned_child_begins_with_nothing(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("before"), spawn("call-1"), says("done"), children={"call-1": [says("42")]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        assert await world.prompt(session) == Completed()
        (child,) = world.children()
        header = child.header
        assert header == SessionHeader(
            id=header.id, created_at=header.created_at, cwd=str(world.cwd), parent_session=session.place.session,
            origin="subagent", delegation_depth=1, spawn=SpawnKey(CallId("call-1"), 0))
        assert header.created_at > session.log.header.created_at
        assert shape(child.events) == [
            "session/config", "turn/start", "subagent/descriptor", "step/start", "user/message", "session/title",
            "request/header", "request/context", "request/sent", "chunks", "assistant/message", "step/end",
            "turn/end"]
        assert bodies(child.events, SubagentDescriptor) == [SubagentDescriptor(2, "one-shot", "spawn", "a job")]
        assert [header.reason for header in bodies(child.events, RequestHeader)] == ["initial"]
        assert told(world) == [("42", False)]


async def test_a_forked_child_begins_with_the_parents_ended_turns(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("before"), fork("call-1"), says("done"), children={"call-1": [says("42")]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session, "remember 7")
        cut = len(world.view.events)
        before = world.path(session.place.session).read_bytes()
        await world.prompt(session, "delegate")
        (child,) = world.children()
        assert child.header.seed_length == cut
        assert list(child.events[:cut]) == world.view.events[:cut]
        assert shape(child.events[cut:]) == [
            "session/end-seed", "session/config", "turn/start", "subagent/descriptor", "step/start",
            "user/message", "request/header", "request/sent", "chunks", "assistant/message", "step/end",
            "turn/end"]
        own = child.events[cut:]
        assert [header.reason for header in bodies(own, RequestHeader)] == ["resume"]
        assert bodies(own, SubagentDescriptor) == [SubagentDescriptor(2, "one-shot", "fork", "a job")]
        assert world.path(session.place.session).read_bytes().startswith(before)


async def test_a_forked_child_knows_the_conversation_but_not_the_turn_that_made_it(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("before"), fork("call-1", "now you"), says("done"),
                                children={"call-1": [says("42")]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session, "remember 7")
        await world.prompt(session, "delegate")
        request = next(one for one in provider.requests if one.caller.path)
        texts = [message.content[0].text for message in request.messages if isinstance(message, UserMessage)]  # type: ignore[union-attr]  # texts
        assert texts == ["remember 7", "now you"]
        assert len(request.messages) == 3
        assert request.turn == 2


async def test_a_childs_requests_count_from_zero_and_carry_its_address(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("before"), fork("call-1"), says("done"),
                                children={"call-1": [asks(call("x", "peek")), says("42")]})
    async with family(tmp_path, provider, FakeTool("peek")) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        callers = [request.caller for request in provider.requests if request.caller.path]
        assert [(one.path, one.ordinal, one.root) for one in callers] == [
            ((Hop(CallId("call-1"), 0),), 0, session.place.session),
            ((Hop(CallId("call-1"), 0),), 1, session.place.session)]
        (child,) = world.children()
        own = bodies(child.events, RequestSent)[1:]
        assert [(sent.ordinal, sent.root) for sent in own] == [(0, UNSET), (1, UNSET)]
        assert [sent.ordinal for sent in bodies(world.view.events, RequestSent)] == [0, 1, 2]


async def test_a_fork_in_the_first_turn_has_nothing_to_inherit(tmp_path: Path) -> None:
    provider = ScriptedProvider(fork("call-1"), says("done"), children={"call-1": [says("42")]})
    async with family(tmp_path, provider) as world:
        await world.prompt(world.session())
        (child,) = world.children()
        assert child.header.seed_length is UNSET
        assert shape(child.events)[:2] == ["session/config", "turn/start"]
        assert bodies(child.events, SubagentDescriptor) == [SubagentDescriptor(2, "one-shot", "fork", "a job")]


async def test_a_child_works_in_the_parents_mode(tmp_path: Path) -> None:
    provider = ScriptedProvider(spawn("call-1"), says("done"), children={"call-1": [says("42")]})
    async with family(tmp_path, provider, mode=Mode.ASK) as world:
        session = world.session()
        session.set_mode(Mode.READ_ONLY)
        await world.prompt(session)
        (child,) = world.children()
        assert bodies(child.events, SessionConfig) == [SessionConfig(mode="read-only")]


async def test_a_child_without_a_description_has_no_label(tmp_path: Path) -> None:
    provider = ScriptedProvider(spawn("call-1", description=""), says("done"), children={"call-1": [says("42")]})
    async with family(tmp_path, provider) as world:
        await world.prompt(world.session())
        (child,) = world.children()
        assert bodies(child.events, SubagentDescriptor) == [SubagentDescriptor(2, "one-shot", "spawn")]


async def test_beyond_the_depth_limit_no_child_is_made(tmp_path: Path) -> None:
    provider = ScriptedProvider(spawn("a"), says("done"), children={
        "a": [spawn("b"), says("child")], "a/b": [spawn("c"), says("grandchild")]})
    async with family(tmp_path, provider, max_depth=2) as world:
        await world.prompt(world.session())
        depths = sorted(log.header.delegation_depth for log in world.children())
        assert depths == [1, 2]
        deepest = next(log for log in world.children() if log.header.delegation_depth == 2)
        (result,) = bodies(deepest.events, ToolResult)
        assert result.message.content[0].content[0].text == "Error: subagent depth 3 exceeds maxDepth 2"
        assert told(world) == [("child", False)]


async def test_a_child_of_a_child_names_its_own_parent_and_stands_in_the_roots_directory(tmp_path: Path) -> None:
    provider = ScriptedProvider(spawn("a"), says("done"), children={
        "a": [spawn("b"), says("child")], "a/b": [says("grandchild")]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        child, grandchild = world.children()
        assert child.header.parent_session == session.place.session
        assert grandchild.header.parent_session == child.header.id
        root = world.path(session.place.session)
        assert [path.name for path in sorted(root.parent.glob("*.jsonl"))] == [
            "session.1.jsonl", "session.2.jsonl", "session.jsonl"]
        assert world.path(grandchild.header.id).name == "session.2.jsonl"


PARTIAL = "\nPartial output before the run ended:\nsome"


@pytest.mark.parametrize(("scripts", "text", "is_error"), [
    ([says("42")], "42", False),
    ([[[*thought_chunks("hm"), finish()]]], "", False),
    ([asks(call("x", "peek")), says("after")], "after", False),
    ([[[*text_chunks("some"), finish("max-tokens")]]],
     "Error: subagent run hit its token limit before finishing" + PARTIAL, True),
    ([[[finish("max-tokens")]]], "Error: subagent run hit its token limit before finishing", True),
    ([fails("AUTH", "who are you")], "Error: subagent run failed\nDiagnostic: who are you", True),
    ([fails("REFUSAL")], "Error: subagent declined the task", True),
], ids=["text", "thought", "tools", "limit", "empty limit", "failure", "refusal"])
async def test_what_a_childs_end_tells_the_parent(
    tmp_path: Path, scripts: list[Script], text: str, is_error: bool,
) -> None:
    provider = ScriptedProvider(spawn("a"), says("done"), children={"a": scripts})
    async with family(tmp_path, provider, FakeTool("peek")) as world:
        assert await world.prompt(world.session()) == Completed()
        assert told(world) == [(text, is_error)]


async def test_what_a_fork_inherited_is_not_its_output(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("inherited"), fork("a"), says("done"), children={"a": [fails("AUTH", "no")]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert told(world) == [("Error: subagent run failed\nDiagnostic: no", True)]


async def test_a_failed_child_does_not_fail_its_parent_and_ends_its_own_log(tmp_path: Path) -> None:
    provider = ScriptedProvider(spawn("a"), says("done"), children={"a": [fails("AUTH", "no")]})
    async with family(tmp_path, provider) as world:
        assert await world.prompt(world.session()) == Completed()
        (child,) = world.children()
        assert isinstance(child.events[-1].body.reason, Failed)  # type: ignore[union-attr]  # a turn/end
        assert own_shape(child.events, 1)[-2:] == ["step/end", "turn/end"]


@pytest.mark.parametrize(("arguments", "text"), [
    ({"description": "d", "prompt": " "}, 'Error: invalid arguments for tool "subagent": prompt: '),
    ({"description": "d"}, 'Error: invalid arguments for tool "subagent": '),
    ({"description": "d", "prompt": "p", "run_in_background": True}, "Error: background subagents"),
])
async def test_a_call_that_makes_no_child_leaves_no_log(
    tmp_path: Path, arguments: dict[str, Any], text: str,
) -> None:
    provider = ScriptedProvider(asks(call("a", "subagent", **arguments)), says("done"))
    async with family(tmp_path, provider) as world:
        await world.prompt(world.session())
        assert told(world)[0][0].startswith(text)
        assert world.children() == []

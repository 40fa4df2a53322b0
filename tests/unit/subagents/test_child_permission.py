"""A child that needs permission asks through its root session, and says which child asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.session.events import AbortCause, Aborted, ApprovalDecided, ApprovalGrant, Completed, ToolResult
from acp_agent.tools.base import Access, Diff
from acp_agent.tools.permission import Mode
from acp_agent.tools.subagent import Subagent, SubagentFork
from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeTool, Hang, Script, ScriptedProvider, asks, call, says
from tests.support.world import World, bodies

pytestmark = pytest.mark.anyio

DIFF = {"type": "diff", "path": "/w/x", "oldText": "old", "newText": "new"}


def job(call_id: str, label: str) -> Any:
    return call(call_id, "subagent", description=label, prompt="do it")


def household(tmp_path: Path, client: FakeClient, provider: ScriptedProvider, tool: FakeTool) -> World:
    tools = tool, Subagent(), SubagentFork()
    return World(tmp_path, provider, *tools, views=client.views(*tools), mode=Mode.ASK)


def change() -> FakeTool:
    return FakeTool("change", access=Access.EDIT, diffs=(Diff("/w/x", "new", "old"),))


def of_child(client: FakeClient) -> list[dict[str, Any]]:
    """The updates about calls that are not the root's own."""
    return [one for one in client.updates("tool_call", "tool_call_update") if "/" in one["toolCallId"]]


async def test_the_question_comes_from_the_root_session_and_names_the_child(tmp_path: Path) -> None:
    client, tool = FakeClient("allow-once"), change()
    provider = ScriptedProvider(asks(job("p", "tidy up")), says("done"),
                                children={"p": [asks(call("c", "change", a=1)), says("ok")]})
    async with household(tmp_path, client, provider, tool) as world:
        session = world.session()
        assert await world.prompt(session) == Completed()
        (question,) = client.questions
        assert question["sessionId"] == session.place.session
        assert question["toolCall"] == {
            "toolCallId": "p/c", "title": "tidy up: change something", "kind": "other", "status": "pending",
            "rawInput": {"a": 1}, "content": [DIFF]}
        assert tool.runs == [{"a": 1}]


async def test_the_call_asked_about_is_announced_first_and_ends_once(tmp_path: Path) -> None:
    client = FakeClient("allow-once")
    provider = ScriptedProvider(asks(job("p", "tidy up")), says("done"),
                                children={"p": [asks(call("c", "change")), says("ok")]})
    async with household(tmp_path, client, provider, change()) as world:
        await world.prompt(world.session())
    statuses = [(one["sessionUpdate"], one["toolCallId"], one["status"]) for one in of_child(client)]
    assert statuses == [("tool_call", "p/c", "pending"), ("tool_call_update", "p/c", "in_progress"),
                        ("tool_call_update", "p/c", "completed")]
    assert client.frames.index(next(one for one in client.frames if one["method"] != "session/update")) > next(
        at for at, one in enumerate(client.frames) if one["params"].get("update", {}).get("toolCallId") == "p/c")


async def test_of_a_childs_work_nothing_else_reaches_the_client(tmp_path: Path) -> None:
    client = FakeClient()
    provider = ScriptedProvider(asks(job("p", "tidy up")), says("done"),
                                children={"p": [asks(call("c", "peek")), says("the child's words")]})
    tools = FakeTool("peek"), Subagent()
    async with World(tmp_path, provider, *tools, views=client.views(*tools)) as world:
        await world.prompt(world.session())
    assert of_child(client) == []
    assert [one["content"]["text"] for one in client.updates("agent_message_chunk")] == ["done"]
    (end,) = [one for one in client.updates("tool_call_update") if one["status"] == "completed"]
    assert end["content"][0]["content"]["text"] == "the child's words"


async def test_a_no_reaches_the_child_and_not_its_parent(tmp_path: Path) -> None:
    client, tool = FakeClient("reject-once"), change()
    provider = ScriptedProvider(asks(job("p", "tidy up")), says("done"),
                                children={"p": [asks(call("c", "change")), says("could not")]})
    async with household(tmp_path, client, provider, tool) as world:
        session = world.session()
        await world.prompt(session)
        (child,) = world.children()
        assert [one.outcome for one in bodies(child.events, ApprovalDecided)] == ["rejected"]
        assert bodies(world.stored(session).events, ApprovalDecided) == []
        (result,) = bodies(world.stored(session).events, ToolResult)
        assert result.message.content[0].content[0].text == "could not"
        assert tool.runs == []


async def test_children_that_ask_about_equal_calls_get_wire_ids_of_their_own(tmp_path: Path) -> None:
    scripts: list[Script] = [asks(call("c", "change")), asks(call("c", "change")), says("ok")]
    client = FakeClient(*["allow-once"] * 7)
    provider = ScriptedProvider(
        asks(job("p", "one"), job("q", "two")), asks(job("p", "three")), asks(call("c", "change")), says("done"),
        children={"p": scripts, "q": scripts, "p[1]": scripts})
    async with household(tmp_path, client, provider, change()) as world:
        await world.prompt(world.session())
    asked = [question["toolCall"]["toolCallId"] for question in client.questions]
    assert sorted(asked) == ["c", "p/c", "p/c#2", "p[1]/c", "p[1]/c#2", "q/c", "q/c#2"]
    titles = {question["toolCall"]["title"].split(":")[0] for question in client.questions[:-1]}
    assert titles == {"one", "two", "three"}
    announced = [one["toolCallId"] for one in client.updates("tool_call")]
    assert len(announced) == len(set(announced))


async def test_a_childs_child_asks_with_its_whole_address(tmp_path: Path) -> None:
    client = FakeClient("allow-once")
    provider = ScriptedProvider(asks(job("p", "outer")), says("done"), children={
        "p": [asks(job("q", "inner")), says("ok")], "p/q": [asks(call("c", "change")), says("ok")]})
    async with household(tmp_path, client, provider, change()) as world:
        await world.prompt(world.session())
    (question,) = client.questions
    asked = question["toolCall"]
    assert (asked["toolCallId"], asked["title"]) == ("p/q/c", "inner: change something")


async def test_what_the_user_always_allows_the_parent_its_child_may_do(tmp_path: Path) -> None:
    client, tool = FakeClient("allow-always"), change()
    provider = ScriptedProvider(asks(call("c", "change", n=0)), asks(job("p", "tidy")), says("done"),
                                children={"p": [asks(call("c", "change", n=1)), says("ok")]})
    async with household(tmp_path, client, provider, tool) as world:
        session = world.session()
        await world.prompt(session)
        assert len(client.questions) == 1
        assert tool.runs == [{"n": 0}, {"n": 1}]
        assert len(bodies(world.stored(session).events, ApprovalGrant)) == 1


async def test_what_the_user_always_allows_a_child_holds_in_the_whole_session(tmp_path: Path) -> None:
    client, tool = FakeClient("allow-always"), change()
    provider = ScriptedProvider(
        asks(job("p", "outer")), asks(call("c", "change", n=1)), asks(job("r", "other")), says("done"), children={
            "p": [asks(job("q", "inner")), says("ok")], "p/q": [asks(call("c", "change", n=0)), says("ok")],
            "r": [asks(call("c", "change", n=2)), says("ok")]})
    async with household(tmp_path, client, provider, tool) as world:
        session = world.session()
        await world.prompt(session)
        assert len(client.questions) == 1
        assert tool.runs == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert session.grants() == {"edit": True}
        grant = ApprovalGrant("edit", True, "all file edits in this session")
        assert bodies(world.stored(session).events, ApprovalGrant) == [grant]


async def test_a_cancel_while_a_child_asks_ends_child_and_parent(tmp_path: Path) -> None:
    client, tool = FakeClient(Hang()), change()
    provider = ScriptedProvider(asks(job("p", "tidy")), children={"p": [asks(call("c", "change"))]})
    async with household(tmp_path, client, provider, tool) as world:
        session = world.session()
        prompt = session.admit("go")
        with anyio.fail_after(10):
            await client.asked.wait()
        session.cancel()
        assert await world.outcome(prompt) == Aborted(AbortCause("user"))
        (child,) = world.children()
        assert [one.outcome for one in bodies(child.events, ApprovalDecided)] == ["cancelled"]
    assert [(one["toolCallId"], one["status"]) for one in client.updates("tool_call_update")] == [
        ("p", "in_progress"), ("p", "in_progress"), ("p/c", "failed"), ("p", "in_progress"), ("p", "failed")]
    assert tool.runs == []

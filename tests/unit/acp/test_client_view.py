"""What goes over the wire for a session: valid frames, in order, and permission questions with honest answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.acp.projection import Projection
from acp_agent.acp.view import ClientView
from acp_agent.ids import SessionId
from acp_agent.providers.base import Route
from acp_agent.rpc.peer import PeerError, PeerGone
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    AssistantChunk,
    AssistantMessage,
    Completed,
    Event,
    ModelConfig,
    TextDelta,
    Usage,
)
from acp_agent.tools.base import Access, Diff, Outcome, ToolContext
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry
from tests.support.fake_client import FakeClient
from tests.support.fakes import (
    FakeTool,
    Hang,
    ScriptedProvider,
    asks,
    call,
    finish,
    says,
    text_chunks,
    thought_chunks,
)
from tests.support.world import World, bodies

pytestmark = pytest.mark.anyio


def change(**more: Any) -> FakeTool:
    return FakeTool("change", access=Access.EDIT, diffs=(Diff("/w/x", "new", "old"),), **more)


def wired(tmp_path: Path, client: FakeClient, provider: ScriptedProvider, *tools: FakeTool, **more: Any) -> World:
    return World(tmp_path, provider, *tools, views=client.views(*tools), **more)


async def test_an_answer_streams_piece_by_piece_under_one_id(tmp_path: Path) -> None:
    client = FakeClient()
    chunks = [*thought_chunks("h", "m"), *text_chunks('"Hel\n', "lo\u2028", index=1), finish()]
    async with wired(tmp_path, client, ScriptedProvider([chunks])) as world:
        session = world.session()
        await world.prompt(session)
        (message,) = bodies(world.stored(session).events, AssistantMessage)
        texts, thoughts = client.updates("agent_message_chunk"), client.updates("agent_thought_chunk")
        assert [one["content"]["text"] for one in texts] == ['"Hel\n', "lo\u2028"]
        assert [one["content"]["text"] for one in thoughts] == ["h", "m"]
        assert {one["messageId"] for one in texts} == {message.message.id}
        assert {one["messageId"] for one in thoughts} == {f"{message.message.id}-thought"}
        assert {frame["params"]["sessionId"] for frame in client.frames} == {session.place.session}


async def test_each_answer_has_its_own_message_id(tmp_path: Path) -> None:
    client = FakeClient()
    async with wired(tmp_path, client, ScriptedProvider(says("a"), says("b"))) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        ids = [one["messageId"] for one in client.updates("agent_message_chunk")]
        assert len(set(ids)) == len(ids) == 2


@pytest.mark.parametrize("text", ['é"\ud800\n', "", "é" * 1_200_000], ids=["odd", "empty", "huge"])
def test_a_fast_delta_is_what_the_projection_would_make(text: str) -> None:
    client, slow = FakeClient(), FakeClient()
    name = SessionId('s"1')
    event = Event(0, 0, AssistantChunk(1, 1, TextDelta(0, text)))
    ClientView(client, name, Projection(Registry(()), Path("/w")), client.services(name)).event(event)
    view = ClientView(slow, name, Projection(Registry(()), Path("/w")), slow.services(name))
    for update in Projection(Registry(()), Path("/w")).updates(event):
        view.update(update)
    assert client.frames == slow.frames


async def test_a_call_is_announced_runs_and_ends_in_this_order(tmp_path: Path) -> None:
    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        context.progress("half way")
        return Outcome.text("ok")

    client = FakeClient()
    provider = ScriptedProvider(asks(call("c", "work")), says("done"))
    async with wired(tmp_path, client, provider, FakeTool("work", work)) as world:
        await world.prompt(world.session())
    calls = client.updates("tool_call", "tool_call_update")
    assert [(one["sessionUpdate"], one["status"]) for one in calls] == [
        ("tool_call", "pending"), ("tool_call_update", "in_progress"), ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed")]
    assert calls[2]["content"] == [{"type": "content", "content": {"type": "text", "text": "half way"}}]
    assert {one["toolCallId"] for one in calls} == {"c"}


async def test_a_call_that_may_not_run_is_never_in_progress(tmp_path: Path) -> None:
    client = FakeClient()
    provider = ScriptedProvider(asks(call("c", "change"), call("d", "teleport")), says("done"))
    async with wired(tmp_path, client, provider, change(), mode=Mode.READ_ONLY) as world:
        await world.prompt(world.session())
    statuses = [(one["toolCallId"], one["status"]) for one in client.updates("tool_call", "tool_call_update")]
    assert statuses == [("c", "pending"), ("d", "pending"), ("c", "failed"), ("d", "failed")]


async def test_title_and_mode_reach_the_client_when_they_change(tmp_path: Path) -> None:
    client = FakeClient()
    async with wired(tmp_path, client, ScriptedProvider(says("done")), mode=Mode.ASK) as world:
        session = world.session()
        session.set_mode(Mode.FULL_ACCESS)
        await world.prompt(session, "hello you")
    assert client.updates("current_mode_update") == [
        {"sessionUpdate": "current_mode_update", "currentModeId": "full-access"}]
    assert [one["title"] for one in client.updates("session_info_update")] == ["hello you"]


async def test_usage_is_told_where_the_models_window_is_known(tmp_path: Path) -> None:
    client, provider = FakeClient(), ScriptedProvider(says("a"), says("b"))
    async with wired(tmp_path, client, provider) as world:
        session = world.session()
        await world.prompt(session)
        provider.route = Route(ModelConfig("fake", "model-2"))
        await world.prompt(session)
    assert client.updates("usage_update") == [{"sessionUpdate": "usage_update", "used": 15, "size": 1000}]


async def test_cached_tokens_fill_the_window_too(tmp_path: Path) -> None:
    client = FakeClient()
    async with wired(tmp_path, client, ScriptedProvider(says("a"))) as world:
        session = world.session()
        await world.prompt(session)
        session.view.usage(Usage(1, 2, 4, 8, 16))
    assert client.updates("usage_update")[-1]["used"] == 15


# ---------------------------------------------------------------- permission


async def ask(tmp_path: Path, answer: Any) -> tuple[FakeClient, FakeTool]:
    client, tool = FakeClient(answer), change()
    provider = ScriptedProvider(asks(call("c", "change", a=1)), says("done"))
    async with wired(tmp_path, client, provider, tool, mode=Mode.ASK) as world:
        assert await world.prompt(world.session()) == Completed()
    return client, tool


async def test_the_question_names_the_announced_call_and_shows_what_it_would_do(tmp_path: Path) -> None:
    client, _ = await ask(tmp_path, "allow-once")
    (question,) = client.questions
    assert question["sessionId"] == "session-1"
    assert question["toolCall"] == {
        "toolCallId": "c", "title": "change something", "kind": "other", "status": "pending", "rawInput": {"a": 1},
        "content": [{"type": "diff", "path": "/w/x", "oldText": "old", "newText": "new"}]}
    assert [(option["optionId"], option["kind"]) for option in question["options"]] == [
        ("allow-once", "allow_once"), ("allow-always", "allow_always"), ("reject-once", "reject_once"),
        ("reject-always", "reject_always")]
    names = [option["name"] for option in question["options"]]
    assert names[1] == "Always allow all file edits in this session"
    assert names[3] == "Always reject all file edits in this session"


@pytest.mark.parametrize(("option", "runs"), [
    ("allow-once", 1), ("allow-always", 1), ("reject-once", 0), ("reject-always", 0)])
async def test_the_chosen_option_counts(tmp_path: Path, option: str, runs: int) -> None:
    _, tool = await ask(tmp_path, option)
    assert len(tool.runs) == runs


@pytest.mark.parametrize("answer", [
    "allow", "", "allow_once", {"outcome": {"outcome": "cancelled"}}, {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "shrug", "optionId": "allow-once"}}, PeerError(-32603, "no"), PeerGone(),
], ids=["unknown", "empty", "a kind", "cancelled", "nothing selected", "unknown outcome", "error", "gone"])
async def test_anything_but_a_clear_yes_is_a_no(tmp_path: Path, answer: Any) -> None:
    client, tool = await ask(tmp_path, answer)
    assert tool.runs == []
    assert client.updates("tool_call_update")[-1]["status"] == "failed"


async def test_a_cancel_does_not_wait_for_the_answer(tmp_path: Path) -> None:
    client, tool = FakeClient(Hang()), change()
    async with wired(tmp_path, client, ScriptedProvider(asks(call("c", "change"))), tool, mode=Mode.ASK) as world:
        session = world.session()
        prompt = session.admit("go")
        with anyio.fail_after(10):
            await client.asked.wait()
        session.cancel()
        assert await world.outcome(prompt) == Aborted(AbortCause("user"))
    assert client.updates("tool_call_update")[-1]["status"] == "failed"
    assert tool.runs == []

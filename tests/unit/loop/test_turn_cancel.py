"""Cancel, at every point a turn can be at: what is stored, what stays in history, and what no longer happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.providers.base import RetryPolicy
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    ApprovalDecided,
    AssistantMessage,
    Chunk,
    Completed,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolError,
    ToolResult,
    UserMessage,
)
from acp_agent.session.session import QueuedPrompt, Session
from acp_agent.tools.base import Access, Outcome, ToolContext
from acp_agent.tools.permission import Mode
from tests.support.fakes import (
    FakeTool,
    Gate,
    Hang,
    Reached,
    ScriptedProvider,
    asks,
    call,
    call_chunks,
    fails,
    says,
    text_chunks,
    thought_chunks,
)
from tests.support.world import PLAIN_TURN, World, bodies, finishes, own_shape, shape

pytestmark = pytest.mark.anyio

ABORTED = Aborted(AbortCause("user"))
OPENING = PLAIN_TURN[: PLAIN_TURN.index("chunks")]


async def cancelled(world: World, session: Session, prompt: QueuedPrompt, at: anyio.Event) -> None:
    """Cancel as soon as `at` has come, and expect the turn to end for that reason."""
    with anyio.fail_after(10):
        await at.wait()
    session.cancel()
    assert await world.outcome(prompt) == ABORTED


async def test_a_prompt_cancelled_before_it_runs_leaves_no_trace(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("done"))) as world:
        session = world.session()
        prompt = session.admit("go")
        session.cancel()
        assert await world.outcome(prompt) == ABORTED
        await session.idle()
        assert world.view.events == []
        assert await world.prompt(session) == Completed()


async def test_cancel_stops_the_queue_too_and_in_order(tmp_path: Path) -> None:
    reached = anyio.Event()
    provider = ScriptedProvider([Reached(reached), Hang()], says("later"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        running, queued = session.admit("one"), session.admit("two")
        await cancelled(world, session, running, reached)
        assert await world.outcome(queued) == ABORTED
        assert await world.prompt(session, "three") == Completed()
        prompts = bodies(world.view.events, UserMessage)
        assert [message.content[0] for message in prompts] == [TextBlock("one"), TextBlock("three")]


async def test_a_turn_cancelled_as_it_starts_has_no_step(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    async with World(tmp_path, provider) as world:
        session = world.session()

        def cancel_at_start(event: Any) -> None:
            world.view.events.append(event)
            if event.body.type == "turn/start":
                session.cancel()

        session.log.listen(cancel_at_start)
        assert await world.outcome(session.admit("go")) == ABORTED
        assert shape(world.view.events) == ["turn/start", "turn/end"]
        assert provider.requests == []


async def test_a_cancel_in_an_idle_session_does_nothing(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("one"), says("two"))) as world:
        session = world.session()
        session.cancel()
        await world.prompt(session)
        before = list(world.view.events)
        session.cancel()
        assert world.view.events == before
        assert await world.prompt(session) == Completed()


async def stream_cancelled(tmp_path: Path, before: list[Chunk]) -> tuple[World, ScriptedProvider]:
    """A turn cancelled after its model had sent `before`, and one more turn."""
    reached = anyio.Event()
    provider = ScriptedProvider([before, Reached(reached), Hang()], says("done"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await cancelled(world, session, session.admit("go"), reached)
        assert await world.prompt(session, "on") == Completed()
        assert provider.closed == 2
        assert finishes(world.view.events) == ["aborted", "stop"]
        return world, provider


@pytest.mark.parametrize("chunks", [
    [], text_chunks(" \n"), call_chunks(call("c1", "peek")), call_chunks(call("c1", "peek"))[:2],
], ids=["nothing", "white space", "a call", "half a call"])
async def test_an_answer_cancelled_before_it_said_anything_leaves_no_message(
    tmp_path: Path, chunks: list[Chunk],
) -> None:
    world, provider = await stream_cancelled(tmp_path, chunks)
    assert own_shape(world.view.events, 1) == [*OPENING, "chunks", "step/end", "turn/end"]
    assert [type(message) for message in provider.requests[1].messages] == [UserMessage, UserMessage]


async def test_text_the_user_saw_before_a_cancel_stays_in_history(tmp_path: Path) -> None:
    half = [*thought_chunks("hm"), *text_chunks("so ", "far", index=1)[:-1], *call_chunks(call("c", "peek"), 2)]
    world, provider = await stream_cancelled(tmp_path, half)
    assert own_shape(world.view.events, 1) == [*OPENING, "chunks", "assistant/message", "step/end", "turn/end"]
    message = next(event for event in world.view.events if isinstance(event.body, AssistantMessage))
    assert isinstance(message.body, AssistantMessage)
    assert message.body.message.content == (ReasoningBlock("hm"), TextBlock("so far"))
    assert message.body.interrupted is True
    chunks = [event.seq for event in world.view.events if event.body.type == "assistant/chunk"]
    assert message.source_event_seqs == [seq for seq in chunks if seq < message.seq]
    assert provider.requests[1].messages[1] is message.body


async def tool_turn_cancelled(tmp_path: Path, parallel: bool, calls: int) -> list[Any]:
    """A turn of `calls` calls, cancelled once the second has begun its work; the first ends at once."""
    working = anyio.Event()

    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        if args["n"] >= 1:
            working.set()
            await anyio.sleep_forever()
        return Outcome.text("ok")

    blocks = [call(f"c{n}", "work", n=n) for n in range(calls)]
    provider = ScriptedProvider(asks(*blocks), says("done"))
    async with World(tmp_path, provider, FakeTool("work", work, parallel=parallel)) as world:
        session = world.session()
        await cancelled(world, session, session.admit("go"), working)
        assert await world.prompt(session, "on") == Completed()
        assert len(provider.requests) == 2
        return world.view.events


def fates(events: list[Any]) -> list[Any]:
    return [result.error if result.message.content[0].is_error else "ok" for result in bodies(events, ToolResult)]


ABORT, SKIP = ToolError("AbortError", "ABORTED"), ToolError("AbortError", "ABORTED_BEFORE_DISPATCH")


async def test_exclusive_calls_are_aborted_or_never_started(tmp_path: Path) -> None:
    events = await tool_turn_cancelled(tmp_path, parallel=False, calls=4)
    assert fates(events) == ["ok", ABORT, SKIP, SKIP]
    assert own_shape(events, 1)[-10:] == [*["tool/call", "tool/result"] * 4, "step/end", "turn/end"]
    texts = [result.message.content[0].content[0].text for result in bodies(events, ToolResult)]
    assert texts == ["ok", "Error: tool call aborted", *["Error: tool call aborted before dispatch"] * 2]


async def test_parallel_calls_under_way_are_aborted_and_the_rest_never_starts(tmp_path: Path) -> None:
    events = await tool_turn_cancelled(tmp_path, parallel=True, calls=14)
    assert fates(events) == ["ok", *[ABORT] * 10, *[SKIP] * 3]
    assert [started.call_id for started in bodies(events, ToolCall)] == [f"c{n}" for n in range(14)]


async def test_a_cancelled_tool_may_finish_its_own_cleaning_up(tmp_path: Path) -> None:
    working, cleaned = anyio.Event(), anyio.Event()

    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        try:
            working.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.set()
        raise AssertionError("unreachable")

    async with World(tmp_path, ScriptedProvider(asks(call("c1", "work"))), FakeTool("work", work)) as world:
        session = world.session()
        await cancelled(world, session, session.admit("go"), working)
        assert cleaned.is_set()


async def test_a_cancel_during_a_permission_question_settles_it(tmp_path: Path) -> None:
    tool = FakeTool("change", access=Access.EDIT)
    provider = ScriptedProvider(asks(call("c1", "change"), call("c2", "change")), says("done"))
    async with World(tmp_path, provider, tool, mode=Mode.ASK, replies=[Hang()]) as world:
        session = world.session()
        prompt = session.admit("go")
        await cancelled(world, session, prompt, world.view.asked)
        assert [decided.outcome for decided in bodies(world.view.events, ApprovalDecided)] == ["cancelled"]
        assert fates(world.view.events) == [ABORT, SKIP]
        assert tool.runs == []
        kinds = own_shape(world.view.events, 1)
        assert kinds[kinds.index("tool/call") :] == [
            "tool/call", "approval/asked", "approval/decided", "tool/result", "tool/call", "tool/result",
            "step/end", "turn/end"]


async def test_a_cancel_while_waiting_to_retry_makes_no_further_request(tmp_path: Path) -> None:
    provider = ScriptedProvider(fails("SERVER"), policy=RetryPolicy(initial_delay_ms=60_000, max_delay_ms=60_000))
    async with World(tmp_path, provider) as world:
        session = world.session()
        waiting = anyio.Event()

        def note(event: Any) -> None:
            world.view.events.append(event)
            if event.body.type == "llm/retry":
                waiting.set()

        session.log.listen(note)
        await cancelled(world, session, session.admit("go"), waiting)
        assert shape(world.view.events)[-3:] == ["llm/retry", "step/end", "turn/end"]
        assert bodies(world.view.events, AssistantMessage) == []


async def test_cancelling_one_prompt_leaves_the_others(tmp_path: Path) -> None:
    release = anyio.Event()
    provider = ScriptedProvider([Gate(release), *says("one")], says("three"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        first, second, third = (session.admit(text) for text in ("one", "two", "three"))
        session.cancel_prompt(second)
        release.set()
        assert [await world.outcome(prompt) for prompt in (first, second, third)] == [
            Completed(), ABORTED, Completed()]


async def test_cancelling_the_running_prompt_lets_the_queue_go_on(tmp_path: Path) -> None:
    reached = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Reached(reached), Hang()], says("two"))) as world:
        session = world.session()
        first, second = session.admit("one"), session.admit("two")
        await reached.wait()
        session.cancel_prompt(first)
        session.cancel_prompt(first)
        assert await world.outcome(first) == ABORTED
        assert await world.outcome(second) == Completed()
        session.cancel_prompt(second)


async def test_closing_a_session_ends_its_turn_as_disposed(tmp_path: Path) -> None:
    reached = anyio.Event()
    async with World(tmp_path, ScriptedProvider([text_chunks("half")[:-1], Reached(reached), Hang()])) as world:
        session = world.session()
        prompt = session.admit("go")
        await reached.wait()
        await session.aclose()
        await session.aclose()
        assert await world.outcome(prompt) == Aborted(AbortCause("disposed"))
        assert shape(world.stored(session).events)[-3:] == ["assistant/message", "step/end", "turn/end"]


async def test_the_first_reason_for_a_cancel_counts(tmp_path: Path) -> None:
    reached = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Reached(reached), Hang()])) as world:
        session = world.session()
        prompt = session.admit("go")
        await reached.wait()
        session.cancel()
        await session.aclose()
        assert await world.outcome(prompt) == ABORTED

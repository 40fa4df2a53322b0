"""What a turn writes into the log, event by event (format reference 1.11 and 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.providers.base import Route
from acp_agent.session.events import (
    AssistantMessage,
    BlockStart,
    Chunk,
    Completed,
    FileSeen,
    Finish,
    FinishReason,
    MaxTokens,
    ModelConfig,
    ReasoningBlock,
    ReasoningDelta,
    ReplayBound,
    ReplayState,
    RequestContext,
    RequestHeader,
    RequestSent,
    SessionTitle,
    TextBlock,
    TextDelta,
    Todo,
    ToolCall,
    ToolCallBlock,
    ToolError,
    ToolResult,
    UserMessage,
)
from acp_agent.tools.base import Observation, Outcome, ToolContext, ToolFailure
from tests.support.fakes import (
    FakeTool,
    ScriptedProvider,
    asks,
    call,
    call_chunks,
    finish,
    says,
    text_chunks,
    thought_chunks,
)
from tests.support.world import PLAIN_TURN, World, bodies, own_shape, shape

pytestmark = pytest.mark.anyio

TOOL_STEP = [*PLAIN_TURN[:-2], "tool/call", "tool/result", "step/end"]
LAST_STEP = ["step/start", "request/sent", "chunks", "assistant/message", "step/end", "turn/end"]


async def test_a_turn_of_plain_talk(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("Hel", "lo"))) as world:
        session = world.session()
        assert await world.prompt(session, "Say hello to me and my friends") == Completed()
        events = world.view.events
        assert shape(events) == PLAIN_TURN
        by_type = {event.body.type: event for event in events}
        prompt, answer = by_type["user/message"], by_type["assistant/message"]
        assert prompt.surface_op == answer.surface_op == "append"
        assert prompt.source_event_seqs is UNSET
        assert by_type["session/title"].body.title == "Say hello to me and"  # type: ignore[union-attr]  # a title
        assert by_type["session/title"].body.message_seqs == [prompt.seq]  # type: ignore[union-attr]  # a title
        chunks = [event.seq for event in events if event.body.type == "assistant/chunk"]
        assert answer.source_event_seqs == chunks
        (message,) = bodies(events, AssistantMessage)
        assert message.message.content == (TextBlock("Hello"),)
        assert (message.message.source.provider, message.message.source.model) == ("fake", "model-1")
        assert message.usage.input_tokens == 10


async def test_a_request_is_logged_with_the_id_its_answer_will_have(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one"), says("two"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        sent = bodies(world.view.events, RequestSent)
        answers = [message.message.id for message in bodies(world.view.events, AssistantMessage)]
        assert [one.message_id for one in sent] == answers == [one.message_id for one in provider.requests]
        assert [(one.turn, one.step, one.purpose, one.ordinal) for one in sent] == [
            (1, 1, "main", 0), (2, 1, "main", 1)]
        assert [one.caller.ordinal for one in provider.requests] == [0, 1]
        assert [one.root for one in sent] == [0, UNSET]
        assert [one.parts.messages.count for one in sent] == [1, 3]


async def test_a_second_turn_repeats_neither_title_nor_header_nor_context(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("one"), says("two"))) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert own_shape(world.view.events, 2) == ["turn/start", "step/start", "user/message", "request/sent",
                                                   "chunks", "assistant/message", "step/end", "turn/end"]


async def test_the_request_header_is_logged_once_however_many_requests_follow(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(call("c1", "peek")), asks(call("c2", "peek")), says("done"), says("again"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert [header.reason for header in bodies(world.view.events, RequestHeader)] == ["initial"]
        assert len(bodies(world.view.events, RequestContext)) == 1


async def test_another_model_is_logged_as_a_change(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one"), says("two"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        provider.route = Route(ModelConfig("fake", "model-2"))
        await world.prompt(session)
        assert [header.reason for header in bodies(world.view.events, RequestHeader)] == ["initial", "change"]
        assert [(one.model, one.context_window) for one in bodies(world.view.events, RequestContext)] == [
            ("model-1", 1000), ("model-2", UNSET)]


async def test_roots_are_numbered_in_the_order_of_their_first_model_call(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("one"), says("two"))) as world:
        first, second = world.session(), world.session()
        await world.prompt(second)
        await world.prompt(first)
        assert [bodies(views.root.events, RequestSent)[0].root for views in world.views] == [1, 0]


async def test_what_the_provider_notes_is_logged_before_the_request(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one"))
    provider.notes = (ReplayBound("lane-1", 0),)
    async with World(tmp_path, provider) as world:
        await world.prompt(world.session())
        kinds = shape(world.view.events)
        assert kinds[kinds.index("replay/bound") + 1] == "request/sent"


async def test_a_turn_with_one_tool_call(tmp_path: Path) -> None:
    tool = FakeTool("peek")
    async with World(tmp_path, ScriptedProvider(asks(call("c1", "peek", a=1)), says("done")), tool) as world:
        assert await world.prompt(world.session()) == Completed()
        events = world.view.events
        assert shape(events) == [*TOOL_STEP, *LAST_STEP]
        (started,) = [event for event in events if isinstance(event.body, ToolCall)]
        (ended,) = [event for event in events if isinstance(event.body, ToolResult)]
        assert started.body == ToolCall(1, 1, CallId("c1"), "peek", '{"a":1}')
        assert (ended.source_event_seqs, ended.surface_op) == ([started.seq], "append")
        assert ended.body.message.content[0].content == (TextBlock('peek: {"a":1}'),)  # type: ignore[union-attr]  # a result
        assert world.view.started == [0]


async def test_the_model_is_shown_its_call_and_the_result(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(call("c1", "peek")), says("done"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        await world.prompt(world.session())
        assert [type(message) for message in provider.requests[1].messages] == [
            UserMessage, AssistantMessage, ToolResult]


@pytest.mark.parametrize(("parallel", "kinds"), [
    (False, ["tool/call", "tool/result"] * 2), (True, ["tool/call"] * 2 + ["tool/result"] * 2)])
async def test_exclusive_calls_alternate_with_results_and_parallel_ones_do_not(
    tmp_path: Path, parallel: bool, kinds: list[str],
) -> None:
    provider = ScriptedProvider(asks(call("c1", "peek"), call("c2", "peek")), says("done"))
    async with World(tmp_path, provider, FakeTool("peek", parallel=parallel)) as world:
        await world.prompt(world.session())
        assert [kind for kind in shape(world.view.events) if kind.startswith("tool/")] == kinds


async def result_of(tmp_path: Path, block: ToolCallBlock, *tools: FakeTool, warned: bool = False) -> ToolResult:
    async with World(tmp_path, ScriptedProvider(asks(block), says("done")), *tools) as world:
        world.expect_warnings = warned
        assert await world.prompt(world.session()) == Completed()
        (result,) = bodies(world.view.events, ToolResult)
        found: ToolResult = result
        return found


def told(result: ToolResult) -> tuple[str, bool]:
    block = result.message.content[0]
    return "".join(one.text for one in block.content if isinstance(one, TextBlock)), block.is_error


async def test_an_unknown_tool_is_a_result_the_model_can_act_on(tmp_path: Path) -> None:
    result = await result_of(tmp_path, call("c1", "teleport"))
    assert told(result) == ('Error: unknown tool "teleport"', True)
    assert result.error == ToolError("UnknownToolError", "UNKNOWN_TOOL")


async def test_invalid_arguments_never_run_the_tool(tmp_path: Path) -> None:
    tool = FakeTool("peek")
    result = await result_of(tmp_path, ToolCallBlock(CallId("c1"), "peek", "{nonsense"), tool)
    assert told(result)[0].startswith('Error: invalid arguments for tool "peek": ')
    assert result.error == ToolError("InvalidArgumentsError", "INVALID_ARGS")
    assert tool.runs == []


async def test_empty_arguments_mean_no_arguments(tmp_path: Path) -> None:
    tool = FakeTool("peek")
    result = await result_of(tmp_path, ToolCallBlock(CallId("c1"), "peek", ""), tool)
    assert told(result) == ("peek: {}", False)


async def test_a_failing_tool_tells_the_model_why_and_what_it_saw(tmp_path: Path) -> None:
    async def fail(args: dict[str, Any], context: ToolContext) -> Outcome:
        raise ToolFailure("no such file", "FsError", "FS_NOT_FOUND", observed=(Observation("/x", None),))

    result = await result_of(tmp_path, call("c1", "peek"), FakeTool("peek", fail))
    assert told(result) == ("Error: no such file", True)
    assert result.error == ToolError("FsError", "FS_NOT_FOUND")


async def test_a_tool_that_breaks_is_a_result_and_a_warning_without_its_insides(tmp_path: Path) -> None:
    async def explode(args: dict[str, Any], context: ToolContext) -> Outcome:
        raise RuntimeError("secret")

    result = await result_of(tmp_path, call("c1", "peek"), FakeTool("peek", explode), warned=True)
    assert told(result) == ("Error: the tool peek failed unexpectedly (RuntimeError)", True)


async def test_a_plan_and_the_files_seen_stand_between_call_and_result(tmp_path: Path) -> None:
    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        context.set_todos((Todo("x", "pending"),))
        return Outcome((TextBlock("ok"),), observed=(Observation("/x", "1"),))

    async with World(tmp_path, ScriptedProvider(asks(call("c1", "plan")), says("done")),
                     FakeTool("plan", work)) as world:
        session = world.session()
        await world.prompt(session)
        kinds = shape(world.view.events)
        at = kinds.index("tool/call")
        assert kinds[at : at + 4] == ["tool/call", "todo/write", "file/seen", "tool/result"]
        assert bodies(world.view.events, FileSeen) == [FileSeen("/x", "1")]
        assert session.log.state.seen == {"/x": "1"}


async def test_blocks_that_are_open_side_by_side_come_out_in_their_order(tmp_path: Path) -> None:
    block = call("c1", "peek")
    thought, text, asked = thought_chunks("h", "m"), text_chunks("a", "b", index=1), call_chunks(block, 2)
    mixed = [thought[0], text[0], asked[0], text[1], thought[1], asked[1], thought[2], text[2], asked[2], text[3],
             thought[3], finish("tool-calls")]
    async with World(tmp_path, ScriptedProvider([mixed[:5], mixed[5:]], says("done")), FakeTool("peek")) as world:
        await world.prompt(world.session())
        message = bodies(world.view.events, AssistantMessage)[0]
        assert message.message.content == (ReasoningBlock("hm"), TextBlock("ab"), block)


@pytest.mark.parametrize(("states", "kept"), [
    (["t", "c"], ReplayState("r", ["t"])), (["t"], UNSET), (UNSET, ReplayState("r"))])
async def test_at_the_output_limit_tool_calls_are_dropped_and_the_providers_state_with_them(
    tmp_path: Path, states: Any, kept: Any,
) -> None:
    tool, block = FakeTool("peek"), call("c1", "peek")
    end = Finish(FinishReason("max-tokens"), ReplayState("r", states))
    provider = ScriptedProvider([[*text_chunks("some"), *call_chunks(block, 1), end]])
    async with World(tmp_path, provider, tool) as world:
        assert await world.prompt(world.session()) == MaxTokens()
        (message,) = bodies(world.view.events, AssistantMessage)
        assert message.message.content == (TextBlock("some"),)
        assert message.message.source.replay_state == kept
        assert shape(world.view.events) == PLAIN_TURN
        assert tool.runs == []


async def test_an_open_block_at_the_output_limit_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    chunks: list[Chunk] = [BlockStart(0, "text"), TextDelta(0, "so fa"), BlockStart(1, "reasoning"),
                           ReasoningDelta(1, "hm")]
    async with World(tmp_path, ScriptedProvider([[*chunks, finish("max-tokens")]])) as world:
        assert await world.prompt(world.session()) == MaxTokens()
        (message,) = bodies(world.view.events, AssistantMessage)
        assert message.message.content == (TextBlock("so fa"), ReasoningBlock("hm"))


async def test_a_prompt_without_words_gets_no_title_until_one_has_some(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("one"), says("two"))) as world:
        session = world.session()
        await world.prompt(session, "  \n ")
        await world.prompt(session, "now words")
        assert [title.title for title in bodies(world.view.events, SessionTitle)] == ["now words"]

"""Model calls that fail: what is tried again, what ends the turn, and what the next request still knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.errors import ModelError, RecordingError
from acp_agent.loop.host import MAX_STEPS
from acp_agent.loop.turn import MAX_TURN_REQUESTS
from acp_agent.providers.base import ModelRequest, RetryPolicy
from acp_agent.session.events import (
    AssistantMessage,
    Blocked,
    Chunk,
    Completed,
    Failed,
    Failure,
    LlmRetry,
    LlmRetryStarted,
    Replace,
    RequestSent,
    TextBlock,
    ToolCallBlock,
    UserMessage,
)
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
)
from tests.support.world import PLAIN_TURN, World, bodies, finishes, own_shape, shape

pytestmark = pytest.mark.anyio

ATTEMPT = ["request/sent", "chunks"]
RETRY = ["llm/retry", "llm/retry-started"]
OPENING = PLAIN_TURN[: PLAIN_TURN.index("request/sent")]
CLOSING = ["step/end", "turn/end"]


def texts(message: Any) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


@pytest.mark.parametrize("first", [
    fails("RATE_LIMIT"), fails("SERVER", before=text_chunks("half an ans")), [ModelError("busy", "SERVER")],
    [[*text_chunks("half")], ModelError("busy", "TIMEOUT")],
    [[finish()]], [[*text_chunks(""), finish()]], [[*text_chunks("cut off")]],
], ids=["finish", "finish after text", "raised", "raised after text", "empty", "empty block", "no finish"])
async def test_a_passing_failure_is_tried_again_in_the_same_step(tmp_path: Path, first: Script) -> None:
    async with World(tmp_path, ScriptedProvider(first, says("done"))) as world:
        assert await world.prompt(world.session()) == Completed()
        events = world.view.events
        assert finishes(events) == ["error", "stop"]
        (answer,) = [event for event in events if isinstance(event.body, AssistantMessage)]
        started = next(event.seq for event in events if isinstance(event.body, LlmRetryStarted))
        assert min(answer.source_event_seqs) > started, "the failed attempt's chunks are not cited"  # type: ignore[arg-type]  # a list
        assert shape(events) == [*OPENING, *ATTEMPT, *RETRY, *ATTEMPT, "assistant/message", *CLOSING]


async def test_a_retry_is_logged_with_its_cause_and_its_policy(tmp_path: Path) -> None:
    policy = RetryPolicy(max_retries=2, initial_delay_ms=1, jitter=0)
    provider = ScriptedProvider(fails("SERVER", "one"), fails("TIMEOUT", "two"), says("done"), policy=policy)
    async with World(tmp_path, provider) as world:
        await world.prompt(world.session())
        retries = bodies(world.view.events, LlmRetry)
        assert [(one.retry, one.max_retries, one.delay_ms) for one in retries] == [(1, 2, 1), (2, 2, 2)]
        assert [one.failure for one in retries] == [Failure("one", "SERVER"), Failure("two", "TIMEOUT")]
        assert {(one.turn, one.step, one.provider, one.mode) for one in retries} == {(1, 1, "fake", "normal")}
        assert retries[0].policy_key == (
            '["normal",2,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],1,10000,0]')
        started = bodies(world.view.events, LlmRetryStarted)
        assert [one.retry_id for one in started] == [one.retry_id for one in retries]
        assert len({one.retry_id for one in retries}) == 2


async def test_every_attempt_is_a_request_of_its_own(tmp_path: Path) -> None:
    provider = ScriptedProvider(fails("SERVER"), says("done"), says("more"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        sent = bodies(world.view.events, RequestSent)
        assert [one.ordinal for one in sent] == [one.caller.ordinal for one in provider.requests] == [0, 1, 2]
        assert len({one.message_id for one in sent}) == 3
        (first, _) = bodies(world.view.events, AssistantMessage)
        assert first.message.id == sent[1].message_id


async def test_when_retries_run_out_the_last_failure_ends_the_turn(tmp_path: Path) -> None:
    provider = ScriptedProvider(fails("SERVER", "one"), fails("SERVER", "two"), fails("SERVER", "three"))
    async with World(tmp_path, provider) as world:
        assert await world.prompt(world.session()) == Failed(Failure("three", "SERVER"))
        assert shape(world.view.events) == [*OPENING, *ATTEMPT, *RETRY, *ATTEMPT, *RETRY, *ATTEMPT, *CLOSING]
        assert finishes(world.view.events) == ["error"] * 3


async def test_an_empty_answer_is_a_failure_in_the_log_too(tmp_path: Path) -> None:
    policy = RetryPolicy(max_retries=0)
    async with World(tmp_path, ScriptedProvider([[finish()]], policy=policy)) as world:
        outcome = await world.prompt(world.session())
        assert isinstance(outcome, Failed)
        assert outcome.error.code == "EMPTY_RESPONSE"
        assert finishes(world.view.events) == ["error"]
        assert bodies(world.view.events, AssistantMessage) == []


@pytest.mark.parametrize("script", [
    fails("AUTH", "who are you"), [ModelError("who are you", "AUTH")],
    [text_chunks("half"), ModelError("who are you", "AUTH")],
], ids=["finish", "raised", "raised after text"])
async def test_a_lasting_failure_ends_the_turn_at_once(tmp_path: Path, script: Script) -> None:
    async with World(tmp_path, ScriptedProvider(script)) as world:
        assert await world.prompt(world.session()) == Failed(Failure("who are you", "AUTH"))
        assert shape(world.view.events) == [*OPENING, *ATTEMPT, *CLOSING]
        assert finishes(world.view.events) == ["error"]


async def test_a_model_error_keeps_its_status_and_the_wait_it_asked_for(tmp_path: Path) -> None:
    error = ModelError("slow down", "RATE_LIMIT", retry_after_ms=99_999, status=429)
    async with World(tmp_path, ScriptedProvider([error])) as world:
        assert await world.prompt(world.session()) == Failed(Failure("slow down", "RATE_LIMIT", 429, 99_999))


async def test_an_unexpected_exception_is_an_unknown_failure_and_a_warning(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider([text_chunks("half"), RuntimeError("secret")])) as world:
        world.expect_warnings = True
        outcome = await world.prompt(world.session())
        assert outcome == Failed(Failure("the provider failed unexpectedly (RuntimeError)", "UNKNOWN"))
        assert finishes(world.view.events) == ["error"]
        assert "secret" in world.warned[0]


async def test_an_error_of_the_recording_ends_the_turn_and_its_attempt(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider([RecordingError("call 3 of 2")])) as world:
        assert await world.prompt(world.session()) == Failed(Failure("call 3 of 2", "RecordingError"))
        assert finishes(world.view.events) == ["error"]


async def test_a_provider_that_nobody_can_answer_ends_the_turn_before_a_request(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    provider.refusal = RecordingError("no lane is left")
    async with World(tmp_path, provider) as world:
        assert await world.prompt(world.session()) == Failed(Failure("no lane is left", "RecordingError"))
        assert bodies(world.view.events, RequestSent) == []


async def test_a_finish_that_says_aborted_without_a_cancel_is_a_failure(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider([[*text_chunks("half"), finish("aborted")]])) as world:
        outcome = await world.prompt(world.session())
        assert isinstance(outcome, Failed)
        assert outcome.error.code == "ABORTED"
        assert bodies(world.view.events, AssistantMessage) == []


async def test_a_failed_turn_leaves_its_prompt_in_history_and_the_session_usable(tmp_path: Path) -> None:
    provider = ScriptedProvider(fails("AUTH"), says("done"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session, "one")
        assert await world.prompt(session, "two") == Completed()
        assert [texts(message) for message in provider.requests[1].messages] == ["one", "two"]


async def test_every_stream_is_closed_whatever_ended_it(tmp_path: Path) -> None:
    chatty = [[*text_chunks("done"), finish()], text_chunks("too much")]
    provider = ScriptedProvider(fails("SERVER"), [ModelError("no", "SERVER")], chatty)
    async with World(tmp_path, provider) as world:
        assert await world.prompt(world.session()) == Completed()
        assert provider.closed == 3
        assert finishes(world.view.events) == ["error", "error", "stop"]


class Endless(ScriptedProvider):
    """A model that always wants another look."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        self.requests.append(request)
        for batch in asks(ToolCallBlock(call(f"c{request.step}", "peek").id, "peek", "{}")):
            assert isinstance(batch, list)
            yield batch


async def test_a_turn_that_never_ends_is_stopped_at_the_step_limit(tmp_path: Path) -> None:
    provider = Endless()
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        outcome = await world.prompt(world.session())
        assert isinstance(outcome, Failed)
        assert outcome.error.code == MAX_TURN_REQUESTS
        assert len(provider.requests) == MAX_STEPS
        assert shape(world.view.events)[-3:] == ["tool/result", "step/end", "turn/end"]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("code", ["REFUSAL", "CONTENT_FILTER"])
@pytest.mark.parametrize("raised", [False, True], ids=["finish", "raised"])
async def test_a_declined_prompt_is_blocked_and_not_tried_again(tmp_path: Path, code: str, raised: bool) -> None:
    script: Script = [ModelError("no", code)] if raised else fails(code)
    async with World(tmp_path, ScriptedProvider(script)) as world:
        assert await world.prompt(world.session()) == Blocked()
        assert finishes(world.view.events) == ["error"]


async def test_a_declined_prompt_and_all_that_followed_leave_the_models_sight(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("hello"), asks(call("c1", "peek")), fails("REFUSAL"), says("fine"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        session = world.session()
        await world.prompt(session, "one")
        assert await world.prompt(session, "forbidden") == Blocked()
        await world.prompt(session, "two")
        first, answer, note, last = provider.requests[-1].messages
        assert (texts(first), texts(last)) == ("one", "two")
        assert isinstance(answer, AssistantMessage)
        assert isinstance(note, UserMessage)
        assert note.source.kind == "plugin"
        assert "forbidden" not in texts(note)


async def test_a_refusal_is_a_replace_that_cites_all_it_hides(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(call("c1", "peek")), fails("REFUSAL"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        session = world.session()
        await world.prompt(session)
        hidden = [event.seq for event in world.view.events if event.surface_op == "append"]
        note = next(event for event in world.view.events if isinstance(event.surface_op, Replace))
        assert note.source_event_seqs == hidden
        assert note.surface_op == Replace("replace", hidden[0], hidden[-1])
        assert own_shape(world.view.events, 1)[-3:] == ["step/end", "user/message", "turn/end"]
        assert session.log.state.nodes == [note.seq]


async def test_the_next_request_counts_its_messages_anew_after_a_refusal(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("hello"), fails("REFUSAL"), says("fine"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        for text in ("one", "forbidden", "two"):
            await world.prompt(session, text)
        digests = [sent.parts.messages for sent in bodies(world.view.events, RequestSent)]
        assert [(one.count, len(one.added)) for one in digests] == [(1, 1), (3, 2), (4, 4)]
        assert digests[2].added[:2] == [digests[0].added[0], digests[1].added[0]]
        assert bodies(world.view.events, RequestSent)[0].root == 0
        assert bodies(world.view.events, RequestSent)[1].root is UNSET

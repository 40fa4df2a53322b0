"""One projection for live updates and for history: what streamed is what a load would show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from acp_agent.acp.projection import Projection, raw_json, thought_id
from acp_agent.acp.schema import (
    AgentChunk,
    CurrentMode,
    Plan,
    PlanEntry,
    SessionInfo,
    TextContent,
    ThoughtChunk,
    ToolCallStart,
    ToolCallUpdate,
    Update,
    UserChunk,
)
from acp_agent.ids import CallId, MessageId
from acp_agent.rpc.envelope import to_json
from acp_agent.session import codec
from acp_agent.session.events import (
    AssistantChunk,
    AssistantContent,
    AssistantMessage,
    Body,
    Event,
    Finish,
    MessageDigests,
    ReasoningBlock,
    ReasoningDelta,
    RequestParts,
    RequestSent,
    SessionCommand,
    SessionConfig,
    SessionTitle,
    Source,
    TextBlock,
    TextDelta,
    TitleSource,
    Todo,
    TodoWrite,
    ToolCallBlock,
    ToolContent,
    ToolResult,
    ToolResultBlock,
    UserMessage,
)
from acp_agent.tools.base import Diff
from acp_agent.tools.registry import Registry, default_tools
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, finish, says, text_chunks, thought_chunks
from tests.support.world import World

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
LOGS = sorted(RECORDED.glob("*/session*.jsonl"))
PARTS = RequestParts("c", "s", "t", MessageDigests(0, "", []))
CWD = Path("/w")


def project(bodies: Iterable[Body], *tools: Any, settled: bool = False) -> list[Update]:
    projection = Projection(Registry(tools), CWD, settled=settled)
    return [update for seq, body in enumerate(bodies) for update in projection.updates(Event(seq, 0, body))]


def joined(updates: Sequence[Update]) -> list[Any]:
    """Updates with the chunks of one message put together, prompts left out: live, a client knows those."""
    found: list[Any] = []
    places: dict[str, int] = {}
    for update in updates:
        if isinstance(update, UserChunk):
            continue
        if not isinstance(update, AgentChunk | ThoughtChunk) or not isinstance(update.content, TextContent):
            found.append(msgspec.json.encode(update))
            continue
        at = places.setdefault(update.message_id, len(found))
        if at == len(found):
            found.append([type(update).__name__, update.message_id, ""])
        found[at][2] += update.content.text
    return found


def failed(body: Body) -> bool:
    """Whether a model call ends here without an answer."""
    chunk = body.chunk if isinstance(body, AssistantChunk) else None
    return isinstance(chunk, Finish) and chunk.reason.kind == "error"


FAILED = MessageId("failed")


def with_requests(events: Iterable[Event]) -> list[Body]:
    """A foreign log's events, with the request/sent of ours that names each answer, or that it failed."""
    bodies = [event.body for event in events if isinstance(event.body, Body)]
    answers = iter([body.message.id for body in bodies if isinstance(body, AssistantMessage)])
    found: list[Body] = []
    opened: int | None = None
    for body in bodies:
        if isinstance(body, AssistantChunk) and opened is None:
            opened = len(found)
            found.append(sent(FAILED))
        elif isinstance(body, AssistantMessage):
            if opened is not None:
                found[opened] = sent(next(answers))
            opened = None
        found.append(body)
        if failed(body):
            opened = None
    return found


@pytest.mark.parametrize("path", LOGS, ids=[f"{path.parent.name}/{path.name}" for path in LOGS])
def test_a_recording_shows_the_same_live_and_on_load(path: Path) -> None:
    reader = codec.Reader(str(path))
    events = [event for line in codec.split_lines(path.read_bytes())[0][1:] for event in reader.read(line)]
    bodies = with_requests(events)
    live, loaded = project(bodies, *default_tools()), project(bodies, *default_tools(), settled=True)
    transient = [update for update in live if getattr(update, "message_id", "").startswith(FAILED)]
    assert joined([update for update in live if update not in transient]) == joined(loaded)
    assert len([update for update in loaded if isinstance(update, UserChunk)]) == sum(
        isinstance(event.body, UserMessage) and event.body.source.kind == "user" for event in events)


@pytest.mark.anyio
async def test_a_session_of_ours_shows_the_same_live_and_on_load(tmp_path: Path) -> None:
    mixed = [*thought_chunks("let ", "me"), *text_chunks("I'll ", "look", index=1)]
    provider = ScriptedProvider(
        [[*mixed, finish()]], asks(call("c", "peek"), call("d", "teleport")), asks(call("c", "peek")),
        says("do", "ne"))
    async with World(tmp_path, provider, FakeTool("peek", parallel=True)) as world:
        session = world.session()
        await world.prompt(session, "one")
        await world.prompt(session, "two")
        bodies = [event.body for event in world.view.events if isinstance(event.body, Body)]
        await session.aclose()
        stored = [event.body for event in world.stored(session).events if isinstance(event.body, Body)]
    live, loaded = project(bodies, FakeTool("peek")), project(stored, FakeTool("peek"), settled=True)
    assert joined(live) == joined(loaded)
    ids = [update.tool_call_id for update in live if isinstance(update, ToolCallStart)]
    assert ids == ["c", "d", "c#2"]


# ---------------------------------------------------------------- single events


def sent(message: str) -> RequestSent:
    return RequestSent(1, 1, "main", 0, MessageId(message), PARTS)


def answer(message: str, *blocks: Any) -> AssistantMessage:
    return AssistantMessage(1, 1, AssistantContent("assistant", blocks, Source("model"), MessageId(message)))


def result(call_id: str, text: str = "ok", *, is_error: bool = False) -> ToolResult:
    block = ToolResultBlock(CallId(call_id), (TextBlock(text),), is_error)
    return ToolResult(1, 1, ToolContent(Source("tool"), (block,), "user", MessageId("r")))


def test_chunks_carry_the_id_of_the_request_they_answer() -> None:
    bodies: list[Body] = [sent("m1"), *(AssistantChunk(1, 1, chunk) for chunk in thought_chunks("hm")),
                          AssistantChunk(1, 1, TextDelta(1, "hi")), sent("m2"),
                          AssistantChunk(1, 2, TextDelta(0, "again"))]
    assert project(bodies) == [ThoughtChunk(TextContent("hm"), thought_id(MessageId("m1"))),
                               AgentChunk(TextContent("hi"), MessageId("m1")),
                               AgentChunk(TextContent("again"), MessageId("m2"))]
    assert thought_id(MessageId("m1")) != "m1"


def test_prompts_are_shown_in_history_only_and_only_the_users_own() -> None:
    prompt = UserMessage((TextBlock("hi"),), Source("user"), "user", MessageId("u"))
    note = UserMessage((TextBlock("note"),), Source("plugin", plugin="p"), "user", MessageId("n"))
    assert project([prompt, note]) == []
    assert project([prompt, note], settled=True) == [UserChunk(TextContent("hi"), MessageId("u"))]


MOST = 4 * 1024 * 1024 + 1000
"""Bytes of JSON that one piece of text may come to, and what stands around it."""

HUGE = "\x01" * 1_500_000 + "\u00e9" * 9_000_000
"""The first of it grows sixfold in JSON."""


def test_no_text_is_too_long_for_lines() -> None:
    blocks = (TextBlock(HUGE), ReasoningBlock(HUGE))
    bodies: list[Body] = [UserMessage((TextBlock(HUGE),), Source("user"), "user", MessageId("u")), answer("m", *blocks),
                          SessionCommand(MessageId("p"), HUGE, MessageId("a"), HUGE)]
    found: dict[tuple[str, str], str] = {}
    for update in project(bodies, settled=True):
        assert isinstance(update, UserChunk | AgentChunk | ThoughtChunk)
        assert isinstance(update.content, TextContent)
        assert len(to_json(update)) < MOST
        name = (type(update).__name__, update.message_id)
        found[name] = found.get(name, "") + update.content.text
    assert list(found) == [("UserChunk", "u"), ("AgentChunk", "m"), ("ThoughtChunk", thought_id(MessageId("m"))),
                           ("UserChunk", "p"), ("AgentChunk", "a")]
    assert set(found.values()) == {HUGE}
    streamed: list[Body] = [sent("m"), AssistantChunk(1, 1, TextDelta(0, HUGE)),
                            AssistantChunk(1, 1, ReasoningDelta(1, HUGE))]
    assert joined(project(streamed)) == [["AgentChunk", "m", HUGE], ["ThoughtChunk", thought_id(MessageId("m")), HUGE]]


@pytest.mark.parametrize("diff", [Diff("/w/x", HUGE), Diff("/w/x", "new", HUGE)])
def test_what_a_call_holds_is_cut_where_no_line_has_room_for_it(diff: Diff) -> None:
    tool = FakeTool("peek", diffs=(diff, Diff("/w/x", "more", "less")))
    start, end = project([answer("m", call("c", "peek", a=HUGE)), result("c", HUGE)], tool)
    (only,) = project([answer("m", call("c", HUGE))])
    assert all(len(to_json(update)) < 3 * MOST for update in (start, end, only))
    told = f"(the change is too long to be shown: {len(diff.new_text) + 4} characters of new text)"
    assert msgspec.json.decode(msgspec.json.encode(end))["content"][0] == {
        "type": "content", "content": {"type": "text", "text": told}}
    assert isinstance(start, ToolCallStart)
    assert isinstance(end, ToolCallUpdate)
    assert start.raw_input.startswith('{"a":"')
    for text in (start.raw_input, end.raw_output["text"]):
        assert text.endswith("[cut: the first 524288 characters are shown]"), text[-100:]


def test_plan_title_and_mode_are_shown_whole() -> None:
    bodies: list[Body] = [TodoWrite((Todo("x", "in_progress"),)), SessionConfig(mode="ask"), SessionConfig(),
                          SessionTitle("t", [0], TitleSource("fallback"))]
    assert project(bodies) == project(bodies, settled=True) == [
        Plan((PlanEntry("x", "medium", "in_progress"),)), CurrentMode("ask"), SessionInfo("t")]


def test_a_call_is_announced_with_its_message_and_finished_with_its_result() -> None:
    tool = FakeTool("peek", diffs=(Diff("/w/x", "new", None),))
    start, end = project([answer("m", call("c", "peek", a=1)), result("c")], tool)
    assert isinstance(start, ToolCallStart)
    assert isinstance(end, ToolCallUpdate)
    assert (start.tool_call_id, start.title, start.name, start.kind, start.status) == (
        "c", "peek something", "peek", "other", "pending")
    assert msgspec.json.encode(start.raw_input) == b'{"a":1}'
    assert (end.tool_call_id, end.status, end.title) == ("c", "completed", UNSET)
    assert msgspec.json.decode(msgspec.json.encode(end))["content"] == [
        {"type": "diff", "path": "/w/x", "oldText": None, "newText": "new"},
        {"type": "content", "content": {"type": "text", "text": "presented"}}]
    assert end.raw_output == {"text": "ok", "isError": False}


def test_a_failed_call_shows_the_error_text_itself() -> None:
    _, end = project([answer("m", call("c", "peek")), result("c", "Error: no", is_error=True)], FakeTool("peek"))
    assert isinstance(end, ToolCallUpdate)
    assert end.status == "failed"
    assert msgspec.json.decode(msgspec.json.encode(end))["content"][0]["content"]["text"] == "Error: no"


@pytest.mark.parametrize("block", [call("c", "teleport"), ToolCallBlock(CallId("c"), "peek", "{nonsense")])
def test_a_call_that_cannot_be_understood_is_shown_by_its_name(block: ToolCallBlock) -> None:
    start, end = project([answer("m", block), result("c", "Error: no", is_error=True)], FakeTool("peek"))
    assert isinstance(start, ToolCallStart)
    assert (start.title, start.kind) == (block.name, "other")
    assert isinstance(end, ToolCallUpdate)
    assert end.status == "failed"


def test_a_call_id_used_again_gets_a_wire_id_of_its_own() -> None:
    bodies = [body for _ in range(3) for body in (answer("m", call("c", "peek")), result("c"))]
    updates = project(bodies, FakeTool("peek"))
    assert [update.tool_call_id for update in updates if isinstance(update, ToolCallStart | ToolCallUpdate)] == [
        "c", "c", "c#2", "c#2", "c#3", "c#3"]


def test_results_belong_to_calls_by_position_even_with_equal_ids() -> None:
    twice = answer("m", call("c", "peek"), call("c", "peek"))
    bodies: list[Body] = [twice, result("c", "one"), result("c", "two")]
    ends = [update for update in project(bodies, FakeTool("peek")) if isinstance(update, ToolCallUpdate)]
    assert [(end.tool_call_id, end.raw_output["text"]) for end in ends] == [("c", "one"), ("c#2", "two")]


@given(st.lists(st.sampled_from(["c", "d", "", "c-2"]), max_size=12))
def test_wire_ids_are_unique_in_the_session(call_ids: list[str]) -> None:
    updates = project([answer("m", call(call_id, "peek")) for call_id in call_ids], FakeTool("peek"))
    ids = [update.tool_call_id for update in updates if isinstance(update, ToolCallStart)]
    assert len(ids) == len(set(ids)) == len(call_ids)


@pytest.mark.parametrize(("arguments", "json"), [
    ("", b"{}"), ("  ", b"{}"), ('{"a": 1}', b'{"a": 1}'), ("[1]", b"[1]"), ("{nonsense", b'"{nonsense"'),
])
def test_arguments_are_shown_as_json_where_they_are_json(arguments: str, json: bytes) -> None:
    assert msgspec.json.encode(raw_json(arguments)) == json


def test_past_events_are_shown_settled_and_live_ones_streamed_by_one_projection() -> None:
    projection = Projection(Registry(default_tools()), Path("/w"))
    delta = Event(0, 0, AssistantChunk(1, 1, TextDelta(0, "x")))
    prompt = Event(1, 0, UserMessage((TextBlock("go"),), Source("user"), "user", MessageId("u")))
    assert projection.past(delta) == ()
    assert list(projection.past(prompt)) == [UserChunk(TextContent("go"), MessageId("u"))]
    assert list(projection.updates(delta)) == [AgentChunk(TextContent("x"), MessageId(""))]
    assert list(projection.updates(prompt)) == []


@pytest.mark.parametrize("show", [True, False])
def test_ids_that_history_used_are_never_given_out_again(show: bool) -> None:
    projection = Projection(Registry(default_tools()), Path("/w"))

    def asking(*ids: str) -> Event:
        blocks = tuple(ToolCallBlock(CallId(one), "nobody", "{}") for one in ids)
        return Event(0, 0, AssistantMessage(1, 1, AssistantContent("assistant", blocks, Source("model"),
                                                                   MessageId("m"))))

    for event in (asking("a", "b"), asking("a", "a#2")):
        if show:
            projection.past(event)
        else:
            projection.skip(event)
    updates = projection.updates(asking("a", "b", "a#2", "c"))
    starts = [update for update in updates if isinstance(update, ToolCallStart)]
    assert [start.tool_call_id for start in starts] == ["a#3", "b#2", "a#2#3", "c"]
    assert projection.claim("a") == "a#4"

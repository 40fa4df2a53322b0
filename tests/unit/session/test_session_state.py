"""The fold: the same log gives the same state, and a seed hands down history but not what its owner did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from acp_agent.ids import CallId, MessageId
from acp_agent.session import codec
from acp_agent.session.events import (
    ApprovalGrant,
    AssistantChunk,
    AssistantContent,
    AssistantMessage,
    Body,
    Completed,
    Event,
    FileSeen,
    Finish,
    FinishReason,
    MessageDigests,
    Replace,
    ReplayBound,
    RequestParts,
    RequestSent,
    SessionConfig,
    SessionTitle,
    Source,
    StepEnd,
    StepStart,
    SurfaceOp,
    TextBlock,
    TitleSource,
    Todo,
    TodoWrite,
    ToolCall,
    ToolCallBlock,
    ToolContent,
    ToolResult,
    ToolResultBlock,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from acp_agent.session.state import SessionState

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
LOGS = sorted(RECORDED.glob("*/session*.jsonl"))
PARTS = RequestParts("c", "s", "t", MessageDigests(0, "", []))


def fold(entries: Sequence[Body | tuple[Body, SurfaceOp]], seed_length: int = 0) -> SessionState:
    state = SessionState(seed_length)
    for seq, entry in enumerate(entries):
        body, surface = entry if isinstance(entry, tuple) else (entry, UNSET)
        state.apply(Event(seq, seq, body, UNSET, surface))
    return state


def user(text: str) -> UserMessage:
    return UserMessage((TextBlock(text),), Source("user"), "user", MessageId(text))


def answer(*calls: str) -> AssistantMessage:
    blocks = tuple(ToolCallBlock(CallId(one), "read", "{}") for one in calls)
    return AssistantMessage(1, 1, AssistantContent("assistant", blocks, Source("model"), MessageId("a")))


def result(call: str) -> ToolResult:
    block = ToolResultBlock(CallId(call), (TextBlock("ok"),), is_error=False)
    return ToolResult(1, 1, ToolContent(Source("tool"), (block,), "user", MessageId(f"r-{call}")))


def sent(ordinal: int, purpose: str = "main") -> RequestSent:
    return RequestSent(1, 1, purpose, ordinal, MessageId(f"m{ordinal}"), PARTS)


FINISH = AssistantChunk(1, 1, Finish(FinishReason("stop")))


def visible(state: SessionState) -> list[Any]:
    return [message.id if isinstance(message, UserMessage) else message.message.id for message in state.history]


def facts(state: SessionState) -> dict[str, Any]:
    """Everything a state knows, in comparable form."""
    return {name: codec.encode_line([(call.block, call.seq) for call in value.values()])
            if name == "open_calls" else value for name, value in vars(state).items()}


@pytest.mark.parametrize("path", LOGS, ids=[f"{path.parent.name}/{path.name}" for path in LOGS])
def test_a_written_log_folds_to_the_same_state(path: Path) -> None:
    lines, _ = codec.split_lines(path.read_bytes())
    first, again = codec.Reader(str(path)), codec.Reader("copy")
    events = [event for line in lines[1:] for event in first.read(line)]
    copy = [event for line in codec.split_lines(codec.pack(events))[0] for event in again.read(line)]
    states = SessionState(), SessionState()
    for state, log in zip(states, (events, copy), strict=True):
        for event in log:
            state.apply(event)
    assert facts(states[0]) == facts(states[1])
    assert states[0].count == len(events)
    assert not states[0].open_turn


def test_appended_messages_are_the_history_in_order() -> None:
    state = fold([(user("one"), "append"), StepStart(1, 1), (answer("c"), "append"), (result("c"), "append")])
    assert visible(state) == ["one", "a", "r-c"]
    assert state.nodes == [0, 2, 3]


def test_a_replace_puts_one_message_in_the_place_of_a_range() -> None:
    state = fold([(user("one"), "append"), (user("two"), "append"), (user("three"), "append"),
                  (user("summary"), Replace("replace", 0, 1))])
    assert visible(state) == ["summary", "three"]
    assert state.nodes == [3, 2]
    assert state.replaced == 1


def test_a_replace_of_a_single_message_keeps_its_place() -> None:
    state = fold([(user("one"), "append"), (user("two"), "append"), (user("three"), "append"),
                  (user("pruned"), Replace("replace", 1, 1))])
    assert visible(state) == ["one", "pruned", "three"]


def test_a_replaced_range_may_hold_events_that_are_no_messages() -> None:
    state = fold([TurnStart(1), (user("one"), "append"), StepStart(1, 1), (user("two"), "append"),
                  (user("summary"), Replace("replace", 0, 4))])
    assert visible(state) == ["summary"]


def test_replacing_the_replacement_works_on_what_is_visible() -> None:
    state = fold([(user("one"), "append"), (user("two"), "append"), (user("sum"), Replace("replace", 0, 1)),
                  (user("three"), "append"), (user("all"), Replace("replace", 2, 3))])
    assert visible(state) == ["all"]
    assert state.replaced == 2


def test_a_replace_in_the_middle_leaves_a_history_that_later_ones_still_find_their_way_in() -> None:
    entries: list[Any] = [(user("one"), "append"), (user("two"), "append"), (user("three"), "append"),
                          (user("first two"), Replace("replace", 0, 1)), (user("four"), "append")]
    assert fold(entries).nodes == [3, 2, 4]
    assert visible(fold([*entries, (user("x"), Replace("replace", 2, 2))])) == ["first two", "x", "four"]
    assert visible(fold([*entries, (user("x"), Replace("replace", 3, 3))])) == ["x", "three", "four"]
    assert visible(fold([*entries, (user("x"), Replace("replace", 2, 4))])) == ["x"]
    assert visible(fold([*entries, (user("x"), Replace("replace", 9, 12))])) == ["first two", "three", "four", "x"]
    assert visible(fold([*entries, (user("x"), Replace("replace", 4, 2))])) == ["first two", "three", "four", "x"]


def test_a_replace_whose_range_is_upside_down_or_beyond_the_history_appends() -> None:
    for start, end in ((1, 0), (5, 9)):
        state = fold([(user("one"), "append"), (user("two"), "append"), (user("x"), Replace("replace", start, end))])
        assert visible(state) == ["one", "two", "x"]


def test_a_replace_of_nothing_visible_appends() -> None:
    state = fold([(user("one"), "append"), TurnStart(1), (user("note"), Replace("replace", 1, 1))])
    assert visible(state) == ["one", "note"]
    assert state.replaced == 0


def test_turns_and_steps_are_followed() -> None:
    opening: list[Body] = [TurnStart(1), StepStart(1, 1)]
    state = fold(opening)
    assert (state.turn, state.open_turn, state.open_step, state.last_end) == (1, True, 1, 0)
    state = fold([*opening, StepEnd(1, 1)])
    assert (state.open_turn, state.open_step) == (True, 0)
    state = fold([*opening, StepEnd(1, 1), TurnEnd(1, Completed()), SessionConfig(mode="ask")])
    assert (state.open_turn, state.last_end, state.outcome) == (False, 4, Completed())
    assert state.last_end > 0


def test_calls_are_open_until_their_result() -> None:
    entries: list[Any] = [TurnStart(1), StepStart(1, 1), (answer("c", "d"), "append"),
                          ToolCall(1, 1, CallId("c"), "read", "{}")]
    state = fold(entries)
    assert [(call.block.id, call.seq) for call in state.open_calls.values()] == [("c", 3), ("d", None)]
    assert list(fold([*entries, (result("c"), "append")]).open_calls) == ["d"]
    assert fold([*entries, StepEnd(1, 1)]).open_calls == {}


def test_the_newest_of_each_fact_counts() -> None:
    todos = (Todo("x", "pending"),)
    state = fold([
        SessionConfig(mode="ask"), SessionConfig(mode="read-only"), SessionConfig(),
        SessionTitle("old", [0], TitleSource("fallback")), SessionTitle("new", [0], TitleSource("fallback")),
        ApprovalGrant("edit", True, "edits"), ApprovalGrant("edit", False, "edits"),
        FileSeen("/a", "1"), FileSeen("/b", "1"), FileSeen("/a", None), TodoWrite(()), TodoWrite(todos),
    ])
    assert (state.mode, state.title, state.todos) == ("read-only", "new", todos)
    assert state.grants == {"edit": False}
    assert state.seen == {"/a": None, "/b": "1"}


def test_ordinals_count_the_requests_of_each_purpose() -> None:
    state = fold([sent(0), FINISH, sent(1), FINISH, sent(0, "compaction"), FINISH])
    assert state.ordinals == {"main": 2, "compaction": 1}


def test_in_a_foreign_log_a_call_is_counted_where_it_finished() -> None:
    assert fold([FINISH, FINISH]).ordinals == {"main": 2}


def test_requests_go_on_counting_where_a_foreign_log_stopped() -> None:
    assert fold([FINISH, FINISH, sent(2), FINISH, sent(3)]).ordinals == {"main": 4}


def test_a_seed_hands_down_history_and_memory_but_not_calls_and_bindings() -> None:
    bound = ReplayBound("lane-1", 0)
    seed: list[Any] = [TurnStart(1), bound, SessionConfig(mode="ask"), FileSeen("/a", "1"),
                       (user("one"), "append"), sent(0), FINISH, TurnEnd(1, Completed())]
    own, child = fold(seed), fold(seed, seed_length=len(seed))
    assert (own.ordinals, own.bound, own.has_sent) == ({"main": 1}, bound, True)
    assert (child.ordinals, child.bound, child.has_sent) == ({}, None, False)
    assert visible(child) == ["one"]
    assert (child.mode, child.seen, child.turn, child.last_end) == ("ask", {"/a": "1"}, 1, len(seed))


def test_a_foreign_seed_hands_down_no_calls_either() -> None:
    assert fold([FINISH, FINISH, FINISH], seed_length=2).ordinals == {"main": 1}


def test_after_a_seed_a_childs_own_requests_count_from_zero() -> None:
    assert fold([sent(0), sent(1), sent(0), FINISH], seed_length=2).ordinals == {"main": 1}

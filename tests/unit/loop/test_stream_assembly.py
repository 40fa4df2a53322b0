"""Chunks into blocks: any number open at once, in any order, complete or cut off."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.loop.assembly import EMPTY_RESPONSE, Assembler
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    ReasoningBlock,
    ReplayState,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)
from tests.support.fakes import USAGE, call, call_chunks, finish, text_chunks, thought_chunks

PIECES = st.lists(st.text(max_size=3), min_size=1, max_size=4)
BLOCKS = st.lists(st.tuples(st.sampled_from(["text", "reasoning", "call"]), PIECES), min_size=1, max_size=5)


def chunks_of(kind: str, pieces: list[str], index: int) -> list[Chunk]:
    if kind == "text":
        return text_chunks(*pieces, index=index)
    if kind == "reasoning":
        return thought_chunks(*pieces, index=index)
    block = ToolCallBlock(CallId(f"c{index}"), "peek", "".join(pieces))
    deltas = [ToolCallDelta(index, block.id, UNSET if at else "peek", piece) for at, piece in enumerate(pieces)]
    return [BlockStart(index, "tool-call"), *deltas, BlockEnd(index, block)]


def fed(*chunks: Chunk) -> Assembler:
    assembler = Assembler()
    assembler.feed(chunks)
    return assembler


@given(BLOCKS, st.randoms(use_true_random=False), st.booleans())
def test_any_interleaving_of_blocks_gives_the_blocks_in_their_order(
    blocks: list[tuple[str, list[str]]], rng: Any, cut: bool,
) -> None:
    """Also without the block ends: the deltas alone make the same blocks."""
    queues = [chunks_of(kind, pieces, index) for index, (kind, pieces) in enumerate(blocks)]
    expected = [queue[-1].block for queue in queues]  # type: ignore[union-attr]  # a BlockEnd
    queues = [queue[:-1] if cut else queue for queue in queues]
    assembler = Assembler()
    while queues:
        queue = rng.choice(queues)
        assembler.feed([queue.pop(0)])
        queues = [one for one in queues if one]
    assert assembler.content() == expected


def test_a_block_end_has_the_last_word() -> None:
    assembler = fed(BlockStart(0, "text"), TextDelta(0, "raw"), BlockEnd(0, TextBlock("edited")))
    assert assembler.content() == [TextBlock("edited")]


def test_deltas_need_no_block_start() -> None:
    assert fed(TextDelta(0, "a"), TextDelta(0, "b")).content() == [TextBlock("ab")]


def test_a_call_that_was_only_opened_stands_for_nothing() -> None:
    assert fed(BlockStart(0, "tool-call"), BlockStart(1, "image")).content() == []


def test_what_comes_after_the_finish_is_dropped() -> None:
    assembler = Assembler()
    logged = assembler.feed([*text_chunks("a"), finish(), TextDelta(0, "late"), finish("error")])
    assert logged == [*text_chunks("a"), finish()]
    assert assembler.finish == finish()
    assert assembler.content() == [TextBlock("a")]


def test_usage_is_kept() -> None:
    assert fed(USAGE).usage == USAGE.usage
    assert fed().usage is UNSET


@pytest.mark.parametrize("kind", ["stop", "tool-calls"])
@pytest.mark.parametrize("before", [[], text_chunks(""), thought_chunks(""), [BlockStart(0, "text")], [USAGE]])
def test_a_success_without_content_is_an_empty_response(kind: str, before: list[Chunk]) -> None:
    assembler = Assembler()
    logged = assembler.feed([*before, finish(kind)])
    assert list(logged) == [*before, Finish(FinishReason("error", EMPTY_RESPONSE))]
    assert assembler.finish is logged[-1]


@pytest.mark.parametrize("before", [text_chunks("a"), thought_chunks("a"), call_chunks(call("c", "peek"))])
def test_any_content_makes_a_success(before: list[Chunk]) -> None:
    assert fed(*before, finish()).finish == finish()


@pytest.mark.parametrize("kind", ["max-tokens", "aborted", "error"])
def test_other_ends_may_be_empty(kind: str) -> None:
    assert fed(finish(kind)).finish == finish(kind)


def test_a_cancelled_answer_leaves_only_what_says_something() -> None:
    assembler = fed(*text_chunks("said"), *text_chunks(" \n", index=1), *thought_chunks("hm", index=2)[:-1],
                    *call_chunks(call("c", "peek"), 3))
    assert assembler.prefix() == (TextBlock("said"), ReasoningBlock("hm"))


@pytest.mark.parametrize(("states", "kept"), [
    (["a", "b", "c"], ReplayState("r", ["a", "c"])),
    ([], UNSET), (["a", "b"], UNSET), (["a", "b", "c", "d"], UNSET),
])
def test_at_the_limit_the_providers_state_is_pruned_in_parallel_or_dropped_whole(states: Any, kept: Any) -> None:
    end = Finish(FinishReason("max-tokens"), ReplayState("r", states))
    assembler = fed(*text_chunks("t"), *call_chunks(call("c", "peek"), 1), *thought_chunks("h", index=2), end)
    assert assembler.within_limit() == ((TextBlock("t"), ReasoningBlock("h")), kept)


def test_at_the_limit_an_answer_of_calls_alone_is_empty() -> None:
    assert fed(*call_chunks(call("c", "peek")), finish("max-tokens")).within_limit() == ((), UNSET)

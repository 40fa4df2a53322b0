"""Packing is canonical and loses nothing, whatever the events and whenever rows are taken."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session import codec
from acp_agent.session.events import (
    AssistantChunk,
    BlockStart,
    Body,
    Chunk,
    Event,
    Finish,
    FinishReason,
    Opaque,
    ReasoningDelta,
    SessionConfig,
    SessionHeader,
    Source,
    SpawnKey,
    StepStart,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnStart,
    UserMessage,
)
from tests.support.log_laws import canonical_rows, read_log

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""No lone surrogates: UTF-8 cannot hold them."""
SMALL = st.integers(0, 1)
NAME = st.sampled_from([UNSET, "read", "bash"])
DELTAS: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(TextDelta, SMALL, TEXT), st.builds(ReasoningDelta, SMALL, TEXT),
    st.builds(ToolCallDelta, SMALL, st.sampled_from([CallId("a"), CallId("b")]), NAME, TEXT),
)
CHUNKS: st.SearchStrategy[Chunk] = st.one_of(
    DELTAS, DELTAS, st.builds(BlockStart, SMALL, st.just("text")), st.just(Finish(FinishReason("stop"))),
)
RUNS = st.lists(st.tuples(SMALL, CHUNKS, st.integers(1, 5)), max_size=8).map(
    lambda runs: [AssistantChunk(1, step, chunk) for step, chunk, count in runs for _ in range(count)])
"""Bodies with runs in them: each chunk is repeated up to five times."""
PLAIN: st.SearchStrategy[Body] = st.one_of(
    st.builds(TurnStart, SMALL), st.builds(StepStart, SMALL, SMALL),
    st.builds(ToolCall, SMALL, SMALL, st.just(CallId("a")), TEXT, TEXT),
    st.builds(lambda text: UserMessage((TextBlock(text),), Source("user"), "user", MessageId("m")), TEXT),
    st.builds(SessionConfig, st.sampled_from([UNSET, "ask"])),
)
BODIES = st.lists(st.one_of(RUNS, PLAIN.map(lambda body: [body]), st.just([Opaque("plan/mode", Raw(b'{"a":1}'))])),
                  max_size=8).map(lambda lists: [body for each in lists for body in each])
TIMES = st.integers(-5, 5)
"""Gaps between events: clocks stand still and step back."""


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    bodies = draw(BODIES)
    gaps = draw(st.lists(TIMES, min_size=len(bodies), max_size=len(bodies)))
    time, events = 1_000_000, []
    for seq, (body, gap) in enumerate(zip(bodies, gaps, strict=True)):
        time += gap
        surface = "append" if isinstance(body, UserMessage) else UNSET
        ignorable = True if isinstance(body, SessionConfig) else UNSET
        events.append(Event(seq, time, body, UNSET, surface, ignorable))  # type: ignore[arg-type]  # a literal
    return events


def read(data: bytes) -> list[Event]:
    lines, torn = codec.split_lines(data)
    assert torn == b""
    reader = codec.Reader("log")
    return [event for line in lines for event in reader.read(line)]


@settings(deadline=None, max_examples=60)
@given(logs())
def test_any_log_reads_back_equal(events: list[Event]) -> None:
    assert read(codec.pack(events)) == events


@settings(deadline=None, max_examples=60)
@given(logs(), st.data())
def test_packing_does_not_depend_on_when_rows_are_taken(events: list[Event], data: st.DataObject) -> None:
    packer, rows = codec.Packer(), b""
    for event in events:
        packer.add(event)
        if data.draw(st.booleans()):
            rows += packer.take()
    assert rows + packer.take_all() == codec.pack(events)


@settings(deadline=None, max_examples=60)
@given(logs())
def test_runs_are_maximal_and_short_ones_stay_records(events: list[Event]) -> None:
    """Judged by the independent reader of the tests."""
    header = codec.encode_header(SessionHeader(id=SessionId("s"), created_at=0)).rstrip(b"\n")
    lines, _ = codec.split_lines(codec.pack(events))
    log = read_log([header, *lines])
    assert log.rows == canonical_rows(log.events)


def deltas(*texts: str, step: int = 1, index: int = 0) -> list[Body]:
    return [AssistantChunk(1, step, TextDelta(index, text)) for text in texts]


def events_of(bodies: list[Body]) -> list[Event]:
    return [Event(seq, 100 + seq, body) for seq, body in enumerate(bodies)]


def test_a_run_of_three_is_one_row_and_a_run_of_two_is_two_records() -> None:
    assert codec.pack(events_of(deltas("a", "b", "c"))).count(b"\n") == 1
    assert codec.pack(events_of(deltas("a", "b"))).count(b"\n") == 2


def test_a_packed_row_keeps_each_text_and_its_time() -> None:
    a, b, c = deltas("a", "", "é")
    events = [Event(0, 100, a), Event(1, 107, b), Event(2, 103, c)]
    assert codec.pack(events) == (
        '{"type":"text-chunks","seq0":0,"time0":100,"data":{"turn":1,"step":1,"index":0,"dt":[7,-4],'
        '"texts":["a","","é"]}}\n').encode()


def test_an_open_run_is_held_back_until_it_is_known_to_be_whole() -> None:
    packer = codec.Packer()
    for event in events_of(deltas("a", "b", "c")):
        packer.add(event)
    assert packer.take() == b""
    assert packer.take_all().count(b"\n") == 1


@pytest.mark.parametrize("other", [
    deltas("x", step=2), deltas("x", index=1), [AssistantChunk(1, 1, ReasoningDelta(0, "x"))], [TurnStart(1)],
], ids=["step", "index", "kind", "event"])
def test_a_run_ends_where_something_else_comes(other: list[Body]) -> None:
    rows = codec.pack(events_of([*deltas("a", "b", "c"), *other, *deltas("d", "e", "f")]))
    assert rows.count(b"text-chunks") == 2


def test_tool_call_deltas_run_only_while_name_and_its_presence_agree() -> None:
    def delta(name: str | msgspec.UnsetType) -> Body:
        return AssistantChunk(1, 1, ToolCallDelta(0, CallId("c"), name, "x"))

    rows = codec.pack(events_of([delta("read"), *[delta(UNSET)] * 3]))
    assert [line.split(b'"')[3] for line in rows.splitlines()] == [b"assistant/chunk", b"tool-call-chunks"]
    assert b'"name"' not in rows.splitlines()[1]


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    loose = events_of([TurnStart(1), *deltas("\ud800")])
    packed = events_of(deltas("a", "\udfff", "c"))
    assert "\ufffd" in codec.pack(loose).decode()
    assert "\ufffd" in codec.pack(packed).decode()
    assert len(read(codec.pack(packed))) == 3


def test_what_this_build_does_not_model_is_kept_byte_for_byte() -> None:
    line = b'{"type":"team/task","seq":0,"time":5,"data":{ "b" : 1.50, "a":[ ] }}\n'
    assert codec.pack(read(line)) == line


@given(st.builds(
    SessionHeader, id=TEXT.filter(bool).map(SessionId), created_at=st.integers(0, 2**53 - 1),
    cwd=st.sampled_from([UNSET, "/w", "/ü"]), parent_session=st.sampled_from([UNSET, SessionId("p")]),
    seed_length=st.sampled_from([UNSET, 7]), origin=st.sampled_from([UNSET, "subagent"]),
    delegation_depth=st.integers(0, 3), spawn=st.sampled_from([UNSET, SpawnKey(CallId("c"), 1)]),
))
def test_any_header_reads_back_equal(header: SessionHeader) -> None:
    line = codec.encode_header(header)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert codec.decode_header(line[:-1], "log") == header


@given(st.lists(CHUNKS, max_size=12), st.data())
def test_a_batch_of_chunks_packs_as_its_events_do(chunks: list[Chunk], data: st.DataObject) -> None:
    one, batched, at = codec.Packer(), codec.Packer(), 0
    while at < len(chunks):
        size, step = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 2))
        time = data.draw(st.sampled_from([-5, 0, 7, 2**53]))
        batch = chunks[at:at + size]
        batched.add_chunks(at, time, 1, step, batch)
        for seq, chunk in enumerate(batch, at):
            one.add(Event(seq, time, AssistantChunk(1, step, chunk)))
        assert batched.take() == one.take()
        at += size
    assert batched.take_all() == one.take_all()

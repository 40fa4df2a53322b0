"""The codec on real recordings: read in full, written back to the same bytes, lawful by the format's own rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acp_agent.session import codec
from acp_agent.session.events import (
    SURFACE_TYPES,
    AssistantChunk,
    AssistantMessage,
    EndSeed,
    Event,
    LlmRetryStarted,
    RequestHeader,
    SessionHeader,
    SessionTitle,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    UserMessage,
)

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
LOGS = sorted(RECORDED.glob("*/session*.jsonl"))
NAMES = [f"{path.parent.name}/{path.name}" for path in LOGS]

ENVELOPE = re.compile(rb'^(\{"type":"[^"]+")(?:,"seq0?":\d+,"time0?":\d+)')
"""What a projected log leaves out of a row."""


@pytest.fixture(params=LOGS, ids=NAMES)
def log(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_recordings_are_there() -> None:
    if not LOGS:
        pytest.skip(f"no recordings below {RECORDED}: the tests over real recordings did not run")
    assert len({path.parent for path in LOGS}) == len(list(RECORDED.glob("*/input.json")))


def read(path: Path) -> tuple[SessionHeader, list[Event], list[bytes]]:
    lines, torn = codec.split_lines(path.read_bytes())
    assert torn == b""
    reader = codec.Reader(str(path))
    events = [event for line in lines[1:] for event in reader.read(line)]
    return codec.decode_header(lines[0], str(path)), events, lines


def test_a_recording_is_written_back_to_the_same_bytes(log: Path) -> None:
    header, events, lines = read(log)
    assert codec.encode_header(header) == lines[0] + b"\n"
    written, _ = codec.split_lines(codec.pack(events))
    assert [ENVELOPE.sub(rb"\1", line) for line in written] == lines[1:]


def test_events_are_numbered_without_gaps(log: Path) -> None:
    _, events, _ = read(log)
    assert [event.seq for event in events] == list(range(len(events)))


def test_an_answer_cites_exactly_the_chunks_of_its_attempt(log: Path) -> None:
    chunks: list[int] = []
    for event in read(log)[1]:
        if isinstance(event.body, StepStart | LlmRetryStarted):
            chunks = []
        elif isinstance(event.body, AssistantChunk):
            chunks.append(event.seq)
        elif isinstance(event.body, AssistantMessage):
            assert event.source_event_seqs == chunks


def test_an_appended_tool_result_cites_exactly_its_call(log: Path) -> None:
    calls: dict[str, int] = {}
    for event in read(log)[1]:
        if isinstance(event.body, ToolCall):
            calls[event.body.call_id] = event.seq
        elif isinstance(event.body, ToolResult) and event.surface_op == "append":
            assert event.source_event_seqs == [calls[event.body.message.content[0].tool_call_id]]


def test_surface_operations_stand_on_the_surface_types_and_nowhere_else(log: Path) -> None:
    for event in read(log)[1]:
        assert (event.surface_op == "append" or hasattr(event.surface_op, "start")) == (
            event.body.type in SURFACE_TYPES)


def test_the_rule_made_title_stands_between_the_prompt_and_the_request_header(log: Path) -> None:
    bodies = [event.body for event in read(log)[1]]
    for at, body in enumerate(bodies):
        if isinstance(body, SessionTitle) and body.source.kind == "fallback":
            assert isinstance(bodies[at - 1], UserMessage)
            assert isinstance(bodies[at + 1], RequestHeader)


def test_packed_rows_have_three_members_or_more(log: Path) -> None:
    lines = read(log)[2]
    reader = codec.Reader(str(log))
    for line in lines[1:]:
        count = len(list(reader.read(line)))
        packed = not line.startswith(b'{"type":"') or b"/" not in line.split(b'"', 4)[3]
        assert count >= codec.MIN_RUN if packed else count == 1


def test_a_fork_boundary_stands_between_the_inherited_end_and_the_end_of_the_seed(log: Path) -> None:
    header, events, _ = read(log)
    if isinstance(header.seed_length, int):
        assert isinstance(events[header.seed_length - 1].body, TurnEnd)
        assert isinstance(events[header.seed_length].body, EndSeed)
        assert header.seed_length > len(read(log)[2]) // 2, "the boundary counts events, not lines"

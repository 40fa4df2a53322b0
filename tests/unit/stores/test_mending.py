"""Mending: whatever happened to a log, what is sound stays and the rest fits together again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acp_agent.errors import LogDamaged
from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session import codec
from acp_agent.session.events import (
    AssistantChunk,
    AssistantContent,
    AssistantMessage,
    BlockStart,
    Body,
    Chunk,
    Completed,
    ContentBlock,
    EndSeed,
    Event,
    Finish,
    FinishReason,
    Replace,
    SessionConfig,
    SessionHeader,
    Source,
    StepEnd,
    StepStart,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallBlock,
    ToolContent,
    ToolResult,
    ToolResultBlock,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from acp_agent.session.repair import closing
from acp_agent.session.state import SessionState
from acp_agent.stores.mending import LOST, Found, Mended, find_lines, found_record, mend
from tests.support.turn_laws import turn_laws

ROOT = Path(__file__).parents[3]
SAMPLES = [*sorted((ROOT / "golden").glob("*/session*.jsonl")),
           *sorted((ROOT.parent / "shared" / "recorded").glob("*/session*.jsonl"))]

# ---------------------------------------------------------------- a log to damage


class Log:
    """Builds a log event by event, lawfully."""

    def __init__(self, **header: Any) -> None:
        self.header = SessionHeader(id=SessionId("s"), created_at=5, cwd="/w", **header)
        self.events: list[Event] = []
        self.turn = self.step = 0

    def add(self, body: Body, cites: list[int] | None = None) -> int:
        surface = "append" if isinstance(body, UserMessage | AssistantMessage | ToolResult) else UNSET
        seq = len(self.events)
        self.events.append(Event(seq, 1000 + seq, body, UNSET if cites is None else cites,
                                 surface, True if body.ours else UNSET))  # type: ignore[arg-type]  # a literal
        return seq

    def start(self, text: str) -> None:
        self.turn, self.step = self.turn + 1, 0
        self.add(TurnStart(self.turn))
        self.begin_step()
        self.add(UserMessage((TextBlock(text),), Source("user"), "user", MessageId(f"u{self.turn}")))

    def begin_step(self) -> None:
        self.step += 1
        self.add(StepStart(self.turn, self.step))

    def answer(self, text: str, *calls: str) -> None:
        deltas = (TextDelta(0, piece) for piece in text)
        chunks: list[Chunk] = [BlockStart(0, "text"), *deltas, Finish(FinishReason("stop"))]
        cited = [self.add(AssistantChunk(self.turn, self.step, chunk)) for chunk in chunks]
        asked = (ToolCallBlock(CallId(call), "read", "{}") for call in calls)
        blocks: tuple[ContentBlock, ...] = (TextBlock(text), *asked)
        content = AssistantContent("assistant", blocks, Source("model"), MessageId(f"a{self.turn}.{self.step}"))
        self.add(AssistantMessage(self.turn, self.step, content), cited)

    def call(self, call: str) -> int:
        return self.add(ToolCall(self.turn, self.step, CallId(call), "read", "{}"))

    def result(self, call: str, started: int | None) -> None:
        block = ToolResultBlock(CallId(call), (TextBlock("done"),), is_error=False)
        message = ToolContent(Source("tool", call_id=CallId(call)), (block,), "user",
                              MessageId(f"r{self.turn}.{self.step}.{call}"))
        self.add(ToolResult(self.turn, self.step, message), None if started is None else [started])

    def end_step(self) -> None:
        self.add(StepEnd(self.turn, self.step))

    def end(self) -> None:
        self.end_step()
        self.add(TurnEnd(self.turn, Completed()))

    def bytes(self) -> bytes:
        return codec.encode_header(self.header) + codec.pack(self.events)


def two_turns(**header: Any) -> Log:
    """A turn with two calls at once and one after another, and a second one."""
    log = Log(**header)
    log.start("go")
    log.answer("hello", "a", "b")
    first, second = log.call("a"), log.call("b")
    log.add(SessionConfig("ask"))
    log.result("a", first)
    log.result("b", second)
    log.end_step()
    log.begin_step()
    log.answer("more", "a", "c")
    log.result("a", log.call("a"))
    log.result("c", None)
    log.end_step()
    log.begin_step()
    log.answer("done")
    log.end()
    if "seed_length" in header:
        log.add(EndSeed())
    log.start("again")
    log.answer("yes", "a")
    log.result("a", log.call("a"))
    log.end()
    return log


SEEDED = 39
"""How many events the first turn of `two_turns` has."""


def complete(path: Path) -> tuple[SessionHeader, list[Event]]:
    """A log of the repository or a recording, numbered and timed as a stored one is."""
    lines, _ = codec.split_lines(path.read_bytes())
    reader = codec.Reader(str(path))
    events = [event for line in lines[1:] for event in reader.read(line)]
    return (codec.decode_header(lines[0], str(path)),
            [msgspec.structs.replace(event, time=1000 + event.seq) for event in events])


@cache
def sample(number: int) -> tuple[SessionHeader, list[Event], bytes]:
    """One of the logs to damage: two that are made here, then what the repository holds."""
    if number < 2:
        log = two_turns() if number == 0 else two_turns(seed_length=SEEDED)
        return log.header, log.events, log.bytes()
    header, events = complete(SAMPLES[number - 2])
    return header, events, codec.encode_header(header) + codec.pack(events)


# ---------------------------------------------------------------- what must hold


def mended_lines(header: SessionHeader, mended: Mended) -> list[bytes]:
    packer = codec.Packer()
    for record in mended.records:
        packer.add_record(record)
    lines, torn = codec.split_lines(codec.encode_header(header) + packer.take_all())
    assert torn == b""
    return lines


def folded(header: SessionHeader, lines: Sequence[bytes]) -> SessionState:
    """The state that a continuation begins with: loaded, folded, closed."""
    reader, state = codec.Reader("mended"), SessionState(0 if header.seed_length is UNSET else header.seed_length)
    for line in lines[1:]:
        event = reader.settled(line)
        if event is not None:
            state.apply(event)
    state.settle(reader.count, reader.time)
    for event in closing(state):
        state.apply(event)
    return state


def unanswered(history: Iterable[Any]) -> list[str]:
    """Law 7 on a history: what is asked for and gets not exactly one result, in the order of the messages."""
    open_calls: list[str] = []
    wrong: list[str] = []
    for message in history:
        if isinstance(message, AssistantMessage):
            wrong += open_calls
            open_calls = [block.id for block in message.message.content if isinstance(block, ToolCallBlock)]
        elif isinstance(message, ToolResult):
            for block in message.message.content:
                if block.tool_call_id in open_calls:
                    open_calls.remove(block.tool_call_id)
                else:
                    wrong.append(f"result of {block.tool_call_id}")
    return wrong + open_calls


def nesting(records: Sequence[codec.Record]) -> list[str]:
    """The violations of the laws of turns, steps and tool calls; what a stream lacks cannot be made up."""
    found = turn_laws([json.loads(codec.encode_line(record)) for record in records], closed=False)
    return [problem for problem in found if problem.startswith("law 7") or "starts after" in problem
            or " ends in turn" in problem or "stands before that of" in problem]  # fmt: skip


def check(header: SessionHeader, mended: Mended) -> None:
    assert [record.seq for record in mended.records] == list(range(len(mended.records)))
    lines = mended_lines(header, mended)
    state = folded(header, lines)
    assert state.count >= len(mended.records)
    assert unanswered(state.history) == []
    again = mend(header, [Found("row", (record,)) for record in mended.records], "again")
    assert (list(again.records), again.changes, again.kept) == (list(mended.records), [], len(mended.records))


MAY_GO = {"tool/call", "tool/result", "turn/start", "turn/end", "step/start", "step/end"}


def check_kept(sound: Iterable[codec.Record], mended: Mended) -> None:
    """Every record that was readable is still there, byte for byte, unless it did not fit any more."""
    for record in sound:
        now = mended.records[record.seq] if record.seq < len(mended.records) else None
        if now is not None and now.type == record.type:
            assert (bytes(now.data), now.time, now.source_event_seqs, now.surface_op) == (
                bytes(record.data), record.time, record.source_event_seqs, record.surface_op)
        else:
            assert record.type in MAY_GO, (record, now)
            assert any("taken out" in change for change in mended.changes)


# ---------------------------------------------------------------- properties

WHICH = st.one_of(st.just(0), st.just(0), st.just(1), st.integers(0, len(SAMPLES) + 1))
GARBAGE = st.sampled_from([b"", b"nonsense", b"{}", b"[1]", b"\xff\xfe", b"\0" * 40, b'{"type":"turn/start","seq":3',
                           b'{"type":"turn/start","seq":-1,"time":1,"data":{"turn":1}}',
                           b'{"type":"turn/start","data":{"turn":1}}'])


def damage(draw: st.DrawFn, data: bytes) -> bytes:
    """The log after an accident; the header line is spared."""
    head, _, rest = data.partition(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        lines = rest.split(b"\n")
        at, other = (draw(st.integers(0, max(0, len(lines) - 2))) for _ in range(2))
        match draw(st.sampled_from(["drop", "double", "swap", "garbage", "nul", "cut", "flip", "join"])):
            case "drop":
                del lines[at:at + draw(st.integers(1, 4))]
            case "double":
                lines.insert(other, lines[at])
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "garbage":
                lines.insert(at, draw(GARBAGE))
            case "nul":
                start = draw(st.integers(0, len(rest)))
                length = draw(st.integers(1, 400))
                lines = (rest[:start] + b"\0" * min(length, len(rest) - start) + rest[start + length:]).split(b"\n")
            case "cut":
                lines = rest[:len(rest) - draw(st.integers(0, min(len(rest), 300)))].split(b"\n")
            case "flip":
                start = draw(st.integers(0, max(0, len(rest) - 1)))
                lines = (rest[:start] + draw(st.binary(min_size=1, max_size=3)) + rest[start + 1:]).split(b"\n")
            case _:
                lines[at:at + 2] = [b"".join(lines[at:at + 2])]
        rest = b"\n".join(lines)
    return head + b"\n" + rest


@st.composite
def accidents(draw: st.DrawFn) -> tuple[int, bytes]:
    number = draw(WHICH)
    return number, damage(draw, sample(number)[2])


@settings(deadline=None, max_examples=200)
@given(accidents())
def test_any_accident_is_mended(accident: tuple[int, bytes]) -> None:
    number, data = accident
    original = {event.seq: codec.to_record(event) for event in sample(number)[1]}
    header, found = find_lines(data, "log")
    sound = {record.seq: record for place in found for record in place.records if original.get(record.seq) == record}
    if not any(place.records for place in found):
        with pytest.raises(LogDamaged, match="nothing to keep"):
            mend(header, found, "log")
        return
    try:
        mended = mend(header, found, "log")
    except LogDamaged:
        assert header.seed_length is not UNSET
        return
    check(header, mended)
    forged = [record for place in found for record in place.records if original.get(record.seq) != record]
    if not forged:
        check_kept(sound.values(), mended)
        assert nesting(mended.records) == []


@pytest.mark.parametrize("number", range(len(SAMPLES) + 2))
def test_a_sound_log_is_left_alone(number: int) -> None:
    _, events, data = sample(number)
    header, found = find_lines(data, "log")
    mended = mend(header, found, "log")
    assert (mended.changes, mended.kept) == ([], len(events))
    assert b"\n".join([*mended_lines(header, mended), b""]) == data
    check(header, mended)


@pytest.mark.parametrize("number", [0, 1])
def test_any_one_event_may_be_lost(number: int) -> None:
    header, events, _ = sample(number)
    for lost in range(len(events) - 1):
        records = [codec.to_record(event) for event in events if event.seq != lost]
        mended = mend(header, [Found(f"row {record.seq}", (record,)) for record in records], "log")
        check(header, mended)
        check_kept(records, mended)
        assert nesting(mended.records) == [], events[lost]
        assert len(mended.records) == len(events)


@pytest.mark.parametrize("number", [0, 1])
def test_any_stretch_of_events_may_be_lost(number: int) -> None:
    header, events, _ = sample(number)
    for first in range(len(events) - 1):
        for last in range(first + 1, len(events) - 1, 7):
            records = [codec.to_record(event) for event in events if not first <= event.seq <= last]
            mended = mend(header, [Found(f"row {record.seq}", (record,)) for record in records], "log")
            check(header, mended)
            check_kept(records, mended)
            assert nesting(mended.records) == [], (first, last)


# ---------------------------------------------------------------- what a person is told

START = b'{"type":"turn/start","seq":%d,"time":9,"data":{"turn":1}}'
END = b'{"type":"turn/end","seq":%d,"time":9,"data":{"turn":1,"reason":{"kind":"completed"}}}'
NOTE = b'{"type":"plan/mode","seq":%d,"time":9,"data":{"at":%d}}'
HEAD = b'{"type":"session","version":0,"id":"s","createdAt":5,"cwd":"/w","delegationDepth":0}'
SOUND = [START % 0, NOTE % (1, 1), NOTE % (2, 2), NOTE % (3, 3), END % 4]


def mended(*lines: bytes, end: bytes = b"\n") -> Mended:
    header, found = find_lines(b"\n".join([HEAD, *lines]) + end, "log")
    result = mend(header, found, "log")
    check(header, result)
    return result


def rows(result: Mended) -> list[bytes]:
    return [codec.encode_line(record).rstrip(b"\n") for record in result.records]


@pytest.mark.parametrize(("garbage", "word"), [
    (b"", "truncated"), (b"nonsense", "malformed"), (b"[]", "object"), (b"\0" * 7, "7 NUL bytes"),
    (b"\xff", "malformed"),
    (b'{"type":"plan/mode","seq":2,"time":9,"data":{"a":"\xff"}}', "utf-8"),
    (b'{"type":"turn/start","seq":2,"time":9,"data":{}}', "turn"),
    (b'{"type":"turn/start","seq":-2,"time":9,"data":{"turn":1}}', "the number -2"),
    (b'{"type":"turn/start","time":9,"data":{"turn":1}}', "no number"),
    (b'{"type":"turn/start","seq":2,"data":{"turn":1}}', "only one of seq and time"),
])
def test_garbage_is_dropped_by_its_line_and_reason(garbage: bytes, word: str) -> None:
    result = mended(*SOUND[:2], garbage, *SOUND[2:])
    (change,) = result.changes
    assert change.startswith("line 4: dropped, for it is damaged: ")
    assert word in change
    assert (rows(result), result.kept) == (SOUND, 5)


def test_a_lost_event_keeps_its_number() -> None:
    result = mended(*SOUND[:2], *SOUND[4:])
    lost = b'{"type":"log/lost","seq":%d,"time":9,"data":{},"ignorable":true}'
    assert rows(result) == [*SOUND[:2], lost % 2, lost % 3, SOUND[4]]
    assert (result.changes, result.kept) == (["events 2 to 3: lost; marked as log/lost"], 3)


def test_swapped_events_are_put_in_order() -> None:
    result = mended(SOUND[0], SOUND[2], SOUND[1], *SOUND[3:])
    assert (rows(result), result.changes) == (SOUND, ["line 4: stood after later events; put in its place"])


def test_an_event_that_stands_twice_is_kept_once() -> None:
    result = mended(*SOUND[:3], SOUND[1], *SOUND[3:])
    assert (rows(result), result.changes) == (SOUND, ["line 5: dropped, the same as line 3"])


def test_of_two_events_with_one_number_the_first_is_kept() -> None:
    result = mended(*SOUND[:3], NOTE % (2, 9), *SOUND[3:])
    assert rows(result) == SOUND
    assert result.changes == ["line 5: dropped plan/mode 2, for line 4 holds another event of that number (plan/mode)"]


def test_an_unknown_type_is_kept_and_will_be_skipped() -> None:
    unknown = b'{"type":"new/thing","seq":2,"time":9,"data":{ "a":1}}'
    result = mended(*SOUND[:2], unknown, *SOUND[3:])
    assert rows(result)[2] == unknown[:-1] + b',"ignorable":true}'
    assert result.changes == ["event 2: its type 'new/thing' is not known here; marked as one to be skipped"]
    assert result.kept == 4


@pytest.mark.parametrize("eaten", [1, 5, len(SOUND[1]) + 1 + 20])
def test_what_stands_behind_a_run_of_nul_bytes_is_found(eaten: int) -> None:
    """The run swallows line ends: the end of one event, whole ones, the line end before a sound one."""
    data = b"\n".join(SOUND)
    before = len(SOUND[0]) + 1 + len(SOUND[1]) + 1  # the third event begins here
    result = mended(data[:before - eaten] + b"\0" * eaten + data[before:])
    assert set(rows(result)) >= {*SOUND[2:]}
    assert "NUL bytes" in result.changes[0]


def test_rows_without_a_line_end_between_them_are_taken_apart() -> None:
    result = mended(SOUND[0], SOUND[1] + SOUND[2], *SOUND[3:])
    assert rows(result) == SOUND
    (change,) = result.changes
    assert change.startswith("line 3: damaged (")
    assert change.endswith("kept its 2 rows")


def test_the_unfinished_end_of_a_row_is_dropped_and_what_follows_it_kept() -> None:
    result = mended(SOUND[0], SOUND[1][:-4] + SOUND[2], *SOUND[3:])
    assert rows(result)[2:] == SOUND[2:]
    assert result.changes[0].endswith("kept only the row that can be read")
    assert result.changes[1] == "event 1: lost; marked as log/lost"


def test_a_whole_last_row_without_its_line_end_is_kept() -> None:
    result = mended(*SOUND, end=b"")
    assert (rows(result), result.changes) == (SOUND, [])


def test_a_number_that_cannot_be_right_is_not_filled_up_to() -> None:
    result = mended(*SOUND, NOTE % (5 * 10**9, 5))
    assert rows(result) == SOUND
    assert result.changes == [f"line 7: dropped plan/mode {5 * 10**9}, for that number cannot be right after 5"]


def test_a_header_is_found_where_it_was_moved_to() -> None:
    header, found = find_lines(b"\n".join([SOUND[0], HEAD, *SOUND[1:], b""]), "log")
    result = mend(header, found, "log")
    assert (rows(result), header.id) == (SOUND, "s")
    assert result.changes == ["line 2: the header stood here; put first"]


@pytest.mark.parametrize("head", [b"", b"nonsense", b"\0" * 9, HEAD[:40], HEAD.replace(b'"version":0', b'"version":7')])
def test_without_a_header_nothing_is_mended(head: bytes) -> None:
    with pytest.raises(LogDamaged, match=r"^log:1: "):
        find_lines(b"\n".join([head, *SOUND, b""]), "log")


def test_a_record_of_a_store_is_looked_at_by_itself() -> None:
    def record(kind: str, seq: int, data: bytes) -> codec.Record:
        return codec.Record(kind, seq, 9, Raw(data))

    def reason(kind: str, seq: int, data: bytes) -> str | None:
        return found_record("row 2", record(kind, seq, data), "x.db").reason

    assert found_record("row 2", record("turn/start", 1, b'{"turn":1}'), "x.db").records
    assert found_record("row 2", record("new/thing", 1, b"{}"), "x.db").records
    assert reason("turn/start", -1, b'{"turn":1}') == "dropped, for it has the number -1"
    assert str(reason("turn/start", 1, b"{}")).startswith("dropped, for it is damaged: Object missing")


# ---------------------------------------------------------------- tool calls


def without(log: Log, *lost: int) -> Mended:
    """A log mended after it lost some events."""
    found = [Found(f"row {event.seq}", (codec.to_record(event),)) for event in log.events if event.seq not in lost]
    result = mend(log.header, found, "log")
    check(log.header, result)
    return result


def numbers(log: Log, kind: type[Body]) -> list[int]:
    return [event.seq for event in log.events if isinstance(event.body, kind)]


def body(result: Mended, seq: int) -> Any:
    return codec.to_event(result.records[seq], file="").body


def test_a_lost_result_becomes_one_with_an_unknown_outcome() -> None:
    log = two_turns()
    call, lost = numbers(log, ToolCall)[0], numbers(log, ToolResult)[0]
    result = without(log, lost)
    record, put = result.records[lost], body(result, lost)
    assert (record.type, record.source_event_seqs, record.surface_op) == ("tool/result", [call], "append")
    assert (put.error.code, put.message.content[0].tool_call_id) == ("TOOL_OUTCOME_UNKNOWN", "a")
    assert put.message.content[0].is_error
    assert result.changes == [f"event {lost}: filled with a lost tool/result, whose outcome is unknown"]


def test_a_lost_start_is_told_by_the_answer_and_the_result() -> None:
    log = two_turns()
    lost = numbers(log, ToolCall)[1]
    assert body(without(log, lost), lost) == log.events[lost].body


def test_with_the_answer_its_calls_and_results_go() -> None:
    log = two_turns()
    lost, starts, results = (numbers(log, kind) for kind in (AssistantMessage, ToolCall, ToolResult))
    result = without(log, lost[0])
    for seq in (lost[0], *starts[:2], *results[:2]):
        assert result.records[seq].type == LOST
    assert sum("taken out" in change for change in result.changes) == 2


def test_a_call_without_room_for_a_result_goes_with_its_answer() -> None:
    """No log loses events like this; one that was written wrongly may be like this."""
    log = Log()
    log.start("go")
    log.answer("hello", "a", "b")
    log.result("a", log.call("a"))
    log.end()
    result = without(log)
    assert result.records[numbers(log, AssistantMessage)[0]].type == LOST
    assert result.records[numbers(log, ToolResult)[0]].type == LOST


def test_calls_of_a_turn_that_is_open_still_are_left_to_the_load() -> None:
    log = Log()
    log.start("go")
    log.answer("hello", "a", "b")
    log.call("a")
    assert without(log).changes == []


def test_a_result_that_stood_in_for_a_lost_one_goes() -> None:
    log = two_turns()
    pruned = numbers(log, ToolResult)[0]
    again = log.events[pruned]
    log.events.append(msgspec.structs.replace(again, seq=len(log.events), source_event_seqs=[pruned],
                                              surface_op=Replace("replace", pruned, pruned)))
    last = len(log.events) - 1
    assert without(log).changes == []
    assert without(log, numbers(log, AssistantMessage)[0]).records[last].type == LOST
    kept = without(log, pruned)
    assert (kept.records[last].type, kept.records[pruned].type) == ("tool/result", "tool/result")


# ---------------------------------------------------------------- turns and the seed


@pytest.mark.parametrize("kind", [TurnStart, TurnEnd, StepStart, StepEnd])
def test_a_lost_beginning_or_end_is_put_back(kind: type[Body]) -> None:
    log = two_turns()
    lost = numbers(log, kind)[0]
    result = without(log, lost)
    assert result.records[lost].type == kind.type
    assert result.changes == [f"event {lost}: filled with a lost {kind.type}"]


def test_the_seed_boundary_is_put_back_where_the_header_says_it_is() -> None:
    log = two_turns(seed_length=SEEDED)
    result = without(log, SEEDED - 2, SEEDED - 1, SEEDED)
    assert [record.type for record in result.records[SEEDED - 2:SEEDED + 1]] == [
        "step/end", "turn/end", "session/end-seed"]


def test_a_log_that_ends_before_its_boundary_is_refused_with_both_numbers() -> None:
    log = two_turns(seed_length=SEEDED)
    with pytest.raises(LogDamaged, match=rf"{SEEDED} events were inherited.* only {SEEDED - 1}"):
        without(log, *range(SEEDED - 1, len(log.events)))


def test_a_boundary_that_never_fitted_is_not_made_up() -> None:
    log = two_turns(seed_length=SEEDED)
    log.header = msgspec.structs.replace(log.header, seed_length=SEEDED - 3)
    with pytest.raises(LogDamaged, match=rf"{SEEDED - 3} of {len(log.events)} events were inherited"):
        without(log)

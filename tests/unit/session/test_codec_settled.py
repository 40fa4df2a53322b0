"""Loading for a continuation sees the same log as reading does: same refusals, same numbers, only fewer events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acp_agent.errors import LogDamaged
from acp_agent.ids import CallId
from acp_agent.session import codec
from acp_agent.session.events import (
    KNOWN_TYPES,
    AssistantChunk,
    Event,
    Finish,
    FinishReason,
    Opaque,
    TextDelta,
    ToolCallDelta,
    TurnStart,
)
from acp_agent.session.settling import GAP_BITS
from tests.unit.session.test_codec_packing import events_of, logs

TURN = b'{"type":"turn/start","seq":0,"time":9,"data":{"turn":1}}'
ROW = (b'{"type":"text-chunks","seq0":0,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,2],'
       b'"texts":["a","b","c"]}}')
TOOL_ROW = (b'{"type":"tool-call-chunks","seq0":0,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,2],'
            b'"id":"c","name":"read","args":["a","b","c"]}}')
MESSAGE = (b'{"type":"user/message","seq":0,"time":9,"data":{"content":[{"type":"text","text":"t"}],"source":'
           b'{"kind":"user"},"role":"user","id":"m"},"surfaceOp":"append"}')
SAMPLES = [TURN, ROW, TOOL_ROW, MESSAGE, ROW.replace(b"text-", b"reasoning-"),
           b'{"type":"plan/mode","seq":0,"time":9,"data":{"on":true}}',
           b'{"type":"new/thing","seq":0,"time":9,"data":{"a": 1},"ignorable":true}',
           b'{"type":"turn/start","data":{"turn":1}}']


class Outcome(msgspec.Struct):
    """What a reader made of some lines: the events up to a refusal, that refusal, and where it stands."""

    events: list[Event]
    refusal: str | None
    count: int
    time: int


def settled_of(event: Event) -> bool:
    return not isinstance(event.body, AssistantChunk) or isinstance(event.body.chunk, Finish)


def by_reading(lines: Sequence[bytes]) -> Outcome:
    reader, events = codec.Reader("log"), list[Event]()
    try:
        for line in lines:
            events += [msgspec.structs.replace(event, source_event_seqs=UNSET) for event in reader.read(line)
                       if settled_of(event)]
    except LogDamaged as error:
        return Outcome(events, str(error), reader.count, reader.time)
    return Outcome(events, None, reader.count, reader.time)


def by_settling(lines: Sequence[bytes]) -> Outcome:
    reader, events = codec.Reader("log"), list[Event]()
    try:
        for line in lines:
            event = reader.settled(line)
            if event is not None:
                events.append(event)
    except LogDamaged as error:
        return Outcome(events, str(error), reader.count, reader.time)
    return Outcome(events, None, reader.count, reader.time)


def at_once(lines: Sequence[bytes]) -> Outcome:
    reader = codec.Reader("log")
    try:
        events = reader.settle(b"".join(line + b"\n" for line in lines)) if lines else []
    except LogDamaged as error:
        return Outcome([], str(error), reader.count, reader.time)
    return Outcome(events, None, reader.count, reader.time)


def by_records(lines: Sequence[bytes]) -> Outcome:
    reader, events = codec.Reader("log"), list[Event]()
    try:
        for line in lines:
            for record in reader.records(line):
                event = codec.to_event(record, file="log")
                if settled_of(event):
                    events.append(msgspec.structs.replace(event, source_event_seqs=UNSET))
    except LogDamaged as error:
        return Outcome(events, str(error), reader.count, reader.time)
    return Outcome(events, None, reader.count, reader.time)


def agree(lines: Sequence[bytes]) -> Outcome:
    outcome = by_reading(lines)
    assert by_settling(lines) == outcome
    assert by_records(lines) == outcome
    together = at_once(lines)
    assert together == (outcome if outcome.refusal is None else msgspec.structs.replace(outcome, events=[]))
    return outcome


# ---------------------------------------------------------------- sound logs


@settings(deadline=None, max_examples=60)
@given(logs())
def test_a_sound_log_settles_to_all_but_its_chunks(events: list[Event]) -> None:
    outcome = agree(codec.split_lines(codec.pack(events))[0])
    assert outcome.events == [event for event in events if settled_of(event)]
    assert outcome.refusal is None
    assert (outcome.count, outcome.time) == (len(events), events[-1].time if events else 0)


def test_citations_are_left_out_and_what_shapes_history_stays() -> None:
    line = MESSAGE.replace(b',"surfaceOp"', b',"sourceEventSeqs":[],"surfaceOp"')
    (event,) = agree([line]).events
    assert (event.source_event_seqs, event.surface_op) == (UNSET, "append")


@pytest.mark.parametrize("kind", sorted(KNOWN_TYPES))
def test_no_type_is_told_apart(kind: str) -> None:
    agree([b'{"type":"%s","seq":0,"time":9,"data":{ "turn": 1, "step": 2 },"ignorable":true}' % kind.encode()])


def test_an_event_that_is_not_modelled_is_kept_as_it_stands() -> None:
    (event,) = agree([b'{"type":"plan/mode","seq":0,"time":9,"data":{ "on":true }}']).events
    assert isinstance(event.body, Opaque)
    assert (event.body.type, bytes(event.body.raw)) == ("plan/mode", b'{ "on":true }')


def test_of_the_chunks_only_finish_is_kept() -> None:
    finish = AssistantChunk(1, 1, Finish(FinishReason("stop")))
    events = events_of([TurnStart(1), AssistantChunk(1, 1, TextDelta(0, "a")), finish])
    assert agree(codec.split_lines(codec.pack(events))[0]).events == [events[0], events[2]]


@pytest.mark.parametrize("gap", [2**GAP_BITS, 2**GAP_BITS + 1, -(2**GAP_BITS) - 1, 2**52, 2**53, 2**64, 10**30])
def test_long_gaps_are_judged_alike(gap: int) -> None:
    agree([ROW.replace(b"[1,2]", b"[%d,2]" % gap), TURN.replace(b'"seq":0', b'"seq":3')])


def test_times_may_come_back_to_where_they_are_safe() -> None:
    assert agree([ROW.replace(b"[1,2]", b"[%d,%d]" % (2**52, -(2**52)))]).refusal is None
    assert agree([ROW.replace(b"[1,2]", b"[%d,%d]" % (2**53, -(2**53)))]).refusal is not None


# ---------------------------------------------------------------- damage

REPLACEMENTS = [b"", b"0", b"7", b"-1", b"null", b"true", b'"x"', b"[]", b"{}", b"1.5", b"\x00", b"\xff", b"\xc3\xa9",
                b'"', b",", b"]", b"}", b'"seq":0', b'"type":"x"', b'"extra":1,', b"[" * 3000, b"9" * 20, b"\\ud800"]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sample with a few pieces of it cut out or put in."""
    line = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(0, 3))):
        at, length = draw(st.integers(0, len(line))), draw(st.integers(0, 6))
        line = line[:at] + draw(st.sampled_from(REPLACEMENTS)) + line[at + length:]
    return line


def set_at(value: Any, path: Sequence[int], new: Any) -> Any:
    """A copy of a JSON value with the member that `path` picks replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = set_at(value[key], path[1:], new)
    return copy


ODD = st.sampled_from([None, True, 0, 1, -1, 2**53, 2**64, 10**30, 1.0, 1.5, "x", "", [], {}, ["a"], [1], {"a": 1}])


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """A sample that is JSON still, with a value in it exchanged."""
    value = json.loads(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 2))):
        value = set_at(value, draw(st.lists(st.integers(0, 5), max_size=4)), draw(ODD))
    return json.dumps(value).encode()


@settings(deadline=None, max_examples=400)
@given(st.lists(st.one_of(st.sampled_from(SAMPLES), mutated(), altered(), st.binary(max_size=8)), max_size=3))
def test_any_lines_are_refused_alike(lines: list[bytes]) -> None:
    agree([part for line in lines for part in line.split(b"\n")])


def test_a_line_is_refused_by_its_own_number() -> None:
    reader = codec.Reader("log")
    reader.settled(TURN)
    reader.settled(ROW.replace(b'"seq0":0', b'"seq0":1'))
    with pytest.raises(LogDamaged) as caught:
        reader.settled(b"nonsense")
    assert caught.value.line == 4


@pytest.mark.parametrize("line", [
    b'{"type":"plan/mode","seq":0,"time":9,"data":{"a":"\xff"}}',
    TURN.replace(b'{"turn":1}', b'{"turn":1,"\xff":0}'),
    TURN.replace(b'"data"', b'"\xff":0,"data"'),
    b'{"type":"user/message","seq":0,"time":9,"data":{"content":[{"type":"image","attachment":"\xff"}],"source":'
    b'{"kind":"user"},"role":"user","id":"m"}}',
], ids=["opaque", "in data", "in the record", "image"])
def test_invalid_utf8_is_refused_wherever_it_stands(line: bytes) -> None:
    assert "utf-8" in str(agree([line]).refusal)


# ---------------------------------------------------------------- records


@settings(deadline=None, max_examples=60)
@given(logs())
def test_records_pack_to_the_same_bytes_as_events(events: list[Event]) -> None:
    packer, again = codec.Packer(), codec.Packer()
    reader = codec.Reader("log")
    for event in events:
        packer.add_record(codec.to_record(event))
    rows = packer.take_all()
    assert rows == codec.pack(events)
    for line in codec.split_lines(rows)[0]:
        for record in reader.records(line):
            again.add_record(record)
    assert again.take_all() == rows


@settings(deadline=None, max_examples=60)
@given(logs())
def test_an_event_becomes_a_record_and_back(events: list[Event]) -> None:
    assert [codec.to_event(codec.to_record(event), file="log") for event in events] == events


def test_the_data_of_a_record_is_what_stands_in_the_log() -> None:
    line = b'{"type":"turn/start","seq":0,"time":9,"data":{ "turn" : 1, "more":[ ] }}'
    (record,) = codec.Reader("log").records(line)
    assert bytes(record.data) == b'{ "turn" : 1, "more":[ ] }'
    packer = codec.Packer()
    packer.add_record(record)
    assert packer.take_all() == line + b"\n"


@pytest.mark.parametrize("extra", [b'"text":"x","more":1', b'"text":"x"},"more":{'])
def test_a_delta_that_a_row_cannot_hold_in_full_stays_a_record(extra: bytes) -> None:
    data = b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,%s}}' % extra
    packer = codec.Packer()
    for seq in range(4):
        packer.add_record(codec.Record("assistant/chunk", seq, 9, Raw(data)))
    assert packer.take_all().count(data) == 4


def test_a_delta_without_its_piece_stays_a_record() -> None:
    data = b'{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":0,"id":"c"}}'
    packer = codec.Packer()
    for seq in range(4):
        packer.add_record(codec.Record("assistant/chunk", seq, 9, Raw(data)))
    assert packer.take_all().count(data) == 4


@pytest.mark.parametrize("time", [2**53 - 1, -(2**53) + 1, 2**52])
def test_what_is_packed_can_be_read(time: int) -> None:
    body = AssistantChunk(1, 1, ToolCallDelta(0, CallId("c"), UNSET, "x"))
    events = [Event(0, time, body), Event(1, -time, body), Event(2, time, body)]
    assert agree(codec.split_lines(codec.pack(events))[0]).count == 3


@pytest.mark.parametrize(("kind", "data", "part"), [
    ("turn/start", b"{}", "turn"), ("new/thing", b"{}", "unknown event type 'new/thing' at seq 0"),
    ("plan/mode", b"{", "truncated"), ("text-chunks", b"{}", "unknown event type"),
    ("turn/start", b'{"turn":"\xff"}', "utf-8"),
    ("turn/start", b"[" * 200_000 + b"]" * 200_000, ""),
], ids=["body", "unknown", "not JSON", "packed", "not UTF-8", "deep"])
def test_a_record_that_is_not_an_event_is_refused(kind: str, data: bytes, part: str) -> None:
    with pytest.raises(LogDamaged) as caught:
        codec.to_event(codec.Record(kind, 0, 9, Raw(data)), file="some.db", line=12)
    assert str(caught.value).startswith("some.db:12: ")
    assert part in str(caught.value)


def test_an_unknown_type_is_an_event_to_whoever_wants_it() -> None:
    record = codec.Record("new/thing", 0, 9, Raw(b"{}"))
    assert codec.to_event(record, file="x", refuse_unknown=False).body.type == "new/thing"


# ---------------------------------------------------------------- many lines at once

SECOND = TURN.replace(b'"seq":0', b'"seq":1')


@pytest.mark.parametrize("lines", [
    [TURN + b" " + SECOND, b""], [TURN + SECOND, b""], [b"", TURN + SECOND], [TURN[:20], TURN[20:] + SECOND],
    [TURN[:-1], b"}", SECOND], [TURN, SECOND + b" ", b" "], [TURN + b"\r", SECOND + b"\r"], [TURN, b"", SECOND],
    [TURN.replace(b"{\"turn\":1}", b'{"turn":1,"x":"}'), b'{"}}', SECOND + SECOND],
])
def test_as_many_values_as_lines_are_not_one_on_each(lines: list[bytes]) -> None:
    agree(lines)

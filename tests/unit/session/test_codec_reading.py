"""What the codec refuses, each time naming the file and the line."""

from __future__ import annotations

import pytest

from acp_agent.errors import LogDamaged
from acp_agent.session import codec
from acp_agent.session.events import BODIES, KNOWN_TYPES, Event, Opaque, TextDelta, TurnStart

HEADER = b'{"type":"session","version":0,"id":"s","createdAt":5,"cwd":"/w","delegationDepth":0}'
TURN = b'{"type":"turn/start","seq":0,"time":9,"data":{"turn":1}}'
ROW = (b'{"type":"text-chunks","seq0":0,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,2],'
       b'"texts":["a","b","c"]}}')
TOOL_ROW = (b'{"type":"tool-call-chunks","seq0":0,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,2],'
            b'"id":"c","name":"read","args":["a","b","c"]}}')


def read(*lines: bytes, refuse_unknown: bool = True) -> list[Event]:
    reader = codec.Reader("some.jsonl", refuse_unknown=refuse_unknown)
    return [event for line in lines for event in reader.read(line)]


def refusal(*lines: bytes) -> str:
    """The message that refuses the last of `lines`: it begins with the file and that line's number."""
    with pytest.raises(LogDamaged) as caught:
        read(*lines)
    number = len(lines) + 1  # the header is line 1
    assert str(caught.value).startswith(f"some.jsonl:{number}: ")
    assert (caught.value.file, caught.value.line) == ("some.jsonl", number)
    assert caught.value.facts == {"file": "some.jsonl", "line": number}
    return str(caught.value)


# ---------------------------------------------------------------- the header


def header_refusal(line: bytes) -> str:
    with pytest.raises(LogDamaged) as caught:
        codec.decode_header(line, "some.jsonl")
    assert str(caught.value).startswith("some.jsonl:1: ")
    return str(caught.value)


def test_a_newer_version_is_refused_with_the_advice_to_upgrade() -> None:
    message = header_refusal(HEADER.replace(b'"version":0', b'"version":3'))
    assert "3" in message
    assert "upgrade acp-replay" in message


def test_an_older_version_is_refused_without_a_promise() -> None:
    message = header_refusal(HEADER.replace(b'"version":0', b'"version":-1'))
    assert "no way to upgrade" in message
    assert "upgrade acp-replay" not in message


def test_the_version_is_looked_at_before_anything_else_is() -> None:
    assert "format 7" in header_refusal(b'{"type":"session","version":7,"id":[],"sandboxMode":"x"}')


@pytest.mark.parametrize("version", [b"true", b"0.0", b'"0"', b"null", b"[]"])
def test_a_version_that_is_not_the_integer_zero_is_refused(version: bytes) -> None:
    assert "is not supported" in header_refusal(HEADER.replace(b'"version":0', b'"version":' + version))


@pytest.mark.parametrize("key", ["sandboxMode", "approvalPolicy"])
@pytest.mark.parametrize("value", [b"null", b'"full"', b"{}"])
def test_a_retired_header_key_makes_the_log_unreadable(key: str, value: bytes) -> None:
    assert key in header_refusal(HEADER[:-1] + b',"' + key.encode() + b'":' + value + b"}")


@pytest.mark.parametrize(("old", "new"), [
    (b'"type":"session"', b'"type":"turn/start"'),
    (b'"createdAt":5', b'"createdAt":1.5'),
    (b'"createdAt":5', b'"createdAt":-1'),
    (b'"createdAt":5,', b""),
    (b'"id":"s"', b'"id":""'),
    (b'"id":"s",', b""),
    (b'"cwd":"/w"', b'"cwd":null'),
    (b'"delegationDepth":0', b'"delegationDepth":-1'),
    (b'"delegationDepth":0', b'"delegationDepth":0,"seedLength":-1'),
    (b'"delegationDepth":0', b'"delegationDepth":0,"seedLength":null'),
    (b'"delegationDepth":0', b'"delegationDepth":0,"origin":"elsewhere"'),
    (b'"delegationDepth":0', b'"delegationDepth":0,"spawn":{"callId":"c"}'),
    (HEADER, b""), (HEADER, b"[]"), (HEADER, b"{}"), (HEADER, b"nonsense"), (HEADER, b"\xff\xfe"),
    (HEADER, HEADER[:-1]),
])
def test_a_malformed_header_is_refused(old: bytes, new: bytes) -> None:
    assert old in HEADER
    header_refusal(HEADER.replace(old, new))


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("line", [
    b"", b"   ", b"nonsense", b"[]", b"7", b"null", b"\xff", b'{"type":"turn/start', TURN[:-1], TURN + TURN,
    TURN.replace(b'"type":"turn/start",', b""),
    TURN.replace(b',"data":{"turn":1}', b""),
    TURN.replace(b'{"turn":1}', b"{}"),
    TURN.replace(b'"turn":1', b'"turn":"1"'),
    TURN.replace(b'"turn":1', b'"turn":1.5'),
    TURN.replace(b'"time":9', b'"time":9.5'),
    TURN.replace(b'"time":9', b'"time":null'),
    TURN.replace(b'"seq":0', b'"seq":"0"'),
    b'{"type":"assistant/chunk","seq":0,"time":9,"data":{"turn":1,"step":1,"chunk":{"type":"odd","index":0}}}',
    b'{"type":"user/message","seq":0,"time":9,"data":{"content":[],"source":{"kind":"user"},"role":"boss","id":"m"}}',
    b'{"type":"request/header","seq":0,"time":9,"data":{"header":{"config":{"provider":"p","model":"m"}},'
    b'"reason":"fallback"}}',
])
def test_a_malformed_record_is_refused(line: bytes) -> None:
    refusal(line)


def test_the_line_named_is_the_one_that_is_wrong() -> None:
    refusal(TURN, TURN.replace(b'"seq":0', b'"seq":1'), b"nonsense")


@pytest.mark.parametrize("seq", [0, 2, -1])
def test_a_seq_that_is_not_the_next_one_is_refused_with_both_numbers(seq: int) -> None:
    message = refusal(TURN, TURN.replace(b'"seq":0', b'"seq":%d' % seq))
    assert f"seq {seq} where 1 was expected" in message


def test_a_packed_row_counts_as_all_its_members() -> None:
    assert [event.seq for event in read(ROW, TURN.replace(b'"seq":0', b'"seq":3'))] == [0, 1, 2, 3]
    assert "3 was expected" in refusal(ROW, TURN.replace(b'"seq":0', b'"seq":1'))


@pytest.mark.parametrize(("old", "new"), [
    (b'"dt":[1,2]', b'"dt":[1]'),
    (b'"dt":[1,2]', b'"dt":[1,2,3]'),
    (b'"dt":[1,2]', b'"dt":[1,2.5]'),
    (b'"dt":[1,2]', b'"dt":[1,null]'),
    (b'"dt":[1,2],', b""),
    (b'"seq0":0', b'"seq0":0.5'),
    (b'"seq0":0,', b""),
    (b'"time0":9,', b""),
    (b'"index":0', b'"index":0,"extra":0'),
    (b'"index":0,', b""),
])
@pytest.mark.parametrize("row", [ROW, TOOL_ROW], ids=["text", "tool call"])
def test_a_malformed_packed_row_is_refused(row: bytes, old: bytes, new: bytes) -> None:
    assert old in row
    refusal(row.replace(old, new))


@pytest.mark.parametrize("row", [
    ROW.replace(b'"dt":[1,2]', b'"dt":[]').replace(b'["a","b","c"]', b"[]"),
    ROW.replace(b'"b"', b"7"),
    TOOL_ROW.replace(b'["a","b","c"]', b'["a",null,"c"]'),
    ROW.replace(b'"texts"', b'"args"'),
    TOOL_ROW.replace(b'"id":"c",', b""),
    TOOL_ROW.replace(b'"name":"read"', b'"name":null'),
])
def test_a_packed_row_with_the_wrong_payload_is_refused(row: bytes) -> None:
    refusal(row)


def test_gaps_may_run_backwards() -> None:
    assert [event.time for event in read(ROW.replace(b"[1,2]", b"[-9,4]"))] == [9, 0, 4]


# ---------------------------------------------------------------- complete and projected


def test_a_projected_log_is_numbered_and_has_the_time_zero() -> None:
    turn = TURN.replace(b'"seq":0,"time":9,', b"")
    events = read(turn, ROW.replace(b'"seq0":0,"time0":9,', b""), turn)
    assert [(event.seq, event.time) for event in events] == [(0, 0), (1, 0), (2, 1), (3, 3), (4, 0)]
    assert [type(event.body) for event in (events[0], events[4])] == [TurnStart, TurnStart]


@pytest.mark.parametrize("first", [TURN, ROW], ids=["record", "row"])
def test_a_log_is_not_partly_projected(first: bytes) -> None:
    assert "one or the other" in refusal(first, b'{"type":"turn/start","data":{"turn":1}}')


def test_a_projected_log_does_not_turn_complete() -> None:
    assert "one or the other" in refusal(b'{"type":"turn/start","data":{"turn":1}}', TURN)


@pytest.mark.parametrize("missing", [b'"seq":0,', b'"time":9,'])
def test_a_record_with_only_one_of_seq_and_time_is_refused(missing: bytes) -> None:
    refusal(TURN.replace(missing, b""))


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("kind", ["mode/set", "request/header-delta", "steering/message", "text-chunk", ""])
def test_an_unknown_type_is_refused_naming_type_seq_and_line(kind: str) -> None:
    message = refusal(TURN, b'{"type":"%s","seq":1,"time":9,"data":{}}' % kind.encode())
    assert repr(kind) in message
    assert "seq 1" in message


def test_an_unknown_type_that_may_be_ignored_is_kept_as_it_stands() -> None:
    line = b'{"type":"new/thing","seq":0,"time":9,"data":{"a": 1},"ignorable":true}'
    (event,) = read(line)
    assert isinstance(event.body, Opaque)
    assert bytes(event.body.raw) == b'{"a": 1}'
    assert event.ignorable is True


def test_a_replay_reads_unknown_types_too() -> None:
    (event,) = read(b'{"type":"new/thing","seq":0,"time":9,"data":{}}', refuse_unknown=False)
    assert event.body.type == "new/thing"


def test_every_type_of_the_format_loads() -> None:
    kinds = sorted(kind for kind in KNOWN_TYPES if kind not in BODIES)
    assert len(kinds) == 29
    for kind in kinds:
        (event,) = read(b'{"type":"%s","seq":0,"time":9,"data":{}}' % kind.encode())
        assert isinstance(event.body, Opaque)


# ---------------------------------------------------------------- lines


def test_lines_are_cut_at_line_feeds_only() -> None:
    data = '{"a":"\u2028\u0085\x0b\r"}\n{"b":1}\n{"c'.encode()
    assert codec.split_lines(data) == (['{"a":"\u2028\u0085\x0b\r"}'.encode(), b'{"b":1}'], b'{"c')


def test_a_separator_inside_a_text_stays_in_it() -> None:
    (event,) = read('{"type":"assistant/chunk","seq":0,"time":9,"data":{"turn":1,"step":1,"chunk":'
                    '{"type":"text-delta","index":0,"text":"a\u2028b"}}}'.encode())
    assert event.body.chunk == TextDelta(0, "a\u2028b")  # type: ignore[union-attr]  # it is a chunk

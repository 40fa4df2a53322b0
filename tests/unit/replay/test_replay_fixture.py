"""Reading replay directories: what is a recording, how its events are counted, and every way it can be broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.ids import CallId
from acp_agent.session import codec
from acp_agent.session.events import AssistantChunk, Chunk, Event, ReasoningDelta, TextDelta, ToolCallDelta
from replay import fixture
from replay.problems import Findings
from replay.rows import ChunkRow, OtherRow, TextRow, packed_fault
from replay.stream import expand, timed
from tests.unit.replay.recordings import Log, answers


def load(directory: Path) -> list[fixture.Recording]:
    findings = Findings()
    recordings = fixture.load(directory, findings)
    assert [str(fault) for fault in findings.faults] == []
    return recordings


def fault(directory: Path) -> str:
    """The one thing that is wrong with a directory."""
    findings = Findings()
    fixture.load(directory, findings)
    (found,) = findings.faults
    return str(found)


def body(directory: Path, *lines: bytes, header: dict[str, Any] | None = None) -> Path:
    path = directory / "session.jsonl"
    start = msgspec.json.encode(Log("a").header | (header or {}))
    path.write_bytes(start + b"\n" + b"".join(lines))
    return path


def packed(**changes: Any) -> bytes:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [1, 2], "texts": ["a", "b", "c"]} | changes
    row = {"type": "text-chunks", "data": {key: value for key, value in data.items() if value != "absent"}}
    return msgspec.json.encode(row) + b"\n"


# ---------------------------------------------------------------- what is a recording


def test_every_file_that_begins_with_a_session_header_is_a_recording(tmp_path: Path) -> None:
    names = {"session.jsonl": "a", "session.10.jsonl": "c", "session.2.jsonl": "b", "x.jsonl": "d"}
    for name, session in names.items():
        answers(session, "hello").write(tmp_path, name)
    (tmp_path / "stdout.jsonl").write_text('{"jsonrpc":"2.0"}\n')
    (tmp_path / "stdout.expected.jsonl").write_text("")
    (tmp_path / "notes.txt").write_text("no log")
    (tmp_path / "folder.jsonl").mkdir()
    assert [recording.name for recording in load(tmp_path)] == ["a", "b", "c", "d"]


def test_a_log_of_a_header_alone_is_a_recording_without_events(tmp_path: Path) -> None:
    (tmp_path / "session.jsonl").write_bytes(Log("a").lines()[0].rstrip(b"\n"))
    (recording,) = load(tmp_path)
    assert (recording.count, list(recording.own_rows())) == (0, [])


def test_blank_lines_count_for_line_numbers_only(tmp_path: Path) -> None:
    lines = answers("a", "hello").lines()
    (tmp_path / "session.jsonl").write_bytes(b"\n \n" + lines[0] + b"\n" + b"\r\n".join(lines[1:]))
    (recording,) = load(tmp_path)
    assert recording.count == len(lines) - 1
    assert [recording.line(row) for row in (0, 1)] == [5, 7]


def test_records_are_split_at_newlines_only(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d\x0b"
    raw = msgspec.json.encode({"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": {
        "type": "text-delta", "index": 0, "text": text}}}) + b"\n"
    body(tmp_path, raw)
    (recording,) = load(tmp_path)
    (row,) = recording.rows
    assert isinstance(row, ChunkRow)
    assert row.data.chunk == TextDelta(0, text)


def test_events_of_unknown_types_are_accepted_and_counted(tmp_path: Path) -> None:
    body(tmp_path, b'{"type":"weather/report","data":{}}\n', packed(), b'{"type":"todo/write","data":{}}\n')
    (recording,) = load(tmp_path)
    assert isinstance(recording.rows[0], OtherRow)
    assert recording.count == 5


def test_packed_rows_stay_packed_and_count_singly(tmp_path: Path) -> None:
    body(tmp_path, packed())
    (recording,) = load(tmp_path)
    (row,) = recording.rows
    assert isinstance(row, TextRow)
    assert recording.count == 3


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    body(tmp_path, packed(), b'{"type":"turn/end","data":{"tu')
    assert [recording.count for recording in load(tmp_path)] == [3]


def test_a_last_line_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    body(tmp_path, packed(), b'{"type":"turn/start","data":{"turn":1}}')
    assert [recording.count for recording in load(tmp_path)] == [4]


def test_sessions_whose_ids_were_taken_out_are_named_by_their_files(tmp_path: Path) -> None:
    for name in ("session.jsonl", "session.1.jsonl"):
        answers("{{sessionId}}", "hello").write(tmp_path, name)
    assert [recording.name for recording in load(tmp_path)] == ["session.jsonl", "session.1.jsonl"]


def test_complete_and_projected_logs_hold_the_same_rows(tmp_path: Path) -> None:
    log = answers("a", "hello", "again")
    log.write(tmp_path, complete=False)
    (projected,) = load(tmp_path)
    log.write(tmp_path, complete=True)
    (complete,) = load(tmp_path)
    assert projected.count == complete.count
    assert [type(row) for row in projected.rows] == [type(row) for row in complete.rows]


def test_a_log_longer_than_one_slab_is_numbered_throughout(tmp_path: Path) -> None:
    log = Log("a")
    for number in range(2000):
        log.chunk(1, 1, {"type": "text-delta", "index": 0, "text": f"piece {number}"})
    for complete in (False, True):
        log.write(tmp_path, complete=complete)
        (recording,) = load(tmp_path)
        assert recording.count == 2000
        assert recording.line(1999) == 2001


# ---------------------------------------------------------------- broken directories


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    assert "does not exist; name a directory of session logs" in fault(tmp_path / "nowhere")


def test_a_file_in_the_place_of_a_directory_is_told(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.touch()
    assert fault(file).startswith(f"{file}: this is a file")


def test_an_empty_directory_is_told(tmp_path: Path) -> None:
    assert "holds no recorded session; put a session.jsonl there" in fault(tmp_path)


def test_a_directory_of_other_logs_is_told_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "stdout.jsonl").write_text("{}\n")
    assert "holds no recorded session (stdout.jsonl: no session header" in fault(tmp_path)


def test_an_unreadable_log_is_told(tmp_path: Path) -> None:
    (tmp_path / "session.jsonl").symlink_to("session.jsonl")
    assert "the log cannot be read (Too many levels of symbolic links); check" in fault(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"type":"turn/start","data":{"turn":1}}\n', b"not json\n"])
def test_a_session_log_without_a_header_is_told(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "session.jsonl"
    file.write_bytes(content)
    assert fault(tmp_path).startswith(f"{file}:1: the first line is not a session header; restore")


@pytest.mark.parametrize(("version", "advice"), [(1, "upgrade acp-replay"), (-1, "no way to upgrade")])
def test_another_format_version_is_refused_with_the_direction(tmp_path: Path, version: int, advice: str) -> None:
    body(tmp_path, header={"version": version})
    assert advice in fault(tmp_path)


def test_two_recordings_of_one_session_are_told(tmp_path: Path) -> None:
    answers("a", "hello").write(tmp_path, "session.jsonl")
    second = answers("a", "hello").write(tmp_path, "session.1.jsonl")
    assert fault(tmp_path) == f"{second}:1: session.jsonl has the same session id a; remove one of them"


# ---------------------------------------------------------------- broken lines


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b"{}\n",
        b'{"type":"turn/start"}\n',
        b'{"type":"turn/start","data":{"turn":"one"}}\n',
        b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"song","index":0}}}\n',
        b'{"type":"turn/start","data":{"turn":1}} {"type":"turn/start","data":{"turn":1}}\n',
        b'{"type":"turn/start",\n"data":{"turn":1}}\n',
        b'{"type":"session","version":0,"id":"b","createdAt":0,"delegationDepth":0}\n',
        b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\xff"}}}\n',
    ],
)
def test_a_broken_line_is_told_with_file_and_line(tmp_path: Path, line: bytes) -> None:
    file = body(tmp_path, b'{"type":"turn/start","data":{"turn":1}}\n', line, packed())
    found = fault(tmp_path)
    assert found.startswith(f"{file}:3: broken line: ")
    assert found.endswith("restore it from the original log")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"texts": [], "dt": []}, "a packed row is empty"),
        ({"dt": [1]}, "3 members must have 2 gaps in dt, it has 1"),
        ({"dt": [1, 2, 3]}, "3 members must have 2 gaps in dt, it has 3"),
        ({"dt": [1.5, 2]}, "Expected `int`, got `float`"),
        ({"dt": [1, "2"]}, "Expected `int`, got `str`"),
        ({"dt": [2**53, 0]}, "leaves the range of safe integers"),
        ({"dt": [2**52, 2**52]}, "leaves the range of safe integers"),
        ({"texts": ["a", 1, "c"]}, "Expected `str`, got `int`"),
        ({"texts": "absent"}, "missing required field `texts`"),
        ({"extra": 1}, "unknown field `extra`"),
    ],
)
def test_a_malformed_packed_row_is_told(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    file = body(tmp_path, b'{"type":"turn/start","data":{"turn":1}}\n', packed(**changes))
    found = fault(tmp_path)
    assert found.startswith(f"{file}:3: ")
    assert what in found


def test_a_packed_row_with_a_foreign_envelope_is_told(tmp_path: Path) -> None:
    body(tmp_path, packed()[:-2] + b',"ignorable":true}\n')
    assert "unknown field `ignorable`" in fault(tmp_path)


def test_seqs_must_be_contiguous_across_packed_rows(tmp_path: Path) -> None:
    row = packed().replace(b',"data"', b',"seq0":0,"time0":1,"data"', 1)
    file = body(tmp_path, row, b'{"type":"turn/start","seq":1,"time":1,"data":{"turn":1}}\n')
    assert fault(tmp_path).startswith(f"{file}:3: seq 1 where 3 was expected")


def test_unevenly_projected_logs_are_told(tmp_path: Path) -> None:
    file = body(tmp_path, b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}\n',
                b'{"type":"turn/start","data":{"turn":1}}\n')
    assert fault(tmp_path).startswith(f"{file}:3: some lines carry seq and time and some do not")
    body(tmp_path, b'{"type":"turn/start","data":{"turn":1}}\n',
         b'{"type":"turn/start","seq":1,"time":1,"data":{"turn":1}}\n')
    assert fault(tmp_path).startswith(f"{file}:3: some lines carry seq and time and some do not")


@pytest.mark.parametrize("key", ["seq", "time"])
def test_a_line_with_only_one_of_seq_and_time_is_told(tmp_path: Path, key: str) -> None:
    body(tmp_path, b'{"type":"turn/start","%s":0,"data":{"turn":1}}\n' % key.encode())
    assert "the line has only one of seq and time" in fault(tmp_path)


# ---------------------------------------------------------------- seed boundary


def forked(seed: int) -> Log:
    """A fork of three inherited events, two of them in what would be one packed row."""
    log = Log("child", parent="root", seed=seed)
    log.add("turn/start", turn=1).add("turn/end", turn=1, reason={"kind": "completed"}).add("session/end-seed")
    return log.add("turn/start", turn=2)


def test_the_seed_boundary_counts_logical_events(tmp_path: Path) -> None:
    file = body(tmp_path, packed(), *forked(5).lines()[1:], header={"seedLength": 5})
    (recording,) = load(tmp_path)
    assert recording.own == 3
    assert len(file.read_bytes().splitlines()) == 6


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (-3, "negative (-3)"),
        (9, "seedLength is 9, but the log holds only 7 events"),
        (7, "seedLength is 7, but of the log's 7 events number 6 is not a turn/end"),
        (4, "seedLength is 4, but of the log's 7 events number 3 is not a turn/end"),
        (2, "seedLength is 2, but of the log's 7 events number 1 is not a turn/end"),
    ],
)
def test_a_wrong_seed_boundary_is_told_with_both_numbers(tmp_path: Path, seed: int, what: str) -> None:
    file = body(tmp_path, packed(), *forked(5).lines()[1:], header={"seedLength": seed})
    found = fault(tmp_path)
    assert found.startswith(f"{file}:1: ")
    assert what in found


# ---------------------------------------------------------------- packing round trip

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_deltas: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(TextDelta, st.integers(0, 1), _texts),
    st.builds(ReasoningDelta, st.integers(0, 1), _texts),
    st.builds(ToolCallDelta, st.integers(0, 1), st.sampled_from([CallId("a"), CallId("b")]),
              st.sampled_from([msgspec.UNSET, "bash"]), _texts),
)
_times = st.integers(-(2**50), 2**50)


@given(st.lists(st.tuples(_deltas, _times), min_size=1, max_size=40))
def test_what_the_log_packs_is_read_back_chunk_by_chunk(members: list[tuple[Chunk, int]]) -> None:
    events = [Event(seq, time, AssistantChunk(1, 1, chunk)) for seq, (chunk, time) in enumerate(members)]
    lines = codec.pack(events)
    reader = fixture._Body("x", 2, codec.decode_header(Log("a").lines()[0], "x"), Findings())
    recording = reader.read(lines)
    assert recording is not None
    assert recording.count == len(members)
    pieces: list[Any] = list(recording.rows)
    assert [chunk for piece in pieces for chunk in expand(piece)] == [chunk for chunk, _ in members]
    assert [time for time, _ in timed(pieces)] == [time for _, time in members]


@given(st.lists(st.integers(-(2**54), 2**54), min_size=2, max_size=5), st.integers(-(2**53), 2**53))
def test_packed_times_are_accepted_exactly_within_safe_integers(gaps: list[int], start: int) -> None:
    texts = [""] * (len(gaps) + 1)
    line = msgspec.json.encode({"type": "text-chunks", "seq0": 0, "time0": start, "data": {
        "turn": 1, "step": 1, "index": 0, "dt": gaps, "texts": texts}}) + b"\n"
    running, safe = start, abs(start) < 2**53
    for gap in gaps:
        running += gap
        safe = safe and abs(running) < 2**53 and abs(gap) < 2**53
    reader = fixture._Body("x", 2, codec.decode_header(Log("a").lines()[0], "x"), Findings())
    recording = reader.read(line)
    assert (recording is not None) == safe
    if recording is not None:
        (row,) = recording.rows
        assert isinstance(row, TextRow)
        assert packed_fault(row) is None

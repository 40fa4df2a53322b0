"""Whole runs: what scheduling, ids, times and places change is gone, and what they do not change is not."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import logform
from replay.artefacts import Artefacts, FileState, HarvestedLog, WireLine
from replay.compare import differences
from replay.differences import report
from replay.logform import LogEvent
from replay.names import UUID, AmbiguousNames
from replay.normalize import normalise
from tests.conftest import Workbench
from tests.unit.replay_kit.kit_wire import (
    HOME,
    MESSAGE,
    ONE,
    OTHER,
    STRANGER,
    TWO,
    WORKSPACE,
    announced,
    answers,
    asks,
    event,
    line,
    log,
    opened,
    permission,
    progress,
    run,
    says,
    update,
    user,
)
from tests.unit.replay_kit.test_golden_round_trip import family, played
from tests.wire.recordings import write


def lines(artefacts: Artefacts) -> list[dict[str, Any]]:
    return [frame.value for frame in normalise(artefacts).wire]


# ---------------------------------------------------------------- another run of the same behaviour


def other_run(artefacts: Artefacts, seed: int) -> Artefacts:
    """The same behaviour with other ids, another place, other times, other request ids and logs in another order."""
    dice = random.Random(seed)
    place = f"/tmp/elsewhere-{seed}"
    root = artefacts.home.rsplit("/", 1)[0]
    ids: dict[bytes, bytes] = {}

    def renamed(match: re.Match[bytes]) -> bytes:
        return ids.setdefault(match.group(), str(uuid.UUID(int=dice.getrandbits(128), version=4)).encode())

    def changed(data: bytes) -> bytes:
        data = re.sub(UUID.pattern.encode(), renamed, data).replace(root.encode(), place.encode())
        return re.sub(rb'"time":(\d+)', lambda match: b'"time":%d' % (int(match[1]) + seed * 1000), data)

    logs = [HarvestedLog(entry.path, changed(entry.data)) for entry in artefacts.logs]
    dice.shuffle(logs)
    return Artefacts(
        tuple(WireLine(entry.sender, changed(entry.line)) for entry in artefacts.wire), tuple(logs),
        artefacts.files, "", 0, None, tuple(changed(one.encode()).decode() for one in artefacts.workspace),
        changed(artefacts.home.encode()).decode(),
    )  # fmt: skip


def test_ids_times_and_places_make_no_difference(agent: Workbench, tmp_path: Path) -> None:
    artefacts = msgspec.structs.replace(played(agent, write(tmp_path / "recording", *family())), receipt=None)
    normal = normalise(artefacts)
    for seed in range(1, 15):
        other = normalise(other_run(artefacts, seed))
        assert not differences(normal, other), report(differences(normal, other))
        assert normal == other


def swapped(data: bytes, one: bytes, other: bytes) -> bytes:
    return data.replace(one, b"\0").replace(other, one).replace(b"\0", other)


def test_ids_mixed_up_in_one_log_are_a_difference(agent: Workbench, tmp_path: Path) -> None:
    artefacts = msgspec.structs.replace(played(agent, write(tmp_path / "recording", *family())), receipt=None)
    normal = normalise(artefacts)
    root = next(entry for entry in artefacts.logs if b'"parentSession"' not in entry.data)
    ids = re.findall(rb'"assistant","content".*?"id":"([0-9a-f-]{36})"', root.data)
    assert len(ids) > 1
    logs = [HarvestedLog(entry.path, swapped(entry.data, ids[0], ids[1])) if entry is root else entry
            for entry in artefacts.logs]
    found = differences(normal, normalise(msgspec.structs.replace(artefacts, logs=tuple(logs))))
    assert any("ids are mixed up" in one.what for one in found)


# ---------------------------------------------------------------- ids


def test_wire_and_logs_share_their_names() -> None:
    artefacts = run([*opened(), says(ONE, "Hi", OTHER), answers(2, stopReason="end_turn")],
                    [log(ONE, [user("Go"), event("assistant/message", turn=1, step=1, message={
                        "role": "assistant", "content": [], "source": {"kind": "model"}, "id": OTHER})])])
    normal = normalise(artefacts)
    assert [frame.value["params"]["update"]["messageId"] for frame in normal.wire if frame.session and
            "params" in frame.value] == ["{{message:2}}"]
    assert [normal.logs[0].events[0].data["id"], normal.logs[0].events[1].data["message"]["id"]] == [
        "{{message:1}}", "{{message:2}}"]


def test_sessions_are_numbered_as_the_client_made_them_and_children_by_address() -> None:
    calls = [event("tool/call", turn=1, step=1, callId=call, name="subagent", arguments="{}") for call in ("b", "a")]
    kid = {"parentSession": ONE, "origin": "subagent", "delegationDepth": 1}
    logs = [
        log("s4", [], **kid, spawn={"callId": "a", "index": 1}), log(TWO, []),
        log("s3", [], **kid, spawn={"callId": "a", "index": 0}), log(ONE, calls),
        log("s5", [], **kid, spawn={"callId": "b", "index": 0}),
    ]
    wire = [asks(1, "session/new"), asks(2, "session/new"), answers(2, sessionId=TWO), answers(1, sessionId=ONE)]
    normal = normalise(run(wire, logs))
    assert [(one.name, one.address) for one in normal.logs] == [
        ("{{session:1}}", "root"), ("{{session:2}}", "root > b"), ("{{session:3}}", "root > a"),
        ("{{session:4}}", "root > a[1]"), ("{{session:5}}", "root 2")]


def test_roots_are_filed_in_the_order_of_their_first_model_calls() -> None:
    parts = {"config": "", "system": "", "tools": "", "messages": {"count": 0, "head": "", "added": []}}
    sent = [event("request/sent", turn=1, step=1, purpose="main", ordinal=0, messageId="m", parts=parts, root=root)
            for root in (0, 1)]
    wire = [asks(1, "session/new"), asks(2, "session/new"), answers(1, sessionId=ONE), answers(2, sessionId=TWO)]
    normal = normalise(run(wire, [log(ONE, [sent[1]]), log(TWO, [sent[0]])]))
    assert [(one.name, one.header.created_at) for one in normal.logs] == [("{{session:2}}", 0), ("{{session:1}}", 1)]
    assert [one.events for one in normal.logs] == [(), ()]


def test_request_ids_of_the_two_directions_are_numbered_apart() -> None:
    values = lines(run([*opened(), announced(ONE, "b"), announced(ONE, "a"), permission("q-9", ONE, "a"),
                        permission("q-1", ONE, "b"), answers(2, stopReason="end_turn")]))
    assert [(value["id"], value.get("method")) for value in values if "id" in value] == [
        (1, None), (1, "session/request_permission"), (2, "session/request_permission"), (2, None)]
    assert [value["params"]["toolCall"]["toolCallId"] for value in values if "method" in value and "id" in value] == [
        "b", "a"]


def test_a_call_id_is_named_only_when_a_machine_made_it() -> None:
    said = event("tool/call", turn=1, step=1, callId=OTHER, name="read", arguments="{}")
    wire = [*opened(), announced(ONE, OTHER), announced(ONE, STRANGER), announced(ONE, "call-1")]
    calls = [value["params"]["update"]["toolCallId"] for value in lines(run(wire, [log(ONE, [said])]))
             if "params" in value]
    assert calls == [OTHER, "{{call:1}}", "call-1"]


def test_what_is_derived_from_a_message_id_and_what_only_the_wire_has_is_named_too() -> None:
    wire = [*opened(), says(ONE, "a", f"{MESSAGE}-thought"), says(ONE, "b", MESSAGE), says(ONE, "c", OTHER)]
    ids = [value["params"]["update"]["messageId"] for value in lines(run(wire)) if "params" in value]
    assert ids == ["{{message:1}}-thought", "{{message:1}}", "{{message:2}}"]


def test_look_alikes_in_texts_are_left_alone_and_this_runs_ids_are_not() -> None:
    said = f"{STRANGER} /tmp/run-70/ws {ONE} {WORKSPACE}/a {HOME}/b at 1790000000001"
    normal = normalise(run([*opened(), says(ONE, said)], [log(ONE, [user(said)])],
                           [FileState("notes.txt", said.encode())]))
    named = f"{STRANGER} /tmp/run-70/ws {{{{session:1}}}} {{{{cwd}}}}/a {{{{home}}}}/b at 1790000000001"
    assert normal.wire[-1].value["params"]["update"]["content"]["text"] == named
    assert normal.logs[0].events[0].data["content"][0]["text"] == named
    assert normal.files["notes.txt"].text == named
    assert normal.leftovers == ()


def test_an_id_that_is_a_session_and_a_message_is_refused() -> None:
    with pytest.raises(AmbiguousNames):
        normalise(run(logs=[log(ONE, [user("Go", ONE)])]))


# ---------------------------------------------------------------- volatile values


def test_times_spans_and_process_ids_are_gone_unless_a_model_said_them() -> None:
    wire = [*opened(), update(ONE, "session_info_update", title="T", updatedAt="2026-11-30T10:00:00Z"),
            announced(ONE, "a", rawInput={"timestamp": 5, "pid": 6}, _meta={"pid": 77, "durationMs": 12})]
    retry = event("llm/retry", retryId=OTHER, turn=1, step=1, provider="p", mode="m", policyKey="[]", retry=1,
                  maxRetries=2, delayMs=733, failure={"message": "x", "code": "y"})
    normal = normalise(run(wire, [log(ONE, [retry])]))
    info, call = (frame.value["params"]["update"] for frame in normal.wire[1:])
    assert info["updatedAt"] == "{{time}}"
    assert (call["rawInput"], call["_meta"]) == ({"timestamp": 5, "pid": 6}, {"pid": 0, "durationMs": 0})
    assert normal.logs[0].events[0].data == retry["data"] | {"retryId": "{{retry:1}}", "delayMs": 0}
    assert normal.logs[0].header.created_at == 0


def test_a_release_of_the_agent_changes_nothing() -> None:
    (value,) = lines(run([asks(1, "initialize"), answers(1, agentInfo={"name": "a", "version": "1.2.3"})]))
    assert value["result"] == {"agentInfo": {"name": "a", "version": "{{agentVersion}}"}}


@pytest.mark.parametrize(("meta", "what"), [
    ({"token": STRANGER}, "an id"), ({"log": "/tmp/other/log.txt"}, "a temporary path"),
    ({"at": 1790000000000}, "a time"), ({f"key {STRANGER}": 1}, "an id"),
])
def test_a_machine_value_that_was_not_named_is_reported(meta: dict[str, Any], what: str) -> None:
    (left,) = normalise(run([*opened(), update(ONE, "usage_update", used=1, size=2, _meta=meta)])).leftovers
    assert left.what == what
    assert left.where.startswith("wire line 2 session/update")


def test_an_id_cut_into_deltas_is_reported() -> None:
    pieces = [event("assistant/chunk", turn=1, step=1, chunk={"type": "text-delta", "index": 0, "text": text})
              for text in (f"{WORKSPACE[:8]}", WORKSPACE[8:] + "/a")]
    (left,) = normalise(run(logs=[log(ONE, pieces)])).leftovers
    assert "cut into several deltas" in left.what
    whole = [event("assistant/chunk", turn=1, step=1, chunk={"type": "text-delta", "index": 0, "text": text})
             for text in ("see ", f"{WORKSPACE}/a", " now")]
    assert normalise(run(logs=[log(ONE, whole)])).leftovers == ()


def test_a_log_without_its_parent_is_told() -> None:
    kid = log(TWO, [], parentSession=ONE, origin="subagent", delegationDepth=1)
    (told,) = normalise(run(logs=[kid])).broken
    assert "its parent" in told


def test_a_broken_receipt_is_told() -> None:
    (told,) = normalise(run(receipt=b"{")).broken
    assert told.startswith("the replay receipt cannot be read")


def test_files_are_text_or_bytes_or_gone() -> None:
    files = [FileState("b.bin", b"\xff\x00"), FileState("a.txt", b"x", 0o755), FileState("c", None)]
    entries = {path: msgspec.to_builtins(entry) for path, entry in normalise(run(files=files)).files.items()}
    assert entries == {"a.txt": {"text": "x", "mode": "755"}, "b.bin": {"base64": "/wA="}, "c": {"removed": True}}
    assert list(entries) == ["a.txt", "b.bin", "c"]


def test_a_cancelled_question_names_the_request_it_cancels() -> None:
    wire = [*opened(), announced(ONE, "a"), permission("q", ONE, "a"),
            line("agent", method="$/cancel_request", params={"requestId": "q"}), progress(ONE, "a", status="failed")]
    assert [value["params"]["requestId"] for value in lines(run(wire)) if value.get("method") == "$/cancel_request"] \
        == [1]


# ---------------------------------------------------------------- logs


@st.composite
def cited_logs(draw: st.DrawFn) -> tuple[list[LogEvent], list[list[str]]]:
    """Events, each with a tag, and for each the tags of the kept events it cites."""
    events: list[LogEvent] = []
    cited: list[list[str]] = []
    for at in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["step/start", "tool/result", "request/sent", "replay/bound"]))
        sources = draw(st.lists(st.integers(0, at - 1), unique=True)) if at and kind == "tool/result" else None
        data = {"tag": f"t{at}"}
        events.append(LogEvent(kind, data) if sources is None else LogEvent(kind, data, sources=sources))
        cited.append([f"t{seq}" for seq in sources or [] if events[seq].type not in logform.LEFT_OUT])
    return events, cited


def form(events: Sequence[LogEvent], **header: Any) -> logform.LogForm:
    read = logform.read(log(ONE, []).data, "x")
    return logform.LogForm("x", msgspec.structs.replace(read.header, **header), tuple(events))


@given(cited_logs(), st.data())
def test_citations_and_the_seed_boundary_follow_the_events_they_mean(
    drawn: tuple[list[LogEvent], list[list[str]]], data: st.DataObject,
) -> None:
    events, cited = drawn
    seed = data.draw(st.integers(0, len(events)))
    settled = logform.settled(form(events, seed_length=seed))
    kept = [at for at, one in enumerate(events) if one.type not in logform.LEFT_OUT]
    assert [one.data["tag"] for one in settled.events] == [f"t{at}" for at in kept]
    for one, at in zip(settled.events, kept, strict=True):
        sources = [] if isinstance(one.sources, msgspec.UnsetType) else one.sources
        assert [settled.events[seq].data["tag"] for seq in sources] == cited[at]
    assert settled.header.seed_length == sum(at < seed for at in kept)
    assert logform.settled(settled) == settled


def test_replacements_and_titles_cite_new_positions() -> None:
    replace = LogEvent("user/message", {"tag": "r"}, [0, 2], {"op": "replace", "start": 0, "end": 2})
    title = LogEvent("session/title", {"messageSeqs": [2]})
    events = [LogEvent("user/message", {}), LogEvent("request/sent", {}), LogEvent("user/message", {}), replace, title]
    settled = logform.settled(form(events))
    assert settled.events[2] == LogEvent("user/message", {"tag": "r"}, [0, 1], {"op": "replace", "start": 0, "end": 1})
    assert settled.events[3].data == {"messageSeqs": [1]}


def call(name: str) -> LogEvent:
    return LogEvent("tool/call", {"callId": name})


def approval(step: str, name: str) -> LogEvent:
    return LogEvent(f"approval/{step}", {"id": f"q-{name}", "callId": name} if step == "asked" else
                    {"id": f"q-{name}"} if step == "decided" else {"key": name})


@given(st.lists(st.booleans(), min_size=5, max_size=5))
def test_questions_of_overlapping_calls_stand_behind_their_calls(order: list[bool]) -> None:
    streams = [[[approval("asked", "a")], [approval("decided", "a"), approval("grant", "a")]],
               [[approval("asked", "b")], [approval("decided", "b")]]]
    mixed: list[LogEvent] = []
    for first in order:
        stream = streams[0] if (first and streams[0]) or not streams[1] else streams[1]
        mixed += stream.pop(0) if stream else []
    settled = logform.settled(form([call("a"), call("b"), *mixed, LogEvent("step/end", {})]))
    assert settled.events == (
        call("a"), approval("asked", "a"), approval("decided", "a"), approval("grant", "a"),
        call("b"), approval("asked", "b"), approval("decided", "b"), LogEvent("step/end", {}))


@given(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=12))
def test_a_logs_canonical_text_reads_back_to_it(kinds: list[str]) -> None:
    chunks = {"text": {"type": "text-delta", "index": 0, "text": "x"},
              "reasoning": {"type": "reasoning-delta", "index": 1, "text": "y"},
              "call": {"type": "tool-call-delta", "index": 2, "id": "c", "name": "read", "argumentsDelta": "{"}}
    events = [LogEvent(logform.CHUNK, {"turn": 1, "step": 1, "chunk": chunks[kind]}) for kind in kinds]
    written = logform.write(form(events))
    again = logform.read(written, "x")
    assert list(again.events) == events
    assert logform.write(again) == written

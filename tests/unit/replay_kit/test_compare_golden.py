"""Differences: found, put into their category, the telling ones first, shown in context."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.artefacts import FileState, HarvestedLog, WireLine
from replay.compare import compare, differences
from replay.differences import WIDTH, Category, Difference, render, report
from replay.golden import load_golden
from replay.normalize import normalise
from replay.snapshot import Normalised
from tests.unit.replay_kit.kit_wire import (
    MESSAGE,
    ONE,
    OTHER,
    STRANGER,
    TWO,
    Frame,
    announced,
    answers,
    event,
    log,
    opened,
    permission,
    progress,
    run,
    says,
    shown,
    update,
    user,
)

CALL = {"type": "tool-call", "id": "c1", "name": "read", "arguments": '{"path":"a"}'}


def answer(*content: Frame, message: str = OTHER) -> Frame:
    return event("assistant/message", turn=1, step=1, message={
        "role": "assistant", "content": list(content), "source": {"kind": "model"}, "id": message})


def text(words: str) -> Frame:
    return {"type": "text", "text": words}


def result(words: str, *, failed: bool = False) -> Frame:
    block = {"type": "tool-result", "toolCallId": "c1", "content": [text(words)], "isError": failed}
    return event("tool/result", turn=1, step=1, message={
        "source": {"kind": "tool", "callId": "c1"}, "content": [block], "role": "user", "id": STRANGER})


def called(arguments: str = '{"path":"a"}', name: str = "read") -> Frame:
    return event("tool/call", turn=1, step=1, callId="c1", name=name, arguments=arguments)


def ended(kind: str = "completed") -> Frame:
    return event("turn/end", turn=1, reason={"kind": kind})


EVENTS = (event("turn/start", turn=1), user("Go"), answer(text("Reading."), CALL), called(), result("1: x"), ended())
WIRE = (*opened(), says(ONE, "Reading."), announced(ONE, "c1", kind="read", rawInput={"path": "a"}),
        progress(ONE, "c1", status="completed", content=shown("1: x")), answers(2, stopReason="end_turn"))


def of(
    events: Sequence[Frame] = EVENTS, wire: Sequence[WireLine] = WIRE, files: Sequence[FileState] = (),
    logs: Sequence[HarvestedLog] = (), receipt: bytes | None = None,
) -> Normalised:
    return normalise(run(wire, [log(ONE, events), *logs], files, receipt=receipt))


def found(changed: Normalised, expected: Normalised | None = None) -> list[Difference]:
    return differences(expected or of(), changed)


def changed_events(at: int, *instead: Frame) -> list[Frame]:
    return [*EVENTS[:at], *instead, *EVENTS[at + 1 :]]


def changed_wire(at: int, *instead: WireLine) -> list[WireLine]:
    return [*WIRE[:at], *instead, *WIRE[at + 1 :]]


def test_equal_runs_have_no_differences() -> None:
    assert found(of()) == []


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize(("events", "where"), [
    (changed_events(3, called('{"path":"b"}')), "event 3: tool/call"),
    (changed_events(3, called(name="write")), "event 3: tool/call"),
    (changed_events(4, result("1: x", failed=True)), "event 4: tool/result"),
    (changed_events(5, ended("max-tokens")), "event 5: turn/end"),
    (changed_events(4), "event 4: tool/result became turn/end"),
    (EVENTS[:-1], "event 5: turn/end is missing"),
    ([*EVENTS, event("turn/start", turn=2)], "event 6: turn/start came, and the golden ends here"),
    (changed_events(1, user("Go"), event("approval/asked", id="q", toolName="read", callId="c1", reason="r")),
     "event 2: assistant/message became approval/asked"),
    (changed_events(2, answer(text("Reading."))), "event 2: assistant/message"),
])
def test_what_a_session_did_is_behaviour(events: list[Frame], where: str) -> None:
    (one, *_) = found(of(events))
    assert (one.category, one.where, one.what) == (Category.BEHAVIOUR, "{{session:1}} (root)", where)


@pytest.mark.parametrize("events", [
    changed_events(1, user("Go on")),
    changed_events(4, result("1: y")),
    changed_events(2, answer(text("Looking."), CALL)),
    changed_events(0, EVENTS[0], event("session/title", title="T", messageSeqs=[], source={"kind": "fallback"})),
])
def test_how_it_was_said_is_wording(events: list[Frame]) -> None:
    assert [one.category for one in found(of(events))] == [Category.WORDING]


def test_arguments_that_differ_in_spacing_only_are_wording() -> None:
    assert [one.category for one in found(of(changed_events(3, called('{"path": "a"}'))))] == [Category.WORDING]


@pytest.mark.parametrize(("wire", "category"), [
    (changed_wire(3, says(ONE, "Looking.")), Category.WORDING),
    (changed_wire(3, says(ONE, "Read"), says(ONE, "ing.")), Category.WORDING),
    (changed_wire(4, announced(ONE, "c1", kind="read", rawInput={"path": "b"})), Category.BEHAVIOUR),
    (changed_wire(5, progress(ONE, "c1", status="failed", content=shown("1: x"))), Category.BEHAVIOUR),
    (changed_wire(5, progress(ONE, "c1", status="completed", content=shown("1: y"))), Category.WORDING),
    (changed_wire(5), Category.BEHAVIOUR),
    (changed_wire(6, answers(2, stopReason="cancelled")), Category.BEHAVIOUR),
    (changed_wire(4, WIRE[4], permission(9, ONE, "c1")), Category.BEHAVIOUR),
    (changed_wire(6, WIRE[6], says(ONE, "late")), Category.WORDING),
    (changed_wire(3, WIRE[3], update(ONE, "current_mode_update", currentModeId="ask")), Category.BEHAVIOUR),
])
def test_the_wire_is_compared_by_itself(wire: list[WireLine], category: Category) -> None:
    (one,) = found(of(wire=wire))
    assert (one.category, one.where) == (category, "wire of {{session:1}}")


def test_lines_outside_of_sessions_are_compared_too() -> None:
    (one,) = found(of(wire=[*WIRE, WireLine("agent", b'{"jsonrpc":"2.0","method":"hello"}')]))
    assert one.where == "wire, outside of sessions"


def test_behaviour_comes_first_even_when_wording_differs_before_it() -> None:
    events = [EVENTS[0], user("Go on"), *EVENTS[2:5], ended("max-tokens")]
    one, other = found(of(events))
    assert (one.category, one.what) == (Category.BEHAVIOUR, "event 5: turn/end")
    assert (other.category, other.what) == (Category.WORDING, "event 1: user/message")
    assert report([other, one]).startswith("behaviour · ")


def test_wording_behind_a_difference_of_behaviour_is_its_consequence() -> None:
    events = [*EVENTS[:3], called('{"path":"b"}'), result("1: z"), ended()]
    assert [one.category for one in found(of(events))] == [Category.BEHAVIOUR]


def test_a_session_more_or_less_is_told_by_its_address() -> None:
    child = log(TWO, [user("Task", "m")], parentSession=ONE, origin="subagent", delegationDepth=1,
                spawn={"callId": "c1", "index": 0})
    (one, *_) = found(of(logs=[child]))
    assert (one.category, one.where) == (Category.SESSIONS, "{{session:2}} (root > c1)")
    assert one.lines == ("+ user/message Task",)
    (one, *_) = found(of(), of(logs=[child]))
    assert (one.category, one.what) == (Category.SESSIONS, "this session is in the golden, and it did not run")


def test_a_child_elsewhere_in_the_tree_is_another_session() -> None:
    def child(call: str) -> HarvestedLog:
        return log(TWO, [], parentSession=ONE, origin="subagent", delegationDepth=1,
                   spawn={"callId": call, "index": 0})

    told = [(one.category, one.where) for one in found(of(logs=[child("c2")]), of(logs=[child("c1")]))]
    assert told == [(Category.SESSIONS, "{{session:2}} (root > c1)"), (Category.SESSIONS, "{{session:2}} (root > c2)")]


def test_a_seed_of_another_length_is_behaviour() -> None:
    def fork(seed: int) -> HarvestedLog:
        return log(TWO, [EVENTS[0], event("turn/end", turn=1, reason={"kind": "completed"})], parentSession=ONE,
                   origin="subagent", delegationDepth=1, seedLength=seed, spawn={"callId": "c1", "index": 0})

    (one,) = found(of(logs=[fork(1)]), of(logs=[fork(2)]))
    assert (one.category, one.what) == (Category.BEHAVIOUR, "header: header")


def test_citations_alone_are_volatile() -> None:
    cites = [{**one, "sourceEventSeqs": [1], "surfaceOp": "append"} if one is EVENTS[2] else one for one in EVENTS]
    others = [{**one, "sourceEventSeqs": [0], "surfaceOp": "append"} if one is EVENTS[2] else one for one in EVENTS]
    (one,) = found(of(cites), of(others))
    assert (one.category, one.what) == (Category.VOLATILE, "event 2: assistant/message cites other positions")


# ---------------------------------------------------------------- who is who


def test_a_message_that_is_another_one_on_the_wire_is_mixed_up() -> None:
    pieces = [says(ONE, "a", MESSAGE), says(ONE, "b", OTHER)]
    crossed = [says(ONE, "a", MESSAGE), says(ONE, "b", MESSAGE)]
    (one,) = found(of(wire=[*opened(), *crossed]), of(wire=[*opened(), *pieces]))
    assert one.category is Category.BEHAVIOUR
    assert "ids are mixed up: {{message:2}} of the golden is {{message:1}} here" in one.what


def test_one_more_message_does_not_make_all_later_ones_differ() -> None:
    first = [event("turn/start", turn=1), user("Go", "m1")]
    rest = log(TWO, [user("Task", "m3"), user("More", "m4")], parentSession=ONE, origin="subagent",
               delegationDepth=1, spawn={"callId": "c1", "index": 0})
    more = [*first, user("And", "m2")]
    told = found(normalise(run(logs=[log(ONE, more), rest])), normalise(run(logs=[log(ONE, first), rest])))
    assert [(one.where, one.what) for one in told] == [
        ("{{session:1}} (root)", "event 2: user/message came, and the golden ends here")]


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(("one", "other", "what"), [
    ([], [FileState("a", b"x")], "was written, and the golden does not say so"),
    ([FileState("a", b"x")], [], "should have been written"),
    ([FileState("a", None)], [], "should have been removed"),
    ([FileState("a", b"x")], [FileState("a", None)], "was removed"),
    ([FileState("a", b"x")], [FileState("a", b"x", 0o755)], "has the mode 755 instead of plain"),
    ([FileState("a", b"x")], [FileState("a", b"y")], "has another content"),
    ([FileState("a", b"\xff")], [FileState("a", b"\xfe")], "has another content"),
])
def test_what_happened_to_files_is_behaviour(one: list[FileState], other: list[FileState], what: str) -> None:
    (told,) = found(of(files=other), of(files=one))
    assert (told.category, told.where, told.what) == (Category.BEHAVIOUR, "file a", what)


def test_a_changed_file_is_shown_line_by_line() -> None:
    one, other = b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nD\ne\nf\n"
    (told,) = found(of(files=[FileState("a", other)]), of(files=[FileState("a", one)]))
    assert told.lines == ("@@ -2,5 +2,5 @@", " b", " c", "-d", "+D", " e", " f")


# ---------------------------------------------------------------- consumption, promises, leftovers


def receipt(*, left: int = 0, over: int = 0, sessions: Sequence[str] = ("live",), **more: Any) -> bytes:
    lane = {"lane": "x", "file": "session.jsonl", "address": [], "sessions": list(sessions),
            "calls": {"main": {"recorded": 3, "used": 3 - left, "left": left, "over": over}}}
    return msgspec.json.encode({"format": 1, "directory": "d", "tools": "live", "sessions": "once", "lanes": [lane],
                                "unbound": [], "unaddressed": []} | more)


@pytest.mark.parametrize(("data", "what"), [
    (receipt(left=2), "root made 1 of its 3 recorded calls"),
    (receipt(over=1), "root made 1 calls beyond the 3 recorded"),
    (receipt(left=3, sessions=()), "no session stood at root, its 3 recorded calls were not asked for"),
    (receipt(unaddressed=["session.4.jsonl"]), "nothing could ask for its recorded calls"),
    (receipt(error="no such directory"), "no such directory"),
])
def test_a_recording_that_was_not_used_as_recorded_is_behaviour(data: bytes, what: str) -> None:
    (told,) = found(of(receipt=data))
    assert (told.category, told.what) == (Category.BEHAVIOUR, what)


def test_a_recording_that_was_used_up_is_no_difference() -> None:
    assert found(of(receipt=receipt())) == []


def test_a_broken_promise_is_a_difference_whatever_the_golden_says() -> None:
    lawless = of(wire=[*WIRE, answers(2, stopReason="end_turn")])
    assert [(one.category, one.where) for one in found(lawless, lawless)] == [(Category.BEHAVIOUR, "promise")]


def test_a_machine_value_is_told_unless_the_golden_holds_it() -> None:
    wire = changed_wire(3, WIRE[3], update(ONE, "usage_update", used=1, _meta={"x": str(uuid.UUID(int=5))}))
    assert any(one.where == "leftover" and one.category is Category.VOLATILE for one in found(of(wire=wire)))
    assert found(of(wire=wire), of(wire=wire)) == []


def test_a_golden_without_its_files_says_so(tmp_path: Path) -> None:
    told = compare(load_golden(tmp_path), normalise(run(WIRE)))
    assert [(one.category, one.where) for one in told] == [
        (Category.SESSIONS, "stdout.jsonl"), (Category.SESSIONS, "files.json")]


# ---------------------------------------------------------------- showing


def test_a_difference_is_shown_with_what_stands_around_it() -> None:
    (told,) = found(of(changed_events(4, result("1: y"))))
    assert render(told).splitlines() == [
        "wording · {{session:1}} (root): event 4: tool/result",
        "      user/message Go",
        '      assistant/message Reading. read({"path":"a"})',
        '      tool/call c1 read {"path":"a"}',
        "    - tool/result c1 1: x",
        "    + tool/result c1 1: y",
        "      at data.message.content[0].content[0].text",
        '      turn/end {"reason":{"kind":"completed"},"turn":1}',
    ]


def test_a_difference_deep_in_a_long_text_is_shown_where_it_is() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    (told,) = found(of(changed_events(4, result(words.replace("word150", "WORD")))),
                    of(changed_events(4, result(words))))
    golden_line, run_line = (line for line in told.lines if line[0] in "-+" and "tool/result" in line)
    assert "word150" in golden_line
    assert "WORD" in run_line
    assert max(map(len, told.lines)) <= WIDTH + 4


def test_many_lines_are_shown_as_a_diff() -> None:
    many = "".join(f"{number}\n" for number in range(40))
    (told,) = found(of(changed_events(4, result(many.replace("20\n", "twenty\n")))),
                    of(changed_events(4, result(many))))
    assert [line.strip() for line in told.lines if line.strip() in ("-20", "+twenty")] == ["-20", "+twenty"]


def test_runs_of_deltas_are_folded() -> None:
    wire = [*opened(), *(says(ONE, f"w{number}") for number in range(30)), announced(ONE, "c1")]
    (told,) = found(of(wire=wire), of(wire=wire[:-1]))
    assert any("(30 deltas)" in line for line in told.lines)


# ---------------------------------------------------------------- nothing escapes


@given(st.integers(0, 2**32))
def test_any_change_of_a_run_is_a_difference(seed: int) -> None:
    dice = random.Random(seed)
    expected = of(files=[FileState("a", b"x")])
    changed = _changed(dice, expected)
    assert found(changed, expected)
    assert found(expected, changed)


def _changed(dice: random.Random, normal: Normalised) -> Normalised:
    where = dice.choice(["wire", "log", "file"])
    if where == "file":
        return msgspec.structs.replace(normal, files={})
    if where == "wire":
        wire = list(normal.wire)
        _mutate(dice, wire, lambda frame: msgspec.structs.replace(frame, value=_other(dice, frame.value)))
        return msgspec.structs.replace(normal, wire=tuple(wire))
    (one,) = normal.logs
    events = list(one.events)
    _mutate(dice, events, lambda item: msgspec.structs.replace(item, data=_other(dice, item.data)))
    return msgspec.structs.replace(normal, logs=(msgspec.structs.replace(one, events=tuple(events)),))


def _mutate(dice: random.Random, items: list[Any], change: Any) -> None:
    at = dice.randrange(len(items))
    match dice.choice(["drop", "double", "swap", "change"]):
        case "drop":
            del items[at]
        case "double":
            items.insert(at, items[at])
        case "swap" if at + 1 < len(items) and _same_session(items[at : at + 2]):
            items[at], items[at + 1] = items[at + 1], items[at]
        case _:
            items[at] = change(items[at])


def _same_session(pair: list[Any]) -> bool:
    """Which of two sessions' lines stands first in a file says nothing."""
    return len({getattr(one, "session", None) for one in pair}) == 1


def _other(dice: random.Random, value: Any) -> Any:
    """The value with one leaf changed."""
    if isinstance(value, dict) and value:
        key = dice.choice(sorted(value))
        return value | {key: _other(dice, value[key])}
    if isinstance(value, list) and value:
        at = dice.randrange(len(value))
        return [*value[:at], _other(dice, value[at]), *value[at + 1 :]]
    return f"{value}!"

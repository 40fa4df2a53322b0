"""The canonical order of the wire: whatever was never promised cannot differ, whatever was promised can."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from replay import conversation, order
from replay.artefacts import WireLine
from replay.order_children import Address
from tests.unit.replay_kit.kit_wire import (
    ONE,
    TWO,
    announced,
    answers,
    asks,
    line,
    opened,
    permission,
    progress,
    says,
    shown,
    update,
)


def canonical(lines: Sequence[WireLine]) -> list[bytes]:
    wire = conversation.read(lines)
    return [lines[frame.at].line for frame in order.canonical(wire)]


@st.composite
def mixed(draw: st.DrawFn, *streams: list[WireLine]) -> list[WireLine]:
    """The streams' lines in some order that keeps each stream's own."""
    left = [list(stream) for stream in streams]
    lines = []
    while any(left):
        stream = draw(st.sampled_from([stream for stream in left if stream]))
        lines.append(stream.pop(0))
    return lines


def of_call(call: str, *, asked: int | None = None, children: Sequence[str] = ()) -> list[WireLine]:
    """What is sent about a running call and the calls of its child."""
    question = [] if asked is None else [permission(asked, ONE, call)]
    nested = [one for child in children for one in (
        announced(ONE, f"{call}/{child}"), permission(f"{call}-{child}", ONE, f"{call}/{child}"),
        progress(ONE, f"{call}/{child}", status="completed"))]
    return [*question, progress(ONE, call, status="in_progress"), *nested,
            progress(ONE, call, status="completed", content=shown("done"))]


HEAD = [*opened(), says(ONE, "I will."), *(announced(ONE, call) for call in "abc")]
CALLS = (of_call("a", children=["x", "y"]), of_call("b", asked=7), of_call("c", children=["x"]))
TAIL = [says(ONE, "Done."), answers(2, stopReason="end_turn")]


@given(mixed(*CALLS))
def test_overlapping_calls_and_children_line_up_the_same_in_every_order(middle: list[WireLine]) -> None:
    lined_up = canonical([*HEAD, *middle, *TAIL])
    assert lined_up == canonical([*HEAD, *CALLS[0], *CALLS[1], *CALLS[2], *TAIL])
    own = [line.line for line in CALLS[1]]
    assert [raw for raw in lined_up if raw in own] == own


def state(parent: str, child: str, state: str, **members: str) -> WireLine:
    return update(parent, "subagent_update", sessionId=child, state={"state": state}, **members)


def of_child(call: str, child: str, below: Sequence[WireLine] = (), *, asked: int | None = None) -> list[WireLine]:
    """What is sent about a running call whose child is a session of its own, with a call and a question."""
    question = [] if asked is None else [
        state(ONE, child, "requires_action"), permission(asked, child, "t"), state(ONE, child, "running")]
    return [progress(ONE, call, status="in_progress"), state(ONE, child, "running", title=call), says(child, "I will."),
            announced(child, "t"), *question, progress(child, "t", status="in_progress"), *below,
            progress(child, "t", status="completed"), says(child, "Done.", "m2"), state(ONE, child, "idle"),
            progress(ONE, call, status="completed")]


INNER = [state("kid-a", "kid-i", "running"), says("kid-i", "Deep."), state("kid-a", "kid-i", "idle")]
KIDS = (of_child("a", "kid-a", INNER), of_child("b", "kid-b", asked=7), of_child("c", "kid-c", asked=8))
ADDRESSES = {"kid-a": Address(1, "a"), "kid-i": Address(2, "t"), "kid-b": Address(3, "b"), "kid-c": Address(4, "c")}


@given(mixed(*KIDS))
def test_children_that_are_sessions_line_up_inside_their_calls_in_every_order(middle: list[WireLine]) -> None:
    lines = [*HEAD, *middle, *TAIL]
    lined_up = [lines[frame.at].line for frame in order.canonical(conversation.read(lines), ADDRESSES)]
    passing = {one.line for kid in KIDS for one in kid if b'"requires_action"' in one.line
               or (b'"running"' in one.line and b"title" not in one.line and b"kid-i" not in one.line)}
    whole = [*HEAD, *KIDS[0], *KIDS[1], *KIDS[2], *TAIL]
    assert lined_up == [one.line for one in whole if one.sender == "agent" and one.line not in passing]


def test_children_without_a_log_stand_as_they_were_announced() -> None:
    lines = [*HEAD, *KIDS[1][:2], *KIDS[0], *KIDS[1][2:], *TAIL]
    spoken = [frame.session for frame in order.canonical(conversation.read(lines)) if frame.session != ONE]
    assert list(dict.fromkeys(session for session in spoken if session)) == ["kid-b", "kid-a", "kid-i"]


@given(mixed([says(ONE, str(n)) for n in range(3)] + [answers(5, stopReason="end_turn")],
             [says(TWO, str(n)) for n in range(3)] + [answers(6, stopReason="end_turn")]))
def test_sessions_line_up_the_same_however_they_mix(middle: list[WireLine]) -> None:
    head = [*opened(ONE, number=1)[:2], *opened(TWO, number=3)[:2],
            asks(5, "session/prompt", sessionId=ONE, prompt=[]), asks(6, "session/prompt", sessionId=TWO, prompt=[])]
    lined_up = canonical([*head, *middle])
    assert lined_up[2:] == [*(says(ONE, str(n)).line for n in range(3)), answers(5, stopReason="end_turn").line,
                            *(says(TWO, str(n)).line for n in range(3)), answers(6, stopReason="end_turn").line]


@given(st.permutations([says(ONE, "1"), announced(ONE, "a"), says(ONE, "2"), announced(ONE, "b")]))
def test_the_pieces_of_an_answer_keep_their_order(pieces: list[WireLine]) -> None:
    lines = [*opened(), *pieces, answers(2, stopReason="end_turn")]
    assert canonical(lines)[1:-1] == [piece.line for piece in pieces]


def test_a_call_that_ends_after_the_next_text_stays_there() -> None:
    early = [*HEAD, *CALLS[1], says(ONE, "Next."), *TAIL]
    late = [*HEAD, *CALLS[1][:-1], says(ONE, "Next."), CALLS[1][-1], *TAIL]
    assert canonical(early) != canonical(late)


def test_what_a_child_does_stands_before_the_end_of_the_call_that_made_it() -> None:
    lined_up = canonical([*HEAD, *CALLS[0], *TAIL])
    assert lined_up == [raw.line for raw in [*HEAD, *CALLS[0], *TAIL] if raw.sender == "agent"]
    late = [*HEAD, CALLS[0][0], CALLS[0][-1], *CALLS[0][1:-1], *TAIL]
    assert canonical(late) == [raw.line for raw in late if raw.sender == "agent"]


def test_an_update_after_the_answer_of_its_prompt_stays_behind_it() -> None:
    late = says(ONE, "late")
    assert canonical([*HEAD, *TAIL, late])[-1] == late.line


def test_queued_prompts_keep_their_own_lines() -> None:
    second = asks(3, "session/prompt", sessionId=ONE, prompt=[])
    lines = [*opened(), second, says(ONE, "1"), answers(2, stopReason="end_turn"), says(ONE, "2"),
             answers(3, stopReason="end_turn")]
    assert canonical(lines) == [raw.line for raw in lines if raw.sender == "agent"]


def test_a_mode_set_in_the_middle_of_an_answer_stands_before_its_response() -> None:
    mode = update(ONE, "current_mode_update", currentModeId="ask")
    request, response = asks(3, "session/set_mode", sessionId=ONE, modeId="ask"), answers(3)
    pieces = [says(ONE, "1"), says(ONE, "2")]
    end = [answers(2, stopReason="end_turn")]
    one = canonical([*opened(), request, mode, pieces[0], response, pieces[1], *end])
    other = canonical([*opened(), request, pieces[0], pieces[1], response, mode, *end])
    assert one == other == [answers(1, sessionId=ONE).line, *(piece.line for piece in pieces), end[0].line, mode.line,
                            response.line]


def test_mode_and_options_stand_before_the_response_that_was_open_whichever_was_set() -> None:
    mode, options = update(ONE, "current_mode_update", currentModeId="ask"), update(ONE, "config_option_update")
    lines = [*HEAD, *TAIL, asks(3, "session/set_config_option", sessionId=ONE), answers(3, configOptions=[]),
             asks(4, "session/set_mode", sessionId=ONE), mode, options, answers(4),
             asks(5, "session/set_config_option", sessionId=ONE), mode, answers(5, configOptions=[])]
    assert canonical(lines)[-6:] == [lines[-8].line, options.line, mode.line, lines[-4].line, mode.line, lines[-1].line]


# ---------------------------------------------------------------- live output


def shows(*updates: WireLine) -> list[dict[str, object]]:
    wire = conversation.read([*HEAD, *updates, *TAIL])
    return [{key: value for key, value in frame.update.items() if key not in ("sessionUpdate", "toolCallId")}
            for frame in order.canonical(wire) if frame.update.get("sessionUpdate") == "tool_call_update"]


def test_live_output_is_left_out_and_the_result_stays() -> None:
    start, end = progress(ONE, "a", status="in_progress"), progress(ONE, "a", status="completed", content=shown("all"))
    pieces = [progress(ONE, "a", status="in_progress", content=shown(text)) for text in ("1", "12", "123")]
    quiet = shows(start, end)
    assert len(quiet) == 2
    for count in range(4):
        assert shows(start, *pieces[:count], end) == quiet
    assert shows(pieces[0], end) == quiet


def test_a_running_calls_diff_and_title_are_no_live_output() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}
    told = shows(progress(ONE, "a", status="in_progress", content=[diff, *shown("1")]), progress(ONE, "a", title="T"))
    assert told == [{"status": "in_progress", "content": [diff]}, {"title": "T"}]


def test_text_that_follows_a_calls_end_is_kept() -> None:
    after = progress(ONE, "a", content=shown("more"))
    assert shows(progress(ONE, "a", status="completed"), after)[-1] == {"content": shown("more")}


# ---------------------------------------------------------------- promises


def broken(*lines: WireLine) -> list[str]:
    wire = conversation.read(lines)
    return [*wire.problems, *order.broken_promises(wire)]


def test_a_lawful_run_breaks_no_promise() -> None:
    assert broken(*HEAD, *CALLS[0], *CALLS[1], *TAIL) == []


def test_an_update_before_the_session_is_named_is_told() -> None:
    (told,) = broken(asks(1, "session/new"), says(ONE, "early"), answers(1, sessionId=ONE))
    assert "line 2 speaks of a session before the response" in told


def test_an_update_of_a_child_before_it_is_announced_is_told() -> None:
    (told,) = broken(*opened(), says("kid", "early"), state(ONE, "kid", "running"))
    assert told == "line 4 speaks of a child before it was announced"


def test_an_update_before_its_announcement_is_told() -> None:
    (told,) = broken(*opened(), progress(ONE, "a", status="in_progress"), announced(ONE, "a"))
    assert told == "the tool call a was updated before it was announced"


def test_a_call_that_ends_after_its_prompts_answer_is_told() -> None:
    (told,) = broken(*opened(), announced(ONE, "a"), answers(2, stopReason="end_turn"),
                     progress(ONE, "a", status="completed"))
    assert told == "the tool call a ended after the answer of its prompt"


def test_a_second_answer_and_junk_are_told() -> None:
    junk = WireLine("agent", b"hello")
    assert broken(*opened(), answers(1, sessionId=ONE), junk) == [
        "the agent answered a request that was not open: id 1",
        "the agent wrote a line that is no JSON object: hello",
    ]


def test_ids_of_different_types_are_different_requests() -> None:
    assert broken(asks(1, "a"), line("agent", id="1", result={})) == [
        'the agent answered a request that was not open: id "1"']

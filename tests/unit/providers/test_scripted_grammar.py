"""What a model script may say, what it then means, and how a wrong one is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.providers.base import MAIN, Hop
from acp_agent.providers.script_grammar import Address, Done, Hang, Script, ScriptCall, ScriptError, Send, Throw, Wait
from acp_agent.providers.script_parser import parse_script
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

GUIDE = Path(__file__).parents[3] / "docs" / "model-script.md"


def parse(text: str) -> Script:
    return parse_script(text.encode(), "a.script")


def calls(text: str, address: Address | None = None, purpose: str = MAIN) -> Sequence[ScriptCall]:
    return parse(text).lanes[address or Address()].calls[purpose]


def call(*actions: str) -> ScriptCall:
    (only,) = calls("\n  ".join(["call", *actions]))
    return only


def chunks(*actions: str) -> list[Chunk]:
    return [chunk for move in call(*actions).moves if isinstance(move, Send) for chunk in move.chunks]


def deltas(*actions: str) -> list[str]:
    found = chunks(*actions)
    texts = [chunk.text for chunk in found if isinstance(chunk, TextDelta | ReasoningDelta)]
    return texts + [chunk.arguments_delta for chunk in found if isinstance(chunk, ToolCallDelta)]


def refusal(data: str | bytes) -> str:
    with pytest.raises(ScriptError) as caught:
        parse_script(data if isinstance(data, bytes) else data.encode(), "a.script")
    return caught.value.message


# ---------------------------------------------------------------- answers


def test_text_is_a_block_with_a_delta_for_each_string_and_a_finish() -> None:
    assert chunks('say "Hello " "world"') == [
        BlockStart(0, "text"), TextDelta(0, "Hello "), TextDelta(0, "world"), BlockEnd(0, TextBlock("Hello world")),
        Finish(FinishReason("stop")),
    ]


def test_each_action_is_a_block_of_its_own_and_a_tool_call_changes_the_finish() -> None:
    call_id = CallId("c1")
    assert chunks('think "Hm."', 'tool c1 read {"a": 1}', "usage 10 5 cached 3") == [
        BlockStart(0, "reasoning"), ReasoningDelta(0, "Hm."), BlockEnd(0, ReasoningBlock("Hm.")),
        BlockStart(1, "tool-call"), ToolCallDelta(1, call_id, "read", '{"a":1}'),
        BlockEnd(1, ToolCallBlock(call_id, "read", '{"a":1}')),
        UsageChunk(Usage(10, 5, 3)), Finish(FinishReason("tool-calls")),
    ]


def test_text_is_cut_by_characters_whatever_strings_it_came_in() -> None:
    assert deltas('say by 4 "cut into" " fours"') == ["cut ", "into", " fou", "rs"]
    assert deltas('think by 1 "äö"') == ["ä", "ö"]
    assert deltas('tool by 5 c1 read {"a": 1}') == ['{"a":', "1}"]
    assert deltas('say by 3 ""') == [""]


def test_arguments_given_as_strings_stand_for_themselves() -> None:
    assert deltas(r'tool c1 read "{ \"a\"" ":"') == ['{ "a"', ":"]
    assert deltas("tool c1 read") == [""]


def test_an_object_keeps_its_keys_order_numbers_and_escapes() -> None:
    assert deltas(r'tool c1 t { "b" : 1.50, "a" : [ "\u00e9#" , {} ] }') == [r'{"b":1.50,"a":["\u00e9#",{}]}']


def test_an_action_continues_on_deeper_lines_with_comments_between() -> None:
    assert deltas('say "a" # one', '  "b"', "", "# nothing", '     "c"') == ["a", "b", "c"]
    assert deltas("tool c1 t {", '  "a": [1, # first', "   # more", "   2", "]", "}") == ['{"a":[1,2]}']


def test_all_counts_of_a_usage_can_be_given_in_any_order() -> None:
    (usage, _) = chunks("usage 1 2 reasoning 3 cached 4 written 5")
    assert usage == UsageChunk(Usage(1, 2, 4, 5, 3))


@pytest.mark.parametrize("kind", ["stop", "tool-calls", "max-tokens"])
def test_a_finish_can_be_chosen(kind: str) -> None:
    last = chunks('say "x"', f"finish {kind}")[-1]
    assert isinstance(last, Finish)
    assert last.reason.kind == kind


def test_a_call_without_actions_is_an_empty_answer() -> None:
    assert chunks() == [Finish(FinishReason("stop"))]


def test_a_gate_stands_between_what_is_sent_before_and_after_it() -> None:
    one = call('say "a"', "wait go.txt", 'say "b"')
    assert [type(move) for move in one.moves] == [Send, Wait, Send]
    assert one.moves[1] == Wait("go.txt")
    assert one.end == Done()


@pytest.mark.parametrize(("action", "end"), [
    ("hang", Hang()),
    ('hang "is ready"', Hang("is ready")),
    ('throw AUTH "no"', Throw("AUTH", "no")),
    ('throw RATE_LIMIT "no" retry-after 100 status 429', Throw("RATE_LIMIT", "no", 100, 429)),
    ('throw SERVER "no" status 500 final', Throw("SERVER", "no", None, 500, final=True)),
])
def test_a_call_that_does_not_finish_leaves_its_last_block_open(action: str, end: object) -> None:
    one = call('think "a"', 'say "b"', action)
    assert one.end == end
    kinds = [type(chunk) for move in one.moves if isinstance(move, Send) for chunk in move.chunks]
    assert kinds == [BlockStart, ReasoningDelta, BlockEnd, BlockStart, TextDelta]


# ---------------------------------------------------------------- lanes


STORY = """
model "big one" window 64000
call
  tool c1 subagent {}
  tool "a b" subagent {}
  tool c1 subagent {}
lane root > c1
call
  say "first"
lane root > c1[1]
call
  tool c9 subagent {}
lane root > c1[1] > c9
call repeat
  say "deep"
lane root > "a b" [0]
call
  say "quoted"
lane root
call
  say "again root"
purpose compaction
call
  say "summary"
lane root 2
call
  say "second"
"""


def test_every_address_has_its_calls_by_purpose() -> None:
    script = parse(STORY)
    assert {str(address): {purpose: len(found) for purpose, found in lane.calls.items()}
            for address, lane in script.lanes.items()} == {
        "root": {"main": 2, "compaction": 1}, "root > c1": {"main": 1}, "root > c1[1]": {"main": 1},
        "root > c1[1] > c9": {"main": 1}, "root > a b": {"main": 1}, "root 2": {"main": 1},
    }
    assert Address(1, (Hop(CallId("c1"), 1), Hop(CallId("c9")))) in script.lanes
    assert (script.model, script.window, script.roots) == ("big one", 64000, 2)


def test_a_script_without_a_model_line_has_a_name_and_no_window() -> None:
    script = parse("call")
    assert (script.model, script.window) == ("script", UNSET)


def test_root_one_is_the_root() -> None:
    assert list(parse("lane root 1\ncall").lanes) == [Address()]


def test_a_repeated_call_serves_all_that_follow_and_no_other_does() -> None:
    lane = parse("call\ncall repeat").lanes[Address()]
    assert [found and found.line for found in (lane.at(MAIN, at) for at in (0, 1, 2, 99))] == [1, 2, 2, 2]
    assert parse("call").lanes[Address()].at(MAIN, 1) is None
    assert lane.at("compaction", 0) is None


def test_a_script_may_have_windows_line_ends_a_byte_order_mark_and_odd_separators_in_its_text() -> None:
    script = parse_script(b'\xef\xbb\xbfcall\r\n  say "a\xe2\x80\xa8b"\r\n\r\ncall', "a.script")
    first, second = script.lanes[Address()].calls[MAIN]
    assert isinstance(first.moves[0], Send)
    assert first.moves[0].chunks[1] == TextDelta(0, "a\u2028b")
    assert second.line == 4


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(("text", "message"), [
    ("cal", "1: expected at the left margin one of model, lane, purpose, call, found cal"),
    ('"call"', '1: expected at the left margin one of model, lane, purpose, call, found "call"'),
    ("\n# x\ncall now", "3: expected the end of the line, found now"),
    ("call\n  sya \"x\"", "2: expected an action: say, think, tool, usage, wait, finish, throw, hang, found sya"),
    ("call\n  say x", "2: expected text in quotes, found x"),
    ("call\n  say", "2: expected text in quotes, found the end of the line"),
    ('call\n  say "x', '2: expected a closing quote for "x'),
    ('call\n  say "a"\n    "x', '3: expected a closing quote for "x'),
    ('call\n  say "x\\"', '2: expected a closing quote for "x\\"'),
    ('call\n  say "\\q"', '2: expected a JSON string, found "\\q" (JSON is malformed'),
    ('call\n  say "a\tb"', '2: expected a JSON string, found "a\tb" ('),
    ('call\n  say by 0 "x"', "2: expected a delta's length, a whole number from 1 up, found 0"),
    ('call\n  say by "x"', '2: expected a delta\'s length, a whole number from 1 up, found "x"'),
    ('call\n  say "a" b', "2: expected the end of the line, found b"),
    ('call\n  say "a"\n    b', "3: expected the end of the line, found b"),
    ("call\n\tsay", "2: expected spaces before the first word, found a tab"),
    ('call\n    say "x"\n  say "y"', "3: expected 4 spaces, as before the actions above, or none; found 2"),
    ('  say "x"', "1: expected an action to stand below a `call`"),
    ('call\nlane root\n  say "x"', "3: expected an action to stand below a `call`"),
    ("call\n  tool", "2: expected the tool call's id, found the end of the line"),
    ("call\n  tool c1", "2: expected the tool's name, found the end of the line"),
    ('call\n  tool "" t', '2: expected the tool call\'s id, found ""'),
    ('call\n  tool c1 t {"a":', "2: expected the tool's arguments as a JSON object (Input data was truncated)"),
    ('call\n  tool c1 t {"a" 1}', "2: expected the tool's arguments as a JSON object (JSON is malformed"),
    ("call\n  tool c1 t [1]", "2: expected the tool's arguments as a JSON object (Expected `object`, got `array`)"),
    ("call\n  tool c1 t " + '{"a":' * 5000 + "1" + "}" * 5000, "2: expected the tool's arguments as a JSON object"),
    ("call\n  usage 1", "2: expected the output tokens, a whole number, found the end of the line"),
    ("call\n  usage 1 -2", "2: expected the output tokens, a whole number, found -2"),
    ("call\n  usage 1 2 cached", "2: expected cached: the cached tokens, a whole number, found the end of"),
    ("call\n  usage 1 2 cached 3 cached 4", "2: expected the end of the line, found cached"),
    ("call\n  usage 1 9999999999", "2: expected the output tokens, a whole number, found 9999999999"),
    ("call\n  usage 1 ٣", "2: expected the output tokens, a whole number, found ٣"),
    ("call\n  wait", "2: expected a file's name, found the end of the line"),
    ("call\n  wait /tmp/x", "2: expected a file inside the session's working directory, found /tmp/x"),
    ("call\n  hang a/../../x", "2: expected a file inside the session's working directory, found a/../../x"),
    ("call\n  finish error", "2: expected a way to finish: stop, tool-calls, max-tokens, found error"),
    ("call\n  throw", "2: expected a failure code such as RATE_LIMIT, found the end of the line"),
    ("call\n  throw AUTH", "2: expected the failure's message in quotes, found the end of the line"),
    ('call\n  throw AUTH "a" "b"', '2: expected the end of the line, found "b"'),
    ('call\n  hang\n  say "x"', "3: expected nothing after `hang`, which ends the call, found say"),
    ("call\n  finish stop\n  usage 1 2", "3: expected nothing after `finish`, which ends the call, found usage"),
    ("call repeat\n\ncall", "3: expected no call after the one at line 1, which repeats for ever"),
    ("call\nmodel a", "2: expected `model` once, before the first lane and call"),
    ("model a\nmodel b", "2: expected `model` once, before the first lane and call"),
    ("model", "1: expected the model's name, found the end of the line"),
    ("model a window", "1: expected the context window in tokens, a whole number, found the end of the line"),
    ("purpose", "1: expected what the calls below are made for, such as main or compaction, found the end"),
    ("lane", "1: expected `root`, found the end of the line"),
    ("lane child", "1: expected `root`, found child"),
    ("lane root 0", "1: expected the root session's number or `>`, a whole number from 1 up, found 0"),
    ("lane root >", "1: expected the id of the delegating tool call, found the end of the line"),
    ("lane root > a[x]", "1: expected a tool call's id, or one like call-1[2] where it had been used before"),
    ('lane root > "a" [x]', "1: expected the end of the line, found [x]"),
    ("call\nlane root 2", "2: expected a `call` in lane root 2, found none"),
    ("lane root 2\ncall", "1: expected a lane root too: roots count from 1"),
    ("lane root > c1\ncall", "1: expected a lane root too, whose calls make this child"),
    ("call\n  tool c2 t\n  tool c2 t\nlane root > c1\ncall", "4: expected a tool call c1 in lane root to make this "
                                                            "child; its tool calls: c2"),
    ("call\nlane root > c1\ncall", "2: expected a tool call c1 in lane root to make this child; its tool calls: none"),
])
def test_a_wrong_script_is_refused_naming_line_and_what_was_expected(text: str, message: str) -> None:
    assert refusal(text).startswith(f"a.script:{message}")


def test_a_script_without_a_call_is_refused() -> None:
    assert refusal("# nothing\n") == "a.script: expected at least one `call`, found none"


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    assert refusal(b'call\n  say "\xff"\n') == "a.script:2: expected UTF-8 text, found other bytes"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.integers(1, 9) | st.none())
def test_any_text_can_be_said_and_comes_out_whole(texts: list[str], size: int | None) -> None:
    written = " ".join(msgspec.json.encode(text).decode() for text in texts)
    found = deltas(f"say {written}" if size is None else f"say by {size} {written}")
    assert "".join(found) == "".join(texts)
    if size is None:
        assert found == texts
    else:
        assert all(len(delta) == size for delta in found[:-1])
        assert len(found[-1]) <= size


WORDS = st.sampled_from(["call", "lane", "root", "root > c1", "purpose", "model", "repeat", "say", "tool c1 t", "wait",
                         '"x"', '"', "{", "}", "[1]", "by", "2", "#", ">", "hang", "throw", "usage", "\n", "\n  ",
                         "\n    ", "\t", "\u2028", "é"])  # fmt: skip


@given(st.lists(WORDS, max_size=20))
def test_any_mixture_of_words_is_a_script_or_refused_with_its_file(words: list[str]) -> None:
    assert _lanes_or_refusal(" ".join(words)) != ""


def _lanes_or_refusal(text: str) -> str:
    """The script's lanes, or a refusal with its place taken off; "" where either says too little."""
    try:
        return ", ".join(map(str, parse(text).lanes))
    except ScriptError as error:
        place = f"a.script:{error.facts['line']}: " if "line" in error.facts else "a.script: "
        return error.message.removeprefix(place) if error.message.startswith(place) else ""


# ---------------------------------------------------------------- the guide


def test_every_example_of_the_guide_is_a_script() -> None:
    examples = re.findall(r"^```script\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        assert parse(example).lanes


def test_the_guide_names_every_directive_and_action() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    words = [refusal("x"), refusal("call\n  x")]
    listed = [word for text in words for word in re.findall(r"[a-z]+", text.partition("expected")[2])]
    named = set(listed) & set(re.findall(r"`([a-z]+)\b", guide))
    assert {"model", "lane", "purpose", "call", "say", "think", "tool", "usage", "wait", "finish", "throw",
            "hang"} <= named

"""The transcript: what is printed of each line of a conversation."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from replay.artefacts import Side
from replay.printer import Printer, brief, one_line, visible
from replay.transcript import Transcript
from tests.support.schema import Pending, validate_frame


class Shown:
    """A transcript and what it printed."""

    def __init__(self, **options: Any) -> None:
        self.file = io.StringIO()
        self.transcript = Transcript(Console(file=self.file, force_terminal=False, width=40), **options)

    def frame(self, sender: Side = "agent", /, **members: Any) -> None:
        self.transcript.show(json.dumps({"jsonrpc": "2.0", **members}).encode(), sender)

    def update(self, kind: str, /, *, session: str = "s", **members: Any) -> None:
        self.frame(method="session/update", params={
            "sessionId": session, "update": {"sessionUpdate": kind, **members}})

    def text(self, text: str, kind: str = "agent_message_chunk", **members: Any) -> None:
        self.update(kind, content={"type": "text", "text": text}, **members)

    def output(self, text: str, *, status: str | None = None) -> None:
        self.update("tool_call_update", toolCallId="c", status=status, content=content(text))

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().split("\n")[:-1]


def content(text: str) -> list[Any]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def test_chunks_of_a_message_flow_and_another_message_begins_a_line() -> None:
    shown = Shown()
    shown.text("think", "agent_thought_chunk", messageId="a")
    shown.text("ing", "agent_thought_chunk", messageId="a")
    for piece in ("a long answer that is longer than the ", "console is wide ", ":smile: [bold]x[/bold]"):
        shown.text(piece, messageId="a")
    shown.text("next", messageId="b")
    shown.transcript.note("end")
    assert shown.lines == [
        "thinking", "a long answer that is longer than the console is wide :smile: [bold]x[/bold]", "next", "end"]


def test_chunks_without_message_ids_of_one_kind_are_one_message() -> None:
    shown = Shown()
    for text in ("one\n", "two ", "three"):
        shown.text(text)
    shown.text("hm", "agent_thought_chunk")
    shown.text("four")
    shown.transcript.note("end")
    assert shown.lines == ["one", "two three", "hm", "four", "end"]


def test_content_that_is_no_text_is_named() -> None:
    shown = Shown()
    for block in (
        {"type": "image", "mimeType": "image/png", "data": "AAAA"}, {"type": "strange"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AA"}},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
    ):
        shown.update("agent_message_chunk", content=block, messageId=str(block))
    shown.transcript.note("end")
    assert shown.lines[:-1] == [
        "[image image/png]", "[strange]", "[resource_link a file:///a]", "[resource file:///b]", "inside"]


def test_a_tool_call_is_shown_from_its_announcement_to_its_end() -> None:
    shown = Shown()
    shown.update("tool_call", toolCallId="c", title="Look", name="read", kind="read", status="pending")
    shown.update("tool_call_update", toolCallId="c", status="in_progress")
    shown.update("tool_call_update", toolCallId="c", status="completed", content=content("```\nfound\n```"))
    shown.update("tool_call_update", toolCallId="c", status="completed", content=content("```\nfound\n```"))
    shown.update("tool_call", toolCallId="d", title="Run", kind="execute")
    shown.update("tool_call_update", toolCallId="d", title="Run it", status="failed")
    assert shown.lines == ["read Look", "  done Look", "    found", "execute Run", "execute Run it", "  failed Run it"]


def test_an_update_of_a_call_that_nobody_announced_is_shown_too() -> None:
    shown = Shown()
    shown.update("tool_call_update", toolCallId="x", status="completed")
    assert shown.lines == ["tool ", "  done "]


def test_live_output_is_shown_line_by_line_as_it_grows_and_nothing_twice() -> None:
    shown = Shown()
    shown.update("tool_call", toolCallId="c", title="t", name="bash")
    for text in ("one\ntw", "one\ntwo\n", "one\ntwo\n"):
        shown.output(text)
    assert shown.lines == ["bash t", "    one", "    two"]
    shown.output("one\ntwo\nthree", status="completed")
    assert shown.lines[3:] == ["  done t", "    three"]


def test_of_output_that_keeps_only_its_tail_what_came_is_shown() -> None:
    shown = Shown()
    for text in ("1\n2", "2\n3", "3\n2"):
        shown.output(f"```\n{text}\n```")
    assert shown.lines[1:] == ["    1", "    2", "    3", "    2"]


def test_of_a_list_of_progress_the_lines_that_changed_are_shown_and_the_end_is_shown_whole() -> None:
    shown = Shown(output_lines=20)
    for text in ("- a: runs\n", "- a: done\n- b: runs\n", "- a: done\n- b: done\n- c: runs\n"):
        shown.output(text)
    assert shown.lines[1:] == ["    - a: runs", "    - a: done", "    - b: runs", "    - b: done", "    - c: runs"]
    shown.output("All is done:\n- a: done\n- b: done", status="completed")
    assert shown.lines[6:] == ["  done ", "    All is done:", "    - a: done", "    - b: done"]


def test_a_long_output_that_is_another_one_is_shown_anew() -> None:
    shown = Shown(output_lines=2000)
    lines = [str(number) for number in range(600)]
    for text in (lines, [*lines[1:], "x"], ["y", *lines]):
        shown.output("\n".join([*text, ""]))
    assert shown.lines[1:] == [f"    {line}" for line in [*lines, "x", "y", *lines]]


def test_no_more_of_a_calls_output_is_shown_than_allowed_and_the_rest_is_counted() -> None:
    shown = Shown(output_lines=2)
    shown.output("1\n2\n3\n")
    shown.output("1\n2\n3\n4\n5", status="completed")
    assert shown.lines[1:] == ["    1", "    2", "  done ", "    (3 more lines)"]


def test_a_code_block_inside_other_text_stays_as_it_is() -> None:
    shown = Shown()
    shown.output("see:\n```\nx\n```", status="completed")
    shown.output("````\n```\n````", status="completed")
    assert shown.lines[2:] == ["    see:", "    ```", "    x", "    ```", "    ```"]


def test_a_diff_shows_what_changed_once_with_its_context() -> None:
    shown = Shown()
    item = {"type": "diff", "path": "/a/b.txt", "newText": "1\n2\n3\n4\nnew\n", "oldText": "1\n2\n3\n4\nold\n"}
    for status in (None, "completed"):
        shown.update("tool_call_update", toolCallId="c", title="t", status=status, content=[item])
    assert shown.lines == ["tool t", "    /a/b.txt", "     2", "     3", "     4", "    -old", "    +new", "  done t"]


def test_a_new_file_and_distant_changes_are_told_apart() -> None:
    shown = Shown()
    many = [str(number) for number in range(20)]
    for old, new in ((None, "a"), ("\n".join(many), "\n".join(["x", *many[1:-1], "y"]))):
        shown.update("tool_call_update", toolCallId="c", content=[
            {"type": "diff", "path": "/f", "oldText": old, "newText": new}])
    assert shown.lines == [
        "tool ", "    new file /f", "    +a", "    /f", "    -0", "    +x", "     1", "     2", "     3", "    ...",
        "     16", "     17", "     18", "    -19", "    +y"]


def test_plans_modes_titles_commands_and_notices_get_a_line() -> None:
    shown = Shown()
    shown.update("plan", entries=[
        {"content": "look", "status": "completed", "priority": "high"}, {"content": "act", "status": "in_progress"},
        {"content": "rest", "status": "pending"}, {"content": "odd", "status": "someday"}])
    shown.update("current_mode_update", currentModeId="fast")
    shown.update("session_info_update", title="A title")
    shown.update("session_info_update", title=None, updatedAt="2026-01-01T00:00:00Z")
    shown.update("available_commands_update", availableCommands=[{"name": "compact", "description": "x"}])
    shown.update("notice", severity="warning", title="Slow", description="very")
    assert shown.lines == [
        "  [x] look", "  [>] act", "  [ ] rest", "  [someday] odd", "mode: fast", "title: A title",
        "commands: /compact", "warning: Slow: very"]


def option(name: str, value: str | bool, *choices: str) -> dict[str, Any]:
    shape = {"type": "boolean"} if isinstance(value, bool) else {
        "type": "select", "options": [{"value": choice, "name": choice.title()} for choice in choices]}
    return {"id": name.lower(), "name": name, "currentValue": value, **shape}


def test_of_the_settings_of_a_session_those_that_changed_are_shown() -> None:
    shown = Shown()
    shown.frame("client", id=1, method="session/new", params={"cwd": "/", "mcpServers": []})
    shown.frame(id=1, result={"sessionId": "s", "configOptions": [
        option("Mode", "ask", "ask", "all"), option("Model", "a", "a"), option("Fast", False), option("Old", True)]})
    fast = option("Fast", True)
    shown.update("config_option_update", configOptions=[
        option("Mode", "all", "ask", "all"), option("Model", "a", "a", "b"), fast, option("New", "x", "x"), 5])
    news = ["Mode: all", "Model: other choices, still a", "Fast: on", "New: x", "Old: gone"]
    assert shown.lines[0].startswith("an item that cannot be shown (")
    assert shown.lines[1:] == news
    shown.update("config_option_update", configOptions=[
        option("Mode", "all", "ask", "all"), option("Model", "a", "a", "b"), fast, option("New", "x", "x")])
    shown.update("config_option_update", session="t", configOptions=[fast])
    assert shown.lines[6:] == ["settings: as before", "session t:", "Fast: on"]


def test_what_a_client_set_itself_is_no_news() -> None:
    shown = Shown()
    shown.frame("client", id="x", method="session/set_config_option", params={"sessionId": "s"})
    shown.frame(id="x", result={"configOptions": [option("Mode", "all", "all"), "bad"]})
    shown.update("config_option_update", configOptions=[option("Mode", "all", "all")])
    assert shown.lines == ["settings: as before"]


def test_children_and_compactions_get_a_line() -> None:
    shown = Shown()
    shown.update("subagent_update", sessionId="k", title="Paint", description="It", state={"state": "running"})
    shown.update("subagent_update", sessionId="k", state={"state": "idle", "stopReason": "error", "error": {
        "code": -1, "message": "no\npaint"}})
    shown.update("subagent_update", sessionId="k", title=None)
    shown.update("compaction_update", compactionId="1", status="in_progress")
    for text in ("so ", "far"):
        shown.update("compaction_summary_chunk", compactionId="1", content={"type": "text", "text": text})
    shown.update("compaction_update", compactionId="1", status="failed", error="full", summary=[
        {"type": "text", "text": "all"}])
    assert shown.lines == [
        "subagent k: Paint: It: running", "subagent k: idle: error: no␊paint", "subagent k", "compaction: in_progress",
        "so far", "compaction: failed: full", "all"]


GOOD: dict[str, Any] = {
    "text": {"type": "text", "text": "fine"}, "item": {"type": "content", "content": {"type": "text", "text": "fine"}},
    "entry": {"content": "fine", "status": "pending"}, "command": {"name": "fine", "description": ""},
    "setting": {"id": "fine", "currentValue": True},
}


@pytest.mark.parametrize(("kind", "member", "good"), [
    ("plan", "entries", "entry"), ("available_commands_update", "availableCommands", "command"),
    ("config_option_update", "configOptions", "setting"), ("compaction_update", "summary", "text"),
    ("tool_call", "content", "item"), ("tool_call_update", "content", "item"),
])
def test_a_bad_item_of_a_list_spoils_only_itself(kind: str, member: str, good: str) -> None:
    shown = Shown()
    more: dict[str, Any] = {"toolCallId": "c", "title": "t", "compactionId": "1", "status": "completed"}
    for _ in range(2):
        shown.update(kind, **more | {member: [5, GOOD[good], {"content": 5, "name": 5, "id": 5, "text": 5}]})
    text = "\n".join(shown.lines)
    assert "fine" in text
    assert "an update that" not in text
    assert text.count("an item that cannot be shown (") == (2 if kind.startswith("tool_call") else 4)


def kinds(file: str) -> list[Any]:
    schema = json.loads((Path(__file__).parents[2] / "schema" / file).read_text())["$defs"]
    return [(branch["properties"]["sessionUpdate"]["const"], schema[branch["allOf"][0]["$ref"].split("/")[-1]], schema)
            for branch in schema["SessionUpdate"]["oneOf"]]


def least(shape: Any, schema: Any) -> Any:
    """A value that a schema accepts, with as little in it as there may be."""
    while "$ref" in shape:
        shape = schema[shape["$ref"].split("/")[-1]]
    for union in ("allOf", "anyOf", "oneOf"):
        if union in shape:
            made = least(shape[union][0], schema)
            return made | filled(shape, schema) if isinstance(made, dict) else made
    if "const" in shape:
        return shape["const"]
    plain: dict[str, Any] = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "null": None}
    kind = shape["type"] if isinstance(shape.get("type"), str) else "object"
    return plain[kind] if kind in plain else filled(shape, schema)


def filled(shape: Any, schema: Any) -> dict[str, Any]:
    return {name: least(shape["properties"][name], schema) for name in shape.get("required", ())}


SENT_TOO = {"subagent_update"}
"""Unstable updates that our own agent sends."""


@pytest.mark.parametrize(("kind", "shape", "schema"), [
    *kinds("schema.json"), *(one for one in kinds("schema.unstable.json") if one[0] in SENT_TOO)])
def test_every_update_of_the_protocol_can_be_shown(kind: str, shape: Any, schema: Any) -> None:
    shown = Shown()
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": {
        "sessionId": "s", "update": filled(shape, schema) | {"sessionUpdate": kind}}}
    assert validate_frame(frame, "agent", Pending(), unstable=True) == []
    shown.transcript.show(json.dumps(frame).encode())
    shown.transcript.note("end")
    assert not [line for line in shown.lines if "cannot be shown" in line]


def test_the_newest_usage_is_told_at_the_end_of_a_turn() -> None:
    shown = Shown()
    shown.update("usage_update", used=10, size=2000)
    shown.update("usage_update", used=1500, size=2000, cost={"amount": 0.25, "currency": "EUR"})
    shown.frame(id=1, result={"stopReason": "end_turn"})
    shown.frame(id=2, result={"stopReason": "max_tokens"})
    assert shown.lines == ["turn ended: end_turn (1,500 of 2,000 tokens, 0.25 EUR)", "turn ended: max_tokens"]


def test_updates_of_several_sessions_say_whose_they_are() -> None:
    shown = Shown()
    for session in ("a", "a", "b", "a"):
        shown.update("current_mode_update", session=session, currentModeId="m")
    assert shown.lines == ["mode: m", "mode: m", "session b:", "mode: m", "session a:", "mode: m"]


def test_a_session_that_was_just_opened_needs_no_heading() -> None:
    shown = Shown()
    for session in ("a", "b"):
        shown.frame(id=1, result={"sessionId": session})
        shown.update("current_mode_update", session=session, currentModeId="m")
    assert shown.lines == ["mode: m", "mode: m"]


def test_both_sides_make_a_whole_conversation() -> None:
    shown = Shown()
    prompt = [{"type": "text", "text": "Do "}, {"type": "text", "text": "it"}]
    shown.frame("client", id=1, method="session/prompt", params={"sessionId": "s", "prompt": prompt})
    shown.frame(id=1, method="session/request_permission", params={
        "sessionId": "s", "toolCall": {"toolCallId": "c", "title": "Write", "content": [
            {"type": "diff", "path": "/f", "newText": "x"}]},
        "options": [{"optionId": "y", "name": "Go on", "kind": "allow_once"}]})
    shown.frame("client", id=1, result={"outcome": {"outcome": "selected", "optionId": "y"}})
    shown.frame(id=2, method="fs/read_text_file", params={"sessionId": "s", "path": "/f"})
    shown.frame("client", id=2, error={"code": -1, "message": "no"})
    shown.frame("client", method="session/cancel", params={"sessionId": "s"})
    shown.frame(id=1, error={"code": -32603, "message": "it broke", "data": {"why": "so"}})
    shown.frame("client", id=2, method="session/set_mode", params={"sessionId": "s", "modeId": "m"})
    assert shown.lines == [
        "> Do it", "asks to run: Write", "    new file /f", "    +x", "answered: Go on",
        "agent asks: fs/read_text_file /f", "client refuses: no", "cancel",
        'session/prompt: error -32603: it broke {"why":"so"}', "set mode: m"]


def test_prompts_that_the_user_saw_being_typed_are_left_out() -> None:
    shown = Shown(prompts=False)
    shown.frame("client", id=1, method="session/prompt", params={"prompt": [{"type": "text", "text": "x"}]})
    assert shown.lines == []


@pytest.mark.parametrize("line", [
    b"not json", b"[]", b'{"id": {}}', b"\xff", b'"' + b"[" * 5000,
    b'{"method": "session/update"}', b'{"method": "session/update", "params": {"sessionId": "s", "update": {}}}',
    b'{"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "brand_new", "a": 1}}}',
    b'{"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "plan", "entries": 1}}}',
])
def test_what_cannot_be_read_is_shown_as_it_came_on_one_line(line: bytes) -> None:
    shown = Shown()
    shown.transcript.show(line)
    (only,) = shown.lines
    assert only.startswith(("not a message (", "an update that cannot be shown ("))
    assert line.decode(errors="replace")[:12] in only or b"update" in line


@pytest.mark.parametrize("line", [
    b'{"id": 1, "method": "session/request_permission", "params": 7}', b'{"id": 1, "method": "x", "params": [1]}',
    b'{"id": 1, "error": 7}', b'{"id": 1, "result": 7}', b'{"id": 1, "result": {"stopReason": 7}}', b'{"id": 1}', b"{}",
    b'{"method": "_own/news"}',
])
def test_a_message_of_a_wrong_shape_does_not_break_the_transcript(line: bytes) -> None:
    shown = Shown()
    for sender in ("agent", "client"):
        shown.transcript.show(line, "agent" if sender == "agent" else "client")
    assert all(len(text) < 200 for text in shown.lines)


def test_control_characters_are_shown_and_never_sent() -> None:
    assert visible("a\x1b[2Jb\r\nc\td\x07\x9b\x7f\u202e") == "a␛[2Jb\nc\td␇<U+009B>␡<U+202E>"
    assert one_line("a\nb\r\nc\td") == "a␊b␊c d"
    shown = Shown()
    shown.update("tool_call", toolCallId="c", title="ls\n1  Allow", name="x\x1b[31m", status="pending")
    shown.text("\x1b[31mred\n")
    assert shown.lines == ["x␛[31m ls␊1  Allow", "␛[31mred"]


def test_a_line_of_json_is_cut_where_it_is_long_and_stays_one_line() -> None:
    assert brief(b'{"a": "short", "n": [1, 2.5, null]}') == '{"a":"short","n":[1,2.5,null]}'
    assert brief(json.dumps({"a": "x" * 100}).encode()) == f'{{"a":"{"x" * 40}… (100 characters)"}}'
    assert brief(b'{"a": "' + b"x\\n" * 10 + b'"}').count("\n") == 0
    assert len(brief(json.dumps(list(range(1000))).encode())) < 270
    assert brief(b"no json\nat all") == "no json␊at all"


def test_text_that_is_held_back_comes_whole_when_its_line_ends() -> None:
    file = io.StringIO()
    printer = Printer(Console(file=file, force_terminal=False))
    printer.hold = True
    printer.flow("one ", "")
    printer.aside(("aside", ""))
    printer.flow("two", "")
    assert file.getvalue() == "aside\n"
    printer.line(("line", ""))
    assert file.getvalue() == "aside\none two\nline\n"


def test_a_question_that_was_interrupted_is_known_to_be() -> None:
    file = io.StringIO()
    printer = Printer(Console(file=file, force_terminal=False))
    printer.ask("> ", "")
    assert printer.asking
    printer.line(("news", ""))
    assert (file.getvalue(), printer.asking) == ("> \nnews\n", False)
    printer.ask("> ", "")
    printer.answered()
    printer.line(("next", ""))
    assert file.getvalue() == "> \nnews\n> next\n"  # the typed line's own end is the terminal's

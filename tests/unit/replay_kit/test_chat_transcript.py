"""The transcript: what is printed of each line of a conversation."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from replay.artefacts import Side
from replay.printer import Printer, brief, one_line, visible
from replay.transcript import Transcript


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


def test_output_that_keeps_only_its_tail_is_shown_anew() -> None:
    shown = Shown()
    shown.output("```\n1\n2\n```")
    shown.output("```\n2\n3\n```")
    assert shown.lines[1:] == ["    1", "    2", "    2", "    3"]


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

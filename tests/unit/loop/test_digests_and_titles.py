"""What is noted of a request: digests that tell which part moved and do not tell machines apart; and titles."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.ids import MessageId
from acp_agent.loop.digests import RequestDigester, Tokeniser
from acp_agent.loop.title import make_title
from acp_agent.session.events import (
    HeaderContent,
    ModelConfig,
    RequestParts,
    Source,
    TextBlock,
    ToolSchema,
    UserMessage,
)


@pytest.mark.parametrize(("text", "tokens"), [
    ("in /home/me/w here", "in {{cwd}} here"),
    ("/home/me/w/file.txt", "{{cwd}}/file.txt"),
    ("/home/me/other", "{{home}}/other"),
    ("/home/me/w2", "{{home}}/w2"),
    ("/home/me-too", "/home/me-too"),
    ("Look in /home/me/w.", "Look in {{cwd}}."),
    ("/home/me/w.txt", "{{home}}/w.txt"),
    ("(/home/me)", "({{home}})"),
    ("/extra/x", "{{root:1}}/x"),
    ("id 0C1F5ef0-1234-4abc-89de-0123456789ab.", "id {{id}}."),
    ("on 2026-11-30", "on {{date}}"),
    ("at 2026-11-30T22:03:11.5+01:00!", "at {{date}}!"),
    ("12026-11-30", "12026-11-30"),
])
def test_what_differs_between_machines_without_meaning_is_tokenised(text: str, tokens: str) -> None:
    assert Tokeniser(["/home/me/w", "/extra/"], "/home/me/")(text) == tokens


def test_the_file_system_root_is_no_token() -> None:
    assert Tokeniser(["/"], "/")("/etc/passwd") == "/etc/passwd"


def user(text: str, message_id: str = "m") -> UserMessage:
    return UserMessage((TextBlock(text),), Source("user"), "user", MessageId(message_id))


def header(system: str = "s", model: str = "m", tool: str = "t") -> HeaderContent:
    return HeaderContent(ModelConfig("p", model), system=system, tools=(ToolSchema(tool, "d", {}),))


def digester(cwd: str = "/w") -> RequestDigester:
    return RequestDigester(Tokeniser([cwd], "/home/me"))


def parts(messages: list[UserMessage], head: HeaderContent | None = None, cwd: str = "/w") -> RequestParts:
    return digester(cwd).parts(head or header(), messages, 0)


def test_each_part_moves_alone() -> None:
    base = parts([user("a")])
    moved = {
        "config": parts([user("a")], header(model="other")),
        "system": parts([user("a")], header(system="other")),
        "tools": parts([user("a")], header(tool="other")),
        "messages": parts([user("b")]),
    }
    for name, other in moved.items():
        assert [key for key in ("config", "system", "tools", "messages")
                if getattr(base, key) != getattr(other, key)] == [name]


def test_another_directory_and_other_message_ids_change_nothing() -> None:
    one = parts([user("look at /a/x", "m1")], header("in /a"), "/a")
    assert one == parts([user("look at /b/x", "m2")], header("in /b"), "/b")


def test_only_new_messages_are_listed() -> None:
    live = digester()
    first = live.parts(header(), [user("a"), user("b")], 0).messages
    second = live.parts(header(), [user("a"), user("b"), user("c")], 0).messages
    assert (first.count, len(first.added)) == (2, 2)
    assert (second.count, len(second.added)) == (3, 1)


@given(st.lists(st.sampled_from("abc"), max_size=6), st.integers(0, 6))
def test_the_head_does_not_depend_on_how_many_requests_it_took(texts: list[str], cut: int) -> None:
    messages = [user(text) for text in texts]
    live = digester()
    live.parts(header(), messages[:cut], 0)
    again, whole = live.parts(header(), messages, 0).messages, parts(messages).messages
    assert (again.count, again.head) == (whole.count, whole.head)


def test_a_rewritten_history_is_listed_anew() -> None:
    live = digester()
    live.parts(header(), [user("a"), user("b")], 0)
    after = live.parts(header(), [user("x"), user("b")], 1).messages
    assert after == parts([user("x"), user("b")]).messages


@pytest.mark.parametrize(("prompt", "title"), [
    ("Say hello", "Say hello"),
    ("  one\ttwo \n three four five six", "one two three four five"),
    ("a" * 50, "a" * 40),
    ("é" * 30, "é" * 20),
    ("x" + "é" * 30, "x" + "é" * 19),
    ("123456789 123456789 123456789 123456789 123", "123456789 123456789 123456789 123456789"),
    ("", ""), (" \n ", ""), ("\x1b]0;pwn\x07 \x00 \x1b[31mred\x9b1m \x7f", "]0;pwn [31mred1m"), ("\x1b", ""),
])
def test_a_title_is_the_first_five_words_within_forty_bytes(prompt: str, title: str) -> None:
    assert make_title(prompt) == title


@given(st.text())
def test_any_prompt_has_a_title_that_can_be_stored(prompt: str) -> None:
    title = make_title(prompt)
    assert len(title.encode()) <= 40
    assert title == title.strip()
    assert not any(unicodedata.category(one) == "Cc" for one in title)

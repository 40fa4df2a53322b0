"""The `ask_user` tool: what it asks, what counts as an answer, and what it must not ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.tools.ask_user import AskUser
from acp_agent.tools.questions import ElicitError, Reply
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

ASK = AskUser()


class FakeUser:
    """Answers every question with `reply`, or an error."""

    def __init__(self, *, forms: bool = True, links: bool = True) -> None:
        self.forms, self.links = forms, links
        self.reply: Reply | ElicitError = Reply("cancel")
        self.asked: list[tuple[str, Any]] = []

    async def form(self, message: str, schema: dict[str, Any]) -> Reply:
        return self._answer(message, schema)

    async def link(self, message: str, url: str) -> Reply:
        return self._answer(message, url)

    def _answer(self, message: str, about: Any) -> Reply:
        self.asked.append((message, about))
        if isinstance(self.reply, ElicitError):
            raise self.reply
        return self.reply


class AskingSession(ToolSession):
    """A session whose client has somebody to ask."""

    def __init__(self, cwd: Path, user: FakeUser | None) -> None:
        super().__init__(cwd, cwd / "spill")
        self.user = user

    def context(self) -> Any:
        return msgspec.structs.replace(super().context(), elicit=self.user)


@pytest.fixture
def user() -> FakeUser:
    return FakeUser()


@pytest.fixture
def asking(tmp_path: Path, user: FakeUser) -> AskingSession:
    return AskingSession(tmp_path, user)


COLOUR = {"name": "colour", "type": "choice", "options": ["red", "blue"]}


def test_a_bare_question_asks_for_a_line_of_text(asking: AskingSession, user: FakeUser) -> None:
    user.reply = Reply("accept", {"answer": "42"})
    assert text_of(asking.run(ASK, message="How many?")) == "The user answered:\nanswer: 42"
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    assert user.asked == [("How many?", schema)]


def test_every_kind_of_field_becomes_a_flat_schema(asking: AskingSession, user: FakeUser) -> None:
    fields = [
        {"name": "t", "title": "Text", "description": "any"}, {"name": "n", "type": "number"},
        {"name": "i", "type": "integer"}, {"name": "b", "type": "boolean", "required": False}, COLOUR,
        {"name": "many", "type": "choices", "options": ["a", "b"]},
    ]
    user.reply = Reply("accept", {"t": "x", "n": 1.5, "i": 2, "b": False, "colour": "red", "many": ["a", "b"]})
    told = text_of(asking.run(ASK, message="m", fields=fields))
    assert told == "The user answered:\nt: x\nn: 1.5\ni: 2\nb: no\ncolour: red\nmany: a, b"
    ((_, schema),) = user.asked
    assert schema["properties"] == {
        "t": {"type": "string", "title": "Text", "description": "any"}, "n": {"type": "number"},
        "i": {"type": "integer"}, "b": {"type": "boolean"}, "colour": {"type": "string", "enum": ["red", "blue"]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
    }
    assert schema["required"] == ["t", "n", "i", "colour", "many"]


@pytest.mark.parametrize("content", [
    {}, {"colour": None}, {"colour": "green"}, {"colour": 1}, {"colour": ["red"]}, {"other": "red"},
])
def test_an_answer_that_does_not_fit_is_no_answer(
    asking: AskingSession, user: FakeUser, content: Mapping[str, Any]
) -> None:
    user.reply = Reply("accept", content)
    assert code_of(asking.run(ASK, message="m", fields=[COLOUR])) == "BAD_ANSWER"


@pytest.mark.parametrize(("asks", "properties", "required"), [
    ({"form", "link"}, ["message", "fields", "url"], ["message"]), ({"form"}, ["message", "fields"], ["message"]),
    ({"link"}, ["message", "url"], ["message", "url"]),
])
def test_the_model_is_told_of_the_ways_there_are(asks: Any, properties: list[str], required: list[str]) -> None:
    parameters = AskUser(frozenset(asks)).parameters
    assert (list(parameters["properties"]), parameters["required"]) == (properties, required)


def test_something_must_be_chosen_where_an_answer_is_required(asking: AskingSession, user: FakeUser) -> None:
    user.reply = Reply("accept", {"many": []})
    many = {"name": "many", "type": "choices", "options": ["a"]}
    assert code_of(asking.run(ASK, message="m", fields=[many])) == "BAD_ANSWER"
    assert not asking.run(ASK, message="m", fields=[many | {"required": False}]).is_error


@pytest.mark.parametrize(("kind", "value"), [
    ("integer", True), ("integer", 1.5), ("number", "1"), ("number", False), ("boolean", 1), ("text", 1),
])
def test_types_are_not_stretched(asking: AskingSession, user: FakeUser, kind: str, value: Any) -> None:
    user.reply = Reply("accept", {"f": value})
    assert code_of(asking.run(ASK, message="m", fields=[{"name": "f", "type": kind}])) == "BAD_ANSWER"


@pytest.mark.parametrize(("value", "shown"), [(5, "5"), (5.0, "5"), (-3.0, "-3"), (0.0, "0")])
def test_a_whole_number_written_as_a_fraction_is_an_integer(
    asking: AskingSession, user: FakeUser, value: float, shown: str,
) -> None:
    user.reply = Reply("accept", {"f": value})
    outcome = asking.run(ASK, message="m", fields=[{"name": "f", "type": "integer"}])
    assert text_of(outcome) == f"The user answered:\nf: {shown}"


def test_an_optional_field_may_stay_empty(asking: AskingSession, user: FakeUser) -> None:
    user.reply = Reply("accept", {})
    outcome = asking.run(ASK, message="m", fields=[{"name": "f", "required": False}])
    assert text_of(outcome) == "The user answered:\n(nothing was filled in)"


@pytest.mark.parametrize(("action", "says"), [
    ("decline", "declined"), ("cancel", "dismissed"), ("_later", "dismissed"), ("", "dismissed"),
])
def test_no_action_but_accept_is_an_answer(
    asking: AskingSession, user: FakeUser, action: str, says: str
) -> None:
    user.reply = Reply(action, {"answer": "yes"})
    outcome = asking.run(ASK, message="m")
    assert not outcome.is_error
    assert says in text_of(outcome)
    assert "yes" not in text_of(outcome)


def test_a_client_that_fails_fails_the_call(asking: AskingSession, user: FakeUser) -> None:
    user.reply = ElicitError("method not found")
    outcome = asking.run(ASK, message="m")
    assert code_of(outcome) == "ASK_FAILED"
    assert "method not found" in text_of(outcome)


def test_a_page_is_only_known_to_be_opened(asking: AskingSession, user: FakeUser) -> None:
    user.reply = Reply("accept")
    assert "not known" in text_of(asking.run(ASK, message="Log in", url="https://example.org/login"))
    assert user.asked == [("Log in", "https://example.org/login")]


@pytest.mark.parametrize("missing", ["forms", "links", "both"])
def test_what_is_not_offered_is_not_used(tmp_path: Path, missing: str) -> None:
    user = FakeUser(forms=missing == "links", links=missing == "forms")
    session = AskingSession(tmp_path, None if missing == "both" else user)
    if missing != "links":
        assert code_of(session.run(ASK, message="m")) == "UNAVAILABLE"
    if missing != "forms":
        assert code_of(session.run(ASK, message="m", url="https://example.org/")) == "UNAVAILABLE"
    assert user.asked == []


@pytest.mark.parametrize(("arguments", "names"), [
    ({"message": " "}, "message"),
    ({"message": "m", "fields": [{"name": ""}]}, "fields[0].name"),
    ({"message": "m", "fields": [{"name": "a"}, {"name": "a"}]}, "fields[1].name"),
    ({"message": "m", "fields": [{"name": "a", "type": "choice"}]}, "options"),
    ({"message": "m", "fields": [{"name": "a", "options": ["x"]}]}, "options"),
    ({"message": "m", "fields": [{"name": "a", "type": "date"}]}, "type"),
    ({"message": "m", "fields": [{"name": "a", "colour": 1}]}, "colour"),
    ({"message": "m", "fields": [{"name": "a"}], "url": "https://example.org/"}, "url"),
    ({"message": "m", "url": "ftp://example.org/"}, "url"),
    ({"message": "m", "url": "http://example.org/"}, "url"),
    ({"message": "m", "url": "https://me:pw@example.org/"}, "url"),
    ({"message": "m", "url": "https://[bad"}, "url"),
    ({"message": "m", "url": ""}, "url"),
])
def test_wrong_arguments_are_named(
    asking: AskingSession, user: FakeUser, arguments: dict[str, Any], names: str
) -> None:
    outcome = asking.run(ASK, **arguments)
    assert code_of(outcome) == "INVALID_ARGS"
    assert names in text_of(outcome)
    assert user.asked == []


@pytest.mark.parametrize("field", [
    {"name": "password"}, {"name": "api_key"}, {"name": "k", "title": "Your API key"}, {"name": "github_token"},
    {"name": "x", "description": "the secret of the app"}, {"name": "pass-phrase", "title": "Passphrase"},
])
def test_a_form_never_asks_for_secrets(asking: AskingSession, user: FakeUser, field: dict[str, Any]) -> None:
    assert code_of(asking.run(ASK, message="m", fields=[field])) == "INVALID_ARGS"
    assert user.asked == []


@pytest.mark.parametrize("name", ["max_tokens", "monkey", "passage", "secretary", "keyboard"])
def test_harmless_words_are_no_secrets(asking: AskingSession, user: FakeUser, name: str) -> None:
    user.reply = Reply("accept", {name: "x"})
    assert not asking.run(ASK, message="m", fields=[{"name": name}]).is_error


def test_a_page_on_this_machine_may_be_plain_http(asking: AskingSession, user: FakeUser) -> None:
    user.reply = Reply("accept")
    assert not asking.run(ASK, message="m", url="http://127.0.0.1:8080/x").is_error

"""Questions to the user in the middle of a turn: forms and links, and every way in which no answer comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame
from tests.wire.runs import data, directory_of, failures, logs_of, results, root_log
from tests.wire.services import GARBAGE, NO, QUESTIONS, opened, requests, took, tools, traffic

ELICIT = "elicitation/create"
FORM = ("ask_user", {"message": "Which colour, and how many?", "fields": [
    {"name": "colour", "type": "choice", "options": ["red", "blue"], "title": "Colour"},
    {"name": "count", "type": "integer", "required": False}]})
LINE = ("ask_user", {"message": "What is it called?"})
LINK = ("ask_user", {"message": "Log in there, please.", "url": "https://example.org/login"})


def asked(process: AgentProcess) -> list[Frame]:
    return [frame["params"] for frame in requests(process, ELICIT)]


def offers(bench: Workbench, session: str) -> list[list[str]]:
    """For each request header of a session, what it says that `ask_user` takes; nothing where it is not offered."""
    headers = [part["header"] for part in data(root_log(bench, session), "request/header")]
    found = [{tool["name"]: tool["parameters"] for tool in header["tools"]}.get("ask_user") for header in headers]
    return [[] if parameters is None else list(parameters["properties"]) for parameters in found]


def test_a_form_is_asked_and_its_answer_told_to_the_model(agent: Workbench) -> None:
    process, session = opened(agent, tools(FORM), QUESTIONS)
    answer = {"action": "accept", "content": {"colour": "blue", "count": 3, "more": "x"}}
    process.answers[ELICIT] = lambda _: {"result": answer}
    assert process.prompt(session, "Ask.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert asked(process) == [{
        "sessionId": session, "toolCallId": "c1", "mode": "form", "message": "Which colour, and how many?",
        "requestedSchema": {"type": "object", "required": ["colour"], "properties": {
            "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]}, "count": {"type": "integer"}}}}]
    assert results(root_log(agent, session)) == ["The user answered:\ncolour: blue\ncount: 3"]
    assert traffic(process) == ["in_progress", ELICIT, "completed+content"]


def test_links_are_opened_each_under_its_own_id_and_being_opened_is_all_that_is_known(agent: Workbench) -> None:
    process, session = opened(agent, tools(LINK, LINK), QUESTIONS)
    process.answers[ELICIT] = lambda _: {"result": {"action": "accept"}}
    process.prompt(session, "Ask.")
    process.close()
    one, other = asked(process)
    assert (one["mode"], one["url"], one["toolCallId"]) == ("url", "https://example.org/login", "c1")
    assert one["elicitationId"]
    assert one["elicitationId"] != other["elicitationId"]
    assert "requestedSchema" not in one
    assert all("is not known" in result for result in results(root_log(agent, session)))


@pytest.mark.parametrize(("offered", "in_form", "in_link"), [
    ({}, False, False), ({"elicitation": {}}, False, False), ({"elicitation": {"form": None}}, False, False),
    ({"elicitation": {"form": {}}}, True, False), ({"elicitation": {"url": {}}}, False, True),
])
def test_the_model_is_offered_what_the_client_can_do_and_nothing_else_is_asked(
    agent: Workbench, offered: Frame, in_form: bool, in_link: bool
) -> None:
    process, session = opened(agent, tools(LINE, LINK), offered)
    process.answers[ELICIT] = lambda request: {"result": {"action": "accept", "content": {"answer": "x"}}}
    assert process.prompt(session, "Ask.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert [question["mode"] for question in asked(process)] == ["form"] * in_form + ["url"] * in_link
    assert failures(root_log(agent, session)) == [not in_form, not in_link]
    takes = ["message", *["fields"] * in_form, *["url"] * in_link] if in_form or in_link else []
    assert offers(agent, session) == [takes]


def test_a_second_initialize_adds_and_withdraws_the_tool(agent: Workbench) -> None:
    process, session = opened(agent, "call repeat\n  say \"Hm.\"\n", {})
    process.prompt(session, "One.")
    process.initialize(QUESTIONS)
    process.prompt(session, "Two.")
    process.initialize({})
    process.prompt(session, "Three.")
    process.close()
    assert offers(agent, session) == [[], ["message", "fields", "url"], []]


@pytest.mark.parametrize(("answer", "is_error", "says"), [
    ({"result": {"action": "decline"}}, False, "declined"), ({"result": {"action": "cancel"}}, False, "dismissed"),
    ({"result": {"action": "_later", "content": {"answer": "yes"}}}, False, "dismissed"),
    ({"result": {"action": "accept"}}, True, "cannot be used"),
    ({"result": {"action": "accept", "content": {"answer": 7}}}, True, "cannot be used"),
    ({"result": None}, True, "could not be asked"), (NO, True, "not today"),
    *((garbage, True, "could not be asked") for garbage in GARBAGE),
])
def test_no_other_answer_is_taken_for_a_yes(
    agent: Workbench, answer: Frame, is_error: bool, says: str
) -> None:
    process, session = opened(agent, tools(LINE), QUESTIONS)
    process.answers[ELICIT] = lambda _: answer
    assert process.prompt(session, "Ask.")["result"] == {"stopReason": "end_turn"}
    process.close()
    log = root_log(agent, session)
    assert failures(log) == [is_error]
    assert says in results(log)[0]
    assert "yes" not in results(log)[0]


@pytest.mark.parametrize("call", [LINE, LINK])
@pytest.mark.parametrize("how", ["session/cancel", "session/close"])
def test_a_question_that_nobody_answers_ends_with_the_turn(
    agent: Workbench, call: tuple[str, dict[str, Any]], how: str
) -> None:
    process, session = opened(agent, tools(call), QUESTIONS)
    process.answers[ELICIT] = policies.silent
    prompt = process.start_prompt(session, "Ask.")
    question = process.wait_for_request(ELICIT)

    def stop() -> None:
        if how == "session/cancel":
            process.cancel(session)
        else:
            process.request(how, {"sessionId": session})

    answer, seconds = took(process, prompt, stop)
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    assert [frame["params"] for frame in requests(process, "$/cancel_request")] == [{"requestId": question["id"]}]
    process.respond(question, error={"code": -32800, "message": "cancelled"})
    if how == "session/cancel":
        assert process.prompt(session, "Go on.")["result"] == {"stopReason": "end_turn"}
    process.close()


def test_a_question_in_one_session_does_not_block_another(agent: Workbench) -> None:
    script = ("call\n  tool c1 ask_user {\"message\": \"Name?\"}\ncall\n  say \"Done.\"\n"
              "lane root 2\ncall\n  say \"Quick.\"\n")
    process, session = opened(agent, script, QUESTIONS)
    process.answers[ELICIT] = policies.silent
    prompt = process.start_prompt(session, "Ask.")
    question = process.wait_for_request(ELICIT)
    other = process.new_session()
    assert process.prompt(other, "Quick.")["result"] == {"stopReason": "end_turn"}
    process.respond(question, result={"action": "accept", "content": {"answer": "Bo"}})
    assert process.response(prompt)["result"] == {"stopReason": "end_turn"}
    process.close()


def test_a_child_has_nobody_to_ask(agent: Workbench) -> None:
    script = ("call\n  tool s subagent {\"description\": \"Ask\", \"prompt\": \"Ask.\"}\ncall\n  say \"Done.\"\n"
              "lane root > s\ncall\n  tool a ask_user {\"message\": \"Name?\"}\ncall\n  say \"No luck.\"\n")
    process, session = opened(agent, script, QUESTIONS)
    assert process.prompt(session, "Delegate.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert asked(process) == []
    _, child = logs_of(agent, session)
    (header,) = data(child, "request/header")
    assert "ask_user" not in [tool["name"] for tool in header["header"]["tools"]]
    assert failures(child) == [True]


def test_recorded_answers_are_served_also_to_a_client_that_cannot_ask(agent: Workbench) -> None:
    process, session = opened(agent, tools(LINE), QUESTIONS)
    process.answers[ELICIT] = lambda _: {"result": {"action": "accept", "content": {"answer": "Bo"}}}
    process.prompt(session, "Ask.")
    process.close()
    for capabilities in (QUESTIONS, {}):
        again = agent(replay=directory_of(agent, session))
        again.initialize(capabilities)
        replayed = again.new_session()
        assert again.prompt(replayed, "Ask.")["result"] == {"stopReason": "end_turn"}
        again.close()
        assert asked(again) == []
        assert results(root_log(agent, replayed)) == ["The user answered:\nanswer: Bo"]

"""Commands at a client with terminals: watched there, told to the model, and given back exactly once on every path.

That a terminal is released once, not used afterwards, and embedded before anything is asked of it, is a law that
every transcript is held to (`tests.support.service_laws`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame, is_response
from tests.wire.runs import data, directory_of, failures, results, root_log
from tests.wire.services import (
    GARBAGE,
    NO,
    TERMINAL,
    TerminalClient,
    bash,
    opened,
    requests,
    took,
    tools,
    traffic,
)

CREATE, WAIT, OUTPUT = "terminal/create", "terminal/wait_for_exit", "terminal/output"
KILL, RELEASE, CANCEL = "terminal/kill", "terminal/release", "$/cancel_request"
EMBED, REMARK = "in_progress+terminal", "in_progress+terminal+content"
WHOLE = ["in_progress", CREATE, EMBED, WAIT, OUTPUT, RELEASE, "completed"]


def calls_of(process: AgentProcess) -> list[Frame]:
    return [update for update in process.updates() if update["sessionUpdate"].startswith("tool_call")]


def test_a_command_is_watched_in_the_clients_terminal_and_told_to_the_model(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("make all")), TERMINAL)
    TerminalClient(process, "built\n", {"exitCode": 3, "signal": None})
    assert process.prompt(session, "Build.")["result"] == {"stopReason": "end_turn"}
    assert traffic(process) == WHOLE
    (create,) = requests(process, CREATE)
    params = create["params"]
    assert params["sessionId"] == session
    assert (params["args"], params["cwd"]) == (["-c", "make all"], str(agent.workspace))
    assert params["outputByteLimit"] > 0
    end = calls_of(process)[-1]
    assert "content" not in end, "the terminal stays"
    assert end["rawOutput"]["text"] == "built\n[exit code: 3]"
    assert results(root_log(agent, session)) == ["built\n[exit code: 3]"]
    process.call("session/close", {"sessionId": session})
    position = process.position
    process.call("session/load", {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []})
    process.close()
    shown = [update for update in process.updates(session, since=position) if update.get("status") == "completed"]
    assert [update["content"][0]["content"]["text"] for update in shown] == ["```\nbuilt\n[exit code: 3]\n```"]


FAILS = {
    "create": ["in_progress", CREATE, "failed+content"],
    "wait_for_exit": ["in_progress", CREATE, EMBED, WAIT, REMARK, RELEASE, "failed"],
    "output": ["in_progress", CREATE, EMBED, WAIT, OUTPUT, REMARK, RELEASE, "failed"],
}
"""What is seen when the client fails at a method."""


@pytest.mark.parametrize(("failing", "answer"), [
    ("create", NO), *(("create", answer) for answer in GARBAGE), ("wait_for_exit", NO), ("wait_for_exit", GARBAGE[0]),
    ("output", NO), ("output", GARBAGE[1]), ("output", GARBAGE[3]),
])
def test_a_client_that_fails_fails_the_call_and_the_turn_goes_on(
    agent: Workbench, failing: str, answer: Frame
) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    client = TerminalClient(process)
    client.answers[failing] = answer
    assert process.prompt(session, "Build.")["result"] == {"stopReason": "end_turn"}
    assert traffic(process) == FAILS[failing]
    shown = [update["content"] for update in calls_of(process) if "content" in update]
    assert shown[-1][-1]["content"]["text"] in calls_of(process)[-1]["rawOutput"]["text"], "the user sees why"
    client.answers.clear()
    assert process.prompt(session, "Go on.")["result"] == {"stopReason": "end_turn"}
    process.close()
    log = root_log(agent, session)
    assert failures(log) == [True]
    assert data(log, "tool/result")[0]["error"] == {"name": "BashError", "code": "TERMINAL_FAILED"}


@pytest.mark.parametrize(("kill", "release"), [({"result": {}}, {"result": {}}), (NO, NO), ({"result": {}}, None)])
def test_after_a_timeout_the_command_is_killed_and_what_it_printed_reaches_the_model(
    agent: Workbench, kill: Frame, release: Frame | None
) -> None:
    process, session = opened(agent, tools(bash("make", timeoutMs=50)), TERMINAL)
    client = TerminalClient(process)
    client.ends = False
    client.answers |= {"kill": kill, "release": release}
    assert process.prompt(session, "Build.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert traffic(process) == ["in_progress", CREATE, EMBED, WAIT, CANCEL, REMARK, KILL, OUTPUT, RELEASE, "completed"]
    *_, remark, end = calls_of(process)
    assert remark["content"][1]["content"]["text"] == "[timed out after 50ms]"
    assert "content" not in end, "terminal and remark stay"
    assert results(root_log(agent, session)) == ["printed\n[timed out after 50ms]"]


# ---------------------------------------------------------------- stopped from outside


def _cancel(process: AgentProcess, session: str) -> None:
    process.cancel(session)


def _close(process: AgentProcess, session: str) -> None:
    process.request("session/close", {"sessionId": session})


def _delete(process: AgentProcess, session: str) -> None:
    process.request("session/delete", {"sessionId": session})


def _cancel_request(process: AgentProcess, session: str) -> None:
    (prompt,) = [entry.frame["id"] for entry in process.transcript
                 if entry.sender == "client" and entry.frame.get("method") == "session/prompt"]
    process.notify("$/cancel_request", {"requestId": prompt})


Stop = Callable[[AgentProcess, str], None]
STOPS: list[Stop] = [_cancel, _close, _delete, _cancel_request]


@pytest.mark.parametrize(("stop", "released"), [*((stop, {"result": {}}) for stop in STOPS), (_cancel, None)])
def test_a_command_that_is_stopped_gives_its_terminal_back_before_the_prompt_is_answered(
    agent: Workbench, stop: Stop, released: Frame | None
) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    client = TerminalClient(process)
    client.ends = False
    client.answers["release"] = released
    prompt = process.start_prompt(session, "Build.")
    wait = process.wait_for_request(WAIT)
    answer, seconds = took(process, prompt, lambda: stop(process, session))
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    assert traffic(process) == ["in_progress", CREATE, EMBED, WAIT, CANCEL, RELEASE, "failed"]
    assert [frame["params"] for frame in requests(process, CANCEL)] == [{"requestId": wait["id"]}]
    assert _answered_after(process, RELEASE, prompt)
    process.close()


def _answered_after(process: AgentProcess, method: str, prompt: int) -> bool:
    """Whether the method stands on the wire before the prompt's response."""
    order = [frame.get("method") or frame["id"] for frame in process.received
             if frame.get("method") == method or (is_response(frame) and frame["id"] == prompt)]
    return order == [method, prompt]


@pytest.mark.parametrize(("stop", "late"), [
    *((stop, {"result": {"terminalId": "late"}}) for stop in STOPS), (_cancel, NO), (_cancel, None),
])
def test_a_terminal_that_is_still_being_made_is_released_when_it_comes(
    agent: Workbench, stop: Stop, late: Frame | None
) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    TerminalClient(process).answers["create"] = None
    prompt = process.start_prompt(session, "Build.")
    create = process.wait_for_request(CREATE)
    answer, seconds = took(process, prompt, lambda: stop(process, session))
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    if late is not None:
        process.respond(create, **late)
    made = late is not None and "result" in late
    if made:
        process.wait_for_request(RELEASE)
    process.close()
    assert traffic(process) == ["in_progress", CREATE, CANCEL, "failed+content", *([RELEASE] if made else [])]
    assert [frame["params"] for frame in requests(process, RELEASE)] == (
        [{"sessionId": session, "terminalId": "late"}] if made else [])


def test_a_cancel_while_the_output_is_asked_for_releases_too(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    TerminalClient(process).answers["output"] = None
    prompt = process.start_prompt(session, "Build.")
    process.wait_for_request(OUTPUT)
    answer, seconds = took(process, prompt, lambda: process.cancel(session))
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    process.close()
    assert traffic(process) == ["in_progress", CREATE, EMBED, WAIT, OUTPUT, CANCEL, RELEASE, "failed"]


def test_a_client_that_ends_its_input_gets_its_terminal_back(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    TerminalClient(process).ends = False
    process.start_prompt(session, "Build.")
    process.wait_for_request(WAIT)
    assert process.close() == 0
    assert traffic(process)[:7] == ["in_progress", CREATE, EMBED, WAIT, REMARK, RELEASE, "failed"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_stopped_gives_the_terminal_back(agent: Workbench, number: signal.Signals) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    TerminalClient(process).ends = False
    process.start_prompt(session, "Build.")
    process.wait_for_request(WAIT)
    process.signal(number)
    process.wait()
    process.judge()
    assert traffic(process)[3:] == [WAIT, CANCEL, RELEASE, "failed"]


# ---------------------------------------------------------------- who uses them, and when


def test_a_withdrawn_offer_counts_from_the_next_command_on(agent: Workbench) -> None:
    script = "".join(f"call\n  tool c{n} bash {{\"command\": \"echo mine\", \"description\": \"d\"}}\n"
                     "call\n  say \"Done.\"\n" for n in (1, 2))
    process, session = opened(agent, script, TERMINAL)
    TerminalClient(process, "theirs\n")
    process.prompt(session, "Run.")
    process.initialize({"terminal": False})
    process.prompt(session, "Run.")
    process.close()
    assert results(root_log(agent, session)) == ["theirs\n", "mine\n"]
    assert len(requests(process, CREATE)) == 1


def test_a_childs_command_runs_in_the_roots_session_and_shows_where_it_was_asked_about(agent: Workbench) -> None:
    script = ("call\n  tool s subagent {\"description\": \"Build\", \"prompt\": \"Build.\"}\ncall\n  say \"Done.\"\n"
              "lane root > s\ncall\n  tool b bash {\"command\": \"make\", \"description\": \"d\"}\n"
              "call\n  say \"Built.\"\n")
    process, session = opened(agent, script, TERMINAL, ACP_PERMISSION_MODE="ask")
    TerminalClient(process)
    process.answers["session/request_permission"] = policies.allow
    process.prompt(session, "Delegate.")
    process.close()
    assert {frame["params"]["sessionId"] for frame in requests(process, "terminal/")} == {session}
    childs = [update for update in calls_of(process) if update["toolCallId"] not in ("s",)]
    assert [update.get("status") for update in childs] == ["pending", "in_progress", "in_progress", "completed"]
    assert childs[2]["content"] == [{"type": "terminal", "terminalId": "t1"}]
    assert "content" not in childs[3]


def test_a_childs_command_is_released_when_the_root_is_cancelled(agent: Workbench) -> None:
    script = ("call\n  tool s subagent {\"description\": \"Build\", \"prompt\": \"Build.\"}\ncall\n  say \"Done.\"\n"
              "lane root > s\ncall\n  tool b bash {\"command\": \"make\", \"description\": \"d\"}\n"
              "call\n  say \"Built.\"\n")
    process, session = opened(agent, script, TERMINAL)
    TerminalClient(process).ends = False
    prompt = process.start_prompt(session, "Delegate.")
    process.wait_for_request(WAIT)
    answer, seconds = took(process, prompt, lambda: process.cancel(session))
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    process.close()
    assert len(requests(process, RELEASE)) == 1


def test_a_recorded_command_makes_no_terminal(agent: Workbench) -> None:
    process, session = opened(agent, tools(bash("make")), TERMINAL)
    TerminalClient(process, "recorded\n")
    process.prompt(session, "Build.")
    process.close()
    again = agent(replay=directory_of(agent, session), environ={"ACP_PERMISSION_MODE": "full-access"})
    again.initialize(TERMINAL)
    replayed = again.new_session()
    assert again.prompt(replayed, "Build.")["result"] == {"stopReason": "end_turn"}
    again.close()
    assert requests(again, "terminal/") == []
    assert results(root_log(agent, replayed)) == ["recorded\n"]

"""File tools at a client that offers its editor's files: what is unsaved there wins, and no answer can hurt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame
from tests.wire.runs import data, directory_of, failures, results, root_log
from tests.wire.services import (
    FILES,
    GARBAGE,
    NO,
    EditorClient,
    opened,
    requests,
    took,
    tools,
    traffic,
)

READ = ("read", {"file_path": "a.txt"})
EDIT = ("edit", {"file_path": "a.txt", "old_string": "unsaved", "new_string": "changed"})
WRITE = ("write", {"file_path": "new/b.txt", "content": "made\n"})


def finals(process: AgentProcess, session: str) -> list[Frame]:
    return [update for update in process.updates(session) if update.get("status") in ("completed", "failed")]


def test_unsaved_text_is_read_changed_and_asked_about(agent: Workbench) -> None:
    file = agent.workspace / "a.txt"
    file.write_text("saved\n")
    process, session = opened(agent, tools(READ, EDIT, WRITE), FILES, ACP_PERMISSION_MODE="ask")
    editor = EditorClient(process)
    editor.buffers[str(file)] = "unsaved\nmore\n"
    asked: list[Frame] = []

    def allow(request: Frame) -> Frame:
        asked.append(request)
        return policies.allow(request)

    process.answers["session/request_permission"] = allow
    assert process.prompt(session, "Change it.")["result"] == {"stopReason": "end_turn"}
    process.close()

    made = str(agent.workspace / "new/b.txt")
    assert editor.buffers == {str(file): "changed\nmore\n", made: "made\n"}
    assert file.read_text() == "saved\n"
    assert not (agent.workspace / "new").exists()
    log = root_log(agent, session)
    assert "1: unsaved\n2: more\n" in results(log)[0]
    assert not any(failures(log))
    change = {"type": "diff", "path": str(file), "oldText": "unsaved\nmore", "newText": "changed\nmore"}
    new = {"type": "diff", "path": made, "oldText": None, "newText": "made\n"}
    assert [request["params"]["toolCall"]["content"] for request in asked] == [[change], [new]]
    assert [update["content"] for update in finals(process, session)[1:]] == [[change], [new]]
    assert {request["params"]["sessionId"] for request in requests(process, "fs/")} == {session}


@pytest.mark.parametrize(("offered", "used"), [
    ({"readTextFile": True}, {"read"}), ({"writeTextFile": True}, {"write"}),
    ({"readTextFile": True, "writeTextFile": False}, {"read"}), ({}, set()),
])
def test_each_service_is_used_without_the_other(agent: Workbench, offered: Frame, used: set[str]) -> None:
    """That nothing is called that was not offered is a law of every transcript."""
    file = agent.workspace / "a.txt"
    file.write_text("unsaved on disk\n")
    process, session = opened(agent, tools(READ, EDIT, WRITE), {"fs": offered})
    editor = EditorClient(process)
    if "read" in used:
        editor.buffers[str(file)] = "unsaved in the editor\n"
    assert process.prompt(session, "Change it.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert not any(failures(root_log(agent, session)))
    assert {deed for deed, _ in editor.asked} == used
    if "write" in used:
        assert editor.buffers[str(file)] == "changed on disk\n"
        assert file.read_text() == "unsaved on disk\n"
    else:
        assert file.read_text() == ("changed in the editor\n" if "read" in used else "changed on disk\n")
        assert (agent.workspace / "new/b.txt").read_text() == "made\n"


def test_a_second_initialize_is_heeded_from_the_next_call_on(agent: Workbench) -> None:
    (agent.workspace / "a.txt").write_text("saved\n")
    process, session = opened(agent, "call\n  tool r1 read {\"file_path\": \"a.txt\"}\ncall\n  say \"One.\"\ncall\n"
                                     "  tool r2 read {\"file_path\": \"a.txt\"}\ncall\n  say \"Two.\"\n", {})
    editor = EditorClient(process)
    editor.buffers[str(agent.workspace / "a.txt")] = "unsaved\n"
    process.prompt(session, "Read.")
    process.initialize(FILES)
    process.prompt(session, "Read again.")
    process.close()
    first, second = results(root_log(agent, session))
    assert ("1: saved" in first, "1: unsaved" in second) == (True, True)


@pytest.mark.parametrize("answer", [NO, *GARBAGE, {"error": {"code": -32601, "message": "no such method"}}])
def test_a_client_that_fails_fails_the_call_and_the_turn_goes_on(agent: Workbench, answer: Frame) -> None:
    (agent.workspace / "a.txt").write_text("text\n")
    process, session = opened(agent, tools(READ, WRITE, ("write", {"file_path": "a.txt", "content": "x"})), FILES)
    process.answers |= {"fs/read_text_file": lambda _: answer, "fs/write_text_file": lambda _: answer}
    assert process.prompt(session, "Try.")["result"] == {"stopReason": "end_turn"}
    assert [update["status"] for update in finals(process, session)] == ["failed"] * 3
    assert process.prompt(session, "Go on.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert failures(root_log(agent, session)) == [True] * 3
    assert (agent.workspace / "a.txt").read_text() == "text\n"
    assert not (agent.workspace / "new").exists()


def test_a_client_without_the_right_error_for_a_missing_file_gets_new_files(agent: Workbench) -> None:
    process, session = opened(agent, tools(("read", {"file_path": "none"}), WRITE), FILES)
    editor = EditorClient(process)
    process.answers["fs/read_text_file"] = lambda _: NO
    process.prompt(session, "Make it.")
    process.close()
    assert [part.get("error", {}).get("code") for part in data(root_log(agent, session), "tool/result")] == [
        "FS_NOT_FOUND", None]
    assert editor.buffers == {str(agent.workspace / "new/b.txt"): "made\n"}


@pytest.mark.parametrize(("mode", "call", "method"), [
    ("full-access", READ, "fs/read_text_file"), ("full-access", WRITE, "fs/write_text_file"),
    ("ask", WRITE, "fs/read_text_file"),
])
def test_a_client_that_never_answers_cannot_hold_up_a_cancel(
    agent: Workbench, mode: str, call: tuple[str, dict[str, Any]], method: str
) -> None:
    (agent.workspace / "a.txt").write_text("text\n")
    process, session = opened(agent, tools(call), FILES, ACP_PERMISSION_MODE=mode)
    EditorClient(process)
    process.answers[method] = policies.silent
    prompt = process.start_prompt(session, "Try.")
    asked = process.wait_for_request(method)
    answer, seconds = took(process, prompt, lambda: process.cancel(session))
    assert answer["result"] == {"stopReason": "cancelled"}
    assert seconds < 1
    assert [frame["params"] for frame in requests(process, "$/cancel_request")] == [{"requestId": asked["id"]}]
    process.respond(asked, result={"content": "late"})
    assert process.prompt(session, "Go on.")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert failures(root_log(agent, session)) == [True]


def test_the_end_of_input_does_not_wait_for_an_answer(agent: Workbench) -> None:
    (agent.workspace / "a.txt").write_text("text\n")
    process, session = opened(agent, tools(READ), FILES)
    process.answers["fs/read_text_file"] = policies.silent
    process.start_prompt(session, "Try.")
    process.wait_for_request("fs/read_text_file")
    assert process.close() == 0


def test_a_child_uses_the_roots_editor(agent: Workbench) -> None:
    script = ("call\n  tool s subagent {\"description\": \"Look\", \"prompt\": \"Look.\"}\ncall\n  say \"Done.\"\n"
              "lane root > s\ncall\n  tool r read {\"file_path\": \"a.txt\"}\ncall\n  say \"Seen.\"\n")
    process, session = opened(agent, script, FILES)
    editor = EditorClient(process)
    editor.buffers[str(agent.workspace / "a.txt")] = "unsaved\n"
    process.prompt(session, "Delegate.")
    process.close()
    assert editor.asked == [("read", str(agent.workspace / "a.txt"))]
    assert {request["params"]["sessionId"] for request in requests(process, "fs/")} == {session}


def test_recorded_calls_ask_nothing_of_the_client(agent: Workbench) -> None:
    (agent.workspace / "a.txt").write_text("saved\n")
    process, session = opened(agent, tools(READ, EDIT, WRITE), FILES, ACP_PERMISSION_MODE="ask")
    editor = EditorClient(process)
    process.answers["session/request_permission"] = policies.allow
    editor.buffers[str(agent.workspace / "a.txt")] = "unsaved\n"
    process.prompt(session, "Change it.")
    process.close()
    recorded = results(root_log(agent, session))

    again = agent(replay=directory_of(agent, session), environ={"ACP_PERMISSION_MODE": "ask"})
    again.initialize(FILES)
    replayed = again.new_session()
    assert again.prompt(replayed, "Change it.")["result"] == {"stopReason": "end_turn"}
    again.close()
    assert results(root_log(agent, replayed)) == recorded
    assert not [one for one in traffic(again) if one.startswith("fs/")]



"""session/list, session/close and session/delete on the wire, in both stores."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import processes
from tests.support.client import AgentProcess
from tests.support.reopen import KINDS
from tests.support.schema import is_response
from tests.wire.moves import line, request, stop_reason, text_prompt
from tests.wire.recordings import call, hang, says, text, tool
from tests.wire.runs import LIVE, data
from tests.wire.test_stored_sessions import Desk

Json = dict[str, Any]

NOT_FOUND, INVALID, CANCELLED = -32002, -32602, -32800


@pytest.fixture(params=KINDS)
def desk(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    """A desk with each kind of store."""
    return Desk(agent, request.param, tmp_path)


def page(running: AgentProcess, **params: Any) -> Json:
    """A page of the list; its frame is valid by the schema or the transcript is refused at the end."""
    result: Json = running.call("session/list", params)["result"]
    return result


def ids(result: Json) -> list[str]:
    return [entry["sessionId"] for entry in result["sessions"]]


def answers(running: AgentProcess) -> list[Any]:
    """The ids of all responses, in order."""
    return [entry.frame["id"] for entry in running.transcript
            if entry.sender == "agent" and is_response(entry.frame)]


# ---------------------------------------------------------------- session/list


def test_what_can_be_done_with_stored_sessions_is_offered(desk: Desk) -> None:
    running = desk.bench(environ=desk.place.environ)
    offered = running.initialize()["agentCapabilities"]
    assert offered["loadSession"] is True
    assert offered["sessionCapabilities"] == {
        name: {} for name in ("list", "delete", "resume", "close", "additionalDirectories", "fork")
    }
    assert page(running) == {"sessions": []}


def test_sessions_are_listed_newest_first_with_title_time_and_directory(desk: Desk, tmp_path: Path) -> None:
    desk.record(says("one"))
    running = desk.start(ACP_REPLAY_SESSIONS="repeat")
    other = tmp_path / "other place"
    other.mkdir()
    first, second, empty = running.new_session(), running.new_session(other), running.new_session()
    running.prompt(first, "the first of all")
    running.prompt(second, "another one")
    listed = page(running)
    assert ids(listed) == [second, first]
    assert empty not in ids(listed)
    assert [entry["title"] for entry in listed["sessions"]] == ["another one", "the first of all"]
    assert [entry["cwd"] for entry in listed["sessions"]] == [str(other), str(desk.bench.workspace)]
    moments = [entry["updatedAt"] for entry in listed["sessions"]]
    assert all(moment.endswith("Z") and datetime.fromisoformat(moment).year > 2000 for moment in moments)
    assert ids(page(running, cwd=str(other))) == ids(page(running, cwd=f"{other}/")) == [second]
    assert page(running, cwd=str(tmp_path / "nowhere")) == {"sessions": []}
    assert ids(page(running, cwd=None, cursor=None)) == [second, first]
    running.close()
    assert page(desk.start()) == listed


@pytest.mark.parametrize(("wrong", "field"), [
    ({"cwd": "relative"}, "cwd"), ({"cwd": ""}, "cwd"), ({"cursor": "garbage"}, "cursor"), ({"cursor": 7}, "cursor"),
])
def test_a_list_that_cannot_be_had_is_refused_naming_why(desk: Desk, wrong: Json, field: str) -> None:
    desk.record(says("one"))
    running = desk.start()
    running.prompt(running.new_session(), "go")
    error = running.call("session/list", wrong)["error"]
    assert error["code"] == INVALID
    assert field in error["message"]


def test_a_long_list_is_told_in_pages_and_each_session_once(desk: Desk) -> None:
    desk.record(says("one"))
    running = desk.start(ACP_REPLAY_SESSIONS="repeat")
    made = [running.new_session() for _ in range(53)]
    for session in made:
        running.prompt(session, "go")
    first = page(running)
    assert len(first["sessions"]) == 50
    late = running.new_session()
    running.prompt(late, "go")
    second = page(running, cursor=first["nextCursor"])
    assert ids(first) + ids(second) == made[::-1]
    assert "nextCursor" not in second


# ---------------------------------------------------------------- session/close


def test_closing_ends_the_turn_and_the_queue_first_and_is_answered_last(desk: Desk) -> None:
    asked = call(text("Working. "), tool("a", "bash", command="touch started; sleep 60", description="d"))
    desk.record(asked, says("again"))
    running = desk.start(**LIVE)
    session = running.new_session()
    first, second = running.start_prompt(session, "1"), running.start_prompt(session, "2")
    running.wait_until((desk.bench.workspace / "started").exists, "the command to start")
    closing = running.request("session/close", {"sessionId": session})
    assert running.response(closing)["result"] == {}
    assert stop_reason(running.response(first)) == stop_reason(running.response(second)) == "cancelled"
    assert answers(running)[-1] == closing
    assert {first, second} == set(answers(running)[-3:-1])
    assert not [name for name in processes.wait_until_gone(running.mark) if "sleep" in name]
    for method, more in (("session/prompt", {"prompt": text_prompt("x")}), ("session/set_mode", {"modeId": "ask"}),
                         ("session/close", {})):
        error = running.call(method, {"sessionId": session, **more})["error"]
        assert (error["code"], error["data"]) == (NOT_FOUND, {"sessionId": session})
    assert ids(page(running)) == [session]
    desk.load(running, session)
    assert stop_reason(running.prompt(session, "3")) == "end_turn"
    ends = [end["reason"]["kind"] for end in data(desk.log(session), "turn/end")]
    assert ends == ["aborted", "completed"]
    desk.judge()


def called_off(running: AgentProcess, method: str, **params: Any) -> Json:
    """The answer to a request whose cancel comes with it."""
    name = f"called-off {method}"
    cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": name}}
    running.send_bytes(line(request(name, method, **params)) + line(cancel))
    return running.response(name)


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_an_end_that_is_called_off_takes_place_and_is_answered_so(desk: Desk, method: str) -> None:
    asked = call(text("Working. "), tool("a", "bash", command="touch started; sleep 60", description="d"))
    desk.record(asked, says("again"))
    running = desk.start(**LIVE)
    session = running.new_session()
    first, second = running.start_prompt(session, "1"), running.start_prompt(session, "2")
    running.wait_until((desk.bench.workspace / "started").exists, "the command to start")
    answer = called_off(running, method, sessionId=session)
    assert answer["result"] == {}
    assert stop_reason(running.response(first)) == stop_reason(running.response(second)) == "cancelled"
    assert answers(running)[-1] == answer["id"], "the prompts are answered first"
    assert ids(page(running)) == ([session] if method == "session/close" else [])


def test_a_choice_that_is_called_off_is_made_and_answered_so(desk: Desk) -> None:
    desk.record(says("one"))
    running = desk.start()
    session = running.new_session()
    running.prompt(session, "go")
    assert called_off(running, "session/set_mode", sessionId=session, modeId="read-only")["result"] == {}
    chosen = called_off(running, "session/set_config_option", sessionId=session, configId="mode", value="accept-edits")
    assert {one["id"]: one["currentValue"] for one in chosen["result"]["configOptions"]}["mode"] == "accept-edits"
    running.close()
    again = desk.start()
    assert desk.resume(again, session)["modes"]["currentModeId"] == "accept-edits"


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
def test_an_opening_that_is_called_off_leaves_nothing(desk: Desk, method: str) -> None:
    desk.record(says("one"), says("two"))
    running = desk.start()
    session = running.new_session()
    running.prompt(session, "go")
    running.call("session/close", {"sessionId": session})
    before = page(running)
    answer = called_off(running, method, **desk.params(session))
    if "result" in answer:
        return  # it was done before the cancel was read
    assert answer["error"]["code"] == CANCELLED
    error = running.call("session/prompt", {"sessionId": session, "prompt": text_prompt("x")})["error"]
    assert error["code"] == NOT_FOUND
    assert page(running) == before
    desk.load(running, session)
    assert stop_reason(running.prompt(session, "2")) == "end_turn"


def test_a_closed_session_is_free_for_another_process(desk: Desk) -> None:
    desk.record(says("one"), says("two"))
    first, second = desk.start(), desk.start()
    session = first.new_session()
    first.prompt(session, "1")
    first.call("session/close", {"sessionId": session})
    desk.load(second, session)
    assert stop_reason(second.prompt(session, "2")) == "end_turn"


def test_an_idle_session_and_one_without_events_can_be_closed(desk: Desk) -> None:
    desk.record(says("one"))
    running = desk.start()
    used, empty = running.new_session(), running.new_session()
    running.prompt(used, "1")
    assert running.call("session/close", {"sessionId": empty})["result"] == {}
    assert running.call("session/close", {"sessionId": used})["result"] == {}
    assert running.call("session/load", desk.params(empty))["error"]["code"] == NOT_FOUND


# ---------------------------------------------------------------- session/delete


def test_a_deleted_session_is_gone_and_deleting_it_again_is_fine(desk: Desk) -> None:
    desk.record(says("one"))
    running = desk.start(ACP_REPLAY_SESSIONS="repeat")
    gone, kept = running.new_session(), running.new_session()
    running.prompt(gone, "1")
    running.prompt(kept, "1")
    running.call("session/close", {"sessionId": gone})
    for session in (gone, gone, "nobody"):
        assert running.call("session/delete", {"sessionId": session})["result"] == {}
    assert ids(page(running)) == [kept]
    assert running.call("session/load", desk.params(gone))["error"]["code"] == NOT_FOUND
    assert desk.place.listed() == [kept]


def test_deleting_a_session_at_work_ends_its_turn_first(desk: Desk) -> None:
    desk.record(hang("ready"))
    running = desk.start()
    session = running.new_session()
    prompt = running.start_prompt(session, "1")
    running.wait_until((desk.bench.workspace / "ready").exists, "the answer to hang")
    deleting = running.request("session/delete", {"sessionId": session})
    assert running.response(deleting)["result"] == {}
    assert stop_reason(running.response(prompt)) == "cancelled"
    assert answers(running)[-2:] == [prompt, deleting]
    assert page(running) == {"sessions": []}
    assert desk.place.listed() == []


def test_children_are_not_listed_loaded_or_deleted_by_themselves_and_go_with_their_root(desk: Desk) -> None:
    from tests.wire.kills import replay_family

    family = replay_family(desk.directory / "family")
    running = desk.bench(replay=family, environ=desk.place.environ | LIVE, unstable=True)
    running.initialize()
    session = running.new_session()
    for prompt in ("Hello.", "Go."):
        assert stop_reason(running.prompt(session, prompt)) == "end_turn"
    assert ids(page(running)) == [session]
    running.call("session/close", {"sessionId": session})
    children = [log.header["id"] for log in desk.place.export(desk.directory / "looked-at")[session][1:]]
    assert len(children) == 2
    for child in children:
        for method in ("session/load", "session/resume", "session/fork", "session/delete"):
            error = running.call(method, desk.params(child))["error"]
            assert error["code"] == INVALID, method
            assert session in error["message"]
    assert running.call("session/delete", {"sessionId": session})["result"] == {}
    assert desk.place.listed() == []


def test_requests_for_one_session_sent_at_once_come_out_in_their_order(desk: Desk) -> None:
    desk.record(says("one"))
    running = desk.start(unlawful="the laws follow a session that is opened and closed one request after the other")
    session = running.new_session()
    running.prompt(session, "1")
    names = ("close", "load", "load", "close", "resume", "delete", "load")
    frames = [request(f"{at}-{name}", f"session/{name}", **desk.params(session)) for at, name in enumerate(names)]
    running.send_bytes(b"".join(map(line, frames)))
    came = [running.response(frame["id"]) for frame in frames]
    codes = [answer.get("error", {}).get("code") for answer in came]
    assert codes == [None, None, -32600, None, None, None, NOT_FOUND]

"""What comes before what, with several sessions at work, a slow client, cancels at bad moments, and odd extras."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import mcp_servers, policies, processes
from tests.support.client import AgentProcess
from tests.support.images import PNG, encoded
from tests.support.schema import is_response
from tests.wire.moves import line, opened, recording, request, stop_reason, text_prompt
from tests.wire.recordings import call, hang, says, tool
from tests.wire.runs import LIVE, data, end_of, failures, log_files, log_in, results, root_log

Json = dict[str, Any]

NOT_FOUND = -32002
SOON = 2.0
"""Seconds within which a cancel must have been answered (ACP digest, statement 64)."""
CALM = ("available_commands_update", "usage_update", "session_info_update", "config_option_update")


def scripted(bench: Workbench, script: str, mode: str = "full-access", **environ: str) -> AgentProcess:
    """An initialized agent whose model is this script."""
    file = bench.store.parent / "model.script"
    file.write_text(script)
    running = bench(environ={"ACP_MODEL": f"scripted/{file}", "ACP_PERMISSION_MODE": mode, **environ}, unstable=True)
    running.initialize()
    return running


def answers(running: AgentProcess, since: int = 0) -> list[Any]:
    return [entry.frame["id"] for entry in running.transcript[since:]
            if entry.sender == "agent" and is_response(entry.frame)]


def cancelled_soon(running: AgentProcess, prompt: int, begun: float) -> None:
    assert stop_reason(running.response(prompt)) == "cancelled"
    assert time.monotonic() - begun < SOON


# ---------------------------------------------------------------- many at once


BUSY = """
call repeat
  think by 3 "Several thoughts, cut into many small pieces so that there is a lot to tell."
  say by 2 "A long and winding answer, cut into very small pieces, so that many lines go out for it. %s"
  finish stop
"""


class SlowReader(threading.Thread):
    """A client that stops reading again and again."""

    def __init__(self, running: AgentProcess) -> None:
        super().__init__(daemon=True)
        self._running = running
        self._over = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self._running.stop_reading()
            self._over.wait(0.03)
            self._running.resume_reading()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._running.resume_reading()


def test_every_answer_follows_its_updates_with_many_sessions_and_a_slow_client(agent: Workbench) -> None:
    running = scripted(agent, BUSY % ("word " * 200))
    sessions = [running.new_session() for _ in range(5)]
    with SlowReader(running):
        prompts = {running.start_prompt(session, f"{turn}"): session for turn in range(3) for session in sessions}
        others = [running.request("session/list", {}), running.request("session/new", {
            "cwd": str(running.cwd), "mcpServers": []})]
        ends = {prompt: running.response(prompt) for prompt in prompts}
        assert {stop_reason(answer) for answer in ends.values()} == {"end_turn"}
        assert all("result" in running.response(other) for other in others)
    order = answers(running)
    assert sorted(order) == sorted({*order}), "each is answered once"
    whole = "A long and winding answer, cut into very small pieces, so that many lines go out for it. " + "word " * 200
    for session in sessions:
        mine = [prompt for prompt, of in prompts.items() if of == session]
        assert [one for one in order if one in mine] == mine, "prompts are worked in the order they came"
        assert running.text(session) == whole * 3
        until = running.received.index(ends[mine[0]])
        first = [frame["params"]["update"] for frame in running.received[:until]
                 if frame.get("method") == "session/update" and frame["params"]["sessionId"] == session]
        told = [one["content"]["text"] for one in first if one["sessionUpdate"] == "agent_message_chunk"]
        assert "".join(told) == whole, "the first turn was told before its end, and no other one"


def test_a_question_that_waits_in_one_session_holds_up_no_other(agent: Workbench) -> None:
    ask = 'call\n  tool c bash {"command": "echo hi", "description": "d"}\ncall repeat\n  say "Done."\n'
    running = scripted(agent, ask, mode="ask")
    waiting, other = running.new_session(), running.new_session()
    running.answers["session/request_permission"] = lambda question: (
        policies.allow(question) if question["params"]["sessionId"] == other else None)
    prompt = running.start_prompt(waiting, "go")
    question = running.wait_for_request("session/request_permission")
    assert question["params"]["sessionId"] == waiting
    for _ in range(2):
        assert stop_reason(running.prompt(other, "go")) == "end_turn"
    assert results(root_log(agent, other))[0].strip().startswith("hi")
    queued = running.start_prompt(waiting, "and then")
    listed = running.call("session/list", {})["result"]["sessions"]
    assert {waiting, other} <= {one["sessionId"] for one in listed}
    assert running.call("session/set_mode", {"sessionId": other, "modeId": "read-only"})["result"] == {}
    assert running.call("session/new", {"cwd": str(running.cwd), "mcpServers": []})["result"]
    assert prompt not in answers(running)
    assert queued not in answers(running)
    running.respond(question, result={"outcome": {"outcome": "selected", "optionId": "allow-once"}})
    assert [stop_reason(running.response(one)) for one in (prompt, queued)] == ["end_turn"] * 2


def test_cancelling_one_session_leaves_the_others_running(agent: Workbench) -> None:
    running = scripted(agent, 'call repeat\n  say "a"\n  wait go\n  say "b"\n')
    one, two = running.new_session(), running.new_session()
    prompts = [running.start_prompt(session, "go") for session in (one, two)]
    for session in (one, two):
        running.wait_for_update("agent_message_chunk", session=session)
    begun = time.monotonic()
    running.cancel(one)
    cancelled_soon(running, prompts[0], begun)
    (running.cwd / "go").touch()
    assert stop_reason(running.response(prompts[1])) == "end_turn"
    assert (running.text(one), running.text(two)) == ("a", "ab")


# ---------------------------------------------------------------- cancels at bad moments


@pytest.mark.parametrize("how", ["cancel", "request", "close"])
def test_a_turn_that_waits_for_its_servers_can_be_cancelled(agent: Workbench, how: str) -> None:
    running = scripted(agent, 'call repeat\n  say "Done."\n')
    silent = {"name": "silent", "command": "/bin/sh", "args": ["-c", "touch up; exec sleep 1000"],
              "env": [{"name": processes.MARK, "value": running.mark}]}
    session = running.call("session/new", {"cwd": str(running.cwd), "mcpServers": [silent]})["result"]["sessionId"]
    prompt, queued = running.start_prompt(session, "go"), running.start_prompt(session, "and more")
    running.wait_until((running.cwd / "up").exists, "the server's process")
    begun = time.monotonic()
    if how == "cancel":
        running.cancel(session)
    elif how == "request":
        running.notify("$/cancel_request", {"requestId": prompt})
        cancelled_soon(running, prompt, begun)
        assert queued not in answers(running), "it was not asked to be cancelled"
        running.notify("$/cancel_request", {"requestId": queued})
    closing = running.request("session/close", {"sessionId": session}) if how == "close" else None
    cancelled_soon(running, prompt, begun)
    cancelled_soon(running, queued, begun)
    if closing is not None:
        assert running.response(closing)["result"] == {}
    assert running.text(session) == ""


def test_a_prompt_can_be_cancelled_in_the_same_breath(agent: Workbench) -> None:
    running, session = opened(agent, says("never"), says("fine"))
    image = {"type": "image", "data": encoded(PNG + bytes(4_000_000)), "mimeType": "image/png"}
    for number, blocks in enumerate((text_prompt("go"), [image], [image, image, *text_prompt("go")])):
        frames = [request(f"p{number}", "session/prompt", sessionId=session, prompt=blocks),
                  {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}]
        since = running.position
        running.send_bytes(b"".join(map(line, frames)))
        answer = running.response(f"p{number}")
        assert stop_reason(answer) == "cancelled"
        assert running.text(session, since=since) == ""
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert data(root_log(agent, session), "request/sent")[0]["ordinal"] == 0, "no model was called before"


def test_a_cancel_means_all_that_came_before_it_and_nothing_after(agent: Workbench) -> None:
    running = scripted(agent, 'call repeat\n  say "x"\n')
    session = running.new_session()
    frames = []
    for number in range(20):
        frames.append(request(f"a{number}", "session/prompt", sessionId=session, prompt=text_prompt("go")))
        if number % 5 == 4:
            frames += [{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}] * 2
    frames.append(request("last", "session/prompt", sessionId=session, prompt=text_prompt("go")))
    running.send_bytes(b"".join(map(line, frames)))
    assert stop_reason(running.response("last")) == "end_turn"
    came = {frame["id"]: stop_reason(frame) for frame in running.received if isinstance(frame.get("id"), str)}
    assert came == {f"a{number}": "cancelled" for number in range(20)} | {"last": "end_turn"}
    assert running.text(session) == "x"


def test_late_double_and_unknown_cancels_say_and_do_nothing(agent: Workbench) -> None:
    running, session = opened(agent, hang("ready"), says("fine"), says("good"))
    prompt = running.start_prompt(session, "go")
    running.wait_until((running.cwd / "ready").exists, "the answer that hangs")
    begun = time.monotonic()
    for _ in range(3):
        running.cancel(session)
        running.notify("$/cancel_request", {"requestId": prompt})
    cancelled_soon(running, prompt, begun)
    since = running.position
    running.cancel(session)
    running.cancel("nobody")
    odd: list[Any] = [{}, {"sessionId": 5}, {"sessionId": None}, {"sessionId": [session]}, {"session": session},
                      [session], "x", None]
    for params in odd:
        running.send({"method": "session/cancel", "params": params})
    running.send({"method": "session/cancel"})
    for wrong in (prompt, 999, "nobody", None, 1.5, True, {"a": 1}, [prompt]):
        running.notify("$/cancel_request", {"requestId": wrong})
    running.notify("$/cancel_request", {})
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    running.cancel(session)
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert running.text(session, since=since) == "finegood"
    assert len(answers(running, since)) == 2
    kinds = [part["reason"]["kind"] for part in data(root_log(agent, session), "turn/end")]
    assert kinds == ["aborted", "completed", "completed"]


def wait_for_more(running: AgentProcess, since: int, count: int) -> None:
    """Wait until so many more lines went back and forth."""
    running.wait_until(lambda: running.position - since >= count, f"{count} lines")


def test_a_cancel_stops_a_turn_wherever_it_is(agent: Workbench) -> None:
    """Cancels come at any moment of a turn with thoughts, text and commands; each time it is over soon."""
    running = scripted(agent, """
call repeat
  think by 1 "hm hm hm"
  say by 1 "I run it."
  tool c bash {"command": "sleep 0.05; echo x", "description": "d"}
""")
    session = running.new_session()
    for number in range(25):
        prompt = running.start_prompt(session, "go")
        since = running.position
        wait_for_more(running, since, number % 5 * number)
        begun = time.monotonic()
        running.cancel(session)
        cancelled_soon(running, prompt, begun)
        after = running.position
        assert "result" in running.call("session/list", {})
        late = [update["sessionUpdate"] for update in running.updates(session, since=after)]
        assert set(late) <= set(CALM), "nothing of the turn comes after its end"
    assert end_of(root_log(agent, session))["kind"] == "aborted"


# ---------------------------------------------------------------- what must be tolerated


def test_unknown_notifications_are_ignored_at_any_time(agent: Workbench) -> None:
    running, session = opened(agent, says("fine"), says("good"))
    prompt = running.start_prompt(session, "go")
    odd: list[Any] = [{"sessionId": session}, {}, [], None, "x"]
    for method in ("_x/y", "$/foo", "foo/bar", "session/update", "initialized", "", "session/prompt", "$/cancel"):
        for params in odd:
            running.send({"method": method, "params": params})
        running.send({"method": method})
    assert stop_reason(running.response(prompt)) == "end_turn"
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert answers(running) == [1, 2, 3, 4]
    assert running.text(session) == "finegood"


METAS: list[Any] = [{"x": {"y": [1]}}, {}, None, "x", 5, [], True, {"traceparent": 5}, {"traceparent": None}]


def laden(value: Any, meta: Any) -> Any:
    """The same params with `_meta` and an unknown member in every object."""
    if isinstance(value, list):
        return [laden(item, meta) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: laden(item, meta) for key, item in value.items()} | {"_meta": meta, "someNovelty": {"a": [1, None]}}


@pytest.mark.parametrize("meta", METAS, ids=map(json.dumps, METAS))
def test_extra_members_and_any_meta_are_tolerated_at_every_level(agent: Workbench, meta: Any) -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a", "annotations": {"audience": ["user"]}}
    blocks = [*text_prompt("go"), link, {"type": "image", "data": encoded(PNG), "mimeType": "image/png"},
              {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}}]
    running = agent(replay=recording(agent, call(tool("c", "bash", command="echo hi", description="d")), says("ok"),
                                     says("still")), environ=LIVE | {"ACP_PERMISSION_MODE": "ask"}, unstable=True)
    outcome = laden({"outcome": {"outcome": "selected", "optionId": "allow-once"}}, meta)
    running.answers["session/request_permission"] = lambda _: {"result": outcome}
    place = {"cwd": str(running.cwd), "mcpServers": []}

    def asked(method: str, params: Json) -> Json:
        answer = running.call(method, laden(params, meta))
        assert "result" in answer, (method, answer)
        result: Json = answer["result"]
        return result

    asked("initialize", {"protocolVersion": 1, "clientInfo": {"name": "n", "version": "1"},
                         "clientCapabilities": {"fs": {"readTextFile": False}, "session": {}, "elicitation": {}}})
    server = {"name": "files", "command": "/bin/false", "args": [], "env": [{"name": "A", "value": "1"}]}
    other = asked("session/new", {**place, "mcpServers": [server]})["sessionId"]
    session = asked("session/new", place)["sessionId"]
    assert asked("session/prompt", {"sessionId": session, "prompt": blocks})["stopReason"] == "end_turn"
    assert failures(root_log(agent, session)) == [False], "the permission was understood"
    asked("session/set_mode", {"sessionId": session, "modeId": "read-only"})
    asked("session/set_config_option", {"sessionId": session, "configId": "mode", "value": "ask"})
    asked("session/list", {"cwd": str(running.cwd)})
    running.notify("session/cancel", laden({"sessionId": session}, meta))
    running.notify("$/cancel_request", laden({"requestId": 999}, meta))
    asked("session/close", {"sessionId": session})
    asked("session/load", {"sessionId": session, **place})
    asked("session/close", {"sessionId": session})
    asked("session/resume", {"sessionId": session, **place})
    fork = asked("session/fork", {"sessionId": session, **place})["sessionId"]
    assert asked("session/prompt", {"sessionId": session, "prompt": text_prompt("go")})["stopReason"] == "end_turn"
    for name in (fork, other, session):
        asked("session/delete", {"sessionId": name})
    assert running.call("session/prompt", laden({"sessionId": session, "prompt": blocks}, meta))["error"][
        "code"] == NOT_FOUND


TRACE = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01", "tracestate": "a=b",
         "baggage": "c=d"}


def test_a_prompts_trace_goes_on_to_what_works_for_it(agent: Workbench) -> None:
    running = scripted(agent, """
call
  tool a mcp__friendly__trace {}
  tool b subagent {"description": "d", "prompt": "Trace."}
call
  say "Traced."
call
  tool c mcp__friendly__trace {}
call
  say "Not traced."

lane root > b
call
  tool x mcp__friendly__trace {}
call
  say "Traced, too."
""")
    server = mcp_servers.stdio("friendly")
    session = running.call("session/new", {"cwd": str(running.cwd), "mcpServers": [server]})["result"]["sessionId"]
    meta = {**TRACE, "other": "stays here"}
    answer = running.call("session/prompt", {"sessionId": session, "prompt": text_prompt("go"), "_meta": meta})
    assert stop_reason(answer) == "end_turn"
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    running.close()
    (root, child) = [log_in(file) for file in log_files(next(agent.store.glob(f"--*--/{session}")))]
    assert json.loads(results(root)[0]) == TRACE
    assert json.loads(results(child)[0]) == TRACE
    assert json.loads(results(root)[2]) == {}, "the next prompt belongs to no trace"

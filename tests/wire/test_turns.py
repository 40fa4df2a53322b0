"""Whole turns: what the client sees, what the log keeps, and what the model is told next."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Workbench
from tests.support.schema import Frame
from tests.wire.recordings import (
    Log,
    call,
    failed,
    hang,
    says,
    script,
    text,
    thought,
    throw,
    tool,
    write,
)
from tests.wire.runs import ECHO, LIVE, begin, data, history, order, root_log

STREAMED = ("agent_message_chunk", "agent_thought_chunk")


def kinds(updates: list[Frame]) -> list[str]:
    return [update["sessionUpdate"] for update in updates]


# ---------------------------------------------------------------- answers


def test_an_answer_arrives_delta_by_delta_as_one_message(agent: Workbench, tmp_path: Path) -> None:
    process, session = begin(agent, script(tmp_path / "replay", says("It ", "is ", "here.")))
    assert process.prompt(session, "Where is it?")["result"] == {"stopReason": "end_turn"}
    chunks = [update for update in process.updates(session) if update["sessionUpdate"] == "agent_message_chunk"]
    assert [chunk["content"] for chunk in chunks] == [
        {"type": "text", "text": word} for word in ("It ", "is ", "here.")]
    process.close()
    (message,) = data(root_log(agent, session), "assistant/message")
    assert {chunk["messageId"] for chunk in chunks} == {message["message"]["id"]}


def test_thoughts_and_replies_are_messages_of_their_own_in_every_step(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay",
                    call(thought("Hm, ", "a plan."), text("First."), tool("t", "todo_write", todos=[])),
                    call(thought("Well."), text("Second.")))
    process, session = begin(agent, replay)
    process.prompt(session, "Think.")
    chunks = [update for update in process.updates(session) if update["sessionUpdate"] in STREAMED]
    said: dict[str, list[str]] = {}
    for chunk in chunks:
        said.setdefault(chunk["messageId"], [chunk["sessionUpdate"]]).append(chunk["content"]["text"])
    assert list(said.values()) == [
        ["agent_thought_chunk", "Hm, ", "a plan."], ["agent_message_chunk", "First."],
        ["agent_thought_chunk", "Well."], ["agent_message_chunk", "Second."]]


def test_blocks_that_stream_side_by_side_keep_their_order_on_the_wire_and_their_place_in_the_message(
    agent: Workbench, tmp_path: Path,
) -> None:
    one, two = (list(part.chunks(at)) for at, part in enumerate((thought("a", "b"), text("c", "d"))))
    mixed = [one[0], one[1], two[0], two[1], one[2], two[2], two[3], one[3]]
    process, session = begin(agent, script(tmp_path / "replay", [*mixed, says("")[-1]]))
    process.prompt(session, "Both.")
    assert [update["content"]["text"] for update in process.updates(session)
            if update["sessionUpdate"] in STREAMED] == ["a", "c", "b", "d"]
    process.close()
    (message,) = data(root_log(agent, session), "assistant/message")
    assert message["message"]["content"] == [{"type": "reasoning", "text": "ab"}, {"type": "text", "text": "cd"}]


def test_a_session_is_titled_once_by_the_first_five_words_of_its_first_prompt(
    agent: Workbench, tmp_path: Path,
) -> None:
    process, session = begin(agent, script(tmp_path / "replay", says("one"), says("two")))
    process.prompt(session, "  Please\n make  the tests  green again today  ")
    process.prompt(session, "Something else entirely")
    assert [update["title"] for update in process.updates(session)
            if update["sessionUpdate"] == "session_info_update"] == ["Please make the tests green"]


def test_usage_is_reported_against_the_models_context_window_where_the_recording_knows_it(
    agent: Workbench, tmp_path: Path,
) -> None:
    tokens = {"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 3}
    known = Log(window=1000).turn("Hi", call(text("Hello."), usage=tokens))
    process, session = begin(agent, write(tmp_path / "known", known))
    process.prompt(session, "Hi")
    (usage,) = [update for update in process.updates(session) if update["sessionUpdate"] == "usage_update"]
    assert (usage["used"], usage["size"]) == (123, 1000)
    other, unknown = begin(agent, script(tmp_path / "unknown", call(text("Hello."), usage=tokens)))
    other.prompt(unknown, "Hi")
    assert "usage_update" not in kinds(other.updates(unknown))


# ---------------------------------------------------------------- endings


def test_an_answer_cut_at_the_output_limit_keeps_its_text_and_runs_none_of_its_tools(
    agent: Workbench, tmp_path: Path,
) -> None:
    cut = call(text("So far."), tool("b", "bash", command="touch ran", description="d"), finish="max-tokens")
    process, session = begin(agent, script(tmp_path / "replay", cut, ECHO), LIVE)
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "max_tokens"}
    assert "tool_call" not in kinds(process.updates(session))
    assert not (agent.workspace / "ran").exists()
    mark = process.position
    process.prompt(session, "Go on.")
    assert "So far." in process.text(session, since=mark)
    assert "touch ran" not in process.text(session, since=mark)


def test_a_declined_prompt_leaves_no_trace_in_what_the_model_is_told_next(
    agent: Workbench, tmp_path: Path,
) -> None:
    replay = script(
        tmp_path / "replay", says("Good morning."),
        call(text("I wonder."), tool("t", "todo_write", todos=[])), throw("not this", "REFUSAL", text("I'd ra")),
        ECHO)
    process, session = begin(agent, replay)
    process.prompt(session, "Morning!")
    assert process.prompt(session, "Do the forbidden thing.")["result"] == {"stopReason": "refusal"}
    mark = process.position
    process.prompt(session, "Then something else.")
    told = process.text(session, since=mark)
    assert "Morning!" in told
    assert "Good morning." in told
    assert "Then something else." in told
    assert "forbidden" not in told
    assert "wonder" not in told
    process.close()
    log = root_log(agent, session)
    assert data(log, "turn/end")[1]["reason"] == {"kind": "blocked"}
    assert any("forbidden" in str(event) for event in log.events), "the log itself keeps what happened"
    assert not any("forbidden" in part for part in history(log))


def test_an_error_of_the_model_is_an_error_of_the_prompt_and_the_next_prompt_works(
    agent: Workbench, tmp_path: Path,
) -> None:
    replay = script(tmp_path / "replay", throw("key is no good", "AUTH", text("Well")),
                    failed("the server is on fire", "BROKEN"), says("Better."))
    process, session = begin(agent, replay)
    thrown = process.prompt(session, "One.")["error"]
    assert thrown["code"] == -32603
    assert "key is no good" in thrown["message"]
    finished = process.prompt(session, "Two.")["error"]
    assert finished["code"] == -32603
    assert "the server is on fire" in finished["message"]
    assert process.prompt(session, "Three.")["result"] == {"stopReason": "end_turn"}
    process.close()
    ends = [end["reason"] for end in data(root_log(agent, session), "turn/end")]
    assert [end["kind"] for end in ends] == ["error", "error", "completed"]
    assert ends[0]["error"] == {"message": "key is no good", "code": "AUTH"}


def test_a_failed_attempt_is_made_again_and_only_the_second_counts(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", throw("slow down", "RATE_LIMIT", text("Half a ")), says("Whole."), ECHO)
    process, session = begin(agent, replay)
    assert process.prompt(session, "Go.")["result"] == {"stopReason": "end_turn"}
    chunks = [update for update in process.updates(session) if update["sessionUpdate"] == "agent_message_chunk"]
    assert len({chunk["messageId"] for chunk in chunks}) == 2, "two attempts are two messages"
    process.prompt(session, "What did you say?")
    assert "Whole." in process.text(session)
    process.close()
    log = root_log(agent, session)
    (retry,) = data(log, "llm/retry")
    assert (retry["retry"], retry["failure"]["code"]) == (1, "RATE_LIMIT")
    assert history(log)[:2] == ["Go.", "Whole."]
    assert order(log, "request/sent", "llm/retry", "llm/retry-started", "assistant/message")[:5] == [
        "request/sent", "llm/retry", "llm/retry-started", "request/sent", "assistant/message"]


def test_what_fails_six_times_is_given_up(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", *[throw("down", "SERVER")] * 6, says("Up again."))
    process, session = begin(agent, replay)
    assert "down" in process.prompt(session, "Go.")["error"]["message"]
    assert process.prompt(session, "Now?")["result"] == {"stopReason": "end_turn"}
    process.close()
    assert len(data(root_log(agent, session), "llm/retry")) == 5


def test_a_turn_without_end_stops_after_250_model_calls(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", *[call(tool("again", "todo_write", todos=[]))] * 250, says("Stopped."))
    process = agent(replay=replay, unlawful="a thousand frames take long to judge; shorter turns are judged everywhere")
    process.initialize()
    session = process.new_session()
    assert process.prompt(session, "Never stop.")["result"] == {"stopReason": "max_turn_requests"}
    announced = [update["toolCallId"] for update in process.updates(session)
                 if update["sessionUpdate"] == "tool_call"]
    assert len(set(announced)) == len(announced) == 250
    assert process.prompt(session, "And now?")["result"] == {"stopReason": "end_turn"}


# ---------------------------------------------------------------- cancelling


def test_what_was_streamed_before_a_cancel_stays_in_history(agent: Workbench, tmp_path: Path) -> None:
    process, session = begin(agent, script(tmp_path / "replay", hang("ready"), ECHO))
    prompt = process.start_prompt(session, "A long story.")
    process.wait_until((agent.workspace / "ready").exists, "the ready file")
    process.cancel(session)
    assert process.response(prompt)["result"] == {"stopReason": "cancelled"}
    mark = process.position
    process.prompt(session, "And?")
    assert process.text(session, since=mark).splitlines().count("partial") == 1
    process.close()
    log = root_log(agent, session)
    assert data(log, "assistant/message")[0]["interrupted"] is True
    assert data(log, "turn/end")[0]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}

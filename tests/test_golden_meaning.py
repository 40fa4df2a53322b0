"""What each golden is there to show. A golden that is written again and no longer shows it fails here."""

from __future__ import annotations

from typing import Any

import msgspec

from replay.golden import load_golden
from replay.snapshot import Normalised, SessionLog
from tests.golden_runs import GOLDEN

Update = dict[str, Any]


def golden(name: str) -> Normalised:
    return load_golden(GOLDEN / name).expected


def updates(run: Normalised, kind: str, **members: Any) -> list[Update]:
    """The updates of a kind that have these members."""
    found = [frame.value["params"]["update"] for frame in run.wire if frame.value.get("method") == "session/update"]
    return [update for update in found if update["sessionUpdate"] == kind and members.items() <= update.items()]


def text(run: Normalised) -> str:
    return "".join(update["content"]["text"] for update in updates(run, "agent_message_chunk"))


def endings(run: Normalised) -> list[Any]:
    """The prompts' stop reasons and error codes, in the order of the prompts."""
    found = []
    for frame in run.wire:
        if "error" in frame.value:
            found.append(frame.value["error"]["data"]["code"])
        elif "stopReason" in (frame.value.get("result") or {}):
            found.append(frame.value["result"]["stopReason"])
    return found


def statuses(run: Normalised) -> dict[str, str]:
    """The last status of each tool call."""
    return {update["toolCallId"]: update["status"] for update in updates(run, "tool_call_update") if "status" in update}


def asked(run: Normalised) -> list[str]:
    """The tool calls that were asked about."""
    return [frame.value["params"]["toolCall"]["toolCallId"] for frame in run.wire
            if frame.value.get("method") == "session/request_permission"]


def events(log: SessionLog, kind: str) -> list[Any]:
    return [event.data for event in log.events if event.type == kind]


def calls(log: SessionLog) -> int:
    """How many model calls a session made itself."""
    seed = 0 if log.header.seed_length is msgspec.UNSET else log.header.seed_length
    own = [event.data["chunk"]["type"] for event in log.events[seed:] if event.type == "assistant/chunk"]
    return own.count("finish")


def family(run: Normalised) -> dict[str, int]:
    """The sessions by address, each with its number of model calls."""
    return {log.address: calls(log) for log in run.logs}


def results(log: SessionLog) -> list[tuple[str, bool]]:
    """Which tool calls have results, in order, and whether they are errors."""
    messages = [data["message"] for data in events(log, "tool/result")]
    return [(message["source"]["callId"], message["content"][0]["isError"]) for message in messages]


# ---------------------------------------------------------------- turns


def test_a_text_turn_streams_thoughts_and_text_in_pieces_and_tells_its_usage() -> None:
    run = golden("text-turn")
    assert len(updates(run, "agent_thought_chunk")) == 2
    assert len(updates(run, "agent_message_chunk")) == 7
    assert text(run) == "Hello! What shall we look at today? 🌱"
    assert [(update["used"], update["size"]) for update in updates(run, "usage_update")] == [(198, 64_000)]
    assert endings(run) == ["end_turn"]


def test_several_turns_of_one_session_have_one_log_and_one_title() -> None:
    run = golden("multi-turn")
    assert endings(run) == ["end_turn"] * 3
    assert [data["turn"] for data in events(run.logs[0], "turn/end")] == [1, 2, 3]
    assert len(updates(run, "session_info_update")) == 1
    assert "file://{{cwd}}/notes.txt" in str(events(run.logs[0], "user/message")[2])


def test_a_tool_turn_has_a_plan_and_calls_that_work_and_fail() -> None:
    run = golden("tool-turn")
    assert [[entry["status"] for entry in update["entries"]] for update in updates(run, "plan")] == [
        ["in_progress", "pending"], ["completed", "completed"]]
    assert statuses(run) == {"plan-1": "completed", "look-1": "completed", "count-1": "completed", "gone-1": "failed",
                             "plan-2": "completed"}
    assert family(run) == {"root": 4}


def test_an_edit_shows_its_diff_on_the_wire_and_leaves_its_file() -> None:
    run = golden("edit-with-diff")
    shown = [part for update in updates(run, "tool_call_update", status="completed")
             for part in update.get("content", []) if part["type"] == "diff"]
    changes = {(part["path"], part["oldText"] is None, part["newText"].partition("(")[2]) for part in shown}
    assert ("{{cwd}}/examples/greet.txt", True, "") in changes
    assert len(changes) == 3
    assert statuses(run)["edit-3"] == "failed"
    assert run.files["greet.py"].text is not msgspec.UNSET
    assert 'def greet(person: str) -> str:\n    return f"Hello, {person}!"' in run.files["greet.py"].text


def test_parallel_tools_have_results_in_the_order_of_the_model_and_wait_for_exclusive_ones() -> None:
    run = golden("parallel-tools")
    assert results(run.logs[0]) == [("read-a", False), ("find", False), ("names", False), ("read-gone", True),
                                    ("change", False), ("read-c", False), ("read-b", False)]
    kinds = [(event.type, event.data.get("callId")) for event in run.logs[0].events if event.type == "tool/call"]
    assert [call for _, call in kinds] == [call for call, _ in results(run.logs[0])]
    assert "a red fox" in str(updates(run, "tool_call_update", toolCallId="read-c", status="completed"))


# ---------------------------------------------------------------- permission


def test_a_yes_holds_for_one_call() -> None:
    run = golden("permission-allowed")
    assert asked(run) == ["write-1", "write-2"]
    assert sorted(run.files) == ["again.txt", "note.txt"]


def test_a_yes_for_always_holds_for_the_turns_that_follow_and_only_for_what_it_covers() -> None:
    run = golden("permission-always")
    assert asked(run) == ["write-1", "run-1"]
    assert set(statuses(run)) == {"write-1", "write-2", "run-1", "run-2", "write-3"}
    assert set(statuses(run).values()) == {"completed"}
    assert len(events(run.logs[0], "approval/grant")) == 2


def test_a_no_and_no_answer_keep_a_call_from_running() -> None:
    run = golden("permission-rejected")
    assert asked(run) == ["write-1", "run-1", "write-2"]
    assert statuses(run) == dict.fromkeys(("write-1", "run-1", "write-2", "write-3"), "failed")
    assert (run.files, endings(run)) == ({}, ["end_turn", "end_turn"])


def test_a_question_says_which_child_asks() -> None:
    run = golden("child-asks-permission")
    assert asked(run) == ["ada/write-it", "bob/write-it"]
    titles = [frame.value["params"]["toolCall"]["title"] for frame in run.wire
              if frame.value.get("method") == "session/request_permission"]
    assert titles == ["Ada writes: Write ada.txt", "Bob writes: Write bob.txt"]
    assert {frame.session for frame in run.wire if frame.value.get("method") == "session/request_permission"} == {
        run.logs[0].name}
    assert (statuses(run)["ada/write-it"], statuses(run)["bob/write-it"]) == ("completed", "failed")
    assert list(run.files) == ["ada.txt"]


# ---------------------------------------------------------------- cancel, errors, limits


def test_a_cancelled_stream_ends_its_turn_and_the_session_goes_on() -> None:
    run = golden("cancel-in-stream")
    assert endings(run) == ["cancelled", "end_turn"]
    assert text(run) == "Once upon a time there was As I was saying: the end."
    assert events(run.logs[0], "turn/end")[0]["reason"]["kind"] == "aborted"


def test_a_cancelled_tool_leaves_one_result_for_every_call() -> None:
    run = golden("cancel-in-tool")
    assert endings(run) == ["cancelled", "end_turn"]
    assert results(run.logs[0]) == [("first", False), ("long", True), ("never", True)]
    assert [data["error"]["code"] for data in events(run.logs[0], "tool/result") if "error" in data] == [
        "ABORTED", "ABORTED_BEFORE_DISPATCH"]
    assert list(run.files) == ["started"]


def test_a_provider_error_is_the_prompts_error_and_the_session_goes_on() -> None:
    run = golden("provider-error")
    assert endings(run) == ["AUTH", "end_turn", "refusal"]
    assert text(run) == "I was about to Now it works.I would rather "


def test_an_answer_at_the_token_limit_runs_no_call_that_was_cut() -> None:
    run = golden("max-tokens")
    assert endings(run) == ["max_tokens", "max_tokens", "end_turn"]
    assert (statuses(run), run.files) == ({}, {})


def test_failed_attempts_are_made_again_within_one_step() -> None:
    run = golden("retry")
    assert [data["failure"]["code"] for data in events(run.logs[0], "llm/retry")] == ["RATE_LIMIT", "EMPTY_RESPONSE"]
    assert (family(run), endings(run)) == ({"root": 3}, ["end_turn"])
    assert len(events(run.logs[0], "assistant/message")) == 1


def test_prompts_wait_in_order_behind_a_turn_that_is_held() -> None:
    run = golden("queue-of-prompts")
    said = [event["content"][0]["text"] for event in events(run.logs[0], "user/message")]
    assert said == ["First.", "Second.", "Third."]
    assert family(run) == {"root": 4, "root 2": 2}
    busy = [frame.value["params"]["update"]["content"]["text"] for frame in run.wire
            if frame.session == run.logs[0].name and "agent_message_chunk" in frame.line]
    assert busy == ["Holding.", "First is done.", "Second is done.", "Third is done."]
    # The prompt that lets the first turn go on was sent last: the two before it had to wait.
    assert [frame.value["id"] for frame in run.wire if "stopReason" in frame.line] == [4, 5, 6, 7]
    assert [update["content"]["text"] for update in updates(run, "agent_message_chunk")][-1] == "Released."


# ---------------------------------------------------------------- children


def test_a_spawned_child_starts_empty() -> None:
    run = golden("subagent-spawn")
    assert family(run) == {"root": 2, "root > read-it": 2}
    assert run.logs[1].header.seed_length is msgspec.UNSET
    assert [data["content"][0]["text"] for data in events(run.logs[1], "user/message")] == [
        "Read poem.txt and give its last word."]


def test_two_children_each_have_their_own_answer() -> None:
    run = golden("subagent-multi")
    assert family(run) == {"root": 2, "root > east": 1, "root > west": 1}
    assert "rises here" in str(updates(run, "tool_call_update", toolCallId="east", status="completed"))
    assert "sets here" in str(updates(run, "tool_call_update", toolCallId="west", status="completed"))


def test_a_forked_child_starts_with_its_parents_finished_turn_and_nothing_later() -> None:
    run = golden("subagent-fork")
    parent, child = run.logs
    assert family(run) == {"root": 4, "root > check": 1}
    assert isinstance(child.header.seed_length, int)
    assert child.events[: child.header.seed_length] == parent.events[: child.header.seed_length]
    assert child.events[child.header.seed_length - 1].type == "turn/end"
    assert child.events[child.header.seed_length].type == "session/end-seed"
    assert "Ask yourself" not in str(child.events)


def test_a_spawned_and_a_forked_child_with_one_prompt_know_different_things() -> None:
    run = golden("subagent-mixed")
    assert family(run) == {"root": 3, "root > aware": 1, "root > fresh": 1}
    seeds = {log.address: log.header.seed_length is not msgspec.UNSET for log in run.logs[1:]}
    assert seeds == {"root > aware": True, "root > fresh": False}


def test_three_children_make_different_numbers_of_calls() -> None:
    run = golden("three-distinct-children")
    assert family(run) == {"root": 2, "root > long": 3, "root > middle": 2, "root > short": 1}


def test_a_child_has_a_child() -> None:
    run = golden("child-of-child")
    assert family(run) == {"root": 2, "root > outer": 2, "root > outer > inner": 2}
    assert [log.header.delegation_depth for log in run.logs] == [0, 1, 2]


# ---------------------------------------------------------------- sessions that go on


def restarts(run: Normalised) -> list[str]:
    return [frame.value["restart"] for frame in run.wire if "restart" in frame.value]


def response(run: Normalised, number: int) -> dict[str, Any]:
    """The response to a request of the client's."""
    (found,) = (frame.value for frame in run.wire if "method" not in frame.value and frame.value.get("id") == number)
    return found


def history(run: Normalised, number: int) -> list[Update]:
    """The updates between the response to the request before this one and the response to this one."""
    (end,) = (at for at, frame in enumerate(run.wire) if "method" not in frame.value
              and frame.value.get("id") == number)
    shown: list[Update] = []
    for frame in reversed(run.wire[:end]):
        if frame.value.get("method") != "session/update":
            break
        shown.insert(0, frame.value["params"]["update"])
    return shown


def listed(run: Normalised, number: int) -> list[str]:
    """The sessions on the page that a request was answered with."""
    return [entry["sessionId"] for entry in response(run, number)["result"]["sessions"]]


def joined(shown: list[Update]) -> str:
    return "".join(update["content"]["text"] for update in shown if update["sessionUpdate"] == "agent_message_chunk")


def last_statuses(shown: list[Update]) -> dict[str, str]:
    return {update["toolCallId"]: update["status"] for update in shown if "status" in update}


def unknown(log: SessionLog) -> list[Any]:
    """The error code of each result, None for one without."""
    return [data.get("error", {}).get("code") for data in events(log, "tool/result")]


def test_a_load_shows_all_that_was_shown_and_the_session_goes_on_with_mode_and_permission() -> None:
    run = golden("load")
    assert (restarts(run), asked(run)) == (["eof"], ["write-1"])
    shown, again = history(run, 8), history(run, 11)
    assert {update["sessionUpdate"] for update in shown} == {
        "current_mode_update", "user_message_chunk", "session_info_update", "agent_thought_chunk", "tool_call",
        "tool_call_update", "plan", "agent_message_chunk"}
    assert again[: len(shown)] == shown
    assert joined(again).endswith("The lamp is on it.")
    assert [response(run, number)["result"]["modes"]["currentModeId"] for number in (2, 8, 11)] == [
        "full-access", "ask", "ask"]
    assert response(run, 7)["result"]["sessions"][0]["title"] == "Write a packing list for"
    assert statuses(run)["add-1"] == "completed"
    assert run.files["list.txt"].text == "tent\nstove\nlamp\n"
    assert family(run) == {"root": 7}


def test_a_resume_shows_nothing_and_the_session_goes_on() -> None:
    run = golden("resume")
    assert (history(run, 6), history(run, 9)) == ([], [])
    assert response(run, 5)["error"]["code"] == -32002
    assert text(run) == "Heron, noted.Heron.H-E-R-O-N."
    assert [event.type for event in run.logs[0].events].count("session/end-seed") == 2


def test_a_list_has_pages_that_stay_where_they_were() -> None:
    run = golden("list-pages")
    first, rest = listed(run, 107), listed(run, 110)
    assert (len(first), len(rest)) == (50, 2)
    assert response(run, 107)["result"]["nextCursor"] == "{{cursor:1}}"
    assert "nextCursor" not in response(run, 110)["result"]
    assert not set(first) & set(rest)
    assert rest == ["{{session:2}}", "{{session:1}}"]
    assert "{{session:53}}" not in first  # it has no event
    assert (listed(run, 111), listed(run, 112)) == (["{{session:2}}"], [])
    assert [response(run, number)["error"]["code"] for number in (113, 114)] == [-32602, -32602]
    assert listed(run, 167) == ["{{session:2}}", "{{session:1}}"]
    titles = {entry["sessionId"]: entry.get("title") for entry in response(run, 110)["result"]["sessions"]}
    assert titles == {"{{session:1}}": "Remember the milk.", "{{session:2}}": "Where are we?"}


def test_a_fork_of_a_fork_has_both_pasts_and_the_sources_are_as_they_were() -> None:
    run = golden("fork-of-fork")
    one, two, three = run.logs
    assert family(run) == {"root": 3, "root 2": 1, "root 3": 3}
    cuts = [log.header.seed_length for log in (one, two, three)]
    assert cuts[0] is msgspec.UNSET
    assert isinstance(cuts[1], int)
    assert isinstance(cuts[2], int)
    assert two.events[: cuts[1]] == one.events[: cuts[1]]
    assert three.events[: cuts[2]] == two.events[: cuts[2]]
    assert all(log.header.parent_session is msgspec.UNSET for log in run.logs)
    for log, cut in ((two, cuts[1]), (three, cuts[2])):
        assert (log.events[cut - 1].type, log.events[cut].type) == ("turn/end", "session/end-seed")
    said = [event["content"][0]["text"] for event in events(three, "user/message")]
    assert said == ["Pick a number from the file.", "Double it.", "Add one and look again.", "What did I say first?"]
    assert "Halve it." not in str(three.events)
    assert joined(history(run, 11)) == "Eight.Sixteen.Seventeen, and the file is as it was."
    assert listed(run, 9) == ["{{session:3}}", "{{session:2}}", "{{session:1}}"]


def test_a_tool_that_was_running_when_the_agent_was_killed_has_one_result_and_it_says_what_is_known() -> None:
    run = golden("interrupted-tool")
    assert restarts(run) == ["kill", "eof"]
    assert results(run.logs[0]) == [("look-1", False), ("build-1", True), ("note-1", True), ("see-1", False)]
    assert unknown(run.logs[0]) == [None, "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED", None]
    assert [data["reason"]["kind"] for data in events(run.logs[0], "turn/end")] == [
        "completed", "interrupted", "completed"]
    assert list(run.files) == ["started"]
    shown, again = history(run, 6), history(run, 9)
    assert again[: len(shown)] == shown
    assert last_statuses(shown) == {"look-1": "completed", "build-1": "failed", "note-1": "failed"}


def test_a_delegation_that_was_cut_off_leaves_three_whole_sessions_and_can_be_made_again() -> None:
    run = golden("interrupted-children")
    assert restarts(run) == ["kill", "eof"]
    assert family(run) == {"root": 3, "root > east": 1, "root > west": 1, "root > west[1]": 1}
    assert [[data["reason"]["kind"] for data in events(log, "turn/end")] for log in run.logs] == [
        ["interrupted", "completed"], ["completed"], ["interrupted"], ["completed"]]
    assert unknown(run.logs[0]) == ["TOOL_OUTCOME_UNKNOWN", "TOOL_OUTCOME_UNKNOWN", None]
    assert unknown(run.logs[2]) == ["TOOL_OUTCOME_UNKNOWN"]
    shown, again = history(run, 5), history(run, 8)
    assert again[: len(shown)] == shown
    assert last_statuses(again) == {"east": "failed", "west": "failed", "west#2": "completed"}


def test_a_closed_session_answers_its_prompt_first_and_a_deleted_one_is_gone() -> None:
    run = golden("close-and-delete")
    answered = [frame.value["id"] for frame in run.wire if "method" not in frame.value and "id" in frame.value]
    assert answered == sorted(answered)
    assert response(run, 4)["result"]["stopReason"] == "cancelled"
    codes = {number: response(run, number)["error"]["code"] for number in answered if "error" in response(run, number)}
    assert codes == {5: -32600, 7: -32002, 8: -32002, 19: -32002, 20: -32002, 21: -32002, 24: -32002}
    assert joined(history(run, 9)) == "Something.I am thinking"
    assert listed(run, 14) == ["{{session:3}}", "{{session:2}}", "{{session:1}}"]
    assert (listed(run, 22), listed(run, 25)) == (["{{session:1}}"], ["{{session:1}}"])
    assert len(run.logs) == 1


def test_config_options_keeps_mode_and_option_in_step_and_hands_choices_down() -> None:
    run = golden("config-options")
    assert len(updates(run, "config_option_update")) == 1
    assert [one["currentModeId"] for one in updates(run, "current_mode_update")] == [
        "read-only", "full-access", "read-only", "full-access"]
    answers = [frame.value["result"] for frame in run.wire if "configOptions" in (frame.value.get("result") or {})]
    levels = [option["currentValue"] for answer in answers for option in answer["configOptions"]
              if option["id"] == "thought_level"]
    assert levels == ["default", "high", "high", "low", "low", "low"]
    assert [frame.value["error"]["code"] for frame in run.wire if "error" in frame.value] == [-32602]


def test_slash_commands_are_shown_again_and_counted_by_no_turn() -> None:
    run = golden("slash-commands")
    typed = [one["content"]["text"] for one in updates(run, "user_message_chunk")]
    assert typed == ["/help", "/usage", "Which bird is it?", "/usage", "/rename   A heron, at last", "/rename",
                     "/tools", "/mcp", "/fly away", "Tell me about /help"]
    assert updates(run, "session_info_update")[-1]["title"] == "A heron, at last"
    assert "in 3 answers" in text(run)
    assert len(updates(run, "available_commands_update")) == 2

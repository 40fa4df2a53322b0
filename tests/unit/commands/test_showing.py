"""`sessions show`: the transcript of a stored session, its children where they were delegated."""

from __future__ import annotations

import json

import pytest

from acp_agent.commands.times import exactly
from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.stores.base import SessionSummary, StoredLog
from tests.support.memory_store import MemoryStore
from tests.unit.commands.bench import CommandBench
from tests.wire.recordings import Log, Part, says, step, tool
from tests.wire.recordings import call as answer


def delegating(call_id: str, prompt: str, kind: str = "subagent") -> Part:
    return tool(call_id, kind, description=call_id, prompt=prompt)


def family() -> list[Log]:
    """A fork, then a child whose log names its call, and one of another harness's whose log does not."""
    root = Log("root-of-all").turn("Hello.", says("Hi."))
    fork = root.forked("the-fork", "f").turn("Remember?", says("I do."))
    root.turn("Go.", step(answer(delegating("a", "One."), delegating("b", "Two.")), "(1)", "(2)"),
              step(answer(delegating("f", "Remember?", "subagent_fork")), "(3)"), says("All done."))
    one = root.spawned("child-1", "a")
    one.turn("One.", step(answer(delegating("a", "Deep.")), "(4)"), says("I am one."))
    deep = one.spawned("deep-1", "a").turn("Deep.", says("Deepest."))
    return [root, one, root.spawned("child-2", None).turn("Two.", says("I am two.")), deep, fork]


def test_children_stand_where_they_were_delegated(sessions: CommandBench) -> None:
    sessions.keep(*family())
    done = sessions("show", "root")
    assert (done.status, done.err) == (0, [])
    assert done.out == [
        f"in {{{{cwd}}}}, created {exactly(1000)}, updated unknown",
        "root · root-of-all",
        "│ > Hello.",
        "│ Hi.",
        "│ > Go.",
        '│ subagent {"description":"a","prompt":"One."}  a',
        "│ → (1)",
        "│ root > a · child-1",
        "│ │ > One.",
        '│ │ subagent {"description":"a","prompt":"Deep."}  a',
        "│ │ → (4)",
        "│ │ root > a > a · deep-1",
        "│ │ │ > Deep.",
        "│ │ │ Deepest.",
        "│ │ I am one.",
        '│ subagent {"description":"b","prompt":"Two."}  b',
        "│ → (2)",
        "│ root > b · child-2",
        "│ │ > Two.",
        "│ │ I am two.",
        '│ subagent_fork {"description":"f","prompt":"Remember?"}  f',
        "│ → (3)",
        "│ root > f · the-fork · begins with 10 inherited events",
        "│ │ > Remember?",
        "│ │ I do.",
        "│ All done.",
    ]


def test_a_child_is_shown_alone_with_what_it_inherited(sessions: CommandBench) -> None:
    sessions.keep(*family())
    assert sessions("show", "the-fork").out[1:] == [
        "root > f · the-fork · begins with 10 inherited events", "│ > Hello.", "│ Hi.",
        "│ ── inherited up to here: 10 events ──", "│ > Remember?", "│ I do."]
    assert sessions("show", "child-1").out[1:5] == [
        "root > a · child-1", "│ > One.", '│ subagent {"description":"a","prompt":"Deep."}  a', "│ → (4)"]


def test_turns_that_were_interrupted_or_have_no_end_are_marked(sessions: CommandBench) -> None:
    cut = answer(tool("c", "bash", command="x"))
    sessions.keep(Log("cut-short").turn("One.", step(cut, "?"), end="interrupted").turn("Two.", step(cut), end="open"))
    assert sessions("show", "cut-short").out[2:] == [
        "│ > One.", '│ bash {"command":"x"}  c', "│ → ?", "│ turn ended: interrupted",
        "│ > Two.", "│ the log stops within this turn"]


def test_a_command_and_its_answer_are_shown_where_the_user_gave_it(sessions: CommandBench) -> None:
    log = Log("commanding").turn("Hello.", says("Hi."))
    log.add("session/command", id="u", text="/rename Beans", answerId="a", output="The session is called: Beans")
    log.add("session/title", title="Beans", messageSeqs=[], source={"kind": "user"})
    log.add("session/command", id="v", text="/mcp", answerId="b", output="Servers:\n\n- one: ready")
    sessions.keep(log.turn("Go on.", says("I do.")))
    assert sessions("show", "commanding").out[1:] == [
        "root · commanding · Beans", "│ > Hello.", "│ Hi.",
        "│ > /rename Beans", "│ → The session is called: Beans",
        "│ > /mcp", "│ → Servers:", "│   ", "│   - one: ready",
        "│ > Go on.", "│ I do."]
    [story] = map(json.loads, sessions("show", "--json", "commanding").out)
    assert story["moments"][2] == {
        "kind": "command", "text": "/rename Beans", "result": "The session is called: Beans"}


def test_what_was_set_allowed_planned_and_tried_again_is_shown(sessions: CommandBench) -> None:
    log = Log("eventful", window=1000).turn("Hello.", says("Hi."))
    log.add("session/config", mode="accept-edits", model="p/m", options={"thought_level": "high"})
    log.add("approval/grant", key="write", allow=True, covers="every write")
    log.add("approval/grant", key="bash", allow=False, covers="the command `ls`")
    log.add("replay/bound", lane="recorded-7", ordinal=0)
    log.add("todo/write", todos=[{"content": "one", "status": "completed"}, {"content": "two", "status": "pending"}])
    log.add("todo/write", todos=[])
    for model in ("recorded-1", "recorded-2"):
        config = {"provider": "recorded", "model": model}
        log.add("request/header", header={"config": config, "system": "", "tools": []}, reason="change")
    log.add("llm/retry", retryId="r", turn=1, step=1, provider="p", mode="m", policyKey="k", retry=1, maxRetries=2,
            delayMs=5, failure={"message": "too busy", "code": "OVERLOADED"})
    log.add("llm/retry-started", retryId="r", turn=1, step=1, retry=1)  # this, and what follows, is not worth a line
    log.add("file/seen", path="/a", version=None).add("subagent/descriptor", version=1, mode="m", provider="spawn")
    sessions.keep(log)
    assert sessions("show", "eventful").out[1:] == [
        "root · eventful · recorded/recorded-1", "│ > Hello.", "│ Hi.",
        "│ set: mode accept-edits, model p/m, thought_level high",
        "│ allowed for the rest of the session: every write",
        "│ refused for the rest of the session: the command `ls`",
        "│ answers come from the recording recorded-7",
        "│   [x] one", "│   [ ] two",
        "│   (an empty plan)",
        "│ set: model recorded/recorded-2",
        "│ tried again after OVERLOADED: too busy"]


def test_a_tool_that_was_not_allowed_to_run_says_so(sessions: CommandBench) -> None:
    log = Log("refused").turn("Hello.", step(answer(tool("c", "bash", command="x")), "Error: rejected"))
    at = next(at for at, event in enumerate(log.events) if event["type"] == "tool/result")
    log.events[at:at] = [
        {"type": "approval/asked", "data": {"id": "q", "toolName": "bash", "callId": "c", "reason": "it runs"}},
        {"type": "approval/decided", "data": {"id": "q", "outcome": "rejected"}}]
    sessions.keep(log)
    assert sessions("show", "refused").out[3:] == [
        '│ bash {"command":"x"}  c', "│ ? may it run: rejected", "│ → Error: rejected"]


def test_what_a_repair_could_not_bring_back_is_marked_where_it_is_missing(sessions: CommandBench) -> None:
    lost = {"type": "log/lost", "data": {}, "ignorable": True}
    log = Log("mended").turn("One.", says("1"))
    log.events.append(lost)
    log.turn("Two.", says("2")).events.extend([lost, lost])
    sessions.keep(log)
    assert sessions("show", "mended").out[2:] == [
        "│ > One.", "│ 1", "│ ── 1 event of the log lost here ──",
        "│ > Two.", "│ 2", "│ ── 2 events of the log lost here ──"]


def test_content_that_is_no_text_is_named(sessions: CommandBench) -> None:
    log = Log("pictured").turn("Look: ", says("I see."))
    prompt = next(event for event in log.events if event["type"] == "user/message")
    prompt["data"]["content"].append({"type": "image", "attachment": {"hash": "00"}})
    sessions.keep(log)
    assert sessions("show", "pictured").out[2] == "│ > Look: [image]"


def test_a_childs_model_is_named_where_it_is_not_its_parents(sessions: CommandBench) -> None:
    asks = answer(delegating("a", "One."), delegating("b", "Two."))
    root = Log("root-log", window=9).turn("Go.", step(asks, "1", "2"))
    same, other = root.spawned("child-1", "a"), root.spawned("child-2", "b")
    same.turn("One.", says("1"))
    other.turn("Two.", says("2"))
    for child, model in ((same, "recorded-1"), (other, "other")):
        config = {"provider": "recorded", "model": model}
        child.add("request/header", header={"config": config, "system": "", "tools": []}, reason="initial")
    sessions.keep(root, same, other)
    assert [line for line in sessions("show", "root-log").out if "·" in line] == [
        "root · root-log · recorded/recorded-1", "│ root > a · child-1", "│ root > b · child-2 · recorded/other"]


def test_json_holds_the_same(sessions: CommandBench) -> None:
    sessions.keep(*family())
    done = sessions("show", "--json", "root-of-all")
    [story] = map(json.loads, done.out)
    assert story["session"] == "root-of-all"
    assert [moment["kind"] for moment in story["moments"]] == [
        "prompt", "text", "prompt", "tool", "child", "tool", "child", "tool", "child", "text"]
    assert story["moments"][8]["story"]["inherited"] == 10


def test_a_terminal_is_sent_no_control_characters(sessions: CommandBench) -> None:
    evil = "\x1b[2J\x07\x9b\u202e"
    log = Log(f"id{evil}", cwd=f"/{evil}").turn(
        f"p{evil}", step(answer(tool(f"c{evil}", f"t{evil}", argument=evil)), f"r{evil}"), says(f"a{evil}"))
    sessions.keep(log.add("session/title", title=f"T{evil}", messageSeqs=[2], source={"kind": "x"}))
    for words in ((), ("--json",)):
        text = "\n".join(sessions("show", f"id{evil}", *words).out)
        assert not set(evil[0] + evil[4:]) & set(text)
        assert "[2J" in text


class HalfDamaged(MemoryStore):
    """A store in which a child cannot be read, so that its tree tells nothing of it."""

    async def tree(self, session_id: SessionId) -> list[SessionSummary]:
        return [one for one in await super().tree(session_id) if one.id != "child-1"]

    async def inspect(self, session_id: SessionId) -> StoredLog:
        raise LogDamaged("no JSON", file="session.1.jsonl", line=3)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_is_sound_is_shown_when_a_child_is_damaged(sessions: CommandBench, words: tuple[str, ...]) -> None:
    sessions.store = HalfDamaged()
    sessions.keep(*family())
    assert sessions("show", "child-1", *words) == (1, [], ["acp-agent: session.1.jsonl:3: no JSON"])
    done = sessions("show", "root-of-all", *words)
    assert (done.status, done.err) == (0, [])
    text = "\n".join(done.out)
    assert "All done." in text
    assert "Deepest." in text, "a child of the damaged one"
    assert "I am one." not in text

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

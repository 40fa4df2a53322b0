"""Several children at once, children of one call id, and cancel from the parent down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_agent.errors import StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Completed,
    EndSeed,
    Event,
    SessionHeader,
    ToolError,
    ToolResult,
    TurnEnd,
)
from acp_agent.session.session import Session
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.subagents.results import child_result, last_text
from acp_agent.tools.base import Outcome
from acp_agent.tools.subagent import Subagent, SubagentFork
from tests.support.fakes import (
    Gate,
    Hang,
    Reached,
    Script,
    ScriptedProvider,
    asks,
    call,
    says,
    text_chunks,
)
from tests.support.memory_store import MemoryStore
from tests.support.world import World, bodies, finishes, shape

pytestmark = pytest.mark.anyio

ABORTED = Aborted(AbortCause("user"))
BY_PARENT = Aborted(AbortCause("parent"))


def job(call_id: str, prompt: str = "do it", tool: str = "subagent") -> Any:
    return call(call_id, tool, description=prompt, prompt=prompt)


def family(tmp_path: Path, provider: ScriptedProvider, **more: Any) -> World:
    return World(tmp_path, provider, Subagent(), SubagentFork(), **more)


def told(world: World) -> list[str]:
    return [result.message.content[0].content[0].text for result in bodies(world.view.events, ToolResult)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_three_children_at_once_answer_their_own_calls_in_whatever_order_they_end(
    tmp_path: Path, order: tuple[int, ...],
) -> None:
    reached, gates = [anyio.Event() for _ in range(3)], [anyio.Event() for _ in range(3)]
    scripts = {f"c{n}": [[Reached(reached[n]), Gate(gates[n]), *says(f"answer {n}")]] for n in range(3)}
    jobs = [job(f"c{n}", f"job {n}") for n in range(3)]
    provider = ScriptedProvider(asks(*jobs), says("done"), children=scripts)
    async with family(tmp_path, provider) as world:
        prompt = world.session().admit("go")
        with anyio.fail_after(10):
            for event in reached:
                await event.wait()
            for number in order:
                gates[number].set()
                while not isinstance(world.views[0].children[number].events[-1].body, TurnEnd):
                    await anyio.lowlevel.checkpoint()
        assert await world.outcome(prompt) == Completed()
        assert told(world) == ["answer 0", "answer 1", "answer 2"]
        headers = [log.header for log in world.children()]
        assert [header.spawn.call_id for header in headers] == ["c0", "c1", "c2"]  # type: ignore[union-attr]  # children
        created = [header.created_at for header in headers]
        assert created == sorted(set(created))
        assert world.views[0].labels == ["job 0", "job 1", "job 2"]


async def test_calls_with_one_id_in_different_turns_are_told_apart_by_their_index(tmp_path: Path) -> None:
    scripts: dict[str, list[Script]] = {"c": [says("first")], "c[1]": [says("second")], "c[2]": [says("third")]}
    provider = ScriptedProvider(asks(job("c")), asks(job("c")), says("done"), asks(job("c", tool="subagent_fork")),
                                says("done"), children=scripts)
    async with family(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert told(world) == ["first", "second", "third"]
        spawns = [log.header.spawn for log in world.children()]
        assert [(spawn.call_id, spawn.index) for spawn in spawns] == [("c", 0), ("c", 1), ("c", 2)]  # type: ignore[union-attr]  # children


async def test_a_call_that_was_refused_uses_up_no_index(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(job("c", " ")), asks(job("c")), says("done"), children={"c": [says("first")]})
    async with family(tmp_path, provider) as world:
        await world.prompt(world.session())
        assert [log.header.spawn.index for log in world.children()] == [0]  # type: ignore[union-attr]  # a child


async def cancel_family(world: World, session: Session, reached: list[anyio.Event]) -> None:
    prompt = session.admit("go")
    with anyio.fail_after(10):
        for event in reached:
            await event.wait()
    session.cancel()
    assert await world.outcome(prompt) == ABORTED


def ends(log: Any) -> Any:
    assert isinstance(log.events[-1].body, TurnEnd)
    return log.events[-1].body.reason


async def test_a_cancelled_parent_cancels_its_children_and_their_logs_say_so(tmp_path: Path) -> None:
    reached = [anyio.Event(), anyio.Event()]
    scripts: dict[str, list[Script]] = {
        f"c{n}": [[text_chunks("half")[:-1], Reached(reached[n]), Hang()]] for n in range(2)}
    provider = ScriptedProvider(asks(job("c0"), job("c1")), says("on"), children=scripts)
    async with family(tmp_path, provider) as world:
        session = world.session()
        await cancel_family(world, session, reached)
        assert [ends(log) for log in world.children()] == [BY_PARENT] * 2
        assert [finishes(log.events) for log in world.children()] == [["aborted"]] * 2
        assert [shape(log.events)[-3:] for log in world.children()] == [
            ["assistant/message", "step/end", "turn/end"]] * 2
        errors = [result.error for result in bodies(world.view.events, ToolResult)]
        assert errors == [ToolError("AbortError", "ABORTED")] * 2
        assert provider.closed == len(provider.requests) == 3
        assert await world.prompt(session) == Completed()


async def test_cancel_reaches_a_childs_child_and_the_deepest_ends_first(tmp_path: Path) -> None:
    reached = anyio.Event()
    scripts: dict[str, list[Script]] = {"a": [asks(job("b"))], "a/b": [[Reached(reached), Hang()]]}
    provider = ScriptedProvider(asks(job("a")), children=scripts)
    async with family(tmp_path, provider) as world:
        session = world.session()
        await cancel_family(world, session, [reached])
        child, grandchild = world.children()
        assert [ends(child), ends(grandchild)] == [BY_PARENT, BY_PARENT]
        times = [log.events[-1].time for log in (grandchild, child, world.stored(session))]
        assert times == sorted(times)


async def test_a_disposed_parent_leaves_no_child_running(tmp_path: Path) -> None:
    reached = anyio.Event()
    provider = ScriptedProvider(asks(job("a")), children={"a": [[Reached(reached), Hang()]]})
    async with family(tmp_path, provider) as world:
        session = world.session()
        prompt = session.admit("go")
        await reached.wait()
        await world.manager.aclose()
        assert await world.outcome(prompt) == Aborted(AbortCause("disposed"))
        (child,) = world.children()
        assert ends(child) == BY_PARENT


async def test_children_that_waited_for_a_place_in_the_pool_are_never_made(tmp_path: Path) -> None:
    reached = [anyio.Event() for _ in range(10)]
    scripts: dict[str, list[Script]] = {f"c{n}": [[Reached(event), Hang()]] for n, event in enumerate(reached)}
    provider = ScriptedProvider(asks(*(job(f"c{n}") for n in range(12))), children=scripts)
    async with family(tmp_path, provider) as world:
        await cancel_family(world, world.session(), reached)
        assert len(world.children()) == 10
        assert len(bodies(world.view.events, ToolResult)) == 12


async def test_two_parents_may_use_the_same_call_id(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(job("c")), says("done"), asks(job("c")), says("done"),
                                children={"c": [says("one"), says("two")]})
    async with family(tmp_path, provider) as world:
        first, second = world.session(), world.session()
        await world.prompt(first)
        await world.prompt(second)
        parents = {log.header.parent_session for log in world.children()}
        assert parents == {first.place.session, second.place.session}
        assert {log.header.spawn.index for log in world.children()} == {0}  # type: ignore[union-attr]  # children


async def test_a_childs_log_is_stored_and_given_up_when_its_call_ends(tmp_path: Path) -> None:
    store = MemoryStore()
    provider = ScriptedProvider(asks(job("a")), says("done"), children={"a": [says("ok")]})
    async with family(tmp_path, provider, store=store) as world:
        session = world.session()
        await world.prompt(session)
        assert list(store.open) == [session.place.session]
        (child,) = set(store.disk.logs) - set(store.open)
        assert shape(store.disk.logs[child].events)[-1] == "turn/end"


class SlowFork(JsonlStore):
    """A store whose forks wait."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun, self.go = anyio.Event(), anyio.Event()

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        self.begun.set()
        await self.go.wait()
        return await super().fork(session_id, source_id, cut)


async def test_a_cancel_while_a_child_is_being_made_leaves_a_lawful_child(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one"), asks(job("a", tool="subagent_fork")), children={"a": [says("never")]})
    store = SlowFork(tmp_path / "logs")
    async with family(tmp_path, provider, store=store) as world:
        session = world.session()
        await world.prompt(session)
        prompt = session.admit("go")
        with anyio.fail_after(10):
            await store.begun.wait()
        session.cancel()
        store.go.set()
        assert await world.outcome(prompt) == ABORTED
        (child,) = world.children()
        assert child.header.seed_length == child.events.index(next(
            event for event in child.events if isinstance(event.body, EndSeed)))
        assert not any(request.caller.path for request in provider.requests)
        assert bodies(world.view.events, ToolResult)[0].error == ToolError("AbortError", "ABORTED")


class NoChildren(MemoryStore):
    """A store that cannot take children."""

    def create(self, header: SessionHeader, root: Any) -> Any:
        if header.id != root:
            raise StoreError("no room for a child")
        return super().create(header, root)


async def test_a_child_that_cannot_be_stored_ends_the_parents_turn_with_history_balanced(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(job("a")), says("on"))
    async with family(tmp_path, provider, store=NoChildren()) as world:
        outcome = await world.prompt(world.session())
        assert "no room for a child" in str(outcome)
        assert len(bodies(world.view.events, ToolResult)) == 1


# ---------------------------------------------------------------- results


def test_a_run_that_came_to_nothing_is_a_failure() -> None:
    assert child_result((), None, None) == Outcome.failure("subagent run failed")
    assert child_result((), Completed(), None) == Outcome.text("")


def test_an_error_of_the_agents_own_is_the_diagnostic() -> None:
    assert child_result((), None, StoreError("the disk is full")) == Outcome.failure(
        "subagent run failed\nDiagnostic: the disk is full")


def test_no_answer_has_no_text() -> None:
    assert last_text(()) == ""

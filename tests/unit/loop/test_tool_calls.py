"""The calls of one message: side by side where they may be, one after the other where not, and always in order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.errors import RecordingError
from acp_agent.loop.calls import POOL
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Completed,
    Event,
    Failed,
    FileSeen,
    ToolCall,
    ToolResult,
)
from acp_agent.tools.base import Effect, Observation, Outcome, RecordedCall, ToolContext
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, says
from tests.support.memory_store import MemoryStore
from tests.support.world import RecordedEffects, World, bodies

pytestmark = pytest.mark.anyio


class Gated:
    """The behaviour of calls that each wait for their own release; notes who runs and how many at once."""

    def __init__(self, count: int) -> None:
        self.gates = [anyio.Event() for _ in range(count)]
        self.begun: list[int] = []
        self.changed = anyio.Event()
        self.running = self.most = 0

    async def __call__(self, args: dict[str, Any], context: ToolContext) -> Outcome:
        number = args["n"]
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        self.changed.set()
        await self.gates[number].wait()
        self.running -= 1
        return Outcome(Outcome.text(f"result {number}").content, observed=(Observation(f"/{number}", "1"),))

    async def until_begun(self, count: int) -> None:
        """Wait until so many calls have begun."""
        with anyio.fail_after(10):
            while len(self.begun) < count:
                self.changed = anyio.Event()
                await self.changed.wait()


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def results(events: list[Event]) -> list[str]:
    return [result.message.content[0].content[0].text for result in bodies(events, ToolResult)]


async def test_results_are_in_the_models_order_whoever_finishes_first(tmp_path: Path) -> None:
    gated = Gated(3)
    provider = ScriptedProvider(asks(*(call(f"c{n}", "work", n=n) for n in range(3))), says("done"))
    async with World(tmp_path, provider, FakeTool("work", gated, parallel=True)) as world:
        prompt = world.session().admit("go")
        await gated.until_begun(3)
        for number in (2, 1):
            gated.gates[number].set()
        await settle()
        assert bodies(world.view.events, ToolResult) == []
        gated.gates[0].set()
        await world.outcome(prompt)
        assert results(world.view.events) == ["result 0", "result 1", "result 2"]


async def test_ten_calls_run_at_once_and_the_next_starts_when_a_result_is_committed(tmp_path: Path) -> None:
    gated = Gated(13)
    provider = ScriptedProvider(asks(*(call(f"c{n}", "work", n=n) for n in range(13))), says("done"))
    async with World(tmp_path, provider, FakeTool("work", gated, parallel=True)) as world:
        prompt = world.session().admit("go")
        await gated.until_begun(POOL)
        gated.gates[5].set()
        await settle()
        assert len(gated.begun) == POOL, "call 5 is finished, but nothing is committed before call 0"
        gated.gates[0].set()
        await gated.until_begun(POOL + 1)
        for gate in gated.gates:
            gate.set()
        await world.outcome(prompt)
        assert gated.most == POOL
        assert results(world.view.events) == [f"result {n}" for n in range(13)]


async def log_of(order: list[int], directory: Path) -> list[Any]:
    """The bodies of a turn of parallel calls that finish in the given order."""
    gated = Gated(len(order))
    provider = ScriptedProvider(asks(*(call(f"c{n}", "work", n=n) for n in range(len(order)))), says("done"))
    async with World(directory, provider, FakeTool("work", gated, parallel=True), store=MemoryStore()) as world:
        prompt = world.session().admit("go")
        for number in order:
            gated.gates[number].set()
            await anyio.lowlevel.checkpoint()
        await world.outcome(prompt)
        return [event.body for event in world.view.events]


async def test_the_log_of_25_calls_is_the_same_whatever_order_they_finish_in(tmp_path: Path) -> None:
    expected = await log_of(list(range(25)), tmp_path)
    assert [body.call_id for body in expected if isinstance(body, ToolCall)] == [f"c{n}" for n in range(25)]
    for seed in range(12):
        order = random.Random(seed).sample(range(25), 25)
        assert await log_of(order, tmp_path) == expected, f"seed {seed}: {order}"


@settings(deadline=None, max_examples=30)
@given(parallel=st.lists(st.booleans(), min_size=1, max_size=14), seed=st.integers(0, 99))
def test_any_mix_of_calls_ends_with_a_result_each_and_no_exclusive_call_has_company(
    tmp_path_factory: pytest.TempPathFactory, parallel: list[bool], seed: int,
) -> None:
    directory = tmp_path_factory.mktemp("mix")
    running: list[bool] = []
    rng = random.Random(seed)

    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        running.append(args["parallel"])
        assert all(running) or len(running) == 1, "an exclusive call ran beside another"
        for _ in range(rng.randrange(4)):
            await anyio.lowlevel.checkpoint()
        running.remove(args["parallel"])
        return Outcome.text(str(args["n"]))

    async def scenario() -> None:
        blocks = [call(f"c{n}", "side" if one else "alone", n=n, parallel=one) for n, one in enumerate(parallel)]
        provider = ScriptedProvider(asks(*blocks), says("done"))
        tools = FakeTool("side", work, parallel=True), FakeTool("alone", work)
        async with World(directory, provider, *tools) as world:
            assert await world.prompt(world.session()) == Completed()
            assert results(world.view.events) == [str(n) for n in range(len(parallel))]

    anyio.run(scenario)


async def test_an_exclusive_call_waits_for_all_before_it_and_holds_back_all_after_it(tmp_path: Path) -> None:
    gated = Gated(4)
    blocks = [call("a", "side", n=0), call("b", "side", n=1), call("x", "alone", n=2), call("c", "side", n=3)]
    tools = FakeTool("side", gated, parallel=True), FakeTool("alone", gated)
    async with World(tmp_path, ScriptedProvider(asks(*blocks), says("done")), *tools) as world:
        prompt = world.session().admit("go")
        await gated.until_begun(2)
        gated.gates[1].set()
        await settle()
        assert gated.begun == [0, 1]
        gated.gates[0].set()
        await gated.until_begun(3)
        await settle()
        assert (gated.begun, gated.running) == ([0, 1, 2], 1)
        gated.gates[2].set()
        await gated.until_begun(4)
        gated.gates[3].set()
        await world.outcome(prompt)
        kinds = [event.body.type for event in world.view.events if isinstance(event.body, ToolCall | ToolResult)]
        assert kinds == ["tool/call", "tool/call", "tool/result", "tool/result", *["tool/call", "tool/result"] * 2]


async def test_an_unknown_tool_is_a_barrier_between_parallel_calls(tmp_path: Path) -> None:
    blocks = [call("a", "side", n=0), call("x", "teleport"), call("c", "side", n=1)]
    provider = ScriptedProvider(asks(*blocks), says("done"))
    async with World(tmp_path, provider, FakeTool("side", parallel=True)) as world:
        await world.prompt(world.session())
        kinds = [event.body.type for event in world.view.events if isinstance(event.body, ToolCall | ToolResult)]
        assert kinds == ["tool/call", "tool/result"] * 3


async def test_files_seen_by_parallel_calls_are_logged_with_their_results(tmp_path: Path) -> None:
    gated = Gated(2)
    provider = ScriptedProvider(asks(call("a", "work", n=0), call("b", "work", n=1)), says("done"))
    async with World(tmp_path, provider, FakeTool("work", gated, parallel=True)) as world:
        prompt = world.session().admit("go")
        await gated.until_begun(2)
        for number in (1, 0):
            gated.gates[number].set()
            await settle()
        await world.outcome(prompt)
        order = [event.body for event in world.view.events if isinstance(event.body, FileSeen | ToolResult)]
        assert [body.path if isinstance(body, FileSeen) else "result" for body in order] == [
            "/0", "result", "/1", "result"]


async def test_a_recorded_call_is_served_and_the_tool_does_not_run(tmp_path: Path) -> None:
    tool, effects = FakeTool("work"), RecordedEffects(c0=RecordedCall(Outcome.text("as recorded")))
    provider = ScriptedProvider(asks(call("c0", "work", n=0), call("c1", "work", n=1)), says("done"))
    async with World(tmp_path, provider, tool, effects=effects) as world:
        session = world.session()
        await world.prompt(session)
        assert results(world.view.events) == ["as recorded", 'work: {"n":1}']
        assert tool.runs == [{"n": 1}]
        assert effects.observed == [("c1", Outcome.text('work: {"n":1}'))]
        key = effects.asked[1]
        assert (key.session, key.turn, key.step, key.position) == (session.place.session, 1, 1, 1)
        assert (key.call_id, key.name, key.arguments, key.cwd) == ("c1", "work", '{"n":1}', str(world.cwd))


async def test_tools_that_act_on_the_session_always_run(tmp_path: Path) -> None:
    tool = FakeTool("plan", effect=Effect.SESSION)
    effects = RecordedEffects(c0=RecordedCall(Outcome.text("as recorded")))
    async with World(tmp_path, ScriptedProvider(asks(call("c0", "plan")), says("done")), tool,
                     effects=effects) as world:
        await world.prompt(world.session())
        assert results(world.view.events) == ["plan: {}"]
        assert effects.asked == []


@pytest.mark.parametrize("parallel", [False, True])
async def test_an_error_of_the_recording_ends_the_turn_with_history_balanced(
    tmp_path: Path, parallel: bool,
) -> None:
    effects = RecordedEffects(c1=RecordingError("no result is recorded for call c1"))
    provider = ScriptedProvider(asks(*(call(f"c{n}", "work", n=n) for n in range(3))))
    tool = FakeTool("work", parallel=parallel)
    async with World(tmp_path, provider, tool, effects=effects) as world:
        outcome = await world.prompt(world.session())
        assert isinstance(outcome, Failed)
        assert outcome.error.message == "no result is recorded for call c1"
        assert [result.message.content[0].tool_call_id for result in bodies(world.view.events, ToolResult)] == [
            "c0", "c1", "c2"]


async def test_a_recorded_call_that_never_ended_lasts_until_it_is_cancelled(tmp_path: Path) -> None:
    effects = RecordedEffects(c0=RecordedCall(Outcome.failure("tool call aborted"), held=True))
    async with World(tmp_path, ScriptedProvider(asks(call("c0", "work"))), FakeTool("work"),
                     effects=effects) as world:
        session = world.session()
        prompt = session.admit("go")
        with anyio.fail_after(10):
            while not world.view.started:
                await anyio.lowlevel.checkpoint()
        await settle()
        assert not prompt.done.is_set()
        session.cancel()
        assert await world.outcome(prompt) == Aborted(AbortCause("user"))
        assert results(world.view.events) == ["Error: tool call aborted"]

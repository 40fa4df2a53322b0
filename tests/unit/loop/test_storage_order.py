"""What is stored before what (law 4), seen by a store that keeps a journal; and what a full disk stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import StoreError
from acp_agent.session.events import AbortCause, Aborted, Completed, TextDelta
from acp_agent.tools.base import Access, Outcome, ToolContext
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, fails, finish, says
from tests.support.memory_store import MemoryStore
from tests.support.world import World, own_shape, shape

pytestmark = pytest.mark.anyio

STORING = {"write", "sync"}


def note(journal: list[str]) -> Callable[[dict[str, Any], ToolContext], Any]:
    async def run(args: dict[str, Any], context: ToolContext) -> Outcome:
        journal.append("run")
        return Outcome.text("ok")

    return run


def since_last_event(journal: list[str], deed: str) -> list[list[str]]:
    """For each time `deed` was done: what was stored between it and the last event before it."""
    found = []
    for at, entry in enumerate(journal):
        if entry == deed:
            before = at
            while before and journal[before - 1] in STORING:
                before -= 1
            found.append(journal[before:at])
    return found


async def test_the_log_is_written_before_every_request(tmp_path: Path) -> None:
    journal: list[str] = []
    provider = ScriptedProvider(fails("SERVER"), asks(call("c", "work")), says("done"), journal=journal)
    async with World(tmp_path, provider, FakeTool("work"), store=MemoryStore(journal)) as world:
        assert await world.prompt(world.session()) == Completed()
    before = since_last_event(journal, "request")
    assert len(before) == 3
    assert all(before)


@pytest.mark.parametrize(("access", "deed"), [
    (Access.NONE, "write"), (Access.READ, "write"), (Access.EDIT, "sync"), (Access.EXECUTE, "sync")])
@pytest.mark.parametrize("parallel", [False, True])
async def test_the_log_is_written_before_a_tool_runs_and_synced_before_it_changes_the_world(
    tmp_path: Path, access: Access, deed: str, parallel: bool,
) -> None:
    journal: list[str] = []
    provider = ScriptedProvider(asks(call("c1", "work"), call("c2", "work")), says("done"), journal=journal)
    tool = FakeTool("work", note(journal), access=access, parallel=parallel)
    async with World(tmp_path, provider, tool, store=MemoryStore(journal)) as world:
        await world.prompt(world.session())
    runs = [at for at, entry in enumerate(journal) if entry == "run"]
    calls = [at for at, entry in enumerate(journal) if entry == "tool/call"]
    assert len(runs) == len(calls) == 2
    for started, ran in zip(calls, runs, strict=True):
        assert deed in journal[started:ran]


async def test_a_turn_is_synced_before_its_prompt_is_answered(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(says("done")), store=store) as world:
        session = world.session()
        await world.prompt(session)
        assert store.journal[-2:] == ["turn/end", "sync"]


async def test_a_cancelled_turn_is_synced_too(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(), store=store) as world:
        session = world.session()

        def cancel(event: Any) -> None:
            session.cancel()

        session.log.listen(cancel)
        await world.outcome(session.admit("go"))
        assert store.journal == ["turn/start", "turn/end", "sync"]


async def test_a_long_answer_is_written_while_it_streams(tmp_path: Path) -> None:
    journal: list[str] = []
    batches = [[TextDelta(0, "x")] * 300 for _ in range(4)]
    provider = ScriptedProvider([*batches, [finish()]], journal=journal)
    async with World(tmp_path, provider, store=MemoryStore(journal)) as world:
        await world.prompt(world.session())
    streaming = journal[journal.index("request") : journal.index("assistant/message")]
    assert streaming.count("write") == 2


async def test_an_event_is_in_the_log_before_anybody_is_told(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(says("a", "b")), store=store) as world:
        session = world.session()

        def check(event: Any) -> None:
            assert store.open[session.place.session].events[event.seq] == event
            assert session.log.state.count > event.seq
            world.view.events.append(event)

        session.log.listen(check)
        assert await world.prompt(session) == Completed()
        assert shape(world.view.events)[-1] == "turn/end"


# ---------------------------------------------------------------- a full disk


async def test_without_a_log_the_model_is_not_asked(tmp_path: Path) -> None:
    store, provider = MemoryStore(), ScriptedProvider(says("done"), says("later"))
    async with World(tmp_path, provider, store=store) as world:
        session = world.session()
        store.broken = True
        with pytest.raises(StoreError, match="the disk is full"):
            await world.prompt(session)
        assert provider.requests == []
        assert shape(world.view.events)[-2:] == ["step/end", "turn/end"]
        store.broken = False
        assert await world.prompt(session) == Completed()


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("access", [Access.READ, Access.EDIT])
async def test_without_a_log_no_tool_runs_and_history_stays_balanced(
    tmp_path: Path, parallel: bool, access: Access,
) -> None:
    store = MemoryStore()
    tool = FakeTool("work", access=access, parallel=parallel)
    provider = ScriptedProvider(asks(call("c1", "work"), call("c2", "work")), says("later"))
    async with World(tmp_path, provider, tool, store=store) as world:
        session = world.session()

        def fill_the_disk(event: Any) -> None:
            world.view.events.append(event)
            if event.body.type == "assistant/message" and event.body.turn == 1:
                store.broken = True

        session.log.listen(fill_the_disk)
        with pytest.raises(StoreError):
            await world.prompt(session)
        assert tool.runs == []
        kinds = shape(world.view.events)
        assert (kinds.count("tool/call"), kinds.count("tool/result")) == (2, 2)
        assert kinds[-2:] == ["step/end", "turn/end"]
        store.broken = False
        assert await world.prompt(session) == Completed()


async def test_a_turn_that_cannot_be_stored_is_not_answered_as_done(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(says("done")), store=store) as world:
        session = world.session()

        def fill_the_disk(event: Any) -> None:
            store.broken = event.body.type == "turn/end"

        session.log.listen(fill_the_disk)
        prompt = session.admit("go")
        with pytest.raises(StoreError):
            await world.outcome(prompt)
        assert prompt.outcome is None
        store.broken = False


async def test_a_cancelled_turn_that_cannot_be_stored_is_cancelled_and_told(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(says("done"), says("later")), store=store) as world:
        session, world.expect_warnings = world.session(), True

        def fill_the_disk_and_cancel(event: Any) -> None:
            if event.body.type == "user/message" and session.log.state.turn == 1:
                store.broken = True
                session.cancel()

        session.log.listen(fill_the_disk_and_cancel)
        assert await world.outcome(session.admit("go")) == Aborted(AbortCause("user"))
        assert world.view.notices == [("error", "The session cannot be stored", "the disk is full")]
        store.broken = False
        assert await world.prompt(session) == Completed()
        assert own_shape((await store.inspect(session.place.session)).events, 1)[-1] == "turn/end"

"""Sessions closed and deleted, also by several at once: what happened always has some order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import AgentError, SessionBusy, SessionHeld, SessionNotFound
from acp_agent.ids import SessionId
from acp_agent.session.events import AbortCause, Aborted, TurnEnd
from acp_agent.session.session import Session
from acp_agent.session.work import Opening, Order
from tests.support.fakes import Hang, Reached, Script, ScriptedProvider, says
from tests.support.memory_store import MemoryDisk, MemoryStore
from tests.support.world import World, bodies
from tests.unit.session.test_loading_sessions import logged, opened, restarted, stored

pytestmark = pytest.mark.anyio


def hanging(reached: anyio.Event) -> Script:
    return [Reached(reached), Hang()]


async def test_closing_cancels_the_turn_and_the_queue_and_frees_the_log(tmp_path: Path) -> None:
    disk, reached = MemoryDisk(), anyio.Event()
    store = MemoryStore(disk=disk)
    async with restarted(tmp_path, disk, ScriptedProvider(hanging(reached)), store=store) as world:
        session = world.session()
        name = session.place.session
        prompts = [session.admit("one"), session.admit("two")]
        await reached.wait()
        work = world.manager.close(name)
        with pytest.raises(SessionNotFound):
            world.manager.get(name)
        with anyio.fail_after(10):
            await work.result()
        assert [prompt.outcome for prompt in prompts] == [Aborted(AbortCause("user"))] * 2
        assert (store.open, disk.holders) == ({}, {})
        assert [end.reason for end in bodies(logged(disk, name), TurnEnd)] == [Aborted(AbortCause("user"))]
        await opened(world, name)


async def test_a_session_is_closed_after_all_its_prompts_are_answered(tmp_path: Path) -> None:
    reached = anyio.Event()
    async with restarted(tmp_path, MemoryDisk(), ScriptedProvider(hanging(reached))) as world:
        session = world.session()
        prompts = [session.admit("one"), session.admit("two")]
        for prompt in prompts:
            prompt.answered = anyio.Event()
        await reached.wait()
        work = world.manager.close(session.place.session)
        for prompt in prompts:
            await prompt.done.wait()
        for prompt in prompts:
            await anyio.wait_all_tasks_blocked()
            assert world.manager._leaving != {}
            assert prompt.answered is not None
            prompt.answered.set()
        with anyio.fail_after(10):
            await work.result()
        assert world.manager._leaving == {}


async def test_only_what_is_active_can_be_closed(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    async with restarted(tmp_path, disk) as world:
        for one in (name, SessionId("nobody")):
            with pytest.raises(SessionNotFound, match="no active session"):
                world.manager.close(one)


async def test_deleting_closes_what_is_active_and_what_is_unknown_is_gone_already(tmp_path: Path) -> None:
    disk, reached = MemoryDisk(), anyio.Event()
    async with restarted(tmp_path, disk, ScriptedProvider(says("x"), hanging(reached))) as world:
        session = world.session()
        await world.prompt(session)
        prompt = session.admit("more")
        await reached.wait()
        for _ in range(2):
            with anyio.fail_after(10):
                await world.manager.delete(session.place.session).result()
        await world.manager.delete(SessionId("nobody")).result()
        assert prompt.outcome == Aborted(AbortCause("user"))
        assert (disk.logs, disk.holders) == ({}, {})


async def test_a_session_that_cannot_be_stored_can_be_deleted(tmp_path: Path) -> None:
    disk = MemoryDisk()
    store = MemoryStore(disk=disk)
    async with restarted(tmp_path, disk, ScriptedProvider(says("x")), store=store) as world:
        session = world.session()
        await world.prompt(session)
        store.broken = True
        await world.manager.delete(session.place.session).result()
        assert disk.logs == {}
        store.broken = False


async def test_what_another_process_holds_is_not_deleted(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    holder = await MemoryStore(disk=disk).load(name)
    async with restarted(tmp_path, disk) as world:
        with pytest.raises(SessionHeld):
            await world.manager.delete(name).result()
        assert name in disk.logs
    await holder.appender.aclose()


@pytest.mark.parametrize("deeds", list(itertools.product(["load", "close", "delete", "fork"], repeat=3)), ids="-".join)
async def test_what_is_asked_at_once_is_done_in_the_order_asked(tmp_path: Path, deeds: tuple[str, ...]) -> None:
    """A model of one session, active at first, says what each deed comes to."""
    disk = MemoryDisk()
    async with restarted(tmp_path, disk, ScriptedProvider(says("x"))) as world:
        session = world.session()
        await world.prompt(session)
        name = session.place.session
        asked = [begin(world, deed, name) for deed in deeds]
        came = [await outcome(one) for one in asked]
        assert came == expected(deeds)
        with anyio.fail_after(10):
            await world.manager.delete(name).result()


def begin(world: World, deed: str, name: SessionId) -> Any:
    cwd = str(world.cwd)
    try:
        if deed == "load":
            opening = world.manager.load(name, cwd, show=False)
            world.services.spawn(lambda: answer(world, opening))
            return opening.work
        return world.manager.fork(name, cwd) if deed == "fork" else getattr(world.manager, deed)(name)
    except AgentError as error:
        return error


async def answer(world: World, opening: Opening[Session]) -> None:
    """The part of a handler that comes after the work."""
    await opening.work.done()
    world.manager.opened(opening)


async def outcome(work: Any) -> type[Exception] | None:
    if isinstance(work, Exception):
        return type(work)
    with anyio.fail_after(10):
        try:
            await work.result()
        except AgentError as error:
            return type(error)
    return None


def expected(deeds: tuple[str, ...]) -> list[type[Exception] | None]:
    active, there, came = True, True, list[type[Exception] | None]()
    for deed in deeds:
        match deed:
            case "load" if active:
                came.append(SessionBusy)
            case "load":
                came.append(None if there else SessionNotFound)
                active = there
            case "close":
                came.append(None if active else SessionNotFound)
                active = False
            case "fork":
                came.append(None if there else SessionNotFound)
            case "delete":
                came.append(None)
                active = there = False
    return came


async def test_work_on_one_session_waits_and_work_on_others_does_not() -> None:
    order, seen = Order(), list[str]()
    gate = anyio.Event()

    async def work(name: str, session: str, wait: bool) -> None:
        async with order.of(SessionId(session)):
            seen.append(name)
            if wait:
                await gate.wait()

    async with anyio.create_task_group() as tasks:
        for name, session, wait in (("a", "s", True), ("b", "s", False), ("c", "other", False), ("d", "s", False)):
            tasks.start_soon(work, name, session, wait)
        await anyio.wait_all_tasks_blocked()
        assert seen == ["a", "c"]
        gate.set()
    assert seen == ["a", "c", "b", "d"]
    assert order._locks == {}

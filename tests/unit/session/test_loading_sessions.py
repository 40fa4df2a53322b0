"""Stored sessions opened again: what comes back, what is refused, and that a failure leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from acp_agent.errors import InvalidParams, LogDamaged, SessionBusy, SessionHeld, SessionNotFound, StoreError
from acp_agent.ids import RandomIds, SessionId
from acp_agent.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    Completed,
    Event,
    Interrupted,
    RequestHeader,
    RequestSent,
    SpawnKey,
    TextBlock,
    ToolResult,
    TurnEnd,
    UserMessage,
)
from acp_agent.session.session import Session
from acp_agent.session.work import CalledOff
from acp_agent.stores.base import Continuation
from acp_agent.tools.base import Access
from acp_agent.tools.permission import Mode
from acp_agent.tools.subagent import Subagent
from tests.support.fakes import (
    FakeTool,
    Hang,
    Reached,
    RecordingView,
    RecordingViews,
    Script,
    ScriptedProvider,
    asks,
    call,
    says,
    text_chunks,
)
from tests.support.memory_store import MemoryDisk, MemoryStore
from tests.support.world import ALLOW_ALWAYS, World, bodies, shape

pytestmark = pytest.mark.anyio


def restarted(directory: Path, disk: MemoryDisk, provider: ScriptedProvider | None = None, *tools: Any,
              **more: Any) -> World:
    """A new process with what is stored on `disk`."""
    return World(directory, provider or ScriptedProvider(), *tools, store=more.pop("store", MemoryStore(disk=disk)),
                 ids=RandomIds(), **more)


async def opened(world: World, session_id: str, *, show: bool = False) -> Session:
    with anyio.fail_after(10):
        opening = world.manager.load(SessionId(session_id), str(world.cwd), show=show)
        try:
            return await opening.work.result()
        finally:
            world.manager.opened(opening)


async def stored(directory: Path, disk: MemoryDisk, provider: ScriptedProvider, *tools: Any, turns: int = 1,
                 **more: Any) -> SessionId:
    """A session that ran some turns in a process that is gone."""
    async with World(directory, provider, *tools, store=MemoryStore(disk=disk), **more) as world:
        session = world.session()
        for _ in range(turns):
            await world.prompt(session)
        return session.place.session


def cut(disk: MemoryDisk, session_id: str, kind: type[Any], *, number: int = 1) -> list[Event]:
    """Lose everything after the `number`-th event of a kind, as a kill would; returns what is left."""
    log = disk.logs[SessionId(session_id)]
    found = [event.seq for event in log.events if isinstance(event.body, kind)]
    log.events = log.events[: found[number - 1] + 1]
    return list(log.events)


def logged(disk: MemoryDisk, session_id: str) -> list[Event]:
    return list(disk.logs[SessionId(session_id)].events)


async def test_a_loaded_session_goes_on_with_its_context_mode_grants_and_numbers(tmp_path: Path) -> None:
    disk = MemoryDisk()
    edit = FakeTool("edit", access=Access.EDIT)
    async with World(tmp_path, ScriptedProvider(asks(call("a", "edit")), says("first")), edit,
                     store=MemoryStore(disk=disk), mode=Mode.ASK, replies=[ALLOW_ALWAYS]) as world:
        session = world.session()
        await world.prompt(session, "one")
        session.set_mode(Mode.ACCEPT_EDITS)
        before = session.log.state
    provider = ScriptedProvider(says("second"))
    async with restarted(tmp_path, disk, provider, edit, mode=Mode.FULL_ACCESS) as world:
        again = await opened(world, session.place.session)
        state = again.log.state
        assert again.mode is Mode.ACCEPT_EDITS
        assert again.grants() == before.grants != {}
        assert (state.title, state.turn, state.history, state.count) == ("one", 1, before.history, before.count)
        assert await world.prompt(again, "two") == Completed()
        (request,) = provider.requests
        told = [message.content for message in request.messages if isinstance(message, UserMessage)]
        assert told == [(TextBlock("one"),), (TextBlock("two"),)]
        assert request.caller.ordinal == 2
    own = logged(disk, session.place.session)[before.count :]
    assert shape(own)[:5] == ["session/end-seed", "turn/start", "step/start", "user/message", "request/header"]
    assert bodies(own, RequestHeader)[0].reason == "resume"
    assert bodies(own, RequestSent)[0].root is UNSET


@pytest.mark.parametrize("show", [True, False])
async def test_loading_a_closed_session_writes_nothing_and_shows_its_history_if_asked(
    tmp_path: Path, show: bool,
) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("a", "b"), says("c")), turns=2)
    before = logged(disk, name)
    for _ in range(2):
        store = MemoryStore(disk=disk)
        async with restarted(tmp_path, disk, store=store) as world:
            await opened(world, name, show=show)
            views = world.views[0]
            assert shape(views.root.known).count("assistant/message") == 2
            assert views.root.shown == (views.root.known if show else [])
            assert views.root.events == []
        assert set(store.journal) <= {"sync"}
        assert logged(disk, name) == before


async def test_a_session_keeps_its_children_apart_from_those_it_had(tmp_path: Path) -> None:
    disk = MemoryDisk()
    job = asks(call("p", "subagent", description="d", prompt="do it"))
    family = ScriptedProvider(job, says("done"), children={"p": [says("ok")]})
    name = await stored(tmp_path, disk, family, Subagent())
    provider = ScriptedProvider(job, says("done"), children={"p[1]": [says("ok")]})
    async with restarted(tmp_path, disk, provider, Subagent()) as world:
        await world.prompt(await opened(world, name))
    headers = [log.header for log in disk.tree(name)[1:]]
    assert [header.spawn for header in headers] == [SpawnKey("p", 0), SpawnKey("p", 1)]  # type: ignore[arg-type]
    assert {header.cwd for header in headers} == {str(tmp_path / "work")}


# ---------------------------------------------------------------- interrupted


async def test_an_interrupted_turn_is_closed_once_and_shown(tmp_path: Path) -> None:
    disk = MemoryDisk()
    tool = FakeTool("run")
    name = await stored(tmp_path, disk, ScriptedProvider(asks(call("a", "run"), call("b", "run")), says("x")), tool)
    left = cut(disk, name, ToolResult)
    async with restarted(tmp_path, disk, ScriptedProvider(says("on"))) as world:
        session = await opened(world, name, show=True)
        added = logged(disk, name)[len(left) :]
        assert [event.body.type for event in added] == ["tool/result", "step/end", "turn/end"]
        assert {event.time for event in added} == {left[-1].time}
        assert world.views[0].root.shown[-3:] == added
        assert isinstance(session.log.state.outcome, Interrupted)
    once = logged(disk, name)
    async with restarted(tmp_path, disk, ScriptedProvider(says("on"))) as world:
        session = await opened(world, name)
        assert logged(disk, name) == once
        await world.prompt(session)
    assert [event.body.type for event in logged(disk, name)[len(once) :]][:2] == ["session/end-seed", "turn/start"]


async def test_a_question_that_was_open_is_closed_with_its_call(tmp_path: Path) -> None:
    disk = MemoryDisk()
    tool = FakeTool("edit", access=Access.EDIT)
    name = await stored(tmp_path, disk, ScriptedProvider(asks(call("a", "edit")), says("x")), tool, mode=Mode.ASK)
    cut(disk, name, ApprovalAsked)
    async with restarted(tmp_path, disk) as world:
        await opened(world, name)
    assert [one.outcome for one in bodies(logged(disk, name), ApprovalDecided)] == ["cancelled"]
    assert tool.runs == []


async def test_the_open_turns_of_all_descendants_are_closed_with_their_root(tmp_path: Path) -> None:
    disk = MemoryDisk()
    delegate = {"description": "d", "prompt": "do it"}
    children = {"p": [asks(call("q", "subagent", **delegate)), says("ok")], "p/q": [says("deep")]}
    provider = ScriptedProvider(asks(call("p", "subagent", **delegate)), says("done"), children=children)
    name = await stored(tmp_path, disk, provider, Subagent())
    tree = [log.header.id for log in disk.tree(name)]
    for one in tree:
        cut(disk, one, RequestSent)
    async with restarted(tmp_path, disk) as world:
        await opened(world, name)
    assert len(tree) == 3
    for one in tree:
        assert [end.reason for end in bodies(logged(disk, one), TurnEnd)] == [Interrupted()]


async def test_a_damaged_descendant_is_named_and_does_not_stop_its_root(tmp_path: Path) -> None:
    disk = MemoryDisk()
    job = asks(call("p", "subagent", description="d", prompt="do it"))
    name = await stored(tmp_path, disk, ScriptedProvider(job, says("done"), children={"p": [says("ok")]}), Subagent())
    child = disk.tree(name)[1].header.id
    store = FailingLoads(disk, {child: LogDamaged("nonsense", file="f", line=3)})
    async with restarted(tmp_path, disk, store=store) as world:
        world.expect_warnings = True
        await opened(world, name)
        assert [child in warning and "f:3" in warning for warning in world.warned] == [True], world.warned


class FailingLoads(MemoryStore):
    """Loading some sessions fails."""

    def __init__(self, disk: MemoryDisk, failures: dict[SessionId, Exception]) -> None:
        super().__init__(disk=disk)
        self._failures = failures

    async def load(self, session_id: SessionId) -> Continuation:
        if session_id in self._failures:
            raise self._failures[session_id]
        return await super().load(session_id)


# ---------------------------------------------------------------- refusals


async def test_what_is_active_cannot_be_loaded(tmp_path: Path) -> None:
    async with restarted(tmp_path, MemoryDisk(), ScriptedProvider(says("x"))) as world:
        session = world.session()
        await world.prompt(session)
        with pytest.raises(SessionBusy, match="close it first") as caught:
            await opened(world, session.place.session)
        assert caught.value.code == -32600
        assert world.manager.get(session.place.session) is session


async def test_what_nobody_stored_is_not_found_and_does_not_come_to_be(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with restarted(tmp_path, disk) as world:
        with pytest.raises(SessionNotFound) as caught:
            await opened(world, "nobody")
        assert caught.value.facts == {"sessionId": "nobody"}
        with pytest.raises(SessionNotFound):
            world.manager.get(SessionId("nobody"))
    assert disk.logs == {}


async def test_a_child_is_refused_naming_its_root(tmp_path: Path) -> None:
    disk = MemoryDisk()
    job = asks(call("p", "subagent", description="d", prompt="do it"))
    name = await stored(tmp_path, disk, ScriptedProvider(job, says("done"), children={"p": [says("ok")]}), Subagent())
    child = disk.tree(name)[1].header.id
    async with restarted(tmp_path, disk) as world:
        fork, delete = world.manager.fork(child, str(world.cwd)), world.manager.delete(child)
        for deed in (lambda: opened(world, child), fork.result, delete.result):
            with pytest.raises(InvalidParams, match=name) as caught:
                await deed()
            assert caught.value.facts == {"sessionId": child, "root": name}
        assert disk.holders == {}
        await opened(world, name)
        with pytest.raises(InvalidParams, match=name):
            await opened(world, child)


async def test_what_another_process_holds_is_refused_and_free_afterwards(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    holder = await MemoryStore(disk=disk).load(name)
    async with restarted(tmp_path, disk) as world:
        with pytest.raises(SessionHeld, match="another store"):
            await opened(world, name)
        await holder.appender.aclose()
        await opened(world, name)


async def test_a_session_is_not_loaded_into_another_directory(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    async with restarted(tmp_path, disk, ScriptedProvider(says("y"))) as world:
        with pytest.raises(InvalidParams) as caught:
            await world.manager.load(name, str(tmp_path / "other"), show=False).work.result()
        assert str(tmp_path / "other") in caught.value.message
        assert str(world.cwd) in caught.value.message
        assert disk.holders == {}
        session = await world.manager.load(name, str(tmp_path / "link"), show=False).work.result()
        assert session.place.cwd == tmp_path / "link"
        assert disk.logs[name].header.cwd == str(world.cwd)
        for wrong in ("relative", str(tmp_path / "missing")):
            with pytest.raises(InvalidParams, match="cwd"):
                world.manager.load(name, wrong, show=False)


async def test_a_repair_that_cannot_be_stored_fails_the_load_and_leaves_the_session_free(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    left = cut(disk, name, RequestSent)
    store = MemoryStore(disk=disk)
    async with restarted(tmp_path, disk, store=store) as world:
        store.broken = True
        with pytest.raises(StoreError, match="the disk is full"):
            await opened(world, name)
        with pytest.raises(SessionNotFound):
            world.manager.get(name)
        assert (disk.holders, store.open) == ({}, {})
        assert logged(disk, name) == left
        store.broken = False
        await opened(world, name)


async def test_a_load_that_is_called_off_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    store = SlowTree(disk)
    async with restarted(tmp_path, disk, store=store) as world:
        opening = world.manager.load(name, str(world.cwd), show=True)
        await store.reached.wait()
        opening.work.call_off()
        with pytest.raises(CalledOff), anyio.fail_after(10):
            await opening.work.result()
        assert (disk.holders, store.open) == ({}, {})
        with pytest.raises(SessionNotFound):
            world.manager.get(name)


async def test_the_end_of_the_process_calls_off_what_is_being_opened(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    store = SlowTree(disk)
    async with restarted(tmp_path, disk, store=store) as world:
        opening = world.manager.load(name, str(world.cwd), show=True)
        await store.reached.wait()
        with anyio.fail_after(10):
            await world.manager.aclose()
        with pytest.raises(CalledOff):
            await opening.work.result()
        assert disk.holders == {}


class SlowTree(MemoryStore):
    """Telling a session's tree takes for ever."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk=disk)
        self.reached = anyio.Event()

    async def tree(self, session_id: SessionId) -> Sequence[Any]:
        self.reached.set()
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


async def test_a_view_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    async with restarted(tmp_path, disk, views=lambda place: BrokenViews()) as world:
        with pytest.raises(RuntimeError, match="cannot be shown"):
            await opened(world, name, show=True)
        assert disk.holders == {}
        with pytest.raises(SessionNotFound):
            world.manager.get(name)


class BrokenViews(RecordingViews):
    def __init__(self) -> None:
        super().__init__()
        self.root = BrokenView()


class BrokenView(RecordingView):
    def past(self, event: Event, *, show: bool) -> None:
        raise RuntimeError("cannot be shown")


async def test_an_unknown_mode_is_the_careful_one(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with World(tmp_path, ScriptedProvider(), store=MemoryStore(disk=disk)) as world:
        session = world.session()
        session.set_mode(Mode.ASK)
    log = disk.logs[session.place.session]
    odd = type(log.events[0].body)(mode="yolo")  # type: ignore[call-arg]  # a session/config
    log.events = [Event(0, 1, odd, ignorable=True)]
    async with restarted(tmp_path, disk) as world:
        assert (await opened(world, session.place.session)).mode is Mode.ASK


async def test_a_streaming_answer_that_was_cut_is_not_part_of_the_context(tmp_path: Path) -> None:
    disk = MemoryDisk()
    reached = anyio.Event()
    half: Script = [text_chunks("half")[:2], Reached(reached), Hang()]
    async with World(tmp_path, ScriptedProvider(half), store=MemoryStore(disk=disk)) as world:
        session = world.session()
        prompt = session.admit("go")
        await reached.wait()
        await session.log.write()
        left = logged(disk, session.place.session)
        session.cancel()
        await world.outcome(prompt)
    disk.logs[session.place.session].events = list(left)
    provider = ScriptedProvider(says("on"))
    async with restarted(tmp_path, disk, provider) as world:
        again = await opened(world, session.place.session)
        assert again.log.state.count == len(left) + 2
        await world.prompt(again, "more")
        assert [type(message) for message in provider.requests[0].messages] == [UserMessage, UserMessage]
        assert provider.requests[0].caller.ordinal == 1



"""Sessions that a client forks: where they are cut, what they inherit, and that the source never changes."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec import UNSET

from acp_agent.errors import InvalidParams, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Completed, RequestHeader, RequestSent, SessionHeader, TextBlock, UserMessage
from acp_agent.session.session import Session
from acp_agent.session.work import CalledOff
from acp_agent.tools.base import Access
from acp_agent.tools.permission import Mode
from tests.support.fakes import FakeTool, Hang, Reached, Script, ScriptedProvider, asks, call, says
from tests.support.memory_store import MemoryAppender, MemoryDisk, MemoryStore
from tests.support.world import ALLOW_ALWAYS, World, shape
from tests.unit.session.test_loading_sessions import BrokenViews, logged, opened, restarted, stored

pytestmark = pytest.mark.anyio


async def forked(world: World, source: SessionId, cwd: Path | None = None) -> Session:
    with anyio.fail_after(10):
        return await world.manager.fork(source, str(cwd or world.cwd)).result()


def prompts(provider: ScriptedProvider, request: int = -1) -> list[object]:
    """What the user said, as a model call had it."""
    messages = provider.requests[request].messages
    return [block.text for message in messages if isinstance(message, UserMessage) for block in message.content
            if isinstance(block, TextBlock)]


async def test_a_fork_in_the_middle_of_a_turn_begins_with_the_ended_ones(tmp_path: Path) -> None:
    disk, reached = MemoryDisk(), anyio.Event()
    hanging: Script = [Reached(reached), Hang()]
    provider = ScriptedProvider(says("a"), hanging, says("b"))
    async with restarted(tmp_path, disk, provider) as world:
        source = world.session()
        await world.prompt(source, "one")
        running = source.admit("two")
        await reached.wait()
        end = source.log.state.last_end
        fork = await forked(world, source.place.session)
        header = fork.log.header
        assert (header.seed_length, header.parent_session, header.origin) == (end, UNSET, UNSET)
        assert fork.place.root == fork.place.session != source.place.session
        assert header.created_at > source.log.header.created_at
        assert logged(disk, header.id)[:-1] == logged(disk, source.place.session)[:end]
        assert [event.body.type for event in logged(disk, header.id)[end:]] == ["session/end-seed"]
        assert world.manager.get(header.id) is fork
        assert await world.prompt(fork, "three") == Completed()
        assert prompts(provider) == ["one", "three"]
        assert provider.requests[-1].caller.ordinal == 0
        own = logged(disk, header.id)[end:]
        assert shape(own)[:5] == ["session/end-seed", "turn/start", "step/start", "user/message", "request/header"]
        assert [event.body.reason for event in own if isinstance(event.body, RequestHeader)] == ["resume"]
        assert [event.body.root for event in own if isinstance(event.body, RequestSent)] == [1]
        assert fork.log.state.bound is None
        source.cancel()
        await world.outcome(running)


async def test_a_fork_of_a_stored_session_inherits_mode_and_grants_and_needs_no_lock(tmp_path: Path) -> None:
    disk = MemoryDisk()
    edit = FakeTool("edit", access=Access.EDIT)
    provider = ScriptedProvider(asks(call("a", "edit")), says("x"), says("y"))
    async with World(tmp_path, provider, edit, store=MemoryStore(disk=disk), mode=Mode.ASK,
                     replies=[ALLOW_ALWAYS]) as world:
        session = world.session()
        session.set_mode(Mode.ACCEPT_EDITS)
        session.set_mode(Mode.ASK)
        await world.prompt(session)
        grants = dict(session.grants())
    name, before = session.place.session, logged(disk, session.place.session)
    holder = await MemoryStore(disk=disk).load(name)
    async with restarted(tmp_path, disk) as world:
        fork = await forked(world, name)
        assert (fork.mode, fork.grants()) == (Mode.ASK, grants)
        assert grants
        assert logged(disk, name) == before
        assert shape(world.views[0].root.known) == shape(logged(disk, fork.place.session)[:-1])
        assert world.views[0].root.shown == []
    await holder.appender.aclose()


async def test_a_fork_without_an_ended_turn_is_a_new_session(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with restarted(tmp_path, disk, ScriptedProvider(says("x"))) as world:
        source = world.session()
        fork = await forked(world, source.place.session)
        assert fork.log.header.seed_length is UNSET
        assert disk.logs == {}
        await world.prompt(fork)
        assert shape(logged(disk, fork.place.session))[0] == "turn/start"


async def test_forks_of_forks_keep_their_own_boundaries(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("a")))
    provider = ScriptedProvider(says("b"), says("c"))
    async with restarted(tmp_path, disk, provider) as world:
        first = await forked(world, name)
        await world.prompt(first, "two")
        second = await forked(world, first.place.session)
        cuts = [first.log.header.seed_length, second.log.header.seed_length]
        assert cuts == [len(logged(disk, name)), first.log.state.last_end]
        await world.prompt(second, "three")
        assert prompts(provider) == ["go", "two", "three"]
        assert provider.requests[-1].caller.ordinal == 0
        again = second.place.session
    async with restarted(tmp_path, disk) as world:
        loaded = await opened(world, again)
        assert loaded.log.header.seed_length == cuts[1]
        assert loaded.log.state.ordinals == {"main": 1}


async def test_a_fork_may_go_on_in_another_directory(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("a")))
    (tmp_path / "other").mkdir()
    async with restarted(tmp_path, disk) as world:
        fork = await forked(world, name, tmp_path / "other")
        assert (fork.log.header.cwd, fork.place.cwd) == (str(tmp_path / "other"), tmp_path / "other")
        with pytest.raises(InvalidParams, match="does not exist"):
            world.manager.fork(name, str(tmp_path / "missing"))


async def test_what_is_not_there_cannot_be_forked(tmp_path: Path) -> None:
    async with restarted(tmp_path, MemoryDisk()) as world:
        with pytest.raises(SessionNotFound):
            await forked(world, SessionId("nobody"))
        assert world.views == []


async def test_a_fork_that_fails_after_it_was_stored_is_taken_back(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("a")))
    async with restarted(tmp_path, disk, views=lambda place: BrokenViews()) as world:
        with pytest.raises(RuntimeError, match="cannot be shown"):
            await forked(world, name)
        assert (list(disk.logs), disk.holders) == ([name], {})
    async with restarted(tmp_path, disk, store=Unsynced(disk=disk)) as world:
        with pytest.raises(StoreError, match="the device is gone"):
            await forked(world, name)
        assert (list(disk.logs), disk.holders) == ([name], {})


class Unsynced(MemoryStore):
    """What is written never reaches the device."""

    def create(self, header: SessionHeader, root: SessionId) -> MemoryAppender:
        appender = super().create(header, root)

        async def sync() -> None:
            await appender.write()
            raise StoreError("the device is gone")

        appender.sync = sync  # type: ignore[method-assign]  # of this one only
        return appender


async def test_a_fork_that_cannot_be_stored_or_is_called_off_leaves_nothing(tmp_path: Path) -> None:
    disk = MemoryDisk()
    name = await stored(tmp_path, disk, ScriptedProvider(says("a")))
    store = MemoryStore(disk=disk)
    async with restarted(tmp_path, disk, store=store) as world:
        store.broken = True
        with pytest.raises(StoreError, match="the disk is full"):
            await forked(world, name)
        store.broken = False
        work = world.manager.fork(name, str(world.cwd))
        work.call_off()
        with pytest.raises(CalledOff):
            await work.result()
        assert (list(disk.logs), disk.holders, store.open) == ([name], {}, {})

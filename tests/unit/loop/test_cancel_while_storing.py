"""A cancel that comes while the log is being stored: nothing that waited for it runs, and what is over stays over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from acp_agent.session.events import AbortCause, Aborted, Completed
from acp_agent.session.session import Session
from acp_agent.tools.base import Access
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, says
from tests.support.world import World, own_shape

pytestmark = pytest.mark.anyio

CANCELLED = Aborted(AbortCause("user"))


class SlowDisk:
    """Holds the `count`-th time a session's log is written or synced, as a slow disk would."""

    def __init__(self, session: Session, deed: str, count: int = 1) -> None:
        self.reached, self.gate = anyio.Event(), anyio.Event()
        self._left = count
        self._real: Callable[[], Awaitable[None]] = getattr(session.log, deed)
        setattr(session.log, deed, self._store)

    async def _store(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self.gate.wait()
        await self._real()


async def test_no_request_is_made(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("later"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        disk, admitted = SlowDisk(session, "write"), session.admit("go")
        await disk.reached.wait()
        session.cancel()
        assert await world.outcome(admitted) == CANCELLED
        assert provider.requests == []
        assert await world.prompt(session) == Completed()
    assert own_shape(world.stored(session).events, 1)[-3:] == ["chunks", "step/end", "turn/end"]


@pytest.mark.parametrize("access", [Access.READ, Access.EDIT])
async def test_no_tool_runs(tmp_path: Path, access: Access) -> None:
    tool = FakeTool("work", access=access)
    async with World(tmp_path, ScriptedProvider(asks(call("c", "work")), says("later")), tool) as world:
        session = world.session()
        disk = SlowDisk(session, "write", 2) if access is Access.READ else SlowDisk(session, "sync")
        admitted = session.admit("go")
        await disk.reached.wait()
        session.cancel()
        assert await world.outcome(admitted) == CANCELLED
        assert tool.runs == []
        assert await world.prompt(session) == Completed()


async def test_a_turn_that_has_ended_stays_as_it_ended_and_the_next_one_works(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("done"), says("next"))) as world:
        session = world.session()
        disk, admitted = SlowDisk(session, "sync"), session.admit("go")
        await disk.reached.wait()
        session.cancel()
        session.cancel_prompt(admitted)
        disk.gate.set()
        assert await world.outcome(admitted) == Completed()
        assert await world.prompt(session) == Completed()

"""The methods over stored sessions as the dispatcher calls them: what they wait for, what calls them off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import UNSET, Raw

from acp_agent.acp.handlers import Handlers
from acp_agent.acp.session_methods import SessionMethods
from acp_agent.errors import SessionNotFound
from acp_agent.ids import SessionId
from acp_agent.rpc.dispatch import RequestContext
from acp_agent.rpc.envelope import Request
from acp_agent.session.work import CalledOff
from acp_agent.stores.base import Page, Refusal, SessionSummary
from tests.support.fakes import ScriptedProvider, says
from tests.support.memory_store import MemoryDisk, MemoryStore
from tests.support.world import World
from tests.unit.session.test_loading_sessions import SlowTree, restarted, stored

pytestmark = pytest.mark.anyio

TEXT = [{"type": "text", "text": "hi"}]


class Client:
    """Calls methods the way the dispatcher does: a call runs in a task and is replied to at its end."""

    def __init__(self, world: World) -> None:
        self.warned: list[str] = []
        handlers = Handlers(world.manager, lambda *_: None)
        self._methods = (handlers.methods()
                         | SessionMethods(world.manager, self.warned.append).methods())
        self._cancel = handlers.notifications()["session/cancel"]
        self.came: dict[str, Any] = {}
        self.contexts: dict[str, RequestContext] = {}

    async def call(self, name: str, method: str, **params: Any) -> Any:
        raw = Raw(msgspec.json.encode(params))
        context = self.contexts[name] = RequestContext(Request(b"1", b"1", method, raw))
        try:
            self.came[name] = msgspec.to_builtins(await self._methods[method](raw, context))
        except Exception as error:
            self.came[name] = error
        context.replied()
        return self.came[name]

    def cancel(self, session: str) -> None:
        self._cancel(Raw(msgspec.json.encode({"sessionId": session})))


async def waiting(client: Client, tasks: Any, world: World, session: str, *prompts: str) -> None:
    """A load that does not come to its end, and prompts that wait for it."""
    tasks.start_soon(lambda: client.call("load", "session/load", sessionId=session, cwd=str(world.cwd), mcpServers=[]))
    await anyio.wait_all_tasks_blocked()
    for name in prompts:
        tasks.start_soon(lambda name=name: client.call(name, "session/prompt", sessionId=session, prompt=TEXT))
    await anyio.wait_all_tasks_blocked()


async def test_a_load_that_is_called_back_is_answered_so_and_who_waited_finds_no_session(tmp_path: Path) -> None:
    disk = MemoryDisk()
    session = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    async with restarted(tmp_path, disk, store=SlowTree(disk)) as world:
        client = Client(world)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                await waiting(client, tasks, world, session, "prompt")
                assert client.came == {}
                client.contexts["load"].cancel()
        assert isinstance(client.came["load"], CalledOff)
        assert client.came["load"].code == -32800
        assert isinstance(client.came["prompt"], SessionNotFound)
        assert disk.holders == {}


async def test_a_cancel_during_a_load_answers_the_prompts_that_wait_and_the_load_goes_on(tmp_path: Path) -> None:
    disk = MemoryDisk()
    session = await stored(tmp_path, disk, ScriptedProvider(says("x")))
    gate = anyio.Event()

    class Gated(MemoryStore):
        async def tree(self, session_id: SessionId) -> Any:
            await gate.wait()
            return await super().tree(session_id)

    async with restarted(tmp_path, disk, ScriptedProvider(says("late")), store=Gated(disk=disk)) as world:
        client = Client(world)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                await waiting(client, tasks, world, session, "early")
                client.cancel(session)
                await anyio.wait_all_tasks_blocked()
                assert client.came == {"early": {"stopReason": "cancelled"}}
                tasks.start_soon(lambda: client.call("late", "session/prompt", sessionId=session, prompt=TEXT))
                tasks.start_soon(lambda: client.call("mode", "session/set_mode", sessionId=session, modeId="ask"))
                await anyio.wait_all_tasks_blocked()
                client.cancel("nobody")
                gate.set()
        assert list(client.came)[:2] == ["early", "load"]
        assert (client.came["late"], client.came["mode"]) == ({"stopReason": "end_turn"}, {})
        assert client.came["load"]["modes"]["currentModeId"] == "full-access"


class Listing(MemoryStore):
    """Lists a page that was made by hand."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page

    async def list(self, **asked: Any) -> Page:
        return self._page


async def test_a_list_tells_what_it_can_and_names_once_what_it_leaves_out(tmp_path: Path) -> None:
    def summary(name: str, **more: Any) -> SessionSummary:
        members: dict[str, Any] = {"created_at": 1, "updated_at": 1_700_000_000_123, "cwd": "/w"} | more
        return SessionSummary(SessionId(name), **members)

    page = Page([summary("a", title="A"), summary("b", cwd=UNSET), summary("c", updated_at=2**60)], "next",
                (Refusal("d", "it is a directory"),))
    async with World(tmp_path, ScriptedProvider(), store=Listing(page)) as world:
        client = Client(world)
        for _ in range(2):
            assert await client.call("list", "session/list") == {"sessions": (
                {"sessionId": "a", "cwd": "/w", "title": "A", "updatedAt": "2023-11-14T22:13:20.123Z"},
                {"sessionId": "c", "cwd": "/w"}), "nextCursor": "next"}
        assert [any(name in one for one in client.warned) for name in ("session d ", "session b ")] == [True, True]
        assert len(client.warned) == 2

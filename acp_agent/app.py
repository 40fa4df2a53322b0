"""The composition root: from settings to a running server. The only module of `acp_agent` that knows `replay`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from acp_agent.acp.handlers import Handlers
from acp_agent.acp.roots import ClientViews
from acp_agent.clock import SystemClock
from acp_agent.ids import IdSource, RandomIds, SequentialIds
from acp_agent.providers.base import Provider
from acp_agent.rpc.connection import Connection
from acp_agent.rpc.dispatch import Dispatcher
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.signals import stop_on_signals
from acp_agent.rpc.stdio import Stdio, claim_stdio
from acp_agent.rpc.writer import Writer
from acp_agent.session.manager import SessionManager
from acp_agent.session.session import Services
from acp_agent.settings import JsonlStore as JsonlChoice
from acp_agent.settings import Settings
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.tools.base import Effects
from acp_agent.tools.live import LiveEffects
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry, default_tools

T = TypeVar("T")

_log = logging.getLogger("acp_agent")


def serve(settings: Settings) -> int:
    """Serve ACP on stdin and stdout until the client is done; the process's exit status."""
    stdio = claim_stdio()
    logging.basicConfig(
        stream=sys.stderr, level=settings.log_level.upper(), format="acp-agent: %(levelname)s: %(message)s"
    )
    anyio.run(_serve, settings, stdio)
    return 0


async def _serve(settings: Settings, stdio: Stdio) -> None:
    store = make_store(settings)
    registry = Registry(default_tools())
    provider, effects = make_model(settings)
    client = _Client()
    async with anyio.create_task_group() as tasks:
        services = Services(
            store=store, provider=provider, registry=registry, effects=effects,
            ids=make_ids(settings, store), clock=SystemClock(), home=str(Path.home()),
            mode=Mode(settings.permission_mode), max_depth=settings.subagent_max_depth, next_root=_counter(),
            spawn=_spawner(tasks), warn=_log.warning,
        )  # fmt: skip
        manager = SessionManager(services, lambda place: ClientViews(client, registry, place))
        handlers = Handlers(manager)
        connection = Connection(
            Reader(stdio.input), Writer(stdio.output), Dispatcher(handlers.methods()), handlers.notifications(),
            on_shutdown=manager.aclose,
        )
        client.connection = connection
        async with connection:
            with stop_on_signals(connection):
                await connection.run()
        with anyio.CancelScope(shield=True):
            await provider.aclose()
            await store.aclose()
        tasks.cancel_scope.cancel()


def _spawner(tasks: TaskGroup) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        tasks.start_soon(work)

    return spawn


class _Client:
    """The client as sessions see it. Views exist before the connection does, so it is set afterwards."""

    connection: Connection

    def send(self, frame: bytes) -> None:
        self.connection.notify(frame)

    async def drained(self) -> None:
        await self.connection.drain()

    async def request(self, method: str, params: Struct, result_type: type[T]) -> T:
        return await self.connection.peer.call(method, params, result_type)


def make_store(settings: Settings) -> JsonlStore:
    """The store the settings name."""
    assert isinstance(settings.store, JsonlChoice)  # anything else was refused when the settings were read
    return JsonlStore(settings.store.directory)


def make_ids(settings: Settings, store: JsonlStore) -> IdSource:
    """The id scheme the settings name."""
    return SequentialIds(store.exists) if settings.ids == "sequential" else RandomIds()


def make_model(settings: Settings) -> tuple[Provider, Effects]:
    """Who answers model calls, and where tool results come from."""
    if settings.replay_dir is None:
        from acp_agent.providers.unconfigured import Unconfigured

        return Unconfigured(), LiveEffects()
    from replay import open_replay

    replay: Any = open_replay(
        settings.replay_dir, tools=settings.replay_tools, sessions=settings.replay_sessions,
        pace=settings.replay_pace, receipt=settings.replay_receipt, log=_log.error,
    )  # fmt: skip
    return replay.provider, replay.effects


def explain(directory: Path, as_json: bool) -> int:
    """`acp-agent explain`: print what the replay engine sees in a directory; 1 when it has problems."""
    import msgspec
    from replay.explain import explain as examine
    from replay.explain import render

    found = examine(directory)
    text = msgspec.json.format(msgspec.json.encode(found)).decode() if as_json else render(found)
    sys.stdout.write(text.rstrip("\n") + "\n")
    return 1 if found.problems else 0


def _counter() -> Callable[[], int]:
    last = -1

    def count() -> int:
        nonlocal last
        last += 1
        return last

    return count

"""The composition root: from settings to a running server. The only module of `acp_agent` that knows `replay`.

An editor waits for `initialize` before anything else, so its answer needs few imports; everything behind it is
loaded by `Agent.load` once that answer is out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from acp_agent.acp.handshake import Handshake
from acp_agent.errors import AgentError
from acp_agent.rpc.connection import Connection, NotificationHandler
from acp_agent.rpc.dispatch import Dispatcher, Handler
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.signals import stop_on_signals
from acp_agent.rpc.stdio import Stdio, claim_stdio
from acp_agent.rpc.writer import Writer
from acp_agent.settings import LIVE, SCRIPTED, Settings, credentials_file
from acp_agent.settings import JsonlStore as JsonlChoice

if TYPE_CHECKING:
    from acp_agent.acp.auth import Authentication
    from acp_agent.ids import IdSource
    from acp_agent.providers.base import Provider
    from acp_agent.session.manager import SessionManager
    from acp_agent.session.session import Place
    from acp_agent.stores.base import Store
    from acp_agent.tools.base import Effects

T = TypeVar("T")

_log = logging.getLogger("acp_agent")


def serve(settings: Settings) -> int:
    """Serve ACP on stdin and stdout until the client is done; the process's exit status."""
    stdio = claim_stdio()
    logging.basicConfig(
        stream=sys.stderr, level=settings.log_level.upper(), format="acp-agent: %(levelname)s: %(message)s"
    )
    return asyncio.run(_serve(settings, stdio))


async def _serve(settings: Settings, stdio: Stdio) -> int:
    async with asyncio.TaskGroup() as tasks:
        agent = Agent(settings, tasks)
        connection = Connection(
            Reader(stdio.input), Writer(stdio.output),
            Dispatcher({"initialize": agent.handshake.initialize}, agent.load), agent.notifications,
            on_shutdown=agent.end_sessions,
        )  # fmt: skip
        agent.client.connection = connection
        async with connection:
            with stop_on_signals(connection):
                await connection.run()
        return await agent.aclose()


class Agent:
    """One process's agent: composed from the settings when the first session is near."""

    def __init__(self, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self._auth = make_authentication(settings)
        self.handshake = Handshake(self._auth)
        self.client = Client()
        self.notifications: dict[str, NotificationHandler] = {}
        """Filled by `load`: before, there is nothing a notification could mean."""
        self._settings = settings
        self._tasks = tasks
        self._manager: SessionManager | None = None
        self._model: Model | None = None
        self._store: Store | None = None
        self._status = 0

    def load(self) -> Mapping[str, Handler]:
        """Compose everything, and give the methods it serves. Blocks while it imports."""
        import gc

        from acp_agent.acp.handlers import Handlers
        from acp_agent.acp.roots import ClientViews
        from acp_agent.acp.services import ClientServices
        from acp_agent.acp.session_methods import SessionMethods
        from acp_agent.acp.view import update_frame
        from acp_agent.clock import SystemClock
        from acp_agent.session.manager import SessionManager
        from acp_agent.session.session import Services
        from acp_agent.tools.permission import Mode
        from acp_agent.tools.registry import Registry, default_tools

        settings = self._settings
        registry = Registry(default_tools())
        self._store = store = make_store(settings)
        self._model = model = make_model(settings)
        ids = make_ids(settings, store)
        services = Services(
            store=store, provider=model.provider, registry=registry, effects=model.effects,
            ids=ids, clock=SystemClock(), home=str(Path.home()),
            mode=Mode(settings.permission_mode), max_depth=settings.subagent_max_depth, next_root=_counter(),
            serves=settings.replay_dir is None or settings.replay_tools == "live", spawn=self._spawn,
            warn=_log.warning,
        )  # fmt: skip

        def views(place: Place) -> ClientViews:
            offered = lambda: self.handshake.capabilities  # noqa: E731  # a method of one expression
            desk = ClientServices(self.client, place.session, offered, ids.token)
            return ClientViews(self.client, registry, place, desk)

        self._manager = SessionManager(services, views)
        handlers = Handlers(
            self._manager, lambda session, update: self.client.send(update_frame(session, update)), self._auth
        )
        self.notifications.update(handlers.notifications())
        gc.collect()
        gc.freeze()  # what was imported stays: a full collection, which stops everything, need not look at it again
        return handlers.methods() | SessionMethods(self._manager, _log.warning, self._auth).methods()

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.create_task(work())

    async def end_sessions(self) -> None:
        """Cancel every turn and store every session."""
        if self._manager is not None:
            await self._guarded(self._manager.aclose)

    async def aclose(self) -> int:
        """End the sessions, then whatever they used; the exit status: 1 when something could not be stored."""
        await self.end_sessions()
        if self._model is not None:
            await self._guarded(self._model.aclose)
        if self._store is not None:
            await self._guarded(self._store.aclose)
        return self._status

    async def _guarded(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One thing that cannot be stored must not keep the others from it."""
        try:
            await close()
        except AgentError as error:
            _log.error("%s", error.message)
            self._status = 1


class Client:
    """The client as sessions see it. It exists before the connection does, which is set afterwards."""

    connection: Connection

    def send(self, frame: bytes) -> None:
        """Queue one line, newline included."""
        self.connection.notify(frame)

    def behind(self) -> bool:
        """Whether so much is queued that producers have to wait."""
        return self.connection.behind

    async def drained(self) -> None:
        """Wait until the client has read most of what is queued."""
        await self.connection.drain()

    async def request(
        self, method: str, params: Struct, result_type: type[T], late: Callable[[T], None] | None = None
    ) -> T:
        """Ask the client; `late` is given what a cancelled request still came to. Raises `PeerError`."""
        return await self.connection.peer.call(method, params, result_type, late)

    def tell(self, method: str, params: Struct) -> None:
        """Send a request whose answer does not matter."""
        self.connection.peer.tell(method, params)


def make_store(settings: Settings) -> Store:
    """The store the settings name."""
    if isinstance(settings.store, JsonlChoice):
        from acp_agent.stores.jsonl import JsonlStore

        return JsonlStore(settings.store.directory)
    from acp_agent.stores.sqlite import SqliteStore

    return SqliteStore(settings.store.file)


def make_ids(settings: Settings, store: Store) -> IdSource:
    """The id scheme the settings name."""
    from acp_agent.ids import RandomIds, SequentialIds

    return SequentialIds(store.exists) if settings.ids == "sequential" else RandomIds()


class Model(NamedTuple):
    """Who answers model calls, where tool results come from, and how to end both."""

    provider: Provider
    effects: Effects
    aclose: Callable[[], Coroutine[Any, Any, None]]


def make_authentication(settings: Settings) -> Authentication | None:
    """How to log in to the provider the settings name; None where nothing needs a key."""
    if settings.replay_dir is not None or settings.model is None or settings.model.provider not in LIVE:
        return None
    from acp_agent.acp.auth import Authentication
    from acp_agent.credentials import Credentials

    return Authentication(settings.model.provider, Credentials(credentials_file(os.environ, Path.home()), os.environ))


def make_model(settings: Settings) -> Model:
    """The model the settings name: a recording, else a script, else none."""
    if settings.replay_dir is None and settings.model is not None and settings.model.provider in LIVE:
        from acp_agent.providers.unconfigured import Unconfigured, later
        from acp_agent.tools.live import LiveEffects

        live = Unconfigured(later(f"{settings.model.provider}/{settings.model.model}"))
        return Model(live, LiveEffects(), live.aclose)
    if settings.replay_dir is None and settings.model is not None:
        from acp_agent.providers.scripted import ScriptedProvider
        from acp_agent.tools.live import LiveEffects

        assert settings.model.provider == SCRIPTED  # anything else was refused when the settings were read
        scripted = ScriptedProvider(Path(settings.model.model), _log.error)
        return Model(scripted, LiveEffects(), scripted.aclose)
    if settings.replay_dir is None:
        from acp_agent.providers.unconfigured import Unconfigured
        from acp_agent.tools.live import LiveEffects

        unconfigured = Unconfigured()
        return Model(unconfigured, LiveEffects(), unconfigured.aclose)
    from replay import open_replay

    replay = open_replay(
        settings.replay_dir, tools=settings.replay_tools, sessions=settings.replay_sessions,
        pace=str(settings.replay_pace), receipt=settings.replay_receipt, log=_log.warning,
    )  # fmt: skip
    replay.preload()
    return Model(replay.provider, replay.effects, replay.aclose)


def explain(directory: Path, as_json: bool) -> int:
    """`acp-agent explain`: print what the replay engine sees in a directory; 1 when it has problems."""
    import msgspec

    from replay.explain import explain as examine
    from replay.explain import render

    found = examine(directory)
    text = msgspec.json.format(msgspec.json.encode(found)).decode() if as_json else render(found)
    sys.stdout.write(text.rstrip("\n") + "\n")
    return 1 if found.problems else 0


def chat(words: Sequence[str]) -> int:
    """`acp-agent chat`: talk to an agent by hand; the exit status. Raises `SettingsError` for wrong words."""
    from replay.chat.main import main

    return main(words)


def kit(name: Literal["demo", "lint", "refresh", "replay"], words: Sequence[str]) -> int:
    """Run a command of the snapshot kit; the exit status. A command line that cannot be used ends the process."""
    if name == "demo":
        from replay.commands import demo

        return demo.main(words)
    if name == "lint":
        from replay.commands import lint

        return lint.main(words)
    if name == "refresh":
        from replay.commands import refresh

        return refresh.main(words)
    from replay.commands import replay

    return replay.main(words)


def _counter() -> Callable[[], int]:
    last = -1

    def count() -> int:
        nonlocal last
        last += 1
        return last

    return count


def show_session(directory: Path, session: str, *, as_json: bool) -> None:
    """Print what a session and its children said and did; `directory` holds the logs of its tree, and no others.

    Raises `RecordingError` for logs that cannot be read.
    """
    from replay.stored_story import stored_story

    story = stored_story(directory, session)
    if as_json:
        import msgspec

        from acp_agent.visible import harmless_json

        sys.stdout.write(harmless_json(msgspec.json.encode(story).decode()) + "\n")
        return
    from rich.console import Console

    from replay.printer import Printer
    from replay.story_printer import show_story

    show_story(Printer(Console(highlight=False)), story)


def replay_problems(directory: Path) -> list[str]:
    """Everything that stands in the way of replaying a directory, with file and line."""
    from replay.explain import explain as examine

    return [str(problem) for problem in examine(directory).problems]

"""One MCP server of one session: connected in a task of its own, which also ends it.

The SDK's contexts must be left by the task that entered them, so that task holds them open and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from msgspec import Struct

from acp_agent import __version__
from acp_agent.mcp.config import HttpServer, ServerConfig
from acp_agent.mcp.http import HttpLink
from acp_agent.mcp.mending import Mending
from acp_agent.mcp.sdk import in_words, load_sdk, shortened
from acp_agent.mcp.secrets import Secrets
from acp_agent.mcp.stdio import StdioLink
from acp_agent.tools.output import INTERVAL

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp_types import CallToolResult, Tool

T = TypeVar("T")

CONNECT_LIMIT = 15.0
"""Seconds a server has to start and list its tools: a program may have to be fetched first."""

CALL_LIMIT = 600.0
"""Seconds one call of a tool may take."""

LIST_LIMIT = 30.0
"""Seconds a server has to list its tools again."""

LEAVE_LIMIT = 1.0
"""Seconds for what a server is told when it is left. Its process has its own limits, which come on top."""

END_LIMIT = 2.5
"""Seconds after which nobody waits for a server's end any more; it takes less, unless something is broken."""

MAX_TOOLS = 200
"""Tools of one server that are offered; the rest are left out, and it is said so."""

LISTEN_AGAIN = 5.0
"""Seconds after which a broken subscription is renewed."""

_LOST = 1.0  # seconds in which a failed call finds out that its server is gone


class ServerError(Exception):
    """The server cannot do what it was asked; the message is for the user and the model."""


class Connecting(Struct, frozen=True):
    """Started, not ready."""


class Ready(Struct, frozen=True):
    """Connected. `tools` as the server lists them, `left_out` says that it has more than `MAX_TOOLS`; `version` is
    of the protocol spoken. `unusable` are tools that the protocol does not allow: name and why.
    """

    tools: tuple[Tool, ...]
    title: str
    version: str
    left_out: bool = False
    unusable: tuple[tuple[str, str], ...] = ()


class Failed(Struct, frozen=True):
    """Not connected, or not any more."""

    reason: str


class Closed(Struct, frozen=True):
    """Ended with its session."""


State = Connecting | Ready | Failed | Closed


class _Dropped(Exception):
    """The server ended before it had answered anything."""


class Connection:
    """A server's life. `run` is its task; `settled` is set once it is first ready or failed."""

    def __init__(
        self, config: ServerConfig, cwd: Path, changed: Callable[[Connection], None], *, limit: float = CONNECT_LIMIT
    ) -> None:
        """`changed` is told whenever the state is another one; `limit` is in seconds, see `CONNECT_LIMIT`."""
        self.config = config
        self.state: State = Connecting()
        self.settled = anyio.Event()
        self._cwd = cwd
        self._changed = changed
        self._limit = limit
        self._secrets = Secrets(config)
        self._client: Client | None = None
        self._mending = Mending()
        self._task: asyncio.Task[Any] | None = None
        self._whole = anyio.CancelScope()
        self._calls: TaskGroup | None = None
        self._relist = anyio.Event()
        self._stop = anyio.Event()
        self._down = anyio.Event()
        """It has failed or ended."""
        self._ended = anyio.Event()

    @property
    def name(self) -> str:
        """What the client calls the server."""
        return self.config.name

    async def run(self) -> None:
        """Connect, follow the server's tools, and end it when `aclose` asks for that. Never raises."""
        self._task = asyncio.current_task()
        try:
            with self._whole:
                await self._live()
        except Exception as error:
            self._fail(in_words(error))
        finally:
            self._client = None
            if not isinstance(self.state, Failed):
                self.state = Closed()
            self.settled.set()
            self._down.set()
            self._ended.set()

    async def _live(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._heed_stop)
            await load_sdk()
            group.start_soon(self._hurry)
            self._calls = group
            try:
                await self._serve("auto")
            except _Dropped:  # some older servers end when they are asked anything before `initialize`
                await self._serve("legacy")
            group.cancel_scope.cancel()

    async def _heed_stop(self) -> None:
        """A server that is not wanted any more need not get ready first."""
        await self._stop.wait()
        if not self.settled.is_set():
            self.settled.set()
            self._whole.cancel()

    async def _hurry(self) -> None:
        """Give up on a server that does not get ready. Whoever waits for it is told at once: ending it takes a while.
        """
        await anyio.sleep(self._limit)
        if not self.settled.is_set():
            self._fail(f"it was not ready within {self._limit:g} s")
            self._whole.cancel()

    async def _serve(self, mode: str) -> None:
        """One connection, from its beginning to its end. Raises for one that fails before it is wanted to end."""
        from mcp import Client
        from mcp_types import Implementation

        link = HttpLink(self.config) if isinstance(self.config, HttpServer) else StdioLink(self.config, self._cwd)
        self._mending = Mending()
        try:
            async with Client(
                self._mending.over(link.transport()), mode=mode, message_handler=self._message, cache=None,
                client_info=Implementation(name="acp-replay", version=__version__), read_timeout_seconds=CALL_LIMIT,
            ) as client:
                await self._list(client)
                self._client = client
                self.settled.set()
                await self._attend(client, link.lost)
                self._client = None
                if link.lost.is_set():
                    self._fail(link.reason)
                self._whole.deadline = anyio.current_time() + LEAVE_LIMIT
        except Exception as error:
            if link.lost.is_set() and mode == "auto" and not self.settled.is_set():
                raise _Dropped from None
            raise ServerError(link.explain(in_words(error))) from None

    async def _attend(self, client: Client, lost: anyio.Event) -> None:
        """Follow the tools until the server is gone or not wanted any more."""
        async with anyio.create_task_group() as group:
            async def until(event: anyio.Event) -> None:
                await event.wait()
                group.cancel_scope.cancel()

            group.start_soon(until, self._stop)
            group.start_soon(until, lost)
            group.start_soon(self._follow, client)
            group.start_soon(self._listen, client)

    # -- the server's tools

    async def _list(self, client: Client) -> None:
        tools: list[Tool] = []
        self._mending.unusable.clear()
        if client.server_capabilities.tools is not None:
            cursor: str | None = None
            while len(tools) <= MAX_TOOLS:
                page = await client.list_tools(cursor=cursor)
                tools.extend(page.tools)
                if not page.next_cursor or page.next_cursor == cursor:
                    break
                cursor = page.next_cursor
        info = client.server_info
        title = "" if info is None else shortened(f"{info.name} {info.version}")
        unusable = tuple((self._secrets.hide(name), self._secrets.hide(why)) for name, why in self._mending.unusable)
        ready = Ready(tuple(tools[:MAX_TOOLS]), title, client.protocol_version, len(tools) > MAX_TOOLS, unusable)
        if ready != self.state:
            self._become(ready)

    async def _follow(self, client: Client) -> None:
        """List the tools again whenever the server says that they changed. Where it cannot, the old list stands."""
        while True:
            await self._relist.wait()
            self._relist = anyio.Event()
            with contextlib.suppress(Exception), anyio.move_on_after(LIST_LIMIT):
                await self._list(client)

    async def _listen(self, client: Client) -> None:
        """Newer servers tell of changes only to who subscribes."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    if not events.honored.tools_list_changed:
                        return
                    self._relist.set()  # what changed before was told to nobody
                    async for _ in events:
                        self._relist.set()
            except (ListenNotSupportedError, MCPError):
                return
            except (SubscriptionLost, TimeoutError):
                pass
            await anyio.sleep(LISTEN_AGAIN)

    async def _message(self, message: Any) -> None:
        """Older servers just tell."""
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._relist.set()

    # -- calls

    async def call(
        self, tool: str, arguments: dict[str, Any], told: Callable[[str], None], trace: Mapping[str, str],
    ) -> CallToolResult:
        """Call a tool; `told` shows how far it is, `trace` is what the call is a part of.

        Raises `ServerError`; on cancellation the server is told.
        """
        client = self._client
        if client is None:
            raise ServerError(self._about(_why(self.state)))

        progress = _Progress(told)
        meta: Any = dict(trace) or None
        try:
            return await self._detached(
                lambda: client.call_tool(tool, arguments, CALL_LIMIT, progress_callback=progress.tell, meta=meta)
            )
        except Exception as error:
            raise ServerError(await self._trouble(error)) from None
        finally:
            progress.over = True

    async def _detached(self, deed: Callable[[], Any]) -> CallToolResult:
        """Do it in the server's own tasks: to tell a server that does not listen of a cancel may take seconds."""
        scope, done = anyio.CancelScope(), anyio.Event()
        outcome: list[Any] = []

        async def work() -> None:
            try:
                with scope:
                    outcome.append(await deed())
            except Exception as error:
                outcome.append(error)
            finally:
                done.set()

        assert self._calls is not None  # there is a client
        self._calls.start_soon(work)
        try:
            await done.wait()
        except anyio.get_cancelled_exc_class():
            scope.cancel()
            raise
        if not outcome:
            raise ServerError("the call was given up")
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        result: CallToolResult = outcome[0]
        return result

    async def _trouble(self, error: Exception) -> str:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        code = error.code if isinstance(error, MCPError) else None
        if code == REQUEST_TIMEOUT:
            return self._about(f"it did not answer within {CALL_LIMIT:g} s")
        if code == CONNECTION_CLOSED or isinstance(error, ServerError):  # the end itself says why
            with anyio.move_on_after(_LOST):
                await self._down.wait()
        return self._about(_why(self.state) if isinstance(self.state, Failed | Closed) else in_words(error))

    def _about(self, trouble: str) -> str:
        return f"the MCP server {self.name!r}: {self._secrets.hide(trouble)}"

    # -- its end

    async def aclose(self) -> None:
        """End the server and wait until it has ended."""
        self._stop.set()
        if self._task is None:  # it never began
            self.state = Closed()
            self.settled.set()
            return
        with anyio.move_on_after(END_LIMIT):
            await self._ended.wait()
            return
        self._task.cancel()

    def _fail(self, reason: str) -> None:
        """Failed, unless it was to end anyway."""
        self._client = None
        if not (self._stop.is_set() or isinstance(self.state, Failed)):
            self._become(Failed(self._secrets.hide(reason)))
        self.settled.set()
        self._down.set()

    def _become(self, state: State) -> None:
        self.state = state
        self._changed(self)


class _Progress:
    """Shows how far a call is: not too often, and not after its end."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.over = False
        self._told = told
        self._next = 0.0

    async def tell(self, progress: float, total: float | None, message: str | None) -> None:
        """As the SDK calls it."""
        now = anyio.current_time()
        if self.over or now < self._next:
            return
        self._next = now + INTERVAL
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._told(share if not message else f"{shortened(message)} ({share})")


def _why(state: State) -> str:
    match state:
        case Connecting():
            return "it is still starting"
        case Failed(reason):
            return reason
        case _:
            return "it has ended"

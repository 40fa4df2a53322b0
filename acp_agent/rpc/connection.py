"""One client on one pair of descriptors: reading, routing, answering, and an orderly end.

Frames take effect in the order they were read, and reading never waits for a handler to finish. Those two
meet in the backlog: a request is handed to its handler at once, while anything else (a cancel, say) waits
the few turns of the loop until the handlers of the requests before it have begun. Handlers admit their work
before their first await, so two prompts queue in the order read, and a cancel finds the prompt it means.
`initialize` alone holds everything behind it until it is answered, because it decides whether the rest is
served; so a script may send it and go on without waiting.

Everything that goes out passes one writer, so an answer follows whatever was sent before it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, json

from acp_agent.rpc.dispatch import INITIALIZE, Dispatcher, RequestContext
from acp_agent.rpc.envelope import (
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    Malformed,
    Message,
    Notification,
    Request,
    RequestKey,
    Response,
    classify,
    encode_error,
    id_key,
    is_object,
)
from acp_agent.rpc.frames import LINE_LIMIT, Frame, FrameSplitter, Oversized
from acp_agent.rpc.peer import CANCEL_REQUEST, Peer
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.stdio import Kind
from acp_agent.rpc.writer import Writer

GRACE: Final = 2.0
"""Seconds for each step of the end that waits for somebody else: handlers, cancelled work, the client."""

_FLOOD: Final = 16 * 1024 * 1024  # bytes of unread output at which we stop reading requests

NotificationHandler: TypeAlias = Callable[[Raw], None]
"""Takes a notification's raw params (a JSON object); does what it does at once. Undecodable params are ignored."""

_log = logging.getLogger(__name__)


class Ending(enum.Enum):
    """Why a connection ended."""

    END_OF_INPUT = "end of input"
    CLIENT_GONE = "client gone"
    """Nothing can be written any more."""
    STOPPED = "stopped"
    """`request_stop` was called."""


class _End:
    """Stands in the backlog for the end of input."""


_Incoming: TypeAlias = Message | _End


class _CancelParams(Struct, rename="camel"):
    request_id: Raw


class Connection:
    """The agent's side of one ACP connection.

    Used as `async with Connection(...) as connection: await connection.run()`. It owns reader and writer
    while it is open. `peer` asks the client; `notify` and `drain` are how updates are sent.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        dispatcher: Dispatcher,
        notifications: Mapping[str, NotificationHandler],
        *,
        on_shutdown: Callable[[], Awaitable[None]],
        grace: float = GRACE,
    ) -> None:
        """`on_shutdown` cancels all work and stores what is to be stored; the answers follow from that.

        `grace` is in seconds, see `GRACE`.
        """
        self.peer = Peer(writer.send)
        self.notify: Callable[[bytes], None] = writer.send
        """Send one line, line end included. Never waits."""
        self.drain: Callable[[], Awaitable[None]] = writer.drain
        """Wait while the client is behind with reading; to be awaited between updates."""
        self.stop_reason: str | None = None
        """What the first `request_stop` gave as its reason."""
        self._reader = reader
        self._writer = writer
        self._dispatcher = dispatcher
        self._notifications = notifications
        self._on_shutdown = on_shutdown
        self._grace = grace
        self._splitter = FrameSplitter()
        self._backlog: deque[_Incoming] = deque()
        self._entering = 0  # requests handed over whose handler has not begun
        self._held = False  # initialize is being served
        self._initialized = False
        self._flood: asyncio.Task[None] | None = None
        self._active: dict[RequestContext, asyncio.Task[None]] = {}
        self._by_key: dict[RequestKey, RequestContext] = {}
        self._ending: Ending | None = None
        self._end_begun = asyncio.Event()
        self._settled = asyncio.Event()  # no request is being served
        self._hurry = asyncio.Event()  # do not wait for requests to finish by themselves
        self._closing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._writer.open(self._client_gone)
        try:
            self._reader.open(self._feed, self._input_ended)
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.peer.fail_all()
        tasks = [*self._active.values(), *([self._flood] if self._flood else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace)
        self._reader.close()
        self._writer.close()

    @property
    def behind(self) -> bool:
        """Whether the client is so far behind with reading that `drain` would wait."""
        return self._writer.behind

    async def run(self) -> Ending:
        """Serve until the connection ends, end it in order, and tell why it ended.

        At the end of input, requests already read are finished: without limit when it was a regular file,
        else for as long as `grace`. Then `on_shutdown` runs, what is left is answered, and the answers are
        written until the client stops reading for `grace`. `request_stop` skips the first of these steps.
        """
        await self._end_begun.wait()
        assert self._ending is not None
        self._reader.pause()
        if self._ending is not Ending.STOPPED:
            self.peer.fail_all()
            await self._finish_requests()
        await self._shut_down()
        self.peer.fail_all()
        await self._abort_requests()
        await self._flush()
        return self._ending

    def request_stop(self, reason: str) -> None:
        """End the connection now: nothing more is read and work is cancelled at once.

        Called again, it also stops waiting for the work to end.
        """
        _log.info("stopping: %s", reason)
        if self._ending is Ending.STOPPED and self._closing is not None:
            self._closing.cancel()
        self._hurry.set()
        self.stop_reason = self.stop_reason or reason
        self._begin_end(Ending.STOPPED)

    def abandon(self) -> None:
        """Give a terminal its settings back: the process is about to be ended where it stands."""
        self._reader.close()

    # ------------------------------------------------------------ reading

    def _feed(self, chunk: bytes) -> None:
        self._take(self._splitter.feed(chunk))

    def _input_ended(self) -> None:
        self._take(self._splitter.finish())
        self._backlog.append(_End())
        self._route()

    def _take(self, frames: list[Frame]) -> None:
        if not frames:
            return
        self._backlog.extend(
            _oversized(frame) if isinstance(frame, Oversized) else classify(frame) for frame in frames)
        self._route()
        if self._backlog:
            self._reader.pause()

    def _route(self) -> None:
        """Handle what was read, up to the first thing that must wait for a handler to begin."""
        if not self._backlog:
            return
        while self._backlog:
            if self._held or (self._entering and not isinstance(self._backlog[0], Request)):
                return  # `_entered` or `_release` goes on here
            self._handle(self._backlog.popleft())
        if self._ending is None and self._flood is None:
            self._reader.resume()

    def _handle(self, message: _Incoming) -> None:
        match message:
            case Request():
                self._accept(message)
            case Notification():
                self._notice(message)
            case Response():
                self.peer.resolve(message)
            case Malformed():
                self._writer.send(encode_error(message.id, message.code, message.message))
                if message.spoilt is not None:
                    self.peer.resolve(message.spoilt)
            case _End():
                self._begin_end(Ending.END_OF_INPUT)

    def _notice(self, message: Notification) -> None:
        if not self._initialized or not is_object(message.params):
            return
        handler = self._cancel if message.method == CANCEL_REQUEST else self._notifications.get(message.method)
        if handler is None:
            return
        try:
            handler(message.params)
        except DecodeError as problem:
            _log.debug("ignored a %s notification: %s", message.method, problem)
        except Exception:
            _log.exception("the notification %s failed", message.method)

    def _cancel(self, params: Raw) -> None:
        key = id_key(bytes(json.decode(params, type=_CancelParams).request_id))
        context = None if key is UNSET else self._by_key.get(key)
        if context is not None:
            context.cancel()

    # ------------------------------------------------------------ requests

    def _accept(self, request: Request) -> None:
        if self._ending is Ending.STOPPED:
            self._refuse(request, REQUEST_CANCELLED, "the agent is stopping")
            return
        if request.method == INITIALIZE:
            self._held = True
        elif not self._initialized:
            self._refuse(request, INVALID_REQUEST, "the connection must be initialized first")
            return
        context = RequestContext(request, self._entered)
        self._entering += 1
        self._by_key[request.key] = context
        self._active[context] = asyncio.get_running_loop().create_task(self._serve(request, context))

    def _refuse(self, request: Request, code: int, message: str) -> None:
        self._writer.send(encode_error(request.id, code, message))

    async def _serve(self, request: Request, context: RequestContext) -> None:
        try:
            reply = await self._dispatcher.answer(request, context)
            # The only open request's answer has nothing to share a write with.
            send = self._writer.send if len(self._active) > 1 else self._writer.send_now
            send(reply.frame)
            context.replied()
            if request.method == INITIALIZE and reply.ok:
                self._begin_service()
            if self._writer.queued > _FLOOD and self._flood is None:
                self._flood = asyncio.get_running_loop().create_task(self._stem())
        finally:
            context.mark_entered()
            self._forget(request, context)

    def _entered(self) -> None:
        self._entering -= 1
        if not self._entering and self._backlog:
            # Not here: the handler is only beginning.
            asyncio.get_running_loop().call_soon(self._route)

    def _begin_service(self) -> None:
        self._initialized = True
        # In a later turn of the loop than the one that writes the answer: this blocks while it imports.
        asyncio.get_running_loop().call_soon(self._dispatcher.preload)

    def _forget(self, request: Request, context: RequestContext) -> None:
        del self._active[context]
        if self._by_key.get(request.key) is context:
            del self._by_key[request.key]
        if request.method == INITIALIZE:
            self._held = False
            asyncio.get_running_loop().call_soon(self._route)
        if not self._active:
            self._settled.set()

    async def _stem(self) -> None:
        """A client that asks and asks without reading the answers has to wait at some point."""
        self._reader.pause()
        await self._writer.drain()
        self._flood = None
        if self._ending is None and not self._backlog:
            self._reader.resume()

    # ------------------------------------------------------------ the end

    def _client_gone(self) -> None:
        self._begin_end(Ending.CLIENT_GONE)
        # Whatever time the end of input has given them, requests nobody waits for get no more than this.
        asyncio.get_running_loop().call_later(self._grace, self._hurry.set)

    def _begin_end(self, ending: Ending) -> None:
        if self._ending is None or ending is Ending.STOPPED:
            self._ending = ending
        self._end_begun.set()

    def _patient(self) -> bool:
        """A script in a file is worked to its end, however long that takes."""
        return self._reader.kind is Kind.FILE and self._ending is Ending.END_OF_INPUT

    async def _finish_requests(self) -> None:
        """Let requests finish by themselves, within the time the kind of input gives them."""
        await self._wait_settled(None if self._patient() else self._grace, unless=self._hurry)

    async def _wait_settled(self, seconds: float | None, unless: asyncio.Event | None = None) -> None:
        self._settled.clear()
        if self._active:
            await _wait_for(self._settled.wait(), seconds, unless)

    async def _shut_down(self) -> None:
        self._closing = asyncio.ensure_future(self._on_shutdown())
        try:
            await asyncio.wait([self._closing])
        finally:
            self._closing.cancel()
        if self._closing.cancelled():
            _log.warning("stopped without waiting for the work to end")
        elif (problem := self._closing.exception()) is not None:
            _log.error("the shutdown failed", exc_info=problem)

    async def _abort_requests(self) -> None:
        """Answer what is left: first the handlers themselves, then -32800 in their stead."""
        await self._wait_settled(self._grace)
        for context in list(self._active):
            context.abort()
        await self._wait_settled(GRACE)  # takes a few turns of the loop, unless a handler is broken

    async def _flush(self) -> None:
        if self._patient():
            await _wait_for(self._writer.flush(), None, unless=self._hurry)
        while behind := self._writer.queued:
            await _wait_for(self._writer.flush(), self._grace)
            if self._writer.queued == behind:
                _log.warning("the client did not read its last %d bytes", behind)
                return


async def _wait_for(
    what: Coroutine[Any, Any, object], seconds: float | None, unless: asyncio.Event | None = None
) -> None:
    """Wait for `what`, for at most so many seconds, and only until `unless` is set."""
    waits = [asyncio.ensure_future(what)]
    if unless is not None:
        waits.append(asyncio.ensure_future(unless.wait()))
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _oversized(frame: Oversized) -> Malformed:
    return Malformed(PARSE_ERROR, f"the line has {frame.size} bytes; the limit is {LINE_LIMIT}")

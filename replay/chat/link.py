"""The agent's process and the lines that pass: requests and their answers, both ways."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from acp_agent.rpc.envelope import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    Malformed,
    Notification,
    Request,
    RequestKey,
    Response,
    classify,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    id_key,
    to_json,
)
from acp_agent.rpc.frames import Frame, FrameSplitter, Oversized
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.writer import Writer
from replay.chat.contract import AgentGone, Client, Observer, Refused, Unreadable
from replay.exchange import RpcError
from replay.transports import Transport, end_processes, open_transport

T = TypeVar("T")

GRACE: Final = 3.0
"""Seconds an agent has to end after its input was closed."""

_LAST_WORDS: Final = 1.0
"""Seconds in which the last output of a process that has ended must have arrived, and an end its status."""


@contextlib.asynccontextmanager
async def open_link(
    command: tuple[str, ...], *, cwd: Path, environ: Mapping[str, str], marks: frozenset[bytes],
    directory: Path, observer: Observer, client: Client,
) -> AsyncIterator[Link]:
    """Start an agent; at the end it is told to end, and no process of it is left. Needs the main thread (SIGCHLD).

    Processes whose environment holds one of `marks` are the agent's, wherever they went. `directory` is for the
    link alone. Raises `replay.failures.CannotStart`.
    """
    fifo = directory / "stderr"
    os.mkfifo(fifo)
    errors = Reader(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    try:
        transport = open_transport("pipe", command, cwd=cwd, env=environ, stderr=fifo)
    except BaseException:
        errors.close()
        raise
    try:
        async with asyncio.TaskGroup() as tasks:
            link = Link(transport, errors, tasks, observer, client)
            link.open()
            try:
                yield link
            finally:
                await link.aclose()
    finally:
        end_processes(transport, marks)
        transport.close()


class Link:
    """A running agent. See `open_link`."""

    def __init__(
        self, transport: Transport, errors: Reader, tasks: asyncio.TaskGroup, observer: Observer, client: Client,
    ) -> None:
        self._transport = transport
        self._tasks = tasks
        self._observer = observer
        self._client = client
        self._errors = errors
        self._stdout = Reader(os.dup(transport.read_fd))
        self._stdin = Writer(os.dup(transport.write_fd))
        self._lines, self._error_lines = FrameSplitter(), FrameSplitter()
        self._frames: deque[Frame | None] = deque()
        """What was read and not seen yet; None is the end."""
        self._resting = False
        self._pending: dict[int, tuple[str, asyncio.Future[Response]]] = {}
        self._next = 0
        self._serving: dict[RequestKey, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._gone: AgentGone | None = None
        self._exited, self._stdout_ended, self._stderr_ended = (asyncio.Event() for _ in range(3))
        self._hurried = asyncio.Event()

    # -- life

    def open(self) -> None:
        """Begin to read."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._child_ended)
        self._errors.open(self._take_errors, self._stderr_ended.set)
        self._stdout.open(self._take, self._end_of_stdout)
        self._stdin.open()
        self._watching = self._tasks.create_task(self._watch())
        self._child_ended()  # it may have been quicker than the handler

    def hurry(self) -> None:
        """Do not wait for the agent to end by itself."""
        self._hurried.set()

    def stop_listening(self) -> None:
        """Read nothing more of what the agent writes, and do not wait for it to end: it has said too much."""
        self._stdout.pause()
        self.hurry()

    async def end_input(self) -> int | None:
        """Tell the agent that nothing more will be said, and wait until it has ended; its exit status."""
        await self._stdin.flush()
        self._stdin.close()
        self._transport.close_input()
        await self._exited.wait()
        await self._output_read()
        return self._transport.status()

    async def aclose(self) -> None:
        """Close the agent's input and wait until it has ended, or for `GRACE` seconds."""
        if self._watching is not None:
            self._watching.cancel()
        for task in self._serving.values():
            task.cancel()
        self._gone = self._gone or AgentGone("the agent is being ended")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._first(self._stdin.flush(), self._hurried.wait())
                self._stdin.close()
                self._transport.close_input()
                await self._first(self._exited.wait(), self._hurried.wait())
        self._stdin.close()
        await self._output_read()
        self._stdout.close()
        self._errors.close()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    async def _first(self, *work: Coroutine[Any, Any, object]) -> None:
        """Wait for the first of several things; the others are given up."""
        tasks = [self._tasks.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _child_ended(self) -> None:
        self._client.child_ended()
        if self._transport.status() is not None:
            self._exited.set()

    async def _watch(self) -> None:
        """Tell when the agent is gone: it has ended, or it closed its stdout and so can say nothing any more."""
        await self._first(self._exited.wait(), self._stdout_ended.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._exited.wait()
        await self._output_read()
        self._gone = AgentGone(_how(self._transport.status()))
        pending, self._pending = self._pending, {}
        for method, answer in pending.values():
            if not answer.done():
                answer.set_exception(AgentGone(f"{self._gone}, before it answered {method}"))
        self._client.gone(self._gone)

    async def _output_read(self) -> None:
        """Wait until what an ended agent wrote was taken; another process may hold its pipes open."""
        if not self._exited.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._stdout_ended.wait()
                await self._stderr_ended.wait()

    # -- saying

    async def call(self, method: str, params: Struct, result_type: type[T]) -> T:
        """Ask the agent. Raises `Refused` for an error or an answer that is none, `AgentGone`."""
        if self._gone is not None:
            raise self._gone
        self._next += 1
        number = self._next
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[number] = method, answer
        self._say(encode_request(number, method, params))
        return _result(await answer, method, result_type)

    def notify(self, method: str, params: Struct) -> None:
        """Tell the agent something."""
        self._say(encode_notification(method, params))

    def send_line(self, line: bytes) -> None:
        """Say a line as it is, line end included: it need not be a message, and nobody waits for an answer."""
        self._say(line)

    def _say(self, line: bytes) -> None:
        if self._gone is None:
            self._observer.sent(line.rstrip(b"\n"))
            self._stdin.send(line)

    # -- listening

    def _take(self, data: bytes) -> None:
        self._frames.extend(self._lines.feed(data))
        self._go_on()

    def _end_of_stdout(self) -> None:
        self._frames.extend(self._lines.finish())
        self._frames.append(None)
        self._go_on()

    def _go_on(self) -> None:
        """See the frames that were read. Whoever waits for an answer acts on it before the frame after it is seen."""
        while self._frames and not self._resting:
            frame = self._frames.popleft()
            if frame is None:
                self._stdout_ended.set()
            else:
                self._frame(frame)

    def _rest(self) -> None:
        """Let those act who were just woken."""
        self._resting = True
        asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._go_on()

    def _take_errors(self, data: bytes) -> None:
        for line in self._error_lines.feed(data):
            if not isinstance(line, Oversized):
                self._observer.stderr(line.decode(errors="replace"))

    def _frame(self, frame: Frame) -> None:
        if isinstance(frame, Oversized):
            self._observer.junk(b"", f"a line of {frame.size} bytes")
            return
        message = classify(frame)
        if isinstance(message, Malformed):
            self._observer.junk(frame, message.message)
            if message.spoilt is not None:
                self._resolve(message.spoilt.id, message.spoilt)
            return
        self._observer.received(frame)
        match message:
            case Request():
                task = self._tasks.create_task(self._answer(message))
                self._serving[message.key] = task
                task.add_done_callback(lambda done: self._served(message, done))
            case Notification(method="$/cancel_request"):
                self._withdraw(message)
            case Response(id=int()):
                self._resolve(message.id, message)
            case _:
                pass  # what it says is for the observer

    def _resolve(self, number: int | None, response: Response) -> None:
        _, answer = self._pending.pop(number or 0, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(response)
            self._rest()

    async def _answer(self, request: Request) -> None:
        try:
            self._say(encode_result(request.id, to_json(await self._client.serve(request.method, request.params))))
        except Refused as refused:
            self._say(encode_error(request.id, refused.code, refused.message))

    def _served(self, request: Request, task: asyncio.Task[None]) -> None:
        """A task that was cancelled before it began could not say so itself."""
        self._serving.pop(request.key, None)
        if task.cancelled():
            self._say(encode_error(request.id, REQUEST_CANCELLED, "the request was cancelled"))

    def _withdraw(self, notification: Notification) -> None:
        """The agent no longer wants an answer; it gets one all the same."""
        try:
            raw = msgspec.json.decode(notification.params, type=dict[str, Raw]).get("requestId", Raw(b""))
        except msgspec.MsgspecError:
            return
        key = id_key(bytes(raw))
        task = None if key is UNSET else self._serving.get(key)
        if task is not None:
            task.cancel()


def _result(response: Response, method: str, result_type: type[T]) -> T:
    if response.error is not UNSET:
        try:
            error = msgspec.json.decode(response.error, type=RpcError)
        except msgspec.MsgspecError:
            raise Unreadable(INTERNAL_ERROR, f"the agent's error for {method} cannot be read") from None
        raise Refused(error.code, error.message)
    if response.result is UNSET:
        raise Unreadable(INTERNAL_ERROR, f"the agent's answer to {method} {response.flaw}")
    raw = bytes(response.result)
    try:
        return msgspec.json.decode(b"{}" if raw == b"null" else raw, type=result_type)
    except msgspec.MsgspecError as problem:
        raise Unreadable(INTERNAL_ERROR, f"the agent's result of {method} cannot be read: {problem}") from None


def _how(status: int | None) -> str:
    if status is None:
        return "the agent closed its stdout"
    if status < 0:
        return f"the agent was ended by {signal.Signals(-status).name}"
    return f"the agent ended with status {status}"

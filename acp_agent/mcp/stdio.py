"""An MCP server that is a program of ours: its process, and its pipes as the SDK's client wants them.

The SDK has such a transport, which takes up to four and a half seconds to end a server, where the whole agent has two
(DESIGN, law 10); which cannot say why a server died; and which repeats on stderr what a server prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from acp_agent.mcp.config import StdioServer
from acp_agent.mcp.sdk import shortened
from acp_agent.text import scrub_surrogates
from acp_agent.tools.processes import start

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCMessage

MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes one message of a server may have."""

QUIET_END = 0.5
"""Seconds a server has to end after its stdin was closed, as the MCP specification asks of it."""

FORCED_END = 1.0
"""Seconds it has after SIGTERM; on Linux the tether uses most of them."""

LAST_WORDS = 4096
"""Bytes of stderr that are kept, to say why a server ended."""

_TETHERED = sys.platform == "linux"
_SETTLE = 0.5  # seconds to wait for the rest of what is known of an end
_UNREADABLE = -32700


class StdioLink:
    """One run of a server's program. `transport` is entered once."""

    def __init__(self, config: StdioServer, cwd: Path) -> None:
        self.lost = anyio.Event()
        """Set once the server has ended by itself or cannot be spoken with any more."""
        self.reason = ""
        """Why, then."""
        self._config = config
        self._cwd = cwd

    def explain(self, trouble: str) -> str:
        """What an error of the client's means, where the link knows more."""
        return self.reason or trouble

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[TransportStreams]:
        """Start the server, and end it with everything it started. Raises OSError when it cannot be started."""
        words = _command(self._config, self._cwd)
        inbox = _Inbox()
        pipes = _Pipes(inbox.take)
        process, cancelled = await start(lambda: pipes, words, cwd=self._cwd, env=_environment(self._config))
        incoming, read = anyio.create_memory_object_stream[Any](inf)
        write, outgoing = anyio.create_memory_object_stream[Any](inf)
        inbox.stream = incoming
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_write, process, outgoing)
                group.start_soon(self._watch, process, pipes, incoming)
                try:
                    if cancelled is not None:
                        raise cancelled
                    yield read, write
                finally:
                    with anyio.CancelScope(shield=True):
                        write.close()
                        _write_rest(process, outgoing)
                        await _end(process, pipes)
                    group.cancel_scope.cancel()
        finally:
            if not _TETHERED or process.get_returncode() is None:
                _signal_group(process, signal.SIGKILL)
            process.close()
            for stream in (incoming, read, write, outgoing):
                stream.close()

    async def _watch(
        self, process: asyncio.SubprocessTransport, pipes: _Pipes, incoming: MemoryObjectSendStream[Any]
    ) -> None:
        """Find out why the server ended, then have the client know that it did."""
        await pipes.broken.wait()
        with anyio.move_on_after(_SETTLE):
            await pipes.exited.wait()
            await pipes.silent.wait()
        self.reason = pipes.problem or _how_it_ended(process.get_returncode(), bytes(pipes.words))
        self.lost.set()
        incoming.close()


class _Pipes(asyncio.SubprocessProtocol):
    """Hands on what the server says, line by line, and notes its ends."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.broken = anyio.Event()
        """It ended, or closed its stdin or stdout."""
        self.exited = anyio.Event()
        self.silent = anyio.Event()
        """Its output was read to the end."""
        self.problem = ""
        self.words = bytearray()
        self._take = take
        self._line: list[bytes] = []
        self._size = 0
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.words += data
            del self.words[:-LAST_WORDS]
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line.append(line)
            self._take(b"".join(self._line))
            self._line, self._size = [], 0
        self._line.append(rest)
        self._size += len(rest)
        if self._size > MESSAGE_LIMIT:
            self.problem = f"it sent a message of more than {MESSAGE_LIMIT // 1024 // 1024} MiB"
            self._line, self._size = [], 0
            self.broken.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd != 2:
            self.broken.set()
        self._open.discard(fd)
        if not self._open:
            self.silent.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.broken.set()


class _Inbox:
    """Makes messages of lines. A server that prints other things on its stdout, too, is forgiven."""

    def __init__(self) -> None:
        self.stream: MemoryObjectSendStream[Any] | None = None
        """Where they go; nothing was asked before there is one."""

    def take(self, line: bytes) -> None:
        """One line without its end."""
        from mcp.shared.message import SessionMessage

        message = _message(line)
        if message is not None and self.stream is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.stream.send_nowait(SessionMessage(message))


def _message(line: bytes) -> JSONRPCMessage | None:
    from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        value = scrub_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError:
        # Whoever waits for this answer would wait in vain.
        answer = "method" not in value and value.get("id")
        if isinstance(answer, int | str) and not isinstance(answer, bool):
            return JSONRPCError(jsonrpc="2.0", id=answer,
                                error=ErrorData(code=_UNREADABLE, message="its answer is no JSON-RPC response"))
        return None


async def _write(process: asyncio.SubprocessTransport, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for item in outgoing:
        _write_one(process, item)


def _write_rest(process: asyncio.SubprocessTransport, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write what is queued, that a call was cancelled perhaps, and close the server's stdin after it."""
    with suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
        while True:
            _write_one(process, outgoing.receive_nowait())
    stdin: Any = process.get_pipe_transport(0)
    stdin.close()


def _write_one(process: asyncio.SubprocessTransport, item: SessionMessage) -> None:
    stdin: Any = process.get_pipe_transport(0)
    if not stdin.is_closing():
        stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


# ---------------------------------------------------------------- starting


def _command(config: StdioServer, cwd: Path) -> list[str]:
    """The server's command, run so that it ends with this process, even when that is killed."""
    import shutil

    program = config.command
    if "/" in program:
        program = str(cwd / program)
    found = shutil.which(program, path=_environment(config).get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(f"there is no program {shortened(config.command)!r} that can be run")
    words = [found, *config.args]
    if _TETHERED:
        return [sys.executable, "-I", "-S", str(Path(__file__).with_name("tether.py")), str(os.getpid()), *words]
    return words


def _environment(config: StdioServer) -> Mapping[str, str]:
    """Of the agent's own environment what the SDK holds to be harmless, so that no key gets to a server."""
    from mcp.client.stdio import get_default_environment

    return {**get_default_environment(), **dict(config.env)}


# ---------------------------------------------------------------- ending


async def _end(process: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
    """Close the server's stdin, and end who does not go: within `QUIET_END` and `FORCED_END`."""
    if await _gone(process, pipes, QUIET_END):
        return
    _signal_group(process, signal.SIGTERM)
    if await _gone(process, pipes, FORCED_END):
        return
    _signal_group(process, signal.SIGKILL)
    await _gone(process, pipes, _SETTLE)


async def _gone(process: asyncio.SubprocessTransport, pipes: _Pipes, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await pipes.exited.wait()
    return process.get_returncode() is not None


def _signal_group(process: asyncio.SubprocessTransport, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left, or zombies only (macOS)
        os.killpg(process.get_pid(), number)


def _how_it_ended(status: int | None, words: bytes) -> str:
    if status is None:
        how = "it closed its input or output"
    elif status < 0 or 128 < status <= 128 + signal.NSIG:  # the tether's way, and a shell's, to say the same
        how = f"it was ended by {_signal_name(-status if status < 0 else status - 128)}"
    else:
        how = "it ended" if status == 0 else f"it ended with exit status {status}"
    lines = words.decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {shortened(lines[-1])}" if lines else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""A tiny agent over the real transport, run as a process by the tests beside it.

Methods: `echo` returns its text; `stream` sends notifications and counts them; `hang` waits until it is
cancelled; `ask` asks the client and tells what came of it; `work` yields to the loop so many times; `scream`
writes to stdout in every way a library or child process might; `sleepless` never ends.

usage: echo_agent.py [GRACE_SECONDS]
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.rpc.connection import GRACE, Connection, Ending
from acp_agent.rpc.dispatch import Dispatcher, Handler, RequestContext
from acp_agent.rpc.envelope import encode_notification
from acp_agent.rpc.peer import PeerGone
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.signals import stop_on_signals
from acp_agent.rpc.stdio import Stdio, claim_stdio
from acp_agent.rpc.writer import Writer


class Text(Struct):
    text: str


class Count(Struct):
    count: int
    size: int = 0


class Done(Struct, omit_defaults=True):
    outcome: str | UnsetType = UNSET
    count: int | UnsetType = UNSET
    peak_queued: int | UnsetType = UNSET
    grown_kib: int | UnsetType = UNSET


class Update(Struct):
    number: int
    text: str


def scream() -> None:
    """Write to stdout in every way there is."""
    print("print", flush=True)  # noqa: T201 - a careless library is what is tested
    for stream in (sys.stdout, sys.__stdout__):
        assert stream is not None
        stream.write("write\n")
        stream.flush()
    os.write(1, b"descriptor 1\n")
    subprocess.run(["/bin/sh", "-c", "echo child; cat; echo no input for a child"], check=True)


class Echo:
    """The handlers."""

    def __init__(self) -> None:
        self.connection: Connection
        self.writer: Writer
        self.stopped = asyncio.Event()
        self.sleepless_calls = 0

    def handlers(self) -> dict[str, Handler]:
        return {
            "initialize": self.initialize, "echo": self.echo, "stream": self.stream, "hang": self.hang,
            "ask": self.ask, "work": self.work, "scream": self.scream, "sleepless": self.sleepless,
        }

    async def initialize(self, params: Raw, context: RequestContext) -> Done:
        return Done("ready")

    async def echo(self, params: Raw, context: RequestContext) -> Text:
        return msgspec.json.decode(params, type=Text)

    async def stream(self, params: Raw, context: RequestContext) -> Done:
        wanted = msgspec.json.decode(params, type=Count)
        text = "x" * wanted.size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = 0
        for number in range(wanted.count):
            self.connection.notify(encode_notification("update", Update(number, text)))
            peak = max(peak, self.writer.queued)
            await self.connection.drain()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return Done("sent", wanted.count, peak, grown)

    async def hang(self, params: Raw, context: RequestContext) -> Done:
        self.connection.notify(encode_notification("hanging", Done()))
        await self.stopped.wait()
        return Done("cancelled")

    async def ask(self, params: Raw, context: RequestContext) -> Done:
        try:
            answer = await self.connection.peer.call("question", Done(), Text)
        except PeerGone:
            return Done("refused")
        return Done(answer.text)

    async def work(self, params: Raw, context: RequestContext) -> Done:
        wanted = msgspec.json.decode(params, type=Count)
        for _ in range(wanted.count):
            if self.stopped.is_set():
                return Done("cancelled")
            await asyncio.sleep(0)
        return Done("finished")

    async def scream(self, params: Raw, context: RequestContext) -> Done:
        scream()
        return Done("screamed")

    async def sleepless(self, params: Raw, context: RequestContext) -> Done:
        """Refuses to end, whatever happens."""
        self.sleepless_calls += 1
        self.connection.notify(encode_notification("hanging", Done()))
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    def cancel(self, params: Raw) -> None:
        self.stopped.set()

    async def shut_down(self) -> None:
        self.stopped.set()
        scream()
        if self.sleepless_calls:
            self.connection.notify(encode_notification("shutting down", Done()))


async def serve(stdio: Stdio, grace: float) -> Ending:
    echo = Echo()
    echo.writer = Writer(stdio.output)
    echo.connection = Connection(
        Reader(stdio.input), echo.writer, Dispatcher(echo.handlers()), {"cancel": echo.cancel},
        on_shutdown=echo.shut_down, grace=grace)
    async with echo.connection:
        with stop_on_signals(echo.connection):
            ending = await echo.connection.run()
    return ending


def main(arguments: list[str]) -> Any:
    stdio = claim_stdio()
    scream()
    ending = asyncio.run(serve(stdio, float(arguments[0]) if arguments else GRACE))
    sys.stderr.write(f"[{ending.value}]\n")
    scream()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Routing, order, and the end of a connection, over real pipes in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from acp_agent.errors import InvalidParams
from acp_agent.rpc.connection import Connection, Ending
from acp_agent.rpc.dispatch import Dispatcher, Handler, RequestContext
from acp_agent.rpc.envelope import encode_notification
from acp_agent.rpc.peer import PeerGone
from acp_agent.rpc.reader import Reader
from acp_agent.rpc.writer import Writer


class Empty(Struct):
    pass


class Text(Struct):
    text: str


class Agent:
    """Handlers that write down what happens to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stopped = asyncio.Event()
        self.connection: Connection
        self.fail_initialize = False

    def handlers(self) -> dict[str, Handler]:
        return {"initialize": self.initialize, "echo": self.echo, "hang": self.hang, "ask": self.ask,
                "hook": self.hook, "slow": self.slow}

    async def initialize(self, params: Raw, context: RequestContext) -> Empty:
        for _ in range(5):
            await asyncio.sleep(0)
        if self.fail_initialize:
            self.fail_initialize = False
            raise InvalidParams("no such version")
        self.log.append("initialize")
        return Empty()

    async def echo(self, params: Raw, context: RequestContext) -> Text:
        self.log.append(f"echo {context.request_id.decode()}")
        context.after_reply(lambda: self.connection.notify(encode_notification("after", Empty())))
        return msgspec.json.decode(params, type=Text)

    async def hang(self, params: Raw, context: RequestContext) -> Text:
        self.log.append(f"hang {context.request_id.decode()}")
        await self.stopped.wait()
        return Text("stopped")

    async def hook(self, params: Raw, context: RequestContext) -> Text:
        self.log.append("hook")
        context.on_cancel(self.stopped.set)
        await self.stopped.wait()
        return Text("stopped by the hook")

    async def ask(self, params: Raw, context: RequestContext) -> Text:
        try:
            return await self.connection.peer.call("question", Empty(), Text)
        except PeerGone:
            return Text("refused")

    async def slow(self, params: Raw, context: RequestContext) -> Text:
        for _ in range(20_000):
            if self.stopped.is_set():
                return Text("stopped")
            await asyncio.sleep(0)
        return Text("finished")

    def note(self, params: Raw) -> None:
        self.log.append(f"note {bytes(params).decode()}")

    def strict_note(self, params: Raw) -> None:
        self.log.append(f"note {msgspec.json.decode(params, type=Text).text}")

    def broken_note(self, params: Raw) -> None:
        raise RuntimeError("a broken notification handler")

    async def shut_down(self) -> None:
        self.log.append("shutdown")
        self.stopped.set()


class Client:
    """The other ends of the pipes."""

    def __init__(self, agent: Agent, connection: Connection, running: asyncio.Task[Ending],
                 to_agent: int, from_agent: int) -> None:
        self.agent = agent
        self.connection = connection
        self.running = running
        self.to_agent = to_agent
        self.from_agent = from_agent
        os.set_blocking(from_agent, False)
        self.frames: list[dict[str, Any]] = []
        self._rest = b""

    def send(self, *frames: str | bytes | dict[str, Any]) -> None:
        lines = []
        for frame in frames:
            raw = msgspec.json.encode(frame) if isinstance(frame, dict) else frame
            lines.append(raw if isinstance(raw, bytes) else raw.encode())
        os.write(self.to_agent, b"".join(line + b"\n" for line in lines))

    def request(self, number: Any, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def notification(self, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": method, "params": params}

    async def until(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        while not done(self.frames):
            with contextlib.suppress(BlockingIOError):
                *lines, self._rest = (self._rest + os.read(self.from_agent, 65_536)).split(b"\n")
                self.frames.extend(msgspec.json.decode(line) for line in lines)
            await asyncio.sleep(0)
        return self.frames

    async def answered(self, number: Any) -> dict[str, Any]:
        def answers(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [frame for frame in frames if frame.get("id", self) == number and "method" not in frame]

        frames = await self.until(lambda frames: bool(answers(frames)))
        return answers(frames)[-1]

    async def initialize(self) -> None:
        self.send(self.request("init", "initialize"))
        await self.answered("init")
        self.frames.clear()

    async def end(self) -> Ending:
        """Close the input; wait for the agent to be done."""
        os.close(self.to_agent)
        self.to_agent = -1
        return await self.running

    async def until_quiet(self) -> None:
        """Give the agent more turns of the loop than it needs for what it was sent; read nothing."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def logged(self, entry: str) -> None:
        await self.until(lambda _: entry in self.agent.log)


@contextlib.asynccontextmanager
async def connected(*, grace: float = 5.0, initialize: bool = True) -> AsyncIterator[Client]:
    agent_in, to_agent = os.pipe()
    from_agent, agent_out = os.pipe()
    agent = Agent()
    connection = Connection(
        Reader(agent_in), Writer(agent_out), Dispatcher(agent.handlers()),
        {"note": agent.note, "strict": agent.strict_note, "broken": agent.broken_note},
        on_shutdown=agent.shut_down, grace=grace)
    agent.connection = connection
    async with connection:
        client = Client(agent, connection, asyncio.create_task(connection.run()), to_agent, from_agent)
        if initialize:
            await client.initialize()
        try:
            yield client
        finally:
            client.running.cancel()
            for fd in (client.to_agent, client.from_agent):
                if fd >= 0:
                    os.close(fd)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


# ---------------------------------------------------------------- before initialize


def test_nothing_but_initialize_is_served_before_it_succeeded() -> None:
    async def test() -> None:
        async with connected(initialize=False) as client:
            client.agent.fail_initialize = True
            client.send(
                client.request(1, "echo", text="x"), client.request(2, "foo/bar"), client.notification("note"),
                client.request(3, "initialize"), client.request(4, "echo", text="x"),
                client.request(5, "initialize"), client.request(6, "echo", text="x"))
            await client.answered(6)
            answers = [frame for frame in client.frames if "id" in frame]
            outcomes = {answer["id"]: answer.get("error", {}).get("code") for answer in answers}
            assert outcomes == {1: -32600, 2: -32600, 3: -32602, 4: -32600, 5: None, 6: None}
            assert client.agent.log == ["initialize", "echo 6"]

    run(test)


def test_a_second_initialize_is_served_again() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "initialize"), client.request(2, "echo", text="x"))
            assert (await client.answered(2))["result"] == {"text": "x"}
            assert client.agent.log == ["initialize", "initialize", "echo 2"]

    run(test)


# ---------------------------------------------------------------- answers


def test_every_kind_of_line_gets_its_answer_and_the_connection_lives() -> None:
    lines = [
        b"", b"{bad", b"\xff", b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"x"}}]', b"42",
        b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":9,"result":{}}', b'{"id":"x","error":5}',
        b'{"jsonrpc":"2.0","method":"unknown"}', b'{"jsonrpc":"2.0","method":"$/foo"}',
        b'{"jsonrpc":"2.0","method":"strict","params":{"text":5}}',
        b'{"jsonrpc":"2.0","method":"note","params":[]}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","id":"u","method":"_x/y"}', b'{"jsonrpc":"1.0","id":"v","method":"echo"}',
        b'{"jsonrpc":"2.0","id":"p","method":"echo","params":[]}',
    ]

    async def test() -> None:
        async with connected() as client:
            client.send(*lines)
            client.send(client.request("last", "echo", text="x"))
            await client.answered("last")
            answers = [(frame["id"], frame["error"]["code"]) for frame in client.frames if "error" in frame]
            assert sorted(answers, key=str) == sorted([
                (None, -32700), (None, -32700), (None, -32600), (None, -32600), (None, -32600), (None, -32600),
                ("v", -32600), ("u", -32601), ("p", -32602)], key=str)
            assert client.agent.log == ["initialize", "echo \"last\""]

    run(test)


def test_a_broken_notification_handler_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.notification("broken"), client.request(1, "echo", text="x"))
            await client.answered(1)

    run(test)
    assert "a broken notification handler" in caplog.text


def test_each_of_many_pipelined_requests_is_answered_exactly_once() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(*(client.request(number, "echo", text=str(number)) for number in range(500)))
            await client.until(lambda frames: sum("id" in frame for frame in frames) >= 500)
            answers = [frame for frame in client.frames if "id" in frame]
            assert [frame["id"] for frame in answers] == list(range(500))
            assert all(frame["result"]["text"] == str(frame["id"]) for frame in answers)

    run(test)


def test_what_is_to_follow_an_answer_follows_it() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "echo", text="x"))
            await client.until(lambda frames: len(frames) == 2)
            assert [frame.get("method") for frame in client.frames] == [None, "after"]

    run(test)


# ---------------------------------------------------------------- order


def test_a_notification_finds_every_request_before_it_begun_and_none_after_it() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(
                client.request(1, "hang"), client.request(2, "hang"), client.notification("note"),
                client.request(3, "hang"), client.notification("note"))
            await client.until(lambda _: client.agent.log.count("note {}") == 2)
            assert client.agent.log == ["initialize", "hang 1", "hang 2", "note {}", "hang 3", "note {}"]

    run(test)


def test_reading_goes_on_while_handlers_wait() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "hang"), client.request(2, "echo", text="x"))
            assert (await client.answered(2))["result"] == {"text": "x"}
            client.send(client.request(3, "echo", text="y"))
            assert (await client.answered(3))["result"] == {"text": "y"}

    run(test)


def test_a_handler_asks_the_client_while_it_is_served() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(0, "ask"))
            await client.until(lambda frames: any(frame.get("method") == "question" for frame in frames))
            client.send({"jsonrpc": "2.0", "id": 0, "result": {"text": "yes"}})
            assert (await client.answered(0))["result"] == {"text": "yes"}

    run(test)


# ---------------------------------------------------------------- $/cancel_request


@pytest.mark.parametrize("number", [5, "5", None])
def test_a_cancelled_request_is_answered_once_with_32800(number: Any) -> None:
    async def test() -> None:
        async with connected() as client:
            cancel = client.notification("$/cancel_request", requestId=number)
            client.send(client.request(number, "hang"), cancel, cancel)
            assert (await client.answered(number))["error"]["code"] == -32800
            client.send(cancel, client.request("after", "echo", text="x"))
            await client.answered("after")
            assert sum(frame.get("id", "none") == number for frame in client.frames) == 1

    run(test)


def test_cancelling_5_leaves_the_request_with_the_id_5_in_quotes_alone() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(5, "hang"), client.request("5", "hang"),
                        client.notification("$/cancel_request", requestId=5),
                        client.notification("$/cancel_request", requestId=6))
            await client.answered(5)
            client.send(client.request("after", "echo", text="x"))
            await client.answered("after")
            assert all(frame.get("id") != "5" for frame in client.frames)

    run(test)


def test_a_handlers_own_hook_decides_what_cancelling_means() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "hook"), client.notification("$/cancel_request", requestId=1))
            assert (await client.answered(1))["result"] == {"text": "stopped by the hook"}

    run(test)


def test_two_requests_with_one_id_are_both_answered() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "hang"), client.request(1, "echo", text="x"))
            await client.answered(1)
            client.agent.stopped.set()
            await client.until(lambda frames: sum(frame.get("id") == 1 for frame in frames) == 2)

    run(test)


def test_of_two_requests_with_one_id_the_end_of_one_leaves_the_other_to_be_cancelled() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "echo", text="x"), client.request(1, "hang"))
            await client.answered(1)
            client.send(client.notification("$/cancel_request", requestId=1))
            await client.until(lambda frames: sum(frame.get("id") == 1 for frame in frames) == 2)
            assert (await client.answered(1))["error"]["code"] == -32800

    run(test)


# ---------------------------------------------------------------- the end


def test_end_of_input_when_idle_ends_the_connection() -> None:
    async def test() -> None:
        async with connected() as client:
            assert await client.end() is Ending.END_OF_INPUT
            assert client.agent.log[-1] == "shutdown"

    run(test)


def test_an_unterminated_last_line_is_still_served() -> None:
    async def test() -> None:
        async with connected() as client:
            os.write(client.to_agent, b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"x"}}')
            await client.end()
            assert (await client.answered(1))["result"] == {"text": "x"}

    run(test)


def test_at_end_of_input_what_the_client_can_not_answer_counts_as_refused_at_once() -> None:
    async def test() -> None:
        async with connected(grace=1_000) as client:
            client.send(client.request(1, "ask"))
            await client.until(lambda frames: any(frame.get("method") == "question" for frame in frames))
            await client.end()
            assert (await client.answered(1))["result"] == {"text": "refused"}

    run(test)


def test_requests_read_before_the_end_of_input_are_finished() -> None:
    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "slow"))
            await client.end()
            assert (await client.answered(1))["result"] == {"text": "finished"}
            assert client.agent.log[-1] == "shutdown"

    run(test)


def test_after_the_grace_of_a_pipe_the_work_is_shut_down_and_then_answered() -> None:
    async def test() -> None:
        async with connected(grace=0.05) as client:
            client.send(client.request(1, "hang"))
            await client.end()
            assert (await client.answered(1))["result"] == {"text": "stopped"}

    run(test)


@pytest.mark.parametrize(("kind", "outcome"), [("pipe", "stopped"), ("file", "finished")])
def test_after_the_grace_a_pipe_is_cut_and_a_file_is_worked_to_its_end(
    kind: str, outcome: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_bytes(
        b'{"jsonrpc":"2.0","id":0,"method":"initialize"}\n{"jsonrpc":"2.0","id":1,"method":"slow"}')

    async def test() -> None:
        if kind == "file":
            source = os.open(script, os.O_RDONLY)
        else:
            source, target = os.pipe()
            os.write(target, script.read_bytes())
            os.close(target)
        agent = Agent()
        out = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
        async with Connection(Reader(source), Writer(out), Dispatcher(agent.handlers()), {},
                              on_shutdown=agent.shut_down, grace=0.01) as connection:
            await connection.run()
        answers = [msgspec.json.decode(line) for line in (tmp_path / "out").read_bytes().splitlines()]
        assert [answer["id"] for answer in answers] == [0, 1]
        # A busy machine may run out of the second wait too.
        assert answers[1].get("result") == {"text": outcome} or (kind == "pipe" and "error" in answers[1])

    run(test)


def test_a_handler_that_outlives_the_shutdown_is_answered_with_32800() -> None:
    async def test() -> None:
        async with connected(grace=0.05) as client:
            client.agent.stopped = asyncio.Event()

            async def useless() -> None:
                client.agent.log.append("shutdown")

            client.connection._on_shutdown = useless
            client.send(client.request(1, "hang"))
            await client.logged("hang 1")
            await client.end()
            assert (await client.answered(1))["error"]["code"] == -32800

    run(test)


def test_a_stop_skips_the_grace_reads_nothing_more_and_answers_what_was_read() -> None:
    async def test() -> None:
        async with connected(grace=1_000) as client:
            client.send(client.request(1, "hang"))
            await client.logged("hang 1")
            client.connection.request_stop("SIGTERM")
            client.send(client.request(2, "echo", text="too late"))
            assert await client.running is Ending.STOPPED
            assert client.connection.stop_reason == "SIGTERM"
            assert (await client.answered(1))["result"] == {"text": "stopped"}
            assert client.agent.log == ["initialize", "hang 1", "shutdown"]

    run(test)


def test_a_request_read_together_with_a_stop_is_answered_but_not_served() -> None:
    async def test() -> None:
        async with connected() as client:
            client.connection.request_stop("SIGTERM")
            client.connection._feed(msgspec.json.encode(client.request(1, "echo", text="too late")) + b"\n")
            await client.running
            assert (await client.answered(1))["error"]["code"] == -32800
            assert client.agent.log == ["initialize", "shutdown"]

    run(test)


def test_a_stop_during_the_grace_ends_it() -> None:
    async def test() -> None:
        async with connected(grace=1_000) as client:
            client.send(client.request(1, "hang"))
            await client.logged("hang 1")
            ending = asyncio.create_task(client.end())
            await asyncio.sleep(0)
            client.connection.request_stop("SIGTERM")
            assert await ending is Ending.STOPPED

    run(test)


def test_the_first_stop_leaves_a_running_shutdown_alone_and_the_second_ends_it() -> None:
    async def test() -> None:
        async with connected() as client:
            begun, cancelled = asyncio.Event(), asyncio.Event()

            async def endless() -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            client.connection._on_shutdown = endless
            ending = asyncio.create_task(client.end())
            await begun.wait()
            client.connection.request_stop("SIGTERM")
            for _ in range(5):
                await asyncio.sleep(0)
            assert not cancelled.is_set()
            client.connection.request_stop("SIGTERM")
            assert await ending is Ending.STOPPED
            assert cancelled.is_set()

    run(test)


def test_a_shutdown_that_fails_is_logged_and_the_rest_still_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with connected(grace=0.05) as client:
            async def fail() -> None:
                raise RuntimeError("the disk is full")

            client.connection._on_shutdown = fail
            client.send(client.request(1, "hang"))
            await client.end()
            assert (await client.answered(1))["error"]["code"] == -32800

    with caplog.at_level(logging.ERROR):
        run(test)
    assert "the disk is full" in caplog.text


def test_a_client_that_closes_our_output_ends_the_connection() -> None:
    async def test() -> None:
        async with connected(grace=0.05) as client:
            client.send(client.request(1, "hang"))
            await client.logged("hang 1")
            os.close(client.from_agent)
            client.from_agent = -1
            assert await client.running is Ending.CLIENT_GONE
            assert client.agent.log[-1] == "shutdown"

    run(test)


def test_a_client_that_does_not_read_its_last_answers_is_not_waited_for_for_ever() -> None:
    async def test() -> None:
        async with connected(grace=0.05) as client:
            client.send(client.request(1, "echo", text="x" * 30_000), *(
                client.request(number, "echo", text="x" * 2_000) for number in range(2, 12)))
            client.connection.notify(b'"' + b"x" * 300_000 + b'"\n')
            os.close(client.to_agent)
            client.to_agent = -1
            assert await client.running is Ending.END_OF_INPUT

    run(test)


def test_a_client_that_asks_without_reading_is_made_to_wait_and_then_served(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    from acp_agent.rpc import connection as module

    monkeypatch.setattr(module, "_FLOOD", 100_000)

    async def test() -> None:
        async with connected() as client:
            client.send(client.request(1, "echo", text="x" * 40_000))
            await client.logged("echo 1")
            for number in range(2, 6):
                client.send(client.request(number, "echo", text="x" * 50_000))
                await client.until_quiet()
            client.send(client.request("held", "echo", text="x"))
            await client.until_quiet()
            assert 'echo "held"' not in client.agent.log
            assert (await client.answered("held"))["result"] == {"text": "x"}

    run(test)

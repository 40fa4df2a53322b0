"""Asking the client."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType

from acp_agent.rpc.envelope import Malformed, Response, classify
from acp_agent.rpc.peer import Peer, PeerError, PeerGone, PeerUnclear


class Question(Struct):
    text: str


class Answer(Struct):
    text: str


class Nothing(Struct):
    meta: object | UnsetType = UNSET


class Wire:
    """What a peer sent, and a way to answer it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.peer = Peer(self.lines.append)

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.lines]

    def answer(self, line: str) -> None:
        message = classify(line.encode())
        response = message.spoilt if isinstance(message, Malformed) else message
        assert isinstance(response, Response)
        self.peer.resolve(response)

    def ask(self, result_type: type[Any] = Answer) -> asyncio.Task[Any]:
        return asyncio.create_task(self.peer.call("ask", Question("?"), result_type))


def run(test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Wire())

    asyncio.run(main())


async def begin(*tasks: asyncio.Task[Any]) -> None:
    """Let the tasks run up to their first wait."""
    for _ in tasks:
        await asyncio.sleep(0)


def test_requests_are_numbered_from_zero_and_answered_in_any_order() -> None:
    async def test(wire: Wire) -> None:
        tasks = [wire.ask() for _ in range(3)]
        await begin(*tasks)
        assert [frame["id"] for frame in wire.frames] == [0, 1, 2]
        assert wire.frames[0] == {"jsonrpc": "2.0", "id": 0, "method": "ask", "params": {"text": "?"}}
        for number in (2, 0, 1):
            wire.answer(f'{{"jsonrpc":"2.0","id":{number},"result":{{"text":"{number}","more":1}}}}')
        assert [(await task).text for task in tasks] == ["0", "1", "2"]

    run(test)


def test_an_error_is_raised_with_the_clients_code_and_message() -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer('{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}')
        with pytest.raises(PeerError) as caught:
            await task
        assert (caught.value.peer_code, caught.value.message) == (-32000, "no")
        assert caught.value.code == -32603

    run(test)


@pytest.mark.parametrize("rest", [
    '"result":{"text":5}', '"result":[]', '"result":"x"', '"result":{}', '"result":null',
    '"error":{"code":"x"}', '"error":5', '"error":null', '"result":{"text":"x"},"error":{"code":1,"message":""}',
])
def test_an_answer_that_makes_no_sense_is_an_error(rest: str) -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer(f'{{"jsonrpc":"2.0","id":0,{rest}}}')
        with pytest.raises(PeerError):
            await task

    run(test)


@pytest.mark.parametrize("result", ["null", "{}"])
def test_null_counts_as_a_result_without_members(result: str) -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask(Nothing)
        await begin(task)
        wire.answer(f'{{"jsonrpc":"2.0","id":0,"result":{result}}}')
        assert await task == Nothing()

    run(test)


def test_a_cancelled_wait_is_told_to_the_client_and_its_late_answer_dropped() -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert wire.frames[1:] == [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 0}}]
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"late"}}')
        later = wire.ask()
        await begin(later)
        assert wire.frames[-1]["id"] == 1
        wire.answer('{"jsonrpc":"2.0","id":1,"result":{"text":"fresh"}}')
        assert (await later).text == "fresh"

    run(test)


@pytest.mark.parametrize("answered_first", [False, True])
def test_what_a_cancelled_request_still_came_to_is_passed_on(answered_first: bool) -> None:
    async def test(wire: Wire) -> None:
        late: list[Answer] = []
        task = asyncio.create_task(wire.peer.call("ask", Question("?"), Answer, late.append))
        await begin(task)
        answer = '{"jsonrpc":"2.0","id":0,"result":{"text":"made"}}'
        if answered_first:
            wire.answer(answer)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if not answered_first:
            assert [frame["method"] for frame in wire.frames] == ["ask", "$/cancel_request"]
            wire.answer(answer)
            await asyncio.sleep(0)
        wire.answer(answer)
        await asyncio.sleep(0)
        assert late == [Answer("made")]

    run(test)


@pytest.mark.parametrize("answer", ['"error":{"code":-32800,"message":"cancelled"}', '"result":{"text":5}', None])
def test_a_cancelled_request_that_came_to_nothing_is_over(answer: str | None) -> None:
    async def test(wire: Wire) -> None:
        late: list[Answer] = []
        task = asyncio.create_task(wire.peer.call("ask", Question("?"), Answer, late.append))
        await begin(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if answer is None:
            wire.peer.fail_all()
        else:
            wire.answer(f'{{"jsonrpc":"2.0","id":0,{answer}}}')
        await asyncio.sleep(0)
        assert late == []

    run(test)


def test_what_is_told_needs_no_answer_and_no_client_that_could_give_one() -> None:
    async def test(wire: Wire) -> None:
        wire.peer.tell("done", Question("a"))
        wire.answer('{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"no"}}')
        wire.peer.fail_all()
        wire.peer.tell("done", Question("b"))
        assert [(frame["id"], frame["params"]["text"]) for frame in wire.frames] == [(0, "a"), (1, "b")]

    run(test)


def test_an_answer_that_makes_no_sense_is_told_from_a_refusal() -> None:
    async def test(wire: Wire) -> None:
        for number, (rest, kind) in enumerate([('"result":5', PeerUnclear), ('"error":5', PeerUnclear),
                                               ('"error":{"code":-32603,"message":"no"}', PeerError)]):
            task = wire.ask()
            await begin(task)
            wire.answer(f'{{"jsonrpc":"2.0","id":{number},{rest}}}')
            with pytest.raises(PeerError) as caught:
                await task
            assert type(caught.value) is kind

    run(test)


def test_a_wait_cancelled_after_the_answer_came_sends_nothing() -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"x"}}')
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(wire.lines) == 1

    run(test)


@pytest.mark.parametrize("line", [
    '{"jsonrpc":"2.0","id":9,"result":{}}', '{"jsonrpc":"2.0","id":"9","result":{}}', '{"jsonrpc":"2.0","id":9.0}',
    '{"jsonrpc":"2.0","id":9,"error":{}}', '{"result":{}}',
])
def test_an_answer_to_nothing_is_dropped(line: str) -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer(line)
        assert not task.done()
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"x"}}')
        assert (await task).text == "x"

    run(test)


@pytest.mark.parametrize("rest", [
    '"id":0', '"id":"0"', '"id":"0","result":{"text":"x"}', '"id":0.0,"result":{"text":"x"}',
    '"id":"0","error":{"code":1,"message":"m"}', '"id":0,"result":{},"error":{}',
])
def test_an_answer_of_no_use_ends_the_wait_and_a_better_one_comes_too_late(rest: str) -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer(f'{{"jsonrpc":"2.0",{rest}}}')
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"x"}}')
        with pytest.raises(PeerUnclear, match="the client's answer to ask has "):
            await task

    run(test)


def test_a_second_answer_is_dropped() -> None:
    async def test(wire: Wire) -> None:
        task = wire.ask()
        await begin(task)
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"first"}}')
        wire.answer('{"jsonrpc":"2.0","id":0,"result":{"text":"second"}}')
        assert (await task).text == "first"

    run(test)


def test_when_the_client_is_gone_every_call_fails_and_nothing_is_sent() -> None:
    async def test(wire: Wire) -> None:
        waiting = wire.ask()
        await begin(waiting)
        wire.peer.fail_all()
        with pytest.raises(PeerGone):
            await waiting
        with pytest.raises(PeerGone):
            await wire.ask()
        assert len(wire.lines) == 1

    run(test)


def test_a_wait_cancelled_while_the_client_goes_leaves_no_unheard_error() -> None:
    async def test(wire: Wire) -> None:
        heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        task = wire.ask()
        await begin(task)
        wire.peer.fail_all()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        assert heard == []

    run(test)

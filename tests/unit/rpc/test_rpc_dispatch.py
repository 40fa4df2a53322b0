"""From a request to its answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from acp_agent.errors import AgentError, InvalidParams, SessionNotFound
from acp_agent.rpc.dispatch import Dispatcher, Handler, RequestContext
from acp_agent.rpc.envelope import Request, classify


class Text(Struct):
    text: str


def request(method: str, params: str = "{}", request_id: str = "1") -> Request:
    message = classify(f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}","params":{params}}}'.encode())
    assert isinstance(message, Request)
    return message


async def echo(params: Raw, context: RequestContext) -> Text:
    return msgspec.json.decode(params, type=Text)


def handler_raising(error: BaseException) -> Handler:
    async def fail(params: Raw, context: RequestContext) -> Text:
        raise error

    return fail


def answer(handlers: Mapping[str, Handler], asked: Request) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        reply = await Dispatcher(handlers).answer(asked, RequestContext(asked))
        frame: dict[str, Any] = msgspec.json.decode(reply.frame)
        assert reply.ok == ("result" in frame)
        return frame

    return asyncio.run(main())


# Both ways a handler is reached must give the same answers.
both_ways = pytest.mark.parametrize("method", ["initialize", "session/other"])


@both_ways
def test_a_result_is_answered_with_the_id_of_its_request(method: str) -> None:
    asked = request(method, '{"text":"é","_meta":{"x":1}}', '"é"')
    assert answer({method: echo}, asked) == {"jsonrpc": "2.0", "id": "é", "result": {"text": "é"}}


@both_ways
@pytest.mark.parametrize("request_id", ["null", "0", "9007199254740991", '""'])
def test_a_request_with_any_id_is_answered(method: str, request_id: str) -> None:
    frame = answer({method: echo}, request(method, '{"text":"x"}', request_id))
    assert frame["id"] == msgspec.json.decode(request_id)


@both_ways
def test_an_agent_error_is_answered_with_its_code_message_and_facts(method: str) -> None:
    error = answer({method: handler_raising(SessionNotFound("s"))}, request(method))["error"]
    assert (error["code"], error["data"]) == (-32002, {"sessionId": "s"})


@both_ways
def test_an_agent_error_without_facts_has_no_data(method: str) -> None:
    error = answer({method: handler_raising(InvalidParams("cwd must be absolute"))}, request(method))["error"]
    assert error == {"code": -32602, "message": "cwd must be absolute"}


@both_ways
def test_params_that_do_not_fit_are_answered_with_the_path_of_the_field(method: str) -> None:
    error = answer({method: echo}, request(method, '{"text":5}'))["error"]
    assert error["code"] == -32602
    assert "$.text" in error["message"]


@both_ways
@pytest.mark.parametrize("params", ["[]", '["x"]', '"x"', "5"])
def test_params_that_are_no_object_are_invalid(method: str, params: str) -> None:
    assert answer({method: echo}, request(method, params))["error"]["code"] == -32602


@both_ways
@pytest.mark.parametrize("error", [RuntimeError("secret"), AssertionError("secret"), TypeError("secret"),
                                   KeyError("secret"), RecursionError("secret"), TimeoutError("secret")])
def test_an_unexpected_exception_tells_the_client_nothing_and_the_log_everything(
    method: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        frame = answer({method: handler_raising(error)}, request(method))
    assert frame["error"]["code"] == -32603
    assert "data" not in frame["error"]
    assert "secret" not in str(frame)
    assert "secret" in caplog.text
    assert "Traceback" in caplog.text


@both_ways
def test_a_result_that_is_no_json_is_an_internal_error(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async def strange(params: Raw, context: RequestContext) -> Struct:
        return object()  # type: ignore[return-value]  # a bug in a handler is what is tested

    assert answer({method: strange}, request(method))["error"]["code"] == -32603


@pytest.mark.parametrize("method", ["foo/bar", "_x/y", "initialize", ""])
def test_an_unknown_method_is_named_in_the_data(method: str) -> None:
    error = answer({}, request(method))["error"]
    assert (error["code"], error["data"]) == (-32601, method)


def test_an_error_code_of_an_agent_error_passes_even_if_it_is_the_one_of_the_librarys_crash_path() -> None:
    class LoginRequired(AgentError):
        code = -32000

    error = answer({"m": handler_raising(LoginRequired("log in first"))}, request("m"))["error"]
    assert error == {"code": -32000, "message": "log in first"}


class Crashing(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("a crash inside the library")


def test_the_crash_path_of_the_library_is_answered_as_an_internal_error(
    caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> dict[str, Any]:
        dispatcher = Dispatcher({"m": echo})
        dispatcher.preload()
        assert dispatcher._server is not None
        dispatcher._server._methods = Crashing()
        asked = request("m")
        frame: dict[str, Any] = msgspec.json.decode((await dispatcher.answer(asked, RequestContext(asked))).frame)
        return frame

    frame = asyncio.run(main())
    assert (frame["id"], frame["error"]["code"]) == (1, -32603)
    assert "crash" not in str(frame)
    assert "a crash inside the library" in caplog.text


def cancel_when_begun(method: str, handler: Handler) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        asked = request(method)
        begun = asyncio.Event()
        context = RequestContext(asked, begun.set)
        serving = asyncio.create_task(Dispatcher({method: handler}).answer(asked, context))
        await begun.wait()
        context.cancel()
        context.cancel()
        frame: dict[str, Any] = msgspec.json.decode((await serving).frame)
        if "error" in frame:
            assert serving.cancelling() == 0, "whoever serves the request would count as cancelled"
        return frame

    return asyncio.run(main())


@both_ways
def test_a_cancelled_handler_is_answered_with_32800(method: str) -> None:
    async def wait(params: Raw, context: RequestContext) -> Text:
        await asyncio.Event().wait()
        raise AssertionError

    assert cancel_when_begun(method, wait)["error"]["code"] == -32800


@both_ways
def test_a_cancelled_handler_that_returns_a_result_is_answered_with_it(method: str) -> None:
    async def wait(params: Raw, context: RequestContext) -> Text:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Text("partial")

    assert cancel_when_begun(method, wait)["result"] == {"text": "partial"}


@both_ways
def test_a_cancel_hook_is_called_instead_and_the_handler_decides(method: str) -> None:
    calls: list[int] = []

    async def wait(params: Raw, context: RequestContext) -> Text:
        stopped = asyncio.Event()

        def stop() -> None:
            calls.append(1)
            stopped.set()

        context.on_cancel(stop)
        await stopped.wait()
        return Text("cancelled")

    assert cancel_when_begun(method, wait)["result"] == {"text": "cancelled"}
    assert calls == [1]


def test_a_cancellation_from_outside_is_not_turned_into_an_answer() -> None:
    async def wait(params: Raw, context: RequestContext) -> Text:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        asked = request("m")
        begun = asyncio.Event()
        serving = asyncio.ensure_future(Dispatcher({"m": wait}).answer(asked, RequestContext(asked, begun.set)))
        await begun.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(main())


def test_handlers_begin_in_the_order_their_requests_were_handed_over() -> None:
    order: list[str] = []

    async def note(params: Raw, context: RequestContext) -> Text:
        order.append(context.request_id.decode())
        await asyncio.sleep(0)
        return Text("")

    async def main() -> None:
        dispatcher = Dispatcher({"m": note})
        asked = [request("m", request_id=str(number)) for number in range(50)]
        await asyncio.gather(*(dispatcher.answer(one, RequestContext(one)) for one in asked))

    asyncio.run(main())
    assert order == [str(number) for number in range(50)]


def test_whoever_waits_for_the_begin_resumes_after_the_first_suspension() -> None:
    admitted: list[str] = []

    async def admit(params: Raw, context: RequestContext) -> Text:
        admitted.append("admitted")
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        asked = request("m")
        begun = asyncio.Event()
        serving = asyncio.ensure_future(Dispatcher({"m": admit}).answer(asked, RequestContext(asked, begun.set)))
        await begun.wait()
        assert admitted == ["admitted"]
        serving.cancel()

    asyncio.run(main())


def test_initialize_is_served_before_jsonrpcserver_is_imported() -> None:
    script = """
import asyncio, sys
from acp_agent.rpc.connection import Connection
from acp_agent.rpc.dispatch import Dispatcher, RequestContext
from acp_agent.rpc.envelope import Raw, Request, Struct

class Nothing(Struct):
    pass

async def handler(params, context):
    return Nothing()

async def main():
    dispatcher = Dispatcher({"initialize": handler, "other": handler})
    for method in ("initialize", "other"):
        request = Request(b"1", b"1", method, Raw(b"{}"))
        reply = await dispatcher.answer(request, RequestContext(request))
        assert reply.ok
        sys.stderr.write(f"{'jsonrpcserver' in sys.modules}/{'jsonschema' in sys.modules} ")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "False/False True/True "

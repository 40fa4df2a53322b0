"""From a request to its answer: the handler table, the error mapping, and jsonrpcserver between them.

jsonrpcserver finds the method and calls it; this is the only module that knows of it. It is kept away from
everything it gets wrong for this protocol: it sees requests only (one at a time, already parsed), its schema
check is off (it would refuse `params: null` and unknown members), a handler takes its raw params as one
argument (else every unknown field would be an error), and no exception reaches it (it sends their text to
the client, and its own crash path answers -32000, which ACP clients read as "log in first").

Importing it costs about 70 ms, most of that jsonschema, which is more than everything else a start needs. So
`initialize` is served by the same guard without it, and it is loaded by `preload` once that answer is out,
or by the first request that needs it.

It runs a handler in an asyncio task of its own, outside every task group: a cancel shield does not hold
there. Handlers therefore own nothing. They decode, hand work to the session's task group, and wait.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping
from inspect import Signature
from typing import Any, ClassVar, TypeAlias

from msgspec import UNSET, Raw, Struct, ValidationError

from acp_agent.errors import AgentError, InvalidParams
from acp_agent.rpc.envelope import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    Request,
    encode_error,
    encode_result,
    is_object,
    to_json,
)

INITIALIZE = "initialize"
"""The method that is served without jsonrpcserver."""

_log = logging.getLogger(__name__)


class RequestContext:
    """One request while it is being served: what its handler may do besides returning a result."""

    __slots__ = ("_after", "_cancel", "_entered", "_task", "cancelled", "method", "request_id")

    def __init__(self, request: Request, entered: Callable[[], None] = lambda: None) -> None:
        """`entered` is called once, when the handler begins (see `mark_entered`)."""
        self.request_id = request.id
        self.method = request.method
        self.cancelled = False
        """Whether the client cancelled the request, or the connection is closing."""
        self._entered: Callable[[], None] | None = entered
        self._after: list[Callable[[], None]] = []
        self._cancel: Callable[[], None] | None = None
        self._task: asyncio.Task[Any] | None = None

    def on_cancel(self, hook: Callable[[], None]) -> None:
        """Call `hook` on `$/cancel_request` instead of cancelling the handler's task.

        The handler then still decides what the answer is; a `CancelledError` becomes -32800.
        """
        self._cancel = hook

    def after_reply(self, callback: Callable[[], None]) -> None:
        """Call `callback` right after the answer, result or error, was handed to the writer."""
        self._after.append(callback)

    def cancel(self) -> None:
        """The client does not want the answer any more. Without effect the second time."""
        if self.cancelled:
            return
        self.cancelled = True
        if self._cancel is not None:
            self._cancel()
        elif self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """The connection is closing: cancel the handler itself, whatever hook it has set."""
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()

    def begin(self) -> None:
        """The handler begins in the running task."""
        self._task = asyncio.current_task()
        self.mark_entered()

    def mark_entered(self) -> None:
        """Tell whoever waits for it that the handler has begun, or that there is none to begin.

        Whoever resumes on an asyncio callback does so after the running step, that is, once the handler
        has come to its first suspension or its end.
        """
        entered, self._entered = self._entered, None
        if entered is not None:
            entered()

    def replied(self) -> None:
        """The answer was handed to the writer: run what was to follow it."""
        for callback in self._after:
            try:
                callback()
            except Exception:
                _log.exception("what was to follow the answer to %s failed", self.method)


Handler: TypeAlias = Callable[[Raw, RequestContext], Awaitable[Struct]]
"""Serves one method: raw params (a JSON object) and context in, result struct out.

Up to its first await a handler runs in the order in which requests were read, so that is where it admits its
work. It raises an `AgentError` for an error of that code, message and facts. A `msgspec.ValidationError`
means that the params are wrong, so one that means anything else must not leave a handler. Any other
exception is an internal error: the client learns no more than that, and the log has the traceback.
"""


class Reply(Struct, frozen=True, gc=False):
    """The line that answers a request, and whether it is a result."""

    frame: bytes
    ok: bool


class _Failure(Struct, frozen=True):
    code: int
    message: str
    data: Any = UNSET


_BROKEN = _Failure(INTERNAL_ERROR, "internal error: the agent's log on stderr has the details")


class Dispatcher:
    """Answers requests from a table of handlers by method name."""

    def __init__(
        self, handlers: Mapping[str, Handler], late: Callable[[], Mapping[str, Handler]] | None = None
    ) -> None:
        """`late` gives the handlers that are costly to import; it is called once, by `preload`."""
        self._handlers = dict(handlers)
        self._late = late
        self._server: _Server | None = None

    def preload(self) -> None:
        """Load jsonrpcserver and the late handlers now rather than with the first request that needs them.

        Blocks while it imports. What goes wrong is logged, and tried again by the next request.
        """
        if self._server is not None:
            return
        try:
            if self._late is not None:
                self._handlers.update(self._late())
            self._server = _Server(self._handlers)
        except Exception:
            _log.exception("the agent cannot serve sessions")

    async def answer(self, request: Request, context: RequestContext) -> Reply:
        """Serve one request. Raises nothing but `CancelledError`, and that only when cancelled from outside."""
        outcome: bytes | _Failure
        first = self._handlers.get(INITIALIZE) if request.method == INITIALIZE else None
        if first is not None:
            outcome = await _guarded(first, request.params, context)
        else:
            self.preload()
            outcome = _BROKEN if self._server is None else await self._server.call(request, context)
        if isinstance(outcome, _Failure):
            return Reply(encode_error(request.id, outcome.code, outcome.message, outcome.data), ok=False)
        return Reply(encode_result(request.id, outcome), ok=True)


async def _guarded(handler: Handler, params: Raw, context: RequestContext) -> bytes | _Failure:
    """Run a handler; whatever comes of it is a result's JSON or a failure."""
    context.begin()
    try:
        if not is_object(params):
            raise InvalidParams("params must be an object")
        return to_json(await handler(params, context))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not context.cancelled or task is None:
            raise
        task.uncancel()
        return _Failure(REQUEST_CANCELLED, "the request was cancelled")
    except AgentError as error:
        return _Failure(error.code, error.message, error.facts or UNSET)
    except ValidationError as error:
        return _Failure(INVALID_PARAMS, f"invalid params: {error}")
    except Exception:
        _log.exception("%s failed", context.method)
        return _BROKEN


class _Server:
    """jsonrpcserver over a table of handlers."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        # The one module that may import it; inside, because of what the import costs.
        with warnings.catch_warnings():
            # It reads its schema in a way that newer Pythons deprecate: nothing a user could act on.
            warnings.simplefilter("ignore", DeprecationWarning)
            from jsonrpcserver import Error, Success, async_dispatch_to_response  # noqa: TID251

        self._dispatch: Any = async_dispatch_to_response
        self._methods = {name: _Method(handler, Success, Error) for name, handler in handlers.items()}

    async def call(self, request: Request, context: RequestContext) -> bytes | _Failure:
        parsed = {"method": request.method, "params": [request.params], "id": request.id}
        response = await self._dispatch(
            "", self._methods, context=context, deserializer=lambda _: parsed, validator=_anything)
        error = getattr(response, "_error", None)
        if error is None:
            result: bytes = response._value.result
            return result
        if error.id is not request.id:
            # Its crash path knows no id. Nothing is known to lead there.
            _log.error("jsonrpcserver failed on %s: %s", request.method, error.data)
            return _BROKEN
        return _Failure(error.code, error.message, getattr(error.data, "value", error.data))


class _ContextAndParams(Signature):
    """The signature of every handler.

    jsonrpcserver works out a method's signature and binds its arguments to it for each call. They always fit,
    and saying so here saves a fifth of what a request costs.
    """

    def bind(self, *_: Any, **__: Any) -> Any:
        return None


class _Method:
    """A handler in the shape jsonrpcserver calls: context and params in, its own kind of result out."""

    __slots__ = ("_error", "_handler", "_success")

    __signature__: ClassVar[Signature] = _ContextAndParams()

    def __init__(self, handler: Handler, success: Any, error: Any) -> None:
        self._handler = handler
        self._success = success
        self._error = error

    async def __call__(self, context: RequestContext, params: Raw) -> Any:
        outcome = await _guarded(self._handler, params, context)
        if isinstance(outcome, _Failure):
            return self._error(outcome.code, outcome.message, _Data(outcome.data))
        return self._success(outcome)


class _Data(Struct, frozen=True):
    """Carries an error's data, absent or not, past jsonrpcserver's own mark for absence."""

    value: Any


def _anything(_: object) -> None:
    """The validator that lets every request through: they were classified before."""

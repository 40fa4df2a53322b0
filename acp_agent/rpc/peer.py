"""Our own requests to the client, and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, json

from acp_agent.errors import AgentError
from acp_agent.rpc.envelope import (
    INTERNAL_ERROR,
    ErrorObject,
    Response,
    encode_notification,
    encode_request,
)

CANCEL_REQUEST = "$/cancel_request"

T = TypeVar("T")

_log = logging.getLogger(__name__)


class PeerError(AgentError):
    """The client answered a request of ours with an error, or with something that is no answer to it.

    `peer_code` and `message` are the client's own. A request of the client's that fails for it is an
    internal error, whatever `peer_code` is.
    """

    def __init__(self, peer_code: int, message: str) -> None:
        super().__init__(message)
        self.peer_code = peer_code


class PeerUnclear(PeerError):
    """The client's answer is none: neither a valid result nor a valid error. `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(INTERNAL_ERROR, message)


class PeerGone(PeerError):
    """The client can no longer answer: its end of the connection is closed. Counts as a refusal."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the client closed the connection before it answered")


class _CancelRequest(Struct, frozen=True, rename="camel"):
    request_id: int


class Peer:
    """The client as somebody to ask. Requests are numbered 0, 1, 2, ... and no number is used twice."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """`send` takes one line and does not wait."""
        self._send = send
        self._next = 0
        self._pending: dict[int, asyncio.Future[Response | None]] = {}
        self._gone = False

    async def call(
        self, method: str, params: Struct, result_type: type[T], late: Callable[[T], None] | None = None
    ) -> T:
        """Ask the client and wait for its answer. The request is sent before the first suspension.

        Cancelling the wait sends `$/cancel_request`; a result that comes all the same is given to `late`, and
        dropped where there is none. Raises `PeerError` for an error or a result that is no `result_type`,
        `PeerGone` when no answer can come.
        """
        if self._gone:
            raise PeerGone
        answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        number = self.tell(method, params)
        self._pending[number] = answer
        try:
            response = await answer
        except asyncio.CancelledError:
            self._give_up(number, answer, late and _receiver(method, result_type, late))
            raise
        if response is None:
            raise PeerGone
        return _result(response, method, result_type)

    def _give_up(
        self, number: int, answer: asyncio.Future[Response | None],
        late: Callable[[asyncio.Future[Response | None]], None] | None,
    ) -> None:
        """Nobody waits for the answer any more; it may be here already."""
        if self._pending.pop(number, None) is None:
            if late is not None:
                late(answer)
            return
        self._send(encode_notification(CANCEL_REQUEST, _CancelRequest(number)))
        if late is not None:
            self._pending[number] = unwanted = asyncio.get_running_loop().create_future()
            unwanted.add_done_callback(late)

    def tell(self, method: str, params: Struct) -> int:
        """Send a request whose answer does not matter, also when none can come. Never waits; the request's id."""
        number, self._next = self._next, self._next + 1
        self._send(encode_request(number, method, params))
        return number

    def resolve(self, response: Response) -> None:
        """Take an answer. One to a request that was never sent, or is answered or cancelled, is dropped."""
        answer = None if response.id is None else self._pending.pop(response.id, None)
        if answer is None:
            _log.debug("dropped a response: no request of ours waits for the id %s", response.id)
        elif not answer.done():
            answer.set_result(response)

    def fail_all(self) -> None:
        """The client can answer no more: every call, waiting or yet to come, raises `PeerGone`."""
        self._gone = True
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_result(None)


def _receiver(
    method: str, result_type: type[T], late: Callable[[T], None]
) -> Callable[[asyncio.Future[Response | None]], None]:
    """Takes an answer nobody waited for, and gives its result to `late`; an error is what was to be expected."""
    def receive(answer: asyncio.Future[Response | None]) -> None:
        response = answer.result()
        if response is not None:
            with contextlib.suppress(PeerError):
                late(_result(response, method, result_type))

    return receive


def _result(response: Response, method: str, result_type: type[T]) -> T:
    if response.error is not UNSET:
        raise _error(response.error, method)
    if response.result is UNSET:
        raise PeerUnclear(f"the client's answer to {method} {response.flaw}")
    try:
        return _decode_result(response.result, result_type)
    except DecodeError as problem:
        raise PeerUnclear(f"the client's result of {method} is not valid: {problem}") from None


def _decode_result(raw: Raw, result_type: type[T]) -> T:
    try:
        return json.decode(raw, type=result_type)
    except DecodeError:
        if bytes(raw) != b"null":
            raise
    # Some clients answer null where the schema has an object without required members.
    return json.decode(b"{}", type=result_type)


def _error(raw: Raw, method: str) -> PeerError:
    try:
        error = json.decode(raw, type=ErrorObject)
    except DecodeError:
        return PeerUnclear(f"the client's error for {method} is not valid")
    return PeerError(error.code, error.message)

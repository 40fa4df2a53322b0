"""Our own requests to the client, and their answers."""

from __future__ import annotations

import asyncio
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

    async def call(self, method: str, params: Struct, result_type: type[T]) -> T:
        """Ask the client and wait for its answer. The request is sent before the first suspension.

        Cancelling the wait sends `$/cancel_request`; an answer that still comes is dropped. Raises
        `PeerError` for an error or a result that is no `result_type`, `PeerGone` when no answer can come.
        """
        if self._gone:
            raise PeerGone
        number, self._next = self._next, self._next + 1
        answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self._send(encode_request(number, method, params))
        try:
            response = await answer
        except asyncio.CancelledError:
            if self._pending.pop(number, None) is not None:
                self._send(encode_notification(CANCEL_REQUEST, _CancelRequest(number)))
            raise
        if response is None:
            raise PeerGone
        return _result(response, method, result_type)

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


def _result(response: Response, method: str, result_type: type[T]) -> T:
    if response.error is not UNSET:
        raise _error(response.error, method)
    if response.result is UNSET:
        raise PeerError(INTERNAL_ERROR, f"the client's answer to {method} has neither a result nor an error")
    try:
        return _decode_result(response.result, result_type)
    except DecodeError as problem:
        raise PeerError(INTERNAL_ERROR, f"the client's result of {method} is not valid: {problem}") from None


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
        return PeerError(INTERNAL_ERROR, f"the client's error for {method} is not valid")
    return PeerError(error.code, error.message)

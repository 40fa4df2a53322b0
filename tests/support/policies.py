"""How a test's client answers what the agent asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tests.support.schema import Frame

Policy: TypeAlias = Callable[[Frame], Frame | None]
"""From a request of the agent's, the members of the response (`result` or `error`); None: later, or never."""


def not_offered(request: Frame) -> Frame:
    """The answer to a method this client does not have."""
    return {"error": {"code": -32601, "message": f"{request['method']} is not offered"}}


def cancel(request: Frame) -> Frame:
    """A permission dialogue that was closed."""
    return {"result": {"outcome": {"outcome": "cancelled"}}}


def silent(request: Frame) -> None:
    """No answer, ever."""


def choose(kind: str) -> Callable[[Frame], Frame]:
    """Always the option of this kind (`allow_once`, ...)."""
    def answer(request: Frame) -> Frame:
        for option in request["params"]["options"]:
            if option["kind"] == kind:
                return {"result": {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}}
        raise AssertionError(f"no option of the kind {kind} in {request}")

    return answer


def script(answers: Iterable[Policy]) -> Policy:
    """One answer after the other; asking once more than there are answers is an error."""
    left = iter(answers)

    def answer(request: Frame) -> Frame | None:
        policy = next(left, None)
        if policy is None:
            raise AssertionError(f"one question too many: {request}")
        return policy(request)

    return answer


allow = choose("allow_once")
reject = choose("reject_once")
allow_always = choose("allow_always")
reject_always = choose("reject_always")

"""A script's requests: each has an answer, a result or the error that the step says."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from replay import steps
from replay.exchange import Exchange, Frame
from replay.failures import StepFailed
from replay.paths import map_strings
from replay.waits import seconds_of
from replay.workspace import Workspace


class Asking:
    """Sends the requests of one run's script and waits for their answers."""

    def __init__(self, exchange: Exchange, ground: Workspace) -> None:
        self._exchange = exchange
        self._ground = ground

    def expanded(self, value: Any) -> Any:
        """A JSON value with the run's places filled in; UNSET stays."""
        return value if value is UNSET else map_strings(value, self._ground.expand)

    def call(
        self, step: steps.Step, method: str, params: Any, *, refused: bool = False, code: int | UnsetType = UNSET,
    ) -> Raw:
        """Send a request and wait for its result; nothing when it was `refused` as it should be.

        Raises `StepFailed` for another answer, and as the exchange does when none comes.
        """
        return self.answer(step, method, self._exchange.request(method, params), refused=refused, code=code)

    def answer(
        self, step: steps.Step, method: str, request: int, *, refused: bool, code: int | UnsetType,
    ) -> Raw:
        """`call` for a request that was sent."""
        frame = self._exchange.response(request, method, seconds_of(step))
        wrong = _unlike(frame, refused=refused, code=code)
        if wrong:
            raise self.failed(f"{method} was answered with {wrong}")
        return Raw(b"") if frame.result is UNSET else frame.result

    def result(self, method: str, raw: Raw, cls: type[Any]) -> Any:
        """A result read as a struct. Raises `StepFailed`."""
        try:
            return msgspec.json.decode(raw, type=cls)
        except msgspec.ValidationError as error:
            raise self.failed(f"{method} was answered wrongly: {error}") from None

    def failed(self, problem: str) -> StepFailed:
        """The failure of a step, with what there is to see."""
        return StepFailed(problem, self._exchange.scene())


def _unlike(frame: Frame, *, refused: bool, code: int | UnsetType) -> str:
    """In what way a response is not the expected one; empty when it is."""
    if frame.error is UNSET:
        return "a result where an error was expected" if refused else ""
    if not refused:
        return f"{frame.error}, where a result was expected (a step that expects an error has to say so)"
    return "" if code in (UNSET, frame.error.code) else f"{frame.error}, expected the code {code}"

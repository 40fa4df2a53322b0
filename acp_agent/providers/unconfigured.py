"""The provider of an agent that has no model to ask: it was given none, or one that this version cannot ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NoReturn

from acp_agent.errors import ModelError
from acp_agent.providers.base import Caller, ModelInfo, ModelRequest, RetryPolicy
from acp_agent.session.events import Chunk, Failure

NO_MODEL = (
    "no model is configured: set ACP_REPLAY_DIR to a directory of recorded sessions, "
    "or ACP_MODEL=scripted/FILE to a script of a model's answers"
)


def later(model: str) -> str:
    """Why a live model is not asked."""
    return (f"live models ({model}) arrive with a later version: set ACP_REPLAY_DIR to a directory of recorded "
            "sessions, or ACP_MODEL=scripted/FILE to a script of a model's answers")


class Unconfigured:
    """Refuses every call and says what to set; sessions can be opened all the same."""

    retry_policy = RetryPolicy(max_retries=0)

    def __init__(self, advice: str = NO_MODEL) -> None:
        """`advice` is the error of every call."""
        self._advice = advice

    def models(self) -> Sequence[ModelInfo]:
        return ()

    def prepare(self, caller: Caller) -> NoReturn:  # noqa: ARG002  # contract
        raise ModelError(self._advice, "NOT_CONFIGURED")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        if request:  # always: the yield below only makes this an asynchronous generator
            raise ModelError(self._advice, "NOT_CONFIGURED")
        yield ()

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:  # noqa: ARG002
        return None

    async def aclose(self) -> None:
        """Nothing is held."""

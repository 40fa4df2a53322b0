"""The provider of an agent that was given neither a model nor a recording."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NoReturn

from acp_agent.errors import ModelError
from acp_agent.providers.base import Caller, ModelRequest, RetryPolicy
from acp_agent.session.events import Chunk, Failure

_ADVICE = (
    "no model is configured: set ACP_REPLAY_DIR to a directory of recorded sessions, "
    "or ACP_MODEL=scripted/FILE to a script of a model's answers"
)


class Unconfigured:
    """Refuses every call and says what to set; sessions can be opened all the same."""

    retry_policy = RetryPolicy(max_retries=0)

    def prepare(self, caller: Caller) -> NoReturn:  # noqa: ARG002  # contract
        raise ModelError(_ADVICE, "NOT_CONFIGURED")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        if request:  # always: the yield below only makes this an asynchronous generator
            raise ModelError(_ADVICE, "NOT_CONFIGURED")
        yield ()

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:  # noqa: ARG002
        return None

    async def aclose(self) -> None:
        """Nothing is held."""

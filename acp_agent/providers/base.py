"""The provider contract: who asks, what is asked, and the stream that answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session.events import (
    AssistantMessage,
    Body,
    Chunk,
    Failure,
    HeaderContent,
    ModelConfig,
    ReplayBound,
    ToolResult,
    UserMessage,
)

MAIN = "main"
"""The purpose of the calls a turn makes; each purpose has its own ordinals."""


class Hop(Struct, frozen=True, gc=False):
    """One delegation: the tool call that made the child, and how many earlier children had the same call id."""

    call_id: CallId
    index: int = 0

    def __str__(self) -> str:
        return f"{self.call_id}[{self.index}]" if self.index else self.call_id


Path = tuple[Hop, ...]
"""Where a session stands below its root: () for the root itself. Root session and path are the address."""


class Caller(Struct, frozen=True):
    """Who makes a model call. `session` is None for a request without a session.

    `ordinal` counts the calls of this purpose that this session made itself before this one, every
    attempt included. `bound` is the binding the root's log holds, if any. `cwd` is the session's
    working directory.
    """

    session: SessionId | None
    root: SessionId | None = None
    path: Path = ()
    purpose: str = MAIN
    ordinal: int = 0
    cwd: str = "."
    bound: ReplayBound | None = None
    model: str | None = None
    """The id of the model the session's user chose, if one did; see `Provider.models`."""


class ModelInfo(Struct, frozen=True):
    """A model that sessions may choose, and how it is shown; `description` may be empty."""

    id: str
    name: str
    description: str = ""


class Route(Struct, frozen=True):
    """Which model will answer, as the log's request/header and request/context tell it."""

    config: ModelConfig
    context_window: int | UnsetType = UNSET
    """Tokens the model can take in; unset when nobody knows."""


class Prepared(Struct, frozen=True):
    """What a provider decided when a call was about to be made: the route, and events to log before it."""

    route: Route
    notes: tuple[Body, ...] = ()


Surface = UserMessage | AssistantMessage | ToolResult
"""What a model's history is made of."""


class ModelRequest(Struct, frozen=True):
    """One model call. `messages` is the history in order; it must not be kept beyond the call."""

    caller: Caller
    turn: int
    step: int
    message_id: MessageId
    header: HeaderContent
    messages: Sequence[Surface]


class RetryPolicy(Struct, frozen=True):
    """When a failed model call is made again (format reference 3.4). Delays are milliseconds."""

    mode: str = "normal"
    max_retries: int = 5
    codes: tuple[str, ...] = ("EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT")
    initial_delay_ms: int = 500
    max_delay_ms: int = 10_000
    jitter: float = 0.1

    def delay(self, failure: Failure, retry: int, spread: float) -> int | None:
        """The wait before retry number `retry` (from 1), or None to give up.

        `spread` in -1..1 places the wait within the jitter. A wait the provider asked for is honoured up
        to the longest delay and given up on beyond it.
        """
        if retry > self.max_retries or failure.code not in self.codes:
            return None
        asked = failure.provider_retry_after_ms
        if asked is not UNSET:
            return asked if asked <= self.max_delay_ms else None
        plain = min(self.initial_delay_ms << (retry - 1), self.max_delay_ms)
        return round(plain * (1 + self.jitter * spread))

    @property
    def key(self) -> str:
        """The policy as the log names it: a JSON array in a string (format reference 1.4)."""
        parts = [self.mode, self.max_retries, sorted(self.codes), self.initial_delay_ms, self.max_delay_ms,
                 self.jitter]
        return msgspec.json.encode(parts).decode()


class Provider(Protocol):
    """A source of model calls.

    Cancelling the consumer cancels the call. Every stream ends with exactly one `Finish` chunk; a failed
    call either ends with a `Finish` of kind error or raises `ModelError` (any other exception counts as
    one of kind UNKNOWN).
    """

    def models(self) -> Sequence[ModelInfo]:
        """The models a session can choose from, the usual one first; empty where none can be named. Never raises."""
        ...

    def prepare(self, caller: Caller) -> Prepared:
        """Decide, without waiting, who will answer `caller`. Raises an `AgentError` when nobody can."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        """The answer, in batches: a batch is what became available together. The consumer closes it."""
        ...

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:
        """Milliseconds to wait before asking again after `failure`, or None to give up.

        `retry` counts from 1 the attempts that would come after the first one of this step.
        """
        ...

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy `retry_delay` follows, for the log."""
        ...

    async def aclose(self) -> None:
        """Free what the provider holds and write its last words. Safe to call twice."""
        ...

"""A session's log in use: numbers events, folds them, hands them to the store, tells who listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType

from acp_agent.clock import Clock
from acp_agent.session.events import AssistantChunk, Body, Chunk, EndSeed, Event, SessionHeader, SurfaceOp
from acp_agent.session.slices import in_slices
from acp_agent.session.state import SessionState
from acp_agent.stores.base import Appender

Listener = Callable[[Event], None]
"""Told of each event after it is in the log."""


class SessionLog:
    """Append-only. An event is in the log, in memory at least, before anybody is told of it (law 3)."""

    def __init__(self, header: SessionHeader, appender: Appender, clock: Clock) -> None:
        self.header = header
        self.state = SessionState(0 if header.seed_length is UNSET else header.seed_length)
        self._appender = appender
        self._clock = clock
        self._listener: Listener | None = None
        self._restored = False
        """What is in the log was written by another lifecycle, and nothing of this one is in it yet."""

    def listen(self, listener: Listener) -> None:
        """Have every later event told to `listener`; there is one at most."""
        self._listener = listener

    async def seed(self, events: Sequence[Event]) -> None:
        """Fold inherited events that are in the store already, and mark that they belong to a finished lifecycle."""
        await in_slices(self.state.apply, events)
        self._seal()

    async def restore(self, settled: Sequence[Event], count: int, time: int) -> None:
        """Fold the events of an earlier lifecycle (see `Continuation`). The first new event begins another one."""
        await in_slices(self.state.apply, settled)
        self.state.settle(count, time)
        self._restored = True

    def complete(self, events: Sequence[Event]) -> None:
        """Add events that still belong to the lifecycle before: what closes its open turn."""
        for event in events:
            self._take(event)

    def append(
        self,
        body: Body,
        *,
        sources: list[int] | UnsetType = UNSET,
        surface: SurfaceOp | UnsetType = UNSET,
    ) -> Event:
        """Add one event."""
        if self._restored:
            self._seal()
        ignorable = True if body.ours else UNSET
        event = Event(self.state.count, self._clock.now(), body, sources, surface, ignorable)
        self._take(event)
        return event

    def _take(self, event: Event) -> None:
        self._appender.append(event)
        self.state.apply(event)
        if self._listener is not None:
            self._listener(event)

    def _seal(self) -> None:
        """Mark the end of what other lifecycles wrote, once (format reference 1.10)."""
        self._restored = False
        if not self.state.sealed:
            self._take(Event(self.state.count, self._clock.now(), EndSeed()))

    def append_chunks(self, turn: int, step: int, chunks: Sequence[Chunk]) -> range:
        """Add a batch of a model's stream, and return the seqs it got. The hot path of the whole agent.

        Never the first thing a lifecycle adds: a request stands before its answer.
        """
        now, first, listener = self._clock.now(), self.state.count, self._listener
        self._appender.append_chunks(first, now, turn, step, chunks)
        self.state.apply_chunks(now, chunks)
        if listener is not None:
            for seq, chunk in enumerate(chunks, first):
                listener(Event(seq, now, AssistantChunk(turn, step, chunk)))
        return range(first, first + len(chunks))

    async def write(self) -> None:
        """Make everything survive a killed process. Raises `StoreError`."""
        await self._appender.write()

    async def sync(self) -> None:
        """Make everything survive a lost power supply. Raises `StoreError`."""
        await self._appender.sync()

    async def aclose(self) -> None:
        """Store the rest and give up the log."""
        await self._appender.aclose()

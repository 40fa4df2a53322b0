"""Work that one task asks for and another one does.

A request's handler runs where no cancel shield holds, so what must be done or undone as a whole runs in the
process's task group, and the handler waits for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from acp_agent.errors import AgentError
from acp_agent.ids import SessionId

T = TypeVar("T")


class CalledOff(AgentError):
    """The work was called off, by the client or because the agent is stopping; nothing is left of it."""

    code = -32800


class Work(Generic[T]):
    """One piece of work. `run` is for the task that does it, once; `result` for any that wait."""

    def __init__(self, deed: Callable[[], Awaitable[T]]) -> None:
        self._deed = deed
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._outcome: tuple[T] | None = None
        self._error: Exception | None = None

    async def run(self) -> None:
        """Do it. Raises nothing: what goes wrong is for those who wait."""
        try:
            with self._scope:
                self._outcome = (await self._deed(),)
        except Exception as error:
            self._error = error
        finally:
            self._done.set()

    def call_off(self) -> None:
        """Stop it, and have it undo what it did so far. Without effect on what is done."""
        self._scope.cancel()

    async def done(self) -> None:
        """Wait until it has come to its end."""
        await self._done.wait()

    async def result(self) -> T:
        """Wait for what came of it. Raises what it raised, or `CalledOff`."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise CalledOff("the request was cancelled")
        return self._outcome[0]


class Opening(Generic[T]):
    """A stored session on its way to being active, from the request to its answer."""

    def __init__(self, session_id: SessionId, start: Callable[[Opening[T]], Work[T]]) -> None:
        self.session_id = session_id
        self.leads_to: T | None = None
        """What is active when the work is done, opened by it or there already."""
        self.ends = False
        """Whether the session is to be ended as soon as this is answered: nothing more can be asked of it."""
        self.work = start(self)
        self.answered = anyio.Event()
        self._news = anyio.Event()
        """Set when those who wait for the session have something to do; another one after each cancel."""

    def answer(self) -> None:
        """The client was told what came of it: those who wait for the session go on, before those who end it."""
        self._news.set()
        self.answered.set()

    def cancel(self) -> None:
        """Those who wait for the session now wait in vain; the opening itself goes on."""
        self._news.set()
        self._news = anyio.Event()

    async def wait(self) -> bool:
        """Wait for the answer; whether that was not in vain."""
        news = self._news
        await news.wait()
        return news is self._news


class Openings(Generic[T]):
    """The openings that are not answered yet, in the order they were asked for.

    What is sent to a session belongs to the newest opening before it: one that comes later is nothing to it.
    """

    def __init__(self) -> None:
        self._open: dict[SessionId, list[Opening[T]]] = {}

    def add(self, opening: Opening[T]) -> None:
        """One more."""
        self._open.setdefault(opening.session_id, []).append(opening)

    def remove(self, opening: Opening[T]) -> None:
        """One is answered."""
        left = [one for one in self._open.pop(opening.session_id, []) if one is not opening]
        if left:
            self._open[opening.session_id] = left

    def newest(self, session_id: SessionId) -> Opening[T] | None:
        """The one that what comes now belongs to."""
        return self._open[session_id][-1] if session_id in self._open else None

    def cancel(self, session_id: SessionId) -> None:
        """All that was sent to a session so far is cancelled, whichever opening it waits for."""
        for opening in self._open.get(session_id, []):
            opening.cancel()


class Order:
    """One thing at a time for each session, in the order asked for."""

    def __init__(self) -> None:
        self._locks: dict[SessionId, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, session_id: SessionId) -> AsyncIterator[None]:
        """Wait until everything asked for before is done."""
        lock, users = self._locks.get(session_id, (anyio.Lock(), 0))
        self._locks[session_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(session_id)
            if users > 1:
                self._locks[session_id] = lock, users - 1

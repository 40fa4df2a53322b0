"""A process's sessions in one test: the real manager, loop and store, with a scripted model and fake tools."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio

from acp_agent.ids import BlobId, IdSource, SessionId
from acp_agent.loop.host import Answer
from acp_agent.providers.base import Provider
from acp_agent.session.events import AssistantChunk, Event, Finish, TurnOutcome
from acp_agent.session.manager import RootViewMaker, SessionManager
from acp_agent.session.session import Place, QueuedPrompt, Services, Session
from acp_agent.stores.base import Store, StoredLog
from acp_agent.stores.jsonl import JsonlStore, read_log
from acp_agent.tools.base import CallKey, Effects, Outcome, RecordedCall, Tool
from acp_agent.tools.live import LiveEffects
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry
from tests.support.fakes import CountingIds, FixedClock, RecordingView, RecordingViews, Reply
from tests.support.log_laws import check_store_laws

ALLOW, ALLOW_ALWAYS = Answer(allow=True), Answer(allow=True, always=True)
REJECT, REJECT_ALWAYS = Answer(allow=False), Answer(allow=False, always=True)

PLAIN_TURN = ["turn/start", "step/start", "user/message", "session/title", "request/header", "request/context",
              "request/sent", "chunks", "assistant/message", "step/end", "turn/end"]
"""The shape of a session's first turn when the model only talks."""


class World:
    """Used as an async context. At its end every session is closed and every stored log is judged.

    `replies` answer permission questions; `warned` collects what the loop did not expect.
    """

    def __init__(
        self, directory: Path, provider: Provider, *tools: Tool, store: Store | None = None,
        mode: Mode = Mode.FULL_ACCESS, replies: Iterable[Reply] = (), views: RootViewMaker | None = None,
        effects: Effects | None = None, max_depth: int = 3, ids: IdSource | None = None,
    ) -> None:
        self.cwd = directory / "work"
        self.logs = directory / "logs"
        self.warned: list[str] = []
        self.expect_warnings = False
        self.views: list[RecordingViews] = []
        self.store: Store = store or JsonlStore(self.logs)
        self._replies = tuple(replies)
        self._roots = -1
        self._tasks = anyio.create_task_group()
        self.services = Services(
            store=self.store, provider=provider, registry=Registry(tools), effects=effects or LiveEffects(),
            ids=ids or CountingIds(), clock=FixedClock(), home="/home/nobody", mode=mode, max_depth=max_depth,
            serves=False, next_root=self._next_root, spawn=self._spawn, warn=self.warned.append,
        )  # fmt: skip
        self.manager = SessionManager(self.services, views or self._make_views)

    def _make_views(self, place: Place) -> RecordingViews:
        self.views.append(RecordingViews(*self._replies))
        return self.views[-1]

    def _next_root(self) -> int:
        self._roots += 1
        return self._roots

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.start_soon(work)

    @property
    def view(self) -> RecordingView:
        """The first root session's view."""
        return self.views[0].root

    async def __aenter__(self) -> World:
        self.cwd.mkdir(exist_ok=True)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        try:
            if error is None:
                with anyio.fail_after(10):
                    await self.manager.aclose()
                    await self.store.aclose()
        finally:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
        if error is None:
            assert self.expect_warnings == bool(self.warned), self.warned
            assert check_store_laws(self.logs) == []

    def session(self) -> Session:
        """A new root session."""
        return self.manager.create(str(self.cwd))

    async def prompt(self, session: Session, text: str = "go") -> TurnOutcome:
        """Run one prompt to its end; its error is raised."""
        return await self.outcome(session.admit(text))

    async def outcome(self, admitted: QueuedPrompt) -> TurnOutcome:
        """What an admitted prompt came to."""
        with anyio.fail_after(10):
            await admitted.done.wait()
        if admitted.error is not None:
            raise admitted.error
        assert admitted.outcome is not None
        return admitted.outcome

    def path(self, session: str) -> Path:
        """The log file of a stored session."""
        for path in self.logs.rglob("*.jsonl"):
            if read_log(path)[0].header.id == session:
                return path
        raise AssertionError(f"{session} is not stored")

    def children(self) -> list[StoredLog]:
        """The stored children of all sessions, in the order of their files' numbers."""
        paths = sorted(self.logs.rglob("session.*.jsonl"), key=lambda path: (len(path.name), path))
        return [read_log(path)[0] for path in paths]

    def stored(self, session: str | Session) -> StoredLog:
        """A session as its file holds it."""
        name = session.place.session if isinstance(session, Session) else SessionId(session)
        return read_log(self.path(name))[0]


class RecordedEffects:
    """Serves recorded outcomes by call id; remembers which live ones it was told of."""

    def __init__(self, **outcomes: RecordedCall | Exception) -> None:
        self._outcomes = outcomes
        self.images: dict[BlobId, bytes] = {}
        self.asked: list[CallKey] = []
        self.observed: list[tuple[str, Outcome]] = []

    def recorded(self, key: CallKey) -> RecordedCall | None:
        self.asked.append(key)
        found = self._outcomes.get(key.call_id)
        if isinstance(found, Exception):
            raise found
        return found

    def observe(self, key: CallKey, outcome: Outcome) -> None:
        self.observed.append((key.call_id, outcome))

    def image(self, session: SessionId, blob: BlobId) -> bytes | None:
        """Those in `images` are recorded."""
        return self.images.get(blob)


def shape(events: Sequence[Event]) -> list[str]:
    """The types of events, with each run of chunks as one `chunks`."""
    kinds: list[str] = []
    for event in events:
        kind = "chunks" if isinstance(event.body, AssistantChunk) else event.body.type
        if kind != "chunks" or kinds[-1:] != ["chunks"]:
            kinds.append(kind)
    return kinds


def own_shape(events: Sequence[Event], turn: int) -> list[str]:
    """The shape of the events of one turn, its start and end included."""
    kinds = shape(events)
    starts = [at for at, kind in enumerate(kinds) if kind == "turn/start"] + [len(kinds)]
    return kinds[starts[turn - 1] : starts[turn]]


def bodies(events: Sequence[Event], *types: type[Any]) -> list[Any]:
    """The bodies of the given types, in order."""
    return [event.body for event in events if isinstance(event.body, types)]


def finishes(events: Sequence[Event]) -> list[str]:
    """The kinds of all finish chunks, in order."""
    chunks = [body.chunk for body in bodies(events, AssistantChunk)]
    return [chunk.reason.kind for chunk in chunks if isinstance(chunk, Finish)]

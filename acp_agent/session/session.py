"""One session at work: its queue of prompts, its running turn, its mode, and what its turns need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
from msgspec import Struct

from acp_agent.clock import Clock
from acp_agent.errors import AgentError
from acp_agent.ids import IdSource, SessionId
from acp_agent.loop.digests import RequestDigester, Tokeniser
from acp_agent.loop.host import Answer, Host, Live, Question
from acp_agent.loop.prompt import system_prompt
from acp_agent.loop.turn import Turn
from acp_agent.providers.base import Caller, Provider
from acp_agent.providers.base import Path as AddressPath
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Body,
    Event,
    SessionConfig,
    Source,
    TextBlock,
    TurnOutcome,
    UserMessage,
)
from acp_agent.session.log import SessionLog
from acp_agent.stores.base import Store
from acp_agent.tools.base import Effects
from acp_agent.tools.delegation import Delegation
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry

_MODES = frozenset(mode.value for mode in Mode)


class View(Live, Protocol):
    """What a client sees of a session, and whom the session asks."""

    def event(self, event: Event) -> None:
        """Told of every event after it is in the log."""
        ...

    async def ask(self, question: Question) -> Answer:
        """Put a permission question; anything but a clear yes is a no."""
        ...


class Services(Struct, frozen=True):
    """What all sessions of a process share."""

    store: Store
    provider: Provider
    registry: Registry
    effects: Effects
    ids: IdSource
    clock: Clock
    home: str
    mode: Mode
    max_depth: int
    next_root: Callable[[], int]
    """Gives out the ordinals of roots in the order of their first model call."""
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    """Starts work in the process's task group."""
    warn: Callable[[str], None]


class Place(Struct, frozen=True):
    """Where a session stands: its own id, its root's, its path below the root, and its directory."""

    session: SessionId
    root: SessionId
    path: AddressPath
    cwd: Path
    depth: int = 0


class QueuedPrompt:
    """A prompt from its admission to its outcome. One of `outcome` and `error` is set when `done` is.

    The session's next turn begins when `answered`, where there is one, is set too.
    """

    def __init__(self, message: UserMessage, preface: Sequence[Body]) -> None:
        self.message = message
        self.preface = preface
        self.done = anyio.Event()
        self.outcome: TurnOutcome | None = None
        self.error: AgentError | None = None
        self.answered: anyio.Event | None = None

    def settle(self, outcome: TurnOutcome | None = None, error: AgentError | None = None) -> None:
        """Set what came of it."""
        self.outcome, self.error = outcome, error
        self.done.set()


class Session:
    """A root or a child. Prompts run one after the other, in the order they were admitted."""

    def __init__(self, services: Services, place: Place, log: SessionLog, view: View,
                 inherited_grants: Callable[[], Mapping[str, bool]] = dict) -> None:
        """`inherited_grants` are the parent's, which a child may rely on."""
        self.place = place
        self.log = log
        self.view = view
        self._services = services
        self._inherited_grants = inherited_grants
        self._queue: deque[QueuedPrompt] = deque()
        self._current: QueuedPrompt | None = None
        self._turn: Turn | None = None
        self._working = False
        self._idle = anyio.Event()
        self._idle.set()
        self._requested = False
        self._closed = False
        self._roots = (place.cwd.resolve(),)
        self._digester = RequestDigester(Tokeniser([str(place.cwd)], services.home))
        self.delegation: Delegation | None = None
        self.children: list[Session] = []
        """The children that are running."""
        log.listen(view.event)

    @property
    def mode(self) -> Mode:
        """The permission mode in force. One that only a newer version knows is taken for the careful one."""
        stored = self.log.state.mode
        if stored is None:
            return self._services.mode
        return Mode(stored) if stored in _MODES else Mode.ASK

    def set_mode(self, mode: Mode) -> None:
        """Change the permission mode, also of running children; the next call is judged by it."""
        if mode is not self.mode:
            self.log.append(SessionConfig(mode=mode.value))
        for child in self.children:
            child.set_mode(mode)

    # -- prompts

    def admit(self, text: str, preface: Sequence[Body] = ()) -> QueuedPrompt:
        """Queue a prompt, without waiting."""
        message = UserMessage((TextBlock(text),), Source("user"), "user", self._services.ids.message())
        prompt = QueuedPrompt(message, preface)
        self._queue.append(prompt)
        if not self._working:
            self._working = True
            self._idle = anyio.Event()
            self._services.spawn(self._work)
        return prompt

    async def _work(self) -> None:
        try:
            while self._queue:
                self._current = self._queue.popleft()
                await self._run(self._current)
                if self._current.answered is not None:
                    await self._current.answered.wait()
        finally:
            self._current, self._working = None, False
            self._idle.set()

    async def _run(self, prompt: QueuedPrompt) -> None:
        try:
            self._turn = Turn(self._host(), prompt.message, prompt.preface)
            prompt.settle(await self._turn.run())
        except AgentError as error:
            prompt.settle(error=error)
        except Exception as error:
            self._services.warn(f"session {self.place.session}: a turn failed unexpectedly: {error!r}")
            prompt.settle(error=AgentError(f"the turn failed unexpectedly ({type(error).__name__})"))
        finally:
            self._turn = None

    def cancel(self, cause: str = "user") -> None:
        """Stop the running turn and everything queued. Nothing happens in an idle session."""
        queued, self._queue = list(self._queue), deque()
        for prompt in queued:
            prompt.settle(Aborted(AbortCause(cause)))
        if self._turn is not None:
            self._turn.cancel(cause)

    def cancel_prompt(self, prompt: QueuedPrompt) -> None:
        """Stop one prompt, queued or running."""
        if prompt is self._current and self._turn is not None:
            self._turn.cancel()
        elif prompt in self._queue:
            self._queue.remove(prompt)
            prompt.settle(Aborted(AbortCause("user")))

    async def idle(self) -> None:
        """Wait until no turn is running and none is queued."""
        await self._idle.wait()

    async def aclose(self, cause: str = "disposed") -> None:
        """Cancel, wait until the turn has ended and every prompt is answered, store everything."""
        if self._closed:
            return
        self._closed = True
        answers = [prompt.answered for prompt in (self._current, *self._queue) if prompt is not None]
        self.cancel(cause)
        await self.idle()
        for answered in answers:
            if answered is not None:
                await answered.wait()
        await self.log.aclose()

    # -- what a turn works with

    def _host(self) -> Host:
        services, place = self._services, self.place
        cwd = str(place.cwd)
        return Host(
            log=self.log, session=place.session, cwd=place.cwd, roots=self._roots,
            spill=services.store.spill_directory(place.session), provider=services.provider,
            registry=services.registry, effects=services.effects, ids=services.ids, live=self.view,
            digester=self._digester, system=system_prompt(cwd), caller=self._caller,
            root_ordinal=self._root_ordinal, first_request=self._first_request, mode=lambda: self.mode,
            grants=self.grants, ask=self.view.ask, delegate=self.delegation, warn=services.warn,
        )  # fmt: skip

    def grants(self) -> Mapping[str, bool]:
        """What the user allowed or refused for the rest of the session."""
        return {**self._inherited_grants(), **self.log.state.grants}

    def _caller(self, purpose: str) -> Caller:
        place, state = self.place, self.log.state
        return Caller(place.session, place.root, place.path, purpose, state.ordinals.get(purpose, 0),
                      str(place.cwd), state.bound)

    def _root_ordinal(self) -> int | None:
        if self.place.path or self.log.state.has_sent:
            return None
        return self._services.next_root()

    def _first_request(self) -> bool:
        """True once: on this process's first request for the session."""
        first, self._requested = not self._requested, True
        return first

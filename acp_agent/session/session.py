"""One session at work: its queue of prompts, its running turn, its mode, and what its turns need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import anyio
from msgspec import UNSET, Struct, UnsetType

from acp_agent.clock import Clock
from acp_agent.errors import AgentError, StoreError
from acp_agent.ids import IdSource, SessionId
from acp_agent.images import Image
from acp_agent.loop.digests import RequestDigester, Tokeniser
from acp_agent.loop.host import Answer, Desk, Host, Live, Question
from acp_agent.loop.prompt import system_prompt
from acp_agent.loop.turn import Turn
from acp_agent.providers.base import Caller, ModelInfo, Provider
from acp_agent.providers.base import Path as AddressPath
from acp_agent.session.commands import Call, CommandRun, Subject
from acp_agent.session.configuration import applied
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Body,
    Event,
    ImageBlock,
    SessionConfig,
    Source,
    TextBlock,
    TurnOutcome,
    UserMessage,
)
from acp_agent.session.log import SessionLog
from acp_agent.session.prompts import ImagePart, PromptPart, TextPart, attachment, content, image_block
from acp_agent.session.stored_images import fetch_images
from acp_agent.session.toolbox import Toolbox
from acp_agent.stores.base import Store
from acp_agent.stores.patience import Patience
from acp_agent.tools.base import Effects
from acp_agent.tools.delegation import Delegation
from acp_agent.tools.permission import Mode
from acp_agent.tools.registry import Registry

_TO_STORE = 0.5
"""Seconds for which a cancelled prompt still waits for a store that somebody else has locked."""

NO_TRACE: Mapping[str, str] = MappingProxyType({})
_MODES = frozenset(mode.value for mode in Mode)


class View(Live, Protocol):
    """What a client sees of a session, and whom the session asks."""

    @property
    def desk(self) -> Desk:
        """What the client does for the session's tools."""
        ...

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
    serves: bool
    """Whether MCP servers are started: not where tool results come from a recording."""
    next_root: Callable[[], int]
    """Gives out the ordinals of roots in the order of their first model call."""
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    """Starts work in the process's task group."""
    warn: Callable[[str], None]


class Place(Struct, frozen=True):
    """Where a session stands: its own id, its root's, its path below the root, its directory and further ones."""

    session: SessionId
    root: SessionId
    path: AddressPath
    cwd: Path
    depth: int = 0
    directories: tuple[Path, ...] = ()


class QueuedPrompt:
    """A prompt from its admission to its outcome. One of `outcome` and `error` is set when `done` is.

    The session's next turn begins when `answered`, where there is one, is set too.
    """

    def __init__(self, parts: Sequence[PromptPart], message: UserMessage, preface: Sequence[Body],
                 command: Call | None = None, trace: Mapping[str, str] = NO_TRACE) -> None:
        """`preface` are events that begin its turn; a `command` is run in a turn's place."""
        self.parts = parts
        self.command = command
        self.trace = trace
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
                 inherited_grants: Callable[[], Mapping[str, bool]] = dict, toolbox: Toolbox | None = None) -> None:
        """`inherited_grants` are the parent's, which a child may rely on; `toolbox` is the parent's, which it uses."""
        self.toolbox = toolbox or Toolbox(services.registry)
        self._owns_toolbox = toolbox is None
        self.place = place
        self.log = log
        self.view = view
        self._services = services
        self._inherited_grants = inherited_grants
        self._queue: deque[QueuedPrompt] = deque()
        self._current: QueuedPrompt | None = None
        self._turn: Turn | CommandRun | None = None
        self._patience = Patience()
        """The running prompt's, when it stores something."""
        self._cancelled: Aborted | None = None
        """What the running prompt comes to, if it was cancelled."""
        self._working = False
        self._idle = anyio.Event()
        self._idle.set()
        self._requested = False
        self._closed = False
        self._roots = tuple(path.resolve() for path in (place.cwd, *place.directories))
        self._digester = RequestDigester(Tokeniser(list(map(str, (place.cwd, *place.directories))), services.home))
        self.delegation: Delegation | None = None
        self._first: list[Callable[[], None]] = []
        self._open_questions: list[Callable[[], None]] = []
        """What to do about each open permission question when the mode is another."""
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
        for reconsider in list(self._open_questions):
            reconsider()

    def configure(self, model: str | UnsetType = UNSET, **options: str) -> None:
        """Choose a model or other options, also for running children; the next model call is made so."""
        self.log.append(SessionConfig(model=model, options=options or UNSET))
        for child in self.children:
            child.configure(model, **options)

    def models(self) -> Sequence[ModelInfo]:
        """The models to choose from."""
        return self._services.provider.models()

    @contextmanager
    def _watching(self, reconsider: Callable[[], None]) -> Iterator[None]:
        self._open_questions.append(reconsider)
        try:
            yield
        finally:
            self._open_questions.remove(reconsider)

    def at_first(self, deed: Callable[[], None]) -> None:
        """Have something done once the client knows of the session."""
        self._first.append(deed)

    def begin(self) -> None:
        """The client knows of the session from now on: news of it may be sent."""
        first, self._first = self._first, []
        for deed in first:
            deed()

    # -- prompts

    def admit(self, prompted: str | Sequence[PromptPart], preface: Sequence[Body] = (),
              command: Call | None = None, trace: Mapping[str, str] = NO_TRACE) -> QueuedPrompt:
        """Queue a prompt, without waiting; or the command that it calls. `trace` is what it is a part of."""
        parts = (TextPart(prompted),) if isinstance(prompted, str) else prompted
        message = UserMessage(content(parts), Source("user"), "user", self._services.ids.message())
        prompt = QueuedPrompt(parts, message, preface, command, trace)
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
        self._patience, self._cancelled = Patience(), None
        try:
            with self._patience.rules():
                outcome = await self._outcome(prompt)
            prompt.settle(outcome)
        except StoreError as error:
            self._cannot_be_stored(prompt, error)
        except AgentError as error:
            prompt.settle(error=error)
        except Exception as error:
            self._services.warn(f"session {self.place.session}: a turn failed unexpectedly: {error!r}")
            prompt.settle(error=AgentError(f"the turn failed unexpectedly ({type(error).__name__})"))
        finally:
            self._turn = None

    def _cannot_be_stored(self, prompt: QueuedPrompt, error: StoreError) -> None:
        """A cancelled prompt is cancelled all the same: what is not stored is kept, and tried again with the next one.
        """
        self.view.notice("error", "The session cannot be stored", error.message)
        if self._cancelled is None:
            prompt.settle(error=error)
            return
        self._services.warn(f"session {self.place.session}: what was cancelled is not stored yet: {error.message}")
        prompt.settle(self._cancelled)

    async def _outcome(self, prompt: QueuedPrompt) -> TurnOutcome:
        if prompt.command is not None:
            self._turn = run = self._command_run(prompt, prompt.command)
            return await run.run()
        self._turn = turn = Turn(self._host(), prompt.message, prompt.preface)
        await self._keep_images(prompt.parts, turn)
        return await turn.run()

    def _command_run(self, prompt: QueuedPrompt, call: Call) -> CommandRun:
        subject = Subject(self.log, self._registry, self.toolbox.report)
        text = "".join(part.text for part in prompt.parts if isinstance(part, TextPart))
        return CommandRun(subject, self._services.ids, call, prompt.message.id, text)

    async def _keep_images(self, parts: Sequence[PromptPart], turn: Turn) -> None:
        """What cannot be stored lets the turn not begin; a cancelled one does not need it."""
        for part in parts:
            if isinstance(part, ImagePart) and not turn.cancelled:
                await self.keep_image(part.data, part.image, part.name)

    async def keep_image(self, data: bytes, image: Image, name: str | None = None) -> ImageBlock:
        """Store an image with the session; the block that stands for it. Raises `StoreError`."""
        with anyio.CancelScope(shield=True):
            await self._services.store.put_blob(self.place.session, data)
        return image_block(ImagePart(data, image, name))

    async def _fetch(self, content: Sequence[TextBlock | ImageBlock]) -> None:
        images = [block for block in content if isinstance(block, ImageBlock)]
        if not images:
            return
        services, session = self._services, self.place.session
        with anyio.CancelScope(shield=True):
            for about in filter(None, map(attachment, images)):
                data = services.effects.image(session, about.attachment_id)
                if data is not None:
                    await services.store.put_blob(session, data)
            await fetch_images(services.store, session, images, self.view.see, services.warn)

    def cancel(self, cause: str = "user") -> None:
        """Stop the running turn and everything queued. Nothing happens in an idle session."""
        queued, self._queue = list(self._queue), deque()
        for prompt in queued:
            prompt.settle(Aborted(AbortCause(cause)))
        self._stop(cause)

    def cancel_prompt(self, prompt: QueuedPrompt) -> None:
        """Stop one prompt, queued or running."""
        if prompt is self._current:
            self._stop("user")
        elif prompt in self._queue:
            self._queue.remove(prompt)
            prompt.settle(Aborted(AbortCause("user")))

    def _stop(self, cause: str) -> None:
        """Stop the running prompt, if there is one, and have it wait no longer to be stored."""
        if self._turn is None:
            return
        if self._cancelled is None:
            self._cancelled = Aborted(AbortCause(cause))
        self._patience.ends_in(_TO_STORE)
        self._turn.cancel(cause)

    @property
    def trace(self) -> Mapping[str, str]:
        """The trace that the running prompt is a part of."""
        return NO_TRACE if self._current is None else self._current.trace

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
        failure: StoreError | None = None
        async with anyio.create_task_group() as group:  # what servers take to end must hold up nothing else
            if self._owns_toolbox:
                group.start_soon(self.toolbox.aclose)
            for answered in answers:
                if answered is not None:
                    await answered.wait()
            try:
                await self.log.aclose()
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    # -- what a turn works with

    def _host(self) -> Host:
        services, place = self._services, self.place
        cwd = str(place.cwd)
        return Host(
            log=self.log, session=place.session, cwd=place.cwd, roots=self._roots,
            spill=services.store.spill_directory(place.session), provider=services.provider,
            registry=self._registry, ready=self.toolbox.settled, desk=self.view.desk, effects=services.effects,
            ids=services.ids, live=self.view, digester=self._digester,
            system=system_prompt(cwd, place.directories), caller=self._caller,
            root_ordinal=self._root_ordinal, first_request=self._first_request, mode=lambda: self.mode,
            watching=self._watching, configured=lambda config: applied(self.log.state, config),
            grants=self.grants, ask=self.view.ask, fetch=self._fetch, trace=self.trace, delegate=self.delegation,
            warn=services.warn,
        )  # fmt: skip

    def _registry(self) -> Registry:
        """A child has nobody to ask: no child may wait for a person."""
        return self.toolbox.registry(asks=self.view.desk.asks)

    def grants(self) -> Mapping[str, bool]:
        """What the user allowed or refused for the rest of the session."""
        return {**self._inherited_grants(), **self.log.state.grants}

    def _caller(self, purpose: str) -> Caller:
        place, state = self.place, self.log.state
        return Caller(place.session, place.root, place.path, purpose, state.ordinals.get(purpose, 0),
                      str(place.cwd), state.bound, state.model)

    def _root_ordinal(self) -> int | None:
        if self.place.path or self.log.state.has_sent:
            return None
        return self._services.next_root()

    def _first_request(self) -> bool:
        """True once: on this process's first request for the session."""
        first, self._requested = not self._requested, True
        return first

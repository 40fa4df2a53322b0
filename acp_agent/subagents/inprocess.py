"""Children in this process: sessions of their own, run by the delegating call and ended with it."""

from __future__ import annotations

import anyio
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.providers.base import Hop
from acp_agent.session.configuration import Choices
from acp_agent.session.events import (
    ApprovalGrant,
    Event,
    SessionHeader,
    SpawnKey,
    SubagentDescriptor,
)
from acp_agent.session.loading import give_up
from acp_agent.session.log import SessionLog
from acp_agent.session.session import Place, QueuedPrompt, Services, Session
from acp_agent.subagents.results import child_result
from acp_agent.subagents.views import ChildSight, Errand, ViewFactory
from acp_agent.tools.base import Outcome, ToolFailure
from acp_agent.tools.delegation import ChildKind


class InProcessDelegation:
    """Runs the children of one session."""

    def __init__(
        self, services: Services, parent: Session, views: ViewFactory, made: dict[CallId, int] | None = None
    ) -> None:
        """`made` says how many children each delegating call made before this process opened the session."""
        self._services = services
        self._parent = parent
        self._views = views
        self._children = dict(made or {})

    async def delegate(self, kind: ChildKind, call_id: CallId, description: str, prompt: str) -> Outcome:
        """See `tools.delegation.Delegation`."""
        place = self._parent.place
        depth = place.depth + 1
        if depth > self._services.max_depth:
            raise ToolFailure(f"subagent depth {depth} exceeds maxDepth {self._services.max_depth}")
        with anyio.CancelScope(shield=True):  # a child that exists has a log, and a log has its turn
            child, view = await self._create(call_id, depth, Errand(place.session, kind, description, prompt))
        descriptor = SubagentDescriptor(2, "one-shot", kind.value, description or UNSET)
        own = len(child.log.state.nodes)
        self._parent.children.append(child)
        view.begin()
        try:
            admitted = child.admit(prompt, [descriptor], trace=self._parent.trace)
            try:
                await self._finish(child, admitted)
            finally:
                view.ended(admitted.outcome, admitted.error)
        finally:
            self._parent.children.remove(child)
            with anyio.CancelScope(shield=True):
                await child.aclose("parent")
        return child_result(child.log.state.history[own:], admitted.outcome, admitted.error)

    @staticmethod
    async def _finish(child: Session, admitted: QueuedPrompt) -> None:
        """Wait for the child's end. It runs outside this task's cancel scope, so that its log ends properly."""
        try:
            await admitted.done.wait()
        except anyio.get_cancelled_exc_class():
            child.cancel("parent")
            with anyio.CancelScope(shield=True):
                await admitted.done.wait()
            raise

    async def _create(self, call_id: CallId, depth: int, errand: Errand) -> tuple[Session, ChildSight]:
        """A new child; its place among the siblings is settled before anything is waited for."""
        services, parent = self._services, self._parent
        index = self._children.get(call_id, 0)
        self._children[call_id] = index + 1
        state = parent.log.state
        cut = state.last_end if errand.kind is ChildKind.FORK else 0
        header = SessionHeader(
            id=services.ids.session(), created_at=services.clock.created_at(), cwd=parent.log.header.cwd,
            parent_session=parent.place.session, seed_length=cut or UNSET, origin="subagent",
            delegation_depth=depth, spawn=SpawnKey(call_id, index),
        )  # fmt: skip
        # The parent's own spelling of the directory: its tree stays together however a client spells it later.
        path = (*parent.place.path, Hop(call_id, index))
        place = Place(header.id, parent.place.root, path, parent.place.cwd, depth, parent.place.directories)
        view = self._views.child(place, errand)
        log = SessionLog(header, services.store.create(header, place.root), services.clock)
        chosen = Choices.of(state, parent.mode.value)
        if cut:
            try:
                await log.seed(await services.store.fork(header.id, parent.place.session, cut))
            except BaseException:
                await give_up(log)
                raise
        log.append(chosen.whole())
        child = Session(services, place, log, view, parent.grants, parent.toolbox)
        child.delegation = InProcessDelegation(services, child, self._views)

        def told(event: Event) -> None:
            view.event(event)
            if isinstance(event.body, ApprovalGrant):  # "always" holds in the whole session the user sees
                parent.log.append(event.body)

        log.listen(told)
        return child, view

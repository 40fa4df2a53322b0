"""A child as a session of its own, for a client that declared `subagents`: announced, followed, and seen to its end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import UNSET, UnsetType

from acp_agent.acp.outcomes import failure, stop_reason
from acp_agent.acp.projection import Projection
from acp_agent.acp.schema import Idle, RequiresAction, Running, SubagentUpdate, TokenUsage, WireError
from acp_agent.acp.services import ChildDesk, ClientDesk
from acp_agent.acp.view import ClientView
from acp_agent.errors import AgentError
from acp_agent.ids import SessionId
from acp_agent.loop.host import Answer, Question
from acp_agent.session.events import AssistantMessage, Event, TurnOutcome, Usage
from acp_agent.subagents.views import Errand
from acp_agent.tools.views import shorten

LABEL = "subagent"
"""What a child is called that was given no description."""


class ChildSessionView(ClientView):
    """A child's own traffic goes to its own session; how it is doing is told on its parent's."""

    def __init__(self, parent: ClientView, session: SessionId, projection: Projection, errand: Errand) -> None:
        services = parent.services.of(session)
        super().__init__(parent.client, session, projection, services)
        self.desk = ChildDesk(ClientDesk(services, self._wire_id))
        self._parent = parent
        self._errand = errand
        self._questions = 0
        self._usages: list[Usage] = []

    def begin(self) -> None:
        """Announce it, at work."""
        self._announce(Running())

    def retold(self) -> None:
        """Announce it, whose history is going to be shown. What it does now is told at the end."""
        self._announce(UNSET)

    def _announce(self, state: Running | UnsetType) -> None:
        errand = self._errand
        self._parent.update(SubagentUpdate(
            self.session, title=errand.label or LABEL, description=f"{errand.kind}: {shorten(errand.prompt, 200)}",
            state=state, cwd=_differs(self.projection.cwd, self._parent.projection.cwd),
        ))  # fmt: skip

    def event(self, event: Event) -> None:
        self._note_usage(event)
        super().event(event)

    def past(self, event: Event, *, show: bool) -> None:
        self._note_usage(event)
        super().past(event, show=show)

    def _note_usage(self, event: Event) -> None:
        if isinstance(event.body, AssistantMessage) and event.body.usage is not UNSET:
            self._usages.append(event.body.usage)

    async def ask(self, question: Question) -> Answer:
        """As any session; while a question is open the child waits for the user."""
        self._questions += 1
        if self._questions == 1:
            self._tell(RequiresAction())
        try:
            return await super().ask(question)
        finally:
            self._questions -= 1
            if not self._questions:
                self._tell(Running())

    def ended(self, outcome: TurnOutcome | None, error: AgentError | None = None) -> None:
        """Say how its work ended, and what it took."""
        problem = error or failure(outcome)
        usage = total(self._usages)
        if problem is not None:
            self._tell(Idle("error", WireError(problem.code, problem.message), usage))
        else:
            self._tell(Idle(stop_reason(outcome) or UNSET, usage=usage))

    def _tell(self, state: Running | RequiresAction | Idle) -> None:
        self._parent.update(SubagentUpdate(self.session, state=state))


def _differs(own: Path, parents: Path) -> str | UnsetType:
    return UNSET if own == parents else str(own)


def total(usages: Iterable[Usage]) -> TokenUsage | UnsetType:
    """The tokens of some answers together; nothing of none."""
    counted = list(usages)
    if not counted:
        return UNSET
    return TokenUsage(
        sum(usage.total for usage in counted), sum(usage.input_tokens for usage in counted),
        sum(usage.output_tokens for usage in counted),
        cached_read_tokens=_sum(usage.cache_read_tokens for usage in counted),
        cached_write_tokens=_sum(usage.cache_write_tokens for usage in counted),
    )  # fmt: skip


def _sum(counts: Iterable[int | UnsetType]) -> int | UnsetType:
    known = [count for count in counts if count is not UNSET]
    return sum(known) if known else UNSET

"""What a child's end means for the parent's delegating call (format reference 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.errors import AgentError
from acp_agent.providers.base import Surface
from acp_agent.session.events import (
    Aborted,
    AssistantMessage,
    Blocked,
    Completed,
    Failed,
    Interrupted,
    MaxTokens,
    TextBlock,
    TurnOutcome,
)
from acp_agent.tools.base import Outcome


def child_result(history: Sequence[Surface], outcome: TurnOutcome | None, error: AgentError | None) -> Outcome:
    """The delegating call's outcome. `history` is the child's own part: nothing inherited counts."""
    output = last_text(history)
    if isinstance(outcome, Completed):
        return Outcome.text(output)
    headline, diagnostic = _headline(outcome, error)
    parts = [headline]
    if diagnostic:
        parts.append(f"Diagnostic: {diagnostic}")
    if output:
        parts.append(f"Partial output before the run ended:\n{output}")
    return Outcome.failure("\n".join(parts))


def last_text(history: Sequence[Surface]) -> str:
    """The text of the last assistant message that has any content at all, reasoning included."""
    for message in reversed(history):
        if isinstance(message, AssistantMessage) and message.message.content:
            return "".join(block.text for block in message.message.content if isinstance(block, TextBlock))
    return ""


def _headline(outcome: TurnOutcome | None, error: AgentError | None) -> tuple[str, str]:
    if error is not None:
        return "subagent run failed", error.message
    match outcome:
        case MaxTokens():
            return "subagent run hit its token limit before finishing", ""
        case Aborted():
            return "subagent run was cancelled", ""
        case Blocked():
            return "subagent declined the task", ""
        case Failed():
            return "subagent run failed", outcome.error.message
        case Interrupted() | Completed() | None:
            return "subagent run failed", ""

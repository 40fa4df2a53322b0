"""What the delegation tools need of a session: somebody who runs a child for them."""

from __future__ import annotations

import enum
from typing import Protocol

from acp_agent.ids import CallId
from acp_agent.tools.base import Outcome


class ChildKind(enum.StrEnum):
    """How a child begins: with an empty history, or with the parent's completed turns."""

    SPAWN = "spawn"
    FORK = "fork"


class Delegation(Protocol):
    """Runs children of one session."""

    async def delegate(self, kind: ChildKind, call_id: CallId, description: str, prompt: str) -> Outcome:
        """Run a child to its end and give back what it said, or why it could not.

        A cancelled caller cancels the child and waits until it has ended.
        """
        ...

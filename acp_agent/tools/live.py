"""Live effects: tools run, and nobody compares."""

from __future__ import annotations

from acp_agent.ids import BlobId, SessionId
from acp_agent.tools.base import CallKey, Outcome, RecordedCall


class LiveEffects:
    """Every call runs for real."""

    def recorded(self, key: CallKey) -> RecordedCall | None:  # noqa: ARG002  # contract
        return None

    def observe(self, key: CallKey, outcome: Outcome) -> None:
        """Nothing to compare with."""

    def image(self, session: SessionId, blob: BlobId) -> bytes | None:  # noqa: ARG002  # contract
        """Whoever made an image stored it."""
        return None

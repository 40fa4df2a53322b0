"""What passed between a client and an agent, and questions about it."""

from __future__ import annotations

from tests.support.laws import Entry
from tests.support.schema import Frame


class Transcript:
    """Everything that passed, in the order it was seen: what was sent stands before its answer."""

    def __init__(self) -> None:
        self.transcript: list[Entry] = []

    @property
    def position(self) -> int:
        """Where the transcript ends now: pass it as `since` to wait for what comes later."""
        return len(self.transcript)

    @property
    def received(self) -> list[Frame]:
        """The frames the agent sent so far."""
        return [entry.frame for entry in list(self.transcript) if entry.sender == "agent"]

    def call_methods(self) -> list[str]:
        """The methods the client used so far, in order."""
        frames = [entry.frame for entry in self.transcript if entry.sender == "client"]
        return [frame["method"] for frame in frames if isinstance(frame, dict) and "method" in frame]

    def updates(self, session: str | None = None, *, since: int = 0) -> list[Frame]:
        """The updates the agent sent so far, of one session or of all."""
        frames = [entry.frame for entry in self.transcript[since:] if entry.sender == "agent"]
        return [frame["params"]["update"] for frame in frames if isinstance(frame, dict)
                and frame.get("method") == "session/update" and session in (None, frame["params"]["sessionId"])]

    def text(self, session: str, *, since: int = 0) -> str:
        """The agent's visible text in a session so far."""
        return "".join(update["content"].get("text", "") for update in self.updates(session, since=since)
                       if update["sessionUpdate"] == "agent_message_chunk")

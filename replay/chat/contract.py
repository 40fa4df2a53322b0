"""What a link to an agent needs of others, and how what goes through it can fail."""

from __future__ import annotations

from typing import Protocol

from msgspec import Raw, Struct


class Refused(Exception):
    """One side answers a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"error {self.code}: {self.message}"


class Unreadable(Refused):
    """The agent's answer is none: it is shown nowhere else, unlike an error that it sent."""


class AgentGone(Exception):
    """The agent ended, or closed its stdout, though it is still needed. The message says how."""


class Observer(Protocol):
    """Sees everything that passes, in order."""

    def sent(self, line: bytes) -> None:
        """A line to the agent."""
        ...

    def received(self, line: bytes) -> None:
        """A JSON-RPC message of the agent's."""
        ...

    def junk(self, line: bytes, why: str) -> None:
        """A line on the agent's stdout that is no JSON-RPC message."""
        ...

    def stderr(self, text: str) -> None:
        """A line on the agent's stderr."""
        ...


class Client(Protocol):
    """Who the agent talks to."""

    async def serve(self, method: str, params: Raw) -> Struct:
        """Answer a request of the agent's. Raises `Refused`."""
        ...

    def child_ended(self) -> None:
        """A child process of ours has ended, whichever."""
        ...

    def gone(self, how: AgentGone) -> None:
        """The agent is gone though nobody ended it. Called once, after every open call was failed."""
        ...

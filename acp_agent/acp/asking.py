"""The client as somebody to ask: what its services have in common.

What a client's program answers by itself has a generous time limit; what only its user can answer has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from acp_agent.acp.handshake import Wire

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds that a client has for an answer which is its program's own. Some ask their user first."""


class Asking(Protocol):
    """The client as somebody to ask."""

    async def request(
        self, method: str, params: Struct, result_type: type[T], late: Callable[[T], None] | None = None
    ) -> T:
        """Ask, and wait for the answer; `late` is given what a cancelled request still came to. Raises `PeerError`."""
        ...

    def tell(self, method: str, params: Struct) -> None:
        """Ask for something whose answer does not matter, also where none can come. Does not wait."""
        ...


class Done(Wire, frozen=True):
    """A result without members that matter."""


def silence(patience: float) -> str:
    """What is to be said of a client that did not answer in time."""
    return f"the client did not answer within {patience:g} seconds"

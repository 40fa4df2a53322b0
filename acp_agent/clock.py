"""Wall time, injected wherever a moment is written down."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Epoch milliseconds for logs."""

    def now(self) -> int:
        """The present moment in epoch milliseconds; may stand still or step back with the system's clock."""
        ...

    def created_at(self) -> int:
        """A moment for a session's header, strictly greater than any this clock gave before."""
        ...


class SystemClock:
    """The operating system's clock."""

    def __init__(self) -> None:
        self._last_created = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def created_at(self) -> int:
        self._last_created = max(self.now(), self._last_created + 1)
        return self._last_created

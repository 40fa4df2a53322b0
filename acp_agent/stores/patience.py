"""How long a store may wait for somebody else's lock, as far as whoever asked still has the time.

A turn that is cancelled has to be answered at once, but what it stores must not be broken off in its middle. So it
does not cancel the storing: it runs with a `Patience`, which the store looks at before it waits again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Patience:
    """Lasts until it is told to end, and never longer than the one that ruled where it was made."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._until = time.monotonic() + seconds
        self._around = _ruling.get()

    def ends_in(self, seconds: float) -> None:
        """Let waiting end so soon, or when it was to end anyway."""
        self._until = min(self._until, time.monotonic() + seconds)

    def ended(self) -> bool:
        """Whether there is no time to wait any longer."""
        return time.monotonic() >= self._until or (self._around is not None and self._around.ended())

    def used_up(self) -> None:
        """If it has lasted its whole time, those around it have waited in vain as well, and do not begin again."""
        if time.monotonic() >= self._until and self._around is not None:
            self._around.ends_in(0)
            self._around.used_up()

    @contextmanager
    def rules(self) -> Iterator[None]:
        """What is stored in the block waits no longer than this lasts."""
        token = _ruling.set(self)
        try:
            yield
        finally:
            _ruling.reset(token)


_ruling: ContextVar[Patience | None] = ContextVar("patience", default=None)

"""Long reading in a thread that lets the event loop in.

Decoding holds the interpreter. A thread that decodes tens of megabytes would make the loop wait for it, up to the
interpreter's switch interval (5 ms), each of the many times that the loop wakes in one prompt. So the thread gives the
interpreter up by itself: now and then while nobody wants it, and often while somebody does, which it tells by what
other threads of the process did meanwhile. How long a rest took would not tell: on a busy machine they all take long.
"""

from __future__ import annotations

import time

CALM = 0.001
"""Seconds of decoding between two rests while nobody else wants the interpreter."""

BUSY = 0.0001
"""The same while somebody does."""

REST = 0.00005
"""Seconds of a rest: enough for a loop that waits to take over."""

TURN = 0.00002
"""Seconds of the processor: a rest in which other threads used so many was somebody else's turn."""


class Pace:
    """Times one thread's work; `breathe` is called after each small piece of it.

    `calm` says that nobody else wanted the interpreter lately: pieces may be larger then, which makes less of them.
    """

    def __init__(self) -> None:
        self.calm = False
        self._until = time.perf_counter() + BUSY

    def breathe(self) -> None:
        """Rest if it is time to."""
        if time.perf_counter() < self._until:
            return
        used = _used_by_others()
        time.sleep(REST)
        self.calm = _used_by_others() - used <= TURN
        self._until = time.perf_counter() + (CALM if self.calm else BUSY)


def _used_by_others() -> float:
    """Seconds of the processor."""
    return time.process_time() - time.thread_time()

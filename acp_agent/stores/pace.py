"""Long reading in a thread that lets the event loop in.

Decoding holds the interpreter. A thread that decodes tens of megabytes would make the loop wait for it, up to the
interpreter's switch interval (5 ms), each of the many times that the loop wakes in one prompt. So the thread gives the
interpreter up by itself: now and then while nobody wants it, and often while somebody does, which it tells by how long
it takes to get it back. Measured on two busy cores, 20 exchanges with a subprocess beside a load of 50 MB: 14 to 23 ms
more without, 2 ms (median) with these numbers.
"""

from __future__ import annotations

import time

CALM = 0.0005
"""Seconds of decoding between two rests while nobody else wants the interpreter."""

BUSY = 0.0001
"""The same while somebody does."""

REST = 0.00005
"""Seconds of a rest: enough for a loop that waits to take over."""

LATE = 0.0002
"""A rest that took so many seconds was somebody else's turn."""


class Pace:
    """Times one thread's work; `breathe` is called after each small piece of it."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + BUSY

    def breathe(self) -> None:
        """Rest if it is time to."""
        now = time.perf_counter()
        if now < self._until:
            return
        time.sleep(REST)
        woken = time.perf_counter()
        self._until = woken + (BUSY if woken - now > LATE else CALM)

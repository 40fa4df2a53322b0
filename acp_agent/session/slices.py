"""Long work on the event loop, done in slices so that whatever else is going on keeps its pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from time import perf_counter
from typing import TypeVar

_T = TypeVar("_T")

_SLICE = 0.0004
"""Seconds of work between two looks at what else there is to do."""

_AT_ONCE = 16
"""Items between two looks at the clock."""

_QUIET = 0.00015
"""A turn of the loop that took fewer seconds than this had nothing else to do."""

_PATIENCE = 10
"""Turns of the loop that are left to others in a row."""


class Slices:
    """The pace of one piece of long work. Await `pause` often: most calls return at once."""

    def __init__(self) -> None:
        self._until = perf_counter() + _SLICE

    async def pause(self) -> None:
        """Let others run if the slice is used up: for as long as they are busy, within limits.

        What they do takes many turns of the loop (a prompt takes dozens), and each turn would wait for a slice.
        """
        if perf_counter() < self._until:
            return
        for _ in range(_PATIENCE):
            before = perf_counter()
            await asyncio.sleep(0)
            if perf_counter() - before < _QUIET:
                break
        self._until = perf_counter() + _SLICE


async def in_slices(work: Callable[[_T], object], items: Iterable[_T]) -> None:
    """Do `work` on each item, in order."""
    slices, iterator = Slices(), iter(items)
    while batch := tuple(islice(iterator, _AT_ONCE)):
        for item in batch:
            work(item)
        await slices.pause()

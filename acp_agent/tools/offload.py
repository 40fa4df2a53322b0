"""Where a piece of file work runs: at once while it is small, in a thread when it would hold up the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE = 1024 * 1024
"""Bytes up to which working on the event loop is quicker than handing over to a thread."""


async def run_sized(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work(*args)`, which handles about `size` bytes. It is always finished, also when cancelled meanwhile."""
    if size <= INLINE:
        return work(*args, **kwargs)
    from functools import partial

    from anyio import to_thread

    return await to_thread.run_sync(partial(work, *args, **kwargs))

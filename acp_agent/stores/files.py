"""File work that the stores share: private directories, whole writes, names that are on the device."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio

_T = TypeVar("_T")

sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def make_private(directory: Path) -> int:
    """Make a directory and its missing parents, for their owner alone: logs hold whatever a user works on.

    Returns how many were made.
    """
    try:
        mode = directory.stat().st_mode  # one look: between two, somebody else may make it
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise
        if directory.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, f"{directory} is a symbolic link that leads nowhere") from None
    else:
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return 0
    made = make_private(directory.parent)
    directory.mkdir(exist_ok=True, mode=0o700)
    return made + 1


def advice(error: OSError, otherwise: str) -> str:
    """What helps when something cannot be written: `otherwise`, but for a full disk."""
    return "the disk is full; free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else otherwise


def write_all(fd: int, data: bytes | bytearray) -> None:
    """`os.write` until everything is written."""
    view = memoryview(data)
    try:
        while view:
            written = os.write(fd, view)
            view = view[written:]
    finally:
        view.release()


def sync_directories(directory: Path, count: int) -> None:
    """Wait until the names in a directory, and in so many above it, are on the device."""
    for _ in range(count):
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        directory = directory.parent


async def in_thread(function: Callable[[], _T]) -> _T:
    """Run blocking file work off the event loop; a cancelled caller still waits until it is done."""
    work = asyncio.get_running_loop().run_in_executor(None, function)
    with anyio.CancelScope(shield=True):
        await asyncio.wait([work])
    return work.result()

"""Tool output that was too long for a log: files beside it, which belong to the whole tree.

A log names them by the path at which they were made, for good; they keep their names wherever the tree goes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from acp_agent.errors import StoreError
from acp_agent.stores.files import sync_directories


def files(directory: Path) -> list[Path]:
    """The files that tools left in a directory, sorted. A link is nothing a tool left. Raises `StoreError`."""
    try:
        return sorted(one for one in directory.iterdir() if stat.S_ISREG(one.lstat().st_mode))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{directory}: the kept tool output cannot be looked at: {error.strerror or error}") from None


def copy(sources: Sequence[Path], directory: Path) -> None:
    """Give a tree files of another place; they are on the device when this returns. Raises `StoreError`."""
    if not sources:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for source in sources:
            _copy(source, directory / source.name)
        sync_directories(directory, 2)
    except OSError as error:
        raise StoreError(f"{error.filename or directory}: kept tool output cannot be copied into {directory}: "
                         f"{error.strerror or error}") from None


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as reading:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as writing:
            shutil.copyfileobj(reading, writing)
            writing.flush()
            os.fsync(writing.fileno())

"""A log that is open for writing, and what something else may do to it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from acp_agent.errors import StoreError


def check_unchanged(path: Path, fd: int, written: int, *, torn: bool) -> None:
    """Check that an open file still is the log at `path`, of so many bytes `written`, and more only where it is `torn`.

    Raises `StoreError` for a log that was removed, replaced or changed from outside: what is appended to it would be
    lost, or end a line that is no record any more.
    """
    opened = os.fstat(fd)
    try:
        named = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _changed(path, "it was removed while the session was open; put it back, close the session, and load it "
                             "again") from None
    if not os.path.samestat(named, opened):
        raise _changed(path, "another file was put in its place while the session was open; close the session, and "
                             "load it again to go on with that one")
    if opened.st_size < written or (opened.st_size > written and not torn):
        raise _changed(path, f"something else changed it while the session was open: it has {opened.st_size} bytes "
                             f"where {written} were written; close the session, and load it again to go on with what "
                             "is there")


def _changed(path: Path, found: str) -> StoreError:
    return StoreError(f"{path}: the session log cannot be written: {found}")

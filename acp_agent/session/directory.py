"""The directory a session works in."""

from __future__ import annotations

import os
from pathlib import Path

from acp_agent.errors import InvalidParams


def absolute(cwd: str) -> Path:
    """A directory as a client names it. Raises `InvalidParams` for a relative path."""
    if not os.path.isabs(cwd):  # noqa: PTH117  # Path("") would read as "."
        raise InvalidParams(f"cwd must be an absolute path, got {cwd!r}", cwd=cwd)
    return Path(cwd)


def working_directory(cwd: str) -> Path:
    """A session's directory. Raises `InvalidParams` naming what is wrong with it."""
    directory = absolute(cwd)
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise InvalidParams(f"cwd {cwd!r} {what}", cwd=cwd)
    if not os.access(directory, os.R_OK | os.X_OK):
        raise InvalidParams(f"cwd {cwd!r} cannot be entered", cwd=cwd)
    return directory

"""The directories a session works in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acp_agent.errors import InvalidParams


def absolute(path: str, name: str = "cwd") -> Path:
    """A directory as a client names it; `name` is the parameter's. Raises `InvalidParams` for a relative path."""
    if not os.path.isabs(path):  # noqa: PTH117  # Path("") would read as "."
        raise _refused(name, path, f"must be an absolute path, got {path!r}")
    return Path(path)


def _refused(name: str, path: str, why: str) -> InvalidParams:
    return InvalidParams(f"{name} {why}", **{name.partition("[")[0]: path})


def working_directory(path: str, name: str = "cwd") -> Path:
    """A directory of a session's. Raises `InvalidParams` naming the parameter and what is wrong with it."""
    directory = absolute(path, name)
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise _refused(name, path, f"{path!r} {what}")
    if not os.access(directory, os.R_OK | os.X_OK):
        raise _refused(name, path, f"{path!r} cannot be entered")
    return directory


def further_directories(paths: Sequence[str]) -> tuple[Path, ...]:
    """The roots a session has beside its working directory, in order, equal ones once (ACP digest 6.2).

    Raises `InvalidParams` naming the entry that cannot be granted.
    """
    named = (working_directory(path, f"additionalDirectories[{at}]") for at, path in enumerate(paths))
    return tuple(dict.fromkeys(named))

"""The directories a session works in."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from acp_agent.errors import InvalidParams

_SHOWN = 200
"""Characters of a path that a refusal repeats."""


def absolute(path: str, name: str = "cwd") -> Path:
    """A directory that a client names, as sessions are stored and listed by it (`plain`); `name` is the parameter's.

    Raises `InvalidParams` for a relative path.
    """
    if not os.path.isabs(path):  # noqa: PTH117  # Path("") would read as "."
        raise _refused(name, path, f"must be an absolute path, got {_short(path)}")
    return Path(plain(path))


def plain(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes that names the same directory.

    Links stay as they are, so that a user finds the spelling again; but not where `..` leads out of one. Of a directory
    that is not there, nothing is looked at.
    """
    short = "/" + os.path.normpath(path).lstrip("/")
    if ".." not in path.split("/"):
        return short
    try:
        there = os.stat(path)  # noqa: PTH116  # as below
    except (OSError, ValueError):
        return short
    with suppress(OSError):
        if os.path.samestat(there, os.stat(short)):  # noqa: PTH116
            return short
    return os.path.realpath(path)


def same_directory(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one directory, however they are spelt. Any text may be stored as a path."""
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:
        return one == other


def _refused(name: str, path: str, why: str) -> InvalidParams:
    return InvalidParams(f"{name} {why}", **{name.partition("[")[0]: path})


def _short(path: str) -> str:
    return repr(path) if len(path) <= _SHOWN else f"{path[:_SHOWN]!r}... ({len(path)} characters)"


def working_directory(path: str, name: str = "cwd") -> Path:
    """A directory of a session's. Raises `InvalidParams` naming the parameter and what is wrong with it."""
    directory = absolute(path, name)
    try:
        if not stat.S_ISDIR(directory.stat().st_mode):
            raise _refused(name, path, f"{_short(path)} is not a directory")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise _refused(name, path, f"{_short(path)} does not exist") from None
    except OSError as error:
        raise _refused(name, path, f"{_short(path)} cannot be entered: {error.strerror}") from None
    if not os.access(directory, os.R_OK | os.X_OK):
        raise _refused(name, path, f"{_short(path)} cannot be entered: {os.strerror(errno.EACCES)}")
    return directory


def further_directories(paths: Sequence[str]) -> tuple[Path, ...]:
    """The roots a session has beside its working directory, in order, equal ones once (ACP digest 6.2).

    Raises `InvalidParams` naming the entry that cannot be granted.
    """
    named = (working_directory(path, f"additionalDirectories[{at}]") for at, path in enumerate(paths))
    return tuple(dict.fromkeys(named))

"""Which file a path argument means, whether the session may touch it, and opening exactly that file.

A path is resolved once, to a real path without symlinks, and checked against the session's roots. Opening then
walks from the root downwards and follows no symlink, so that a directory swapped for a link after the check
leads to an error instead of outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from acp_agent.tools.base import Observation, ToolContext, ToolFailure

# A directory is only passed through, so permission to search it is enough where the system can say that.
_PASS = os.O_PATH if sys.platform == "linux" else os.O_RDONLY
_DIRECTORY = _PASS | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Target(Struct, frozen=True):
    """A file named by a call.

    shown   absolute path as the model and the client see it: joined to the session's directory, normalised
    real    the same without symlinks: what is opened, and what observations are kept under
    root    the directory from which opening walks down
    """

    shown: str
    real: str
    root: str


def shown_path(argument: str, cwd: Path) -> str:
    """A path argument as an absolute path. Pure: symlinks stay."""
    return os.path.normpath(os.path.join(cwd, argument))  # noqa: PTH118 - Path would keep ".." parts


def resolve(argument: str, context: ToolContext, verb: str, *extra_roots: Path) -> Target:
    """The file meant by `argument` (relative to the session's directory; `~` has no meaning).

    `verb` begins error texts ("read"). `extra_roots` are allowed beside the session's. Raises `ToolFailure`
    with code FS_OUTSIDE_ROOTS for a real path outside all roots, unless the session is not confined.
    """
    shown = shown_path(argument, context.cwd)
    if "\0" in argument:
        raise ToolFailure(f"cannot {verb} {argument!r}: a path has no NUL character", "FsError", "FS_BAD_PATH")
    real = os.path.realpath(shown)
    roots = (*map(str, context.roots), *(os.path.realpath(root) for root in extra_roots))
    for root in roots:
        if is_inside(real, root):
            return Target(shown, real, root)
    if not context.confined:
        return Target(shown, real, "/")
    led = "it is" if real == shown else f'it leads to "{real}",'
    allowed = ", ".join(f'"{root}"' for root in context.roots)
    raise ToolFailure(
        f'cannot {verb} "{shown}": {led} outside the session\'s directories ({allowed})',
        "FsError", "FS_OUTSIDE_ROOTS",
    )


def is_inside(real: str, root: str) -> bool:
    """Whether a real path is `root` or below it."""
    return real == root or real.startswith(root.rstrip("/") + "/")


@contextlib.contextmanager
def reporting(target: Target, verb: str) -> Iterator[None]:
    """Turns the operating system's errors into a `ToolFailure` that names the file.

    A missing file is reported with the observation that it is absent.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(target, verb) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno == errno.ELOOP:
            reason = "a symlink appeared in its path"
        code = "FS_ACCESS_DENIED" if isinstance(error, PermissionError) else "FS_IO"
        raise ToolFailure(f'cannot {verb} "{target.shown}": {reason}', "FsError", code) from None


def not_found(target: Target, verb: str) -> ToolFailure:
    """The failure for a file that is not there; its absence is an observation (format reference 7.4)."""
    return ToolFailure(
        f'cannot {verb} "{target.shown}": not found', "FsError", "FS_NOT_FOUND",
        observed=(Observation(target.real, None),),
    )


def check_regular(target: Target, verb: str) -> os.stat_result:
    """The file's state, without opening it: opening a FIFO or a device may block or do something.

    Raises `ToolFailure` with code FS_NOT_REGULAR_FILE for anything but a file, and OSError as the system does.
    """
    state = os.lstat(target.real)
    if stat.S_ISREG(state.st_mode):
        return state
    what = "it is a directory" if stat.S_ISDIR(state.st_mode) else "it is not a regular file"
    raise ToolFailure(f'cannot {verb} "{target.shown}": {what}', "FsError", "FS_NOT_REGULAR_FILE")


@contextlib.contextmanager
def parent_directory(target: Target, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the directory that holds the file, and the file's name in it.

    Follows no symlink below the root. With `create`, missing directories are made. Raises OSError.
    """
    *between, name = os.path.relpath(target.real, target.root).split("/")
    current = os.open(target.root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for part in between:
            deeper = _enter(current, part, create=create)
            os.close(current)
            current = deeper
        yield current, name
    finally:
        os.close(current)


def _enter(parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


@contextlib.contextmanager
def open_regular(target: Target, verb: str) -> Iterator[int]:
    """A descriptor for reading the file. Never blocks: what is not a regular file is refused.

    Raises as `check_regular` does.
    """
    check_regular(target, verb)
    with parent_directory(target) as (directory, name):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ToolFailure(f'cannot {verb} "{target.shown}": it is not a regular file', "FsError",
                              "FS_NOT_REGULAR_FILE")
        yield file
    finally:
        os.close(file)

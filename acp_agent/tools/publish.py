"""Putting a file's new content in place at once: nobody ever sees half of it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from acp_agent.tools.paths import Target, parent_directory


def create_file(target: Target, data: bytes) -> os.stat_result:
    """Make a file that must not exist yet, and its missing parent directories; the new file's state.

    Raises FileExistsError when something is there, however late it came; other OSErrors as the system does.
    """
    with parent_directory(target, create=True) as (directory, name):
        with _temporary(directory, data, 0o666) as (temporary, state):
            try:
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                # Some file systems have no hard links; there the content follows the name. Where something is in
                # the way already, that fails too.
                return _create_in_place(directory, name, data)
        return state


def replace_file(target: Target, data: bytes, old: os.stat_result) -> os.stat_result:
    """Put new content in place of an existing file, whose mode (and owner, if allowed) it keeps.

    Raises OSError; the old content then still stands.
    """
    with parent_directory(target) as (directory, name):
        if not os.access(name, os.W_OK, dir_fd=directory):
            raise PermissionError(errno.EACCES, "permission denied")
        with _temporary(directory, data, 0o600) as (temporary, _):
            _keep_attributes(directory, temporary, old)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)


@contextlib.contextmanager
def _temporary(directory: int, data: bytes, mode: int) -> Iterator[tuple[str, os.stat_result]]:
    """A file with the content, gone afterwards unless renamed."""
    name = f".acp-{os.urandom(8).hex()}.tmp"
    try:
        yield name, _create_in_place(directory, name, data, mode)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _create_in_place(directory: int, name: str, data: bytes, mode: int = 0o666) -> os.stat_result:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, mode, dir_fd=directory)
    try:
        _write_all(file, data)
        return os.fstat(file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _keep_attributes(directory: int, name: str, old: os.stat_result) -> None:
    file = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        new = os.fstat(file)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(file, old.st_uid, old.st_gid)
        os.fchmod(file, stat.S_IMODE(old.st_mode))
    finally:
        os.close(file)

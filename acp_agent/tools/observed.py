"""What a session saw of a file, and the gate that keeps it from changing what it did not see.

A version is a string that tells a file's states apart, also in another process: a digest of the content, or
size and modification time where reading everything would cost too much.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from acp_agent.tools.base import ToolFailure
from acp_agent.tools.paths import Target

DIGEST_LIMIT = 16 * 1024 * 1024
"""Bytes up to which a version is a digest of the content."""

_CHUNK = 1024 * 1024


class Versioner:
    """Works out a file's version from its bytes as they go by."""

    def __init__(self, limit: int | None = DIGEST_LIMIT) -> None:
        """Up to `limit` bytes the version is a digest; None: always."""
        from hashlib import blake2b

        self._digest = blake2b(digest_size=16)
        self._size = 0
        self._limit = limit

    def update(self, data: bytes) -> None:
        """The file's next bytes."""
        self._size += len(data)
        if self._limit is None or self._size <= self._limit:
            self._digest.update(data)

    def digest(self) -> str:
        """The version as a digest of all bytes."""
        return f"blake2b:{self._digest.hexdigest()}"

    def version(self, state: os.stat_result) -> str:
        """The version; `state` is the file's after its last byte was read or written."""
        if self._limit is None or self._size <= self._limit:
            return self.digest()
        return _stat_version(state)


def version_of_content(data: bytes, state: os.stat_result) -> str:
    """The version of a file that holds `data`."""
    versioner = Versioner()
    versioner.update(data)
    return versioner.version(state)


def version_of_open(file: int) -> str:
    """The version of an open file, read from its beginning; leaves the position at the end."""
    if os.fstat(file).st_size > DIGEST_LIMIT:
        return _stat_version(os.fstat(file))
    versioner = Versioner()
    os.lseek(file, 0, os.SEEK_SET)
    while data := os.read(file, _CHUNK):
        versioner.update(data)
    return versioner.version(os.fstat(file))


def version_of(path: str) -> str:
    """The version of the regular file at `path`. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return version_of_open(file)
    finally:
        os.close(file)


def _stat_version(state: os.stat_result) -> str:
    return f"stat:{state.st_size}:{state.st_mtime_ns}"


def require_seen(target: Target, seen: Mapping[str, str | None], refusal: str) -> str:
    """The version this session saw of an existing file.

    Raises `ToolFailure` with `refusal` and code FS_NOT_OBSERVED when it saw none, or saw the file absent.
    """
    version = seen.get(target.real)
    if version is None:
        raise ToolFailure(refusal, "FsError", "FS_NOT_OBSERVED")
    return version


def require_unchanged(target: Target, seen_version: str, version: str | None) -> None:
    """Raises `ToolFailure` with code FS_STALE_VERSION when the file is not what was seen; None: it is gone."""
    if version != seen_version:
        raise stale(target)


def stale(target: Target) -> ToolFailure:
    """The failure for a file that is no longer what the session saw."""
    return ToolFailure(
        f'"{target.shown}" changed since it was read — read the file again, then retry',
        "FsError", "FS_STALE_VERSION",
    )

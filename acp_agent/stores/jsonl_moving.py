"""Whole trees brought into the store and taken out of it: all of one, or nothing, whenever the process is killed.

A tree on its way has a name that begins with a dot, and its lock is held; what is left of a killed process is free, and
goes when the next tree comes or goes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import LogDamaged, SessionHeld, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import SessionHeader
from acp_agent.stores import layout, outputs
from acp_agent.stores.base import Tree
from acp_agent.stores.files import advice, make_private, sync_directories, write_all
from acp_agent.stores.jsonl_reading import CHUNK, Settled, delegated, open_log, settle
from acp_agent.stores.jsonl_titles import beyond_head, note_title
from acp_agent.stores.jsonl_tree import remove_unfinished
from acp_agent.stores.locks import TreeLock
from acp_agent.stores.pace import Pace

GOING = ".deleted"
COMING = ".adopting"


def remove(directory: Path, session_id: SessionId) -> None:
    """Take a root session's directory out of the store. Raises `SessionHeld`, `SessionNotFound` and `StoreError`."""
    remove_leftovers(directory.parent)
    try:
        lock = TreeLock.take(directory / layout.LOCK, session_id)
    except FileNotFoundError:
        raise SessionNotFound(session_id) from None
    except OSError as error:
        raise _undeletable(directory, error) from error
    gone = _transient(directory.parent, GOING)
    try:
        directory.rename(gone)
        lock.moved(gone / layout.LOCK)
        sync_directories(directory.parent, 1)
    except OSError as error:
        lock.release()
        raise _undeletable(directory, error) from error
    _clear(gone, lock)


def _undeletable(directory: Path, error: OSError) -> StoreError:
    return StoreError(f"{directory}: the session cannot be deleted: {error.strerror or error}; make the directory and "
                      "the one it is in writable, and try again")


def remove_leftovers(project: Path) -> None:
    """Remove what killed processes left of trees on their way, unless somebody is still at it."""
    with contextlib.suppress(OSError), os.scandir(project) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith((GOING, COMING)):
                left = Path(entry.path)
                with contextlib.suppress(SessionHeld, OSError):
                    linked = entry.is_symlink()
                    _clear(left, None if linked else TreeLock.take(left / layout.LOCK, SessionId(left.name)))


def _clear(directory: Path, lock: TreeLock | None) -> None:
    """Remove a tree that no list shows any more, its lock last. What cannot be removed now is left for later."""
    try:
        if directory.is_symlink():
            directory.unlink()
            return
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != layout.LOCK:
                    os.unlink(entry.path)  # noqa: PTH108  # no Path is needed for it
    except OSError:
        pass
    finally:
        if lock is not None:
            lock.release()
    with contextlib.suppress(OSError):
        directory.rmdir()


def _transient(project: Path, end: str) -> Path:
    return project / f".{os.urandom(8).hex()}{end}"


# ---------------------------------------------------------------- coming in


class _Log(Struct):
    """A log that is to come in."""

    source: Path
    name: str
    settled: Settled


def adopt(root: Path, tree: Tree, taken: Callable[[SessionId], str | None]) -> tuple[SessionHeader, Path]:
    """Bring a tree into the store at `root`; the root's header, and its new directory.

    `taken` tells where a session's id is used already. Raises `LogDamaged` and `StoreError`.
    """
    logs = _checked(tree)
    header = logs[0].settled.header
    for log in logs:
        where = taken(log.settled.header.id)
        if where is not None:
            raise StoreError(f"{log.source}: session {log.settled.header.id!r} is stored already: {where}; delete it "
                             "first, or leave it as it is")
    directory = layout.session_directory(root, header.cwd, header.id)
    try:
        made = make_private(directory.parent)
        remove_leftovers(directory.parent)
        coming, lock = _begin(directory.parent, header.id)
        try:
            _fill(coming, logs, tree)
            _vacate(directory, header.id)
            coming.rename(directory)
            lock.moved(directory / layout.LOCK)
        except BaseException:
            _clear(coming, lock)
            raise
        try:
            sync_directories(directory.parent, made + 1)
        finally:
            lock.release()
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise StoreError(f"{directory}: session {header.id!r} is stored already; delete it first") from None
        raise StoreError(f"{directory}: the session cannot be taken in: {error.strerror or error}; "
                         + advice(error, "ACP_SESSION_STORE says where logs are kept")) from error
    return header, directory


def _checked(tree: Tree) -> list[_Log]:
    """The tree's logs, each of them sound, together one tree."""
    logs = []
    for at, source in enumerate(tree.logs):
        try:
            fd = open_log(source)
        except FileNotFoundError as error:
            raise StoreError(f"{source}: {error.strerror}; name a log that is there") from None
        try:
            settled = settle(source, fd, Pace())
        finally:
            os.close(fd)
        logs.append(_Log(source, layout.child_log(at) if at else layout.MAIN_LOG, settled))
    if not logs:
        raise StoreError("a session without any log cannot be taken in; name its root's log")
    _check_family(logs)
    return logs


def _check_family(logs: Sequence[_Log]) -> None:
    root = logs[0].settled.header
    if delegated(root):
        raise StoreError(f"{logs[0].source}: session {root.id!r} is a child of {root.parent_session!r}; take in its "
                         "root, with all its children")
    ids = {root.id}
    rest = list(logs[1:])
    while rest:
        joined = [log for log in rest if delegated(log.settled.header) and log.settled.header.parent_session in ids]
        if not joined:
            header = rest[0].settled.header
            parent = f"whose parent {header.parent_session!r} is not in it" if delegated(header) else "a root itself"
            raise StoreError(f"{rest[0].source}: session {header.id!r} does not belong to the tree of {root.id!r}: it "
                             f"is one {parent}; take in each root with its own children")
        for log in joined:
            if log.settled.header.id in ids:
                raise StoreError(f"{log.source}: the tree has session {log.settled.header.id!r} twice; leave one out")
            ids.add(log.settled.header.id)
        rest = [log for log in rest if log not in joined]


def _begin(project: Path, session_id: SessionId) -> tuple[Path, TreeLock]:
    """A directory under a transient name, held so that nobody takes it for a leftover."""
    while True:
        coming = _transient(project, COMING)
        coming.mkdir(mode=0o700)
        with contextlib.suppress(SessionHeld, FileNotFoundError):
            return coming, TreeLock.take(coming / layout.LOCK, session_id)


def _fill(directory: Path, logs: Sequence[_Log], tree: Tree) -> None:
    """Everything of a tree, on the device when this returns."""
    for log in logs:
        _copy(log, directory / log.name)
    if tree.blobs:
        (directory / layout.BLOBS).mkdir(mode=0o700)
        for blob, source in tree.blobs.items():
            _copy_blob(blob, source, directory / layout.BLOBS)
        sync_directories(directory / layout.BLOBS, 1)
    outputs.copy(tree.outputs, directory / layout.OUTPUT)
    main = logs[0].settled
    if main.title is not None and beyond_head(directory / layout.MAIN_LOG, main.title_end):
        note_title(directory / layout.MAIN_LOG, main.title)
    sync_directories(directory, 1)


def _copy(log: _Log, target: Path) -> None:
    """The sound part of a log, byte for byte."""
    fd = open_log(log.source)
    try:
        left = log.settled.end
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while left:
                piece = os.read(fd, min(CHUNK, left))
                if not piece:
                    raise LogDamaged("it became shorter while it was copied; try again", file=str(log.source))
                write_all(out, piece)
                left -= len(piece)
            os.fsync(out)
        finally:
            os.close(out)
    finally:
        os.close(fd)


def _copy_blob(blob: BlobId, source: Path, directory: Path) -> None:
    data = source.read_bytes()
    if hashlib.sha256(data).hexdigest() != blob:
        raise StoreError(f"{source}: it should be content {blob}, but its digest is another one; leave it out, or "
                         "bring back the right file")
    out = os.open(directory / blob, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(out, data)
        os.fsync(out)
    finally:
        os.close(out)


def _vacate(directory: Path, session_id: SessionId) -> None:
    """Remove a directory in which a killed process did not come to store anything."""
    if os.path.lexists(directory / layout.MAIN_LOG) or layout.child_logs(directory):
        return
    with contextlib.suppress(FileNotFoundError):
        lock = TreeLock.take(directory / layout.LOCK, session_id)
        if os.path.lexists(directory / layout.MAIN_LOG):
            lock.release()
            return
        remove_unfinished(directory)
        shutil.rmtree(directory / layout.BLOBS, ignore_errors=True)
        lock.release()
        with contextlib.suppress(OSError):
            directory.rmdir()

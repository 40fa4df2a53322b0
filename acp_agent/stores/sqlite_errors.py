"""What SQLite says when something fails, as errors that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import SessionId


class DatabaseLocked(StoreError):
    """Another process holds the database locked: it may be tried again, for nothing was done."""


class DiskFull(StoreError):
    """There is no room for what was to be written, or something of the kind: nothing was done."""


_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process holds it locked for too long; end that process",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk cannot be used, or is full; see to it",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable",
    sqlite3.SQLITE_PERM: "make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "make the file and its directory readable and writable",
}
"""By SQLite's primary result code."""

_KINDS = {
    sqlite3.SQLITE_BUSY: DatabaseLocked,
    sqlite3.SQLITE_FULL: DiskFull,
    sqlite3.SQLITE_IOERR: DiskFull,
}

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@contextmanager
def explained(file: Path, deed: str) -> Iterator[None]:
    """Turn the errors of SQLite and the system into `StoreError`: the database cannot be `deed` (a participle)."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(file, deed, error) from error
    except OSError as error:
        raise StoreError(f"{file}: the session database cannot be {deed}: {error.strerror or error}; "
                         f"ACP_SESSION_STORE says where it is", file=str(file)) from error


def _store_error(file: Path, deed: str, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED:
        return StoreError(
            f"{file}: the session database itself is damaged ({error}): restore a backup of the file, or save what is "
            f"left with `sqlite3 FILE .recover` and begin with another file", file=str(file))
    advice = _ADVICE.get(code, "ACP_SESSION_STORE says where it is")
    kind = _KINDS.get(code, StoreError)
    return kind(f"{file}: the session database cannot be {deed}: {error}; {advice}", file=str(file))


def damaged(file: Path, session_id: SessionId, seq: int, message: str) -> LogDamaged:
    """The row of an event is not what it should be, or not there: what a repair is for."""
    return LogDamaged(f"session {session_id!r}, event {seq}: {message}; `acp-agent sessions repair {session_id}` keeps "
                      "what is sound and a backup of all", file=str(file))


def bad_header(file: Path, session_id: SessionId, message: str) -> LogDamaged:
    """What is said of a session itself is not what it should be; no repair could tell what it was."""
    advice = "" if "not supported" in message else "; put back a copy of the database, or delete the session"
    return LogDamaged(f"session {session_id!r}: {message}{advice}", file=str(file))


def lost(file: Path, session_id: SessionId) -> LogDamaged:
    """The row that says what a session is has gone, and other rows of it are left."""
    return LogDamaged(f"session {session_id!r}: what is stored about it is gone, and only rows that belong to it are "
                      "left, which nobody can put together again; put back a copy of the database, or remove them with "
                      f"`acp-agent sessions delete {session_id}`", file=str(file))


def no_room_to_delete(file: Path, root: SessionId, size: int | None) -> StoreError:
    """A deletion is written down before it is done, so that it happens as a whole or not at all."""
    room = "as much room as the session takes" if size is None else f"up to {size // 1000 + 100} kB of room"
    return StoreError(f"{file}: session {root!r} cannot be deleted: the disk is full, and the deletion itself needs "
                      f"{room} there for a moment; remove something else first. The database does not become smaller "
                      "by a deletion, but what is stored later uses its room", file=str(file))


def id_taken(file: Path, session_id: SessionId) -> StoreError:
    """There is a session of this id already."""
    return StoreError(f"{file}: a session with the id {session_id!r} is stored already; choose another id, or delete "
                      f"that session", sessionId=session_id)


def not_open(session_id: SessionId) -> StoreError:
    """The error for a deed that needs a session open here."""
    return StoreError(f"session {session_id!r} is not open here; load it first", sessionId=session_id)


def open_here(session_id: SessionId) -> StoreError:
    """The error for a deed that needs a session, and its tree, not to be open."""
    return StoreError(f"session {session_id!r} is open here; close it first", sessionId=session_id)

"""What SQLite says when something fails, as errors that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import SessionId

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process holds it locked for too long; end that process",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk cannot be used, or is full; see to it",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable",
    sqlite3.SQLITE_PERM: "make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "make the file and its directory readable and writable",
}
"""By SQLite's primary result code."""

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
    return StoreError(f"{file}: the session database cannot be {deed}: {error}; {advice}", file=str(file))


def damaged(file: Path, session_id: SessionId, seq: int, message: str) -> LogDamaged:
    """The row of an event is not what it should be, or not there: what a repair is for."""
    return LogDamaged(f"session {session_id!r}, event {seq}: {message}; `acp-agent sessions repair {session_id}` keeps "
                      "what is sound and a backup of all", file=str(file))


def bad_header(file: Path, session_id: SessionId, message: str) -> LogDamaged:
    """What is said of a session itself is not what it should be; no repair could tell what it was."""
    advice = "" if "not supported" in message else "; put back a copy of the database, or delete the session"
    return LogDamaged(f"session {session_id!r}: {message}{advice}", file=str(file))


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

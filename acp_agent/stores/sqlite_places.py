"""Which sessions the SQLite store has, each one's place in a tree, and rows that cannot be where they are."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

from acp_agent.errors import LogDamaged, SessionNotFound
from acp_agent.ids import SessionId
from acp_agent.stores.sqlite_errors import bad_header, id_taken, lost
from acp_agent.stores.sqlite_rows import HEADER_COLUMNS, SessionRow, session_row, wrong_place


def find(connection: Connection, file: Path, session_id: SessionId) -> SessionRow:
    """A stored session. Raises `SessionNotFound` and `LogDamaged`."""
    row = connection.execute(f"SELECT {HEADER_COLUMNS} FROM sessions WHERE id = ?", (_key(session_id),)).fetchone()
    if row is None:
        raise _not_there(connection, file, session_id)
    found = session_row(file, row)
    if found.place.number:
        check_place(connection, file, session_id)
    return found


def _key(session_id: SessionId) -> str:
    """A session id as it may be asked for: one that is no text, which UTF-8 could hold, is nobody's."""
    try:
        session_id.encode()
    except UnicodeEncodeError:
        raise SessionNotFound(session_id) from None
    return session_id


def is_taken(connection: Connection, session_id: SessionId) -> bool:
    """Whether there is a session of this id, or something left of one."""
    try:
        return _root(connection, session_id) is not None or _is_left(connection, session_id)
    except SessionNotFound:
        return False


def check_free(connection: Connection, file: Path, session_id: SessionId, *, tree_open: bool = False) -> None:
    """Refuse the id of a session that is stored, or of which something is left. Raises `StoreError`.

    While its tree is open for writing, what is there of the tree are children that were stored before it.
    """
    if _root(connection, session_id) is not None:
        raise id_taken(file, session_id)
    if _has(connection, _ITS_EVENTS, session_id) or (not tree_open and _has(connection, _ITS_TREE, session_id)):
        raise lost(file, session_id)


def _is_left(connection: Connection, session_id: SessionId) -> bool:
    """Whether there are rows that belong to a session, whether it has its own row or not."""
    return _has(connection, _ITS_EVENTS, session_id) or _has(connection, _ITS_TREE, session_id)


_ITS_EVENTS = "SELECT 1 FROM events WHERE session_id = ? LIMIT 1"
_ITS_TREE = "SELECT 1 FROM sessions WHERE root = ? LIMIT 1"


def _has(connection: Connection, query: str, session_id: SessionId) -> bool:
    return connection.execute(query, (session_id,)).fetchone() is not None


def _not_there(connection: Connection, file: Path, session_id: SessionId) -> SessionNotFound | LogDamaged:
    """The error for a session that has no row."""
    return lost(file, session_id) if _is_left(connection, session_id) else SessionNotFound(session_id)


# ---------------------------------------------------------------- places


def root_of(connection: Connection, file: Path, session_id: SessionId) -> SessionId:
    """The root of a stored session's tree, whatever else is wrong with the session.

    Raises `SessionNotFound`, and `LogDamaged` for what is left of a session.
    """
    root = _root(connection, session_id)
    if root is None:
        raise _not_there(connection, file, session_id)
    return root


def top_of(connection: Connection, file: Path, session_id: SessionId) -> SessionId:
    """The session with which a session is deleted: its root, or itself where it is in no tree that can be.

    Raises `SessionNotFound`.
    """
    root = _root(connection, session_id)
    if root is None:
        if not _is_left(connection, session_id):
            raise SessionNotFound(session_id)
        return session_id
    try:
        check_place(connection, file, session_id)
    except LogDamaged:
        return session_id
    return root


def check_place(connection: Connection, file: Path, session_id: SessionId) -> None:
    """Refuse a stored session that is where it cannot be, whatever else is wrong with it. Raises `LogDamaged`."""
    ((root, number, parent),) = connection.execute("SELECT root, number, parent_session FROM sessions WHERE id = ?",
                                                   (session_id,))
    top = _name(root)
    wrong = wrong_place(session_id, top, number, is_child=parent is not None)
    if wrong is None and number:
        wrong = _wrong_tree(connection, top, _name(parent))
    if wrong is not None:
        raise bad_header(file, session_id, wrong)


def _wrong_tree(connection: Connection, root: SessionId, parent: SessionId) -> str | None:
    """What is wrong with a descendant's tree: it has its root, and the parent, if that is there, is in it too."""
    top = connection.execute("SELECT 1 FROM sessions WHERE id = ? AND number = 0", (root,)).fetchone()
    if top is None:
        return f"its row places it in the tree of {root!r}, and there is none"
    its = _root(connection, parent)
    if its in (None, root):
        return None
    return f"its row places it in the tree of {root!r}, and its parent {parent!r} is in that of {its!r}"


def _root(connection: Connection, session_id: SessionId) -> SessionId | None:
    row = connection.execute("SELECT root FROM sessions WHERE id = ?", (_key(session_id),)).fetchone()
    return None if row is None else _name(row[0])


def _name(value: bytes | str) -> SessionId:
    """An id as a reading connection has it, or a writing one."""
    return SessionId(value.decode(errors="replace") if isinstance(value, bytes) else value)

"""Lists of sessions in the SQLite store, told from the session rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from sqlite3 import SQLITE_CORRUPT, Connection, DatabaseError
from typing import Any

from msgspec import UNSET

from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.stores.base import Page, Refusal, SessionSummary
from acp_agent.stores.cursors import encode_cursor
from acp_agent.stores.sqlite_errors import lost
from acp_agent.stores.sqlite_places import check_place, root_of
from acp_agent.stores.sqlite_rows import HEADER_COLUMNS, session_row
from acp_agent.text import scrub

_COLUMNS = f"{HEADER_COLUMNS}, title, updated_at"


def page(connection: Connection, file: Path, cwd: str | None, after: tuple[int, SessionId] | None, limit: int) -> Page:
    """The roots after a position (creation time and id), and where the next page begins.

    The last page of all also names what no page could come to.
    """
    where = "number = 0"
    values: list[str | int] = []
    if cwd is not None:
        where += " AND cwd = ?"
        values.append(scrub(cwd))
    if after is not None:
        created_at, session_id = after
        where += " AND created_at <= ? AND (created_at < ? OR id > ?)"
        values += [created_at, created_at, session_id]
    sessions: list[SessionSummary] = []
    refused: list[Refusal] = []
    query = f"SELECT {_COLUMNS} FROM sessions WHERE {where} ORDER BY created_at DESC, id"
    for row in connection.execute(query, values):
        if len(sessions) == limit:
            return Page(sessions, encode_cursor(sessions[-1].created_at, sessions[-1].id), refused)
        try:
            sessions.append(_summary(file, row))
        except LogDamaged as error:
            refused.append(Refusal(row[0].decode(errors="replace"), error.message))
    if cwd is None:
        refused += _astray(connection, file)
    return Page(sessions, None, refused)


_IN_NO_TREE = (
    "SELECT id FROM sessions AS one WHERE number <> 0 AND (number < 0 OR parent_session IS NULL "
    "OR NOT EXISTS (SELECT 1 FROM sessions AS other WHERE other.id = one.root AND other.number = 0) "
    "OR EXISTS (SELECT 1 FROM sessions AS other WHERE other.id = one.parent_session AND other.root <> one.root))"
)
_WITH_EVENTS = (
    # As many steps as there are sessions: to look through their events would be too many.
    "WITH RECURSIVE named(id) AS (SELECT min(session_id) FROM events UNION ALL "
    "SELECT (SELECT min(session_id) FROM events WHERE session_id > named.id) FROM named WHERE named.id IS NOT NULL) "
    "SELECT id FROM named WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM sessions)"
)


def _astray(connection: Connection, file: Path) -> Iterator[Refusal]:
    """What no page comes to: events that are in no session, and sessions that are in no tree."""
    try:
        left = connection.execute(_WITH_EVENTS).fetchall()
    except DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != SQLITE_CORRUPT:
            raise
        left = []  # told whenever an event is read; what can be listed is listed all the same
    for (found,) in left:
        name = found.decode(errors="replace")
        yield Refusal(name, lost(file, SessionId(name)).message)
    for (found,) in connection.execute(_IN_NO_TREE).fetchall():
        name = found.decode(errors="replace")
        try:
            check_place(connection, file, SessionId(name))
        except LogDamaged as error:
            yield Refusal(name, error.message)


def tree(connection: Connection, file: Path, session_id: SessionId) -> list[SessionSummary]:
    """A tree's root and its readable descendants. Raises `SessionNotFound`, and `LogDamaged` for the root."""
    root = root_of(connection, file, session_id)
    check_place(connection, file, session_id)
    found: list[SessionSummary] = []
    for row in connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE root = ? AND number >= 0 ORDER BY number",
                                  (root,)):
        try:
            found.append(_summary(file, row))
        except LogDamaged:
            if not found:
                raise
            # A descendant is refused by name when it is opened; it must not stand in another one's way.
    return found


def _summary(file: Path, row: Sequence[Any]) -> SessionSummary:
    *header_columns, title, updated_at = row
    header = session_row(file, header_columns).header
    return SessionSummary(
        header.id, header.created_at, updated_at, header.cwd,
        None if title is None else title.decode(errors="replace"),
        bool(header.seed_length),
        None if header.parent_session is UNSET else header.parent_session,
        None if header.spawn is UNSET else header.spawn, header.delegation_depth,
    )  # fmt: skip

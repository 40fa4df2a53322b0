"""Binary content in the SQLite store, and what is left of a tree when it goes. Each tree has its own copies."""

from __future__ import annotations

from sqlite3 import Connection

from acp_agent.ids import BlobId, SessionId


def store_blob(connection: Connection, root: SessionId, blob: BlobId, data: bytes) -> None:
    """Keep content for a tree, once."""
    connection.execute("INSERT OR IGNORE INTO blobs (root, id, data) VALUES (?, ?, ?)", (root, blob, data))


def copy_blobs(connection: Connection, source: SessionId, target: SessionId) -> None:
    """Give a tree all the content of another one."""
    connection.execute("INSERT OR IGNORE INTO blobs (root, id, data) SELECT ?, id, data FROM blobs WHERE root = ?",
                       (target, source))


def read_blob(connection: Connection, root: SessionId, blob: BlobId) -> bytes | None:
    """Content of a tree; None when it has none of this name."""
    row = connection.execute("SELECT data FROM blobs WHERE root = ? AND id = ?", (root, blob)).fetchone()
    return None if row is None else row[0]


def all_blobs(connection: Connection, root: SessionId) -> list[BlobId]:
    """All content of a tree, sorted."""
    found = connection.execute("SELECT id FROM blobs WHERE root = ? ORDER BY id", (root,))
    return [BlobId(name.decode(errors="replace")) for (name,) in found]


def drop_unused_blobs(connection: Connection, root: SessionId) -> None:
    """Forget the content of a tree of which no session came to be stored."""
    connection.execute("DELETE FROM blobs WHERE root = ? AND root NOT IN (SELECT root FROM sessions)", (root,))


def drop_tree(connection: Connection, root: SessionId) -> bool:
    """Delete a tree; whether there was one."""
    connection.execute("DELETE FROM events WHERE session_id IN (SELECT id FROM sessions WHERE root = ?)", (root,))
    connection.execute("DELETE FROM blobs WHERE root = ?", (root,))
    return connection.execute("DELETE FROM sessions WHERE root = ?", (root,)).rowcount > 0

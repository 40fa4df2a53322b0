"""Binary content in the SQLite store, and what is left of a tree when it goes. Each tree has its own copies."""

from __future__ import annotations

from hashlib import sha256
from sqlite3 import Connection

from acp_agent.ids import BlobId, SessionId


def store_blob(connection: Connection, root: SessionId, blob: BlobId, data: bytes) -> None:
    """Keep content for a tree, once; what stands there and is something else was damaged."""
    connection.execute("INSERT INTO blobs (root, id, data) VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
                       "SET data = excluded.data WHERE data IS NOT excluded.data", (root, blob, data))


def copy_blobs(connection: Connection, source: SessionId, target: SessionId) -> None:
    """Give a tree all the sound content of another one."""
    connection.create_function("digest", 1, lambda data: sha256(data).hexdigest(), deterministic=True)
    connection.execute("INSERT OR IGNORE INTO blobs (root, id, data) SELECT ?, id, data FROM blobs "
                       "WHERE root = ? AND digest(data) = id", (target, source))


def read_blob(connection: Connection, root: SessionId, blob: BlobId) -> bytes | None:
    """Content of a tree; None when it has none of this name."""
    row = connection.execute("SELECT data FROM blobs WHERE root = ? AND id = ?", (root, blob)).fetchone()
    return None if row is None else row[0]


def all_blobs(connection: Connection, root: SessionId) -> list[BlobId]:
    """All content of a tree, sorted."""
    found = connection.execute("SELECT id FROM blobs WHERE root = ? ORDER BY id", (root,))
    return [BlobId(name.decode(errors="replace")) for (name,) in found]


def drop_blobs(connection: Connection, root: SessionId) -> None:
    """Forget all content of a tree."""
    connection.execute("DELETE FROM blobs WHERE root = ?", (root,))


def drop_unused_blobs(connection: Connection, root: SessionId) -> None:
    """Forget the content of a tree of which no session came to be stored."""
    connection.execute("DELETE FROM blobs WHERE root = ? AND root NOT IN (SELECT root FROM sessions)", (root,))


_OF_TREE = "(SELECT ?1 UNION SELECT id FROM sessions WHERE root = ?1)"


def drop_tree(connection: Connection, root: SessionId) -> bool:
    """Delete a tree, or what is left of one; whether there was anything."""
    return sum(connection.execute(f"DELETE FROM {what}", (root,)).rowcount for what in (
        f"events WHERE session_id IN {_OF_TREE}", "blobs WHERE root = ?1", f"sessions WHERE id IN {_OF_TREE}",
    )) > 0


def size_of_tree(connection: Connection, root: SessionId) -> int:
    """Bytes that a tree's events and content take, about."""
    ((events,),) = connection.execute(
        f"SELECT coalesce(sum(length(data) + 64), 0) FROM events WHERE session_id IN {_OF_TREE}", (root,))
    ((blobs,),) = connection.execute("SELECT coalesce(sum(length(data) + 128), 0) FROM blobs WHERE root = ?", (root,))
    return int(events + blobs)

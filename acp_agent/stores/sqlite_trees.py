"""The trees this process writes to: each is locked from its first write on, until its last log is closed."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

from acp_agent.ids import SessionId
from acp_agent.stores import layout
from acp_agent.stores.files import make_private
from acp_agent.stores.locks import TreeLock
from acp_agent.stores.sqlite_errors import explained
from acp_agent.stores.sqlite_rows import Place


class OpenTree:
    """One tree, used by `users` logs and other undertakings that write to it. Made by `OpenTrees.enter`."""

    def __init__(self, root: SessionId, file: Path) -> None:
        self.root = root
        self.users = 0
        self.stored = False
        """Whether something of it was stored, by this process or before."""
        self.has_blobs = False
        """Whether content was stored for it, perhaps before any of its sessions."""
        self._file = file
        self._lock: TreeLock | None = None
        self._made = 0
        self._stored: int | None = None
        """The newest descendant's number when this process began to write."""

    def next_ordinal(self) -> int:
        """The place of a new descendant among those made here."""
        self._made += 1
        return self._made

    def hold(self) -> None:
        """Take the lock, unless it is held. Raises `SessionHeld` and `StoreError`. Blocks for file work only."""
        if self._lock is not None:
            return
        directory = lock_directory(self._file)
        with explained(self._file, "locked"):
            while self._lock is None:
                make_private(directory)
                try:
                    self._lock = TreeLock.take(directory / layout.session_segment(self.root), self.root)
                except FileNotFoundError:
                    continue  # another process has just removed the directory, which was empty

    def place(self, connection: Connection, ordinal: int) -> Place:
        """The place of the descendant with this ordinal, or of the root, for 0. Call in a transaction, lock held."""
        if ordinal == 0:
            return Place(self.root, 0)
        if self._stored is None:
            ((self._stored,),) = connection.execute(
                "SELECT coalesce(max(number), 0) FROM sessions WHERE root = ?", (self.root,)
            )
        return Place(self.root, self._stored + ordinal)

    def let_go_if_new(self) -> None:
        """A session could not be stored: let others try, unless a part of the tree is stored from here."""
        if not self.stored:
            self.release()

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class OpenTrees:
    """The open trees of one store by root."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._trees: dict[SessionId, OpenTree] = {}

    def enter(self, root: SessionId) -> OpenTree:
        """A tree for one more user, who has to `leave` it."""
        tree = self._trees.setdefault(root, OpenTree(root, self._file))
        tree.users += 1
        return tree

    def leave(self, tree: OpenTree) -> None:
        """One user is done; the last one gives up the lock."""
        tree.users -= 1
        if tree.users == 0:
            del self._trees[tree.root]
            tree.release()

    def is_open(self, root: SessionId) -> bool:
        """Whether anything here writes to the tree, or is about to."""
        return root in self._trees


def lock_directory(file: Path) -> Path:
    """Where the lock files of a database's trees are."""
    return file.with_name(file.name + "-locks")


def output_directory(file: Path, root: SessionId) -> Path:
    """Where the tools of a tree's sessions leave long output."""
    return file.with_name(file.name + "-output") / layout.session_segment(root)

"""A tree of sessions that this process writes to: its directory, its lock, its children's numbers."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from acp_agent.errors import StoreError
from acp_agent.ids import SessionId
from acp_agent.stores import layout
from acp_agent.stores.files import make_private, write_all
from acp_agent.stores.locks import TreeLock

_TRIES = 5
"""How often a directory is made again that somebody removes at that moment."""

NEW = ".new"
"""How the names of files end that are not complete yet. They begin with a dot."""


class OpenTree:
    """Shared by the appenders of one tree; the lock is held from the first write or load until the last one leaves."""

    def __init__(self, directory: Path, root: SessionId) -> None:
        self.directory = directory
        self.root = root
        self.made = 0
        """How many directories, this one and some above it, had to be made."""
        self._members: dict[object, None] = {}
        self._stored = False
        self._lock: TreeLock | None = None
        self._taking = threading.Lock()
        self._number = 0

    def next_number(self) -> int:
        """The next child's place among its siblings; a number is given out once."""
        while True:
            self._number += 1
            if not os.path.lexists(self.directory / layout.child_log(self._number)):
                return self._number

    def enter(self, member: object) -> None:
        """Keep the tree open for somebody."""
        self._members[member] = None

    def leave(self, member: object) -> bool:
        """Let the tree go for somebody. True when nobody is left, and the lock given up."""
        self._members.pop(member, None)
        if self._members:
            return False
        self.give_up()
        return True

    def members(self) -> list[object]:
        """Who keeps the tree open."""
        return list(self._members)

    def hold(self) -> None:
        """Become the one writer, if that is not so yet, of a tree that is stored; clear away what a killed one left.

        Raises `SessionHeld`, and `OSError` when the lock cannot be made.
        """
        with self._taking:
            if self._lock is not None and not self._lock.in_place():
                self._lock.release()  # somebody removed the file, so that it kept nobody away any more
                self._lock = None
            if self._lock is None:
                self._lock = TreeLock.take(self.directory / layout.LOCK, self.root)
                remove_unfinished(self.directory)

    def hold_new(self) -> None:
        """As `hold`, but the directory of a tree that is not stored yet is made where it is missing.

        Raises `StoreError` when that of a stored one is.
        """
        if self._stored:
            self._hold_stored()
            return
        for left in reversed(range(_TRIES)):
            self.made = max(self.made, make_private(self.directory))
            try:
                self.hold()
            except FileNotFoundError:
                if not left:
                    raise
            else:
                return

    def _hold_stored(self) -> None:
        try:
            self.hold()
        except FileNotFoundError:
            raise StoreError(f"{self.directory}: nothing can be written there: it was removed while the session was "
                             "open; put it back, close the session, and load it again") from None

    def store(self) -> None:
        """Something of the tree is stored now."""
        self._stored = True

    def give_up(self) -> None:
        """Give up the lock of a tree that nobody writes to, or of one that could not be begun."""
        with self._taking:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            begun = self._stored or os.path.lexists(self.directory / layout.MAIN_LOG)
            if not begun:
                import shutil

                shutil.rmtree(self.directory / layout.BLOBS, ignore_errors=True)
            lock.release()
            if not begun:
                with contextlib.suppress(OSError):
                    self.directory.rmdir()

    def fail(self) -> None:
        """A log could not be made: let others try, unless there is another one already."""
        if not self._stored:
            self.give_up()


def temporary(path: Path) -> Path:
    """A name beside `path` for a file on its way there; nothing that reads logs looks at it."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}{NEW}")


def remove_unfinished(directory: Path) -> None:
    """Remove the files that a killed process had not finished. Only for who holds the tree."""
    for place in (directory, directory / layout.BLOBS):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith(".") and entry.name.endswith(NEW):
                    os.unlink(entry.path)  # noqa: PTH108  # no Path is needed for it


def publish(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put a whole file under a name, over whatever was there. Raises `OSError`."""
    new = temporary(path)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(fd, data)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise

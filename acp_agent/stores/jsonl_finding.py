"""Where a session's log file is, by the session's id."""

from __future__ import annotations

import os
import re
from pathlib import Path

from acp_agent.errors import LogDamaged, SessionNotFound
from acp_agent.ids import SessionId
from acp_agent.stores import layout
from acp_agent.stores.jsonl_reading import children, read_header

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Finder:
    """Finds roots by their directory, and children by the headers of all children, which are read when first needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._children: dict[SessionId, Path] | None = None

    def find(self, session_id: SessionId) -> Path:
        """The log of a stored session, root or child.

        Raises `SessionNotFound`, and `LogDamaged` when two working directories have a root session of this id.
        """
        path = self._root_log(session_id) or self._known_child(session_id)
        if path is None:
            self._children = None
            path = self._known_child(session_id)
        if path is None:
            raise SessionNotFound(session_id)
        return path

    def exists(self, session_id: SessionId) -> bool:
        """Whether a session of this id is stored. Children are those that were there when this was first asked, and
        those that this process stored since: others have ids of their own process's making.
        """
        if any(True for _ in layout.directories(self._root, session_id)):
            return True
        return self._known_child(session_id) is not None

    def find_other(self, session_id: SessionId, path: Path | None) -> Path | None:
        """A stored log, other than `path`, that has this id already.

        A random id is not looked for among the children: that reads every session's directory.
        """
        found = (directory / layout.MAIN_LOG for directory in layout.directories(self._root, session_id))
        taken = next((log for log in found if log != path), None)
        if taken is None and not _RANDOM.fullmatch(session_id):
            taken = self._known_child(session_id)
        return None if taken == path else taken

    def stored(self, session_id: SessionId, path: Path) -> None:
        """A log was stored by this process."""
        if self._children is not None and path.name != layout.MAIN_LOG:
            self._children[session_id] = path

    def adopted(self, directory: Path) -> None:
        """A tree was brought in by this process."""
        for path, header in children(directory):
            self.stored(header.id, path)

    def removed(self, directory: Path) -> None:
        """A tree was removed by this process."""
        if self._children is not None:
            self._children = {name: path for name, path in self._children.items() if path.parent != directory}

    def _root_log(self, session_id: SessionId) -> Path | None:
        found = [directory / layout.MAIN_LOG for directory in layout.directories(self._root, session_id)]
        if len(found) > 1:
            raise LogDamaged(f"session {session_id!r} is stored twice, here and as {found[1]}; move one of them away",
                             file=str(found[0]))
        return found[0] if found else None

    def _known_child(self, session_id: SessionId) -> Path | None:
        path = self._by_id().get(session_id)
        if path is None:
            return None
        try:
            return path if read_header(path).id == session_id else None
        except FileNotFoundError:
            return None
        except LogDamaged:
            return path  # whoever opens it is told by name

    def _by_id(self) -> dict[SessionId, Path]:
        known = self._children
        if known is None:
            known = {header.id: path for directory in self._trees() for path, header in children(directory)}
            self._children = known
        return known

    def _trees(self) -> list[Path]:
        found: list[Path] = []
        for project in layout.projects(self._root):
            try:
                with os.scandir(project) as entries:
                    found += [Path(one.path) for one in entries if not one.name.startswith(".")]
            except OSError:
                continue
        return found

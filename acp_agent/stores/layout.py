"""Where the JSONL store puts things: `<root>/--<project>--/<root session id>/session.jsonl`.

Children stand beside their root as `session.<n>.jsonl`, so that each such directory is a replay directory
as it stands. Ids and working directories are encoded, never used as paths unchecked (format reference 5.2).

In a session's directory there are beside the logs: `lock` while a process writes, `blobs/`, `output/`, the note of a
late title, the backups of repairs. A name that begins with a dot is on its way to or from its real one: nothing that
reads looks at it, and the tree's next writer removes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, UnsetType

from acp_agent.ids import SessionId

MAX_SEGMENT = 251
"""Characters a project's name may have, so that the directory's name stays below the usual 255."""

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
MAIN_LOG = "session.jsonl"
LOCK = "lock"
BLOBS = "blobs"
OUTPUT = "output"
TITLE = "session.title"

_CHILD = re.compile(r"session\.([1-9][0-9]{0,8})\.jsonl")
_ESCAPED = re.compile("(?:~[0-9A-F]{4})+")


def project_key(cwd: str | UnsetType) -> str:
    """The name of a working directory's project."""
    if cwd is UNSET:
        return "_no-cwd"
    joined: list[str] = []
    for char in cwd:
        if char not in "/\\:":
            joined.append(_encoded(char))
        elif joined and joined[-1] != "-":
            joined.append("-")
    return "".join(joined).strip("-")[:MAX_SEGMENT] or "root"


def project_directory(root: Path, cwd: str | UnsetType) -> Path:
    """Where the root sessions of a working directory are."""
    return root / f"--{project_key(cwd)}--"


def session_segment(session_id: SessionId) -> str:
    """A session id as one path segment; different ids give different segments. Empty for the empty id alone.

    It never begins with a dot: such a name would be another directory, or one that is not there yet.
    """
    rest = session_id.lstrip(".")
    return "~002E" * (len(session_id) - len(rest)) + "".join(map(_encoded, rest))


def id_of(segment: str) -> SessionId:
    """The id that a path segment was made of."""
    if "~" not in segment:
        return SessionId(segment)
    return SessionId(_ESCAPED.sub(lambda found: _decoded(found.group()), segment))


def _encoded(char: str) -> str:
    if char in _SAFE:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def _decoded(escapes: str) -> str:
    return bytes.fromhex(escapes.replace("~", "")).decode("utf-16-be", "surrogatepass")


def session_directory(root: Path, cwd: str | UnsetType, root_session: SessionId) -> Path:
    """The directory of a root session and all its children."""
    return project_directory(root, cwd) / session_segment(root_session)


def child_log(number: int) -> str:
    """The file name of the `number`-th child, counted from 1."""
    return f"session.{number}.jsonl"


def child_number(name: str) -> int | None:
    """Which child's log has this file name."""
    found = _CHILD.fullmatch(name)
    return None if found is None else int(found[1])


def projects(root: Path) -> list[str]:
    """The directories, one for each working directory, that hold root sessions."""
    try:
        with os.scandir(root) as entries:
            return sorted(one.path for one in entries if one.name.startswith("--") and one.name.endswith("--"))
    except (FileNotFoundError, NotADirectoryError):
        return []


def child_logs(directory: Path) -> list[Path]:
    """The logs of a tree's children, in the order of their creation."""
    try:
        with os.scandir(directory) as entries:
            numbers = sorted(number for one in entries if (number := child_number(one.name)) is not None)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [directory / child_log(number) for number in numbers]


def directories(root: Path, root_session: SessionId) -> Iterator[Path]:
    """The directories, one for each project, in which a root session of this id is stored."""
    segment = session_segment(root_session)
    if not segment:
        return
    for project in projects(root):
        if os.path.lexists(f"{project}/{segment}/{MAIN_LOG}"):
            yield Path(project, segment)

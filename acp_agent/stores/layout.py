"""Where the JSONL store puts things: `<root>/--<project>--/<root session id>/session.jsonl`.

Children stand beside their root as `session.<n>.jsonl`, so that each such directory is a replay directory
as it stands. Ids and working directories are encoded, never used as paths unchecked (format reference 5.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, UnsetType

from acp_agent.ids import SessionId

MAX_SEGMENT = 251
"""Characters a project's name may have, so that the directory's name stays below the usual 255."""

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
MAIN_LOG = "session.jsonl"


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


def session_segment(session_id: SessionId) -> str:
    """A session id as one path segment; different ids give different segments."""
    if session_id in {".", ".."}:
        return session_id.replace(".", "~002E")
    return "".join(map(_encoded, session_id))


def _encoded(char: str) -> str:
    if char in _SAFE:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def session_directory(root: Path, cwd: str | UnsetType, root_session: SessionId) -> Path:
    """The directory of a root session and all its children."""
    return root / f"--{project_key(cwd)}--" / session_segment(root_session)


def child_log(number: int) -> str:
    """The file name of the `number`-th child, counted from 1."""
    return f"session.{number}.jsonl"


def logs(root: Path) -> Iterator[Path]:
    """Every log file of a store, roots and children, in a stable order."""
    for project in sorted(root.glob("--*--")):
        for directory in sorted(project.iterdir() if project.is_dir() else ()):
            if directory.is_dir():
                yield from sorted(directory.glob("session*.jsonl"), key=_log_order)


def _log_order(path: Path) -> tuple[int, str]:
    return (len(path.name), path.name)


def directories(root: Path, root_session: SessionId) -> Iterator[Path]:
    """The directories, one for each project, that a root session of this id has."""
    segment = session_segment(root_session)
    for project in sorted(root.glob("--*--")):
        if (project / segment).is_dir():
            yield project / segment

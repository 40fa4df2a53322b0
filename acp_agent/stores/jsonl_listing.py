"""Lists of stored sessions, told from their headers and ends: a list takes as long as a page, not as the logs."""

from __future__ import annotations

import heapq
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.session.events import SessionHeader, SessionTitle
from acp_agent.stores import layout
from acp_agent.stores.base import Page, Refusal, SessionSummary
from acp_agent.stores.cursors import encode_cursor
from acp_agent.stores.jsonl_created import Created
from acp_agent.stores.jsonl_reading import advised, check_place, first_line, header_of, open_log, read_header, settle
from acp_agent.stores.jsonl_titles import HEAD, noted_title

_START = 512
"""Bytes in which a usual header line ends."""

_Position = tuple[int, SessionId]
"""A session's place in a list: the negated creation time, then the id."""


class _Created(Struct, rename="camel"):
    created_at: int


_created = msgspec.json.Decoder(_Created).decode


class Listing:
    """Lists a store's roots."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._created = Created(root)

    def page(self, cwd: str | None, after: _Position | None, limit: int) -> Page:
        """The sessions after a position, and where the next page begins. `cwd` None means all."""
        while True:
            page = self._page(cwd, after, limit)
            if page is not None:
                return page

    def _page(self, cwd: str | None, after: _Position | None, limit: int) -> Page | None:
        """None when something known turned out to be wrong, and is forgotten: the order was not the right one."""
        refused: list[Refusal] = []
        waiting = self._scan(cwd, refused)
        if after is not None:
            refused.clear()
            waiting = [one for one in waiting if one[:2] > after]
        heapq.heapify(waiting)
        sessions: list[SessionSummary] = []
        while waiting and len(sessions) < limit:
            expected, name, place = heapq.heappop(waiting)
            try:
                summary = summarise(Path(self._root, place, layout.MAIN_LOG))
            except FileNotFoundError:
                continue
            except LogDamaged as error:
                refused.append(Refusal(name, error.message))
                continue
            if cwd is not None and summary.cwd != cwd:
                continue
            if -summary.created_at != expected:
                self._created.forget(place)
                return None
            sessions.append(summary)
        more = bool(waiting) and bool(sessions)
        return Page(sessions, encode_cursor(sessions[-1].created_at, sessions[-1].id) if more else None, refused)

    def _scan(self, cwd: str | None, refused: list[Refusal]) -> list[tuple[int, SessionId, str]]:
        """All roots by what puts them in order, and their directories below the store's."""
        known, id_of = self._created.known, layout.id_of
        found: list[tuple[int, SessionId, str]] = []
        directories = self._directories(cwd, refused)
        for place, name, inode in directories:
            seen = known.get(place)
            if seen is not None and seen[0] == inode:
                found.append((-seen[1], id_of(name), place))
                continue
            try:
                created = _created_at(f"{self._root}/{place}")
            except FileNotFoundError:
                if lost := _lost_children(f"{self._root}/{place}"):
                    refused.append(Refusal(id_of(name), lost))
                continue
            except LogDamaged as error:
                refused.append(Refusal(id_of(name), error.message))
                continue
            self._created.learn(place, inode, created)
            found.append((-created, id_of(name), place))
        self._created.keep({place for place, _, _ in directories} if cwd is None else None)
        return found

    def _directories(self, cwd: str | None, refused: list[Refusal]) -> list[tuple[str, str, int]]:
        """Path below the store's, name and inode of whatever may be a root session's directory."""
        projects = layout.projects(Path(self._root))
        if cwd is not None:
            wanted = str(layout.project_directory(Path(self._root), cwd))
            projects = [wanted] if wanted in projects else []
        found: list[tuple[str, str, int]] = []
        for project in projects:
            below = project.rpartition("/")[2]
            try:
                with os.scandir(project) as entries:
                    found += [(f"{below}/{name}", name, one.inode()) for one in entries if (name := one.name)[0] != "."]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                refused.append(Refusal(project, f"{project}: its sessions cannot be looked at: {error.strerror}; make "
                                                "it readable for this user, or move it away"))
        return found


def _created_at(directory: str) -> int:
    """When a root session was created. One short read, for thousands are looked at."""
    path = directory + "/" + layout.MAIN_LOG
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            start = os.read(fd, _START)
        finally:
            os.close(fd)
        end = start.find(b"\n")
        if end >= 0:
            return _created(start[:end]).created_at
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        pass  # whatever it is, the thorough way tells it
    return read_header(Path(path)).created_at


def _lost_children(directory: str) -> str | None:
    """What is wrong with a directory without a root's log; None when it is no session, or not one yet."""
    try:
        lost = layout.child_logs(Path(directory))
    except OSError as error:
        return (f"{directory}: it cannot be looked at: {error.strerror}; make it readable for this user, or move it "
                "away")
    if lost:
        return f"{directory}/{layout.MAIN_LOG}: the root's log is missing beside its children's; bring it back"
    return None


# ---------------------------------------------------------------- one session


class _Tail(Struct, rename="camel"):
    """What a line says of its time."""

    type: str
    time: int | UnsetType = UNSET
    time0: int | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


class _Run(Struct):
    dt: list[int]


class _Titled(Struct):
    type: str
    data: Any = None


_tail = msgspec.json.Decoder(_Tail).decode
_run = msgspec.json.Decoder(_Run).decode
_titled = msgspec.json.Decoder(_Titled).decode
_TITLE_MARK = f'"{SessionTitle.type}"'.encode()


def summarise(path: Path) -> SessionSummary:
    """What is to be said of the log at `path`, from its first and last bytes.

    Raises `LogDamaged` for what can be seen to be wrong there, and `FileNotFoundError`.
    """
    fd = open_log(path)
    try:
        header = header_of(first_line(path, fd), path)
        check_place(header, path)
        try:
            time, title = _ends(path, fd, header)
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
            time, title = _thoroughly(path, fd, header.id)
    finally:
        os.close(fd)
    return SessionSummary(
        id=header.id, created_at=header.created_at, updated_at=time, cwd=header.cwd, title=title,
        seeded=bool(header.seed_length),
        parent=None if header.parent_session is UNSET else header.parent_session,
        spawn=None if header.spawn is UNSET else header.spawn, depth=header.delegation_depth,
    )  # fmt: skip


def summarise_tree(directory: Path) -> list[SessionSummary]:
    """The root of a tree, then its descendants in their order; damaged ones are left out.

    Raises `LogDamaged` for the root, and `FileNotFoundError`.
    """
    found = [summarise(directory / layout.MAIN_LOG)]
    known = {found[0].id}
    for path in layout.child_logs(directory):
        try:
            summary = summarise(path)
        except (LogDamaged, FileNotFoundError):
            continue
        if summary.parent in known:
            known.add(summary.id)
            found.append(summary)
    return found


def _ends(path: Path, fd: int, header: SessionHeader) -> tuple[int, str | None]:
    """The newest event's time, and the newest title."""
    size = os.fstat(fd).st_size
    tail, whole = _last_lines(fd, size)
    if whole:
        del tail[0]
    time = _time(tail[-1]) if tail else header.created_at
    title = _newest_title(tail)
    if title is None and not whole:
        title = noted_title(path) if path.name == layout.MAIN_LOG else None
        if title is None:
            title = _newest_title(os.pread(fd, HEAD, 0).split(b"\n")[1:-1])
    return time, title


def _thoroughly(path: Path, fd: int, session_id: SessionId) -> tuple[int, str | None]:
    """The same, of a log that has to be read whole to tell what is wrong with it."""
    try:
        log = settle(path, fd, continuing=False)
    except LogDamaged as error:
        raise advised(error, session_id) from None
    return log.time, log.title


def _last_lines(fd: int, size: int) -> tuple[list[bytes], bool]:
    """The complete lines at the end of a file, one at least, and whether they are all there are."""
    window = HEAD
    while True:
        start = max(0, size - window)
        lines = os.pread(fd, window, start).split(b"\n")[:-1]
        if start == 0:
            return lines, True
        if len(lines) > 1:
            return lines[1:], False
        window *= 4


def _time(line: bytes) -> int:
    """When the last event of a line happened."""
    row = _tail(line)
    if row.type not in codec.PACKED_TYPES:
        return 0 if row.time is UNSET else row.time
    return (0 if row.time0 is UNSET else row.time0) + (0 if row.data is UNSET else sum(_run(row.data).dt))


def _newest_title(lines: list[bytes]) -> str | None:
    for line in reversed(lines):
        if _TITLE_MARK in line:
            row = _titled(line)
            if row.type == SessionTitle.type:
                return msgspec.convert(row.data, _Title).title
    return None


class _Title(Struct):
    title: str

"""Reading log files: whatever lies under a log's name is a log, or is refused by name and left as it is.

A log may be growing while it is read: a last line without its newline is simply not there yet.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct

from acp_agent.errors import LogDamaged, ProjectedLog
from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.session.events import AssistantChunk, Event, SessionHeader, SessionTitle
from acp_agent.session.seed import check_seed
from acp_agent.stores import layout
from acp_agent.stores.base import StoredLog
from acp_agent.stores.pace import Pace

CHUNK = 1 << 18
"""Bytes read at once."""

PIECE, SMALL_PIECE = 1 << 15, 1 << 13
"""Bytes of lines that are decoded at once, while nobody else can do anything; the small one while somebody wants to."""

HEADER_LIMIT = 1 << 20
"""Bytes in which the first line must end."""

_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def open_log(path: Path | str, what: str = "session log") -> int:
    """A log file, or another one that is called `what`, opened for reading; never waits.

    Raises `LogDamaged` when something else lies there or it cannot be read, `FileNotFoundError` when nothing does.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR} and not os.path.lexists(path):
            raise FileNotFoundError(error.errno, os.strerror(error.errno), str(path)) from None
        raise _unreadable(path, error) from None
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind == stat.S_IFREG:
        return fd
    os.close(fd)
    raise LogDamaged(f"this is {_KINDS.get(kind, 'no file')}, not a {what}; move it away", file=str(path))


def advised(error: LogDamaged, session_id: SessionId) -> LogDamaged:
    """The same damage, with what helps against it where that is a repair."""
    if error.line is None or error.line == 1 or isinstance(error, ProjectedLog):
        return error
    told = error.message.removeprefix(f"{error.file}:{error.line}: ")
    return LogDamaged(f"{told}; `acp-agent sessions repair {session_id}` keeps what is sound and a backup of all",
                      file=error.file, line=error.line)


def _unreadable(path: Path | str, error: OSError) -> LogDamaged:
    if error.errno == errno.ENOENT:
        return LogDamaged("the log is a symbolic link that leads nowhere; bring back what it led to, or remove it",
                          file=str(path))
    return LogDamaged(f"the log cannot be read: {error.strerror or error}; make it readable for this user, or move it "
                      "away", file=str(path))


class Lines:
    """The complete lines of an open file, from its start. `end` is where the last one given ends."""

    def __init__(self, fd: int, path: Path, pace: Pace | None = None) -> None:
        self.end = 0
        self.rest = 0
        """Bytes after the last newline, when all lines were given."""
        self._fd = fd
        self._path = path
        self._pace = pace

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks():
            for line in block[:-1].split(b"\n"):
                self.end += len(line) + 1
                yield line
                if self._pace is not None:
                    self._pace.breathe()

    def pieces(self) -> Iterator[bytes]:
        """The same lines with their newlines, as many at once as make a short piece; never less than one."""
        for block in self._blocks():
            start, size = 0, len(block)
            while start < size:
                most = PIECE if self._pace is None or self._pace.calm else SMALL_PIECE
                end = block.rfind(b"\n", start, start + most) + 1 or block.find(b"\n", start) + 1
                self.end += end - start
                yield block[start:end]
                start = end
                if self._pace is not None:
                    self._pace.breathe()

    def _blocks(self) -> Iterator[bytes]:
        """The lines as they are read, with their newlines: many at once."""
        parts: list[bytes] = []
        while chunk := self._read():
            whole = chunk.rfind(b"\n") + 1
            if whole:
                yield b"".join((*parts, chunk[:whole]))
                parts = [chunk[whole:]]
            else:
                parts.append(chunk)
        self.rest = sum(map(len, parts))

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, CHUNK)
        except OSError as error:
            raise _unreadable(self._path, error) from None


class Settled(Struct):
    """A log read for continuation (see `stores.base.Continuation`).

    `end` is the size of its sound part, and `torn` the bytes of an unfinished line after it. `title` is the newest one,
    whose line ends at `title_end`.
    """

    header: SessionHeader
    events: list[Event]
    count: int
    time: int
    end: int
    torn: int
    title: str | None
    title_end: int


def settle(path: Path, fd: int, pace: Pace | None = None, *, continuing: bool = True) -> Settled:
    """Check a whole log as for continuation, or only whether each of its rows is sound.

    Raises `LogDamaged` naming file and line, `ProjectedLog` for one that cannot be continued.
    """
    lines = Lines(fd, path, pace)
    pieces = lines.pieces()
    first, _, rest = next(pieces, b"").partition(b"\n")
    if not lines.end:
        raise headless(path, lines.rest)
    header = header_of(first, path)
    reader = codec.Reader(str(path), refuse_unknown=continuing)
    events: list[Event] = []
    titled, title_piece, title_end = None, b"", 0
    for piece in chain((rest,) if rest else (), pieces):
        found = reader.settle(piece)
        events += found
        if SessionTitle in map(type, map(_body, found)):
            titled = next(event.body for event in reversed(found) if isinstance(event.body, SessionTitle))
            title_piece, title_end = piece, lines.end
    if titled is not None:
        title_end -= len(title_piece) - _end_of(SessionTitle.type, title_piece)
    if continuing:
        reader.check_continuable()
    length = header.seed_length
    if continuing and length is not UNSET:
        check_seed(header, reader.count, _type_at(events, reader.count, length - 1),
                   _type_at(events, reader.count, length), str(path))
    return Settled(header, events, reader.count, reader.time if reader.count else header.created_at, lines.end,
                   lines.rest, None if titled is None else titled.title, title_end)


_body = attrgetter("body")


class _Typed(Struct):
    type: str


_typed = msgspec.json.Decoder(_Typed).decode


def _end_of(kind: str, lines: bytes) -> int:
    """Where the last one of a kind ends in sound lines."""
    end = len(lines)
    while end:
        start = lines.rfind(b"\n", 0, end - 1) + 1
        if _typed(lines[start:end]).type == kind:
            break
        end = start
    return end


def _type_at(settled: Sequence[Event], count: int, seq: int) -> str | None:
    """The type of event `seq`: one that did not settle was a chunk."""
    if not 0 <= seq < count:
        return None
    at = bisect_left(settled, seq, key=lambda event: event.seq)
    return settled[at].body.type if at < len(settled) and settled[at].seq == seq else AssistantChunk.type


def read_events(path: Path, fd: int, pace: Pace | None = None) -> tuple[StoredLog, int]:
    """A whole log, and the size of its sound part. Raises `LogDamaged` naming file and line."""
    lines = Lines(fd, path, pace)
    body = iter(lines)
    header = _first(body, lines, path)
    reader = codec.Reader(str(path))
    events = [event for line in body for event in reader.read(line)]
    length = header.seed_length
    if length is not UNSET:
        types = [event.body.type for event in events[max(length - 1, 0) : length + 1]]
        before = types.pop(0) if length and types else None
        check_seed(header, len(events), before, types[0] if types else None, str(path))
    return StoredLog(header, events, reader.projected), lines.end


def _first(body: Iterator[bytes], lines: Lines, path: Path) -> SessionHeader:
    line = next(body, None)
    if line is None:
        raise headless(path, lines.rest)
    return header_of(line, path)


def header_of(line: bytes, path: Path) -> SessionHeader:
    """A log's first line. Raises `LogDamaged` with what to do: no repair could tell what it was."""
    try:
        return codec.decode_header(line, str(path))
    except LogDamaged as error:
        raise advised_of_header(error) from None


def advised_of_header(error: LogDamaged) -> LogDamaged:
    """The same damage to a log's first line, with what helps against it; a format of another version says so itself."""
    if "not supported" in error.message:
        return error
    told = error.message.removeprefix(f"{error.file}:1: ")
    return LogDamaged(f"{told}; put back a copy, or move the log away", file=error.file, line=1)


def headless(path: Path, size: int) -> LogDamaged:
    """What is wrong with a log of `size` bytes that has no first line."""
    what = "the log has no complete header line" if size else "the log is empty"
    return LogDamaged(f"{what}; move it away, or put back a copy", file=str(path))


def read_log(path: Path) -> tuple[StoredLog, int]:
    """The log at `path`, and the size of its sound part."""
    fd = open_log(path)
    try:
        return read_events(path, fd)
    finally:
        os.close(fd)


def read_header(path: Path) -> SessionHeader:
    """The header of the log at `path`. Raises `LogDamaged` and `FileNotFoundError`."""
    fd = open_log(path)
    try:
        return header_of(first_line(path, fd), path)
    finally:
        os.close(fd)


def first_line(path: Path, fd: int) -> bytes:
    """The header line of an open log, without its newline. Raises `LogDamaged`."""
    size = 4096
    while True:
        try:
            start = os.pread(fd, size, 0)
        except OSError as error:
            raise _unreadable(path, error) from None
        line, newline, _ = start.partition(b"\n")
        if newline:
            return line
        if len(start) < size or size >= HEADER_LIMIT:
            raise headless(path, len(start))
        size = HEADER_LIMIT


def delegated(header: SessionHeader) -> bool:
    """Whether a parent's tool call made the session; what a client forked is a root."""
    return header.parent_session is not UNSET and (
        header.origin is not UNSET or header.delegation_depth > 0 or header.spawn is not UNSET)


def check_place(header: SessionHeader, path: Path) -> None:
    """Check that a log lies where its header says that it belongs (format reference 5.2). Raises `LogDamaged`."""
    root, project = layout.id_of(path.parent.name), path.parent.parent.name
    if path.name != layout.MAIN_LOG:
        if not delegated(header) or header.id == root:
            raise LogDamaged(f"the header is a root session's ({header.id!r}), but a child's log should be here; move "
                             "it to a directory of its own", file=str(path), line=1)
        return
    if delegated(header):
        raise LogDamaged(f"the header is a child's ({header.id!r}, of {header.parent_session!r}), but the log of root "
                         f"session {root!r} should be here; move it beside its root", file=str(path), line=1)
    if header.id != root:
        raise LogDamaged(f"the header names session {header.id!r}, but this is the directory of {root!r}; rename the "
                         f"directory to {layout.session_segment(header.id)!r}", file=str(path), line=1)
    key = f"--{layout.project_key(header.cwd)}--"
    if key != project:
        cwd = "none" if header.cwd is UNSET else repr(header.cwd)
        raise LogDamaged(f"the header's cwd is {cwd}, whose sessions are kept in {key}, not in {project}; move the "
                         f"directory {path.parent.name!r} there", file=str(path), line=1)


def check_ancestry(header: SessionHeader, path: Path) -> None:
    """Check that a child's parent is in its tree. Raises `LogDamaged`."""
    root = layout.id_of(path.parent.name)
    parent = header.parent_session
    if path.name == layout.MAIN_LOG or parent == root or parent in {one.id for _, one in children(path.parent)}:
        return
    raise LogDamaged(f"the header names the parent {parent!r}, which is not in the tree of {root!r}; move the log "
                     "beside its parent's", file=str(path), line=1)


def children(directory: Path) -> Iterator[tuple[Path, SessionHeader]]:
    """The readable headers of a tree's children, in their order; a damaged one must not stand in another one's way."""
    for path in layout.child_logs(directory):
        try:
            header = read_header(path)
            check_place(header, path)
        except (LogDamaged, FileNotFoundError):
            continue
        yield path, header


def root_of(path: Path) -> SessionId:
    """The root session of the tree that a log belongs to."""
    return layout.id_of(path.parent.name)

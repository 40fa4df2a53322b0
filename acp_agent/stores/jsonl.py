"""The JSONL store: one file a session, appended in groups, repaired when its last line is torn."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import anyio

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.session.events import Event, SessionHeader
from acp_agent.stores import layout
from acp_agent.stores.base import StoredLog

_T = TypeVar("_T")


class JsonlStore:
    """Session logs as files below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers: dict[Path, int] = {}
        self._open: dict[SessionId, JsonlAppender] = {}
        self._stored_children: set[SessionId] | None = None
        """Children stored when somebody first asked; those made since are their own process's."""

    def create(self, header: SessionHeader, root: SessionId) -> JsonlAppender:
        directory = layout.session_directory(self._root, header.cwd, root)
        name = layout.MAIN_LOG if header.id == root else layout.child_log(self._next_number(directory))
        appender = JsonlAppender(directory / name, header, self._open)
        self._open[header.id] = appender
        return appender

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        writer, source = self._open[session_id], self._open[source_id]
        await source.write()
        return await _in_thread(lambda: writer.begin_with(source.path, cut))

    async def load(self, session_id: SessionId) -> StoredLog:
        path = await _in_thread(lambda: self._find(session_id))
        if path is None:
            raise SessionNotFound(session_id)
        return await _in_thread(lambda: read_log(path)[0])

    async def resume(self, log: StoredLog) -> JsonlAppender:
        session_id = log.header.id
        path = await _in_thread(lambda: self._find(session_id))
        if path is None:
            raise SessionNotFound(session_id)
        appender = JsonlAppender(path, log.header, self._open)
        await _in_thread(lambda: appender.continue_after(len(log.events)))
        self._open[session_id] = appender
        return appender

    def exists(self, session_id: SessionId) -> bool:
        if session_id in self._open or any(True for _ in layout.directories(self._root, session_id)):
            return True
        if self._stored_children is None:
            self._stored_children = {header.id for _, header in self._child_headers()}
        return session_id in self._stored_children

    def spill_directory(self, session_id: SessionId) -> Path:
        opened = self._open[session_id]
        return opened.path.parent / "output"

    async def headers(self) -> AsyncIterator[SessionHeader]:
        for path in await _in_thread(lambda: list(layout.logs(self._root))):
            try:
                yield await _in_thread(lambda path=path: _read_header(path))  # type: ignore[misc]  # bound early
            except (LogDamaged, OSError):
                continue  # it is refused by name when it is opened; it must not stand in another one's way

    async def aclose(self) -> None:
        failures: list[StoreError] = []
        for appender in list(self._open.values()):
            try:
                await appender.aclose()
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _next_number(self, directory: Path) -> int:
        number = self._numbers.get(directory, 0)
        while True:
            number += 1
            if not (directory / layout.child_log(number)).exists():
                self._numbers[directory] = number
                return number

    def _find(self, session_id: SessionId) -> Path | None:
        """The file of a stored session, root or child."""
        for directory in layout.directories(self._root, session_id):
            if (directory / layout.MAIN_LOG).is_file():
                return directory / layout.MAIN_LOG
        return next((path for path, header in self._child_headers() if header.id == session_id), None)

    def _child_headers(self) -> Iterator[tuple[Path, SessionHeader]]:
        """The children's headers; a damaged one is skipped, for it must not stand in another session's way."""
        for path in layout.logs(self._root):
            if path.name != layout.MAIN_LOG:
                try:
                    yield path, _read_header(path)
                except (LogDamaged, OSError):
                    continue


class JsonlAppender:
    """The writer of one log file. The file appears, whole, with the first write."""

    def __init__(self, path: Path, header: SessionHeader, registry: dict[SessionId, JsonlAppender]) -> None:
        self.path = path
        self._header = header
        self._registry = registry
        self._packer = codec.Packer()
        self._next = 0
        self._pending = bytearray()
        self._fd: int | None = None
        self._size = 0
        self._dirty = False
        self._to_name = 0
        self._named: asyncio.Future[None] | None = None
        """Waits until the new file's name is on the device; begun when the file is made, for it takes a while."""
        self._closed = False
        self._syncing = anyio.Lock()

    def append(self, event: Event) -> None:
        if event.seq != self._next:
            raise StoreError(f"session {self._header.id}: event {event.seq} where {self._next} was expected")
        self._next += 1
        self._packer.add(event)

    async def write(self) -> None:
        self._write(self._packer.take())

    async def sync(self) -> None:
        self._write(self._packer.take())
        await self._sync()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._registry.pop(self._header.id, None)
        try:
            if self._next:
                self._write(self._packer.take_all())
                await self._sync()
        finally:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def begin_with(self, source: Path, cut: int) -> list[Event]:
        """Copy the first `cut` events of another log, row by row as they are stored."""
        lines, _ = codec.split_lines(source.read_bytes())
        reader = codec.Reader(str(source))
        events: list[Event] = []
        for line in lines[1:]:
            if reader.count >= cut:
                break
            events.extend(reader.read(line))
            self._pending += line + b"\n"
        if reader.count != cut:
            raise StoreError(f"{source}: a fork at event {cut} would split a row or exceed {reader.count} events")
        self._next = cut
        return events

    def continue_after(self, count: int) -> None:
        """Open an existing file for appending after its `count` events; a torn last line is cut off first."""
        log, sound = read_log(self.path)
        if len(log.events) != count:
            raise StoreError(f"{self.path}: it holds {len(log.events)} events, not the {count} that were loaded")
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._fd, sound)
        self._size, self._next = sound, count

    # -- the file

    def _failure(self, deed: str, error: OSError) -> StoreError:
        return StoreError(f"{self.path}: the session log cannot be {deed}: {error.strerror or error}; "
                          f"ACP_SESSION_STORE says where logs are kept")

    def _write(self, rows: bytes) -> None:
        self._pending += rows
        if not self._pending:
            return
        try:
            if self._fd is None:
                self._create()
            else:
                self._extend(self._fd)
        except OSError as error:
            raise self._failure("written", error) from error
        self._size += len(self._pending)
        self._pending.clear()
        self._dirty = True

    def _extend(self, fd: int) -> None:
        """Append everything pending, or leave the file as it was."""
        try:
            write_all(fd, self._pending)
        except OSError:
            os.ftruncate(fd, self._size)
            raise

    def _create(self) -> None:
        """Make the file under its name only when its header and first events are in it, never over another."""
        made = make_private(self.path.parent)
        head = codec.encode_header(self._header)
        temporary = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}.new")
        fd = os.open(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, head + self._pending)
            os.link(temporary, self.path)
        except BaseException:
            os.close(fd)
            raise
        finally:
            temporary.unlink()
        self._fd, self._size = fd, len(head)
        self._to_name = made + 1
        loop = asyncio.get_running_loop()
        self._named = loop.run_in_executor(None, _sync_directories, self.path.parent, self._to_name)

    async def _sync(self) -> None:
        async with self._syncing:
            fd = self._fd
            if fd is None or not self._dirty:
                return
            self._dirty = False
            try:
                await _in_thread(lambda: sync_data(fd))
                await self._sync_name()
            except OSError as error:
                self._dirty = True
                raise self._failure("synced", error) from error

    async def _sync_name(self) -> None:
        named = self._named
        if named is None:
            return
        try:
            await asyncio.shield(named)
        except OSError:
            await _in_thread(lambda: _sync_directories(self.path.parent, self._to_name))
        self._named = None


def make_private(directory: Path) -> int:
    """Make a directory and its missing parents, for their owner alone: logs hold whatever a user works on.

    Returns how many were made.
    """
    if directory.is_dir():
        return 0
    if directory.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    made = make_private(directory.parent)
    directory.mkdir(exist_ok=True, mode=0o700)
    return made + 1


def write_all(fd: int, data: bytes | bytearray) -> None:
    """`os.write` until everything is written."""
    view = memoryview(data)
    try:
        while view:
            written = os.write(fd, view)
            view = view[written:]
    finally:
        view.release()


def _sync_directories(directory: Path, count: int) -> None:
    """Wait until the names in a directory, and in so many above it, are on the device."""
    for _ in range(count):
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        directory = directory.parent


sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def read_log(path: Path) -> tuple[StoredLog, int]:
    """A log for continuation, and the size of its sound part: what follows is a torn last line.

    Raises `LogDamaged` naming file and line for anything else that is not sound.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogDamaged(f"the log cannot be read: {error.strerror or error}", file=str(path)) from None
    lines, torn = codec.split_lines(data)
    if not lines:
        raise LogDamaged("the log has no complete header line", file=str(path))
    header = codec.decode_header(lines[0], str(path))
    reader = codec.Reader(str(path))
    events = [event for line in lines[1:] for event in reader.read(line)]
    return StoredLog(header, events), len(data) - len(torn)


def _read_header(path: Path) -> SessionHeader:
    with path.open("rb") as file:
        return codec.decode_header(file.readline().rstrip(b"\n"), str(path))


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Run blocking file work off the event loop; a cancelled caller still waits until it is done."""
    work = asyncio.get_running_loop().run_in_executor(None, function)
    with anyio.CancelScope(shield=True):
        await asyncio.wait([work])
    return work.result()

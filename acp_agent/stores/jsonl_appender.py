"""The writer of one log file: groups of rows are appended whole, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio

from acp_agent.errors import StoreError
from acp_agent.session import codec
from acp_agent.session.events import Chunk, Event, SessionHeader, SessionTitle
from acp_agent.stores import files
from acp_agent.stores.files import advice, in_thread, write_all
from acp_agent.stores.jsonl_open_file import check_unchanged
from acp_agent.stores.jsonl_reading import Lines, header_of
from acp_agent.stores.jsonl_titles import beyond_head, note_title
from acp_agent.stores.jsonl_tree import OpenTree, temporary
from acp_agent.stores.pace import Pace


class JsonlAppender:
    """Appends to a log file. A new one appears, whole, with the first write."""

    def __init__(
        self, path: Path, header: SessionHeader, tree: OpenTree,
        admit: Callable[[JsonlAppender], Awaitable[None]], closed: Callable[[JsonlAppender], None],
    ) -> None:
        """`admit` is asked before the file is made, and refuses an id that is taken; `closed` is told of the end."""
        self.path = path
        self.header = header
        self.tree = tree
        self._admit = admit
        self._told_closed = closed
        self._packer = codec.Packer()
        self._next = 0
        self._pending = bytearray()
        self._fd: int | None = None
        self._size = 0
        self._torn = False
        """Whether the file may end in a part of a group that could not be written, or not be taken back."""
        self._dirty = False
        self._title: str | None = None
        self._named: asyncio.Future[None] | None = None
        """Waits until the new file's name is on the device; begun when the file is made, for it takes a while."""
        self._to_name = 0
        self._stored = False
        self._closed = False
        self._making = anyio.Lock()
        self._syncing = anyio.Lock()
        tree.enter(self)

    @property
    def stored(self) -> bool:
        """Whether there is a file, made by this appender or continued by it."""
        return self._stored

    def append(self, event: Event) -> None:
        self._check(event.seq)
        self._next += 1
        self._packer.add(event)
        if type(event.body) is SessionTitle:
            self._title = event.body.title

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        self._check(first)
        self._next += len(chunks)
        self._packer.add_chunks(first, time, turn, step, chunks)

    def _check(self, seq: int) -> None:
        if self._closed:
            raise StoreError(f"session {self.header.id!r}: it is closed, and takes no more events")
        if seq != self._next:
            raise StoreError(f"session {self.header.id!r}: event {seq} where {self._next} was expected")

    async def write(self) -> None:
        if not self._closed:
            await self._write(self._packer.take())

    async def sync(self) -> None:
        if not self._closed:
            await self._write(self._packer.take())
            await self._sync()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._next:
                await self._write(self._packer.take_all())
                await self._sync()
        finally:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
            self._told_closed(self)

    # -- what an existing log brings

    def continue_after(self, count: int, end: int, torn: bool) -> None:
        """Open an existing file for appending after its `count` events, which end at byte `end`.

        Raises `OSError`, and `StoreError` when it is not the file that was read.
        """
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._fd, self._size, self._next = fd, end, count
        self._stored, self._torn = True, torn
        check_unchanged(self.path, fd, self._size, torn=self._torn)
        if torn:
            self._repair(fd)
            self._dirty = True

    def begin_with(self, source: Path, fd: int, cut: int, pace: Pace) -> list[Event]:
        """Copy the first `cut` events of another log, row by row as they are stored.

        Raises `LogDamaged`, `ProjectedLog` for one that cannot be continued, and `StoreError` when there are fewer.
        """
        body = iter(Lines(fd, source, pace))
        header_of(next(body, b""), source)
        reader = codec.Reader(str(source))
        events: list[Event] = []
        rows, open_run = bytearray(), []
        for line in body:
            if reader.count >= cut:
                reader.settled(line)
                continue
            of_line = list(reader.read(line))
            if reader.count <= cut:
                rows += line + b"\n"
            else:
                open_run = of_line = of_line[: cut - reader.count]
            events += of_line
        reader.check_continuable()
        if len(events) < cut:
            raise StoreError(f"{source}: it has {len(events)} events, so none can begin with its first {cut}")
        for event in open_run:
            self._packer.add(event)
        self._pending += rows
        self._next = cut
        self._title = next((event.body.title for event in reversed(events) if type(event.body) is SessionTitle), None)
        return events

    # -- the file

    def _failure(self, deed: str, error: OSError) -> StoreError:
        return StoreError(f"{self.path}: the session log cannot be {deed}: {error.strerror or error}; "
                          + advice(error, "ACP_SESSION_STORE says where logs are kept"))

    async def _write(self, rows: bytes) -> None:
        self._pending += rows
        if not self._pending:
            return
        if self._fd is None:
            async with self._making:
                if self._fd is None:
                    await self._admit(self)
                    self._make()
        if self._pending:
            self._append()

    def _append(self) -> None:
        assert self._fd is not None
        try:
            check_unchanged(self.path, self._fd, self._size, torn=self._torn)
            self._extend(self._fd)
        except OSError as error:
            raise self._failure("written", error) from error
        self._written(len(self._pending))

    def _written(self, size: int) -> None:
        self._size += size
        self._pending.clear()
        self._dirty = True
        title, self._title = self._title, None
        if title is not None and beyond_head(self.path, self._size):
            note_title(self.path, title)

    def _extend(self, fd: int) -> None:
        """Append everything pending, or leave the file as it was."""
        self._repair(fd)
        self._torn = True
        try:
            write_all(fd, self._pending)
        except OSError:
            self._repair(fd)
            raise
        self._torn = False

    def _repair(self, fd: int) -> None:
        """Cut off what may stand after the last whole group."""
        if self._torn:
            os.ftruncate(fd, self._size)
            self._torn = False

    def _make(self) -> None:
        try:
            self.tree.hold_new()
            self._create()
        except OSError as error:
            self.tree.fail()
            raise self._failure("written", error) from error
        except StoreError:
            self.tree.fail()
            raise
        self.tree.store()
        loop = asyncio.get_running_loop()
        self._to_name = self.tree.made + 1
        self._named = loop.run_in_executor(None, files.sync_directories, self.path.parent, self._to_name)

    def _create(self) -> None:
        """Make the file under its name only when its header and first events are in it, never over another."""
        head = codec.encode_header(self.header)
        new = temporary(self.path)
        fd = os.open(new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, head + self._pending)
            self._name(new)
        except BaseException:
            os.close(fd)
            raise
        finally:
            new.unlink()
        self._fd, self._size, self._stored = fd, len(head), True
        self._written(len(self._pending))

    def _name(self, new: Path) -> None:
        try:
            os.link(new, self.path)
        except FileExistsError:
            raise StoreError(f"{self.path}: the session log cannot be written: there is one already; a session's id "
                             "is used once") from None

    async def _sync(self) -> None:
        async with self._syncing:
            fd = self._fd
            if fd is None or not self._dirty:
                return
            try:
                check_unchanged(self.path, fd, self._size, torn=self._torn)
                self._dirty = False
                await in_thread(lambda: files.sync_data(fd))
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
            await in_thread(lambda: files.sync_directories(self.path.parent, self._to_name))
        self._named = None



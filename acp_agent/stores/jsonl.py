"""The JSONL store: one file a session, one directory a tree. Readable, and a replay directory, as it stands."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import Event, SessionHeader
from acp_agent.stores import layout
from acp_agent.stores.base import PAGE, Continuation, Page, RepairReport, SessionSummary, StoredLog, Tree
from acp_agent.stores.files import advice, in_thread
from acp_agent.stores.jsonl_appender import JsonlAppender
from acp_agent.stores.jsonl_finding import Finder
from acp_agent.stores.jsonl_reading import (
    CHUNK,
    Settled,
    advised,
    check_ancestry,
    check_place,
    open_log,
    read_events,
    read_log,
    root_of,
    settle,
)
from acp_agent.stores.jsonl_tree import OpenTree
from acp_agent.stores.pace import Pace

__all__ = ["JsonlAppender", "JsonlStore", "read_log"]

_T = TypeVar("_T")


class JsonlStore:
    """Session logs as files below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[SessionId, JsonlAppender] = {}
        self._opening: set[SessionId] = set()
        self._trees: dict[Path, OpenTree] = {}
        self._finder = Finder(root)
        self._listing: Callable[[str | None, tuple[int, SessionId] | None, int], Page] | None = None
        self._listing_alone = threading.Lock()

    # -- writing

    def create(self, header: SessionHeader, root: SessionId) -> JsonlAppender:
        tree = self._tree(self._directory(header, root), root)
        name = layout.MAIN_LOG if header.id == root else layout.child_log(tree.next_number())
        appender = self._appender(tree.directory / name, header, tree)
        self._open.setdefault(header.id, appender)
        return appender

    async def fork(self, session_id: SessionId, source_id: SessionId, cut: int) -> Sequence[Event]:
        writer = self._opened(session_id)
        path = await self._source(source_id)
        events = await self._read(source_id, path, lambda fd: writer.begin_with(path, fd, cut, Pace()))
        if path.parent != writer.tree.directory:
            await in_thread(lambda: _give_blobs(path.parent, source_id, writer.tree))
        return events

    async def _source(self, session_id: SessionId) -> Path:
        """The log of a session with all that there is of it."""
        source = self._open.get(session_id)
        if source is None:
            return await self._find(session_id)
        await source.write()
        if not source.stored:
            raise SessionNotFound(session_id)
        return source.path

    async def load(self, session_id: SessionId) -> Continuation:
        if session_id in self._open or session_id in self._opening:
            raise _open_here(session_id)
        self._opening.add(session_id)
        try:
            return await self._load(session_id, await self._find(session_id))
        finally:
            self._opening.discard(session_id)

    async def _load(self, session_id: SessionId, path: Path) -> Continuation:
        tree = self._tree(path.parent, root_of(path))
        loading = object()
        tree.enter(loading)
        appender = None
        try:
            settled = await self._settle_held(session_id, path, tree)
            appender = self._appender(path, settled.header, tree)
            appender.continue_after(settled.count, settled.end, bool(settled.torn))
            self._open[session_id] = appender
            tree.store()
        except (OSError, StoreError) as error:
            if appender is not None:
                self._leave(tree, appender)
            if isinstance(error, StoreError):
                raise
            raise _unopenable(path, error) from error
        finally:
            self._leave(tree, loading)
        return Continuation(settled.header, tree.root, settled.events, settled.count, settled.time,
                            bool(settled.torn), appender)

    async def _settle_held(self, session_id: SessionId, path: Path, tree: OpenTree) -> Settled:
        def work(fd: int) -> Settled:
            settled = settle(path, fd, Pace())
            check_place(settled.header, path)
            check_ancestry(settled.header, path)
            return settled

        def hold() -> None:
            try:
                tree.hold()
            except (FileNotFoundError, NotADirectoryError):
                raise SessionNotFound(session_id) from None

        await in_thread(hold)
        return await self._read(session_id, path, work)

    async def delete(self, session_id: SessionId) -> None:
        from acp_agent.stores.jsonl_moving import remove

        if session_id in self._open or session_id in self._opening:
            raise _open_here(session_id)
        path = await self._find(session_id)
        if path.name != layout.MAIN_LOG:
            raise StoreError(f"session {session_id!r} is a child in the tree of {root_of(path)!r}: delete that one, "
                             "with all its descendants")
        if path.parent in self._trees:
            raise StoreError(f"session {session_id!r} has a descendant that is open here; close it first")
        self._opening.add(session_id)
        try:
            await in_thread(lambda: remove(path.parent, session_id))
        finally:
            self._opening.discard(session_id)
        self._finder.removed(path.parent)

    async def adopt(self, tree: Tree) -> SessionId:
        from acp_agent.stores.jsonl_moving import adopt

        def taken(session_id: SessionId) -> str | None:
            if session_id in self._open:
                return "it is open here"
            found = self._finder.find_other(session_id, None)
            return None if found is None else str(found)

        header, directory = await in_thread(lambda: adopt(self._root, tree, taken))
        await in_thread(lambda: self._finder.adopted(directory))
        return header.id

    async def repair(self, session_id: SessionId, *, dry_run: bool = False) -> RepairReport:
        from acp_agent.stores.jsonl_repair import examine, repair

        if dry_run:
            path = await self._find(session_id)
            return await self._examined(session_id, lambda: examine(path, session_id))
        if session_id in self._open or session_id in self._opening:
            raise _open_here(session_id)
        path = await self._find(session_id)
        tree = self._tree(path.parent, root_of(path))
        tree.enter(session_id)
        self._opening.add(session_id)
        try:
            return await self._examined(session_id, lambda: repair(path, session_id, tree))
        finally:
            self._opening.discard(session_id)
            self._leave(tree, session_id)

    async def _examined(self, session_id: SessionId, work: Callable[[], RepairReport]) -> RepairReport:
        try:
            return await in_thread(work)
        except FileNotFoundError:
            raise SessionNotFound(session_id) from None

    # -- reading

    async def inspect(self, session_id: SessionId) -> StoredLog:
        path = await self._find(session_id)

        def work(fd: int) -> StoredLog:
            log, _ = read_events(path, fd, Pace())
            check_place(log.header, path)
            return log

        return await self._read(session_id, path, work)

    async def read_from(self, session_id: SessionId, seq: int) -> Sequence[Event]:
        return (await self.inspect(session_id)).events[max(seq, 0):]

    async def list(self, *, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE) -> Page:
        from acp_agent.stores.cursors import decode_cursor

        after = None
        if cursor is not None:
            created_at, session_id = decode_cursor(cursor)
            after = -created_at, session_id
        return await self._look(lambda: self._page(cwd, after, max(limit, 1)))

    def _page(self, cwd: str | None, after: tuple[int, SessionId] | None, limit: int) -> Page:
        from acp_agent.stores.jsonl_listing import Listing

        with self._listing_alone:
            if self._listing is None:
                self._listing = Listing(self._root).page
            return self._listing(cwd, after, limit)

    async def tree(self, session_id: SessionId) -> Sequence[SessionSummary]:
        from acp_agent.stores.jsonl_listing import summarise_tree

        path = await self._find(session_id)
        try:
            return await in_thread(lambda: summarise_tree(path.parent))
        except FileNotFoundError:
            raise SessionNotFound(session_id) from None

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        path = await self._find(session_id)

        def check(fd: int) -> tuple[int, int]:
            settled = settle(path, fd, Pace(), continuing=False)
            check_place(settled.header, path)
            return os.dup(fd), settled.end

        fd, end = await self._read(session_id, path, check)
        try:
            at, size = 0, CHUNK
            while at < end:
                piece = await in_thread(lambda at=at, size=size: os.pread(fd, min(size, end - at), at))  # type: ignore[misc]  # bound early
                whole = piece.rfind(b"\n") + 1
                if whole:
                    yield piece[:whole]
                    at += whole
                elif piece:
                    size *= 2
                else:
                    raise LogDamaged("it became shorter while it was read; try again", file=str(path))
        finally:
            os.close(fd)

    async def blob(self, session_id: SessionId, blob: BlobId) -> bytes:
        from acp_agent.stores import jsonl_blobs

        directory = await self._tree_directory(session_id)
        return await in_thread(lambda: jsonl_blobs.get(directory, session_id, blob))

    async def blobs(self, session_id: SessionId) -> Sequence[BlobId]:
        from acp_agent.stores import jsonl_blobs

        directory = await self._tree_directory(session_id)
        return await in_thread(lambda: jsonl_blobs.names(directory))

    async def put_blob(self, session_id: SessionId, data: bytes) -> BlobId:
        from acp_agent.stores import jsonl_blobs

        tree = self._opened(session_id).tree

        def put() -> BlobId:
            try:
                tree.hold_new()
            except OSError as error:
                raise _unopenable(tree.directory, error) from error
            return jsonl_blobs.put(tree.directory, data)

        return await in_thread(put)

    async def outputs(self, session_id: SessionId) -> Sequence[Path]:
        from acp_agent.stores import outputs

        directory = await self._tree_directory(session_id)
        return await in_thread(lambda: outputs.files(directory / layout.OUTPUT))

    def exists(self, session_id: SessionId) -> bool:
        return session_id in self._open or self._finder.exists(session_id)

    def spill_directory(self, session_id: SessionId) -> Path:
        return self._open[session_id].tree.directory / layout.OUTPUT

    async def aclose(self) -> None:
        failures: list[StoreError] = []
        for tree in list(self._trees.values()):
            for appender in tree.members():
                try:
                    if isinstance(appender, JsonlAppender):
                        await appender.aclose()
                except StoreError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    # -- what is where

    async def _find(self, session_id: SessionId) -> Path:
        opened = self._open.get(session_id)
        if opened is not None and opened.stored:
            return opened.path
        return await self._look(lambda: self._finder.find(session_id))

    async def _look(self, function: Callable[[], _T]) -> _T:
        """Have a thread look through the store. Raises `StoreError` when that is not allowed."""
        try:
            return await in_thread(function)
        except OSError as error:
            raise StoreError(f"{error.filename or self._root}: the stored sessions cannot be looked through: "
                             f"{error.strerror or error}; ACP_SESSION_STORE says where logs are kept") from error

    async def _tree_directory(self, session_id: SessionId) -> Path:
        opened = self._open.get(session_id)
        return (await self._find(session_id)).parent if opened is None else opened.tree.directory

    async def _read(self, session_id: SessionId, path: Path, work: Callable[[int], _T]) -> _T:
        """Have a thread do something with an open log. Raises `SessionNotFound` when it has gone meanwhile."""

        def run() -> _T:
            fd = open_log(path)
            try:
                return work(fd)
            finally:
                os.close(fd)

        try:
            return await in_thread(run)
        except FileNotFoundError:
            raise SessionNotFound(session_id) from None
        except LogDamaged as error:
            raise advised(error, session_id) from None

    def _directory(self, header: SessionHeader, root: SessionId) -> Path:
        """Where the tree of a new session is, or is to be."""
        opened = next((tree.directory for tree in self._trees.values() if tree.root == root), None)
        if opened is None and header.id != root:
            opened = next(layout.directories(self._root, root), None)
        return opened or layout.session_directory(self._root, header.cwd, root)

    def _tree(self, directory: Path, root: SessionId) -> OpenTree:
        tree = self._trees.get(directory)
        if tree is None:
            tree = self._trees[directory] = OpenTree(directory, root)
        return tree

    def _leave(self, tree: OpenTree, member: object) -> None:
        if tree.leave(member) and self._trees.get(tree.directory) is tree:
            del self._trees[tree.directory]

    # -- appenders

    def _opened(self, session_id: SessionId) -> JsonlAppender:
        try:
            return self._open[session_id]
        except KeyError:
            raise StoreError(f"session {session_id!r} is not open here; create or load it first") from None

    def _appender(self, path: Path, header: SessionHeader, tree: OpenTree) -> JsonlAppender:
        return JsonlAppender(path, header, tree, self._admit, self._closed)

    async def _admit(self, appender: JsonlAppender) -> None:
        """Refuse a new session whose id is taken. Raises `StoreError`."""
        session_id = appender.header.id
        if self._open.get(session_id) is not appender:
            raise _open_here(session_id)
        taken = await self._look(lambda: self._finder.find_other(session_id, appender.path))
        if taken is not None:
            raise StoreError(f"session {session_id!r} is stored already, as {taken}; a session's id is used once")

    def _closed(self, appender: JsonlAppender) -> None:
        session_id = appender.header.id
        if self._open.get(session_id) is appender:
            del self._open[session_id]
            if appender.stored:
                self._finder.stored(session_id, appender.path)
        self._leave(appender.tree, appender)


def _open_here(session_id: SessionId) -> StoreError:
    return StoreError(f"session {session_id!r} is open here already; close it first")


def _unopenable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: the session cannot be opened for writing: {error.strerror or error}; "
                      + advice(error, "ACP_SESSION_STORE says where logs are kept"))


def _give_blobs(source: Path, source_id: SessionId, target: OpenTree) -> None:
    from acp_agent.stores import jsonl_blobs

    if jsonl_blobs.names(source):
        try:
            target.hold_new()
        except OSError as error:
            raise _unopenable(target.directory, error) from error
        jsonl_blobs.copy(source, target.directory, source_id)

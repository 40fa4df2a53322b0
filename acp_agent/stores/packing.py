"""Session trees outside any store: a directory of a root's log, its children's logs, their blobs and kept tool output.

Laid out as the JSONL store lays out a session (`session.jsonl`, `session.1.jsonl`, ..., `blobs/`, `output/`), so such a
directory is a replay directory as it stands, whichever store it comes from. Files are read and written where they
stand, for this is the work of commands, which have nothing else to do.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.codec import decode_header
from acp_agent.session.events import SessionHeader
from acp_agent.stores import layout, outputs
from acp_agent.stores.base import Store, Tree
from acp_agent.stores.files import write_all
from acp_agent.stores.jsonl_reading import delegated

BLOBS = "blobs"
_DIGEST = frozenset("0123456789abcdef")
_REFERENCE = re.compile(rb'"attachmentId"\s*:\s*"([0-9a-f]{64})"')
_HEADER_LIMIT = 1 << 20
"""Bytes in which a first line must end to be looked at."""


# ---------------------------------------------------------------- from a path


def read_tree(path: Path) -> Tree:
    """The tree at `path`: a directory of logs, or one log file alone.

    Nothing but the first lines is read. Raises `StoreError` where there is no tree, `LogDamaged` for a log without a
    readable header.
    """
    try:
        if not path.is_dir():
            _only_root([(path, _header(path))], path)
            return Tree((path,), {})
        names = sorted((entry.name for entry in path.iterdir() if entry.suffix == ".jsonl"), key=_order)
        found = [(path / name, header) for name in names if (header := _log_header(path / name)) is not None]
        root = _only_root(found, path)
        children = [file for file, _ in found if file != root]
        return Tree((root, *children), _blobs(path / BLOBS), outputs.files(path / layout.OUTPUT))
    except OSError as error:
        raise StoreError(f"{error.filename or path}: it cannot be read: {error.strerror or error}") from None


def _order(name: str) -> tuple[bool, int, str]:
    """The root's file, then `session.2.jsonl` before `session.10.jsonl`, then files of other names."""
    return (name != layout.MAIN_LOG, len(name) if _is_log_name(name) else 1 << 16, name)


def _is_log_name(name: str) -> bool:
    middle = name.removeprefix("session").removesuffix(".jsonl")
    return name.startswith("session") and (not middle or middle[1:].isdigit())


class _Probe(Struct):
    type: Any = None


_probe = msgspec.json.Decoder(_Probe).decode


def _log_header(path: Path) -> SessionHeader | None:
    """A log's header; None for a file that is no log. What bears a log's name must be one."""
    if not path.is_file():
        return None
    line = _first_line(path)
    try:
        is_log = _probe(line).type == "session"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        is_log = False
    return decode_header(line, str(path)) if is_log or _is_log_name(path.name) else None


def _header(path: Path) -> SessionHeader:
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: neither a file nor a directory")
    return decode_header(_first_line(path), str(path))


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        line = file.readline(_HEADER_LIMIT)
    if not line.endswith(b"\n"):
        raise LogDamaged("the log is empty" if not line else "the log has no complete header line", file=str(path))
    return line[:-1]


def _only_root(found: Sequence[tuple[Path, SessionHeader]], where: Path) -> Path:
    roots = [(file, header) for file, header in found if not delegated(header)]
    if len(roots) == 1:
        return roots[0][0]
    if roots:
        ids = ", ".join(repr(header.id) for _, header in roots)
        raise StoreError(f"{where}: {len(roots)} root sessions ({ids}) lie in this directory; put each into a "
                         "directory of its own, with its children")
    if found:
        raise StoreError(f"{where}: only children are here, of {found[0][1].parent_session!r}; name the directory "
                         "that their root's log is in")
    raise StoreError(f"{where}: no session log is here; name a log file or a directory of {layout.MAIN_LOG}")


def _blobs(directory: Path) -> dict[BlobId, Path]:
    if not directory.is_dir():
        return {}
    return {BlobId(file.name): file for file in sorted(directory.iterdir())
            if len(file.name) == 64 and _DIGEST.issuperset(file.name) and file.is_file()}


# ---------------------------------------------------------------- to a directory


class Written(Struct, frozen=True):
    """A tree that was copied. `left_out` says why each other session of it, and each blob that a log names, could not
    be.
    """

    tree: Tree
    left_out: Sequence[StoreError]


async def write_tree(store: Store, session_id: SessionId, directory: Path, *, blobs: bool = True) -> Written:
    """Copy the tree that a session belongs to into `directory`, which must not exist or be empty.

    The directory gets its name when all is in it. A tree that is being written to is copied as far as it is written:
    each log as it is at one moment, and a child's later than its parent's, so that what a log tells of a child is
    in the child's. Damaged relatives of the session are left out, and so is content that is not what was stored.

    Raises `SessionNotFound`, `LogDamaged` for the session itself, and `StoreError` where the directory cannot be made.
    """
    made = directory.absolute()
    there = _is_there(made)
    unique = f".{os.urandom(8).hex()}.new"
    scratch = made / unique if there else made.with_name(f".{made.name}{unique}")
    try:
        _make(scratch)
        logs, left_out = await _write_logs(store, session_id, scratch)
        kept, unsound = await _write_blobs(store, session_id, scratch, logs) if blobs else ([], [])
        spilled = await store.outputs(session_id) if blobs else ()
        outputs.copy(spilled, scratch / layout.OUTPUT)
        _name(scratch, made, there=there)
    except OSError as error:
        raise StoreError(f"{directory}: it cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    tree = Tree([directory / name for name in logs], {blob: directory / BLOBS / blob for blob in kept},
                [directory / layout.OUTPUT / file.name for file in spilled])
    return Written(tree, [*left_out, *unsound])


def _make(directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700)


def _name(scratch: Path, directory: Path, *, there: bool) -> None:
    """Give the finished copy its place. A directory that is there stays: somebody may work in it."""
    if not there:
        scratch.rename(directory)
        return
    for file in sorted(scratch.iterdir(), key=lambda file: _order(file.name), reverse=True):
        file.rename(directory / file.name)  # the root's log last: without it there is nothing to replay


def _is_there(directory: Path) -> bool:
    """Whether the directory exists. Raises `StoreError` when something is in it, or when it is none."""
    try:
        used = any(True for _ in directory.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise StoreError(f"{directory}: a file is here or above; name a directory that does not exist") from None
    except OSError as error:
        raise StoreError(f"{directory}: it cannot be looked at: {error.strerror or error}") from None
    if used:
        raise StoreError(f"{directory}: the directory is not empty; name one that does not exist")
    return True


async def _write_logs(
    store: Store, session_id: SessionId, directory: Path,
) -> tuple[Sequence[str], Sequence[LogDamaged]]:
    """Every log of the tree; the file names. Looks again until no child appeared meanwhile."""
    seen: set[SessionId] = set()
    names: list[str] = []
    left_out: list[LogDamaged] = []
    while True:
        members = [one.id for one in await store.tree(session_id)]
        new = [member for member in members if member not in seen]
        if not new:
            return names, left_out
        for member in new:
            seen.add(member)
            children = len(names) - (layout.MAIN_LOG in names)
            name = layout.MAIN_LOG if member == members[0] else layout.child_log(children + 1)
            try:
                await write_log(store, member, directory / name)
                names.append(name)
            except LogDamaged as error:
                if member == session_id:
                    raise
                left_out.append(error)


async def write_log(store: Store, session_id: SessionId, file: Path) -> None:
    """Write a session's exact log to a new file. Raises `OSError` beside what `Store.export` raises."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        async for piece in store.export(session_id):
            write_all(fd, piece)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


async def _write_blobs(
    store: Store, session_id: SessionId, directory: Path, logs: Sequence[str]
) -> tuple[list[BlobId], list[StoreError]]:
    """Everything stored that is sound; what of the rest is missing, or is not what it was."""
    kept: list[BlobId] = []
    unsound: list[StoreError] = []
    named = set[BlobId]().union(*(_named_in(directory / log) for log in logs))
    for blob in sorted(named.union(await store.blobs(session_id))):
        try:
            data = await store.blob(session_id, blob)
        except StoreError as error:
            unsound.append(error)
            continue
        if not kept:
            (directory / BLOBS).mkdir(mode=0o700)
        _write_new(directory / BLOBS / blob, data)
        kept.append(blob)
    return kept, unsound


def _named_in(log: Path) -> set[BlobId]:
    with log.open("rb") as lines:
        return set[BlobId]().union(*map(named_blobs, lines))


def named_blobs(lines: bytes) -> set[BlobId]:
    """The content that lines of a log refer to. In a text the quotes would be escaped."""
    return {BlobId(name.decode()) for name in _REFERENCE.findall(lines)}


async def unsound_blobs(store: Store, session_id: SessionId) -> list[StoreError]:
    """Why content that a session's log refers to cannot be read. Raises what `Store.export` raises."""
    named: set[BlobId] = set()
    async for piece in store.export(session_id):
        named |= named_blobs(piece)
    unsound: list[StoreError] = []
    for blob in sorted(named):
        try:
            await store.blob(session_id, blob)
        except StoreError as error:
            unsound.append(error)
    return unsound


def _write_new(file: Path, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)

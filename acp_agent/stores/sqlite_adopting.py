"""Taking a tree of log files into the SQLite store: everything is read and checked before anything is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection

import msgspec
from msgspec import UNSET, Raw, Struct

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.codec import Reader, Record, decode_header
from acp_agent.session.events import SessionHeader, SpawnKey
from acp_agent.session.seed import check_seed
from acp_agent.stores.base import Tree
from acp_agent.stores.jsonl_reading import Lines, delegated, open_log
from acp_agent.stores.pace import Pace
from acp_agent.stores.sqlite_blobs import drop_blobs, store_blob
from acp_agent.stores.sqlite_places import check_free
from acp_agent.stores.sqlite_rows import Place, extra_keys, insert_events, insert_session, title_of


class ReadLog(Struct, frozen=True):
    """A log file that could be continued. `line` is its header line, without the newline."""

    path: Path
    header: SessionHeader
    line: bytes
    records: Sequence[Record]


class ReadTree(Struct, frozen=True):
    """A tree of them, root first, and its binary content."""

    logs: Sequence[ReadLog]
    blobs: Mapping[BlobId, bytes]

    @property
    def root(self) -> SessionId:
        return self.logs[0].header.id


def read_tree(tree: Tree) -> ReadTree:
    """Read and check a tree. Raises `LogDamaged`, `StoreError` and `OSError`."""
    logs = [_read_log(path) for path in tree.logs]
    _check_shape(logs)
    return ReadTree(logs, {blob: _read_blob(blob, path) for blob, path in tree.blobs.items()})


def _read_log(path: Path) -> ReadLog:
    fd = open_log(path)
    try:
        body = iter(Lines(fd, path, Pace()))
        line = next(body, None)
        if line is None:
            raise LogDamaged("the log has no complete header line", file=str(path))
        header = decode_header(line, str(path))
        _check_spawn(path, line)
        records = list(_records(path, body))
    finally:
        os.close(fd)
    length = header.seed_length
    if length is not UNSET:
        types = {seq: records[seq].type for seq in (length - 1, length) if 0 <= seq < len(records)}
        check_seed(header, len(records), types.get(length - 1), types.get(length), str(path))
    return ReadLog(path, header, line, records)


def _records(path: Path, lines: Iterator[bytes]) -> Iterator[Record]:
    reader = Reader(str(path))
    for number, line in enumerate(lines, 2):
        yield from reader.records(line)
        _check_keys(path, number, line)
    reader.check_continuable()


class _Single(Struct, forbid_unknown_fields=True, rename="camel"):
    """The keys of a record: those that a row of a table has a place for. A packed row has no others than its own."""

    type: str
    seq: Raw = Raw()
    time: Raw = Raw()
    data: Raw = Raw()
    source_event_seqs: Raw = Raw()
    surface_op: Raw = Raw()
    ignorable: Raw = Raw()


_single = msgspec.json.Decoder(_Single).decode
_keys = msgspec.json.Decoder(dict[str, Raw]).decode
_NAMES = frozenset(_Single.__struct_encode_fields__)


def _check_keys(path: Path, number: int, line: bytes) -> None:
    """Refuse a sound record with a key that would be lost."""
    try:
        _single(line)
    except msgspec.ValidationError:
        row = _keys(line)
        if "seq" in row:
            _refuse_keys(path, number, row.keys() - _NAMES)


def _check_spawn(path: Path, line: bytes) -> None:
    """The same for the one key of a header that has keys itself; others are all kept."""
    spawn = _keys(line).get("spawn")
    if spawn is not None:
        _refuse_keys(path, 1, {f"spawn.{key}" for key in _keys(spawn).keys() - SpawnKey.__struct_encode_fields__})


def _refuse_keys(path: Path, number: int, keys: Set[str]) -> None:
    if keys:
        named = ", ".join(map(repr, sorted(keys)))
        raise LogDamaged(f"a database has no place for {named}, which would be lost; a JSONL store keeps that",
                         file=str(path), line=number)


def _check_shape(logs: Sequence[ReadLog]) -> None:
    if not logs:
        raise StoreError("there is no session log to take in")
    root, *children = logs
    if delegated(root.header):
        raise StoreError(f"{root.path}: session {root.header.id!r} is a child of {root.header.parent_session!r}; take "
                         "in its root, with all its children", file=str(root.path))
    ids = {root.header.id}
    rest = list(children)
    while rest:
        joined = [log for log in rest if delegated(log.header) and log.header.parent_session in ids]
        if not joined:
            path, header = rest[0].path, rest[0].header
            what = f"a child of {header.parent_session!r}" if delegated(header) else "a root itself"
            raise StoreError(f"{path}: session {header.id!r} does not belong to the tree of {root.header.id!r}: it is "
                             f"{what}; take in each root with its own children", file=str(path))
        for log in joined:
            if log.header.id in ids:
                raise StoreError(f"{log.path}: session {log.header.id!r} is in this tree twice; leave one out",
                                 file=str(log.path))
            ids.add(log.header.id)
        rest = [log for log in rest if log not in joined]


def _read_blob(blob: BlobId, path: Path) -> bytes:
    data = path.read_bytes()
    if sha256(data).hexdigest() != blob:
        raise StoreError(f"{path}: it should be content {blob}, but its digest is another one; leave it out, or bring "
                         "back the right file", file=str(path))
    return data


def store_tree(connection: Connection, file: Path, tree: ReadTree) -> None:
    """Store a tree in the transaction under way. Raises `StoreError` for an id that is taken, `LogDamaged` for one of
    which something is left.
    """
    for number, log in enumerate(tree.logs):
        records = log.records
        title = next((title for record in reversed(records) if (title := title_of(record)) is not None), None)
        updated_at = records[-1].time if records else log.header.created_at
        check_free(connection, file, log.header.id)
        insert_session(connection, log.header, Place(tree.root, number), extra_keys(log.line), title, updated_at)
        insert_events(connection, log.header.id, records)
    drop_blobs(connection, tree.root)  # what a killed process stored for a session that never came to be
    for blob, data in tree.blobs.items():
        store_blob(connection, tree.root, blob, data)

"""Binary content beside a tree's logs: one file for each digest."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from acp_agent.errors import BlobNotFound, LogDamaged, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.stores import layout
from acp_agent.stores.files import advice, make_private, sync_directories, write_all
from acp_agent.stores.jsonl_reading import open_log
from acp_agent.stores.jsonl_tree import temporary

_DIGEST = re.compile("[0-9a-f]{64}")


def put(directory: Path, data: bytes) -> BlobId:
    """Keep content in a tree's directory, on the device. Raises `StoreError`."""
    blob = BlobId(hashlib.sha256(data).hexdigest())
    path = directory / layout.BLOBS / blob
    try:
        if path.is_file() and path.read_bytes() == data:
            return blob
        made = make_private(path.parent)
        new = temporary(path)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        sync_directories(path.parent, made + 1)
    except OSError as error:
        raise StoreError(f"{path}: content of {len(data)} bytes cannot be kept: {error.strerror or error}; "
                         + advice(error, "ACP_SESSION_STORE says where it is kept")) from error
    return blob


def get(directory: Path, session_id: SessionId, blob: BlobId) -> bytes:
    """Content of a tree. Raises `BlobNotFound`, and `LogDamaged` when it is not what it was."""
    if not _DIGEST.fullmatch(blob):
        raise BlobNotFound(session_id, blob)
    path = directory / layout.BLOBS / blob
    try:
        fd = open_log(path, "stored file")
    except FileNotFoundError:
        raise BlobNotFound(session_id, blob) from None
    except OSError as error:
        raise StoreError(f"{path}: the content cannot be read: {error.strerror or error}; make it readable for this "
                         "user, or bring back a copy") from None
    with os.fdopen(fd, "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != blob:
        raise LogDamaged("the content is not what was stored: its digest is another one; bring back a copy",
                         file=str(path))
    return data


def names(directory: Path) -> list[BlobId]:
    """All content of a tree, sorted."""
    try:
        with os.scandir(directory / layout.BLOBS) as entries:
            return sorted(BlobId(one.name) for one in entries if _DIGEST.fullmatch(one.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def copy(source: Path, target: Path, session_id: SessionId) -> None:
    """Give a tree all the sound content of another one. Raises `StoreError` when it cannot be kept."""
    if source == target:
        return
    for blob in names(source):
        try:
            data = get(source, session_id, blob)
        except StoreError:
            continue  # who asks for it is told, as of the source's
        put(target, data)

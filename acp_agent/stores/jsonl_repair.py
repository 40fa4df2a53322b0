"""Making a damaged log readable again: backed up, mended in memory, and put in its place at once."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from acp_agent.errors import LogDamaged, ProjectedLog, StoreError
from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.session.events import SessionHeader, SessionTitle
from acp_agent.stores import layout
from acp_agent.stores.base import RepairReport
from acp_agent.stores.files import sync_directories, write_all
from acp_agent.stores.jsonl_reading import advised_of_header, check_place, headless, open_log
from acp_agent.stores.jsonl_titles import beyond_head, note_title
from acp_agent.stores.jsonl_tree import OpenTree, publish
from acp_agent.stores.mending import Mended, find_lines, mend


def examine(path: Path, session_id: SessionId) -> RepairReport:
    """Tell how the log at `path` would be mended, whoever writes to it. Raises as `repair` does, but for `SessionHeld`.
    """
    try:
        data = _read(path)
        while not data.endswith(b"\n") and (later := _read(path)) != data:
            data = later  # somebody was just writing the last line
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unrepairable(path, error) from error
    _, mended = _mended(path, data)
    return RepairReport(session_id, mended.kept, mended.changes, None)


def repair(path: Path, session_id: SessionId, tree: OpenTree) -> RepairReport:
    """Mend the log at `path`.

    Raises `SessionHeld`, `LogDamaged` for what cannot be mended, `StoreError` when it cannot be written (then nothing
    is changed), and `FileNotFoundError` when it is gone.
    """
    os.close(open_log(path))
    try:
        tree.hold()
        data = _read(path)
        header, mended = _mended(path, data)
        if not mended.changes:
            return RepairReport(session_id, mended.kept, mended.changes, None)
        backup = _back_up(path, data)
        try:
            publish(path, _log(header, data, mended, str(path)))
        except BaseException:
            backup.unlink()
            raise
        _renew_title(path, mended)
        sync_directories(path.parent, 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unrepairable(path, error) from error
    return RepairReport(session_id, mended.kept, mended.changes, backup)


def _read(path: Path) -> bytes:
    with os.fdopen(open_log(path), "rb") as file:
        return file.read()


def _mended(path: Path, data: bytes) -> tuple[SessionHeader, Mended]:
    if b"\n" not in data:
        raise headless(path, len(data))
    try:
        header, found = find_lines(data, str(path))
    except ProjectedLog:
        raise
    except LogDamaged as error:
        raise advised_of_header(error) if error.line == 1 else error from None
    check_place(header, path)
    return header, mend(header, found, str(path))


def _unrepairable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: the session cannot be repaired: {error.strerror or error}; it is as it was, and can be "
                      "repaired when that is mended")


def _back_up(path: Path, data: bytes) -> Path:
    """Keep what was there under a new name beside it, on the device."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while True:
        backup = path.with_name(f"{path.name}-{stamp}" + (f"-{number}" if number else "") + ".backup")
        try:
            fd = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        try:
            write_all(fd, data)
            os.fsync(fd)
        except BaseException:
            backup.unlink()
            raise
        finally:
            os.close(fd)
        return backup


def _log(header: SessionHeader, data: bytes, mended: Mended, file: str) -> bytes:
    packer = codec.Packer()
    for record in mended.records:
        packer.add_record(record)
    return _header_line(header, data, file) + packer.take_all()


def _header_line(header: SessionHeader, data: bytes, file: str) -> bytes:
    """The header as it stands in the damaged log, with all that only its writer understands."""
    for line in data.split(b"\n"):
        with contextlib.suppress(LogDamaged):
            if codec.decode_header(line, file) == header:
                return line + b"\n"
    return codec.encode_header(header)


class _Title(msgspec.Struct):
    title: str


def _renew_title(path: Path, mended: Mended) -> None:
    """Note the newest title that is left, if there has to be a note."""
    titles = (record.data for record in reversed(mended.records) if record.type == SessionTitle.type)
    newest = next(titles, None)
    note = path.with_name(layout.TITLE)
    if newest is not None and beyond_head(path, path.stat().st_size):
        note_title(path, msgspec.json.decode(newest, type=_Title).title)
    elif path.name == layout.MAIN_LOG:
        note.unlink(missing_ok=True)

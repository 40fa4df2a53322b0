"""Damage to a stored session, as disks, file systems and people do it: to a file of lines, or to rows of a database.

A damage to a log names the line at which a reader must notice it; line 1 is the header, line 0 the whole log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

Lines = list[bytes]
"""A log's lines, each with its newline."""


@dataclass(frozen=True)
class LogDamage:
    """`apply` changes a log's lines around the line at index `at`; `line` says where that is to be noticed, counted
    from 1, given `at`. `says` is a word of the refusal.
    """

    name: str
    apply: Callable[[Lines, int], None]
    line: Callable[[int], int]
    says: str = ""
    repairable: bool = True

    def __str__(self) -> str:
        return self.name

    def damage(self, file: Path, at: int) -> int:
        """Damage a log in place; returns the number of the line to be named."""
        lines = file.read_bytes().splitlines(keepends=True)
        self.apply(lines, at)
        file.write_bytes(b"".join(lines))
        return self.line(at)


def here(at: int) -> int:
    return at + 1


def below(at: int) -> int:
    return at + 2


def header(at: int) -> int:
    return 1


def whole(at: int) -> int:
    """No line alone is wrong."""
    return 0


def _nul_run(lines: Lines, at: int) -> None:
    middle = len(lines[at]) // 2
    lines[at] = lines[at][: middle - 5] + b"\0" * 10 + lines[at][middle + 5 :]


def _nul_lines(lines: Lines, at: int) -> None:
    """A block that never reached the device: it begins and ends anywhere, newlines included."""
    text = b"".join(lines[at : at + 3])
    lines[at : at + 3] = [text[:20] + b"\0" * (len(text) - 40) + text[-20:]]


def _garbage(lines: Lines, at: int) -> None:
    lines.insert(at, b"%PDF-1.4 \xff\xfe garbage {]}\n")


def _empty_line(lines: Lines, at: int) -> None:
    lines.insert(at, b"\n")


def _other_json(lines: Lines, at: int) -> None:
    lines.insert(at, b'["not", "a", "record"]\n')


def _swapped(lines: Lines, at: int) -> None:
    lines[at], lines[at + 1] = lines[at + 1], lines[at]


def _duplicated(lines: Lines, at: int) -> None:
    lines.insert(at, lines[at])


def _missing(lines: Lines, at: int) -> None:
    del lines[at]


def _not_utf8(lines: Lines, at: int) -> None:
    lines[at] = lines[at].replace(b'"time":', b'"time\xff":', 1).replace(b'"time0":', b'"time\xff":', 1)


def _joined(lines: Lines, at: int) -> None:
    lines[at] = lines[at].removesuffix(b"\n")


def _halved(lines: Lines, at: int) -> None:
    lines[at] = lines[at][: len(lines[at]) // 2] + b"\n"


def _newer(lines: Lines, at: int) -> None:
    lines[0] = lines[0].replace(b'"version":0', b'"version":1', 1)


def _no_header(lines: Lines, at: int) -> None:
    del lines[0]


def _broken_header(lines: Lines, at: int) -> None:
    lines[0] = lines[0][: len(lines[0]) // 2] + b"\n"


def _foreign_id(lines: Lines, at: int) -> None:
    lines[0] = lines[0].replace(b'"id":"', b'"id":"another-', 1)


def _unknown_type(lines: Lines, at: int) -> None:
    lines[at] = lines[at].replace(b'"type":"', b'"type":"future/', 1)


def _large_seed(lines: Lines, at: int) -> None:
    lines[0] = lines[0].replace(b',"delegationDepth"', b',"seedLength":100000,"delegationDepth"', 1)


def _wrong_seed(lines: Lines, at: int) -> None:
    lines[0] = lines[0].replace(b',"delegationDepth"', b',"seedLength":2,"delegationDepth"', 1)


LOG_DAMAGES = (
    LogDamage("nul-run", _nul_run, here),
    LogDamage("nul-block", _nul_lines, here),
    LogDamage("garbage", _garbage, here),
    LogDamage("empty-line", _empty_line, here),
    LogDamage("other-json", _other_json, here),
    LogDamage("swapped", _swapped, here),
    LogDamage("duplicated", _duplicated, below),
    LogDamage("missing", _missing, here),
    LogDamage("not-utf8", _not_utf8, here),
    LogDamage("joined", _joined, here),
    LogDamage("halved", _halved, here),
    LogDamage("unknown-type", _unknown_type, here, "future/"),
    LogDamage("newer-format", _newer, header, "upgrade", repairable=False),
    LogDamage("no-header", _no_header, header, repairable=False),
    LogDamage("broken-header", _broken_header, header, repairable=False),
    LogDamage("foreign-id", _foreign_id, header, "another-", repairable=False),
    LogDamage("large-seed", _large_seed, whole, "100000", repairable=False),
    LogDamage("wrong-seed", _wrong_seed, whole, " 2 ", repairable=False),
)


# ---------------------------------------------------------------- what is no readable file at all


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _loop(file: Path) -> None:
    """Unreadable even for the superuser: a link to itself."""
    file.unlink()
    file.symlink_to(file.name)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _half_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:30])


NO_LOGS: dict[str, Callable[[Path], None]] = {
    "directory": _directory, "pipe": _pipe, "loop": _loop, "empty": _empty, "half-header": _half_header,
}


# ---------------------------------------------------------------- SQLite


@dataclass(frozen=True)
class RowDamage:
    """Statements that damage the rows of session `:id` around its event `:seq`; `says` are words of the refusal."""

    name: str
    statements: tuple[str, ...]
    says: str = ""
    repairable: bool = True

    def __str__(self) -> str:
        return self.name

    def damage(self, database: Path, session: str, seq: int) -> None:
        with closing(sqlite3.connect(database)) as connection:
            for statement in self.statements:
                done = connection.execute(statement, {"id": session, "seq": seq})
                assert done.rowcount != 0, f"{statement} changed nothing"
            connection.commit()


_WHERE = "WHERE session_id = :id AND seq = :seq"

ROW_DAMAGES = (
    RowDamage("data-not-json", (f"UPDATE events SET data = '{{\"turn\":' {_WHERE}",)),
    RowDamage("data-other-json", (f"UPDATE events SET data = '[1]' {_WHERE}",)),
    RowDamage("data-nul", (f"UPDATE events SET data = substr(data, 1, 4) || char(0, 0, 0) {_WHERE}",)),
    RowDamage("data-not-utf8", (f"UPDATE events SET data = CAST(x'7b22ff22' AS TEXT) {_WHERE}",)),
    RowDamage("missing", (f"DELETE FROM events {_WHERE}",)),
    RowDamage("moved", (f"UPDATE events SET seq = 100000 {_WHERE}",)),
    RowDamage("negative", (f"UPDATE events SET seq = -1 {_WHERE}",)),
    RowDamage("unknown-type", (f"UPDATE events SET type = 'future/' || type {_WHERE}",), "future/"),
    RowDamage("surface-not-json", (f"UPDATE events SET surface_op = '{{' {_WHERE}",)),
    RowDamage("sources-not-json", (f"UPDATE events SET source_event_seqs = 'x' {_WHERE}",)),
    RowDamage("large-seed", ("UPDATE sessions SET seed_length = 100000 WHERE id = :id",), "100000", repairable=False),
    RowDamage("wrong-seed", ("UPDATE sessions SET seed_length = 2 WHERE id = :id",), " 2 ", repairable=False),
    RowDamage("newer-format", ("UPDATE sessions SET version = 1 WHERE id = :id",), "upgrade", repairable=False),
)


def _overwritten(database: Path) -> None:
    database.write_bytes(b"\x00garbage\xff" * 4096)


def _cut(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2 + 100)


def _no_start(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(b"\0" * 100)


FILE_DAMAGES: dict[str, Callable[[Path], None]] = {"overwritten": _overwritten, "cut": _cut, "no-start": _no_start}


def backed_up(directory: Path, original: bytes) -> list[Path]:
    """The files anywhere below a directory that hold exactly these bytes."""
    return [file for file in directory.rglob("*") if file.is_file() and file.read_bytes() == original]


def copy_database(database: Path, to: Path) -> Path:
    """A copy of a database and its write-ahead log; returns the copy's path."""
    to.mkdir()
    for suffix in ("", "-wal"):
        if Path(f"{database}{suffix}").exists():
            shutil.copy(f"{database}{suffix}", to)
    return to / database.name

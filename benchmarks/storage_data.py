"""Stored sessions to measure: made of what the agent wrote in the golden scenarios, as long as they have to be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.session.events import Event, SessionHeader
from acp_agent.stores import layout

START = 1_783_600_000_000
"""When the first event happened, in epoch milliseconds."""


def scenario_events(scenarios: Path) -> list[Event]:
    """Every event of the root sessions below a directory of scenarios, one session after the other."""
    events: list[Event] = []
    for path in sorted(scenarios.glob("*/session.jsonl")):
        lines, _ = codec.split_lines(path.read_bytes())
        reader = codec.Reader(str(path))
        events += [event for line in lines[1:] for event in reader.read(line)]
    return events


def endless(events: list[Event]) -> Iterator[Event]:
    """The same events again and again, numbered and timed as one log."""
    seq = 0
    while True:
        for event in events:
            yield replace(event, seq=seq, time=START + 3 * seq)
            seq += 1


def log_of(events: list[Event], *, size: int = 0, count: int = 0) -> tuple[bytes, int]:
    """The rows of a log of so many bytes, or of so many events; and how many events those are."""
    packer, rows = codec.Packer(), bytearray()
    for written, event in enumerate(endless(events), 1):
        packer.add(event)
        if written == count or written % 1_000 == 0:
            rows += packer.take()
            if written == count or (size and len(rows) >= size):
                return bytes(rows + packer.take_all()), written
    raise AssertionError("an endless log ended")


def header(name: str, cwd: Path, created_at: int = START) -> SessionHeader:
    """A root session's header."""
    return SessionHeader(id=SessionId(name), created_at=created_at, cwd=str(cwd))


def put_log(root: Path, head: SessionHeader, rows: bytes) -> Path:
    """A session where the JSONL store keeps it."""
    directory = layout.session_directory(root, head.cwd, head.id)
    directory.mkdir(parents=True)
    path = directory / layout.MAIN_LOG
    path.write_bytes(codec.encode_header(head) + rows)
    return path


def put_many(root: Path, cwd: Path, rows: bytes, count: int) -> None:
    """Sessions for a list, a second apart."""
    for number in range(count):
        put_log(root, header(f"session-{number:05}", cwd, START + 1_000 * number), rows)


def put_many_rows(file: Path, count: int) -> None:
    """Copies of the one session in a database of the SQLite store, a second apart."""
    database = sqlite3.connect(file)
    with database:
        for table, name in (("events", "session_id"), ("sessions", "id")):
            rows = database.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in rows.description]
            model = [dict(zip(columns, row, strict=True)) for row in rows]
            database.execute(f"DELETE FROM {table}")
            values = ", ".join(f":{column}" for column in columns)
            database.executemany(f"INSERT INTO {table} VALUES ({values})", (
                _copy(row, name, number) for number in range(count) for row in model))
    database.close()


def _copy(row: dict[str, object], name: str, number: int) -> dict[str, object]:
    copy = {**row, name: f"session-{number:05}"}
    if "root" in row:
        copy |= {"root": copy[name], "created_at": START + 1_000 * number}
    return copy

"""The SQLite store's database: its tables, and how it is told from any other file before anything is touched.

A database is made inside one transaction under a rollback journal, so that its main file carries the marks from its
first byte on; only then does it switch to a write-ahead log.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

from acp_agent.errors import StoreError
from acp_agent.stores.files import make_private, sync_directories
from acp_agent.stores.sqlite_errors import DatabaseLocked, explained

APPLICATION_ID = 0x41435052
"""Says in a database's header whose it is: "ACPR"."""

VERSION = 4
"""`PRAGMA user_version`: the one layout this build reads and writes."""

BUSY_SECONDS = 30.0
"""How long a lock that another process holds on the database is waited for."""

BUSY_AT_ONCE = 0.02
"""How long of that a writer's call waits by itself: between two calls whoever waits can be told to wait no longer, and
somebody else's turn comes.
"""

_PAUSE = 0.005

_TABLES = (
    # `number` is 0 for a root; descendants count from 1 in the order of their creation. `extra` holds the header's
    # keys that have no column. `title` and `updated_at` follow the events, so that a list need not read them.
    """CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        root TEXT NOT NULL,
        number INTEGER NOT NULL,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        cwd TEXT,
        parent_session TEXT,
        seed_length INTEGER,
        origin TEXT,
        delegation_depth INTEGER NOT NULL,
        agent_preset TEXT,
        spawn_call_id TEXT,
        spawn_index INTEGER,
        extra TEXT,
        title TEXT,
        updated_at INTEGER NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX trees ON sessions (root, number)",
    "CREATE INDEX roots ON sessions (created_at DESC, id) WHERE number = 0",
    "CREATE INDEX roots_by_cwd ON sessions (cwd, created_at DESC, id) WHERE number = 0",
    # No foreign key: it would cost a look-up for every event, and events come and go with their session anyway.
    """CREATE TABLE events (
        session_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        type TEXT NOT NULL,
        time INTEGER NOT NULL,
        data TEXT NOT NULL,
        source_event_seqs TEXT,
        surface_op TEXT,
        ignorable INTEGER,
        PRIMARY KEY (session_id, seq)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE blobs (
        root TEXT NOT NULL,
        id TEXT NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (root, id)
    ) STRICT""",
)


class Found(Enum):
    """What is at the database's path."""

    NOTHING = auto()
    """No file, or an empty one: a database can be made there."""

    OURS = auto()


def look(file: Path) -> Found:
    """What is at `file`, found out without writing a byte. Raises `StoreError` for anything that is not ours."""
    for again in (True, True, False):  # it may be made, from nothing to the end, while it is looked at
        size = _size(file)
        if size == 0:
            return Found.NOTHING
        try:
            if size < _SMALLEST:
                raise StoreError(f"{file}: it is not a session database; {_ELSEWHERE}", file=str(file))
            _check(file, *_marks(file))
        except StoreError:
            if _begins_with_nothing(file):
                return Found.NOTHING
            if not again:
                raise
        else:
            break
    return Found.OURS


_SMALLEST = 512
"""Bytes of a database with one page of the smallest size there is."""

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def _begins_with_nothing(file: Path) -> bool:
    """Whether a rollback journal says that the file is being made, or was when its maker was killed: it was empty
    before, and SQLite makes it so again if nobody is at it.
    """
    try:
        with open(f"{file}-journal", "rb") as journal:  # noqa: PTH123  # no Path has this name
            head = journal.read(20)
    except OSError:
        return False
    return head[:8] == _JOURNAL_MAGIC and head[16:20] == bytes(4)


def _size(file: Path) -> int:
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"{file}: the session database cannot be opened: {error.strerror or error}; {_ELSEWHERE}",
                         file=str(file)) from None
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise StoreError(f"{file}: it is {what}, where a session database was expected; {_ELSEWHERE}", file=str(file))
    if not os.access(file, os.R_OK):
        raise StoreError(f"{file}: the session database cannot be opened: Permission denied; make it readable, or "
                         f"{_ELSEWHERE}", file=str(file))
    return status.st_size


_ELSEWHERE = "let ACP_SESSION_STORE=sqlite:FILE name another file"


def uri(file: Path, options: str) -> str:
    """The name by which SQLite opens `file` with options."""
    return f"file:{quote(str(file))}?{options}"


def _marks(file: Path) -> tuple[int, int]:
    """The application id and the version in a file's header. Immutable: no lock, no file beside it."""
    try:
        connection = sqlite3.connect(uri(file, "mode=ro&immutable=1"), uri=True, isolation_level=None)
        try:
            # Without the log, what a killed process had half moved into the main file looks cut off: let that pass.
            connection.execute("PRAGMA writable_schema = ON")
            return marks(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{file}: it is not a session database ({error}); {_ELSEWHERE}", file=str(file)) from None


def marks(connection: sqlite3.Connection) -> tuple[int, int]:
    """The application id and the version of an open database."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    return application, version


def _check(file: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        found = f"application id {application & 0xFFFFFFFF:#010x}" if application else "no application id"
        raise StoreError(f"{file}: it is another program's database ({found}; a session database has "
                         f"{APPLICATION_ID:#010x}); {_ELSEWHERE}", file=str(file))
    if version != VERSION:
        advice = "upgrade acp-replay to use it" if version > VERSION else "there is no way to upgrade it"
        raise StoreError(f"{file}: session database version {version} is not supported (this build reads and writes "
                         f"{VERSION}); {advice}, or {_ELSEWHERE}", file=str(file))


def open_for_writing(file: Path) -> sqlite3.Connection:
    """The database, made if there is none yet. Belongs to the calling thread.

    Raises `StoreError`, and `DatabaseLocked` after `BUSY_AT_ONCE`, as does what is done with the connection.
    """
    with explained(file, "opened"):
        if look(file) is Found.NOTHING:
            _claim(file)
        with _opened(file, "mode=rw", BUSY_AT_ONCE) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            _make(connection, file)
            _switch_to_log(connection, file)
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection


def open_for_reading(file: Path) -> sqlite3.Connection | None:
    """The database for reading only, from any thread; None when there is none yet. Raises `StoreError`.

    Text comes as bytes: what is not UTF-8 must be told apart session by session.
    """
    with explained(file, "opened"):
        if look(file) is Found.NOTHING:
            return None
        with _opened(file, _reading_options(file), BUSY_SECONDS) as connection:
            connection.execute("PRAGMA query_only = 1")
            connection.text_factory = bytes
            if marks(connection) != (APPLICATION_ID, VERSION):
                connection.close()  # its making was cut off and has just been undone
                return None
            return connection


def _reading_options(file: Path) -> str:
    """A writer's options where possible: only then does the last one to close it clear the log away."""
    if os.access(file, os.W_OK) and os.access(file.parent, os.W_OK):
        return "mode=rw"
    beside = os.path.lexists(f"{file}-wal") or os.access(file.parent, os.W_OK)
    return "mode=ro" if beside else "mode=ro&immutable=1"


@contextmanager
def _opened(file: Path, options: str, patience: float) -> Iterator[sqlite3.Connection]:
    """A connection that is closed only if the block fails."""
    connection = sqlite3.connect(uri(file, options), uri=True, isolation_level=None, timeout=patience,
                                 check_same_thread=False)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _claim(file: Path) -> None:
    """Make the empty file that becomes the database, for its owner alone; SQLite's own files get its mode."""
    made = make_private(file.parent)
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if file.stat().st_size == 0:
            file.chmod(0o600)
    sync_directories(file.parent, made + 1)


def _make(connection: sqlite3.Connection, file: Path) -> None:
    """Fill an empty database; one that another process fills at the same time is waited for."""
    if marks(connection) == (APPLICATION_ID, VERSION):
        return
    connection.execute("BEGIN EXCLUSIVE")
    ((schema,),) = connection.execute("PRAGMA schema_version")
    if schema == 0 and marks(connection) == (0, 0):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        for table in _TABLES:
            connection.execute(table)
        connection.execute("COMMIT")
    else:
        connection.execute("ROLLBACK")
        _check(file, *marks(connection))


def _switch_to_log(connection: sqlite3.Connection, file: Path) -> None:
    """Use a write-ahead log. SQLite does not wait for everybody who stands in the way of that switch."""
    deadline = time.monotonic() + BUSY_AT_ONCE
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        else:
            if mode == "wal":
                return
            if time.monotonic() > deadline:
                raise DatabaseLocked(f"{file}: the session database cannot be opened: it cannot be switched to a "
                                     f"write-ahead log; end whatever else uses it, or {_ELSEWHERE}", file=str(file))
        time.sleep(_PAUSE)

"""What session logs say while they are being written: for waits on turns and events that are not on the wire.

Logs are read where they grow, in files or in a database, and nothing there is locked, written or kept open.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.providers.base import Hop
from acp_agent.providers.base import Path as Address
from acp_agent.session.events import SpawnKey

if TYPE_CHECKING:
    import sqlite3

_TURN_START, _TURN_END, _TOOL_CALL = "turn/start", "turn/end", "tool/call"


class _Header(Struct, frozen=True, rename="camel", tag_field="type", tag="session"):
    id: str
    created_at: int = 0
    parent_session: str | UnsetType = UNSET
    spawn: SpawnKey | UnsetType = UNSET
    seed_length: int | UnsetType = UNSET


class _Row(Struct, frozen=True):
    type: str
    data: Raw | UnsetType = UNSET


class _Turn(Struct, frozen=True):
    turn: int


class _Call(Struct, frozen=True, rename="camel"):
    call_id: str


_header = msgspec.json.Decoder(_Header).decode
_row = msgspec.json.Decoder(_Row).decode
_turn = msgspec.json.Decoder(_Turn).decode
_call = msgspec.json.Decoder(_Call).decode


class GrowingLog:
    """One log, as far as it was read."""

    def __init__(self, header: _Header) -> None:
        self._header = header
        self._inherits = header.seed_length is not UNSET
        self.turn = 0
        """The number of the last turn that began; 0 before any."""
        self.open = False
        """Whether that turn has no end yet."""
        self.since_end: set[str] | None = None
        """The types of the events after the last turn's end; None when no turn has ended, or one is open."""
        self.asked = 0
        """How many model calls it made itself."""
        self.started = Counter[str]()
        """How often it began a tool call of each id itself."""

    @property
    def id(self) -> str:
        return self._header.id

    @property
    def parent(self) -> str | UnsetType:
        return self._header.parent_session

    @property
    def hop(self) -> Hop | None:
        """Which delegation of its parent's made it; None where its header does not say."""
        spawn = self._header.spawn
        return None if spawn is UNSET else Hop(spawn.call_id, spawn.index)

    @property
    def order(self) -> tuple[int, str]:
        """Sorts children as they were created."""
        return (self._header.created_at, self._header.id)

    def take(self, kind: str, data: bytes | Raw) -> None:
        """The next event. Raises `MsgspecError` where a turn's number or a call's id cannot be read."""
        if kind == "session/end-seed" and self._inherits:
            self.asked, self.started, self._inherits = 0, Counter(), False
        elif kind == "request/sent":
            self.asked += 1
        elif kind == _TOOL_CALL:
            self.started[_call(data).call_id] += 1
        if kind in (_TURN_START, _TURN_END):
            self.turn, self.open = max(_turn(data).turn, self.turn), kind == _TURN_START
            self.since_end = None if self.open else set()
        elif self.since_end is not None:
            self.since_end.add(kind)


class GrowingStore(ABC):
    """Every log of a store, as it grows."""

    @abstractmethod
    def look(self) -> list[GrowingLog]:
        """All logs that have their header, as they are now, in the order of their creation."""

    def log(self, session: str) -> GrowingLog | None:
        """The log of a session, as it is now."""
        return next((log for log in self.look() if log.id == session), None)

    def descendants(self, session: str) -> list[GrowingLog]:
        """The logs of a session's children and of theirs, in the order of their creation."""
        logs = self.look()
        family = {session}
        while True:
            grown = family | {log.id for log in logs if log.parent in family}
            if grown == family:
                return [log for log in logs if log.id in family - {session}]
            family = grown


    def below(self, session: str) -> dict[Address, GrowingLog]:
        """The logs of a session's descendants by the delegations that lead to them, where their headers say."""
        places: dict[str, Address] = {session: ()}
        for log in self.descendants(session):
            if log.hop is not None and log.parent in places:
                places[log.id] = (*places[log.parent], log.hop)
        return {place: log for log in self.descendants(session) if (place := places.get(log.id)) is not None}


# ---------------------------------------------------------------- files


class GrowingFiles(GrowingStore):
    """Every log below a directory, a file each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._logs: dict[Path, _File] = {}

    def look(self) -> list[GrowingLog]:
        """See `GrowingStore`."""
        for path in self._root.rglob("*.jsonl"):
            if path not in self._logs:
                found = _opened(path)
                if found is not None:
                    self._logs[path] = found
        self._logs = {path: file for path, file in self._logs.items() if file.read_on()}
        return sorted((file.log for file in self._logs.values()), key=lambda log: log.order)


class _File:
    def __init__(self, path: Path, header: _Header, read: int) -> None:
        self.log = GrowingLog(header)
        self._path = path
        self._read = read

    def read_on(self) -> bool:
        """Take the complete lines that were added; False when the file is gone."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return False
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.split(b"\n")[:-1]:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # damage is found when logs are judged
                row = _row(line)
                self.log.take(row.type, b"{}" if row.data is UNSET else row.data)
        return True


def _opened(path: Path) -> _File | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
        return _File(path, _header(line), len(line)) if line.endswith(b"\n") else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


# ---------------------------------------------------------------- a database

_SESSIONS = "SELECT id, created_at, parent_session, spawn_call_id, spawn_index, seed_length FROM sessions"
_EVENTS = f"""SELECT type, CASE WHEN type IN ('{_TURN_START}', '{_TURN_END}', '{_TOOL_CALL}') THEN data END
    FROM events WHERE session_id = ? AND seq >= ? ORDER BY seq"""


class GrowingDatabase(GrowingStore):
    """Every log in an agent's SQLite database."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._logs: dict[str, GrowingLog] = {}
        self._read: dict[str, int] = {}

    def look(self) -> list[GrowingLog]:
        """See `GrowingStore`. A database that is not made yet holds no logs."""
        import sqlite3

        if not self._file.exists():
            return []
        with contextlib.suppress(sqlite3.OperationalError):  # being made, or busy: the next look will see it
            connection = sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True, isolation_level=None)
            with contextlib.closing(connection):
                self._take(connection)
        return sorted(self._logs.values(), key=lambda log: log.order)

    def _take(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        known, self._logs = self._logs, {}
        for session, created_at, parent, call, index, seed in connection.execute(_SESSIONS).fetchall():
            header = _Header(session, created_at, UNSET if parent is None else parent,
                             UNSET if call is None else SpawnKey(call, index), UNSET if seed is None else seed)
            log = self._logs[session] = known.get(session) or GrowingLog(header)
            at = self._read.get(session, 0)
            for kind, data in connection.execute(_EVENTS, (session, at)).fetchall():
                with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    log.take(kind, data.encode() if isinstance(data, str) else data)
                at += 1
            self._read[session] = at

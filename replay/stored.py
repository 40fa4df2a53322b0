"""What session logs say while they are being written: for waits on turns and events that are not on the wire."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

_TURN_START, _TURN_END = "turn/start", "turn/end"


class _Header(Struct, frozen=True, rename="camel", tag_field="type", tag="session"):
    id: str
    created_at: int = 0
    parent_session: str | UnsetType = UNSET


class _Row(Struct, frozen=True):
    type: str
    data: Raw | UnsetType = UNSET


class _Turn(Struct, frozen=True):
    turn: int


_header = msgspec.json.Decoder(_Header).decode
_row = msgspec.json.Decoder(_Row).decode
_turn = msgspec.json.Decoder(_Turn).decode


class GrowingLog:
    """One log, read as far as it goes. `refresh` reads on."""

    def __init__(self, path: Path, header: _Header, read: int) -> None:
        self._path = path
        self._read = read
        self._header = header
        self.turn = 0
        """The number of the last turn that began; 0 before any."""
        self.open = False
        """Whether that turn has no end yet."""
        self.since_end: set[str] | None = None
        """The types of the events after the last turn's end; None when no turn has ended, or one is open."""

    @property
    def id(self) -> str:
        return self._header.id

    @property
    def parent(self) -> str | UnsetType:
        return self._header.parent_session

    @property
    def order(self) -> tuple[int, str]:
        """Sorts children as they were created."""
        return (self._header.created_at, self._header.id)

    def refresh(self) -> None:
        """Read the complete lines that were added."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.split(b"\n")[:-1]:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            row = _row(line)
            if row.type in (_TURN_START, _TURN_END):
                turn = _turn(b"{}" if row.data is UNSET else row.data).turn
                self.turn, self.open = max(turn, self.turn), row.type == _TURN_START
                self.since_end = None if self.open else set()
            elif self.since_end is not None:
                self.since_end.add(row.type)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # a damaged log is found when it is judged


class GrowingStore:
    """Every log below a directory, as it grows."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._logs: dict[Path, GrowingLog] = {}

    def look(self) -> list[GrowingLog]:
        """All logs that have their header, as they are now, in the order of their creation."""
        for path in self._root.rglob("*.jsonl"):
            if path not in self._logs:
                found = _opened(path)
                if found is not None:
                    self._logs[path] = found
        for log in self._logs.values():
            log.refresh()
        return sorted(self._logs.values(), key=lambda log: log.order)

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


def _opened(path: Path) -> GrowingLog | None:
    try:
        with path.open("rb") as file:
            line = file.readline()
        return GrowingLog(path, _header(line), len(line)) if line.endswith(b"\n") else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None

"""What is wrong with a recording: collected, so that all of it can be told at once."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import RecordingError


class Problem(Struct, frozen=True):
    """One fault. `file` is a path, `line` 1-based; `message` says what is wrong and what to do about it."""

    message: str
    file: str | UnsetType = UNSET
    line: int | UnsetType = UNSET

    def __str__(self) -> str:
        if self.file is UNSET:
            return self.message
        where = self.file if self.line is UNSET else f"{self.file}:{self.line}"
        return f"{where}: {self.message}"


class Findings:
    """The faults of one recording. Faults forbid a replay; doubts are told and do not."""

    def __init__(self) -> None:
        self.faults: list[Problem] = []
        self.doubts: list[Problem] = []

    def fault(self, message: str, file: str | UnsetType = UNSET, line: int | UnsetType = UNSET) -> None:
        self.faults.append(Problem(message, file, line))

    def doubt(self, message: str, file: str | UnsetType = UNSET, line: int | UnsetType = UNSET) -> None:
        self.doubts.append(Problem(message, file, line))

    def error(self) -> RecordingError | None:
        """The first fault as an error that counts the others; None when there is none."""
        if not self.faults:
            return None
        first = self.faults[0]
        more = len(self.faults) - 1
        tail = f" (and {more} more: run `acp-agent explain` on the directory)" if more else ""
        facts = {"file": first.file, "line": first.line}
        return RecordingError(f"{first}{tail}", **{key: fact for key, fact in facts.items() if fact is not UNSET})

"""A replay: a directory of recorded sessions as a provider and as tool effects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from acp_agent.errors import AgentError, RecordingError
from replay import addresses, fixture, script
from replay.effects import ReplayEffects
from replay.fixture import Recording
from replay.lanes import Lane, Lanes
from replay.pace import parse_pace
from replay.problems import Findings
from replay.provider import ReplayProvider
from replay.script import Call, Unfinished

if TYPE_CHECKING:
    from replay.overrides import Override

OVERRIDE = "replay.override.json"
"""The file that says what to serve instead of recorded calls."""


class Directory(Struct, frozen=True, eq=False):
    """A replay directory as it was read. `scripts` is keyed by a recording's identity (`id()`)."""

    recordings: Sequence[Recording]
    placed: Sequence[addresses.Placed]
    scripts: dict[int, Sequence[Call]]
    override: Override | None


def read_directory(directory: Path, findings: Findings) -> Directory:
    """Everything in a replay directory; what is wrong with it goes to `findings`."""
    recordings = fixture.load(directory, findings)
    override = _override(directory, findings) if recordings else None
    placed = addresses.place(recordings, findings)
    scripts: dict[int, Sequence[Call]] = {}
    for at, recording in enumerate(_primary_first(recordings, placed)):
        calls = script.cut(recording, findings)
        if override is not None and at == 0:
            calls = override.apply(calls, findings)
        for call in calls:
            if isinstance(call.action, Unfinished):
                findings.fault(call.action.message, recording.file, call.action.line)
        scripts[id(recording)] = calls
    return Directory(recordings, placed, scripts, override)


def _override(directory: Path, findings: Findings) -> Override | None:
    file = directory / OVERRIDE
    if not file.exists():
        return None
    from replay import overrides  # most replays have none

    return overrides.load(file, findings)


def _primary_first(recordings: Sequence[Recording], placed: Sequence[addresses.Placed]) -> list[Recording]:
    """The recordings, the one that overrides are for in front."""
    first = [placed[0].recording] if placed else []
    return [*first, *(one for one in recordings if one not in first)]


class Replay:
    """One process's replay. The directory is read once, by `preload` or when it is first needed.

    `provider` and `effects` share what was read.
    """

    def __init__(
        self, directory: Path, *, tools: Literal["recorded", "live"], sessions: Literal["once", "repeat"],
        pace: str, receipt: Path | None, log: Callable[[str], None],
    ) -> None:
        self.log = log
        self._directory = directory
        self._tools = tools
        self._sessions = sessions
        self._receipt = receipt
        self._lanes: Lanes | None = None
        self._override: Override | None = None
        self._error: RecordingError | None = None
        self._closed = False
        self.provider = ReplayProvider(self, parse_pace(pace))
        self.effects = ReplayEffects(self, tools)

    @property
    def lanes(self) -> Lanes:
        """The lanes of the directory. Raises `RecordingError` while it cannot be used; this is logged once."""
        if self._lanes is None:
            if self._error is None:
                self._load()
            if self._error is not None:
                raise RecordingError(self._error.message, **self._error.facts)
        assert self._lanes is not None
        return self._lanes

    def preload(self) -> None:
        """Read the directory now rather than with the first prompt, which then answers sooner.

        What is wrong with it is logged here and raised by the first call, as ever.
        """
        with contextlib.suppress(RecordingError):
            _ = self.lanes

    def override_placeholders(self, lane: Lane) -> bool:
        """Whether an override of this lane may hold texts to fill from the request."""
        return self._override is not None and self._override.placeholders and lane is self.lanes.primary

    def _load(self) -> None:
        findings = Findings()
        read = read_directory(self._directory, findings)
        self._error = findings.error()
        if self._error is not None:
            self.log(self._error.message)
            return
        for doubt in findings.doubts:
            self.log(str(doubt))
        self._override = read.override
        self._lanes = Lanes(read.placed, read.scripts, repeat=self._sessions == "repeat")

    async def aclose(self) -> None:
        """Write the receipt, if one is wanted. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._receipt is None:
            return
        try:
            lanes, error = self.lanes, None
        except AgentError as failure:
            lanes, error = None, failure.message
        from replay import receipts  # not needed while sessions run

        receipt = receipts.receipt_of(lanes, str(self._directory), self._tools, self._sessions, error)
        try:
            receipts.write(receipt, self._receipt)
        except OSError as failure:
            self.log(f"the replay receipt {self._receipt} cannot be written: {failure.strerror}")


def open_replay(
    directory: Path, *, tools: Literal["recorded", "live"], sessions: Literal["once", "repeat"], pace: str,
    receipt: Path | None, log: Callable[[str], None],
) -> Replay:
    """A replay of `directory` (DESIGN 5). Nothing is read before `preload` or the first model call.

    `pace` is burst, recorded or milliseconds, `receipt` the file to write when closed, `log` takes lines for
    the user. Raises `SettingsError` for a bad pace.
    """
    return Replay(directory, tools=tools, sessions=sessions, pace=pace, receipt=receipt, log=log)

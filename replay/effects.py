"""Tool results from a recording, and the comparison of live ones with it (DESIGN 5.7).

A result is found by the lane its session is served, turn, step and the call's position in the message: turn
and step numbers of a replayed session equal the recorded ones, those of a fork included.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import RecordingError
from acp_agent.ids import BlobId, CallId, SessionId
from acp_agent.session.events import ApprovalGrant, ImageBlock, TextBlock, ToolContent, ToolError
from acp_agent.stores.layout import BLOBS
from acp_agent.tools.base import CallKey, Observation, Outcome, RecordedCall
from replay.fixture import Recording
from replay.lanes import Drift, Lane
from replay.paths import expander, map_strings, tokenise
from replay.rows import (
    AskedRow,
    DecidedRow,
    FileSeenRow,
    GrantRow,
    StepStartRow,
    ToolCallRow,
    ToolResultRow,
    TurnEndRow,
)
from replay.script import HALTED

if TYPE_CHECKING:
    from replay.engine import Replay

YES = frozenset({
    "approved", "allowed", "allow", "accepted", "allow_once", "allow_always", "allow-once", "allow-always",
    "allowed-once", "allowed-always",
})  # fmt: skip
"""Recorded outcomes of an approval that let the call run."""

CUT_SHORT = frozenset({"ABORTED", "TOOL_OUTCOME_UNKNOWN"})
"""Error codes of a call that was running when its turn was cancelled or its process died (reference 3.5, 3.8)."""

LOST = frozenset({"TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"})
"""Error codes of calls whose process died: no tool said so, and what one says in a replay cannot differ from it."""

PREVIEW = 200
"""Characters of a text kept for the receipt."""

Content = TextBlock | ImageBlock


class Recorded(Struct):
    """One recorded tool call while its log is read. `name` is None where only a result was logged."""

    call_id: CallId
    name: str | None = None
    arguments: str | None = None
    outcome: Outcome | None = None
    approved: bool | None = None
    grant: ApprovalGrant | None = None
    held: bool = False
    line: int = 0


class _ResultData(Struct):
    turn: int
    step: int
    message: ToolContent
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET


_result = msgspec.json.Decoder(_ResultData).decode

Steps = dict[tuple[int, int], list[Recorded]]
"""The recorded calls of each turn and step, in the order they were asked for."""


def read_steps(recording: Recording) -> Steps:
    """The session's own tool calls. Raises `RecordingError` naming the line of a broken result."""
    return _Reader(recording).read()


class _Reader:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._steps: Steps = {}
        self._place = (0, 0)
        self._asked: dict[str, CallId] = {}
        self._seen: list[Observation] = []
        self._decided: Recorded | None = None
        """The call decided by the row just read: a grant behind it is the answer's."""

    def read(self) -> Steps:
        for at, row in self._recording.own_rows():
            if not isinstance(row, GrantRow):
                self._decided = None
            match row:
                case StepStartRow():
                    self._place = (row.data.turn, row.data.step)
                case ToolCallRow():
                    self._on_call(row)
                case ToolResultRow():
                    self._on_result(at, row)
                case AskedRow():
                    self._asked[row.data.id] = row.data.call_id
                case DecidedRow():
                    self._on_decided(row)
                case GrantRow() if self._decided is not None:  # else it is a child's, handed up
                    self._decided.grant = row.data
                case TurnEndRow() if row.data.reason.kind in HALTED:
                    self._hold(row.data.turn)
                case FileSeenRow():
                    self._seen.append(Observation(row.data.path, row.data.version))
                case _:
                    pass
        return self._steps

    def _call(self, place: tuple[int, int], call_id: CallId, *, bare: bool) -> Recorded:
        """The first such call of a step that still lacks its call (`bare`) or its result."""
        calls = self._steps.setdefault(place, [])
        for call in calls:
            if call.call_id == call_id and (call.name is None if bare else call.outcome is None):
                return call
        calls.append(Recorded(call_id))
        return calls[-1]

    def _on_call(self, row: ToolCallRow) -> None:
        data = row.data
        call = self._call((data.turn, data.step), data.call_id, bare=True)
        call.name, call.arguments = data.name, data.arguments

    def _on_result(self, at: int, row: ToolResultRow) -> None:
        line = self._recording.line(at)
        try:
            data = _result(row.data)
            (block,) = data.message.content
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise RecordingError(f"{self._recording.file}:{line}: broken tool/result: {error}; restore it from the"
                                 " original log", file=self._recording.file, line=line) from None
        call = self._call((data.turn, data.step), block.tool_call_id, bare=False)
        call.outcome = Outcome(block.content, block.is_error, data.error, data.meta, tuple(self._seen))
        call.line = line
        self._seen.clear()

    def _hold(self, turn: int) -> None:
        """In a halted turn, a call that was cut short lasted until the halt: so it does in the replay."""
        for (at, _), calls in self._steps.items():
            for call in calls if at == turn else ():
                call.held = call.outcome is not None and _code(call.outcome) in CUT_SHORT

    def _on_decided(self, row: DecidedRow) -> None:
        call_id = self._asked.get(row.data.id)
        if call_id is not None and row.data.outcome != "cancelled":
            self._decided = self._call(self._place, call_id, bare=False)
            self._decided.approved = row.data.outcome in YES


class ReplayEffects:
    """Serves recorded results, or compares live ones with them (see `acp_agent.tools.base.Effects`)."""

    def __init__(self, replay: Replay, mode: Literal["recorded", "live"]) -> None:
        self._replay = replay
        self._mode = mode
        self._steps: dict[int, Steps] = {}

    def recorded(self, key: CallKey) -> RecordedCall | None:
        """The recorded fate of a call; None in live mode.

        Raises `RecordingError` where there is none, or where name or arguments are not the recorded ones:
        a result is never served for another call than the one it was recorded for.
        """
        if self._mode == "live":
            return None
        lane = self._replay.lanes.of(key.session)
        found = self._find(lane, key)
        where = f"turn {key.turn} step {key.step}, tool call {key.position + 1} ({key.name}, lane {lane.title})"
        if found is None or found.outcome is None:
            calls = self._of(lane).get((key.turn, key.step), [])
            raise RecordingError(
                f"{where}: no result is recorded (the step has {len(calls)} recorded calls); record the session"
                " again or set ACP_REPLAY_TOOLS=live", turn=key.turn, step=key.step, position=key.position)
        if found.name is not None and (found.name, found.arguments) != (key.name, key.arguments):
            raise RecordingError(
                f"{where}: the recorded call is {found.name} {shorten(found.arguments or '')}, the live one"
                f" {key.name} {shorten(key.arguments)}; record the session again or set ACP_REPLAY_TOOLS=live",
                turn=key.turn, step=key.step, position=key.position)
        return RecordedCall(_expanded(found.outcome, lane, key.cwd), found.approved, found.held, found.grant)

    def image(self, session: SessionId, blob: BlobId) -> bytes | None:
        """What lies in `blobs/` beside the recording; None in live mode, too: then the tool stored it."""
        if self._mode == "live":
            return None
        return stored_image(Path(self._replay.lanes.of(session).recording.file).parent, blob)

    def observe(self, key: CallKey, outcome: Outcome) -> None:
        """Compare a live result with the recorded one; the first difference of a lane is reported."""
        try:
            lane = self._replay.lanes.of(key.session)
            found = self._find(lane, key)
        except RecordingError as error:
            self._replay.log(f"a live tool result cannot be compared with the recording: {error.message}")
            return
        if found is not None and found.outcome is not None and _code(found.outcome) in LOST:
            return
        live = _comparable(outcome, [key.cwd, os.path.realpath(key.cwd)])
        if found is None or found.outcome is None:
            recorded = "(nothing)"
        else:
            cwd = lane.recording.header.cwd
            recorded = _comparable(found.outcome, [] if cwd is UNSET else [cwd])
        if live != recorded:
            drift = Drift(key.turn, key.step, key.position, key.name, shorten(recorded), shorten(live))
            self._drifted(lane, drift)

    def _drifted(self, lane: Lane, drift: Drift) -> None:
        first = lane.drift
        if first is None:
            self._replay.log(
                f"environment drift in lane {lane.title}, turn {drift.turn} step {drift.step}, {drift.tool}:"
                f" recorded {drift.recorded!r}, live {drift.live!r}; later differences of this lane are not told")
        if first is None or _moment(drift) < _moment(first):
            lane.drift = drift

    def _find(self, lane: Lane, key: CallKey) -> Recorded | None:
        """The call at the key's position if it has the key's id, else the step's only call with that id."""
        calls = self._of(lane).get((key.turn, key.step), [])
        if key.position < len(calls) and calls[key.position].call_id == key.call_id:
            return calls[key.position]
        named = [call for call in calls if call.call_id == key.call_id]
        return named[0] if len(named) == 1 else None

    def _of(self, lane: Lane) -> Steps:
        steps = self._steps.get(id(lane.recording))
        if steps is None:
            steps = self._steps[id(lane.recording)] = read_steps(lane.recording)
        return steps


def stored_image(directory: Path, blob: BlobId) -> bytes | None:
    """An image of a replay directory, if it is there and still what its name says."""
    if re.fullmatch("[0-9a-f]{64}", blob) is None:
        return None
    try:
        data = (directory / BLOBS / blob).read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == blob else None


def shorten(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}…"


def _moment(drift: Drift) -> tuple[int, int, int]:
    return (drift.turn, drift.step, drift.position)


def text_of(outcome: Outcome) -> str:
    """A result's text blocks, joined by newlines."""
    return "\n".join(block.text for block in outcome.content if isinstance(block, TextBlock))


def _code(outcome: Outcome) -> str | None:
    """The error code of a result, where it has one."""
    return None if outcome.error is UNSET else outcome.error.code


def _comparable(outcome: Outcome, directories: list[str]) -> str:
    """What is compared of a result: its text, the working directory tokenised, and whether it is an error."""
    return ("(error) " if outcome.is_error else "") + tokenise(text_of(outcome), directories)


def _expanded(outcome: Outcome, lane: Lane, cwd: str) -> Outcome:
    """The recorded result as the session in `cwd` would have got it."""
    recorded = lane.recording.header.cwd
    expand = expander(None if recorded is UNSET else recorded, cwd)
    content: tuple[Content, ...] = tuple(
        TextBlock(expand(block.text)) if isinstance(block, TextBlock) else block for block in outcome.content
    )
    observed = tuple(Observation(expand(one.path), one.version) for one in outcome.observed)
    return Outcome(content, outcome.is_error, outcome.error, map_strings(outcome.meta, expand), observed)

"""The receipt: what a replay consumed, left over and could not serve, as one JSON file.

    {"format": 1, "directory": ..., "tools": "recorded"|"live", "sessions": "once"|"repeat",
     "error": why the recording could not be used (only then),
     "lanes": [{"lane": recorded session, "file": ..., "address": ["call id", "call id[index]", ...],
                "sessions": [ids of the live sessions it was served to],
                "calls": {purpose: {"recorded": n, "used": n, "left": n, "over": n}},
                "drift": {"turn", "step", "position", "tool", "recorded", "live"} (only where there is some)}],
     "unbound": [lanes no live session was bound to],
     "unaddressed": [files whose recorded calls nothing could ask for]}

`used` counts different recorded calls, `over` calls that were made beyond the recorded ones. `left` is
`recorded` - `used`. `drift` is the first tool result that differed from its recording.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from replay.lanes import Drift, Lane, Lanes

FORMAT = 1


class Counts(Struct, frozen=True):
    """How often recorded calls of one purpose were made."""

    recorded: int
    used: int
    left: int
    over: int


class LaneReceipt(Struct, frozen=True):
    """What became of one lane."""

    lane: str
    file: str
    address: list[str]
    sessions: list[str]
    calls: dict[str, Counts]
    drift: Drift | UnsetType = UNSET


class Receipt(Struct, frozen=True):
    """What became of a replay (the module describes the file)."""

    format: int
    directory: str
    tools: str
    sessions: str
    lanes: list[LaneReceipt]
    unbound: list[str]
    unaddressed: list[str]
    error: str | UnsetType = UNSET


def receipt_of(lanes: Lanes | None, directory: str, tools: str, sessions: str, error: str | None) -> Receipt:
    """The receipt of a replay that used `lanes`, or failed with `error` before it had any."""
    known = [] if lanes is None else list(lanes)
    return Receipt(
        FORMAT, directory, tools, sessions,
        lanes=[_lane(lane) for lane in known],
        unbound=[lane.recording.name for lane in known if not lane.sessions],
        unaddressed=[] if lanes is None else [recording.file_name for recording in lanes.unaddressed],
        error=UNSET if error is None else error,
    )  # fmt: skip


def _lane(lane: Lane) -> LaneReceipt:
    purposes = sorted({*lane.calls, *lane.over})
    return LaneReceipt(
        lane.recording.name, lane.recording.file_name, [str(hop) for hop in lane.path], list(lane.sessions),
        {purpose: _counts(lane, purpose) for purpose in purposes},
        UNSET if lane.drift is None else lane.drift,
    )  # fmt: skip


def _counts(lane: Lane, purpose: str) -> Counts:
    recorded, used = len(lane.calls.get(purpose, ())), len(lane.served.get(purpose, ()))
    return Counts(recorded, used, recorded - used, lane.over.get(purpose, 0))


def write(receipt: Receipt, file: Path) -> None:
    """Write a receipt so that a reader finds the old file or the new one, never half of it. Raises `OSError`."""
    data = msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n"
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)

"""The receipt: what a replay consumed, left over and could not serve, as one JSON file.

    {"format": 1, "directory": ..., "tools": "recorded"|"live", "sessions": "once"|"repeat",
     "error": why the recording could not be used (only then),
     "lanes": [{"lane": recorded session, "file": ..., "address": ["call id", "call id[index]", ...],
                "sessions": [ids of the live sessions it was served to],
                "calls": {purpose: {"recorded": n, "used": n, "left": n, "over": n}},
                "drift": {"turn", "step", "position", "tool", "recorded", "live"} (only where there is some)}],
     "unbound": [lanes no live session was bound to],
     "unaddressed": [files whose recorded calls nothing could ask for],
     "partial": true (only in a receipt of several processes, of which some wrote none: they were killed)}

`used` counts different recorded calls, `over` calls that were made beyond the recorded ones. `left` is
`recorded` - `used`. `drift` is the first tool result that differed from its recording.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

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
    partial: Literal[True] | UnsetType = UNSET


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


# ---------------------------------------------------------------- several processes


def joined(receipts: Sequence[bytes | None]) -> bytes | None:
    """The receipt of processes that replayed one recording one after another, as JSON; None where there is none.

    Each call was served by one of them, since a session goes on where it stopped. A receipt that cannot be read is
    returned as it is.
    """
    written = [receipt for receipt in receipts if receipt is not None]
    if len(receipts) < 2 or not written:
        return written[0] if written else None
    read: list[Receipt] = []
    for data in written:
        try:
            read.append(msgspec.json.decode(data, type=Receipt))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return data
    partial: Literal[True] | UnsetType = True if len(read) < len(receipts) else UNSET
    return msgspec.json.encode(msgspec.structs.replace(_sum(read), partial=partial))


def _sum(receipts: Sequence[Receipt]) -> Receipt:
    first, *others = receipts
    lanes = {lane.file: lane for lane in first.lanes}
    for receipt in others:
        for lane in receipt.lanes:
            lanes[lane.file] = _added(lanes[lane.file], lane) if lane.file in lanes else lane
    errors = [receipt.error for receipt in receipts if receipt.error is not UNSET]
    return msgspec.structs.replace(
        first, lanes=list(lanes.values()), unbound=[lane.lane for lane in lanes.values() if not lane.sessions],
        error=errors[0] if errors else UNSET)


def _added(one: LaneReceipt, other: LaneReceipt) -> LaneReceipt:
    none = Counts(0, 0, 0, 0)
    calls: dict[str, Counts] = {}
    for purpose in {**one.calls, **other.calls}:
        ours, theirs = one.calls.get(purpose, none), other.calls.get(purpose, none)
        recorded, used = max(ours.recorded, theirs.recorded), ours.used + theirs.used
        calls[purpose] = Counts(recorded, used, recorded - used, ours.over + theirs.over)
    return msgspec.structs.replace(
        one, sessions=list(dict.fromkeys([*one.sessions, *other.sessions])), calls=calls,
        drift=other.drift if one.drift is UNSET else one.drift)

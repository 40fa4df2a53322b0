"""Mending a damaged log: the core of `acp-agent sessions repair`, the same for every store. It touches no file.

What is sound stays as it stands, under its own number, so that everything that cites it stays right. A number whose
event is lost is filled: with what the log itself proves to have stood there (a turn's or step's beginning or end,
a started call), with a result that says the outcome is unknown where a call would have none, and else with `log/lost`,
which every reader skips.

    header, found = find_lines(data, file)      # JSONL; another store makes its `Found` with `found_record`
    mended = mend(header, found, file)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from acp_agent.errors import LogDamaged
from acp_agent.session import codec
from acp_agent.session.events import KNOWN_TYPES, SessionHeader
from acp_agent.session.seed import check_seed
from acp_agent.stores.balancing import Draft, balance
from acp_agent.stores.salvage import Found, find_lines, found_record

__all__ = ["LOST", "Found", "Mended", "find_lines", "found_record", "mend"]


class Mended(Struct, frozen=True):
    """A log that can be continued: `records` are numbered 0, 1, 2, ... without gaps.

    `changes` tell a person what was done and why, each with its place; there are none when nothing was wrong. `kept`
    counts the records that are as they were found.
    """

    records: Sequence[codec.Record]
    changes: Sequence[str]
    kept: int


LOST: Final = "log/lost"
"""The type of an event that says that another one was lost. Ignorable: every reader of the format skips it."""

_MAX_GAP = 1_000_000
"""More lost numbers in a row are not believed: then it is the number after them that is damaged."""


def mend(header: SessionHeader, found: Sequence[Found], file: str) -> Mended:
    """Make one sound log out of what was found of it, in file order.

    The records are accepted by a `Reader`, keep the seed boundary, and leave each tool call of an ended step with
    exactly one result. Raises `LogDamaged` when nothing is left, and for a seed boundary that does not fit what is
    left.
    """
    ordered = _Ordered()
    for place in found:
        ordered.take(place)
    draft = Draft(ordered.draft())
    if not draft.records:
        raise LogDamaged("no event in it can be read, so there is nothing to keep", file=file)
    lost = [seq for seq, record in enumerate(draft.records) if record is None]
    balance(header, draft)
    changes = [*ordered.changes, *_told(draft, lost)]
    kept = len(draft.records) - len(lost) - len(draft.dropped)
    records = list(_marked(draft))
    for seq, record in enumerate(records):
        if record.ignorable is not True and record.type not in KNOWN_TYPES:
            records[seq] = msgspec.structs.replace(record, ignorable=True)
            changes.append(f"event {seq}: its type {record.type!r} is not known here; marked as one to be skipped")
            kept -= 1
    _check_boundary(header, records, file)
    return Mended(records, changes, kept)


class _Ordered:
    """The records by their numbers, and what had to be done to bring them into that order."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._records: dict[int, tuple[codec.Record, str]] = {}
        self._highest = -1

    def take(self, found: Found) -> None:
        """The next place of the log."""
        if found.reason is not None:
            self._tell(f"{found.place}: {found.reason}")
        for record in found.records:
            self._add(record, found.place)

    def _add(self, record: codec.Record, place: str) -> None:
        seq = record.seq
        if seq not in self._records:
            self._records[seq] = (record, place)
            if seq < self._highest:
                self._tell(f"{place}: stood after later events; put in its place")
            self._highest = max(self._highest, seq)
            return
        other, elsewhere = self._records[seq]
        if other == record:
            self._tell(f"{place}: dropped, the same as {elsewhere}")
        else:
            self._tell(f"{place}: dropped {record.type} {seq}, for {elsewhere} holds another event of that number "
                       f"({other.type})")

    def _tell(self, change: str) -> None:
        if not self.changes or self.changes[-1] != change:
            self.changes.append(change)

    def draft(self) -> list[codec.Record | None]:
        """The records in order, None for each number in between that has none."""
        draft: list[codec.Record | None] = []
        for seq in sorted(self._records):
            record, place = self._records[seq]
            if seq - len(draft) > _MAX_GAP:
                self._tell(f"{place}: dropped {record.type} {seq}, for that number cannot be right after {len(draft)}")
                continue
            draft += [None] * (seq - len(draft))
            draft.append(record)
        return draft


def _told(draft: Draft, lost: Sequence[int]) -> Iterator[str]:
    """What became of the numbers whose record was lost or did not fit, in order, runs of one kind in one line."""
    words = dict.fromkeys(lost, f"lost; marked as {LOST}")
    words |= {seq: f"taken out and marked as {LOST}: {why}" for seq, why in draft.dropped.items()}
    for seq, why in draft.filled.items():
        words[seq] = f"filled with {why}" + (f" ({words[seq]})" if seq in draft.dropped else "")
    start = None
    for seq in sorted(words):
        if start is None or words.get(seq - 1) != words[seq]:
            start = seq
        if words.get(seq + 1) != words[seq]:
            yield f"event {seq}: {words[seq]}" if start == seq else f"events {start} to {seq}: {words[seq]}"


def _marked(draft: Draft) -> Iterator[codec.Record]:
    """The draft with a mark for each number that is lost for good."""
    time = draft.time_at(0)
    for seq, record in enumerate(draft.records):
        time = time if record is None else record.time
        yield codec.Record(LOST, seq, time, Raw(b"{}"), ignorable=True) if record is None else record


def _check_boundary(header: SessionHeader, records: Sequence[codec.Record], file: str) -> None:
    length = 0 if header.seed_length is UNSET else header.seed_length
    before = records[length - 1].type if 0 < length <= len(records) else None
    at = records[length].type if length < len(records) else None
    check_seed(header, len(records), before, at, file)

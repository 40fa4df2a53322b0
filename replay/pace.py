"""How fast recorded chunks come: at once, as they were recorded, or one each so many milliseconds.

Pacing is realism only: what is served never depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import SettingsError
from acp_agent.session.events import Chunk
from replay.rows import Piece
from replay.stream import BATCH, batches, timed


class Burst(Struct, frozen=True):
    """As fast as the consumer takes them."""


class Recorded(Struct, frozen=True):
    """With the recorded gaps; at once where the log holds no times (projected logs keep those of packed rows)."""


class Every(Struct, frozen=True):
    """One chunk each `milliseconds`."""

    milliseconds: int


Pace: TypeAlias = Burst | Recorded | Every


def parse_pace(text: str) -> Pace:
    """`burst`, `recorded`, or milliseconds. Raises `SettingsError` for anything else."""
    if text == "burst":
        return Burst()
    if text == "recorded":
        return Recorded()
    if text.isascii() and text.isdigit():
        return Every(int(text)) if int(text) else Burst()
    raise SettingsError(f"ACP_REPLAY_PACE is {text!r}; it must be burst, recorded or a number of milliseconds",
                        setting="ACP_REPLAY_PACE", value=text)


def schedule(
    pieces: Sequence[Piece], pace: Pace, asked: int | UnsetType = UNSET
) -> Iterator[tuple[float, Sequence[Chunk]]]:
    """Batches of chunks, each with the moment it is due: seconds since the call was made.

    `asked` is when the recorded request was sent, in epoch milliseconds.
    """
    if isinstance(pace, Burst):
        for batch in batches(pieces):
            yield 0.0, batch
    elif isinstance(pace, Every):
        number = 0
        for batch in batches(pieces):
            for chunk in batch:
                number += 1
                yield number * pace.milliseconds / 1000, (chunk,)
    else:
        yield from _recorded(pieces, asked)


def _recorded(pieces: Sequence[Piece], asked: int | UnsetType) -> Iterator[tuple[float, Sequence[Chunk]]]:
    due, before = 0, None if asked is UNSET else asked
    batch: list[Chunk] = []
    for time, chunk in timed(pieces):
        gap = 0 if time is None or before is None else max(time - before, 0)
        before = before if time is None else time
        if batch and (gap or len(batch) >= BATCH):
            yield due / 1000, batch
            batch = []
        due += gap
        batch.append(chunk)
    if batch:
        yield due / 1000, batch

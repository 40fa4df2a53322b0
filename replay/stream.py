"""From recorded pieces to chunks: packed rows are unpacked only here, while they are streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from acp_agent.session.events import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from replay.rows import ChunkRow, Delta, Piece, ReasoningRow, TextRow, member_times

BATCH = 64
"""Chunks handed over at a time: many enough to be quick, few enough that a cancel gets in soon."""


def expand(piece: Piece) -> Sequence[Chunk]:
    """The chunks of one row."""
    return (piece.data.chunk,) if isinstance(piece, ChunkRow) else _members(piece, piece.data.texts)


def _members(row: Delta, texts: Sequence[str]) -> list[Chunk]:
    index = row.data.index
    if isinstance(row, TextRow):
        return [TextDelta(index, text) for text in texts]
    if isinstance(row, ReasoningRow):
        return [ReasoningDelta(index, text) for text in texts]
    call_id, name = row.data.id, row.data.name
    return [ToolCallDelta(index, call_id, name, text) for text in texts]


def batches(pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
    """All chunks in order, `BATCH` at a time."""
    batch: list[Chunk] = []
    for piece in pieces:
        if isinstance(piece, ChunkRow):
            batch.append(piece.data.chunk)
        else:
            texts, start = piece.data.texts, 0
            while len(texts) - start >= BATCH - len(batch):
                end = start + BATCH - len(batch)
                batch += _members(piece, texts[start:end])
                yield batch
                batch, start = [], end
            batch += _members(piece, texts[start:])
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def timed(pieces: Sequence[Piece]) -> Iterator[tuple[int | None, Chunk]]:
    """Each chunk with its recorded time in epoch milliseconds; None where the log holds no times."""
    for piece in pieces:
        if isinstance(piece, ChunkRow):
            yield (None if piece.time is UNSET else piece.time), piece.data.chunk
        else:
            yield from zip(member_times(piece), expand(piece), strict=True)


def count(pieces: Sequence[Piece]) -> int:
    """How many chunks the pieces hold."""
    return sum(1 if isinstance(piece, ChunkRow) else len(piece.data.texts) for piece in pieces)

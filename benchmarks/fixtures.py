"""Writes recordings for our own measurements, in session log format 0. Standard library only.

usage: fixtures.py OUT_DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def call(turn: int, texts: list[str]) -> list[dict[str, Any]]:
    """The rows of one model call whose one text block comes in `texts`."""

    def chunk(body: dict[str, Any]) -> dict[str, Any]:
        return {"type": "assistant/chunk", "data": {"turn": turn, "step": 1, "chunk": body}}

    deltas = [{"type": "text-chunks", "data": {"turn": turn, "step": 1, "index": 0, "dt": [0] * (len(texts) - 1),
                                               "texts": texts}}]  # fmt: skip
    if len(texts) < 3:
        deltas = [chunk({"type": "text-delta", "index": 0, "text": text}) for text in texts]
    return [
        chunk({"type": "block-start", "index": 0, "blockType": "text"}),
        *deltas,
        chunk({"type": "block-end", "index": 0, "block": {"type": "text", "text": "".join(texts)}}),
        chunk({"type": "usage", "usage": {"inputTokens": 10, "outputTokens": 10}}),
        chunk({"type": "finish", "reason": {"kind": "stop"}}),
    ]


def write(path: Path, calls: list[list[dict[str, Any]]]) -> None:
    """One recorded root session."""
    header = {"type": "session", "version": 0, "id": "00000000-0000-4000-8000-000000000001",
              "createdAt": 1783600000000, "cwd": "{{cwd}}", "delegationDepth": 0}  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [header, *(row for rows in calls for row in rows)]
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def main(out: Path) -> None:
    """Everything the benchmarks need besides the driver's own fixtures."""
    write(out / "endless" / "session.jsonl", [call(1, ["tok " * 10] * 300_000)])
    for deltas in (5_000, 40_000):
        write(out / f"deltas-{deltas}" / "session.jsonl", [call(turn, ["tok "] * deltas) for turn in range(1, 8)])
    write(out / "turns" / "session.jsonl", [call(turn, ["hello"]) for turn in range(1, 1_102)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Our goldens, and the laws that every run of them is held to."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

from replay.artefacts import Artefacts
from tests.support.history_laws import check_history
from tests.support.laws import Entry, check_laws, parse_line
from tests.support.log_laws import check_store_laws

GOLDEN = Path(__file__).parents[1] / "golden"
AGENT = (sys.executable, "-m", "acp_agent")
TIMEOUT = 60.0
"""Seconds for one wait: a run takes much less, a busy machine may need more."""


def names() -> list[str]:
    """The scenarios of our goldens, in the order of their names."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/input.json"))


def shuffled(rounds: int, seed: str | None) -> list[tuple[str, int]]:
    """Every scenario as often as asked, each time with its round; in random order when there is a seed."""
    chosen = [(name, number) for number in range(1, rounds + 1) for name in names()]
    if seed is not None:
        random.Random(seed).shuffle(chosen)
    return chosen


def check_run(run: Artefacts, root: Path) -> None:
    """The run below `root` ended well, said nothing on stderr and kept every law that its traces can show.

    Raises `AssertionError`.
    """
    entries = [Entry(line.sender, parse_line(line.line), line.line + b"\n") for line in run.wire]
    cuts = [0, *(restart.at for restart in run.restarts), len(entries)]
    transcripts = [entries[begin:end] for begin, end in itertools.pairwise(cuts)]
    killed = {number for number, restart in enumerate(run.restarts) if restart.how == "kill"}
    packed = root / "packed"
    store = packed if packed.is_dir() else root / "sessions"
    problems = [problem for number, transcript in enumerate(transcripts)
                for problem in check_laws(transcript, finished=number not in killed, unstable=True)]
    problems += [*check_store_laws(store), *check_history(transcripts, store, killed=killed)]
    assert not problems, "broken laws:\n  " + "\n  ".join(problems)
    assert (run.status, run.stderr) == (0, "")

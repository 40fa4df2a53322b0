"""Makes our goldens: runs each scenario's model script live in the real agent and keeps what the run left.

usage: python -m tests.make_goldens [NAME ...]

`input.json`, `model.script` and `workspace/` are written by people; the other files of `golden/` only by this.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from replay.judge import judge
from replay.pins import settle
from tests.golden_runs import AGENT, GOLDEN, TIMEOUT, check_run, names


def record(name: str) -> str:
    """Record one scenario; what was done, in words.

    Raises `AssertionError` for a run that failed, and for an unlawful one, whose golden is there to be looked at.
    """
    with tempfile.TemporaryDirectory() as folder:
        verdict = judge(GOLDEN / name, AGENT, root=Path(folder), record=True, timeout=TIMEOUT)
        assert verdict.sound, f"{name}: {verdict.report()}"
        assert verdict.artefacts is not None
        assert not verdict.notes, f"{name}: {'; '.join(verdict.notes)}"
        check_run(verdict.artefacts, Path(folder))
    return ", ".join(path.name for path in verdict.changed) or "as it was"


def main(arguments: Sequence[str]) -> int:
    """Record the named scenarios, or all; the exit status."""
    for name in arguments or names():
        sys.stdout.write(f"{name}: {record(name)}\n")
    for path in settle(GOLDEN):
        sys.stdout.write(f"settled {path.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

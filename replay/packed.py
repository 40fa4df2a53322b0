"""Session logs out of a database: the agent itself packs each session into a directory, as a user would."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from replay.artefacts import HarvestedLog
from replay.failures import RunFailed
from replay.transports import resolve
from replay.workspace import Workspace

SECONDS = 60.0
"""How long one command may take."""


def packed_logs(command: Sequence[str], ground: Workspace, environ: Mapping[str, str]) -> tuple[HarvestedLog, ...]:
    """Every stored session log, by the agent's `sessions list` and `sessions pack`. A run that stored nothing has made
    no database, and has no logs.

    Raises `RunFailed` when the agent's command fails.
    """
    if not ground.database.exists():
        return ()
    words = [*resolve(command, environ), "sessions"]
    logs: list[HarvestedLog] = []
    for number, session in enumerate(_listed(words, ground, environ), 1):
        folder = ground.packed / str(number)
        done = _run([*words, "pack", session, str(folder)], ground, environ)
        found = sorted(folder.rglob("*.jsonl"))
        if not found:  # a log that was written and would not replay is a log all the same
            raise _failed("pack", done)
        logs += (HarvestedLog(path, path.read_bytes()) for path in found)
    return tuple(logs)


def _listed(words: Sequence[str], ground: Workspace, environ: Mapping[str, str]) -> list[str]:
    """The ids of the stored root sessions, oldest first."""
    done = _run([*words, "list", "--json"], ground, environ)
    if done.returncode:
        raise _failed("list", done)
    rows: list[dict[str, Any]] = [msgspec.json.decode(line) for line in done.stdout.splitlines() if line.strip()]
    return [row["id"] for row in reversed(rows)]


def _run(
    words: Sequence[str], ground: Workspace, environ: Mapping[str, str],
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(words, cwd=ground.directory, env=dict(environ), stdin=subprocess.DEVNULL,
                              capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"`{' '.join(words)}` did not end within {SECONDS:g} s") from None


def _failed(name: str, done: subprocess.CompletedProcess[bytes]) -> RunFailed:
    said = done.stderr.decode(errors="replace").strip()
    return RunFailed(f"the stored sessions cannot be read: `sessions {name}` ended with status {done.returncode}: "
                     f"{said}")

"""An agent's process: the environment it gets, and which processes descend from it, wherever they went."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path

MARK = "REPLAY_TEST_MARK"
PROC = Path("/proc")
SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
GONE_WITHIN = 2.0
"""Seconds in which a process that was told to die must have died."""


def new_mark() -> str:
    """A value of `MARK` that no other process has."""
    return secrets.token_hex(12)


def marked(mark: str) -> dict[int, str]:
    """Process id -> command line of every running process with this mark. Empty where there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for directory in PROC.iterdir() if PROC.is_dir() else ():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (directory / "environ").read_bytes().split(b"\0"):
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(directory.name)] = command.strip()
    return found


def wait_until_gone(mark: str) -> list[str]:
    """Wait until no marked process runs; returns the command lines of those that do not go away."""
    deadline = time.monotonic() + GONE_WITHIN
    while (left := marked(mark)) and time.monotonic() < deadline:
        pause()
    return [f"{command} (pid {pid})" for pid, command in left.items()]


def kill_marked(mark: str) -> None:
    """Kill what is left, so that one failing test does not burden the next."""
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pause() -> None:
    """Between two looks at a state that cannot be waited for."""
    time.sleep(0.005)


def clean_environment(home: Path) -> dict[str, str]:
    """This process's environment without settings of ours and without secrets, at home in `home`."""
    environ = {
        name: value for name, value in os.environ.items()
        if not name.upper().startswith(("ACP", "XDG_")) and not any(word in name.upper() for word in SECRETS)
    }
    source = str(Path(__file__).parents[2])
    return environ | {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"), "XDG_DATA_HOME": str(home / "data"),
        "PYTHONPATH": source, "PYTHONWARNINGS": "default", "PYTHONUTF8": "1",
    }

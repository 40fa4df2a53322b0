"""The processes of commands: how they are found, and, run as a script, who ends them when the agent is killed.

The script (`python -I -S trees.py`) is told on its stdin which commands run, a line each: `MARK 0` before one is
started, `MARK PID` once it is, `MARK` when it is over. When its stdin ends, which no way to die prevents, it ends what
still runs. Only the standard library is used: nothing else is there for a script so run.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping

POLL = 0.01
"""Seconds between looks at processes that are not ours to wait for."""

GRACE = 0.3
"""Seconds after the agent's death until SIGKILL; before, its commands get SIGTERM."""

TOTAL = 1.5
"""Seconds after which the rest is given up on."""

SETTLE = 0.1
"""Seconds in which a command that was just being started may still turn up."""

Known = tuple[int, int]
"""One process, told from a later one with the same number by when it started."""

_LINUX = sys.platform.startswith("linux")


def members(commands: Mapping[str, int], known: frozenset[Known]) -> frozenset[Known]:
    """The living processes of these commands (mark -> process id, 0 for one not known): of their groups or sessions,
    marked, known from before, or below any of these. Without /proc, the first process of each group that lives.
    """
    leaders = {pid for pid in commands.values() if pid > 0}
    if not _LINUX:
        return frozenset((pid, 0) for pid in leaders if _group_lives(pid))
    flags = [mark.encode() + b"=" for mark in commands]
    found: dict[int, Known] = {}
    children: dict[int, list[Known]] = {}
    for pid, started, parent, group, session in _processes():
        children.setdefault(parent, []).append((pid, started))
        if (pid, started) in known or group in leaders or session in leaders or _marked(pid, flags):
            found[pid] = (pid, started)
    parents = list(found)
    while parents:
        for child in children.get(parents.pop(), ()):
            if child[0] not in found:
                found[child[0]] = child
                parents.append(child[0])
    return frozenset(found.values())


def signal_group(pid: int, number: int) -> None:
    """Signal every process of a group. It is no trouble when there is none."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # Nobody is left; macOS says "not permitted" when only zombies are.
        return


def signal_one(pid: int, number: int) -> None:
    """Signal one process. It is no trouble when it is gone, or has another user's rights and is not ours to end."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _processes() -> Iterator[tuple[int, int, int, int, int]]:
    """Every process of the system but zombies and this one: number, start, parent, group, session."""
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib costs more to import than all else here
        if not name.isdecimal() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # likewise
                text = file.read()
        except OSError:
            continue
        # The name in parentheses may hold anything; the numbers follow its last one. See proc_pid_stat(5).
        fields = text[text.rfind(")") + 2 :].split()
        if fields[0] not in "ZX":
            yield int(name), int(fields[19]), int(fields[1]), int(fields[2]), int(fields[3])


def _marked(pid: int, flags: list[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  # as above
            environment = file.read()
    except OSError:
        return False
    return any(flag in environment for flag in flags)


# ---------------------------------------------------------------- the script


def main() -> None:
    """Listen until the agent is gone, then end what it left."""
    commands: dict[str, int] = {}
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            mark, _, pid = line.decode().partition(" ")
            if pid:
                commands[mark] = int(pid)
            else:
                commands.pop(mark, None)
    if commands:
        _end(commands)


def _end(commands: Mapping[str, int]) -> None:
    begun = time.monotonic()
    known: frozenset[Known] = frozenset()
    while (passed := time.monotonic() - begun) < SETTLE or (known and passed < TOTAL):
        found = members(commands, known)
        asked_nicely = passed < GRACE
        for pid, _ in found - known if asked_nicely else found:
            (signal_one if _LINUX else signal_group)(pid, signal.SIGTERM if asked_nicely else signal.SIGKILL)
        known = found
        time.sleep(POLL)


if __name__ == "__main__":
    main()

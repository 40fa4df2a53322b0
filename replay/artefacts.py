"""What one run of a scenario left behind: the wire, the logs, the files, and how its processes ended."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

Side = Literal["client", "agent"]


class WireLine(Struct, frozen=True):
    """One line that passed between client and agent, without its line end, in the order it passed."""

    sender: Side
    line: bytes


class Restart(Struct, frozen=True):
    """One process ended and the next one began. `at` is the position on the wire of the first line after it."""

    at: int
    how: Literal["eof", "kill"]


class HarvestedLog(Struct, frozen=True):
    """One stored session log, whole, as its file has it."""

    path: Path
    data: bytes


class FileState(Struct, frozen=True):
    """A file of the workspace after the run. `data` None means that it is gone though it was there before."""

    path: str
    data: bytes | None
    mode: int = 0o644


class Artefacts(Struct, frozen=True):
    """Everything a run can be judged by.

    wire       every line in both directions
    logs       the stored session logs, in no promised order
    files      files of the workspace that were made, changed or removed, by path relative to it
    stderr     what the agent said there
    status     exit status of the last process; negative for a signal
    receipt    the replay receipt of all processes together, JSON, or None where the agent wrote none
    workspace  every spelling of the workspace's path that may appear in texts, the one given to the agent first
    home       the run's home directory
    restarts   where on the wire one process followed another, in order
    """

    wire: tuple[WireLine, ...]
    logs: tuple[HarvestedLog, ...]
    files: tuple[FileState, ...]
    stderr: str
    status: int
    receipt: bytes | None
    workspace: tuple[str, ...]
    home: str
    restarts: tuple[Restart, ...] = ()

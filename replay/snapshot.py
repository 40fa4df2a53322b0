"""What a run is judged by, in a form that two runs of the same behaviour share: the wire, the logs, the files.

A golden directory holds one of these; `replay.normalize` makes one of what a run left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.session.events import SessionHeader
from replay.leftovers import Leftover
from replay.logform import LogEvent
from replay.receipts import Receipt


class WireFrame(Struct, frozen=True):
    """A line of the agent's. `session` is the name of the session it is about, for a response of the one its
    request was about; `answers` is the method of that request. Both are None where that is not known.
    """

    value: dict[str, Any]
    session: str | None = None
    answers: str | None = None

    @property
    def line(self) -> str:
        """The line's canonical text, as in `stdout.jsonl`."""
        return msgspec.json.encode(self.value).decode()


class SessionLog(Struct, frozen=True):
    """A session's log. `root` counts the roots from 0, `path` are the hops from that root."""

    name: str
    root: int
    path: tuple[str, ...]
    header: SessionHeader
    events: tuple[LogEvent, ...]

    @property
    def address(self) -> str:
        """Where the session stands, in words."""
        root = "root" if self.root == 0 else f"root {self.root + 1}"
        return " > ".join([root, *self.path])


class FileEntry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A file the run made or changed (`text`, or `base64` where it is no text), or removed.

    `mode` is the permission bits in octal, only of a file that can be executed.
    """

    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    removed: Literal[True] | UnsetType = UNSET
    mode: str | UnsetType = UNSET


class Normalised(Struct, frozen=True):
    """One run or one golden.

    wire       the agent's lines in canonical order
    logs       the sessions' logs in the order of their files
    files      what happened to the workspace, by path
    broken     promises that the run broke, whatever a golden says
    leftovers  values that look machine-made and have no name
    receipt    what the replay used up; None where there was none
    """

    wire: tuple[WireFrame, ...]
    logs: tuple[SessionLog, ...]
    files: Mapping[str, FileEntry]
    broken: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    receipt: Receipt | None = None

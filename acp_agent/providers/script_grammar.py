"""A model script as it was understood: model calls by address (docs/model-script.md). No text is left in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, UnsetType

from acp_agent.errors import AgentError
from acp_agent.providers.base import Path
from acp_agent.session.events import Chunk


class ScriptError(AgentError):
    """A model script cannot be used, or was asked for a call that it does not hold. Names the file and, where
    there is one, the line (counted from 1).
    """

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}", file=file, **({} if line is None else {"line": line}))


class Send(Struct, frozen=True):
    """Stream these chunks."""

    chunks: Sequence[Chunk]


class Wait(Struct, frozen=True):
    """Hold until this file exists in the session's working directory."""

    file: str


Move: TypeAlias = Send | Wait


class Done(Struct, frozen=True):
    """The answer is complete: the last chunk sent was its finish."""


class Throw(Struct, frozen=True):
    """The call fails. `final` says that it is not made again, whatever the retry policy says of `code`."""

    code: str
    message: str
    retry_after_ms: int | None = None
    status: int | None = None
    final: bool = False


class Hang(Struct, frozen=True):
    """The call never ends. `ready_file` is made in the session's working directory when this point is reached."""

    ready_file: str | None = None


End: TypeAlias = Done | Throw | Hang


class ScriptCall(Struct, frozen=True):
    """One model call. `repeat`: it also serves every later call. `line` is where it begins in the file."""

    line: int
    moves: Sequence[Move]
    end: End
    repeat: bool = False


class Address(Struct, frozen=True):
    """Who calls: the `root`-th root session (counted from 1) and the delegations that lead from it."""

    root: int = 1
    path: Path = ()

    def __str__(self) -> str:
        root = "root" if self.root == 1 else f"root {self.root}"
        return " > ".join([root, *map(str, self.path)])

    @property
    def parent(self) -> Address:
        """The delegating session; a root is its own."""
        return Address(self.root, self.path[:-1])


class ScriptLane(Struct, frozen=True):
    """The calls of one address, by purpose. `line` is where the lane begins in the file."""

    address: Address
    line: int
    calls: Mapping[str, Sequence[ScriptCall]]

    def at(self, purpose: str, ordinal: int) -> ScriptCall | None:
        """The call that serves the `ordinal`-th one of this purpose (from 0), or None where there is none."""
        calls = self.calls.get(purpose, ())
        if ordinal < len(calls):
            return calls[ordinal]
        return calls[-1] if calls and calls[-1].repeat else None


DEFAULT_MODEL = "script"
"""The model's name in a script that gives none."""


class Script(Struct, frozen=True):
    """A whole script. `model` and `window` (tokens) are how the log names who answered."""

    file: str
    model: str
    window: int | UnsetType
    lanes: Mapping[Address, ScriptLane]

    @property
    def roots(self) -> int:
        """How many root sessions have a lane of their own; with one, it serves every root session."""
        return sum(not address.path for address in self.lanes)

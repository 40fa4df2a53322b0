"""How playing a scenario can fail. Each failure says where in the script it happened and what was there to see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

LAST_FRAMES = 12
"""How many of the last frames a failure shows."""

_FRAME, _STDERR = 400, 3000
"""Characters shown of one frame, and of the end of stderr."""


class ScenarioError(Exception):
    """A scenario's file cannot be used. Names the file, the line or the step, and what was expected there."""

    def __init__(self, file: Path, message: str, *, line: int | None = None, step: str | None = None) -> None:
        where = str(file) if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}" if step is None else f"{where}: {step}: {message}")
        self.file = file
        self.line = line


class Scene(Struct, frozen=True):
    """What there was to see when a run failed. `status` is the agent's exit status, None while it runs."""

    frames: tuple[str, ...]
    stderr: str
    status: int | None

    def __str__(self) -> str:
        ended = [] if self.status is None else [f"the agent ended with status {self.status}"]
        frames = self.frames or ("(nothing was sent)",)
        stderr = self.stderr.rstrip() or "(nothing)"
        return "\n".join([*ended, "last frames:", *(f"  {frame}" for frame in frames), "stderr:", _indent(stderr)])


def scene(frames: Sequence[tuple[str, bytes]], stderr: str, status: int | None) -> Scene:
    """The scene from all frames (arrow, line), the whole of stderr and the exit status, if any."""
    shown = tuple(f"{arrow} {_shortened(line)}" for arrow, line in frames[-LAST_FRAMES:])
    return Scene(shown, stderr[-_STDERR:], status)


def _shortened(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= _FRAME else f"{text[:_FRAME]}... ({len(line)} bytes)"


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


class RunFailed(Exception):
    """A scenario that could not be played to its end.

    problem  what went wrong, in words
    where    file, step number and op, once known
    scene    the last frames, stderr and exit status
    """

    def __init__(self, problem: str, scene: Scene | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = ""
        self.scene = scene

    def __str__(self) -> str:
        head = f"{self.where}: {self.problem}" if self.where else self.problem
        return head if self.scene is None else f"{head}\n{self.scene}"


class CannotStart(RunFailed):
    """The agent's command does not exist or cannot be run."""


class Stuck(RunFailed):
    """What was awaited did not come within the time limit. `awaited` says what that was."""

    def __init__(self, awaited: str, seconds: float, scene: Scene) -> None:
        super().__init__(f"waited {seconds:g} s for {awaited}", scene)
        self.awaited = awaited


class AgentGone(RunFailed):
    """The agent ended, or closed its stdout, while something was awaited of it."""

    def __init__(self, awaited: str, scene: Scene) -> None:
        super().__init__(f"the agent was gone before {awaited} came", scene)
        self.awaited = awaited


class NotProtocol(RunFailed):
    """The agent wrote a line to stdout that is not one JSON-RPC 2.0 message. `line` is the line."""

    def __init__(self, line: bytes, why: str, scene: Scene) -> None:
        super().__init__(f"stdout carried a line that is not a JSON-RPC message ({why}): {_shortened(line)!r}", scene)
        self.line = line


class StepFailed(RunFailed):
    """The agent answered, but not in the way the step demands: an error where a result was expected, or a result
    where an error was.
    """


class ScriptError(RunFailed):
    """The script asks for something that cannot be had: an answer of a kind the agent does not offer, a wait for
    session logs of an agent that stores none.
    """

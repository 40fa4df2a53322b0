"""The names in a script: what a step refers to was named by an earlier one, and no name is given twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from replay.failures import ScenarioError
from replay.steps import (
    AnyStep,
    ForkSession,
    NewSession,
    OpenStored,
    Repeat,
    SessionStep,
    StartedPrompt,
    StartPrompt,
    StoredSession,
    op_of,
)


class Given:
    """The names that a script's steps have given so far."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sessions: set[str] = set()
        self._prompts: set[str] = set()
        self._made = False

    def check(self, steps: Sequence[AnyStep], *, within: str = "") -> None:
        """Check a script, or the steps `within` one that repeats them: those give no names. Raises `ScenarioError`."""
        for number, step in enumerate(steps, 1):
            self._check(step, f"{within}step {number} ({op_of(step)})", repeated=bool(within))

    def _check(self, step: AnyStep, where: str, *, repeated: bool) -> None:
        match step:
            case Repeat():
                self.check(step.steps, within=f"{where}, ")
            case ForkSession():
                self._known(step.source, where, needed=step.source_id is UNSET)
            case StoredSession():
                self._known(step.session, where, needed=step.session_id is UNSET)
            case SessionStep():
                self._known(step.session, where, needed=True)
            case _:
                pass
        if isinstance(step, StartedPrompt):
            self._need(self._prompts, step.prompt, "`startPrompt`", where)
        given = _name_given(step)
        if given is not UNSET and repeated:
            raise ScenarioError(self._file, f"a step that is repeated cannot give the name {given!r}", step=where)
        if isinstance(step, StartPrompt):
            self._add(self._prompts, given, "prompt", where)
        elif isinstance(step, NewSession | ForkSession | OpenStored):
            self._made = self._made or not isinstance(step, OpenStored) or not step.expect_error
            self._add(self._sessions, given, "session", where)

    def _known(self, name: str | UnsetType, where: str, *, needed: bool) -> None:
        if needed and not self._made:
            raise ScenarioError(self._file, "no earlier `newSession` step makes a session for it", step=where)
        self._need(self._sessions, name, "`newSession`", where)

    def _add(self, names: set[str], name: str | UnsetType, what: str, where: str) -> None:
        if name is UNSET:
            return
        if name in names:
            raise ScenarioError(self._file, f"the {what} name {name!r} was given before", step=where)
        names.add(name)

    def _need(self, names: set[str], name: str | UnsetType, maker: str, where: str) -> None:
        if name is not UNSET and name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise ScenarioError(self._file, f"no earlier {maker} step gave the name {name!r}; names so far: {known}",
                                step=where)


def _name_given(step: AnyStep) -> str | UnsetType:
    """The name that a step gives to what it makes."""
    match step:
        case NewSession() | ForkSession():
            return step.session
        case OpenStored() | StartPrompt():
            return step.name
        case _:
            return UNSET

"""Plays one scenario and judges the run by its golden, or makes the golden say what the run did."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import AgentError
from replay import steps
from replay.artefacts import Artefacts
from replay.compare import compare, differences
from replay.differences import Category, Difference, report
from replay.driver import TIMEOUT, play
from replay.failures import RunFailed, ScenarioError
from replay.golden import FILES, WIRE, Golden, load_golden, log_names, write_golden
from replay.golden_tree import TreeProblem, check_scenario
from replay.normalize import normalise
from replay.scenario import Scenario, load_scenario
from replay.snapshot import Normalised
from replay.transports import TransportName
from replay.workspace import StoreName

SCRIPT = "model.script"
"""What a scripted model says, in a scenario that was recorded with one."""

NO_GOLDEN = f"there is no golden yet: {WIRE} and {FILES} are missing"
UNFIT = (f"the golden was not written: no golden can hold this run. Mend the script or the agent, or record again "
         f"(`acp-agent refresh --record`, with a {SCRIPT})")
NO_SCRIPT = f"there is no {SCRIPT} to record from"


class Verdict(Struct, frozen=True):
    """What became of one scenario.

    failure      why it could not be played, read or written; None when it could
    differences  what differs from the golden, behaviour before wording; when a golden was to be written, what no
                 golden could hold, for which reason it was not
    faults       what is wrong with the directory as it lies there
    changed      files that were written, made or removed
    notes        what to know about a golden that was written
    bare         whether there is no golden to compare with; `differences` are then what no golden could hold
    run          what the scenario did, and `artefacts` as it left it; None when it could not be played
    """

    directory: Path
    failure: str | None = None
    differences: tuple[Difference, ...] = ()
    faults: tuple[TreeProblem, ...] = ()
    changed: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    bare: bool = False
    run: Normalised | None = None
    artefacts: Artefacts | None = None

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong, a golden or not."""
        return self.failure is None and not self.differences and not self.faults

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong and there was a golden to say so."""
        return self.sound and not self.bare

    def report(self) -> str:
        """What is wrong, in words; empty when nothing is."""
        parts = [] if self.failure is None else [self.failure]
        if self.differences:
            parts.append(report(self.differences))
        if self.faults:
            parts.append("\n".join(f"file · {fault}" for fault in self.faults))
        if self.bare:
            parts.append(NO_GOLDEN)
        return "\n\n".join(parts)


def judge(
    directory: Path, command: Sequence[str], *, root: Path, update: bool = False, record: bool = False,
    transport: TransportName = "pipe", timeout: float = TIMEOUT, store: StoreName = "jsonl",
) -> Verdict:
    """Play the scenario in a directory with the agent `command` starts, and compare what it did with the golden.

    root     a directory for this run alone
    update   make the golden say what the run did, unless no golden could hold it (a broken promise, a recording
             that was not used up, no logs where there were some): then nothing is written
    record   run live, with the scenario's `model.script` as the model, and let that be the new recording
    store    how the agent is to store its sessions; the golden is the same

    The agent is given the recording when the directory holds one, else the model script when there is one. Raises
    nothing that a scenario or an agent can cause: see `Verdict.failure`.
    """
    try:
        scenario = load_scenario(directory)
        environ = _model(directory, record)
        recording = None if environ is not None or not log_names(directory) else directory
        artefacts = play(scenario, command, root=root, transport=transport, timeout=timeout, recording=recording,
                         extra_env=environ, store=store)
        run = normalise(artefacts)
    except (RunFailed, ScenarioError, AgentError, NoScript) as error:
        return Verdict(directory, str(error))
    unfit = (*differences(run, run), *_exit(scenario, artefacts))
    try:
        golden = load_golden(directory) if not record else None
        if update or record:
            return _written(directory, run, artefacts, (*unfit, *_lost_logs(golden, run)))
    except (AgentError, OSError) as error:
        return Verdict(directory, str(error), run=run, artefacts=artefacts)
    assert golden is not None
    if {WIRE, FILES} <= set(golden.missing):
        return Verdict(directory, differences=unfit, bare=True, run=run, artefacts=artefacts)
    found = (*compare(golden, run), *_exit(scenario, artefacts))
    return Verdict(directory, differences=tuple(sorted(found, key=lambda one: one.category)),
                   faults=_faults(directory, golden.missing), run=run, artefacts=artefacts)


class NoScript(Exception):
    """A scenario cannot be recorded: it has no model script."""


def _model(directory: Path, record: bool) -> Mapping[str, str] | None:
    """The settings that make the scenario's script the model; None where a recording is played, or nothing is."""
    script = directory.absolute() / SCRIPT
    if script.is_file() and (record or not log_names(directory)):
        return {"ACP_MODEL": f"scripted/{script}"}
    if record:
        raise NoScript(f"{directory}: {NO_SCRIPT}")
    return None


def _exit(scenario: Scenario, run: Artefacts) -> list[Difference]:
    """How the agent ended, where the script did not end it."""
    if run.status == 0 or any(isinstance(step, steps.Signal) for step in scenario.steps):
        return []
    how = f"ended with status {run.status}" if run.status > 0 else f"was ended by signal {-run.status}"
    tail = tuple(run.stderr.rstrip().split("\n")[-12:]) if run.stderr.strip() else ()
    return [Difference(Category.BEHAVIOUR, "exit", f"the agent {how} when its input was closed", tail)]


def _faults(directory: Path, missing: Sequence[str]) -> tuple[TreeProblem, ...]:
    """The directory's faults but those that the comparison tells of: missing files, and values that look
    machine-made, which may be the same in every run of somebody's agent.
    """
    return tuple(fault for fault in check_scenario(directory, values=False) if fault.path.name not in missing)


# ---------------------------------------------------------------- writing


def _lost_logs(golden: Golden | None, run: Normalised) -> list[Difference]:
    """Recordings that would be removed because the agent stored no logs at all."""
    if golden is None or not golden.expected.logs or run.logs:
        return []
    what = "the golden holds recorded sessions, and the agent stored none where ACP_SESSION_STORE said"
    return [Difference(Category.SESSIONS, "recording", what)]


def _written(
    directory: Path, run: Normalised, artefacts: Artefacts, unfit: tuple[Difference, ...],
) -> Verdict:
    if unfit:
        return Verdict(directory, UNFIT, unfit, run=run, artefacts=artefacts)
    changed = tuple(write_golden(directory, run))
    notes = tuple(f"{left}: if it differs from run to run, this golden will fail"
                  for left in dict.fromkeys(map(str, run.leftovers)))
    return Verdict(directory, faults=_faults(directory, ()), changed=changed, notes=notes, run=run,
                   artefacts=artefacts)


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this runs under continuous integration, where nobody could look at a golden before it is kept."""
    return environ.get("CI", "").lower() not in ("", "0", "false", "no")

"""`acp-agent refresh`: plays scenarios and makes their goldens say what the runs did."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from acp_agent.errors import AgentError
from replay.commands.options import USAGE_ERROR, add_playing, agent_command, parser, scenarios
from replay.judge import Verdict, in_ci, judge
from replay.pins import settle

SUMMARY = "Play scenarios and rewrite what is expected of them: stdout.jsonl, files.json and the session logs."
TEACHING = """\
DIR is a scenario (a directory with an input.json) or a tree of them. The recording in it is replayed; what people
wrote (input.json, workspace/, replay.override.json, model.script) is never touched, nor is a file that would not
change. A run that no golden could hold (a broken promise, a recording that was not used up) changes nothing.

With --record the scenario's model.script is the model instead, and what the run stores is the new recording, which
is then replayed once to see that it holds. docs/model-script.md describes the scripts.

Look at the changes before you keep them: git diff. Refused where CI is set.

exit status: 0 when every golden says what its run did, 1 when one could not be written, 2 when the command cannot be
understood

examples:
  acp-agent refresh golden                    after a change that is meant
  acp-agent refresh --record golden/retry     after its model.script or input.json was changed, or for a new one
  acp-agent refresh --agent "my-agent" scenarios
"""


def main(words: Sequence[str]) -> int:
    """Run the command; its exit status."""
    options = parser("refresh", SUMMARY, TEACHING)
    options.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="the scenarios")
    options.add_argument("--record", action="store_true", help="record again with the scenario's model.script")
    add_playing(options)
    given = options.parse_args(words)
    if in_ci():
        sys.stderr.write("acp-agent refresh: refused because CI is set: goldens are only compared there; refresh "
                         "them where you can look at the changes\n")
        return USAGE_ERROR
    command = agent_command(options, given.agent)
    directories = scenarios(options, given.directories, recordings=False)
    failed = 0
    for directory in directories:
        verdict = _refresh(directory, command, given.record, given.transport, given.timeout)
        failed += not verdict.sound
        _tell(verdict)
    for tree in dict.fromkeys(directory.parent for directory in directories):
        failed += not _settle(tree)
    return 1 if failed else 0


def _refresh(directory: Path, command: Sequence[str], record: bool, transport: str, timeout: float) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="acp-refresh-") as folder:
        root = Path(folder)
        done = judge(directory, command, root=root / "run", update=True, record=record,
                     transport="pty" if transport == "pty" else "pipe", timeout=timeout)
        if not record or not done.sound:
            return done
        again = judge(directory, command, root=root / "again", timeout=timeout)
        if again.passed:
            return done
        failure = f"was recorded, and does not replay to itself:\n{again.report()}"
        return Verdict(directory, failure, changed=done.changed, notes=done.notes)


def _tell(verdict: Verdict) -> None:
    said = [f"  {path.name}" for path in verdict.changed] + [f"  note: {note}" for note in verdict.notes]
    if not verdict.sound:
        said.append(verdict.report())
    what = "changed" if verdict.changed else "as it was" if verdict.sound else "failed"
    sys.stdout.write("\n".join([f"{verdict.directory}: {what}", *said]) + "\n")
    sys.stdout.flush()


def _settle(tree: Path) -> bool:
    """Tidy the pins of a tree; whether that could be done."""
    try:
        for path in settle(tree):
            sys.stdout.write(f"{path}: settled\n")
    except AgentError as error:
        sys.stdout.write(f"{error.message}\n")
        return False
    return True

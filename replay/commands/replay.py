"""`acp-agent replay`: plays scenarios and recordings, and tells what happened and whether it is what should."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from acp_agent.errors import AgentError
from replay.commands.options import add_playing, agent_command, is_scenario, parser, scenarios
from replay.compare import differences
from replay.failures import RunFailed
from replay.judge import Verdict, judge
from replay.normalize import normalise
from replay.printer import Printer
from replay.receipts import Receipt
from replay.rerun import rerun
from replay.story import Story, tell
from replay.story_printer import show_story
from replay.transcript import Transcript
from replay.transports import TransportName

if TYPE_CHECKING:
    from rich.console import Console

SUMMARY = "Play scenarios and recordings, show what every session said and did, and judge it."
TEACHING = """\
DIR is one of
  a scenario         it has an input.json, which says what the client does; the run is compared with the golden
                     beside it (stdout.jsonl, files.json, session logs), if there is one
  a tree of them     every scenario right below is played
  a recording        session logs alone, as the store keeps them in a session's directory: the recorded prompts are
                     sent again, tool results come from the recording, and nothing of the workspace is needed

Each run has a workspace, a home and a store of its own, which are removed afterwards. No key is needed, and no
connection opened.

exit status: 0 when every run did what it should, 1 when one did not, 2 when the command cannot be understood

examples:
  acp-agent replay golden                      play every scenario of a tree
  acp-agent replay -q golden/text-turn         only the verdict
  acp-agent replay ~/bug-report                what happened in somebody's session
  acp-agent replay --agent "my-agent --stdio" scenarios/hello
  acp-agent replay --json golden | jq -r 'select(.passed | not) | .report'
"""


class Played(Struct, frozen=True, omit_defaults=True):
    """One run as `--json` writes it, one object a line.

    passed    whether it did what it should
    golden    whether there was a golden to say so
    report    what is wrong, in words
    sessions  the story of each root, its children's inside it
    wire      the agent's normalised lines, of an agent that stores no logs
    receipt   what the replay used up and left over
    """

    directory: str
    passed: bool
    golden: bool
    report: str
    sessions: list[Story] = []
    wire: list[msgspec.Raw] = []
    receipt: Receipt | None = None


def main(words: Sequence[str]) -> int:
    """Run the command; its exit status."""
    from rich.console import Console

    options = parser("replay", SUMMARY, TEACHING)
    options.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="what to play")
    add_playing(options)
    options.add_argument("-q", "--quiet", action="store_true", help="print verdicts alone")
    options.add_argument("--json", action="store_true", help="one JSON object for each run, a line each")
    given = options.parse_args(words)
    command = agent_command(options, given.agent)
    directories = scenarios(options, given.directories, recordings=True)
    console = Console(highlight=False)
    failed = 0
    for directory in directories:
        with _progress(f"playing {directory}"):
            verdict = play(directory, command, given.transport, given.timeout)
        failed += not verdict.sound
        if given.json:
            sys.stdout.buffer.write(msgspec.json.encode(as_json(verdict)) + b"\n")
            sys.stdout.buffer.flush()
        else:
            show(console, verdict, quiet=given.quiet)
    if len(directories) > 1 and not given.json:
        console.print(f"\n{len(directories) - failed} of {len(directories)} passed",
                      style="bold red" if failed else "bold green")
    return 1 if failed else 0


def play(directory: Path, command: Sequence[str], transport: TransportName, timeout: float) -> Verdict:
    """Play a scenario, or a recording without a script, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="acp-replay-") as folder:
        root = Path(folder) / "run"
        if is_scenario(directory):
            return judge(directory, command, root=root, transport=transport, timeout=timeout)
        try:
            artefacts = rerun(directory, command, root=root, transport=transport, timeout=timeout)
            run = normalise(artefacts)
        except (RunFailed, AgentError) as error:
            return Verdict(directory, str(error))
        return Verdict(directory, differences=tuple(differences(run, run)), bare=True, run=run, artefacts=artefacts)


def as_json(verdict: Verdict) -> Played:
    """A verdict as `--json` writes it."""
    run = verdict.run
    report = verdict.report() if not verdict.sound else ""
    if run is None:
        return Played(str(verdict.directory), False, not verdict.bare, report)
    wire = [] if run.logs else [msgspec.Raw(frame.line.encode()) for frame in run.wire]
    return Played(str(verdict.directory), verdict.sound, not verdict.bare, report, tell(run.logs), wire, run.receipt)


# ---------------------------------------------------------------- for people


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """Say what is going on while it does, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def show(console: Console, verdict: Verdict, *, quiet: bool = False) -> None:
    """Print a run: its story and its verdict."""
    if not quiet:
        _show_run(console, verdict)
    name = str(verdict.directory)
    if verdict.sound:
        console.print(f"{name}: {'played, no golden to compare with' if verdict.bare else 'passed'}{_counts(verdict)}",
                      style="green", soft_wrap=True, markup=False)
        return
    console.print(f"{name}: failed", style="bold red", soft_wrap=True, markup=False)
    console.print(verdict.report(), soft_wrap=True, markup=False)


def _show_run(console: Console, verdict: Verdict) -> None:
    console.print()
    console.rule(str(verdict.directory), align="left", style="dim")
    run = verdict.run
    if run is None:
        return
    if run.logs:
        printer = Printer(console)
        for story in tell(run.logs):
            show_story(printer, story)
    elif verdict.artefacts is not None:
        transcript = Transcript(console)
        for line in verdict.artefacts.wire:
            transcript.show(line.line, line.sender)
    console.print()


def _counts(verdict: Verdict) -> str:
    run = verdict.run
    if run is None:
        return ""
    parts = [_counted(len(run.logs), "session"), _counted(len(run.wire), "line"), _counted(len(run.files), "file")]
    if run.receipt is not None:
        calls = [counts for lane in run.receipt.lanes for counts in lane.calls.values()]
        used, recorded = sum(one.used for one in calls), sum(one.recorded for one in calls)
        parts.append(f"{used} of {recorded} recorded calls used")
    return f" ({', '.join(parts)})"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

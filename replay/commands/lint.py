"""`acp-agent lint`: tries the protocol's conformance statements on an agent and reports what it breaks."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence

from acp_agent.visible import visible
from replay.commands.options import USAGE_ERROR, parser
from replay.failures import CannotStart
from replay.lint.probe import Limits
from replay.lint.statements import STATEMENTS

SUMMARY = "Try the conformance statements of the Agent Client Protocol on any agent, as its client, and report."
TEACHING = """\
Each statement is tried on a process of its own, in an empty directory; every message is checked against the
protocol's schema. Statements that need a capability the agent does not advertise, or a model that can be told what to
do, are reported as not applicable, with the reason.

By default no prompt is sent, for a real model may cost money. `--model-prompts cheap` sends some thirty short ones
("Reply with the single word: ok"; some ask for a longer answer and cancel it).

exit status: 0 when nothing is broken that the protocol insists on, 1 when something is, 2 when the command line cannot
be used or the agent cannot be started

examples:
  acp-agent lint my-agent --stdio
  acp-agent lint --only 4,9,16 --json npx some-agent --acp
  ACP_MODEL=scripted/hello.script acp-agent lint --model-prompts cheap acp-agent
"""


def main(words: Sequence[str]) -> int:
    """Run the command; its exit status."""
    options = parser("lint", SUMMARY, TEACHING)
    options.add_argument("--only", metavar="N,M", type=_numbers, help="try these statements alone")
    options.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=10.0,
                         help="the longest single wait for the agent (default 10; a turn may take longer)")
    options.add_argument("--model-prompts", choices=("none", "cheap"), default="none",
                         help="whether the agent's model may be asked (default none)")
    options.add_argument("--json", action="store_true", help="print one JSON object instead")
    options.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="what starts the agent")
    chosen = options.parse_args(words)
    command = _command(chosen.command)
    if not command:
        options.error("give the command that starts the agent")

    from replay.lint.report import as_json, as_text
    from replay.lint.runner import Run, broken_musts

    run = Run(command, Limits(chosen.timeout, chosen.model_prompts == "cheap"), chosen.only, _progress)
    try:
        verdicts = asyncio.run(run.verdicts())
    except CannotStart as failure:
        sys.stderr.write(f"acp-agent lint: {visible(failure.problem)}\n")
        return USAGE_ERROR
    finally:
        _progress(None)
    sys.stdout.write((as_json(verdicts) if chosen.json else visible(as_text(verdicts))) + "\n")
    return 1 if broken_musts(verdicts) else 0


def _progress(number: int | None) -> None:
    """Say on a terminal which statement is being tried."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" if number is None else f"\r\x1b[Kstatement {number} of {len(STATEMENTS)}")
        sys.stderr.flush()


def _command(words: Sequence[str]) -> list[str]:
    """The agent's command: words, or one word that is a whole command line."""
    plain = list(words[1:] if words[:1] == ["--"] else words)
    if len(plain) == 1 and " " in plain[0]:
        return shlex.split(plain[0])
    return plain


def _numbers(text: str) -> frozenset[int]:
    known = {statement.number for statement in STATEMENTS}
    try:
        numbers = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected statement numbers such as 4,9,16, got {text!r}") from None
    if not numbers <= known:
        wrong = ", ".join(map(str, sorted(numbers - known)))
        raise argparse.ArgumentTypeError(f"there is no statement {wrong}; expected 1 to {len(STATEMENTS)}")
    return numbers


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return seconds

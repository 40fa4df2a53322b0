"""What the kit's commands share: their options, which directories are meant, which agent plays."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from replay.failures import CannotStart
from replay.scenario import INPUT
from replay.transports import resolve

USAGE_ERROR = 2


def parser(name: str, summary: str, teaching: str) -> argparse.ArgumentParser:
    """A parser whose `--help` ends with `teaching`."""
    return argparse.ArgumentParser(
        prog=f"acp-agent {name}", description=summary, epilog=teaching, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)


def add_playing(options: argparse.ArgumentParser) -> None:
    """The options of a command that plays scenarios."""
    options.add_argument("--agent", metavar="COMMAND", help="the agent that plays (default: this one)")
    options.add_argument("--transport", choices=("pipe", "pty"), default="pipe",
                         help="talk with it over pipes (default) or a raw pseudo-terminal")
    options.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS",
                         help="the longest single wait for it (default 30)")


def agent_command(options: argparse.ArgumentParser, line: str | None) -> list[str]:
    """The command that starts the agent, ready to be run from anywhere; ends the process for one that cannot be."""
    import os
    import shlex

    if line is None:
        return [sys.executable, "-P", "-m", "acp_agent"]
    try:
        return resolve(shlex.split(line), os.environ)
    except (CannotStart, ValueError) as error:
        options.error(f"--agent: {error}")


def scenarios(options: argparse.ArgumentParser, paths: Sequence[Path], *, recordings: bool) -> list[Path]:
    """The directories that the given ones mean: a scenario, every scenario right below, or a recording.

    Ends the process for a directory that is none of these.
    """
    found: list[Path] = []
    for path in paths:
        below = sorted(file.parent for file in path.glob(f"*/{INPUT}"))
        if is_scenario(path):
            found.append(path)
        elif below:
            found += below
        elif recordings and any(path.glob("*.jsonl")):
            found.append(path)
        else:
            also = ", no session logs in it," if recordings else ""
            options.error(f"{path}: no {INPUT} in it{also} and no scenarios below it")
    return list(dict.fromkeys(found))


def is_scenario(directory: Path) -> bool:
    """Whether a directory has a script."""
    return (directory / INPUT).is_file()

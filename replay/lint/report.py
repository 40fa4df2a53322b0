"""What a run prints: for people, and with `--json` for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from acp_agent.visible import harmless_json
from replay.lint.runner import Verdict, broken_musts
from replay.lint.statements import STATEMENTS, Statement

_TEXTS = {statement.number: statement for statement in STATEMENTS}
_WORDS = {"passed": "passed", "broken": "BROKEN", "not applicable": "n/a"}


def as_text(verdicts: Sequence[Verdict]) -> str:
    """A line for each statement, and below each broken one what is wrong and the lines that show it."""
    lines: list[str] = []
    for verdict in verdicts:
        lines += _verdict(verdict, _TEXTS[verdict.number])
    counts = Counter(verdict.outcome for verdict in verdicts)
    lines += ["", f"{counts['passed']} passed, {counts['broken']} broken, {counts['not applicable']} not applicable"]
    if musts := broken_musts(verdicts):
        lines.append(f"broken though the protocol insists: {', '.join(map(str, musts))}")
    return "\n".join(lines)


def _verdict(verdict: Verdict, statement: Statement) -> list[str]:
    unstable = ", unstable" if statement.stability == "unstable" else ""
    lines = [f"{_WORDS[verdict.outcome]:<6} {verdict.number:>2} [{statement.strength}{unstable}] {statement.text}"]
    if verdict.reason is not None:
        lines.append(f"          {verdict.reason}")
    for finding in verdict.findings:
        weaker = "" if finding.strength == statement.strength else f" [{finding.strength}]"
        lines.append(f"        ! {finding.what}{weaker}")
        lines += [f"            {line}" for line in finding.lines]
    return lines


def as_json(verdicts: Sequence[Verdict]) -> str:
    """The same as one JSON object."""
    entries: list[dict[str, Any]] = []
    for verdict in verdicts:
        statement = _TEXTS[verdict.number]
        entries.append(msgspec.to_builtins(verdict) | {
            "strength": statement.strength, "stability": statement.stability, "text": statement.text})
    whole = {"statements": entries, "brokenMusts": broken_musts(verdicts)}
    return harmless_json(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())

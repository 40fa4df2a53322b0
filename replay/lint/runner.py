"""A whole run: each statement on a process of its own, and what was seen in passing, put together as verdicts."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from replay.chat.link import open_link
from replay.lint import checks_framing, checks_sessions, checks_start, checks_turns
from replay.lint.checks import Check
from replay.lint.passive import WATCHED, watch
from replay.lint.probe import LOGIN_NEEDED, About, Broken, Inapplicable, Limits, Probe, Visitor
from replay.lint.statements import STATEMENTS, Statement, Strength
from replay.lint.traffic import Line, Traffic

MARK: Final = "ACP_LINT_RUN"
"""A variable of the agent's environment, by which the processes it leaves behind are found."""

CHECKS: Final[Mapping[int, Check]] = {
    check.number: check
    for module in (checks_framing, checks_start, checks_sessions, checks_turns) for check in module.CHECKS
}

UNTRIED: Final[Mapping[int, str]] = {
    2: "needs a model that says what the test wants",
    28: "a login would be run",
    30: "you would be logged out",
    35: "needs a model that calls the tool the test wants",
    43: "needs a model that tells what it was told",
    46: "needs a model that calls the tool the test wants",
    56: "needs a model that fails as the test wants",
    57: "needs a model that fails as the test wants",
    63: "a command of the agent's own could do anything",
    65: "needs a model that calls the tool the test wants",
    66: "needs a model that calls the tool the test wants",
    **dict.fromkeys(range(70, 76), "needs a model that calls the tool the test wants"),
    **dict.fromkeys(range(76, 82), "this client offers none of these services; that none is used is statement 21"),
    87: "this client wants none; whether one is sent shows in turns, and no model may be asked",
    93: "this client declared neither; whether one is sent shows in turns, and no model may be asked",
}
"""Why no check tries a statement. A breach that is seen in passing is told all the same."""

_SHOWN: Final = 4
"""Lines of each side that a finding shows."""

_LOOKED_BACK: Final = 200
"""Lines within which they must be."""

_FINDINGS: Final = 20
"""Breaches of one statement that are told when they are seen in passing; of more, it is told that there are more."""

_JUDGED: Final = 300
"""Lines of a flood that are looked over."""

Outcome = Literal["passed", "broken", "not applicable"]


class Finding(Struct, frozen=True, omit_defaults=True):
    """One breach: what is wrong, how strong the broken rule is, and the last lines that passed before."""

    what: str
    strength: Strength
    lines: tuple[str, ...] = ()


class Verdict(Struct, frozen=True, omit_defaults=True):
    """What came of one statement. `reason` says why it is not applicable."""

    number: int
    outcome: Outcome
    reason: str | None = None
    findings: tuple[Finding, ...] = ()


class Run:
    """One run over an agent's command."""

    def __init__(
        self, command: Sequence[str], limits: Limits, only: frozenset[int] | None, tell: Callable[[int], None],
    ) -> None:
        """`only` are the statements wanted, None all; `tell` is called with each one as it is tried."""
        self._command = tuple(command)
        self._limits = limits
        self._tell = tell
        self._wanted = [one for one in STATEMENTS if only is None or one.number in only]
        self._findings: dict[int, list[Finding]] = {}
        self._told: dict[int, set[str]] = {}
        """What was seen in passing, by statement."""
        self._reasons: dict[int, str] = {}
        self._tried: set[int] = set()
        self._login = False

    async def verdicts(self) -> list[Verdict]:
        """Try everything. Raises `CannotStart`."""
        try:
            about = await self._look_around()
        except Broken as broken:
            self._found(18, Finding(broken.what, "must", self._last))
            reason = f"the agent cannot be initialised: {broken.what}"
            return [self._verdict(one) if one.number == 18 else Verdict(one.number, "not applicable", reason)
                    for one in self._wanted]
        for statement in self._wanted:
            if (check := CHECKS.get(statement.number)) is not None:
                await self._try(check, statement, about)
        return [self._verdict(statement) for statement in self._wanted]

    async def _look_around(self) -> About:
        """What the agent says of itself, and, where the model may be asked, one turn for what is seen in passing."""
        found: list[About] = []

        async def look(probe: Probe) -> None:
            initialized = await probe.start()
            answer = await probe.call("session/new", probe.place())
            error = answer.get("error")
            self._login = isinstance(error, dict) and error.get("code") == LOGIN_NEEDED
            result = answer.get("result")
            found.append(About(initialized, result if isinstance(result, dict) else None))
            if self._limits.prompts and isinstance(result, dict) and isinstance(result.get("sessionId"), str):
                await probe.turn(result["sessionId"])

        failure = await self._visit(look, About({}, None))
        if found:
            return found[0]
        raise failure if isinstance(failure, Broken) else Broken(str(failure))

    async def _try(self, check: Check, statement: Statement, about: About) -> None:
        if check.needs and not about.offers(*check.needs):
            self._reasons[check.number] = f"the capability {'.'.join(check.needs)} is not advertised"
            return
        if check.prompts and not self._limits.prompts:
            self._reasons[check.number] = "needs a prompt, and no model may be asked (--model-prompts cheap allows it)"
            return
        self._tell(check.number)
        failure = await self._visit(check.attempt, about)
        if isinstance(failure, Broken):
            self._found(check.number, Finding(failure.what, failure.strength or statement.strength, self._last))
        elif isinstance(failure, Inapplicable):
            self._reasons[check.number] = str(failure)
        else:
            self._tried.add(check.number)

    async def _visit(
        self, attempt: Callable[[Probe], Awaitable[None]], about: About,
    ) -> Broken | Inapplicable | None:
        """Start the agent, try something on it, end it, and look over what passed."""
        value = secrets.token_hex(8)
        traffic = Traffic()
        visitor = Visitor(traffic)
        failure: Broken | Inapplicable | None = None
        with tempfile.TemporaryDirectory(prefix="acp-lint-") as folder:
            workspace = Path(folder).resolve() / "workspace"
            workspace.mkdir()
            mark = f"{MARK}={value}".encode()
            async with open_link(
                self._command, cwd=Path.cwd(), environ={**os.environ, MARK: value}, marks=frozenset({mark}),
                directory=Path(folder), observer=traffic, client=visitor,
            ) as link:
                traffic.when_flooded = link.stop_listening
                try:
                    await attempt(Probe(link, traffic, visitor, about, workspace, mark, self._limits))
                except (Broken, Inapplicable) as raised:
                    failure = raised
                    self._last = _shown(traffic.lines, len(traffic.lines))
        self._look_over(traffic)
        return failure

    _last: tuple[str, ...] = ()
    """The lines to show with the newest failure."""

    def _look_over(self, traffic: Traffic) -> None:
        lines = traffic.lines if traffic.flood is None else traffic.lines[:_JUDGED]
        for seen in watch(lines, login=self._login):
            known = self._told.setdefault(seen.number, set())
            if seen.what in known or len(known) > _FINDINGS:
                continue
            known.add(seen.what)
            what = seen.what if len(known) <= _FINDINGS else "and more of the kind, of which this is the first"
            strength = next(one.strength for one in STATEMENTS if one.number == seen.number)
            self._found(seen.number, Finding(what, strength, _shown(lines, seen.position + 1)))

    def _found(self, number: int, finding: Finding) -> None:
        findings = self._findings.setdefault(number, [])
        if finding.what not in {one.what for one in findings}:
            findings.append(finding)

    def _verdict(self, statement: Statement) -> Verdict:
        number = statement.number
        if number in self._findings:
            return Verdict(number, "broken", findings=tuple(self._findings[number]))
        if number in self._tried or (number in WATCHED and self._watched(number)):
            return Verdict(number, "passed")
        return Verdict(number, "not applicable", self._reasons.get(number) or UNTRIED[number])

    def _watched(self, number: int) -> bool:
        """Whether enough was seen in passing to call a statement that no check tries kept."""
        return number == 1 or (number in (87, 93) and self._limits.prompts)


def _shown(lines: Sequence[Line], end: int) -> tuple[str, ...]:
    """The last lines of both sides before a position, in order."""
    kept: list[Line] = []
    counts: Counter[str] = Counter()
    for position in range(end - 1, max(end - _LOOKED_BACK, 0) - 1, -1):
        line = lines[position]
        if counts[line.sender] < _SHOWN:
            counts[line.sender] += 1
            kept.append(line)
        if len(kept) == 2 * _SHOWN:
            break
    return tuple(map(str, reversed(kept)))


def broken_musts(verdicts: Sequence[Verdict]) -> list[int]:
    """The statements of which a part that an agent must keep is broken."""
    return [verdict.number for verdict in verdicts
            if any(finding.strength == "must" for finding in verdict.findings)]

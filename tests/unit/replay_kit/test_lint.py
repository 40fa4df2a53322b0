"""`acp-agent lint`: what it finds in agents that keep the statements and in agents that break one each."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from replay.lint.passive import WATCHED
from replay.lint.probe import Limits
from replay.lint.report import as_text
from replay.lint.runner import CHECKS, UNTRIED, Run, broken_musts
from replay.lint.statements import STATEMENTS

SUPPORT = Path(__file__).parents[2] / "support"
LAWFUL = (sys.executable, str(SUPPORT / "conformance_agent.py"))
PUPPET = (sys.executable, str(SUPPORT / "puppet_agent.py"))
SDK = (sys.executable, str(SUPPORT / "sdk_agent.py"))
CHEAP = ("--model-prompts", "cheap")

Json = dict[str, Any]


def lint(
    *words: str, directory: Path, environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    home = {"HOME": str(directory), "XDG_STATE_HOME": str(directory / "state"), "PYTHONPATH": str(SUPPORT.parents[1])}
    settings = {name: value for name, value in os.environ.items() if not name.startswith("ACP_")}
    return subprocess.run([sys.executable, "-P", "-m", "acp_agent", "lint", *words], cwd=directory, text=True,
                          env=settings | home | dict(environ or {}), capture_output=True, timeout=280, check=False)


def found(done: subprocess.CompletedProcess[str]) -> dict[int, Json]:
    """The statements of a JSON report, by number."""
    return {entry["number"]: entry for entry in json.loads(done.stdout)["statements"]}


def outcomes(entries: Mapping[int, Json], outcome: str) -> set[int]:
    return {number for number, entry in entries.items() if entry["outcome"] == outcome}


TRIED = sorted(set(CHECKS) | {1, 87, 93})


# ---------------------------------------------------------------- the statements


def test_there_are_94_statements_and_each_is_tried_watched_or_excused() -> None:
    numbers = [statement.number for statement in STATEMENTS]
    assert numbers == list(range(1, 95))
    assert all(statement.text.endswith(".") for statement in STATEMENTS)
    assert {statement.number for statement in STATEMENTS if statement.stability == "unstable"} == set(range(88, 95))
    assert set(CHECKS) | set(UNTRIED) | {1} == set(numbers)
    assert not set(CHECKS) & set(UNTRIED)
    assert set(WATCHED) <= set(numbers)


def test_the_schema_in_the_package_is_the_one_the_tests_use() -> None:
    package = SUPPORT.parents[1] / "replay/lint/schema"
    tests = SUPPORT.parent / "schema"
    assert (package / "schema.unstable.json").read_bytes() == (tests / "schema.unstable.json").read_bytes()
    assert "Apache License" in (package / "LICENSE").read_text()
    assert "Apache License 2.0" in (package / "NOTICE.md").read_text()


# ---------------------------------------------------------------- agents


def test_an_agent_that_keeps_everything_passes(tmp_path: Path) -> None:
    done = lint("--json", *CHEAP, *LAWFUL, directory=tmp_path)
    entries = found(done)
    assert outcomes(entries, "broken") == set(), done.stdout
    assert done.returncode == 0
    left_out = {number for number in TRIED if number not in outcomes(entries, "passed")}
    assert left_out == {31, 85, 86, 89, 90, 91, 92, 94}
    assert all(entries[number]["reason"] for number in outcomes(entries, "not applicable"))


def test_without_prompts_no_model_is_asked(tmp_path: Path) -> None:
    done = lint("--json", *LAWFUL, directory=tmp_path, environ={"BREAK": "53"})
    entries = found(done)
    assert done.returncode == 0
    assert entries[53]["outcome"] == "not applicable"
    assert "--model-prompts" in entries[53]["reason"]
    assert "session/prompt" not in done.stdout


SLOW = {8, 36, 38, 51}
"""Statements that are broken by not answering, or not doing, something."""

WEAKER = {one.number for one in STATEMENTS if one.strength != "must"} | {50}
"""Statements that may be broken; of 50, the lawful agent breaks a part that is weaker than the rest."""

BREAKABLE = sorted({*TRIED, 70, 73} - {59, 89, 90, 91, 92, 94})


@pytest.mark.parametrize("number", BREAKABLE)
def test_a_broken_statement_is_reported_with_its_number(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which is quicker than the command."""
    monkeypatch.setenv("BREAK", str(number))
    limits = Limits(1 if number in SLOW else 20, prompts=True)
    (verdict,) = asyncio.run(Run(LAWFUL, limits, frozenset({number}), lambda _: None).verdicts())
    assert (verdict.number, verdict.outcome) == (number, "broken"), verdict
    assert all(finding.what and finding.lines for finding in verdict.findings)
    assert broken_musts([verdict]) == ([number] if number not in WEAKER else [])
    assert f"BROKEN {number:>2} [" in as_text([verdict])


ENDLESS = """
import sys
line = sys.argv[1] + chr(10)
for _ in sys.stdin:
    while True:
        sys.stdout.write(line)
"""


@pytest.mark.parametrize("line", [
    "hello", '{"jsonrpc":"2.0","method":"session/update","params":{}}', '{"jsonrpc":"2.0","id":9,"result":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{}}', '{"jsonrpc":"2.0","id":9}',
])
def test_an_agent_that_writes_without_end_is_left_and_told_on(tmp_path: Path, line: str) -> None:
    done = lint("--json", "--only", "1,18", sys.executable, "-c", ENDLESS, line, directory=tmp_path)
    assert done.returncode == 1, done.stderr
    initialize = found(done)[18]
    assert [finding["what"] for finding in initialize["findings"]][-1] == (
        "no response to request 1: the agent wrote more than 10000 lines to its stdout; nothing more was read")
    assert all(0 < len(finding["lines"]) <= 8 for finding in initialize["findings"])


MANY = """
import json, sys
for line in sys.stdin:
    for number in range(50):
        print(json.dumps({"jsonrpc": "2.0", "method": f"no/such{number}"}))
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {"protocolVersion": 1}}), flush=True)
"""


def test_of_many_breaches_of_one_statement_some_are_told_and_that_there_are_more() -> None:
    run = Run((sys.executable, "-c", MANY), Limits(20, prompts=False), frozenset({1}), lambda _: None)
    (verdict,) = asyncio.run(run.verdicts())
    told = [finding.what for finding in verdict.findings]
    assert (len(told), told[0].split('"')[1], told[19].split('"')[1]) == (21, "no/such0", "no/such19")
    assert told[20] == "and more of the kind, of which this is the first"
    assert "no/such20" in verdict.findings[20].lines[-1]
    assert all(len(finding.lines) <= 8 for finding in verdict.findings)


OUR_OWN = {3, 4, 9, 14, 16, 17, 21, 23, 26, 36, 39, 40, 41, 45, 48, 51, 55, 58, 60, 61, 69, 82, 83, 84, 85, 86, 88}
"""Statements tried on our own agent here, those with the longest checks; the conformance tests have them all."""


@pytest.mark.timeout(300)
def test_our_own_agent_breaks_nothing(tmp_path: Path) -> None:
    script = tmp_path / "ok.script"
    script.write_text('model small window 1000\ncall repeat\n  think "Hm."\n  say "ok"\n  usage 10 1\n')
    done = lint("--json", *CHEAP, "--only", ",".join(map(str, OUR_OWN)), sys.executable, "-P", "-m", "acp_agent",
                directory=tmp_path, environ={"ACP_MODEL": f"scripted/{script}"})
    assert outcomes(found(done), "passed") == OUR_OWN, done.stdout
    assert done.returncode == 0


def test_an_agent_on_the_python_sdk_is_told_what_it_breaks(tmp_path: Path) -> None:
    """Known of that SDK's library: it says nothing about broken JSON, and of its user: every version is echoed."""
    done = lint("--json", "--only", "4,7,19,24,32", *SDK, directory=tmp_path)
    entries = found(done)
    assert outcomes(entries, "broken") == {4, 19, 24}
    assert outcomes(entries, "passed") == {7, 32}
    assert done.returncode == 1


def test_the_report_for_people_shows_what_was_sent_and_what_came(tmp_path: Path) -> None:
    done = lint("--only", "10,24,25", *PUPPET, directory=tmp_path)
    assert "passed 10 [must]" in done.stdout
    assert "BROKEN 24 [should] `agentInfo` gives a name and a version" in done.stdout
    assert '> {"jsonrpc":"2.0","id":1,"method":"initialize"' in done.stdout
    assert '< {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}}' in done.stdout
    assert "1 passed, 2 broken, 0 not applicable" in done.stdout
    assert done.returncode == 0, "nothing is broken that the protocol insists on"


def test_an_agent_that_cannot_be_initialised_gets_one_finding(tmp_path: Path) -> None:
    mute = (sys.executable, "-c", "import sys; sys.stdin.read()")
    done = lint("--json", "--timeout", "0.5", *mute, directory=tmp_path)
    entries = found(done)
    assert outcomes(entries, "broken") == {18}
    assert "no response" in entries[18]["findings"][0]["what"]
    assert done.returncode == 1


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize("words", [
    (), ("--only", "0", "x"), ("--only", "x", "y"), ("--timeout", "0", "x"), ("--model-prompts", "many", "x"),
    ("--nonsense", "x"), ("./no-such-agent",),
], ids=["nothing", "no statement", "no number", "no time", "no such choice", "no such flag", "no such agent"])
def test_a_command_line_that_cannot_be_used_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = lint(*words, directory=tmp_path)
    assert done.returncode == 2
    assert done.stderr
    assert not done.stdout


def test_a_command_may_be_one_word_or_several_and_keeps_its_flags(tmp_path: Path) -> None:
    whole = " ".join((*LAWFUL, "--json"))
    for words in ((whole,), ("--", *LAWFUL, "--json")):
        done = lint("--only", "18", *words, directory=tmp_path)
        assert done.returncode == 0
        assert done.stdout.startswith("passed 18 ")

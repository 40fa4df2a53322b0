"""The pytest plugin on scenarios: real pytest runs with real agents, ours and one that is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import replay.judge
import replay.pins
from tests.unit.replay_kit.scenario_files import HELLO, OWN, READS, SDK, names, scenario, seeded, stamps

LOADED = (replay.judge, replay.pins)
"""Loaded before the runs, each of which would else load them again: pytester forgets what a run imported."""

pytest_plugins = ["pytester"]

QUICK = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Hypothesis would take longer to start than everything else takes."""


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests write goldens of their own, wherever they run."""
    monkeypatch.delenv("CI", raising=False)


def run(pytester: pytest.Pytester, *words: str, agent: str | None = OWN) -> pytest.RunResult:
    """A pytest run in pytester's directory."""
    option = [] if agent is None else [f"--acp-agent={agent}"]
    return pytester.runpytest_inprocess(*QUICK, *option, *words)


def recorded(pytester: pytest.Pytester, directory: Path, agent: str = OWN) -> Path:
    """A scenario with the golden of its run."""
    run(pytester, "--acp-update", str(directory), agent=agent).assert_outcomes(passed=1)
    return directory


def shown(result: pytest.RunResult) -> str:
    return result.stdout.str()


def test_without_an_agent_nothing_is_collected(pytester: pytest.Pytester) -> None:
    scenario(pytester.path / "golden" / "hello", "Hi.", script=HELLO)
    pytester.makepyfile("def test_plain(): pass")
    run(pytester, agent=None).assert_outcomes(passed=1)


def test_the_plugin_costs_no_import_until_an_agent_is_named() -> None:
    code = "import sys, pytest; before = set(sys.modules); import replay.pytest_plugin; " \
           "print(*sorted({name for name in set(sys.modules) - before}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["replay", "replay.pytest_plugin"]


def test_a_scenario_is_recorded_once_and_then_replays_to_its_golden(pytester: pytest.Pytester) -> None:
    hello = recorded(pytester, seeded(scenario(pytester.path / "golden" / "hello", "What is in a.txt?", script=READS),
                                      a_txt="beans\n"))
    assert names(hello) == ["files.json", "input.json", "model.script", "session.jsonl", "stdout.jsonl", "workspace"]
    (hello / "model.script").write_text("this is not read: there is a recording now\n")
    result = run(pytester, "-vv", "golden")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["acp agent: *acp_agent", "golden/hello/input.json::hello PASSED*"])


def test_a_failure_shows_what_differs_behaviour_first_and_no_traceback(pytester: pytest.Pytester) -> None:
    hello = recorded(pytester, seeded(scenario(pytester.path / "golden" / "hello", "What is in a.txt?", script=READS),
                                      a_txt="beans\n"))
    (hello / "workspace" / "a.txt").unlink()
    (hello / "input.json").write_text((hello / "input.json").read_text().replace("What is", "Tell me what is"))
    result = run(pytester, "golden")
    result.assert_outcomes(failed=1)
    text = shown(result)
    assert text.index("behaviour · {{session:1}} (root): event") < text.index("wording · {{session:1}} (root): event")
    assert "+ tool/result look failed: Error: cannot read" in text
    assert "- user/message What is in a.txt?" in text
    assert f"--acp-update {hello}" in text
    assert "Traceback" not in text
    assert ".py" not in text.replace("/test_plugin", "")


def test_a_scenario_without_a_golden_says_how_to_write_one(pytester: pytest.Pytester) -> None:
    scenario(pytester.path / "golden" / "new", "Hi.", script=HELLO)
    result = run(pytester, "golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["there is no golden yet: stdout.jsonl and files.json are missing", "*--acp-update*"])
    assert names(pytester.path / "golden" / "new") == ["input.json", "model.script"]


def test_an_update_touches_nothing_that_did_not_change(pytester: pytest.Pytester) -> None:
    hello = recorded(pytester, scenario(pytester.path / "golden" / "hello", "Hi.", script=HELLO))
    recorded(pytester, scenario(pytester.path / "golden" / "other", "Hi.", script=HELLO))
    before = stamps(pytester.path / "golden")
    unchanged = run(pytester, "--acp-update", "golden")
    unchanged.assert_outcomes(passed=2)
    unchanged.stdout.fnmatch_lines(["*- goldens -*", "as they were"])
    assert stamps(pytester.path / "golden") == before
    (hello / "input.json").write_text((hello / "input.json").read_text().replace("Hi.", "Good day."))
    changed = run(pytester, "--acp-update", "golden")
    changed.assert_outcomes(passed=2)
    changed.stdout.fnmatch_lines(
        ["*- goldens -*", "golden/hello/session.jsonl", "golden/hello/stdout.jsonl", "2 passed*"], consecutive=True)
    after = stamps(pytester.path / "golden")
    assert {name for name in after if after[name] != before.get(name)} == {
        "hello/input.json", "hello/session.jsonl", "hello/stdout.jsonl"}


def test_an_update_is_refused_under_ci_and_a_comparison_writes_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded(pytester, scenario(pytester.path / "golden" / "hello", "Hi.", script=HELLO))
    before = stamps(pytester.path)
    monkeypatch.setenv("CI", "true")
    result = run(pytester, "--acp-update", "golden")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --acp-update is refused because CI is set*"])
    run(pytester, "golden").assert_outcomes(passed=1)
    assert stamps(pytester.path) == before


@pytest.mark.parametrize(("words", "message"), [
    (["--acp-update"], "ERROR: --acp-update needs --acp-agent COMMAND*"),
    (["--acp-agent=no-such-agent --stdio"], "ERROR: --acp-agent: the agent's command does not exist*no-such-agent"),
    (["--acp-agent="], "ERROR: --acp-agent: the agent's command is empty"),
    (["--acp-agent='"], "ERROR: --acp-agent: No closing quotation"),
])
def test_options_that_cannot_be_used_are_refused(pytester: pytest.Pytester, words: list[str], message: str) -> None:
    result = run(pytester, *words, agent=None)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_broken_script_is_a_collection_error_that_names_file_and_step(pytester: pytest.Pytester) -> None:
    broken = scenario(pytester.path / "golden" / "broken", {"op": "promt", "text": "Hi."})
    result = run(pytester, "golden")
    result.assert_outcomes(errors=1)
    text = shown(result)
    assert f"{broken / 'input.json'}: step 3: unknown op 'promt'; did you mean 'prompt'?" in text
    assert "Traceback" not in text


def test_tests_in_a_scenarios_workspace_are_not_run(pytester: pytest.Pytester) -> None:
    hello = seeded(scenario(pytester.path / "golden" / "hello", "Hi.", script=HELLO), test_it_py="")
    (hello / "workspace" / "test_it.py").write_text("def test_it(): raise SystemExit\n")
    recorded(pytester, hello)
    run(pytester, "golden").assert_outcomes(passed=1)


def test_a_recording_that_is_not_used_up_fails_and_is_not_overwritten(pytester: pytest.Pytester) -> None:
    two = recorded(pytester, scenario(pytester.path / "golden" / "two", "Hi.", "Again.", script=HELLO + HELLO))
    scenario(two, "Hi.")
    before = stamps(two)
    compared, updated = run(pytester, "golden"), run(pytester, "--acp-update", "golden")
    for result in (compared, updated):
        result.assert_outcomes(failed=1)
        assert "recording session.jsonl: root made 1 of its 2 recorded calls" in shown(result)
    assert "the golden was not written" in shown(updated)
    assert stamps(two) == before


def test_an_agent_that_stores_nothing_never_removes_a_recording(pytester: pytest.Pytester) -> None:
    hello = recorded(pytester, scenario(pytester.path / "golden" / "hello", "say hello", script=HELLO))
    before = stamps(hello)
    result = run(pytester, "--acp-update", "golden", agent=SDK)
    result.assert_outcomes(failed=1)
    assert "the golden holds recorded sessions, and the agent stored none" in shown(result)
    assert stamps(hello) == before


def test_files_that_nothing_reads_fail_their_scenario(pytester: pytest.Pytester) -> None:
    hello = recorded(pytester, scenario(pytester.path / "golden" / "hello", "Hi.", script=HELLO))
    (hello / "session.3.json").write_text("{}\n")
    result = run(pytester, "golden")
    result.assert_outcomes(failed=1)
    assert f"file · {hello / 'session.3.json'}: orphan: nothing reads this; remove it" in shown(result)


def test_workers_of_xdist_write_and_compare_side_by_side(pytester: pytest.Pytester) -> None:
    golden = pytester.path / "golden"
    for name in ("one", "two", "three", "four"):
        scenario(golden / name, f"Say {name}.", script=f'call\n  say "{name}"\n')
    (golden / "_pins").mkdir()
    (golden / "_pins" / "system-7.md").write_text("a prompt that nobody uses any more\n")
    words = (*QUICK, "-n", "2", f"--acp-agent={OWN}", "golden")
    written = pytester.runpytest_subprocess(*words, "--acp-update")
    written.assert_outcomes(passed=4)
    assert sorted(line for line in written.outlines if line.endswith("/stdout.jsonl")) == [
        f"golden/{name}/stdout.jsonl" for name in ("four", "one", "three", "two")]
    assert names(golden / "_pins") == ["system-1.md", "tools-1.json"]
    before = stamps(golden)
    pytester.runpytest_subprocess(*words).assert_outcomes(passed=4)
    assert stamps(golden) == before


# ---------------------------------------------------------------- an agent that is not ours


@pytest.mark.parametrize("transport", ["pipe", "pty"])
def test_a_foreign_agent_is_judged_by_its_wire_and_its_files(pytester: pytest.Pytester, transport: str) -> None:
    golden = pytester.path / "golden"
    foreign = recorded(pytester, scenario(golden / "foreign", "say hello there", "touch made.txt", "ask"), agent=SDK)
    assert names(foreign) == ["files.json", "input.json", "stdout.jsonl"]
    assert names(golden) == ["foreign"]
    assert json.loads((foreign / "files.json").read_text()) == {"made.txt": {"text": ""}}
    run(pytester, f"--acp-transport={transport}", "golden", agent=SDK).assert_outcomes(passed=1)
    (foreign / "files.json").write_text("{}\n")
    (foreign / "stdout.jsonl").write_text((foreign / "stdout.jsonl").read_text().replace('" there"', '" you"'))
    result = run(pytester, f"--acp-transport={transport}", "golden", agent=SDK)
    result.assert_outcomes(failed=1)
    text = shown(result)
    assert "file made.txt" in text
    assert '- agent_message_chunk " you"' in text
    assert '+ agent_message_chunk " there"' in text


BUILT = """\
import json, sys, uuid
for line in sys.stdin:
    request = json.loads(line)
    build = {build}
    result = {{"protocolVersion": 1, "agentCapabilities": {{}}, "_meta": {{"build": str(build)}}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize(("build", "stable"), [("uuid.UUID(int=2**77)", True), ("uuid.uuid4()", False)])
def test_a_value_that_looks_machine_made_is_noted_and_fails_when_it_differs(
    pytester: pytest.Pytester, build: str, stable: bool,
) -> None:
    agent = pytester.path / "agent.py"
    agent.write_text(BUILT.format(build=build))
    (pytester.path / "golden" / "built").mkdir(parents=True)
    (pytester.path / "golden" / "built" / "input.json").write_text('{"steps": [{"op": "initialize"}]}')
    written = run(pytester, "--acp-update", "golden", agent=f"{sys.executable} {agent}")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["note: *_meta, build: * looks like an id and has no name: if it differs*"])
    again = run(pytester, "golden", agent=f"{sys.executable} {agent}")
    again.assert_outcomes(passed=stable, failed=not stable)
    assert ("leftover" in shown(again)) is not stable


def test_a_stuck_agent_is_shown_with_what_was_awaited_and_its_last_frames(pytester: pytest.Pytester) -> None:
    foreign = scenario(pytester.path / "golden" / "stuck", "complain I am slow",
                       {"op": "prompt", "text": "hang", "timeoutMs": 300})
    result = run(pytester, "golden", agent=SDK)
    result.assert_outcomes(failed=1)
    text = shown(result)
    assert f"{foreign / 'input.json'}: step 4 (prompt): waited 0.3 s for the response to session/prompt" in text
    assert "I am slow" in text
    assert "last frames:" in text
    assert "Traceback" not in text


def test_an_agent_that_ends_badly_fails_even_when_it_said_the_right_things(
    pytester: pytest.Pytester, tmp_path: Path,
) -> None:
    agent = tmp_path / "agent.sh"
    agent.write_text(f"#!/bin/sh\n{SDK}\necho gone wrong >&2\nexit 3\n")
    agent.chmod(0o755)
    foreign = scenario(pytester.path / "golden" / "bad-end", "say hello")
    result = run(pytester, "--acp-update", "golden", agent=str(agent))
    result.assert_outcomes(failed=1)
    assert "behaviour · exit: the agent ended with status 3 when its input was closed" in shown(result)
    assert "gone wrong" in shown(result)
    assert names(foreign) == ["input.json"]

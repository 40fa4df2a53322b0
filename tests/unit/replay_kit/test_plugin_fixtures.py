"""The plugin's fixtures, and its documentation: what it shows is run, what it lists is all there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replay.scenario import load_scenario, ops
from tests.unit.replay_kit.scenario_files import OWN, SDK
from tests.unit.replay_kit.test_plugin_scenarios import QUICK

pytest_plugins = ["pytester"]

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "pytest-plugin.md"


def documented() -> dict[str, str]:
    """The files that the documentation shows, by their names."""
    text = DOCUMENTATION.read_text(encoding="utf-8")
    return {match[1]: match[2] for match in re.finditer(r"^```\w+ (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)}


def test_the_documented_tests_pass(pytester: pytest.Pytester) -> None:
    files = documented()
    assert sorted(files) == ["conftest.py", "scenarios/goes-on/input.json", "scenarios/hello/input.json",
                             "test_my_agent.py"]
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("hello", "goes-on"):
        assert load_scenario(pytester.path / "scenarios" / name).name == name
    pytester.runpytest_subprocess(*QUICK).assert_outcomes(passed=3)


def test_every_op_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", DOCUMENTATION.read_text(encoding="utf-8").partition("## Scripts")[2]
                      .partition("## Driving")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(ops())


def test_every_option_is_documented(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_inprocess(*QUICK, "--help").stdout.str()
    options = set(re.findall(r"^\s+(--acp-[a-z]+)", shown, re.MULTILINE))
    assert len(options) == 4
    assert options == set(re.findall(r"^\| `(--acp-[a-z]+)", DOCUMENTATION.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_fixtures_take_the_agent_of_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_sdk(acp_agent_process, acp_scenario_player):
            for _ in range(2):
                with acp_agent_process() as agent:
                    agent.initialize()
                    assert agent.new_session().prompt("say hello there").text == "hello there"
            steps = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "ask"}]
            for _ in range(2):
                run = acp_scenario_player(steps, permissionAnswers=[{"kind": "reject_once"}])
                assert any(b"no" in line.line for line in run.wire)
    """)
    pytester.runpytest_inprocess(*QUICK, f"--acp-agent={SDK}").assert_outcomes(passed=1)


def test_a_scenario_directory_is_played_by_the_fixture(pytester: pytest.Pytester) -> None:
    (pytester.path / "hello").mkdir()
    (pytester.path / "hello" / "input.json").write_text('{"steps": [{"op": "initialize"}, {"op": "newSession"}]}')
    pytester.makepyfile("""
        from pathlib import Path

        def test_directory(acp_scenario_player):
            assert acp_scenario_player(Path(__file__).parent / "hello").status == 0
    """)
    pytester.runpytest_inprocess(*QUICK, f"--acp-agent={OWN}", "-k", "directory").assert_outcomes(passed=1)


def test_without_an_agent_tests_that_need_one_are_skipped_with_a_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(acp_agent_process): pass")
    result = pytester.runpytest_inprocess(*QUICK, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs --acp-agent COMMAND, or a fixture acp_agent_command of your own"])

"""Every golden, played through the real agent: replayed, and once more live with the script it was made from.

Both with either store: what is expected is the same.

GOLDEN_ROUNDS=20 plays each twenty times, GOLDEN_SEED=<anything> in an order of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replay.compare import compare
from replay.differences import report
from replay.driver import play
from replay.explain import explain
from replay.golden import load_golden
from replay.golden_tree import check_tree
from replay.judge import SCRIPT, judge
from replay.normalize import normalise
from replay.scenario import load_scenario
from replay.workspace import StoreName
from tests.golden_runs import AGENT, GOLDEN, TIMEOUT, check_run, names, shuffled

ROUNDS = shuffled(int(os.environ.get("GOLDEN_ROUNDS", "1")), os.environ.get("GOLDEN_SEED"))

STORES: tuple[StoreName, ...] = ("jsonl", "sqlite")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("name", "number"), ROUNDS, ids=[f"{name}-{number}" for name, number in ROUNDS])
def test_a_golden_replays_to_itself(name: str, number: int, store: StoreName, tmp_path: Path) -> None:
    verdict = judge(GOLDEN / name, AGENT, root=tmp_path, timeout=TIMEOUT, store=store)
    assert verdict.passed, verdict.report()
    assert verdict.artefacts is not None
    assert verdict.artefacts.receipt is not None, "the agent did not tell what it used of the recording"
    check_run(verdict.artefacts, tmp_path)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", names())
def test_a_script_still_gives_the_golden_that_was_made_from_it(name: str, store: StoreName, tmp_path: Path) -> None:
    directory = GOLDEN / name
    model = {"ACP_MODEL": f"scripted/{directory / SCRIPT}"}
    run = play(load_scenario(directory), AGENT, root=tmp_path, timeout=TIMEOUT, extra_env=model, store=store)
    found = compare(load_golden(directory), normalise(run))
    assert not found, report(found)
    check_run(run, tmp_path)


def test_the_tree_of_goldens_is_in_order() -> None:
    assert [str(problem) for problem in check_tree(GOLDEN)] == []


@pytest.mark.parametrize("name", names())
def test_the_engine_sees_nothing_wrong_in_a_golden(name: str) -> None:
    assert explain(GOLDEN / name).problems == []


def test_every_scenario_that_was_promised_is_there() -> None:
    assert names() == [
        "additional-directories", "ask-user-form", "ask-user-link", "cancel-in-stream", "cancel-in-tool",
        "child-asks-permission", "child-of-child", "children-announced", "client-files", "client-terminal",
        "close-and-delete", "config-options", "edit-with-diff", "embedded-resource", "fork-of-fork",
        "interrupted-children", "interrupted-tool", "list-pages", "load", "max-tokens", "mcp-server", "multi-turn",
        "parallel-tools", "permission-allowed", "permission-always", "permission-rejected", "prompt-with-image",
        "provider-error", "queue-of-prompts", "resume", "retry", "retry-told", "slash-commands", "subagent-fork",
        "subagent-mixed", "subagent-multi", "subagent-spawn", "text-turn", "three-distinct-children", "tool-turn",
    ]  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_a_golden_says_where_it_comes_from(name: str) -> None:
    provenance = load_scenario(GOLDEN / name).provenance
    assert isinstance(provenance, str)
    assert provenance.startswith("recorded by running model.script with the scripted provider of acp-agent")
    assert (GOLDEN / name / SCRIPT).is_file()

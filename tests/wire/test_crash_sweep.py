"""Kill -9 after every event of a session with two children: what was acknowledged stays, everything is closed once.

Each sweep walks through the events of one recorded scenario. For each of them an agent plays the scenario and dies at
that event; many of these sessions share a store, which two agents then load, one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.history_laws import check_history
from tests.support.log_laws import Json, Log, check_store_laws
from tests.support.reopen import KINDS, sessions
from tests.support.repair_laws import repair_problems
from tests.wire.kills import LABELS, REPEAT, Run, kill_at, kill_load, load, place_of, replay_family
from tests.wire.moves import stop_reason
from tests.wire.runs import data

pytestmark = pytest.mark.timeout(400)  # each test starts some twenty agents, one after the other

BATCHES = 6
"""Into so many tests each sweep is cut: batch k plays the deaths k, k + BATCHES, ..."""


@pytest.mark.parametrize("batch", range(1, BATCHES + 1))
@pytest.mark.parametrize("moment", ["appended", "written"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_after_any_event_loses_nothing_acknowledged_and_leaves_everything_closed(
    agent: Workbench, tmp_path: Path, kind: str, moment: str, batch: int,
) -> None:
    sweep = Sweep(agent, kind, tmp_path)
    sweep.kill(moment, itertools.count(batch, BATCHES))
    assert len(sweep.runs) > 3, "the scenario has too few events for a sweep"
    sweep.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_between_a_forks_first_events_and_its_own_ones_leaves_a_parent_that_loads(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    sweep = Sweep(agent, kind, tmp_path)
    sweep.kill("forked", [1])
    assert sweep.runs[0].killed
    sweep.check()


@pytest.mark.parametrize(("moment", "first", "step"), [
    ("committing", 1, 2), ("committing", 2, 2), ("inserting", 2, 8), ("inserting", 6, 8),
])
def test_a_kill_in_the_middle_of_a_transaction_keeps_all_that_was_committed_before(
    agent: Workbench, tmp_path: Path, moment: str, first: int, step: int,
) -> None:
    sweep = Sweep(agent, "sqlite", tmp_path)
    sweep.kill(moment, itertools.count(first, step))
    assert sweep.runs[0].killed
    sweep.check()


class Sweep:
    """Some kills of the scenario in one store, and what must hold when it is opened again."""

    def __init__(self, bench: Workbench, kind: str, directory: Path) -> None:
        self.bench = bench
        self.place = place_of(bench, kind)
        self.directory = directory
        self.replay = replay_family(directory / "replay")
        self.runs: list[Run] = []
        bench.open_turns = "agents are killed in the middle of their turns"

    def kill(self, moment: str, numbers: itertools.count[int] | Sequence[int]) -> None:
        """Play the scenario once for each number, and once to its end when there are more than it has moments."""
        for number in numbers:
            self.runs.append(kill_at(self.bench, self.place, self.replay, moment, number))
            if not self.runs[-1].killed:
                break

    def check(self) -> None:
        """Load everything twice, by two agents, and go on in every third session."""
        before = self._as_killed()
        first = self._agent()
        shown = {run.session: load(first, run) for run in self.runs if run.session in before}
        for run in self.runs:
            if run.session not in before:
                assert first.call("session/load", run.load_params)["error"]["code"] == -32002
        first.close()
        loaded, after = self.place.content(), self.place.export(self.directory / "after")
        self._judge(before, after, first)
        second = self._agent()
        for session, updates in shown.items():
            run = next(run for run in self.runs if run.session == session)
            assert load(second, run) == updates, f"{run}: a second load shows something else"
        assert self.place.content() == loaded, "a second load changed what is stored"
        for session in list(shown)[::3]:
            assert stop_reason(second.prompt(session, "Again.")) == "end_turn"
        second.close()
        self._judge_continued(self.place.export(self.directory / "continued"), after)

    def _agent(self) -> AgentProcess:
        running = self.bench(replay=self.replay, environ=REPEAT | self.place.environ)
        running.initialize()
        return running

    def _as_killed(self) -> dict[str, list[Log]]:
        """What the killed agents left behind; looking at it must not change it."""
        raw, content = self.place.raw(), self.place.content()
        before = self.place.export(self.directory / "before")
        assert self.place.content() == content, "looking at sessions changed what is stored"
        assert self.place.raw() == raw, "looking at sessions changed the bytes of the store"
        problems = check_store_laws(self.directory / "before", closed=False)
        assert not problems, "what a kill left is unlawful:\n  " + "\n  ".join(problems)
        for run in self.runs:
            problems += _unacknowledged(run, before.get(run.session, []), self.place.kind)
        assert not problems, "acknowledged events are gone:\n  " + "\n  ".join(problems)
        return before

    def _judge(self, before: dict[str, list[Log]], after: dict[str, list[Log]], loader: AgentProcess) -> None:
        problems = check_store_laws(self.directory / "after")
        problems += check_history([loader.transcript], self.directory / "after")
        assert set(after) == set(before)
        for run in self.runs:
            for old, new in itertools.zip_longest(before.get(run.session, []), after.get(run.session, [])):
                problems += [f"{run}: {what}" for what in repair_problems(old.events, new.events)]
                problems += [f"{run}: the header became {new.header}"] if old.header != new.header else []
            problems += _ran_wrongly(run, after.get(run.session, []))
        assert not problems, "a load left:\n  " + "\n  ".join(problems)

    def _judge_continued(self, continued: dict[str, list[Log]], after: dict[str, list[Log]]) -> None:
        problems = check_store_laws(self.directory / "continued")
        for run in self.runs:
            for old, new in zip(after.get(run.session, []), continued.get(run.session, []), strict=False):
                if new.events[: len(old.events)] != old.events:
                    problems.append(f"{run}: going on changed what was stored")
            problems += [f"{run}: {label} ran twice" for label in LABELS if run.ran.count(label) > 1]
        assert not problems, "going on left:\n  " + "\n  ".join(problems)


def _unacknowledged(run: Run, logs: Sequence[Log], kind: str) -> list[str]:
    """Logs that were told of more safe events than are stored. A log file packs a run of deltas when it ends."""
    stored = {log.header["id"]: len(log.events) for log in logs}
    safe = {session: firm if kind == "jsonl" else count for session, (count, firm) in run.acknowledged.items()}
    return [f"{run}: {session} was told that {count} events are safe, {stored.get(session, 0)} are stored"
            for session, count in safe.items() if stored.get(session, 0) < count]


def _ran_wrongly(run: Run, logs: Sequence[Log]) -> list[str]:
    """Each command ran once if its result says so, never if it was not begun, and never twice."""
    problems = [f"{run}: {label} ran twice" for label in LABELS if run.ran.count(label) > 1]
    told = {label: code for log in logs for label, code in _told(log)}
    for label in LABELS:
        ran = label in run.ran
        if ran and told.get(label, "TOOL_NOT_STARTED") == "TOOL_NOT_STARTED":
            problems.append(f"{run}: {label} ran, and its log says {told.get(label)}")
        if not ran and told.get(label, "x") is None:
            problems.append(f"{run}: {label} did not run, and its log says that it did")
    return problems


def _told(log: Log) -> list[tuple[str, str | None]]:
    """What a log's own part tells of its commands: the label, and the code of the failure if it is one."""
    own = Log(log.header, log.events[log.header.get("seedLength", 0) :], [])
    commands: dict[str, str] = {}
    for message in data(own, "assistant/message"):
        for block in message["message"]["content"]:
            if block["type"] == "tool-call" and block["name"] == "bash":
                commands[block["id"]] = block["arguments"]
    found: list[tuple[str, str | None]] = []
    for result in data(own, "tool/result"):
        call_id = result["message"]["content"][0]["toolCallId"]
        for label in LABELS:
            if f"echo {label} " in commands.get(call_id, ""):
                found.append((label, _code(result)))
    return found


def _code(result: Json) -> str | None:
    code: str | None = result.get("error", {}).get("code")
    return code


# ---------------------------------------------------------------- kills of a load, and reading before it

IN_BOTH_CHILDREN = 70
"""An event at which the parent waits for two children, and both of them for a command."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_in_the_middle_of_a_repair_leaves_one_that_the_next_load_completes(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    """The load of a session with open calls in parent and children dies after an event that it adds."""
    sweep = Sweep(agent, kind, tmp_path)
    died = []
    for number in (1, 2, 3, 4, 100):  # the parent alone has four
        sweep.kill("written", [IN_BOTH_CHILDREN])
        died.append(kill_load(agent, sweep.place, sweep.replay, sweep.runs[-1], number))
    assert died == [True] * 4 + [False]
    sweep.check()


@pytest.mark.parametrize("kind", KINDS)
def test_listing_and_showing_before_the_load_changes_no_byte(agent: Workbench, tmp_path: Path, kind: str) -> None:
    sweep = Sweep(agent, kind, tmp_path)
    sweep.kill("written", [IN_BOTH_CHILDREN])
    (run,) = sweep.runs
    raw = sweep.place.raw()
    for words in (["list"], ["show", run.session], ["export", run.session]):
        done = sessions(agent, sweep.place, *words)
        assert done.returncode == 0, done.stderr
        assert sweep.place.raw() == raw, words
    assert run.session in sessions(agent, sweep.place, "list").stdout
    assert "Spawn task." in sessions(agent, sweep.place, "show", run.session).stdout

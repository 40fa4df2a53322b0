"""Agents that die at a chosen moment of one scenario: a parent that runs a command, and two children at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess, Failed
from tests.support.reopen import StorePlace
from tests.wire.recordings import Log, Part, call, says, step, text, tool, write
from tests.wire.runs import LIVE

REPEAT = LIVE | {"ACP_REPLAY_SESSIONS": "repeat"}
PROMPTS = ("Hello.", "Go.")
LABELS = ("parent", "spawned", "forked")
"""What each session of the family writes into the file `ran`, once."""

RAN = "ran"
AGAIN = "Still here."
"""The answer to a prompt after the scenario's end, and after a kill in it."""


def leaves_a_line(call_id: str, label: str) -> Part:
    """A command that shows how often it ran."""
    return tool(call_id, "bash", command=f"echo {label} >> {RAN}", description="Leave a line")


def replay_family(directory: Path) -> Path:
    """The recorded scenario: about a hundred events in three logs."""
    parent = Log("parent").turn("Hello.", says("Hi ", "there, ", "you ", "four."))
    forked = parent.forked("forked", "f").turn(
        "Fork task.", step(call(leaves_a_line("in-fork", "forked")), ""), says("From ", "the ", "fork", "."))
    parent.turn(
        "Go.", step(call(text("First."), leaves_a_line("own", "parent")), ""),
        step(call(tool("s", "subagent", description="Spawn", prompt="Spawn task."),
                  tool("f", "subagent_fork", description="Fork", prompt="Fork task.")),
             "From the spawn.", "From the fork."),
        says("All ", "done ", "– ünï", "."),
    )  # fmt: skip
    for again in range(6):
        parent.turn(f"Again {again}.", says(AGAIN))
    spawned = parent.spawned("spawned", "s").turn(
        "Spawn task.", step(call(leaves_a_line("in-spawn", "spawned")), ""), says("From ", "the ", "spawn", "."))
    return write(directory, parent, forked, spawned)


@dataclass(frozen=True)
class Run:
    """One session whose agent was to be killed. Not `killed` when the scenario came to its end before.

    `acknowledged` says of how many events each log was told that they are safe, by session id: of all of them, and
    without the deltas at their end.
    """

    moment: str
    number: int
    session: str
    workspace: Path
    killed: bool
    acknowledged: dict[str, tuple[int, int]]

    @property
    def ran(self) -> list[str]:
        """What the commands left behind."""
        file = self.workspace / RAN
        return file.read_text().splitlines() if file.exists() else []

    @property
    def load_params(self) -> dict[str, Any]:
        """The params of the request that loads the session."""
        return {"sessionId": self.session, "cwd": str(self.workspace), "mcpServers": []}


def place_of(bench: Workbench, kind: str) -> StorePlace:
    """A store of this kind; a workbench judges the logs of its JSONL store itself."""
    return StorePlace(kind, bench.store if kind == "jsonl" else bench.store.with_suffix(".db"))


def kill_at(bench: Workbench, place: StorePlace, replay: Path, moment: str, number: int) -> Run:
    """Play the scenario until the agent dies at this moment, or to its end."""
    workspace = bench.workspace / f"run-{len(list(bench.workspace.iterdir()))}"
    workspace.mkdir()
    acknowledged = workspace / "acknowledged"
    victim = mortal(bench, place, replay, moment, number, acknowledged)
    session = victim.new_session(workspace)
    killed = dies(victim, lambda: play(victim, session))
    return Run(moment, number, session, workspace, killed, _counts(acknowledged))


def kill_load(bench: Workbench, place: StorePlace, replay: Path, run: Run, number: int) -> bool:
    """Load a session with an agent that dies when the `number`-th event of the repair is written; whether it died."""
    victim = mortal(bench, place, replay, "written", number, run.workspace / f"acknowledged-{number}")
    return dies(victim, lambda: accept(victim.call("session/load", run.load_params)))


def mortal(
    bench: Workbench, place: StorePlace, replay: Path, moment: str, number: int, acknowledged: Path,
) -> AgentProcess:
    """A started agent that dies at this moment."""
    victim = bench.prepare(replay=replay, environ=REPEAT | place.environ)
    victim.command = [sys.executable, "-m", "tests.support.killed_agent", moment, str(number), str(acknowledged)]
    victim.start()
    victim.initialize()
    return victim


def play(victim: AgentProcess, session: str) -> None:
    """The client's part of the scenario."""
    for prompt in PROMPTS:
        accept(victim.prompt(session, prompt))


def accept(answer: dict[str, Any]) -> None:
    """Nothing but a result will do."""
    assert "result" in answer, answer


def dies(victim: AgentProcess, work: Callable[[], None]) -> bool:
    """Whether the agent dies while the client works with it, or when it is told to end."""
    try:
        work()
        victim.close()
    except (Failed, BrokenPipeError):
        if victim.process.wait(victim.timeout) != -signal.SIGKILL:
            raise
        victim.kill()
        victim.judge()
    return victim.process.returncode == -signal.SIGKILL


def load(running: AgentProcess, run: Run) -> list[dict[str, Any]]:
    """Load a session; the updates that its history is replayed with."""
    since = running.position
    accept(running.call("session/load", run.load_params))
    return past(running.updates(run.session, since=since))


def past(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The updates that are history."""
    return [update for update in updates if update["sessionUpdate"] not in _NEWS]


_NEWS = frozenset({"available_commands_update", "usage_update"})
"""What follows the answer to a load and is no history: it may have arrived or not."""


def _counts(file: Path) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        session, count, firm = line.split()
        counts[session] = max((int(count), int(firm)), counts.get(session, (0, 0)))
    return counts

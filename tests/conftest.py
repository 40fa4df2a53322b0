"""Fixtures for tests on the real agent: it starts from this source tree, and every trace it leaves is judged."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.client import AGENT, AgentProcess
from tests.support.history_laws import check_history
from tests.support.log_laws import check_store_laws


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, one of nohup SIGHUP, and so would every process it starts: tests send
    these signals. And thousands of agents are started, which must not compile their modules anew each time.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the only backend."""
    return "asyncio"


class Workbench:
    """Starts agents for one test. Calling it returns a started agent; at the test's end all are closed and judged.

    `store`     where session logs are kept; every log in it must be lawful at the end
    `workspace` the sessions' working directory unless a test names another
    """

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.store = root / "sessions"
        self.workspace = root / "workspace"
        for directory in (self.home, self.workspace):
            directory.mkdir()
        self.agents: list[AgentProcess] = []
        self.unlawful_logs: str | None = None
        """Why this test's logs may break laws."""
        self.open_turns: str | None = None
        """Why this test may leave turns open in its logs: it kills an agent."""

    def __call__(
        self, *flags: str, replay: Path | None = None, environ: Mapping[str, str] | None = None,
        cwd: Path | None = None, unlawful: str | None = None, unstable: bool = False,
    ) -> AgentProcess:
        """A started agent. `replay` is the recording it replays."""
        agent = self.prepare(*flags, replay=replay, environ=environ, cwd=cwd, unlawful=unlawful, unstable=unstable)
        agent.start()
        return agent

    def prepare(
        self, *flags: str, replay: Path | None = None, environ: Mapping[str, str] | None = None,
        cwd: Path | None = None, unlawful: str | None = None, unstable: bool = False,
    ) -> AgentProcess:
        """An agent that is still to be started, with a stdin of the test's choice."""
        settings = {"ACP_SESSION_STORE": f"jsonl:{self.store}"}
        if replay is not None:
            settings["ACP_REPLAY_DIR"] = str(replay)
        agent = AgentProcess([*AGENT, *flags], cwd=cwd or self.workspace, home=self.home,
                             environ=settings | dict(environ or {}), unlawful=unlawful, unstable=unstable)
        self.agents.append(agent)
        return agent

    def finish(self) -> None:
        """Close what is open, then judge the store."""
        try:
            for agent in self.agents:
                if not agent.judged:
                    agent.close()
        finally:
            self.abandon()
        if self.unlawful_logs is None:
            problems = check_store_laws(self.store, closed=self.open_turns is None)
            if self.open_turns is None and all(agent.unlawful is None for agent in self.agents):
                problems += check_history([agent.transcript for agent in self.agents], self.store)
            assert not problems, "unlawful logs:\n  " + "\n  ".join(problems)

    def abandon(self) -> None:
        """Kill what runs."""
        for agent in self.agents:
            agent.abandon()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether the test itself passed."""
    report = yield
    if call.when == "call":
        item.stash[PASSED] = call.excinfo is None
    return report


PASSED = pytest.StashKey[bool]()


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """Starts agents: `agent(replay=directory)` is a running one. See `Workbench`."""
    bench = Workbench(tmp_path)
    try:
        yield bench
        if request.node.stash.get(PASSED, False):
            bench.finish()
    finally:
        bench.abandon()


"""Scripted models in the real agent, over either kind of store, through as many processes as a test needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.history_laws import check_history
from tests.support.log_laws import Log, check_store_laws
from tests.support.reopen import StorePlace

Json = dict[str, Any]

TALK = """\
model small-1 window 1000
call
  say "Hello."
  usage 100 20 cached 30
call repeat
  say "Again."
  usage 200 10
"""
"""A model that only talks, and whose context window is known."""


class Stage:
    """One store, one script, and the agents that use them one after the other."""

    def __init__(self, bench: Workbench, kind: str, directory: Path, script: str = TALK) -> None:
        self.bench = bench
        self.place = StorePlace(kind, bench.store if kind == "jsonl" else bench.store.with_suffix(".db"))
        self.directory = directory
        self.file = directory / "a.script"
        self.file.write_text(script, encoding="utf-8")
        self.agents: list[AgentProcess] = []

    def start(self, capabilities: Json | None = None, **environ: str) -> AgentProcess:
        """A new, initialised process."""
        model = {} if "ACP_REPLAY_DIR" in environ else {"ACP_MODEL": f"scripted/{self.file}"}
        running = self.bench(environ=model | self.place.environ | environ, unstable=True)
        running.initialize(capabilities)
        self.agents.append(running)
        return running

    def opening(self, running: AgentProcess, method: str, session: str, **more: Any) -> Json:
        """Load, resume or fork a session; the result."""
        params = {"sessionId": session, "cwd": str(self.bench.workspace), "mcpServers": [], **more}
        answer = running.call(f"session/{method}", params)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def judge(self) -> None:
        """Close all agents and judge what they stored and showed."""
        for running in self.agents:
            if not running.judged:
                running.close()
        logs = self.directory / "exported"
        self.place.export(logs)
        problems = check_store_laws(logs)
        problems += check_history([running.transcript for running in self.agents], logs)
        assert not problems, "\n".join(problems)

    def log(self, session: str, name: str) -> Log:
        """A root session's log now; `name` is the directory to export to."""
        return self.place.export(self.directory / name)[session][0]


def kinds(updates: list[Json]) -> list[str]:
    """The kinds of updates, in order."""
    return [update["sessionUpdate"] for update in updates]


def of_kind(updates: list[Json], kind: str) -> list[Json]:
    """The updates of one kind."""
    return [update for update in updates if update["sessionUpdate"] == kind]

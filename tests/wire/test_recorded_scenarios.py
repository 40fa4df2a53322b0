"""Real recordings of another harness: driven by their own scripts they behave as recorded, and so does what this
agent then stores.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.log_laws import Json
from tests.wire.runs import LIVE, UUID, behaviour, directory_of, log_files, logs_of

RECORDED = Path(__file__).parents[3] / "shared" / "recorded"
SCENARIOS = sorted(path.parent.name for path in RECORDED.glob("*/input.json"))
FULL = {"ACP_PERMISSION_MODE": "full-access"}

pytestmark = pytest.mark.skipif(not SCENARIOS, reason=f"no recorded scenarios in {RECORDED}")


class Scenario:
    """A recorded scenario: its script, its logs, what its client saw."""

    def __init__(self, name: str) -> None:
        self.directory = RECORDED / name
        self.steps: list[Json] = json.loads((self.directory / "input.json").read_text())["steps"]
        self.headers: list[Json] = []
        self.events: list[list[Json]] = []
        for file in log_files(self.directory):
            if file.name.startswith("session"):
                header, *rows = map(json.loads, file.read_bytes().splitlines())
                self.headers.append(header)
                self.events.append(rows)

    def copy(self, to: Path) -> Path:
        """What a replay directory needs of it."""
        to.mkdir()
        for file in [*self.directory.glob("session*.jsonl"), *self.directory.glob("replay.override.json")]:
            shutil.copy(file, to)
        return to

    def seen(self) -> list[tuple[str, Any]]:
        """For each prompt, the text the recorded client saw and the stop reason or error code."""
        seen: list[tuple[str, Any]] = []
        text = ""
        for line in (self.directory / "stdout.expected.jsonl").read_text().splitlines():
            frame = json.loads(line)
            update = frame.get("params", {}).get("update", {})
            text += update.get("content", {}).get("text", "")
            if "error" in frame or "stopReason" in frame["result" if "result" in frame else "params"]:
                seen.append((text, frame["error"]["code"] if "error" in frame else frame["result"]["stopReason"]))
                text = ""
        return seen


def drive(process: AgentProcess, steps: list[Json], workspace: Path, *, live: bool) -> tuple[str, list[Any]]:
    """Do what the script says; returns the session and what its client saw of each prompt."""
    session, seen = "", []
    for step in steps:
        match step["op"]:
            case "initialize":
                process.initialize()
            case "newSession":
                session = process.new_session(workspace)
            case "prompt" | "promptExpectError" | "promptAndCancel":
                mark = process.position
                prompt = process.start_prompt(session, step["text"])
                if step["op"] == "promptAndCancel":
                    _wait_to_cancel(process, step, workspace, live)
                    process.cancel(session)
                answer = process.response(prompt)
                end = answer["result"]["stopReason"] if "result" in answer else answer["error"]["code"]
                seen.append((process.text(session, since=mark), end))
            case "waitForTurnEnd":
                pass  # its prompt was answered
            case other:
                raise AssertionError(f"this test does not know the step {other}")
    return session, seen


def _wait_to_cancel(process: AgentProcess, step: Json, workspace: Path, live: bool) -> None:
    """Until the hang's ready file is there; a stored recording of it has its text to wait for instead."""
    if live:
        process.wait_until((workspace / step["waitForFile"]["path"]).exists, "the ready file")
    else:
        process.wait_for_update("agent_message_chunk")


def comparable(events: list[Json], *directories: str) -> list[Any]:
    """The behaviour, directories and ids tokenised."""
    def scrub(text: str) -> str:
        for directory in directories:
            text = text.replace(directory, "{{cwd}}")
        return re.sub(r"\{\{sessionId\}\}", "{{id}}", UUID.sub("{{id}}", text))

    return behaviour(events, scrub)


def check(agent: Workbench, scenario: Scenario, session: str, seen: list[Any], workspace: Path) -> None:
    """The run did what was recorded, on the wire and in every session."""
    assert seen == scenario.seen()
    logs = logs_of(agent, session)
    assert [comparable(log.events, str(workspace)) for log in logs] == [
        comparable(events, header["cwd"]) for header, events in zip(scenario.headers, scenario.events, strict=True)]
    assert ["seedLength" in log.header for log in logs] == ["seedLength" in header for header in scenario.headers]
    for log in logs[1:]:
        assert log.header["parentSession"] == session
        seed = log.header.get("seedLength", 0)
        assert log.events[:seed] == logs[0].events[:seed]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recorded_scenario_is_done_again_and_what_that_stores_is_served_again(
    agent: Workbench, tmp_path: Path, name: str,
) -> None:
    scenario = Scenario(name)
    busy, empty = agent.workspace / "busy", agent.workspace / "empty"
    empty.mkdir()
    if (scenario.directory / "workspace").is_dir():
        shutil.copytree(scenario.directory / "workspace", busy)
    busy.mkdir(exist_ok=True)
    first = agent(replay=scenario.copy(tmp_path / "replay"), environ=LIVE)
    session, seen = drive(first, scenario.steps, busy, live=True)
    assert first.close() == 0
    check(agent, scenario, session, seen, busy)

    again = agent(replay=directory_of(agent, session), environ=FULL)
    session, seen = drive(again, scenario.steps, empty, live=False)
    assert again.close() == 0
    check(agent, scenario, session, seen, empty)
    assert not list(empty.iterdir())

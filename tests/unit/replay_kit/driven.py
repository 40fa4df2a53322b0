"""Scenarios played in a line, for tests of the driver, and what their artefacts say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replay.artefacts import Artefacts
from replay.driver import play
from replay.scenario import Scenario, load_scenario
from tests.support.processes import PROC

SDK_AGENT = (sys.executable, str(Path(__file__).parents[2] / "support" / "sdk_agent.py"))
OWN_AGENT = (sys.executable, "-m", "acp_agent")
TIMEOUT = float(os.environ.get("TEST_TIMEOUT", "30"))

START: tuple[dict[str, Any], ...] = ({"op": "initialize"}, {"op": "newSession"})


def op(name: str, /, **members: Any) -> dict[str, Any]:
    """A step."""
    return {"op": name, **members}


def scripted(directory: Path, *steps: dict[str, Any], **members: Any) -> Scenario:
    """A scenario, stored in a directory of its own and loaded from there."""
    folder = directory / "scenario"
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "input.json").write_text(json.dumps({"steps": steps, **members}))
    return load_scenario(folder)


def sdk(directory: Path, *prompts: str | dict[str, Any], **members: Any) -> Artefacts:
    """Play prompts, and other steps between them, with the agent on the Python SDK."""
    rest = [op("prompt", text=prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    options = {name: members.pop(name) for name in ("transport", "timeout", "extra_env") if name in members}
    return play(scripted(directory, *START, *rest, **members), SDK_AGENT, root=directory / "run",
                **{"timeout": TIMEOUT, **options})


def own(directory: Path, recording: Path, *steps: dict[str, Any], **members: Any) -> Artefacts:
    """Play steps with our agent, replaying a recording."""
    options = {name: members.pop(name) for name in ("transport", "timeout", "extra_env", "store") if name in members}
    return play(scripted(directory, *START, *steps, **members), OWN_AGENT, root=directory / "run",
                recording=recording, **{"timeout": TIMEOUT, **options})


def frames(run: Artefacts, sender: str = "agent") -> Iterator[Any]:
    """What one side said."""
    return (json.loads(line.line) for line in run.wire if line.sender == sender)


def requests(run: Artefacts, method: str) -> list[Any]:
    """The params of one side's or the other's requests of a method."""
    return [frame["params"] for line in run.wire if (frame := json.loads(line.line)).get("method") == method]


def updates(run: Artefacts, kind: str) -> list[Any]:
    """The updates of a kind."""
    found = (params["update"] for params in requests(run, "session/update"))
    return [update for update in found if update["sessionUpdate"] == kind]


def said(run: Artefacts) -> list[str]:
    """What the agent said to each prompt, in the order of their answers."""
    texts, text = [], ""
    for frame in frames(run):
        update = frame.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            text += update["content"]["text"]
        elif "stopReason" in frame.get("result", {}) or "error" in frame:
            texts.append(text)
            text = ""
    return texts


def ends(run: Artefacts) -> list[str]:
    """The prompts' stop reasons and error codes, in the order of their answers."""
    found = []
    for frame in frames(run):
        if "stopReason" in (frame.get("result") or {}):
            found.append(frame["result"]["stopReason"])
        elif "error" in frame:
            found.append(str(frame["error"]["code"]))
    return found


def running(root: Path) -> list[str]:
    """The command lines of processes of a run that still live."""
    mark = f"HOME={root / 'home'}".encode()
    found = []
    for process in PROC.iterdir() if PROC.is_dir() else ():
        if process.name.isdigit():
            try:
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found

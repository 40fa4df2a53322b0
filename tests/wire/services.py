"""Clients with services for wire tests: an editor and terminals that do what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.schema import Frame, is_response

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
TERMINAL = {"terminal": True}
QUESTIONS: Frame = {"elicitation": {"form": {}, "url": {}}}

NO = {"error": {"code": -32603, "message": "not today"}}
GARBAGE: list[Frame] = [{"result": 5}, {"result": {"content": 7, "terminalId": [], "action": {}}}, {"error": "no"},
                        {"result": {}, "error": {"code": 1, "message": "both"}}, {}]
"""Answers that are none."""


def model(bench: Workbench, text: str) -> dict[str, str]:
    """Settings with this script as the model; nobody is asked."""
    file = bench.store.parent / "model.script"
    file.write_text(text)
    return {"ACP_MODEL": f"scripted/{file}", "ACP_PERMISSION_MODE": "full-access"}


def tools(*calls: tuple[str, dict[str, Any]], then: str = "Done.") -> str:
    """A script that calls tools one after the other, as `c1`, `c2` and so on, then answers; and answers ever after."""
    steps = [f"call\n  tool c{number} {name} {json.dumps(arguments)}\n"
             for number, (name, arguments) in enumerate(calls, 1)]
    return "".join(steps) + f"call repeat\n  say {json.dumps(then)}\n"


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, "description": "d", **more}


def opened(bench: Workbench, script: str, capabilities: Frame, **environ: str) -> tuple[AgentProcess, str]:
    """An agent with this model at a client with these capabilities, and a session."""
    process = bench(environ=model(bench, script) | environ)
    process.initialize(capabilities)
    return process, process.new_session()


class EditorClient:
    """An editor that keeps `buffers` by path and reads the disk for what it has none of; it never saves."""

    def __init__(self, process: AgentProcess) -> None:
        self.buffers: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        process.answers |= {"fs/read_text_file": self._read, "fs/write_text_file": self._write}

    def _read(self, request: Frame) -> Frame:
        path = request["params"]["path"]
        self.asked.append(("read", path))
        if path in self.buffers:
            return {"result": {"content": self.buffers[path]}}
        try:
            return {"result": {"content": Path(path).read_text()}}
        except OSError:
            return {"error": {"code": -32002, "message": "Resource not found", "data": {"uri": path}}}

    def _write(self, request: Frame) -> Frame:
        path = request["params"]["path"]
        self.asked.append(("write", path))
        self.buffers[path] = request["params"]["content"]
        return {"result": {}}


class TerminalClient:
    """Terminals that run nothing: each prints `output`, and ends when the test says so, with `end`.

    `answers` replaces the answer to a method (`create`, `output`, ...); None: none comes.
    """

    def __init__(self, process: AgentProcess, output: str = "printed\n", end: Frame | None = None) -> None:
        self.process = process
        self.output = output
        self.end = {"exitCode": 0} if end is None else end
        self.answers: dict[str, Frame | None] = {}
        self.ends = True
        """Whether commands end at once."""
        self._made = 0
        self._waiting: list[Frame] = []
        for deed in ("create", "output", "wait_for_exit", "kill", "release"):
            process.answers[f"terminal/{deed}"] = self._policy(deed)

    def _policy(self, deed: str) -> policies.Policy:
        def answer(request: Frame) -> Frame | None:
            if deed in self.answers:
                return self.answers[deed]
            if deed == "create":
                self._made += 1
                return {"result": {"terminalId": f"t{self._made}"}}
            if deed == "wait_for_exit" and not self.ends:
                self._waiting.append(request)
                return None
            results: dict[str, Frame] = {"wait_for_exit": self.end,
                                         "output": {"output": self.output, "truncated": False}}
            return {"result": results.get(deed, {})}

        return answer


def traffic(process: AgentProcess, *, updates: Iterable[str] = ("in_progress", "completed", "failed")) -> list[str]:
    """What the agent sent about services and calls, in order: methods, and the states of calls.

    A call's state is followed by `+` and what its content is made of.
    """
    found: list[str] = []
    for entry in process.transcript:
        frame = entry.frame
        if entry.sender != "agent" or "method" not in frame:
            continue
        method, params = frame["method"], frame["params"]
        if method != "session/update":
            found.append(method)
        elif params["update"].get("status") in updates:
            kinds = [item["type"] for item in params["update"].get("content") or ()]
            found.append("+".join([params["update"]["status"], *kinds]))
    return found


def requests(process: AgentProcess, prefix: str) -> list[Frame]:
    """The agent's requests whose method begins so, in order."""
    return [entry.frame for entry in process.transcript
            if entry.sender == "agent" and str(entry.frame.get("method")).startswith(prefix)]


def took(process: AgentProcess, started: int, stop: Callable[[], None]) -> tuple[Frame, float]:
    """Do what stops a prompt; its response, and the seconds until it came."""
    position = process.position
    stop()
    answer = process.response(started)
    begun = process.transcript[position].at
    (ended,) = [entry.at for entry in process.transcript[position:]
                if entry.sender == "agent" and is_response(entry.frame) and entry.frame["id"] == started]
    return answer, ended - begun

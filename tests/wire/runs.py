"""Runs of replays: starting them, what they left behind, and what is comparable between two of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.log_laws import Json, Log, read_log
from tests.support.schema import Frame
from tests.wire.recordings import Call, says

LIVE = {"ACP_REPLAY_TOOLS": "live", "ACP_PERMISSION_MODE": "full-access"}
"""Settings under which tools run, and nobody is asked."""

ECHO: Call = says(r"{{fromRequest:[\s\S]+}}")
"""A scripted answer that says everything the model was told, a line for each text."""

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def begin(
    bench: Workbench, replay: Path | None, environ: Mapping[str, str] | None = None, cwd: Path | None = None,
) -> tuple[AgentProcess, str]:
    """A started and initialised agent with one session."""
    process = bench(replay=replay, environ=environ)
    process.initialize()
    return process, process.new_session(cwd)


# ---------------------------------------------------------------- stored logs


def log_in(file: Path) -> Log:
    """A stored log."""
    return read_log(file.read_bytes().removesuffix(b"\n").split(b"\n"))


def directory_of(bench: Workbench, session: str) -> Path:
    """The stored directory of a root session, which is a replay directory."""
    (found,) = bench.store.glob(f"--*--/{session}")
    return found


def logs_of(bench: Workbench, session: str) -> list[Log]:
    """The logs of a root session and its children, in the order of their files."""
    return [log_in(file) for file in log_files(directory_of(bench, session))]


def root_log(bench: Workbench, session: str) -> Log:
    """A root session's own log."""
    return logs_of(bench, session)[0]


def log_files(directory: Path) -> list[Path]:
    """The log files of a directory, the root's first."""
    return sorted(directory.glob("*.jsonl"), key=lambda file: (len(file.name), file.name))


def data(log: Log, kind: str) -> list[Json]:
    """What the events of a kind say, in order."""
    return [event["data"] for event in log.events if event["type"] == kind]


def order(log: Log, *kinds: str) -> list[str]:
    """The types of the events of these kinds, in order."""
    return [event["type"] for event in log.events if event["type"] in kinds]


def block_text(blocks: Iterable[Json]) -> str:
    """The text of some content blocks."""
    return "".join(block.get("text", "") for block in blocks if block["type"] == "text")


def results(log: Log) -> list[str]:
    """The texts of all tool results."""
    blocks = [part["message"]["content"][0] for part in data(log, "tool/result")]
    return [block_text(block["content"]) for block in blocks]


def failures(log: Log) -> list[bool]:
    """For each tool result, whether it is an error."""
    return [part["message"]["content"][0]["isError"] for part in data(log, "tool/result")]


def end_of(log: Log) -> Json:
    """How the newest turn ended."""
    reason: Json = data(log, "turn/end")[-1]["reason"]
    return reason


def history(log: Log) -> list[str]:
    """What the model would be told next, as the log has it: the texts of the current surface nodes, in order."""
    nodes: list[Json] = []
    for event in log.events:
        operation = event.get("surfaceOp")
        if operation == "append":
            nodes.append(event)
        elif operation is not None:
            hidden = [node for node in nodes if operation["start"] <= node["seq"] <= operation["end"]]
            at = nodes.index(hidden[0])
            nodes = [node for node in nodes if node not in hidden]
            nodes.insert(at, event)
    return [text for text in map(_surface_text, nodes) if text]


def _surface_text(event: Json) -> str:
    if event["type"] == "tool/result":
        return block_text(event["data"]["message"]["content"][0]["content"])
    message = event["data"]["message"] if event["type"] == "assistant/message" else event["data"]
    return block_text(message["content"])


# ---------------------------------------------------------------- comparing


class Tokens:
    """Takes what differs between two runs out of texts: directories, and ids, which are numbered by their first
    appearance, so that an identity mix-up shows.
    """

    def __init__(self, *directories: Path) -> None:
        spellings = {str(one) for one in directories} | {os.path.realpath(one) for one in directories}
        self._directories = sorted(spellings, key=len, reverse=True)
        self._ids: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        for directory in self._directories:
            text = text.replace(directory, "{{cwd}}")
        return UUID.sub(lambda match: self._ids.setdefault(match[0], f"{{{{id {len(self._ids) + 1}}}}}"), text)


def normal_logs(directory: Path, *cwds: Path) -> dict[str, list[str]]:
    """The rows of all logs in a directory, comparable; by file name. Which place a session had among the roots
    of its process is left out.
    """
    tokens = Tokens(*cwds)
    return {file.name: [tokens(_timeless(line)) for line in file.read_bytes().splitlines()]
            for file in log_files(directory)}


def _timeless(line: bytes) -> str:
    row: Json = json.loads(line)
    for key in ("time", "time0", "createdAt"):
        if key in row:
            row[key] = 0
    body = row.get("data", {})
    if "dt" in body:
        body["dt"] = [0] * len(body["dt"])
    if row["type"] == "replay/bound":
        body |= {"lane": "(the recorded session)", "ordinal": 0}
    if "root" in body:
        body["root"] = 0
    return json.dumps(row, ensure_ascii=False)


def behaviour(events: Iterable[Json], scrub: Callable[[str], str]) -> list[Any]:
    """What a session did, free of ids, times and this agent's own wording: prompts, answers, results, ends."""
    did: list[Any] = []
    for event in events:
        kind, body = event["type"], event.get("data", {})
        if kind == "user/message" and body["source"]["kind"] == "user":
            did.append(("prompt", scrub(block_text(body["content"]))))
        elif kind == "assistant/message":
            asked = [(block["name"], block["arguments"]) for block in body["message"]["content"]
                     if block["type"] == "tool-call"]
            said = scrub(block_text(body["message"]["content"]))
            if said or asked:
                did.append(("answer", said, asked, body.get("interrupted", False)))
        elif kind == "tool/result":
            block = body["message"]["content"][0]
            did.append(("result", block["toolCallId"], scrub(block_text(block["content"])), block["isError"]))
        elif kind == "turn/end":
            did.append(("end", body["reason"]["kind"]))
    return did


def side_by_side(frames: Sequence[Frame]) -> list[Frame]:
    """The frames with what children do in the calls that made them put behind all else, call by call: how their
    progress is mixed is a matter of scheduling.
    """
    def delegating(frame: Frame) -> str:
        update = frame.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "tool_call_update" and update.get("status") == "in_progress":
            return str(update["toolCallId"])
        return ""

    return sorted(frames, key=delegating)

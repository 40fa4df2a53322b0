"""What a recording says that a client must hear: read from the log, without the replay engine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wire.recordings import Log, Result, call, says, step, text, thought, tool, write

STOPS = {"completed": "end_turn", "max-tokens": "max_tokens", "aborted": "cancelled"}


@dataclass
class Turn:
    """A recorded turn: the prompt, all thought and text that answered it, how each tool call ended, how it stopped."""

    prompt: str = ""
    thought: str = ""
    text: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    """Call id -> final status."""
    stop: str = ""


def turns(directory: Path, cwd: Path) -> list[Turn]:
    """The turns of a directory's root session, as replayed in `cwd`."""
    found: list[Turn] = []
    for line in (directory / "session.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line.replace("{{cwd}}", str(cwd)))
        if row["type"] == "turn/start":
            found.append(Turn())
        elif found:
            _add(found[-1], row["type"], row.get("data", {}))
    return found


def _add(turn: Turn, kind: str, data: dict[str, Any]) -> None:
    if kind == "user/message" and data["source"]["kind"] == "user":
        turn.prompt += _joined(data["content"], "text")
    elif kind == "assistant/message":
        blocks = data["message"]["content"]
        turn.thought += _joined(blocks, "reasoning")
        turn.text += _joined(blocks, "text")
        turn.tools |= {block["id"]: "" for block in blocks if block["type"] == "tool-call"}
    elif kind == "tool/result":
        (block,) = data["message"]["content"]
        turn.tools[block["toolCallId"]] = "failed" if block["isError"] else "completed"
    elif kind == "turn/end":
        turn.stop = STOPS[data["reason"]["kind"]]


def _joined(blocks: list[dict[str, Any]], kind: str) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == kind)


def writing(directory: Path) -> Path:
    """A recorded turn that thinks, writes a file (`w`), runs a command (`b`) and makes a plan (`t`)."""
    asks = call(thought("A note ", "is best."), text("I will ", "write it down."),
                tool("w", "write", file_path="note.txt", content="remember\n"),
                tool("b", "bash", command="printf ran > ran.txt", description="Run"),
                tool("t", "todo_write", todos=[{"content": "Write", "status": "completed"}]))
    log = Log().turn("Write.", step(asks, Result("written"), Result("(no output)"), Result("planned")),
                     says("It is ", "done."))
    return write(directory, log)

"""`python -m replay.demo`: replay the demo's recording and print a readable transcript."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from replay.demo import PROMPT, RECORDING, WORKSPACE
from replay.demo.player import Frame, Player

_STATUS = {"completed": "[green]done[/]", "failed": "[red]failed[/]"}


class Transcript:
    """Prints frames as they come: text flows, everything else gets a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._message: str | None = None
        self._titles: dict[str, str] = {}

    def show(self, frame: Frame) -> None:
        """Print one frame of the agent's."""
        if frame.get("method") == "session/update":
            self._update(frame["params"]["update"])
        elif "error" in frame:
            self._line(f"[red]error {frame['error']['code']}: {escape(frame['error']['message'])}[/]")
        elif "stopReason" in frame.get("result", {}):
            self._line(f"[dim]turn ended: {frame['result']['stopReason']}[/]")

    def _update(self, update: dict[str, Any]) -> None:
        match update["sessionUpdate"]:
            case "agent_message_chunk" | "agent_thought_chunk" as kind:
                self._flow(update, "dim italic" if kind == "agent_thought_chunk" else "bold")
            case "tool_call":
                self._titles[update["toolCallId"]] = update["title"]
                self._line(f"[cyan]{update['name']}[/] {escape(update['title'])}")
            case "tool_call_update" if update["status"] in _STATUS:
                self._line(f"  {_STATUS[update['status']]} {escape(self._titles[update['toolCallId']])}")
                for item in update.get("content", []):
                    self._content(item)
            case "plan":
                for entry in update["entries"]:
                    self._line(f"  [dim]{entry['status']:<12}[/]{escape(entry['content'])}")
            case "session_info_update":
                self._line(f"[dim]title: {escape(update['title'])}[/]")

    def _flow(self, update: dict[str, Any], style: str) -> None:
        if update["messageId"] != self._message:
            self._line("")
            self._message = update["messageId"]
        text = escape(update["content"]["text"])
        self._console.print(text, end="", style=style, soft_wrap=True, highlight=False)

    def _content(self, item: dict[str, Any]) -> None:
        if item["type"] == "diff":
            for sign, colour, text in (("-", "red", item["oldText"] or ""), ("+", "green", item["newText"])):
                for line in text.splitlines():
                    self._line(f"    [{colour}]{sign} {escape(line)}[/]")
        elif item["type"] == "content":
            for line in item["content"]["text"].splitlines()[:8]:
                self._line(f"    [dim]{escape(line)}[/]")

    def _line(self, text: str) -> None:
        if self._message is not None:
            self._console.print()
            self._message = None
        if text:
            self._console.print(text, soft_wrap=True, highlight=False)


def main() -> int:
    """Play the demo; the exit status."""
    console = Console()
    transcript = Transcript(console)
    with tempfile.TemporaryDirectory(prefix="acp-replay-demo-") as folder:
        root = Path(folder)
        shutil.copytree(WORKSPACE, root / "workspace")
        console.print("[bold]acp-agent[/] replays a recorded session over stdio: no key, no network.\n")
        console.print(f"[bold blue]>[/] {PROMPT}", highlight=False)
        answer: Frame = {}
        with Player(RECORDING, root / "workspace", root / "store", root) as player:
            for answer in player.play(PROMPT):
                transcript.show(answer)
        logs = sorted(path.name for path in (root / "store").rglob("session*.jsonl"))
        console.print(f"\n[dim]stored and replayable as it stands: {', '.join(logs)}[/]", highlight=False)
    return 0 if answer.get("result", {}).get("stopReason") == "end_turn" else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""A session reduced to what its tools see: runs calls one after the other and remembers what they observed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session.events import Source, TextBlock, Todo, ToolContent, ToolError, ToolResult, ToolResultBlock
from acp_agent.tools.base import Diff, Outcome, ResultView, Tool, ToolContext, ToolFailure
from acp_agent.tools.editor import Editor


class ToolSession:
    """`seen` is folded from the outcomes as the log would do it."""

    def __init__(self, cwd: Path, spill: Path, *, confined: bool = True, roots: tuple[Path, ...] = ()) -> None:
        self.cwd = cwd
        self.spill = spill
        self.confined = confined
        self.roots = (cwd.resolve(), *(root.resolve() for root in roots))
        self.seen: dict[str, str | None] = {}
        self.progress: list[str] = []
        self.on_progress: Callable[[str], None] = self.progress.append
        self.todos: tuple[Todo, ...] | None = None
        self.editor: Editor | None = None

    def context(self) -> ToolContext:
        return ToolContext(
            session_id=SessionId("s"), call_id=CallId("call_1"), turn=1, step=1, cwd=self.cwd, roots=self.roots,
            confined=self.confined, seen=self.seen, progress=lambda text: self.on_progress(text), spill=self.spill,
            set_todos=self._set_todos, editor=self.editor,
        )

    async def call(self, tool: Tool, **arguments: Any) -> Outcome:
        """The outcome of one call, failures included."""
        try:
            outcome = await tool.run(tool.decode(json.dumps(arguments)), self.context())
        except ToolFailure as failure:
            outcome = Outcome.failure(failure.message, failure.error)
            self.seen.update((seen.path, seen.version) for seen in failure.observed)
        self.seen.update((seen.path, seen.version) for seen in outcome.observed)
        return outcome

    def run(self, tool: Tool, **arguments: Any) -> Outcome:
        return asyncio.run(self.call(tool, **arguments))

    def preview(self, tool: Tool, **arguments: Any) -> tuple[Diff, ...]:
        return asyncio.run(tool.preview(tool.decode(json.dumps(arguments)), self.context()))

    def shown(self, tool: Tool, outcome: Outcome, **arguments: Any) -> ResultView:
        return tool.present(tool.decode(json.dumps(arguments)), logged(outcome), self.cwd)

    def _set_todos(self, todos: tuple[Todo, ...]) -> None:
        self.todos = todos


def text_of(outcome: Outcome) -> str:
    (block,) = outcome.content
    assert isinstance(block, TextBlock)
    return block.text


def code_of(outcome: Outcome) -> str | None:
    return outcome.error.code if isinstance(outcome.error, ToolError) else None


def logged(outcome: Outcome) -> ToolResult:
    """The outcome as the log holds it after it was read back."""
    block = ToolResultBlock(CallId("call_1"), outcome.content, outcome.is_error)
    content = ToolContent(Source("tool"), (block,), "user", MessageId("m"))
    return ToolResult(1, 1, content, outcome.error, outcome.meta)

"""A call of a server's tool as it is decoded and shown: from its name and arguments alone.

So it is shown the same when it is made, when the session is loaded without the server, and in a replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from acp_agent.mcp.names import mcp_parts
from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import invalid
from acp_agent.tools.base import Access, CallView, Diff, Effect, Kind, Outcome, ResultView, ToolContext
from acp_agent.tools.views import result_text


class ShownTool:
    """What every tool of a server has in common. Asked about like a command: nothing is known of what it does."""

    access = Access.EXECUTE
    effect = Effect.WORLD
    parallel = False

    def __init__(self, name: str) -> None:
        self.name = name

    def decode(self, arguments: str) -> dict[str, Any]:
        """An object, unchecked: the server knows its schema best."""
        try:
            values = msgspec.json.decode(arguments if arguments.strip() else "{}")
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise invalid(self.name, f"not valid JSON ({error})") from None
        if not isinstance(values, dict):
            raise invalid(self.name, "expected an object")
        return values

    def announce(self, args: dict[str, Any], cwd: Path) -> CallView:  # noqa: ARG002 - contract
        server, tool = mcp_parts(self.name)
        return CallView(f"{server}: {tool}" if tool else server, Kind.other)

    async def preview(self, args: Any, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: Any, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        return ResultView(result_text(result))


class AbsentTool(ShownTool):
    """A tool of a server that is not here: it can be shown and served from a recording, and not run."""

    description = ""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parameters: dict[str, Any] = {"type": "object", "properties": {}}

    async def run(self, args: Any, context: ToolContext) -> Outcome:  # noqa: ARG002 - contract
        from acp_agent.tools.registry import unknown_tool

        return unknown_tool(self.name)

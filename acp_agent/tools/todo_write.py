"""The `todo_write` tool: the plan the client shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from acp_agent.session.events import Todo, ToolResult
from acp_agent.tools.arguments import JsonDecoder, decode_arguments
from acp_agent.tools.base import Access, CallView, Diff, Effect, Kind, Outcome, ResultView, ToolContext
from acp_agent.tools.views import result_text


class TodoItem(Struct, frozen=True, forbid_unknown_fields=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoArguments(Struct, frozen=True):
    todos: tuple[TodoItem, ...]


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "description": "Every entry of the plan.",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "description": "What is to be done."},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                },
                "required": ["content", "status"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["todos"],
}


class TodoWrite:
    name = "todo_write"
    description = (
        "Write down the plan for the task at hand: the whole list each time, in order. It replaces the earlier "
        "one and is shown to the user."
    )
    parameters = _PARAMETERS
    access = Access.NONE
    effect = Effect.SESSION
    parallel = False

    def decode(self, arguments: str) -> TodoArguments:
        return decode_arguments(self.name, arguments, _DECODER)

    def announce(self, args: TodoArguments, cwd: Path) -> CallView:  # noqa: ARG002 - contract
        return CallView("Update the plan", Kind.think)

    async def preview(self, args: TodoArguments, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: TodoArguments, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        return ResultView(result_text(result))

    async def run(self, args: TodoArguments, context: ToolContext) -> Outcome:
        context.set_todos(tuple(Todo(item.content, item.status) for item in args.todos))
        count = Counter(item.status for item in args.todos)
        return Outcome.text(
            f"Updated todo list: {count['pending']} pending, {count['in_progress']} in progress, "
            f"{count['completed']} completed."
        )


_DECODER = JsonDecoder(TodoArguments)

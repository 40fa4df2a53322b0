from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.mcp.shown import AbsentTool
from acp_agent.session.events import Todo
from acp_agent.tools.ask_user import AskUser
from acp_agent.tools.base import Access, Effect, Tool, ToolFailure
from acp_agent.tools.read import Read
from acp_agent.tools.registry import Registry, default_tools, unknown_tool
from acp_agent.tools.todo_write import TodoWrite
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

PARAMETERS = {
    "bash": ({"command": "string", "description": "string", "timeoutMs": "number", "workdir": "string",
              "run_in_background": "boolean", "sandbox_permissions": "string", "justification": "string"},
             ["command", "description"]),
    "edit": ({"file_path": "string", "old_string": "string", "new_string": "string", "replace_all": "boolean",
              "sandbox_permissions": "string", "justification": "string"},
             ["file_path", "old_string", "new_string"]),
    "glob": ({"pattern": "string", "path": "string"}, ["pattern"]),
    "grep": ({"pattern": "string", "path": "string", "include": "string"}, ["pattern"]),
    "read": ({"file_path": "string", "offset": "number", "limit": "number"}, ["file_path"]),
    "todo_write": ({"todos": "array"}, ["todos"]),
    "write": ({"file_path": "string", "content": "string", "sandbox_permissions": "string",
               "justification": "string"}, ["file_path", "content"]),
}  # fmt: skip


def plain_tools() -> list[Tool]:
    """All but the delegation tools and the one that asks, which have tests of their own."""
    return [tool for tool in default_tools() if not tool.name.startswith(("subagent", "ask_"))]


def test_schemas_are_sorted_and_have_the_recorded_parameters() -> None:
    schemas = Registry(reversed(plain_tools())).schemas()
    assert [schema.name for schema in schemas] == sorted(PARAMETERS)
    for schema in schemas:
        properties, required = PARAMETERS[schema.name]
        assert {name: value["type"] for name, value in schema.parameters["properties"].items()} == properties
        assert schema.parameters["required"] == required
        assert "additionalProperties" not in schema.parameters
        assert schema.description


def test_tools_say_what_they_do_to_the_world() -> None:
    access = {tool.name: (tool.access, tool.effect, tool.parallel) for tool in plain_tools()}
    assert access == {
        "bash": (Access.EXECUTE, Effect.WORLD, False),
        "edit": (Access.EDIT, Effect.WORLD, False),
        "glob": (Access.READ, Effect.WORLD, False),
        "grep": (Access.READ, Effect.WORLD, False),
        "read": (Access.READ, Effect.WORLD, True),
        "todo_write": (Access.NONE, Effect.SESSION, False),
        "write": (Access.EDIT, Effect.WORLD, False),
    }


def test_tools_are_found_by_name() -> None:
    registry = Registry(plain_tools())
    tool = registry.get("read")
    assert isinstance(tool, Read)
    assert registry.get("reed") is None
    assert len(registry) == len(list(registry)) == 7


def test_a_servers_tool_can_be_shown_though_it_is_not_here() -> None:
    tool = Registry(plain_tools()).get("mcp__demo__add")
    assert isinstance(tool, AbsentTool)
    assert tool.announce(tool.decode('{"a": 1}'), Path("/w")).title == "demo: add"


def test_more_tools_can_be_offered_and_some_kept_back() -> None:
    base = Registry(plain_tools())
    made = base.offering([AbsentTool("mcp__demo__add")], without=frozenset({"bash"}))
    names = {schema.name for schema in made.schemas()}
    assert names == {tool.name for tool in plain_tools()} - {"bash"} | {"mcp__demo__add"}
    assert made.get("bash") is not None, "a call of it can still be shown"
    assert "mcp__demo__add" not in {schema.name for schema in base.schemas()}


def test_a_tool_can_be_told_of_in_another_shape_where_it_is_offered_at_all() -> None:
    shorter = AskUser(frozenset({"link"}))
    made = Registry([AskUser(), Read()]).offering((), without=frozenset(), instead=[shorter])
    assert made.get("ask_user") is shorter
    assert len(made) == 2
    assert Registry([Read()]).offering((), without=frozenset(), instead=[shorter]).get("ask_user") is None


def test_an_unknown_tool_has_its_text_and_code() -> None:
    outcome = unknown_tool("reed")
    assert (text_of(outcome), code_of(outcome)) == ('Error: unknown tool "reed"', "UNKNOWN_TOOL")


def test_a_tool_nobody_could_use_is_refused() -> None:
    class Renamed(Read):
        name = "read file"

    class Shapeless(Read):
        name = "shapeless"
        parameters = {"type": "object"}  # noqa: RUF012 - a class variable like any tool's

    class Demanding(Read):
        name = "demanding"
        parameters = {"type": "object", "properties": {}, "required": ["x"]}  # noqa: RUF012 - as above

    def refused(*tools: Tool) -> str:
        with pytest.raises(ValueError) as caught:
            Registry(tools)
        return str(caught.value)

    assert refused(Read(), Read()) == "two tools are named 'read'"
    assert refused(Renamed()).startswith("a tool cannot be named 'read file'")
    assert refused(Shapeless()) == "the parameters of tool 'shapeless' are not the schema of an object"
    assert refused(Demanding()) == "tool 'demanding' requires parameters it does not describe: ['x']"


def test_making_the_tools_imports_nothing_heavy() -> None:
    """What a tool needs only when it runs must not delay the answer to `initialize`."""
    code = "import sys; from acp_agent.tools.registry import default_tools; default_tools(); print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    heavy = {"asyncio", "anyio", "subprocess", "difflib", "hashlib", "tempfile", "shutil", "json", "logging",
             "dataclasses", "threading"}
    assert heavy & set(printed.split()) == set()


def test_a_plan_is_set_and_counted(session: ToolSession) -> None:
    outcome = session.run(TodoWrite(), todos=[
        {"content": "read the code", "status": "in_progress"},
        {"content": "watch the build", "status": "in_progress"},
        {"content": "write the fix", "status": "pending"},
    ])
    assert text_of(outcome) == "Updated todo list: 1 pending, 2 in progress, 0 completed."
    assert session.todos == (
        Todo("read the code", "in_progress"),
        Todo("watch the build", "in_progress"),
        Todo("write the fix", "pending"),
    )


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"content": "a", "status": "pending", "note": "b"}, "todos[0]: object contains unknown field note"),
        ({"content": "a", "status": "done"}, "todos[0].status: invalid enum value 'done'"),
        ({"content": "a"}, "todos[0]: object missing required field status"),
    ],
)
def test_plan_entries_are_closed(item: dict[str, str], problem: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        TodoWrite().decode(json.dumps({"todos": [item]}))
    assert caught.value.message == f'invalid arguments for tool "todo_write": {problem}'

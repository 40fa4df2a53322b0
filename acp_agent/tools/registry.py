"""Which tools a session offers, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from acp_agent.mcp.names import is_mcp_name
from acp_agent.mcp.shown import AbsentTool
from acp_agent.session.events import ToolError, ToolSchema
from acp_agent.tools.base import Outcome, Tool


class Registry:
    """Tools by name; complete once made.

    Raises ValueError for a name that is taken twice or that a model could not use, and for parameters that are
    not a JSON schema of an object: both are mistakes in this program.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            _check(tool)
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}")
            self._tools[tool.name] = tool
        self._schemas = tuple(
            ToolSchema(tool.name, tool.description, tool.parameters) for _, tool in sorted(self._tools.items())
        )

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None (then the call's outcome is `unknown_tool`).

        A name that is one of an MCP server's always has a tool, so that the call can be shown; see `AbsentTool`.
        """
        found = self._tools.get(name)
        return AbsentTool(name) if found is None and is_mcp_name(name) else found

    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools as the model is told of them, sorted by name (format reference 7.3)."""
        return self._schemas

    def offering(self, extra: Iterable[Tool], *, without: frozenset[str], instead: Iterable[Tool] = ()) -> Registry:
        """These tools and `extra` ones, of which the model is told of all but `without`.

        Those `instead` take the place of tools of the same name, where there are any.
        """
        tools = self._tools | {tool.name: tool for tool in instead if tool.name in self._tools}
        made = Registry((*tools.values(), *extra))
        made._schemas = tuple(schema for schema in made._schemas if schema.name not in without)
        return made

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def default_tools() -> tuple[Tool, ...]:
    """All tools a session offers."""
    from acp_agent.tools.ask_user import AskUser
    from acp_agent.tools.bash import Bash
    from acp_agent.tools.edit import Edit
    from acp_agent.tools.glob import Glob
    from acp_agent.tools.grep import Grep
    from acp_agent.tools.read import Read
    from acp_agent.tools.subagent import Subagent, SubagentFork
    from acp_agent.tools.todo_write import TodoWrite
    from acp_agent.tools.write import Write

    return (AskUser(), Bash(), Edit(), Glob(), Grep(), Read(), Subagent(), SubagentFork(), TodoWrite(), Write())


def unknown_tool(name: str) -> Outcome:
    """What a call of a tool that is not offered comes to."""
    return Outcome.failure(f'unknown tool "{name}"', ToolError("UnknownToolError", "UNKNOWN_TOOL"))


def _check(tool: Tool) -> None:
    name = tool.name
    if not (0 < len(name) <= 64 and name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()):
        raise ValueError(f"a tool cannot be named {name!r}: letters, digits, _ and -, at most 64")
    schema = tool.parameters
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError(f"the parameters of tool {name!r} are not the schema of an object")
    if missing := set(schema.get("required", ())) - set(properties):
        raise ValueError(f"tool {name!r} requires parameters it does not describe: {sorted(missing)}")

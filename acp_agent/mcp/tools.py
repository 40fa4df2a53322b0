"""A tool of an MCP server as a tool of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_agent.mcp.connection import Connection, ServerError
from acp_agent.mcp.content import KeepImage, result_parts
from acp_agent.mcp.shown import ShownTool
from acp_agent.session.events import TextBlock, ToolError
from acp_agent.text import scrub, scrub_surrogates
from acp_agent.tools.base import Outcome, ToolContext, ToolFailure

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

MAX_DESCRIPTION = 8_000
"""Characters of a tool's description that the model is told."""


class McpTool(ShownTool):
    """One tool of one server that is connected."""

    def __init__(self, name: str, connection: Connection, listed: Listed, keep: KeepImage) -> None:
        super().__init__(name)
        self.connection = connection
        self.description = _description(listed, connection.name)
        self.parameters = object_schema(listed.input_schema)
        self._tool = listed.name
        self._keep = keep

    async def run(self, args: dict[str, Any], context: ToolContext) -> Outcome:
        try:
            answer = await self.connection.call(self._tool, args, context.progress, context.trace)
        except ServerError as error:
            raise ToolFailure(str(error), "McpError", "MCP_FAILED") from None
        parts = await result_parts(answer, self._keep)
        if answer.is_error:
            text = "\n".join(part.text for part in parts if isinstance(part, TextBlock))
            return Outcome.failure(text.removeprefix("Error: "), ToolError("McpError", "MCP_TOOL_ERROR"))
        return Outcome(parts)


def _description(listed: Listed, server: str) -> str:
    text = scrub(listed.description or listed.title or f"The tool {listed.name} of the MCP server {server}.")
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A server's schema as the registry and the model servers need it: of an object, with `properties`.

    What it says otherwise stays. A `$ref` at its root is followed within the schema; what is required and not
    described is not demanded, because nobody could say what it is.
    """
    schema = scrub_surrogates(schema)
    target = _referred(schema)
    if target is not None:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **rest}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    made = {**schema, "type": "object", "properties": properties}
    required = made.pop("required", None)
    if isinstance(required, list) and (known := [name for name in required if name in properties]):
        made["required"] = known
    return made


def _referred(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What the root's `$ref` means: a JSON pointer into the schema itself (RFC 6901)."""
    pointer = schema.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/"):
        return None
    found: Any = schema
    for key in pointer[2:].split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, dict) and "$ref" not in found else None

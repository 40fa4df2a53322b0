"""What of the protocol this agent supports, told by its code, as the table in README.

usage: python -m tests.support.conformance_table   (writes README's table anew)
"""

from __future__ import annotations

import ast
import functools
import json
import re
import typing
from pathlib import Path
from typing import Any, cast

from acp_agent.acp.auth import Authentication
from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.handlers import Handlers
from acp_agent.acp.handshake import AgentCapabilities, AuthCapabilities
from acp_agent.acp.schema import Update
from acp_agent.acp.session_methods import SessionMethods
from acp_agent.rpc.envelope import to_json

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BEGIN = "<!-- what is supported: made by tests/support/conformance_table.py -->"
END = "<!-- end of what is supported -->"

Row = tuple[str, str, str]


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """The definitions of one of the protocol's schemas."""
    definitions: dict[str, Any] = json.loads((ROOT / "tests/schema" / f"{name}.json").read_text())["$defs"]
    return definitions


def _methods(name: str, side: str) -> list[str]:
    """The methods that a side serves, in the schema's order."""
    found = [definition["x-method"] for definition in schema(name).values() if definition.get("x-side") == side]
    return list(dict.fromkeys(found))


def _update_kinds(name: str) -> list[str]:
    branches = schema(name)["SessionUpdate"]
    kinds = [branch["properties"]["sessionUpdate"]["const"] for branch in branches.get("oneOf", branches.get("anyOf"))]
    return list(dict.fromkeys(kinds))


# ---------------------------------------------------------------- what the code says


def agent_methods() -> list[str]:
    """The requests this agent serves; `logout` only where there is a login."""
    nothing = cast(Any, None)
    handlers = Handlers(nothing, nothing, cast(Authentication, object()))
    sessions = SessionMethods(nothing, nothing)
    return ["initialize", *handlers.methods(), *sessions.methods()]


def notifications() -> set[str]:
    """The notifications it heeds."""
    told = {"session/cancel", "$/cancel_request"}
    return {*Handlers(cast(Any, None), cast(Any, None)).notifications(), *_named("acp_agent/rpc", told)}


def updates() -> set[str]:
    """The kinds of updates it sends."""
    return {member.__struct_config__.tag for member in typing.get_args(Update)}


def client_methods() -> set[str]:
    """What it asks of clients."""
    return _named("acp_agent/acp", {*_methods("schema.unstable", "client")})


def client_gates() -> set[str]:
    """The client capabilities it knows, by field."""
    return set(ClientCapabilities.__struct_fields__)


def capabilities() -> list[str]:
    """The paths of the capabilities it advertises."""
    tree = json.loads(to_json(AgentCapabilities(auth=AuthCapabilities())))
    return sorted(_paths(tree))


def _paths(tree: Any, path: tuple[str, ...] = ()) -> list[str]:
    if tree is True or tree == {}:
        return [".".join(path)]
    if isinstance(tree, dict):
        return [one for name, member in tree.items() for one in _paths(member, (*path, name))]
    return []


def _named(package: str, names: set[str]) -> set[str]:
    """Those names that a package's code says as a string, or puts together from parts."""
    nodes = [node for file in (ROOT / package).rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]
    said = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    forms = [re.compile("".join(map(_form, node.values))) for node in nodes if isinstance(node, ast.JoinedStr)
             and isinstance(node.values[0], ast.Constant) and "/" in str(node.values[0].value)]
    return {name for name in names if name in said or any(form.fullmatch(name) for form in forms)}


def _form(part: ast.expr) -> str:
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z_]+"


# ---------------------------------------------------------------- the table


LEFT_OUT = {
    "compaction_update": "histories are not compacted",
    "compaction_summary_chunk": "histories are not compacted",
    "plan_update": "one plan a session, sent as `plan`",
    "plan_removed": "one plan a session, sent as `plan`",
    "session_message": "children talk to their parent alone",
    "session_message_chunk": "children talk to their parent alone",
    "elicitation/complete": "whether a page was used is not known",
    "auth/status": "a missing login shows when a session is made",
    "auth/status_update": "a missing login shows when a session is made",
    "providers/list": "providers are settings of the agent's", "providers/set": "providers are settings of the agent's",
    "providers/disable": "providers are settings of the agent's",
    "session/archive": "sessions are kept or deleted", "session/unarchive": "sessions are kept or deleted",
    "session/status": "`session/list` tells", "session/set_title": "the command `/rename` does it",
    "mcp/message": "MCP servers are reached over stdio and http",
}
"""Why something is left out. What is neither in the code nor here makes the table's test fail."""


def rows() -> list[Row]:
    """All of the protocol: what it is, whether stable, and whether it is supported or why not."""
    found: list[Row] = []
    methods, heeded = set(agent_methods()), notifications()
    for method in _methods("schema.unstable", "agent"):
        stable = method in _methods("schema", "agent")
        found.append((f"`{method}`", _status(stable), _word(method, method in methods or method in heeded)))
    found.append(("`$/cancel_request`", "stable", _word("$/cancel_request", "$/cancel_request" in heeded)))
    asked = client_methods()
    for method in _methods("schema.unstable", "client"):
        stable = method in _methods("schema", "client")
        found.append((f"`{method}` (to the client)", _status(stable), _word(method, method in asked)))
    sent = updates()
    for kind in _update_kinds("schema.unstable"):
        stable = kind in _update_kinds("schema")
        found.append((f"update `{kind}`", _status(stable), _word(kind, kind in sent)))
    return found


def _status(stable: bool) -> str:
    return "stable" if stable else "unstable"


def _word(name: str, supported: bool) -> str:
    return "yes" if supported else f"no: {LEFT_OUT[name]}"


def table() -> str:
    """The table, and what is advertised, as they stand in README."""
    cells = [f"| {what} | {status} | {word} |" for what, status, word in rows()]
    lines = ["| | | supported |", "|---|---|---|", *cells]
    offered = _wrapped(f"Advertised: {', '.join(f'`{path}`' for path in capabilities())} "
                       "(`auth.logout` only with a provider that needs a key).")
    return "\n".join([BEGIN, "", *lines, "", offered, "", END])


def _wrapped(text: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, 118, break_on_hyphens=False, break_long_words=False))


def written(readme: str) -> str:
    """README with the table of today."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{table()}{after}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")

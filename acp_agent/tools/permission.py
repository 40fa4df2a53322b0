"""Whether a tool call may run: a pure judgement from the mode, the tool and what the user granted before."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from acp_agent.mcp.names import is_mcp_name, mcp_parts
from acp_agent.tools.base import Access, Tool
from acp_agent.tools.bash import BashArguments


class Mode(enum.StrEnum):
    """A session's permission mode."""

    READ_ONLY = "read-only"
    """Nothing is changed and nothing is executed."""
    ASK = "ask"
    """Every change and every command is asked about."""
    ACCEPT_EDITS = "accept-edits"
    """Files are edited without asking; commands are asked about."""
    FULL_ACCESS = "full-access"
    """Nothing is asked, and file tools are not confined to the session's directories."""


class Allow(Struct, frozen=True):
    """The call may run."""


class Deny(Struct, frozen=True):
    """The call may not run; `reason` is told to the model."""

    reason: str


class Ask(Struct, frozen=True):
    """The user decides.

    reason  why the user is asked
    key     what an answer "always" is remembered under
    covers  what such an answer covers, in words for the user
    """

    reason: str
    key: str
    covers: str


Verdict: TypeAlias = Allow | Deny | Ask

_ALLOWED = {
    Mode.READ_ONLY: frozenset({Access.NONE, Access.READ}),
    Mode.ASK: frozenset({Access.NONE, Access.READ}),
    Mode.ACCEPT_EDITS: frozenset({Access.NONE, Access.READ, Access.EDIT}),
    Mode.FULL_ACCESS: frozenset(Access),
}

_DOES = {Access.EDIT: "changes files", Access.EXECUTE: "runs commands"}


def judge(mode: Mode, tool: Tool, args: Any, grants: Mapping[str, bool]) -> Verdict:
    """Decide about one call.

    `args` are the tool's decoded arguments; `grants` says for each key whether the user always allows or always
    rejects it. The mode comes first: a grant only answers a question that would be asked.
    """
    if tool.access in _ALLOWED[mode]:
        return Allow()
    does = "is run by an MCP server" if is_mcp_name(tool.name) else _DOES[tool.access]
    if mode is Mode.READ_ONLY:
        return Deny(f'the permission mode is {mode.value}, and tool "{tool.name}" {does}')
    key, covers = _scope(tool, args)
    granted = grants.get(key)
    if granted is None:
        return Ask(f'tool "{tool.name}" {does}, and the permission mode is {mode.value}', key, covers)
    return Allow() if granted else Deny(rejected(tool.name))


def rejected(name: str) -> str:
    """The reason of a call the user rejected. Its outcome carries no error object (format reference 7.4)."""
    return f'the user rejected tool "{name}"'


def _scope(tool: Tool, args: Any) -> tuple[str, str]:
    """What an answer "always" is remembered under, and what it covers."""
    if tool.access is Access.EDIT:
        return "edit", "all file edits in this session"
    if is_mcp_name(tool.name):
        server, own = mcp_parts(tool.name)
        return f"mcp:{server}__{own}", f"the tool {own} of the MCP server {server} in this session"
    if isinstance(args, BashArguments):
        place = "" if args.workdir is None else f" in {args.workdir}"
        return _key(tool.name, [args.command, args.workdir]), f"this exact command: {args.command}{place}"
    return _key(tool.name, args), f"this exact call of {tool.name}"


def _key(name: str, args: Any) -> str:
    return f"{name}:{msgspec.json.encode(args, order='sorted').decode()}"

"""The `glob` tool: find files by the pattern of their path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import JsonDecoder, decode_arguments, invalid
from acp_agent.tools.base import (
    Access,
    CallView,
    Diff,
    Effect,
    Kind,
    Location,
    Outcome,
    ResultView,
    ToolContext,
    ToolFailure,
)
from acp_agent.tools.paths import resolve, shown_path
from acp_agent.tools.searching import PathList, search, shown_prefix
from acp_agent.tools.views import fenced, is_error, result_text, safe_name

_MAGIC = frozenset("*?[{\\")


class GlobArguments(Struct, frozen=True):
    pattern: str
    path: str | None = None


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "The pattern, relative to path."},
        "path": {
            "type": "string",
            "description": "The directory to search; the working directory unless given.",
        },
    },
    "required": ["pattern"],
}


class Glob:
    name = "glob"
    description = (
        "Find files whose path matches a pattern: * and ? stay within one name, ** stands for any number of "
        "directories, {a,b} for alternatives. **/*.py finds Python files at any depth, *.py only at the top. "
        "Paths come sorted and relative to the working directory; of more than 100 a sample of every directory is "
        "shown."
    )
    parameters = _PARAMETERS
    access = Access.READ
    effect = Effect.WORLD
    parallel = False

    def decode(self, arguments: str) -> GlobArguments:
        args = decode_arguments(self.name, arguments, _DECODER)
        if not args.pattern or "\0" in args.pattern:
            raise invalid(self.name, "pattern: expected a glob pattern, got an empty string or a NUL character")
        return args

    def announce(self, args: GlobArguments, cwd: Path) -> CallView:
        where = () if args.path is None else (Location(shown_path(args.path, cwd)),)
        return CallView(f"Find files {args.pattern}", Kind.search, where)

    async def preview(self, args: GlobArguments, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: GlobArguments, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        text = result_text(result)
        return ResultView(text if is_error(result) else fenced(text))

    async def run(self, args: GlobArguments, context: ToolContext) -> Outcome:
        start = resolve(args.path or "", context, "search")
        require_directory(start.shown, start.real)
        fixed, pattern = split_pattern(args.pattern)
        base = resolve(f"{start.shown}/{fixed}" if not fixed.startswith("/") else fixed, context, "search")
        save = context.spill / f"glob-{context.turn}-{context.step}-{safe_name(context.call_id)}.txt"
        found = await search(
            self.name, _ANSWER, base.real, shown_prefix(base.shown, context), pattern, str(save),
        )
        meta = {
            "shape": "paths",
            "paths": list(found.paths),
            "truncated": len(found.paths) < found.total,
            "total": found.total,
        }
        return Outcome.text(_listing(found, save), meta=meta)


def split_pattern(pattern: str) -> tuple[str, str]:
    """The leading directories without special characters, and the rest."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC & set(parts[fixed]):
        fixed += 1
    lead = "/".join(parts[:fixed])
    return (lead or "/" if fixed and pattern.startswith("/") else lead), "/".join(parts[fixed:])


def require_directory(shown: str, real: str) -> None:
    """Raises `ToolFailure` unless `real` is a directory."""
    if os.path.isdir(real):  # noqa: PTH112 - a string here, and no reason to make it a Path
        return
    if os.path.lexists(real):
        raise ToolFailure(f'cannot search "{shown}": it is not a directory', "FsError", "FS_NOT_DIRECTORY")
    raise ToolFailure(f'cannot search "{shown}": not found', "FsError", "FS_NOT_FOUND")


def _listing(found: PathList, save: Path) -> str:
    if not found.paths:
        return "No files found"
    lines = list(found.paths)
    if len(lines) < found.total:
        whole = f"The full list was saved to {save}." if found.saved else "The full list could not be saved."
        covered = f"{found.shown_entries} of {found.entries} top-level entries"
        lines += ["", f"(Showing {len(lines)} of {found.total} files, from {covered}. {whole})"]
    return "\n".join(lines)


_DECODER = JsonDecoder(GlobArguments)
_ANSWER = JsonDecoder(PathList)

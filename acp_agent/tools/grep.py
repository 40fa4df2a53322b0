"""The `grep` tool: find lines by a regular expression."""

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
)
from acp_agent.tools.glob import require_directory
from acp_agent.tools.paths import Target, check_regular, reporting, resolve, shown_path
from acp_agent.tools.searching import MatchList, search, shown_prefix
from acp_agent.tools.views import fenced, is_error, result_text


class GrepArguments(Struct, frozen=True):
    pattern: str
    path: str | None = None
    include: str | None = None


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "The regular expression, matched against each line."},
        "path": {
            "type": "string",
            "description": "The directory or file to search; the working directory unless given.",
        },
        "include": {
            "type": "string",
            "description": "Only files that match this glob: *.py for names, src/**/*.{ts,tsx} for paths.",
        },
    },
    "required": ["pattern"],
}


class Grep:
    name = "grep"
    description = (
        "Find lines that match a regular expression (Python syntax), in all text files below a directory or in "
        "one file. Up to 250 lines are shown, by file in the order of paths."
    )
    parameters = _PARAMETERS
    access = Access.READ
    effect = Effect.WORLD
    parallel = False

    def decode(self, arguments: str) -> GrepArguments:
        args = decode_arguments(self.name, arguments, _DECODER)
        if not args.pattern or "\0" in args.pattern:
            raise invalid(self.name, "pattern: expected a regular expression, without NUL and not empty")
        if "\0" in (args.include or ""):
            raise invalid(self.name, "include: expected a glob pattern without NUL characters")
        return args

    def announce(self, args: GrepArguments, cwd: Path) -> CallView:
        where = () if args.path is None else (Location(shown_path(args.path, cwd)),)
        return CallView(f"Search for {args.pattern}", Kind.search, where)

    async def preview(self, args: GrepArguments, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: GrepArguments, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        text = result_text(result)
        return ResultView(text if is_error(result) else fenced(text))

    async def run(self, args: GrepArguments, context: ToolContext) -> Outcome:
        target = resolve(args.path or "", context, "search", context.spill)
        base, prefix, only = _where(target, context)
        found = await search(self.name, _ANSWER, base, prefix, args.pattern, args.include or "", only)
        shown_count = sum(len(file.matches) for file in found.files)
        meta = {
            "shape": "matches",
            "files": [
                {
                    "path": file.path,
                    "matches": [{"lineNumber": match.line_number, "line": match.line} for match in file.matches],
                }
                for file in found.files
            ],
            "truncated": shown_count < found.total,
            "total": found.total,
        }
        return Outcome.text(_listing(found, shown_count), meta=meta)


def _where(target: Target, context: ToolContext) -> tuple[str, str, str]:
    """The directory to search, what its paths are shown with, and the one file in it to look at ("": all)."""
    real = Path(target.real)
    if os.path.isdir(real) or not os.path.lexists(real):  # noqa: PTH112  # Path.is_dir raises for a name that is too long
        require_directory(target.shown, target.real)
        return target.real, shown_prefix(target.shown, context), ""
    with reporting(target, "search"):
        check_regular(target, "search")
    # A link to a file is shown under the name of the file it leads to.
    shown = Path(target.shown if Path(target.shown).name == real.name else target.real)
    return str(real.parent), shown_prefix(str(shown.parent), context), real.name


def _listing(found: MatchList, shown: int) -> str:
    if not found.total:
        return "No matches found"
    lines = [f"Found {found.total} matches"]
    for file in found.files:
        lines += ["", file.path, *(f"Line {match.line_number}: {match.line}" for match in file.matches)]
    if shown < found.total:
        lines += ["", f"(Showing the first {shown}. Narrow the pattern, the path or include to see others.)"]
    return "\n".join(lines)


_DECODER = JsonDecoder(GrepArguments)
_ANSWER = JsonDecoder(MatchList)

"""The `write` tool: create a file, or replace one the session has seen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct

from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import ESCALATION, JsonDecoder, decode_arguments, invalid
from acp_agent.tools.base import (
    Access,
    CallView,
    Diff,
    Effect,
    Kind,
    Location,
    Observation,
    Outcome,
    ResultView,
    ToolContext,
    ToolFailure,
)
from acp_agent.tools.diffs import BOUND, hunks
from acp_agent.tools.editor import Editor, editor_for, read_through, write_through
from acp_agent.tools.observed import (
    DIGEST_LIMIT,
    require_seen,
    require_unchanged,
    stale,
    version_of_content,
    version_of_open,
)
from acp_agent.tools.offload import run_sized
from acp_agent.tools.paths import Target, check_regular, open_regular, reporting, resolve, shown_path
from acp_agent.tools.publish import create_file, replace_file
from acp_agent.tools.replacing import like
from acp_agent.tools.views import Hunk, is_error, meta_diffs, meta_of, result_text

_CREATED = "Created file"


class WriteArguments(Struct, frozen=True):
    file_path: str
    content: str


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {
            "type": "string",
            "description": "The file, absolute or relative to the working directory.",
        },
        "content": {"type": "string", "description": "Everything the file is to hold."},
        **ESCALATION,
    },
    "required": ["file_path", "content"],
}


class Write:
    name = "write"
    description = (
        "Write a whole file. Missing directories are made. A file that exists already must have been read in this "
        "session before; prefer edit for changing a part of it."
    )
    parameters = _PARAMETERS
    access = Access.EDIT
    effect = Effect.WORLD
    parallel = False

    def decode(self, arguments: str) -> WriteArguments:
        args = decode_arguments(self.name, arguments, _DECODER)
        if not args.file_path:
            raise invalid(self.name, "file_path: expected a path, got an empty string")
        return args

    def announce(self, args: WriteArguments, cwd: Path) -> CallView:
        return CallView(f"Write {args.file_path}", Kind.edit, (Location(shown_path(args.file_path, cwd)),))

    async def preview(self, args: WriteArguments, context: ToolContext) -> tuple[Diff, ...]:
        try:
            return await _preview(args, context)
        except (ToolFailure, OSError):
            return ()

    def present(self, args: WriteArguments, result: ToolResult, cwd: Path) -> ResultView:
        text = result_text(result)
        if is_error(result):
            return ResultView(text)
        shown = shown_path(args.file_path, cwd)
        if f"\n{_CREATED}\n" in text:
            return ResultView(None, (Diff(shown, args.content),))
        diffs = meta_diffs(result.meta, shown)
        return ResultView(None if diffs else f"Updated {args.file_path}", diffs)

    async def run(self, args: WriteArguments, context: ToolContext) -> Outcome:
        target = resolve(args.file_path, context, self.name)
        editor = editor_for(target, context)
        with reporting(target, self.name):
            if editor is not None:
                return await _write_through(editor, target, args, context)
            try:
                old = check_regular(target, self.name)
            except FileNotFoundError:
                return _create(target, args, context)
            seen = require_seen(target, context.seen, _unread(target))
            return await run_sized(old.st_size, _overwrite, target, old, args, seen)


async def _write_through(editor: Editor, target: Target, args: WriteArguments, context: ToolContext) -> Outcome:
    try:
        held = await read_through(editor, target, "write")
    except ToolFailure as failure:
        if failure.error is UNSET or failure.error.code != "FS_NOT_FOUND":
            raise
        if context.seen.get(target.real) is not None:
            raise stale(target) from None
        version = await write_through(editor, target, "write", args.content.encode(), None)
        return _outcome(target, _CREATED, version, ())
    require_unchanged(target, require_seen(target, context.seen, _unread(target)), held.version)
    before = _readable(held.data)
    data = (args.content if before is None else like(args.content, before)).encode()
    version = await write_through(editor, target, "write", data, held)
    changed = () if before is None else hunks(args.file_path, before, data.decode())
    return _outcome(target, "Updated file", version, changed)


def _readable(data: bytes) -> str | None:
    """Content as text; None when it is too long to be looked at."""
    return data.decode("utf-8", "replace") if len(data) <= DIGEST_LIMIT else None


def _create(target: Target, args: WriteArguments, context: ToolContext) -> Outcome:
    if context.seen.get(target.real) is not None:
        raise stale(target)
    data = args.content.encode()
    try:
        state = create_file(target, data)
    except FileExistsError:
        raise ToolFailure(_unread(target), "FsError", "FS_NOT_OBSERVED") from None
    return _outcome(target, _CREATED, version_of_content(data, state), ())


def _overwrite(target: Target, old: os.stat_result, args: WriteArguments, seen: str) -> Outcome:
    with open_regular(target, "write") as file:
        require_unchanged(target, seen, version_of_open(file))
        before = _text(file)
    data = (args.content if before is None else like(args.content, before)).encode()
    state = replace_file(target, data, old)
    changed = () if before is None else hunks(args.file_path, before, data.decode())
    return _outcome(target, "Updated file", version_of_content(data, state), changed)


def _text(file: int) -> str | None:
    """The content of an open file as text; None when it is too long to be looked at."""
    if os.fstat(file).st_size > DIGEST_LIMIT:
        return None
    return os.pread(file, DIGEST_LIMIT, 0).decode("utf-8", "replace")


def _unread(target: Target) -> str:
    return f'cannot overwrite existing "{target.shown}" without reading it first — read the file, then retry'


def _outcome(target: Target, done: str, version: str, changed: tuple[Hunk, ...]) -> Outcome:
    text = f"<path>{target.shown}</path>\n<type>file</type>\n<content>\n{done}\n</content>"
    observed = (Observation(target.real, version),)
    return Outcome(Outcome.text(text).content, meta=meta_of(changed), observed=observed)


async def _preview(args: WriteArguments, context: ToolContext) -> tuple[Diff, ...]:
    target = resolve(args.file_path, context, "write")
    try:
        before = await _before(target, context)
    except FileNotFoundError:
        return (Diff(target.shown, args.content),)
    if before is None:
        return ()
    changed = hunks(args.file_path, before, like(args.content, before))
    return tuple(Diff(target.shown, hunk.new_text, hunk.old_text) for hunk in changed)


async def _before(target: Target, context: ToolContext) -> str | None:
    """The file's text; None when it is too long to be looked at. Raises FileNotFoundError."""
    editor = editor_for(target, context)
    if editor is not None:
        try:
            data = (await read_through(editor, target, "write")).data
        except ToolFailure as failure:
            if failure.error is not UNSET and failure.error.code == "FS_NOT_FOUND":
                raise FileNotFoundError from None
            raise
        return _readable(data) if len(data) <= BOUND else None
    if check_regular(target, "write").st_size > BOUND:
        return None
    with open_regular(target, "write") as file:
        return _text(file) or ""


_DECODER = JsonDecoder(WriteArguments)

"""The `edit` tool: replace a piece of a file the session has seen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

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
from acp_agent.tools.observed import require_seen, require_unchanged, version_of_content
from acp_agent.tools.offload import INLINE, run_sized
from acp_agent.tools.paths import Target, check_regular, open_regular, reporting, resolve, shown_path
from acp_agent.tools.publish import replace_file
from acp_agent.tools.replacing import Replaced, replace
from acp_agent.tools.views import is_error, meta_diffs, meta_of, result_text

MAX_BYTES = 64 * 1024 * 1024
"""Files longer than this are not edited: the whole text is held while it is changed."""


class EditArguments(Struct, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool | None = None


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {
            "type": "string",
            "description": "The file, absolute or relative to the working directory.",
        },
        "old_string": {"type": "string", "description": "The text to replace, as it stands in the file."},
        "new_string": {"type": "string", "description": "The text to put there."},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence, not just a single one."},
        **ESCALATION,
    },
    "required": ["file_path", "old_string", "new_string"],
}


class Edit:
    name = "edit"
    description = (
        "Replace a piece of a text file. The file must have been read in this session before. old_string must "
        "match exactly, indentation included, and only once, unless replace_all is set. The line numbers that "
        "read shows are not part of the file."
    )
    parameters = _PARAMETERS
    access = Access.EDIT
    effect = Effect.WORLD
    parallel = False

    def decode(self, arguments: str) -> EditArguments:
        args = decode_arguments(self.name, arguments, _DECODER)
        if not args.file_path:
            raise invalid(self.name, "file_path: expected a path, got an empty string")
        if not args.old_string:
            raise invalid(self.name, "old_string: expected text to replace, got an empty string; "
                                     "to create a file or replace all of it, use write")
        if args.old_string == args.new_string:
            raise invalid(self.name, "new_string: expected a text different from old_string")
        return args

    def announce(self, args: EditArguments, cwd: Path) -> CallView:
        shown = shown_path(args.file_path, cwd)
        change = Diff(shown, args.new_string, args.old_string)
        return CallView(f"Edit {args.file_path}", Kind.edit, (Location(shown),), (change,))

    async def preview(self, args: EditArguments, context: ToolContext) -> tuple[Diff, ...]:
        try:
            return await _preview(args, context)
        except (ToolFailure, OSError):
            return ()

    def present(self, args: EditArguments, result: ToolResult, cwd: Path) -> ResultView:
        text = result_text(result)
        if is_error(result):
            return ResultView(text)
        diffs = meta_diffs(result.meta, shown_path(args.file_path, cwd))
        return ResultView(None if diffs else text, diffs)

    async def run(self, args: EditArguments, context: ToolContext) -> Outcome:
        target = resolve(args.file_path, context, self.name)
        editor = editor_for(target, context)
        with reporting(target, self.name):
            if editor is not None:
                return await _edit_through(editor, target, args, context.seen)
            size = check_regular(target, self.name).st_size
            seen = _require_seen(target, context.seen)
            _check_size(target, size)
            return await run_sized(size, _edit, target, args, seen)


def _require_seen(target: Target, seen: Mapping[str, str | None]) -> str:
    refusal = f'edit requires reading "{target.shown}" first — read the file, then retry'
    return require_seen(target, seen, refusal)


def _check_size(target: Target, size: int) -> None:
    if size > MAX_BYTES:
        raise ToolFailure(
            f'cannot edit "{target.shown}": it is longer than {MAX_BYTES // 1024 // 1024} MiB',
            "FsError", "FS_TOO_LARGE",
        )


async def _edit_through(
    editor: Editor, target: Target, args: EditArguments, seen: Mapping[str, str | None]
) -> Outcome:
    held = await read_through(editor, target, "edit")
    require_unchanged(target, _require_seen(target, seen), held.version)
    _check_size(target, len(held.data))
    after = _after(target, args, held.data)
    return _outcome(target, args, held.data, after, await write_through(editor, target, "edit", after, held))


def _edit(target: Target, args: EditArguments, seen: str) -> Outcome:
    with open_regular(target, "edit") as file:
        before, state = _read_all(file), os.fstat(file)
    require_unchanged(target, seen, version_of_content(before, state))
    after = _after(target, args, before)
    return _outcome(target, args, before, after, version_of_content(after, replace_file(target, after, state)))


def _after(target: Target, args: EditArguments, before: bytes) -> bytes:
    """The file's new content."""
    return _replaced(target, args, before.decode("utf-8", "surrogateescape")).text.encode("utf-8", "surrogateescape")


def _outcome(target: Target, args: EditArguments, before: bytes, after: bytes, version: str) -> Outcome:
    done = (
        f"The file {target.shown} has been updated. All occurrences were successfully replaced."
        if args.replace_all
        else f"The file {target.shown} has been updated successfully."
    )
    changed = hunks(args.file_path, _readable(before), _readable(after))
    observed = (Observation(target.real, version),)
    return Outcome(Outcome.text(done).content, meta=meta_of(changed), observed=observed)


def _replaced(target: Target, args: EditArguments, text: str) -> Replaced:
    """The edited text, once it is clear that `old_string` means one place (or all are meant)."""
    replaced = replace(text, args.old_string, args.new_string)
    if replaced.count == 0:
        raise ToolFailure(f'old_string was not found in "{target.shown}"', "FsError", "FS_EDIT_NOT_FOUND")
    if replaced.count > 1 and not args.replace_all:
        raise ToolFailure(
            f'old_string occurs {replaced.count} times in "{target.shown}" — make it more specific, '
            "or set replace_all to change every occurrence",
            "FsError", "FS_AMBIGUOUS_EDIT",
        )
    return replaced


def _read_all(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, INLINE):
        pieces.append(piece)
    return b"".join(pieces)


def _readable(data: bytes) -> str:
    return data.decode("utf-8", "replace")


async def _preview(args: EditArguments, context: ToolContext) -> tuple[Diff, ...]:
    target = resolve(args.file_path, context, "edit")
    data = await _held(target, context)
    if data is None:
        return (Diff(target.shown, args.new_string, args.old_string),)
    before = _readable(data)
    after = _replaced(target, args, before).text
    return tuple(Diff(target.shown, hunk.new_text, hunk.old_text) for hunk in hunks(args.file_path, before, after))


async def _held(target: Target, context: ToolContext) -> bytes | None:
    """The file's content; None when it is too long to be looked at."""
    editor = editor_for(target, context)
    if editor is not None:
        data = (await read_through(editor, target, "edit")).data
        return data if len(data) <= BOUND else None
    if check_regular(target, "edit").st_size > BOUND:
        return None
    with open_regular(target, "edit") as file:
        return _read_all(file)


_DECODER = JsonDecoder(EditArguments)

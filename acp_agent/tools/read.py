"""The `read` tool: numbered lines of a text file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import JsonDecoder, decode_arguments, invalid, whole
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
from acp_agent.tools.editor import Editor, editor_for, read_through
from acp_agent.tools.observed import Versioner
from acp_agent.tools.offload import INLINE
from acp_agent.tools.paths import Target, check_regular, open_regular, reporting, resolve, shown_path
from acp_agent.tools.views import fenced, is_error, result_text
from acp_agent.tools.window import MAX_LINES, BinaryFile, Page, Window

_CHUNK = 256 * 1024


class ReadArguments(Struct, frozen=True):
    file_path: str
    offset: float | None = None
    limit: float | None = None


class ReadRequest(Struct, frozen=True):
    """`file_path` as the model wrote it; `offset` from 1, `limit` in lines."""

    file_path: str
    offset: int
    limit: int


class Stop:
    """Set by who no longer wants the result of a thread."""

    asked = False


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {
            "type": "string",
            "description": "The file, absolute or relative to the working directory.",
        },
        "offset": {"type": "number", "description": "Number of the first line to show, counted from 1."},
        "limit": {"type": "number", "description": "How many lines to show, at most 2000."},
    },
    "required": ["file_path"],
}


class Read:
    name = "read"
    description = (
        "Read a text file. Lines come numbered. At most 2000 lines, 50 KiB in total and 2000 characters of a line "
        "are shown at once; page through a longer file with offset and limit. A file must be read before it can "
        "be edited or overwritten."
    )
    parameters = _PARAMETERS
    access = Access.READ
    effect = Effect.WORLD
    parallel = True

    def decode(self, arguments: str) -> ReadRequest:
        raw = decode_arguments(self.name, arguments, _DECODER)
        if not raw.file_path:
            raise invalid(self.name, "file_path: expected a path, got an empty string")
        offset = whole(self.name, "offset", raw.offset, 1)
        return ReadRequest(raw.file_path, offset, whole(self.name, "limit", raw.limit, MAX_LINES, most=MAX_LINES))

    def announce(self, args: ReadRequest, cwd: Path) -> CallView:
        location = Location(shown_path(args.file_path, cwd), args.offset)
        part = "" if args.offset == 1 else f" from line {args.offset}"
        return CallView(f"Read {args.file_path}{part}", Kind.read, (location,))

    async def preview(self, args: ReadRequest, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: ReadRequest, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        text = result_text(result)
        return ResultView(text if is_error(result) else fenced(_body(text)))

    async def run(self, args: ReadRequest, context: ToolContext) -> Outcome:
        target = resolve(args.file_path, context, self.name, context.spill)
        editor = editor_for(target, context)
        if editor is not None and editor.reads:
            return await _read_through(editor, target, args)
        with reporting(target, self.name):
            size = check_regular(target, self.name).st_size
        stop = Stop()
        if size <= INLINE:
            return _outcome(target, *_read(target, args, stop))
        from anyio import to_thread

        try:
            return _outcome(target, *await to_thread.run_sync(_read, target, args, stop, abandon_on_cancel=True))
        finally:
            stop.asked = True


async def _read_through(editor: Editor, target: Target, args: ReadRequest) -> Outcome:
    """The page asked for of what the editor holds. All of it is fetched: a version is one of the whole file."""
    with reporting(target, "read"):
        held = await read_through(editor, target, "read")
    window = Window(args.offset, args.limit)
    _feed(window, held.data, target)
    return _outcome(target, _page(window, args, target), held.version)


def _read(target: Target, args: ReadRequest, stop: Stop) -> tuple[Page, str]:
    """The page asked for and the version of the very bytes it was cut from."""
    window, versioner = Window(args.offset, args.limit), Versioner()
    with reporting(target, "read"), open_regular(target, "read") as file:
        while not stop.asked and (data := os.read(file, _CHUNK)):
            versioner.update(data)
            _feed(window, data, target)
        version = versioner.version(os.fstat(file))
    return _page(window, args, target), version


def _feed(window: Window, data: bytes, target: Target) -> None:
    try:
        window.feed(data)
    except BinaryFile:
        raise ToolFailure(f'cannot read "{target.shown}": it is a binary file', "FsError", "FS_BINARY") from None


def _page(window: Window, args: ReadRequest, target: Target) -> Page:
    """The window once all bytes went by."""
    window.finish()
    if args.offset > max(window.total, 1):
        raise ToolFailure(
            f'cannot read "{target.shown}" from line {args.offset}: it has {window.total} lines',
            "FsError", "FS_OFFSET_PAST_END",
        )
    return Page(args.offset, tuple(window.lines), window.total, window.capped)


def _outcome(target: Target, page: Page, version: str) -> Outcome:
    numbered = list(enumerate(page.lines, page.offset))
    body = [f"{number}: {text}" for number, text in numbered]
    envelope = [
        f"<path>{target.shown}</path>", "<type>file</type>", "<content>", *body, "", page.footer, "</content>",
    ]
    meta = {
        "path": target.shown,
        "offset": page.offset,
        "lines": [{"number": number, "text": text} for number, text in numbered],
        "totalLines": page.total,
    }
    text = Outcome.text("\n".join(envelope), meta=meta)
    return Outcome(text.content, meta=meta, observed=(Observation(target.real, version),))


def _body(text: str) -> str:
    """The numbered lines and the footer, without the envelope around them."""
    _, found, inside = text.partition("\n<content>\n")
    return inside.removesuffix("\n</content>") if found else text


_DECODER = JsonDecoder(ReadArguments)

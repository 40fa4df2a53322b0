"""The client's editor as the place where files are: what is unsaved there wins over the disk.

Which path may be touched is decided before and elsewhere; here a file's text is fetched and handed over. Where the
editor takes only one of reading and writing, the disk serves the other.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Protocol

from msgspec import Struct

from acp_agent.tools.base import ToolContext, ToolFailure
from acp_agent.tools.observed import Versioner, version_of_content
from acp_agent.tools.offload import INLINE, run_sized
from acp_agent.tools.paths import Target, check_regular, is_inside, not_found, open_regular
from acp_agent.tools.publish import create_file, replace_file

EDITABLE = 4 * 1024 * 1024
"""Bytes up to which a file is the editor's business: no line of the protocol may grow near what readers take."""


class EditorError(Exception):
    """The editor did not do what it was asked.

    `missing` says that it knows no such file, `refused` that it answered with some error or other.
    """

    def __init__(self, message: str, *, missing: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.missing = missing
        self.refused = refused or missing


class Editor(Protocol):
    """The file services of a client. Paths are absolute; a service that is not offered is never used."""

    @property
    def reads(self) -> bool:
        """Whether it gives a file's text."""
        ...

    @property
    def writes(self) -> bool:
        """Whether it takes a file's text."""
        ...

    async def read(self, path: str) -> str:
        """All of a file's text as the user sees it. Raises `EditorError`."""
        ...

    async def write(self, path: str, text: str) -> None:
        """Make a file, or replace all of its text. Raises `EditorError`."""
        ...


class Held(Struct, frozen=True):
    """A file's content before a change. `state` is the file's on disk, None where only the editor has it."""

    data: bytes
    version: str
    state: os.stat_result | None


def editor_for(target: Target, context: ToolContext) -> Editor | None:
    """The editor, for a file that is its business: a text of a size that people edit, and not one that the agent
    itself left for the model to read.
    """
    editor = context.editor
    if editor is None or is_inside(target.real, os.path.realpath(context.spill)):
        return None
    with contextlib.suppress(OSError, ValueError):
        state = os.lstat(target.real)
        if stat.S_ISREG(state.st_mode) and state.st_size > EDITABLE:
            return None
    return editor


async def read_through(editor: Editor, target: Target, verb: str) -> Held:
    """A file's content from the editor, or from the disk where the editor does not give any.

    Raises `ToolFailure` for what is no regular file, is missing, or could not be fetched, and OSError.
    """
    state = _state(target, verb)
    if not editor.reads:
        if state is None:
            raise not_found(target, verb)
        return await run_sized(state.st_size, _from_disk, target, verb)
    try:
        data = (await editor.read(target.shown)).encode("utf-8", "replace")
    except EditorError as error:
        if error.refused and state is None:  # not every client has the right error for a file that is not there
            raise not_found(target, verb) from None
        raise _failed(target, verb, error) from None
    return Held(data, _version(data), state)


async def write_through(editor: Editor, target: Target, verb: str, data: bytes, held: Held | None) -> str:
    """Give a file its new content, in the editor where it takes any, else on disk; the new version.

    `held` is what it holds now; None makes a new file. What is no text stays on disk. Raises `ToolFailure`, and
    OSError.
    """
    text = _text(data) if editor.writes else None
    if text is not None:
        if len(data) > EDITABLE:
            raise ToolFailure(f'cannot {verb} "{target.shown}": an editor gets at most {EDITABLE // 1024 // 1024} MiB',
                              "FsError", "FS_TOO_LARGE")
        try:
            await editor.write(target.shown, text)
        except EditorError as error:
            raise _failed(target, verb, error) from None
        return _version(data)
    if held is None or held.state is None:
        return version_of_content(data, create_file(target, data))
    return version_of_content(data, replace_file(target, data, held.state))


def _state(target: Target, verb: str) -> os.stat_result | None:
    """The file's state on disk, None when it is not there. The editor may have a file that was never saved."""
    try:
        return check_regular(target, verb)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _from_disk(target: Target, verb: str) -> Held:
    pieces = []
    with open_regular(target, verb) as file:
        while piece := os.read(file, INLINE):
            pieces.append(piece)
        state = os.fstat(file)
    assert stat.S_ISREG(state.st_mode)
    data = b"".join(pieces)
    return Held(data, version_of_content(data, state), state)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _version(data: bytes) -> str:
    """A digest whatever the size: there is no file state to compare instead."""
    versioner = Versioner(limit=None)
    versioner.update(data)
    return versioner.digest()


def _failed(target: Target, verb: str, error: EditorError) -> ToolFailure:
    """A file that is on disk is not missing, whatever the editor knows of it."""
    return ToolFailure(f'cannot {verb} "{target.shown}" in the editor: {error.message}', "FsError", "FS_IO")

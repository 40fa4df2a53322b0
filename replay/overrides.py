"""`replay.override.json`: what to serve instead of recorded calls (format reference 2.5).

A bare list of entries is the primary lane's whole script. `{"patches": [{"at": n, "entry": ...}]}` replaces
single calls of it, counted from 0 in the order of the log; `at` equal to their number appends one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from acp_agent.providers.base import MAIN
from acp_agent.session.events import Chunk
from replay.fixture import PLACEHOLDER
from replay.problems import Findings
from replay.rows import SAFE
from replay.script import Action, Call, Chunks, Hang, Throw, as_pieces

_Text = Annotated[str, Meta(min_length=1)]


class _Entry(Struct, tag_field="kind", forbid_unknown_fields=True):
    pass


class _ChunksEntry(_Entry, tag="chunks", forbid_unknown_fields=True):
    chunks: list[Raw]


class _ThrowEntry(_Entry, tag="throw", forbid_unknown_fields=True):
    chunks: list[Raw]
    message: _Text
    code: _Text


class _HangEntry(_Entry, tag="hang", rename="camel", forbid_unknown_fields=True):
    ready_file: _Text | None = None


class _Patch(Struct, forbid_unknown_fields=True):
    at: Annotated[int, Meta(ge=0, le=SAFE)]
    entry: Raw


class _Patches(Struct, forbid_unknown_fields=True):
    patches: list[Raw]


class Replacement(Struct, frozen=True):
    """The whole script of the primary lane."""

    actions: Sequence[Action]


class Patches(Struct, frozen=True):
    """Single calls of the primary lane, by their place in its log."""

    actions: dict[int, Action]


class Override(Struct, frozen=True):
    """What an override file says. `placeholders`: a text in it may be filled from the live request."""

    file: str
    what: Replacement | Patches
    placeholders: bool

    def apply(self, derived: Sequence[Call], findings: Findings) -> list[Call]:
        """The primary lane's calls with this override in force."""
        if isinstance(self.what, Replacement):
            # Calls with another purpose keep their own scripts.
            others = [call for call in derived if call.purpose != MAIN]
            first = next(iter(derived), None)
            return [*(_overridden(first, action) for action in self.what.actions), *others]
        calls = list(derived)
        for at, action in sorted(self.what.actions.items()):
            if at > len(calls):
                findings.fault(f"a patch is at {at}, but the primary session has {len(derived)} recorded calls"
                               " (their number appends one)", self.file)
            elif at == len(calls):
                calls.append(_overridden(calls[-1] if calls else None, action))
            else:
                calls[at] = _overridden(calls[at], action, calls[at].purpose)
        return calls


def _overridden(near: Call | None, action: Action, purpose: str = MAIN) -> Call:
    """A call made by an override goes to the model of the recorded call it replaces or follows."""
    if near is None:
        return Call(purpose, action)
    return Call(purpose, action, header=near.header, context=near.context)


# ---------------------------------------------------------------- reading


class _Invalid(Exception):
    """What is wrong, and where in the file."""


def load(path: Path, findings: Findings) -> Override | None:
    """An override file. Faults go to `findings`; None where there are any."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        findings.fault(f"the override file cannot be read ({error.strerror}); check its permissions", file)
        return None
    try:
        return Override(file, _document(data), PLACEHOLDER in data)
    except _Invalid as error:
        findings.fault(f"{error}; correct the override file", file)
        return None


def _document(data: bytes) -> Replacement | Patches:
    try:
        whole = msgspec.json.decode(data, type=list[Raw] | _Patches)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Invalid(f"neither a list of entries nor {{\"patches\": [...]}}: {error}") from None
    if isinstance(whole, list):
        return Replacement([_action(entry, f"entry {at}") for at, entry in enumerate(whole)])
    actions: dict[int, Action] = {}
    for number, raw in enumerate(whole.patches):
        patch = _decode(raw, _Patch, f"patch {number}")
        if patch.at in actions:
            raise _Invalid(f"patch {number}: an earlier patch is at {patch.at} too")
        actions[patch.at] = _action(patch.entry, f"patch {number}")
    return Patches(actions)


def _action(raw: Raw, where: str) -> Action:
    entry = _decode(raw, _ChunksEntry | _ThrowEntry | _HangEntry, where)
    if isinstance(entry, _HangEntry):
        if entry.ready_file is not None and not _stays_inside(entry.ready_file):
            raise _Invalid(f"{where}: readyFile must be a path inside the session's working directory,"
                           f" not {entry.ready_file!r}")
        return Hang(entry.ready_file)
    chunks = [_decode(chunk, Chunk, f"{where}.chunks[{at}]") for at, chunk in enumerate(entry.chunks)]
    if isinstance(entry, _ThrowEntry):
        return Throw(as_pieces(chunks), entry.message, entry.code)
    return Chunks(as_pieces(chunks))


def _stays_inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def _decode(raw: Raw, wanted: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Invalid(f"{where}: {error}") from None

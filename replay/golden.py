"""A golden directory: reading it, and writing what a run gives. One scenario is one directory of the tree.

    input.json             the script                                    written by people
    workspace/             seed files                                    written by people
    replay.override.json   what to serve instead of recorded calls       written by people
    model.script           what a scripted model said when it was made   written by people
    session.jsonl          the first root's log, recording and expectation in one
    session.<n>.jsonl      every other session's, as `replay.lineage` orders them, n from 1 without gaps
    stdout.jsonl           the agent's lines in canonical order
    files.json             what the run did to the workspace
    ../_pins               system prompts and tool schemas (`replay.pins`)

Logs are projected and packed canonically (`replay.logform`), so each directory is a replay directory too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from acp_agent.errors import LogDamaged
from acp_agent.session.events import SessionHeader
from acp_agent.stores.layout import MAIN_LOG, child_log
from replay import logform
from replay.conversation import as_object
from replay.fixture import name_order
from replay.lineage import arrange
from replay.logform import LogEvent, LogForm
from replay.pins import GoldenError, Pins
from replay.snapshot import FileEntry, Normalised, SessionLog, WireFrame

WIRE = "stdout.jsonl"
FILES = "files.json"
INPUT = "input.json"


class Golden(Struct, frozen=True):
    """A golden as it stands. `expected` has its pins filled in; `missing` are generated files that are not there."""

    directory: Path
    expected: Normalised
    missing: tuple[str, ...]

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever recorded here."""
        return not self.expected.logs and {WIRE, FILES} <= set(self.missing)


def load_golden(directory: Path) -> Golden:
    """The golden in a directory, complete or not. Raises `GoldenError` for a file that cannot be read."""
    missing = tuple(name for name in (WIRE, FILES) if not (directory / name).exists())
    logs = _load_logs(directory, Pins(directory.parent))
    return Golden(directory, Normalised(load_wire(directory), logs, load_files(directory)), missing)


def log_names(directory: Path) -> list[str]:
    """The names of a golden's logs, the main one first."""
    return sorted((path.name for path in directory.glob("session*.jsonl")), key=name_order)


def read_log(path: Path) -> LogForm:
    """One log of a golden, its pins not filled in. Raises `GoldenError`."""
    try:
        return logform.read(path.read_bytes(), str(path))
    except LogDamaged as error:
        raise GoldenError(error.message, **error.facts) from None


def _load_logs(directory: Path, pins: Pins) -> tuple[SessionLog, ...]:
    forms = [read_log(directory / name) for name in log_names(directory)]
    kin = {id(one.form): one for one in arrange(forms, ()).files}
    logs = []
    for number, form in enumerate(forms, 1):
        place = kin.get(id(form))
        root, path = (0, (f"?file {number}",)) if place is None else (place.root, place.path)
        events = tuple(_expanded(event, pins) for event in form.events)
        logs.append(SessionLog(form.header.id, root, path, form.header, events))
    return tuple(logs)


def _expanded(event: LogEvent, pins: Pins) -> LogEvent:
    if event.type != "request/header":
        return event
    header = event.data["header"]
    filled = {key: pins.value(header[key]) for key in ("system", "tools") if key in header}
    return msgspec.structs.replace(event, data=event.data | {"header": header | filled})


def load_wire(directory: Path) -> tuple[WireFrame, ...]:
    """The lines of a golden's `stdout.jsonl`; () where there is none. Raises `GoldenError`."""
    path = directory / WIRE
    return tuple(_load_lines(path)) if path.exists() else ()


def _load_lines(path: Path) -> Iterator[WireFrame]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise GoldenError(f"{path}:{number}: broken line ({error}); restore it", file=str(path)) from None
        session = as_object(value.get("params")).get("sessionId")
        yield WireFrame(value, session if isinstance(session, str) else None)


def load_files(directory: Path) -> dict[str, FileEntry]:
    """What a golden's `files.json` says; {} where there is none. Raises `GoldenError`."""
    path = directory / FILES
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, FileEntry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GoldenError(f"{path}: {error}; restore it", file=str(path)) from None


# ---------------------------------------------------------------- writing


def harvest(run: Normalised, pins: Pins) -> dict[str, bytes]:
    """The generated files of a run's golden, by name. New system prompts and tool schemas are pinned."""
    names = [child_log(number) if number else MAIN_LOG for number in range(len(run.logs))]
    files = {name: log_text(log.header, log.events, pins) for name, log in zip(names, run.logs, strict=True)}
    return files | {WIRE: wire_text(run.wire), FILES: files_text(run.files)}


def log_text(header: SessionHeader, events: tuple[LogEvent, ...], pins: Pins) -> bytes:
    """A log's canonical text, its system prompt and tool schemas pinned."""
    return logform.write(LogForm("", header, tuple(_pinned(event, pins) for event in events)))


def _pinned(event: LogEvent, pins: Pins) -> LogEvent:
    if event.type != "request/header":
        return event
    header = dict(event.data["header"])
    for kind in ("system", "tools"):
        if kind in header:
            header[kind] = pins.pin("system" if kind == "system" else "tools", header[kind])
    return msgspec.structs.replace(event, data=event.data | {"header": header})


def wire_text(wire: Sequence[WireFrame]) -> bytes:
    """The content of `stdout.jsonl`."""
    return "".join(f"{frame.line}\n" for frame in wire).encode()


def files_text(files: Mapping[str, FileEntry]) -> bytes:
    """The content of `files.json`."""
    return msgspec.json.format(msgspec.json.encode(dict(sorted(files.items()))), indent=2) + b"\n"


def write_golden(directory: Path, run: Normalised) -> list[Path]:
    """Make the golden say what the run did; returns the files that changed, were made or removed.

    Touches nothing that did not change, nothing that people write, and other scenarios' pins never. After all
    scenarios are written, `replay.pins.settle` tidies the pins.
    """
    wanted = harvest(run, Pins(directory.parent))
    directory.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, data in wanted.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != data:
            _replace(path, data)
            changed.append(path)
    for name in log_names(directory):
        if name not in wanted:
            (directory / name).unlink()
            changed.append(directory / name)
    return changed


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds the old one or the new one."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)



"""What is wrong with a tree of goldens as it lies there: nothing is run.

Orphaned, missing, unread and uncanonical files; numbers with gaps; logs without their parent; pins that nobody
uses or that say the same; values that look machine-made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct

from acp_agent.stores.layout import MAIN_LOG, child_log
from replay import logform
from replay.golden import FILES, INPUT, WIRE, files_text, load_files, load_wire, log_names, read_log, wire_text
from replay.leftovers import leftovers
from replay.lineage import arrange
from replay.logform import LEFT_OUT, LogForm
from replay.names import token
from replay.pins import PINS, GoldenError, Pins, references

BY_HAND = frozenset({INPUT, "workspace", "replay.override.json", "model.script", "README.md"})
"""What people put into a scenario's directory."""


class TreeProblem(Struct, frozen=True):
    """One fault. `path` is the file or directory; `message` says what to do about it."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def check_tree(root: Path) -> list[TreeProblem]:
    """Every fault of the goldens below `root`; [] for a tree in order."""
    if not root.is_dir():
        return [TreeProblem(root, "there is no such directory of goldens")]
    problems: list[TreeProblem] = []
    for path in sorted(root.iterdir()):
        if path.name == PINS or not path.is_dir():
            continue
        problems += check_scenario(path)
    return [*problems, *_check_pins(root)]


def check_scenario(directory: Path, *, values: bool = True) -> Iterator[TreeProblem]:
    """The faults of one scenario's directory; pins are the tree's. `values` says whether ones that look machine-made
    count.
    """
    if not (directory / INPUT).exists():
        yield TreeProblem(directory, f"orphan: no {INPUT}, so nothing plays this; add the script or remove it")
    for name in (WIRE, FILES):
        if not (directory / name).exists():
            yield TreeProblem(directory / name, "missing; write the golden again")
    names = log_names(directory)
    known = BY_HAND | {WIRE, FILES, *names}
    for path in sorted(directory.iterdir()):
        if path.name not in known:
            yield TreeProblem(path, "orphan: nothing reads this; remove it")
    wanted = [child_log(number) if number else MAIN_LOG for number in range(len(names))]
    if names != wanted:
        yield TreeProblem(directory, f"the logs are {', '.join(names)}, they must be {', '.join(wanted)}")
    yield from _check_logs(directory, names, values)
    yield from _check_texts(directory, values)


def _check_logs(directory: Path, names: list[str], values: bool) -> Iterator[TreeProblem]:
    forms: list[LogForm] = []
    for name in names:
        try:
            forms.append(read_log(directory / name))
        except GoldenError as error:
            yield TreeProblem(directory / name, error.message)
    lineage = arrange(forms, ())
    for lost in lineage.lost:
        yield TreeProblem(Path(lost.file), f"orphan: its parent {lost.header.parent_session} has no log here")
    if len(forms) == len(names) and [one.form for one in lineage.files] != forms:
        order = ", ".join(Path(one.form.file).name for one in lineage.files)
        yield TreeProblem(directory, f"the logs are not in their order, which is {order}; write the golden again")
    for form in forms:
        yield from _check_log(form, values)


def _check_log(form: LogForm, values: bool) -> Iterator[TreeProblem]:
    path = Path(form.file)
    seed = form.header.seed_length
    if seed is not UNSET and seed > len(form.events):
        yield TreeProblem(path, f"seedLength is {seed}, and the log holds {len(form.events)} events")
    if any(event.type in LEFT_OUT for event in form.events) or logform.settled(form) != form:
        yield TreeProblem(path, "uncanonical: it holds events a golden leaves out or orders; write the golden again")
    elif logform.write(form) != path.read_bytes():
        yield TreeProblem(path, "uncanonical: its text is not the canonical one; write the golden again")
    for at, event in enumerate(form.events if values else ()):
        for left in leftovers(event.data, f"event {at} {event.type}"):
            yield TreeProblem(path, str(left))


def _check_texts(directory: Path, values: bool) -> Iterator[TreeProblem]:
    try:
        wire, files = load_wire(directory), load_files(directory)
    except GoldenError as error:
        yield TreeProblem(directory, error.message)
        return
    for name, text in ((WIRE, wire_text(wire)), (FILES, files_text(files))):
        path = directory / name
        if path.exists() and path.read_bytes() != text:
            yield TreeProblem(path, "uncanonical: its text is not the canonical one; write the golden again")
    for at, frame in enumerate(wire if values else (), 1):
        for left in leftovers(frame.value, f"line {at}"):
            yield TreeProblem(directory / WIRE, str(left))


def _check_pins(root: Path) -> Iterator[TreeProblem]:
    pins = Pins(root)
    files = pins.files()
    try:
        used = list(references(root))
    except (msgspec.DecodeError, KeyError, TypeError):
        return  # a broken log, told of already
    for path, kind, number in used:
        if (kind, number) not in files:
            yield TreeProblem(path, f"{token(kind, number)} has no pin; write the golden again")
    order = list(dict.fromkeys((kind, number) for _, kind, number in used))
    for kind in ("system", "tools"):
        numbers = [number for of, number in order if of == kind]
        if numbers != list(range(1, len(numbers) + 1)):
            yield TreeProblem(pins.directory, f"the {kind} pins are not numbered by first use; settle the pins")
    seen: dict[tuple[str, bytes], Path] = {}
    for (kind, number), path in files.items():
        if (kind, number) not in order:
            yield TreeProblem(path, "orphan: no log refers to this pin; settle the pins")
        other = seen.setdefault((kind, path.read_bytes()), path)
        if other != path:
            yield TreeProblem(path, f"says the same as {other.name}; write the goldens again")
    if pins.directory.is_dir():
        for path in sorted(pins.directory.iterdir()):
            if path not in files.values():
                yield TreeProblem(path, "orphan: this is no pin; remove it")

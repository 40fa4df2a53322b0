"""A difference between a golden and a run, and how it is shown."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct


class Category(enum.IntEnum):
    """What kind of thing differs, the most telling first."""

    SESSIONS = 0
    """A session too many or too few, or no golden at all."""
    BEHAVIOUR = 1
    """Tool calls, permissions, results' success, stop reasons, the tree of sessions, files, what was used up."""
    WORDING = 2
    """Texts."""
    VOLATILE = 3
    """Nothing but numbering, or a value that will differ every time."""


class Difference(Struct, frozen=True):
    """The first difference of its category in one place. `lines` show it in context, `-` golden, `+` run."""

    category: Category
    where: str
    what: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return render(self)


def render(difference: Difference) -> str:
    """The difference as text for a terminal: a headline, then its context indented."""
    head = f"{difference.category.name.lower()} · {difference.where}: {difference.what}"
    return "\n".join([head, *(f"    {line}" for line in difference.lines)])


def report(differences: Sequence[Difference]) -> str:
    """All differences, behaviour before wording."""
    return "\n\n".join(map(render, sorted(differences, key=lambda one: one.category)))


# ---------------------------------------------------------------- context

WIDTH = 150
"""Characters of a line that are shown."""


class Item(Struct, frozen=True):
    """One event or line as it is compared and shown.

    label      in a few words
    value      all that counts, as JSON values
    behaviour  canonical text of what it did; None for mere wording
    cited      canonical text of what only says where something else stands
    delta      whether it is a piece of a stream, of which a context shows no more than needed
    """

    label: str
    value: Any
    text: str
    behaviour: str | None
    cited: str = ""
    delta: bool = False


def context(golden: Sequence[Item], run: Sequence[Item], at_golden: int, at_run: int) -> tuple[str, ...]:
    """The lines around a difference, from both sides."""
    before = [f"  {label}" for label in _folded(run[:at_run])[-3:]]
    one = golden[at_golden] if at_golden < len(golden) else None
    other = run[at_run] if at_run < len(run) else None
    after_golden = [f"- {label}" for label in _folded(golden[at_golden + 1 :])[:2]]
    after_run = [f"+ {label}" for label in _folded(run[at_run + 1 :])[:2]]
    if [line[1:] for line in after_golden] == [line[1:] for line in after_run]:
        after_golden, after_run = [], [f"  {line[2:]}" for line in after_run]
    return (*before, *_pair(one, other), *after_golden, *after_run)


def _pair(one: Item | None, other: Item | None) -> list[str]:
    if one is None or other is None:
        shown = [("-", one), ("+", other)]
        return [f"{sign} {'(nothing more)' if item is None else clipped(item.label)}" for sign, item in shown]
    left, right = (one.label, other.label) if one.label != other.label else (one.text, other.text)
    start = _start(left, right)
    lines = [f"- {clipped(left, start)}", f"+ {clipped(right, start)}"]
    if one.label.split(" ")[0] == other.label.split(" ")[0]:
        lines += inner(one.value, other.value)
    return lines


def inner(one: Any, other: Any) -> list[str]:
    """Where inside two values they differ first, long texts line by line."""
    path, left, right = first_difference(one, other)
    if isinstance(left, str) and isinstance(right, str) and "\n" in left + right:
        return [f"  at {path or 'the top'}:", *(f"    {line}" for line in text_diff(left, right))]
    return [f"  at {path}"] if path else []


def text_diff(one: str, other: str) -> list[str]:
    """A short line by line diff of two texts."""
    import difflib

    lines = list(difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=2))[2:]
    if not lines:
        return ["(the texts differ in their line ends only)"]
    shown = [clipped(line) for line in lines[:24]]
    return shown if len(lines) <= 24 else [*shown, f"... {len(lines) - 24} more lines"]


def first_difference(one: Any, other: Any, path: str = "") -> tuple[str, Any, Any]:
    """The path to the first difference inside two JSON values, and what stands there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other or one[key] != other[key]:
                return first_difference(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    if isinstance(one, list) and isinstance(other, list):
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return first_difference(left, right, f"{path}[{at}]")
    return path, one, other


def _folded(items: Sequence[Item]) -> list[str]:
    return list(_fold(items))


def _fold(items: Sequence[Item]) -> Iterator[str]:
    """Labels, three or more deltas in a row as one."""
    at = 0
    while at < len(items):
        end = at
        while end < len(items) and items[end].delta:
            end += 1
        if end - at > 2:
            yield clipped(f"{items[at].label} ... {items[end - 1].label} ({end - at} deltas)")
            at = end
        else:
            yield clipped(items[at].label)
            at += 1


def _start(one: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def clipped(text: str, at: int = 0) -> str:
    """A line of `WIDTH` characters that shows position `at`."""
    line = text.replace("\n", "\\n")
    at += text[:at].count("\n")
    if len(line) <= WIDTH:
        return line
    kind, _, _ = line.partition(" ")
    if at <= WIDTH - 40:
        return f"{line[: WIDTH - 3]}..."
    begin = max(at - 50, len(kind))
    tail = "..." if begin + WIDTH - len(kind) < len(line) else ""
    return f"{kind} ...{line[begin : begin + WIDTH - len(kind) - 8]}{tail}"

"""What changed between two texts, as hunks small enough to log and to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from acp_agent.tools.views import Hunk

BOUND = 64 * 1024
"""Bytes of old or new text above which a change is not described (format reference 7.4)."""

CONTEXT = 3
"""Unchanged lines kept around a changed region."""

# Beyond these the matcher's time grows out of proportion, and the middle of the change becomes one hunk.
_MOST_LINES = 1_000_000
_MOST_PAIRS = 50_000

Region = tuple[int, int, int, int]
"""Half-open line ranges: old start, old end, new start, new end."""


def hunks(path: str, old: str, new: str) -> tuple[Hunk, ...]:
    """One hunk per changed region, in file order; none for equal texts or one above `BOUND`.

    Lines end at LF and are given without a trailing CR. A change of only the last newline is one hunk whose
    texts keep that newline.
    """
    if old == new or max(len(old.encode()), len(new.encode())) > BOUND:
        return ()
    old_lines, new_lines = _lines(old), _lines(new)
    if old_lines == new_lines:
        return _last_newline(path, old, new)
    return tuple(
        Hunk(path, "\n".join(old_lines[a:b]), "\n".join(new_lines[c:d]))
        for a, b, c, d in _with_context(_changes(old_lines, new_lines), len(old_lines), len(new_lines))
    )


def _lines(text: str) -> list[str]:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        lines.pop()
    return lines


def _last_newline(path: str, old: str, new: str) -> tuple[Hunk, ...]:
    if old.endswith("\n") == new.endswith("\n"):
        return ()
    tail = "\n".join(_lines(old)[-CONTEXT:])
    return (Hunk(path, tail + "\n" * old.endswith("\n"), tail + "\n" * new.endswith("\n")),)


def _changes(old: list[str], new: list[str]) -> Iterator[Region]:
    """The changed regions without context, in order."""
    start = _common_prefix(old, new)
    rest = _common_prefix(old[start:][::-1], new[start:][::-1])
    old_middle, new_middle = old[start : len(old) - rest], new[start : len(new) - rest]
    if not _worth_matching(old_middle, new_middle):
        yield start, len(old) - rest, start, len(new) - rest
        return
    from difflib import SequenceMatcher

    for tag, a, b, c, d in SequenceMatcher(None, old_middle, new_middle, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start + a, start + b, start + c, start + d


def _common_prefix(old: list[str], new: list[str]) -> int:
    count = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        count += 1
    return count


def _worth_matching(old: list[str], new: list[str]) -> bool:
    if not old or not new or len(old) * len(new) > _MOST_LINES:
        return False
    counts = Counter(new)
    return sum(counts[line] for line in old) <= _MOST_PAIRS


def _with_context(changes: Iterator[Region], old_size: int, new_size: int) -> list[Region]:
    """Regions widened by their context; those that then touch are one."""
    regions: list[Region] = []
    for a, b, c, d in changes:
        before, after = min(CONTEXT, a, c), min(CONTEXT, old_size - b, new_size - d)
        region = (a - before, b + after, c - before, d + after)
        if regions and region[0] <= regions[-1][1]:
            region = (regions[-1][0], region[1], regions[-1][2], region[3])
            regions.pop()
        regions.append(region)
    return regions

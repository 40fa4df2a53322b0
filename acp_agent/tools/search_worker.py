"""Finds files and lines. Runs as a process of its own and imports nothing but the standard library.

A pattern a model wrote can keep the regular-expression engine busy for hours, and nothing in a process can stop
that; a process of its own can be killed. Started by `searching.py` with the arguments `main` describes; prints
one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

PATHS_SHOWN = 100
MATCHES_SHOWN = 250
LINE_SHOWN = 500
MOST_ALTERNATIVES = 1000

SKIPPED = frozenset({".git"})
"""Directories that are never looked into."""

_PIECE = 1024 * 1024
"""Longest part of a line that is matched at once."""


class BadPattern(Exception):
    """The pattern cannot be used; the message says why."""


def main(arguments: list[str]) -> dict[str, object]:
    """`glob BASE PREFIX PATTERN SAVE` or `grep BASE PREFIX PATTERN INCLUDE ONLY`.

    BASE is the directory to search, PREFIX what its paths are shown with, SAVE the file for a list too long to
    show, INCLUDE a glob of file names ("" for all), ONLY the one file of BASE to look at ("" for all).
    """
    try:
        if arguments[0] == "glob":
            return glob(*arguments[1:])
        return grep(*arguments[1:])
    except BadPattern as error:
        return {"error": str(error)}


# ---------------------------------------------------------------- glob


def glob(base: str, prefix: str, pattern: str, save: str) -> dict[str, object]:
    """The files below `base` that match, sorted; of too many a sample from every top-level entry."""
    matcher = compile_glob(pattern)
    depth = None if "**" in pattern else pattern.count("/")
    found = sorted(path for path in walk(base, links=True, depth=depth) if matcher.fullmatch(path))
    if len(found) <= PATHS_SHOWN:
        return {"paths": [readable(prefix + path) for path in found], "total": len(found)}
    shown, entries = sample(found)
    return {
        "paths": [readable(prefix + path) for path in shown],
        "total": len(found),
        "entries": entries,
        "shown_entries": len({path.split("/", 1)[0] for path in shown}),
        "saved": save_list(save, [prefix + path for path in found]),
    }


def sample(found: list[str]) -> tuple[list[str], int]:
    """`PATHS_SHOWN` of the paths, one per top-level entry first, then a second one of each and so on; and how
    many entries there are. A long list must not look as if it were all one directory.
    """
    groups: dict[str, list[str]] = {}
    for path in found:
        groups.setdefault(path.split("/", 1)[0], []).append(path)
    shown: list[str] = []
    for turn in range(PATHS_SHOWN):
        shown.extend(group[turn] for group in groups.values() if turn < len(group))
        if len(shown) >= PATHS_SHOWN:
            break
    return shown[:PATHS_SHOWN], len(groups)


def save_list(path: str, lines: list[str]) -> bool:
    """Whether the list could be saved at `path`."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is slow to import
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.writelines(os.fsencode(line) + b"\n" for line in lines)
    except OSError:
        return False
    return True


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression for whole relative paths. Raises `BadPattern`.

    `*` and `?` stay within a name, `**` as a whole segment is any number of directories, `[...]` is a set of
    characters (`!` or `^` negates), `{a,b}` are alternatives, a backslash makes the next character plain.
    """
    alternatives = [_path_regex(alternative) for alternative in braces(pattern)]
    try:
        return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives), re.DOTALL)
    except re.error as error:
        raise BadPattern(f"not a valid glob pattern: {error}") from None


def braces(pattern: str) -> list[str]:
    """The patterns without braces that `pattern` stands for. Raises `BadPattern` for too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        group = _first_group(current)
        if group is None:
            done.append(current)
        else:
            start, end, options = group
            waiting.extend(current[:start] + option + current[end:] for option in reversed(options))
        if len(done) + len(waiting) > MOST_ALTERNATIVES:
            raise BadPattern(f"the braces stand for more than {MOST_ALTERNATIVES} patterns")
    return done


def _first_group(pattern: str) -> tuple[int, int, list[str]] | None:
    """Where the first brace group with a comma starts and ends, and its options."""
    stack: list[list[int]] = []
    found: tuple[int, int, list[str]] | None = None
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 1
        elif char == "{":
            stack.append([position])
        elif char == "," and stack:
            stack[-1].append(position)
        elif char == "}" and stack:
            marks = stack.pop()
            if len(marks) > 1 and (found is None or marks[0] < found[0]):
                ends = [*marks[1:], position]
                options = [pattern[a + 1 : b] for a, b in zip(marks, ends, strict=True)]
                found = (marks[0], position + 1, options)
        position += 1
    return found


def _path_regex(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    out = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            out += ".*" if last else "(?:[^/]+/)*"
        else:
            out += _name_regex(part) + ("" if last else "/")
    return out


def _name_regex(part: str) -> str:
    out, position = "", 0
    while position < len(part):
        char = part[position]
        position += 1
        if char == "*":
            out += "[^/]*"
            position += len(part[position:]) - len(part[position:].lstrip("*"))
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := _set_end(part, position)) > 0:
            out += _set_regex(part[position:end])
            position = end + 1
        else:
            if char == "\\" and position < len(part):
                char, position = part[position], position + 1
            out += re.escape(char)
    return out


def _set_end(part: str, start: int) -> int:
    """Where the set ends whose first character is at `start`; a "]" in first place belongs to it. -1: nowhere."""
    negated = part[start : start + 1] in ("!", "^")
    return part.find("]", start + negated + 1)


def _set_regex(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    members = inside[1:] if negated else inside
    escaped = members.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    for char in "&~|":
        escaped = escaped.replace(char, "\\" + char)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"


# ---------------------------------------------------------------- grep


def grep(base: str, prefix: str, pattern: str, include: str, only: str) -> dict[str, object]:
    """The lines that match, by file in the order of paths; how many in all."""
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"not a valid regular expression: {error}") from None
    wanted = compile_glob(include if "/" in include else f"**/{include}") if include else None
    paths = [only] if only else sorted(walk(base, links=False, depth=None))
    files: list[dict[str, object]] = []
    total = 0
    for path in paths:
        if wanted is not None and not only and not wanted.fullmatch(path):
            continue
        matches: list[dict[str, object]] = []
        for number, line in matching_lines(os.path.join(base, path), expression):  # noqa: PTH118 - as above
            total += 1
            if total <= MATCHES_SHOWN:
                matches.append({"lineNumber": number, "line": shown_line(line)})
        if matches:
            files.append({"path": readable(prefix + path), "matches": matches})
    return {"files": files, "total": total}


def matching_lines(path: str, expression: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Number and text of each matching line; nothing for a binary or unreadable file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(file, "rb") as data:
        try:
            if b"\0" in data.peek(8192)[:8192]:
                return
            number, fresh, matched = 1, True, False
            while piece := data.readline(_PIECE):
                matched = matched and not fresh
                text = piece.decode("utf-8", "replace").rstrip("\r\n")
                if not matched and expression.search(text):
                    matched = True
                    yield number, text
                fresh = piece.endswith(b"\n")
                number += fresh
        except OSError:
            return


def shown_line(line: str) -> str:
    """The line, cut where it is too long to show."""
    return line if len(line) <= LINE_SHOWN else f"{line[:LINE_SHOWN]}... (line truncated to {LINE_SHOWN} chars)"


# ---------------------------------------------------------------- files


def walk(base: str, *, links: bool, depth: int | None) -> Iterator[str]:
    """Paths of the regular files below `base`, relative to it, in no order. Links to directories are not
    followed; links to files count if `links`. `depth` is how many directories deep to go (None: all).
    """
    waiting = [("", 0)]
    while waiting:
        directory, level = waiting.pop()
        try:
            entries = list(os.scandir(f"{base}/{directory}"))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and (depth is None or level < depth):
                    waiting.append((f"{directory}{entry.name}/", level + 1))
            elif _is_file(entry, links=links):
                yield directory + entry.name


def _is_file(entry: os.DirEntry[str], *, links: bool) -> bool:
    try:
        return entry.is_file(follow_symlinks=links)
    except OSError:
        return False


def readable(path: str) -> str:
    """A path that can be written as UTF-8: undecodable bytes of a name become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])))

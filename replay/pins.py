"""System prompts and tool schemas of goldens, kept once for each distinct version in files that can be read.

`_pins/system-<n>.md` is a prompt as it stands, `_pins/tools-<n>.json` a list of tool schemas, indented. Logs hold
`{{system:<n>}}` and `{{tools:<n>}}` in their place. A pin never changes under a log that refers to it: what is
new gets a new number, and `settle` numbers what is left by first use once all goldens are written.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from acp_agent.errors import AgentError
from replay.names import token

PINS = "_pins"
Kind = Literal["system", "tools"]
_SUFFIX: dict[Kind, str] = {"system": ".md", "tools": ".json"}
_FILE = re.compile(r"(system|tools)-([1-9]\d*)\.(md|json)")
_PINNED = re.compile(r"\{\{(system|tools):([1-9]\d*)\}\}")
_ROW = b'{"type":"request/header",'


class GoldenError(AgentError):
    """A golden directory cannot be used as it is: names the file and what to do."""


def pin_text(kind: Kind, value: Any) -> str:
    """A pin's file content."""
    if kind == "system":
        return str(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


class Pins:
    """The pins of one tree of goldens: the directory above the scenarios'."""

    def __init__(self, root: Path) -> None:
        self.directory = root / PINS

    def files(self) -> dict[tuple[Kind, int], Path]:
        """The pins by kind and number."""
        found: dict[tuple[Kind, int], Path] = {}
        if not self.directory.is_dir():
            return found
        for path in self.directory.iterdir():
            match = _FILE.fullmatch(path.name)
            if match is not None and _SUFFIX[_kind(match[1])] == f".{match[3]}":
                found[_kind(match[1]), int(match[2])] = path
        return dict(sorted(found.items()))

    def value(self, pinned: Any) -> Any:
        """What a token in a log stands for; anything else as it is. Raises `GoldenError` for a missing pin."""
        match = _PINNED.fullmatch(pinned) if isinstance(pinned, str) else None
        if match is None:
            return pinned
        kind = _kind(match[1])
        path = self.directory / _name(kind, int(match[2]))
        try:
            text = path.read_bytes().decode()
            return text if kind == "system" else msgspec.json.decode(text)
        except OSError as error:
            raise GoldenError(f"{path}: {pinned} stands for this file, and it cannot be read ({error.strerror});"
                              " restore it, or write the golden again", file=str(path)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GoldenError(f"{path}: broken pin ({error}); restore it", file=str(path)) from None

    def pin(self, kind: Kind, value: Any) -> str:
        """The token for a value, pinning it if it is new. Safe beside other processes that pin.

        A value that is a token already, of this kit or of another, stays.
        """
        if isinstance(value, str) and (kind == "tools" or re.fullmatch(r"\{\{[^{}]*\}\}", value)):
            return value
        text = pin_text(kind, value).encode()
        while True:
            taken = {number: path for (of, number), path in self.files().items() if of == kind}
            for number, path in taken.items():
                if path.read_bytes() == text:
                    return token(kind, number)
            number = next(number for number in range(1, len(taken) + 2) if number not in taken)
            if self._create(self.directory / _name(kind, number), text):
                return token(kind, number)

    def _create(self, path: Path, text: bytes) -> bool:
        """Make a file with all its content at once; False where another process was first."""
        self.directory.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            beside.write_bytes(text)
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        return True


def _kind(name: str) -> Kind:
    return "system" if name == "system" else "tools"


def _name(kind: Kind, number: int) -> str:
    return f"{kind}-{number}{_SUFFIX[kind]}"


# ---------------------------------------------------------------- numbering


def references(root: Path) -> Iterator[tuple[Path, Kind, int]]:
    """Every use of a pin in the logs of a tree, in the order of directories, files and lines."""
    for path in log_files(root):
        for line in path.read_bytes().split(b"\n"):
            if line.startswith(_ROW):
                yield from ((path, _kind(kind), number) for kind, number in _used(line))


def _used(row: bytes) -> Iterator[tuple[str, int]]:
    header = msgspec.json.decode(row)["data"]["header"]
    for value in (header.get("system"), header.get("tools")):
        match = _PINNED.fullmatch(value) if isinstance(value, str) else None
        if match is not None:
            yield match[1], int(match[2])


def log_files(root: Path) -> list[Path]:
    """The logs of a tree's goldens, `session.2.jsonl` before `session.10.jsonl`."""
    paths = [path for path in root.glob("*/session*.jsonl") if path.parent.name != PINS]
    return sorted(paths, key=lambda path: (path.parent.name, len(path.name), path.name))


def settle(root: Path) -> list[Path]:
    """Drop pins that no log uses and number the others by first use; returns what changed.

    Only once all goldens are written, and by one process. Raises `GoldenError` for a missing pin.
    """
    pins = Pins(root)
    files = pins.files()
    order: dict[tuple[Kind, int], None] = {}
    for path, kind, number in references(root):
        if (kind, number) not in files:
            raise GoldenError(f"{path}: {token(kind, number)} has no pin; write the golden again", file=str(path))
        order.setdefault((kind, number))
    counts: dict[Kind, int] = {"system": 0, "tools": 0}
    moved: dict[tuple[Kind, int], int] = {}
    for kind, number in order:
        counts[kind] += 1
        moved[kind, number] = counts[kind]
    if all(moved.get(pin) == pin[1] for pin in files):
        return []
    changed = [*_renumber_logs(root, moved), *_renumber_files(pins, files, moved)]
    return sorted(set(changed))


def _renumber_logs(root: Path, moved: dict[tuple[Kind, int], int]) -> Iterator[Path]:
    def renamed(match: re.Match[str]) -> str:
        return token(match[1], moved[_kind(match[1]), int(match[2])])

    for path in log_files(root):
        data = path.read_bytes()
        rows = data.split(b"\n")
        for at, row in enumerate(rows):
            if row.startswith(_ROW):
                record = msgspec.json.decode(row)
                header = record["data"]["header"]
                for key in ("system", "tools"):
                    if isinstance(header.get(key), str) and _PINNED.fullmatch(header[key]):
                        header[key] = _PINNED.sub(renamed, header[key])
                rows[at] = msgspec.json.encode(record)
        if (text := b"\n".join(rows)) != data:
            path.write_bytes(text)
            yield path


def _renumber_files(
    pins: Pins, files: dict[tuple[Kind, int], Path], moved: dict[tuple[Kind, int], int]
) -> Iterator[Path]:
    contents = {pin: path.read_bytes() for pin, path in files.items()}
    wanted = {pins.directory / _name(kind, to): contents[kind, number] for (kind, number), to in moved.items()}
    for pin, path in files.items():
        if path not in wanted:
            path.unlink()
            yield path
        elif contents[pin] == wanted[path]:
            del wanted[path]
    for path, data in wanted.items():
        path.write_bytes(data)
        yield path

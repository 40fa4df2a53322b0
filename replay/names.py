"""One-to-one names for what machines make up: ids, and the places a run happened to live in.

An id is given its name once, `{{session:1}}`, `{{message:2}}`, and has it in every place of the run; two ids never
share a name and one id never has two. Who numbers decides the order, so that scheduling cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from acp_agent.errors import AgentError
from acp_agent.stores.layout import project_key
from replay.paths import CWD, replace_path

HOME = "{{home}}"
ROOT = "{{root}}"
"""The directory that a run's workspace and home lie in."""
PROJECT = "{{project}}"
"""The workspace's path as a store spells it in one name."""

UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
TOKEN = re.compile(r"\{\{([a-z][a-zA-Z]*):(\d+)\}\}")
"""A numbered name: its kind and its number."""

_LONG = 12
"""An id shorter than this may be a word; in a text it is left alone."""


class AmbiguousNames(AgentError):
    """Ids of a run cannot be told apart one-to-one: names would hide who is who."""


def token(kind: str, number: int) -> str:
    """The name of the `number`-th id of a kind."""
    return f"{{{{{kind}:{number}}}}}"


class Names:
    """The names of one run's ids."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None

    def give(self, kind: str, raw: str) -> str:
        """The name of an id, the next of its kind where it has none yet.

        Raises `AmbiguousNames` for an id that is already one of another kind, or that reads like another id's name.
        """
        known = self._kinds.get(raw)
        if known is not None:
            if known != kind:
                raise AmbiguousNames(f"the id {raw} stands for a {known} and for a {kind}", id=raw)
            return self._names[raw]
        number = self._counts.get(kind, 0) + 1
        name = token(kind, number)
        if TOKEN.fullmatch(raw) and raw != name:
            raise AmbiguousNames(f"the id {raw} reads like a name, but its own name would be {name}", id=raw)
        self._counts[kind] = number
        self._kinds[raw], self._names[raw] = kind, name
        self._pattern = None
        return name

    def get(self, raw: str) -> str | None:
        """The name of an id; None for what is no id of this run."""
        return self._names.get(raw)

    def items(self) -> Iterator[tuple[str, str]]:
        """Every id with its name."""
        return iter(self._names.items())

    def id(self, raw: str) -> str:
        """What stands in the place of an id: its name, or what was derived from one (`<id>-thought`)."""
        name = self._names.get(raw)
        return self.text(raw) if name is None else name

    def text(self, text: str) -> str:
        """`text` with this run's ids replaced, where nothing of a longer word is touched.

        An id that could be an ordinary word is left alone here; as an id, in its place, it has its name.
        """
        if self._pattern is None:
            self._pattern = self._compiled()
        return self._pattern.sub(lambda match: self._names[match.group()], text)

    def _compiled(self) -> re.Pattern[str]:
        ids = sorted((raw for raw in self._names if _is_distinctive(raw)), key=len, reverse=True)
        choice = "|".join(map(re.escape, ids))
        return re.compile(rf"(?<![0-9A-Za-z])(?:{choice})(?![0-9A-Za-z])" if ids else r"(?!)")


def _is_distinctive(raw: str) -> bool:
    return len(raw) >= _LONG and any(char.isdigit() for char in raw) and not TOKEN.search(raw)


# ---------------------------------------------------------------- places


class Places:
    """The directories of one run, and every way to spell them."""

    def __init__(self, workspace: Sequence[str], home: str) -> None:
        """`workspace` are the spellings of its path. Where both lie in one directory, that is the run's root."""
        tokens: dict[str, str] = {}
        for spelling in workspace:
            _add(tokens, spelling, CWD)
        _add(tokens, home, HOME)
        self.root = _common(workspace[0], home) if workspace else None
        if self.root is not None:
            _add(tokens, self.root, ROOT)
        ordered = sorted(tokens.items(), key=lambda item: len(item[0]), reverse=True)
        self._spellings = [(spelled, token) for path, token in ordered for spelled in _spellings(path)]
        self._projects = {f"--{project_key(path)}--" for path, token in ordered if token == CWD}

    def text(self, text: str) -> str:
        """`text` with each place's path replaced, at path boundaries, plain or as a `file:` address."""
        for spelled, name in self._spellings:
            if spelled in text:
                text = replace_path(text, f"file://{spelled}", f"file://{name}")
                text = replace_path(text, spelled, name)
        if ROOT in text:
            for project in self._projects:
                text = text.replace(project, f"--{PROJECT}--")
        return text


def _add(tokens: dict[str, str], path: str, name: str) -> None:
    trimmed = path.rstrip("/")
    if trimmed.startswith("/"):
        tokens.setdefault(trimmed, name)
        if trimmed.startswith(("/tmp/", "/var/")):  # links into /private on one operating system
            tokens.setdefault(f"/private{trimmed}", name)


def _spellings(path: str) -> tuple[str, ...]:
    from urllib.parse import quote

    quoted = quote(path)
    return (path,) if quoted == path else (path, quoted)


def _common(workspace: str, home: str) -> str | None:
    """The directory both lie in, where it is deep enough to be the run's own."""
    one, other = PurePosixPath(workspace), PurePosixPath(home)
    shared = [parent for parent in one.parents if parent in other.parents]
    return str(shared[0]) if shared and len(shared[0].parts) > 2 else None


def check_one_to_one(names: Mapping[str, str]) -> None:
    """Raises `AmbiguousNames` where two different things have one name."""
    owners: dict[str, str] = {}
    for raw, name in names.items():
        other = owners.setdefault(name, raw)
        if other != raw:
            raise AmbiguousNames(f"{other} and {raw} would both become {name}", name=name)

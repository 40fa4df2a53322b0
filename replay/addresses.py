"""Where each recorded session stands: its root, and the delegations that lead to it (DESIGN 5.4).

Logs of this agent carry their address (`spawn` in the header). Other logs are given theirs: a child belongs to
the delegating call of its parent whose `prompt` is the child's first own user text, children of equal tasks in
the order they were created.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.ids import CallId
from acp_agent.providers.base import Hop, Path
from acp_agent.session.events import TextBlock, ToolContent, ToolError
from replay.fixture import ID_TOKEN, Recording, name_order
from replay.problems import Findings
from replay.rows import ChunkRow, SentRow, ToolCallRow, ToolResultRow, UserRow

T = TypeVar("T")

Families = dict[int, list[Recording]]
"""Children by the identity (`id()`) of their parent's recording."""

CHILD_RAN = ("hit its token limit", "was cancelled", "declined the task", "run failed", "ended abnormally")
"""What the headline of a failed child's result says (format reference 4.4): a child did exist."""

UNCERTAIN = frozenset({"ABORTED", "TOOL_OUTCOME_UNKNOWN"})
"""Failures after which a child may or may not exist."""


class Placed(Struct, frozen=True, eq=False):
    """A recorded session with its address. `path` is None for a child no delegating call can be found for."""

    recording: Recording
    root: Recording
    path: Path | None


def address(path: Path) -> str:
    """An address in words: `root`, or the delegating calls that lead to a child."""
    return " > ".join(["root", *map(str, path)])


def place(recordings: Sequence[Recording], findings: Findings) -> list[Placed]:
    """Every recorded session with its address: roots in the order of their first model call, each followed by
    its descendants.
    """
    roots = root_order([recording for recording in recordings if not recording.delegated])
    children = sorted((recording for recording in recordings if recording.delegated), key=_creation)
    families = _families(recordings, children, findings)
    placed: list[Placed] = []
    for root in roots:
        placed.append(Placed(root, root, ()))
        placed += _descend(root, root, (), families, findings)
    reached = {id(one.recording) for one in placed}
    for child in children:
        if id(child) not in reached and any(child in family for family in families.values()):
            findings.fault("this child and its parents name each other; restore the headers", child.file, 1)
    return placed


def root_order(roots: Sequence[Recording]) -> list[Recording]:
    """Roots as they first called a model: by what they logged of it, else main file, creation time, id."""
    ordinals = {id(root): first_root_ordinal(root) for root in roots}
    logged = all(ordinal is not None for ordinal in ordinals.values())

    def key(root: Recording) -> tuple[int, bool, int, str]:
        ordinal = ordinals[id(root)] if logged else 0
        main = not logged and root.file_name == "session.jsonl"
        return (ordinal or 0, not main, root.header.created_at, root.name)

    return sorted(roots, key=key)


def first_root_ordinal(root: Recording) -> int | None:
    """Its place among the recorded process's roots, where its first model call logged it."""
    for _, row in root.own_rows():
        if isinstance(row, SentRow):
            return None if row.data.root is UNSET else row.data.root
        if isinstance(row, ChunkRow):
            return None  # an answer that nothing asked for: this log knows no request/sent
    return None


def _creation(recording: Recording) -> tuple[int, tuple[bool, int, str]]:
    return (recording.header.created_at, name_order(recording.file_name))


def _descend(
    root: Recording, parent: Recording, path: Path | None, families: Families, findings: Findings
) -> Iterator[Placed]:
    taken: set[Hop] = set()
    for child, hop in _hops(parent, families.get(id(parent), []), findings):
        where = None if hop is None or path is None else (*path, hop)
        if hop is not None and hop in taken:
            findings.fault(f"two sessions stand at {address((*(path or ()), hop))}; remove one of them",
                           child.file, 1)
            where = None
        elif hop is not None:
            taken.add(hop)
        yield Placed(child, root, where)
        yield from _descend(root, child, where, families, findings)


# ---------------------------------------------------------------- families


def _families(
    recordings: Sequence[Recording], children: Sequence[Recording], findings: Findings
) -> Families:
    """Each parent's children in the order they were created."""
    families: Families = {}
    for child in children:
        parent = _parent(child, recordings, families)
        if parent is None:
            findings.fault(f"this is a delegated session, but its parent {child.header.parent_session} is not in"
                           " the directory; put the parent's log beside it", child.file, 1)
        else:
            families.setdefault(id(parent), []).append(child)
    return families


def _parent(
    child: Recording, recordings: Sequence[Recording], families: Families
) -> Recording | None:
    header = child.header
    named = [one for one in recordings if one.header.id == header.parent_session and one is not child]
    if header.parent_session != ID_TOKEN:
        return named[0] if named else None
    # Ids were taken out of this recording: depth and task have to tell.
    above = [one for one in named if one.header.delegation_depth == header.delegation_depth - 1]
    if len(above) <= 1:
        return above[0] if above else None
    task = first_task(child)
    for parent in above:
        asked = sum(delegation.prompt == task for delegation in delegations(parent))
        given = sum(first_task(other) == task for other in families.get(id(parent), ()))
        if asked > given:
            return parent
    return above[0]


def _hops(
    parent: Recording, children: Sequence[Recording], findings: Findings
) -> Iterator[tuple[Recording, Hop | None]]:
    """Each child with the delegation that made it, where one can be found."""
    unclaimed: list[Recording] = []
    claimed: set[CallId] = set()
    for child in children:
        spawn = child.header.spawn
        if spawn is UNSET:
            unclaimed.append(child)
        else:
            claimed.add(spawn.call_id)
            yield child, Hop(spawn.call_id, spawn.index)
    if not unclaimed:
        return
    calls = [call for call in delegations(parent) if call.call_id not in claimed]
    made = _match(calls, unclaimed)
    earlier: dict[CallId, int] = {}
    for at in sorted(made):
        call_id = calls[at].call_id
        yield made[at], Hop(call_id, earlier.get(call_id, 0))
        earlier[call_id] = earlier.get(call_id, 0) + 1
    matched = set(map(id, made.values()))
    for child in unclaimed:
        if id(child) not in matched:
            findings.doubt(f"no delegating call in {parent.file_name} asks for this child's task, so nothing can"
                           " ask for its recorded calls", child.file, 1)
            yield child, None


def _match(calls: Sequence[Delegation], children: Sequence[Recording]) -> dict[int, Recording]:
    """Which child each call (by position) made. Children and calls are in order; equal tasks pair up in order."""
    tasks: dict[str | None, list[Recording]] = {}
    for child in children:
        tasks.setdefault(first_task(child), []).append(child)
    idle = tasks.pop(None, [])
    made: dict[int, Recording] = {}
    for task, group in tasks.items():
        asked = [at for at, call in enumerate(calls) if call.prompt == task and call.fate is not Fate.REFUSED]
        sure = [at for at in asked if calls[at].fate is Fate.RAN]
        made.update(zip(sure if len(group) <= len(sure) else asked, group, strict=False))
    # A child that failed before its first message has no task: it takes a call nobody else answers for.
    free = [at for at, call in enumerate(calls) if at not in made and call.fate is not Fate.REFUSED]
    made.update(zip(free, idle, strict=False))
    return made


# ---------------------------------------------------------------- tasks and delegations


class Fate(enum.Enum):
    """What a recorded delegating call says of its child."""

    RAN = "ran"
    UNCERTAIN = "uncertain"
    REFUSED = "refused"


class Delegation(Struct, frozen=True):
    """A tool call with a `prompt` argument: it asks for a child."""

    call_id: CallId
    prompt: str
    fate: Fate


class _Arguments(Struct):
    prompt: str


class _Result(Struct):
    message: ToolContent
    error: ToolError | UnsetType = UNSET


class _Text(Struct):
    type: str
    text: str = ""


class _Kind(Struct):
    kind: str


class _Message(Struct):
    content: list[_Text]
    source: _Kind


_arguments = msgspec.json.Decoder(_Arguments).decode
_result = msgspec.json.Decoder(_Result).decode
_message = msgspec.json.Decoder(_Message).decode


def delegations(parent: Recording) -> list[Delegation]:
    """The session's own delegating calls, in order."""
    found: list[tuple[ToolCallRow, str]] = []
    results: dict[int, Fate] = {}
    for _, row in parent.own_rows():
        if isinstance(row, ToolCallRow) and (prompt := _prompt(row.data.arguments)) is not None:
            found.append((row, prompt))
        elif isinstance(row, ToolResultRow) and found:
            result = _decoded(_result, row.data)
            for at, (call, _) in enumerate(found):
                if result is not None and at not in results and call.data.call_id == result.message.source.call_id:
                    results[at] = _fate(result)
                    break
    return [
        Delegation(call.data.call_id, prompt, results.get(at, Fate.UNCERTAIN))
        for at, (call, prompt) in enumerate(found)
    ]


def _fate(result: _Result) -> Fate:
    if not any(block.is_error for block in result.message.content):
        return Fate.RAN
    if result.error is not UNSET and result.error.code in UNCERTAIN:
        return Fate.UNCERTAIN
    parts = (part for block in result.message.content for part in block.content)
    headline = next((part.text for part in parts if isinstance(part, TextBlock)), "").partition("\n")[0]
    return Fate.RAN if any(words in headline for words in CHILD_RAN) else Fate.REFUSED


def _prompt(arguments: str) -> str | None:
    decoded = _decoded(_arguments, arguments)
    return None if decoded is None else decoded.prompt


def first_task(child: Recording) -> str | None:
    """The child's first own user text; None where it never got one."""
    for _, row in child.own_rows():
        if isinstance(row, UserRow):
            message = _decoded(_message, row.data)
            if message is not None and message.source.kind in {"user", "coordinator"}:
                return "".join(part.text for part in message.content if part.type == "text")
    return None


def _decoded(decode: Callable[[Any], T], data: Any) -> T | None:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None

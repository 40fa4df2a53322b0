"""Which log is whose child, and the order in which a run's logs stand, whatever order they were made in.

Each root is followed by its descendants. Children stand by address: in the order of the delegating calls in
their parent's log, then by how often the call's id was used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, Struct

from acp_agent.providers.base import Hop
from acp_agent.session.events import SessionHeader
from replay.logform import LogForm

_LAST = sys.maxsize


class Kin(Struct, frozen=True):
    """A log with its place. `root` counts the roots from 0, in file order; `path` are the hops below it.

    A hop is written as the call's id, with `[index]` where the id was used before, or `?n` for the n-th child
    whose header names no call.
    """

    form: LogForm
    root: int
    path: tuple[str, ...]


class Lineage(Struct, frozen=True):
    """The logs as their files are numbered (`files`) and as their sessions are (`sessions`).

    Roots are filed in the order of their first model calls, in which a replay binds them, and numbered in the
    order the client made them. `lost` are children without a parent.
    """

    files: tuple[Kin, ...]
    sessions: tuple[Kin, ...]
    lost: tuple[LogForm, ...]


def arrange(forms: Sequence[LogForm], wire: Sequence[str], prompted: Mapping[str, int] | None = None) -> Lineage:
    """The lineage of a run's logs. `wire` are session ids in the order the client came to know them, `prompted` says
    which of the agent's processes a session's first prompt was sent to: each counts the roots anew.
    """
    process = prompted or {}
    known = {form.header.id for form in forms}
    lost = [form for form in forms if delegated(form.header) and form.header.parent_session not in known]
    roots = [form for form in forms if not delegated(form.header) or form in lost]
    places = {session: at for at, session in enumerate(wire)}

    def made(form: LogForm) -> tuple[int, int, str]:
        return (places.get(form.header.id, _LAST), form.header.created_at, form.header.id)

    def called(form: LogForm) -> tuple[int, int]:
        place = first_call(form)
        return (_LAST if place == _LAST else process.get(form.header.id, 0), place)

    filed = sorted(roots, key=lambda form: (*called(form), *made(form)))
    kin = {form.header.id: list(_family(form, root, forms)) for root, form in enumerate(filed)}
    return Lineage(
        tuple(one for form in filed for one in kin[form.header.id]),
        tuple(one for form in sorted(roots, key=made) for one in kin[form.header.id]),
        tuple(lost),
    )


def delegated(header: SessionHeader) -> bool:
    """Whether a parent's tool call made this session; a fork made by a client is a root."""
    if header.parent_session is UNSET:
        return False
    return header.origin == "subagent" or header.delegation_depth > 0 or header.spawn is not UNSET


def first_call(form: LogForm) -> int:
    """A root's place among those that called a model; its creation rank where only that is kept."""
    seed = form.header.seed_length
    for event in form.events[0 if seed is UNSET else seed :]:
        if event.type == "request/sent":
            root = event.data.get("root", _LAST)
            return root if isinstance(root, int) else _LAST
    return _LAST


def _family(form: LogForm, root: int, forms: Sequence[LogForm]) -> Iterator[Kin]:
    yield Kin(form, root, ())
    yield from _below(form, root, (), forms)


def _below(parent: LogForm, root: int, path: tuple[str, ...], forms: Sequence[LogForm]) -> Iterator[Kin]:
    if len(path) > len(forms):
        return  # headers that name each other
    calls: dict[str, int] = {}
    for event in parent.events:
        if event.type == "tool/call":
            calls.setdefault(event.data["callId"], len(calls))
    children = [form for form in forms if form.header.parent_session == parent.header.id and delegated(form.header)]

    def by_address(form: LogForm) -> tuple[int, str, int, int, str]:
        spawn = form.header.spawn
        if spawn is UNSET:
            return (_LAST, "", 0, form.header.created_at, form.header.id)
        return (calls.get(spawn.call_id, _LAST - 1), spawn.call_id, spawn.index, 0, form.header.id)

    for number, child in enumerate(sorted(children, key=by_address), 1):
        spawn = child.header.spawn
        hop = f"?{number}" if spawn is UNSET else str(Hop(spawn.call_id, spawn.index))
        yield Kin(child, root, (*path, hop))
        yield from _below(child, root, (*path, hop), forms)

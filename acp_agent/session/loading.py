"""Opening a stored root session for continuation: its log folded, its tree's open turns closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import UNSET, Struct

from acp_agent.errors import AgentError, InvalidParams, SessionNotFound, StoreError
from acp_agent.ids import CallId, SessionId
from acp_agent.session.directory import same_directory
from acp_agent.session.events import Event, SessionHeader
from acp_agent.session.log import SessionLog
from acp_agent.session.repair import repair
from acp_agent.session.session import Services
from acp_agent.stores.base import Continuation, SessionSummary, Store


class Loaded(Struct, frozen=True):
    """A root session's log open for writing; `history` are its settled events, those that closed its turn included.
    Whoever goes through it takes the events out: to free them all at once would hold everything else up.

    `children` says how many children each delegating call of the session made: the next one's index goes on from there.
    The open turns of its `descendants` are still to be closed (`open_descendant`).
    """

    log: SessionLog
    history: deque[Event]
    children: dict[CallId, int]
    descendants: Sequence[SessionSummary]


class Descendant(Struct, frozen=True):
    """What a session below a root says; `history` is as in `Loaded`."""

    header: SessionHeader
    history: deque[Event]


async def load_root(services: Services, session_id: SessionId, directory: Path) -> Loaded:
    """Open a stored root session to be continued in `directory`.

    Raises `SessionNotFound`, `SessionHeld`, `LogDamaged`, `StoreError`, and `InvalidParams` for a child's id and for a
    directory that is not the session's; nothing is held then.
    """
    opened = await _opened(services.store, session_id)
    log = SessionLog(opened.header, opened.appender, services.clock)
    try:
        _check_root(session_id, opened.root)
        _check_directory(opened.header, directory)
        await log.restore(opened.settled, opened.count, opened.time)
        tree = await services.store.tree(session_id)
        history = deque(opened.settled)
        history.extend(await repair(log))
        return Loaded(log, history, _children(session_id, tree), tree[1:])
    except BaseException:
        await give_up(log)
        raise


async def give_up(log: SessionLog) -> None:
    """Close the log of a session that is not going to be used; what cannot be stored is let go."""
    with anyio.CancelScope(shield=True), suppress(StoreError):
        await log.aclose()


async def _opened(store: Store, session_id: SessionId) -> Continuation:
    try:
        with anyio.CancelScope(shield=True):  # what is open must not get lost on its way here
            opened = await store.load(session_id)
    except StoreError:
        await refuse_child(store, session_id)
        raise
    return opened


async def refuse_child(store: Store, session_id: SessionId) -> None:
    """Raises `InvalidParams` for the id of a child, naming its root. An id that nothing can be said of passes."""
    try:
        tree = await store.tree(session_id)
    except (StoreError, SessionNotFound):
        return
    _check_root(session_id, tree[0].id)


def _check_root(session_id: SessionId, root: SessionId) -> None:
    if session_id != root:
        raise InvalidParams(f"sessionId: {session_id!r} is a child of the session {root!r}; use that one",
                            sessionId=session_id, root=root)  # fmt: skip


def _check_directory(header: SessionHeader, directory: Path) -> None:
    """A session goes on where it began, however that directory is spelt: what its history says of files is of there."""
    if header.cwd is not UNSET and not same_directory(header.cwd, directory):
        raise InvalidParams(f"cwd: the session {header.id!r} works in {header.cwd!r}, not in {str(directory)!r}; load "
                            "it with its own directory, or fork it to go on in another",
                            sessionId=header.id, cwd=header.cwd)  # fmt: skip


def _children(parent: SessionId, tree: Sequence[SessionSummary]) -> dict[CallId, int]:
    made: dict[CallId, int] = {}
    for child in tree:
        if child.parent == parent and child.spawn is not None:
            made[child.spawn.call_id] = max(made.get(child.spawn.call_id, 0), child.spawn.index + 1)
    return made


async def open_descendant(services: Services, session_id: SessionId) -> Descendant | None:
    """Close a descendant's open turn; its history. One that cannot be read or written must not stand in its root's way:
    None.
    """
    try:
        with anyio.CancelScope(shield=True):
            opened = await services.store.load(session_id)
            log = SessionLog(opened.header, opened.appender, services.clock)
            try:
                await log.restore(opened.settled, opened.count, opened.time)
                history = deque(opened.settled)
                history.extend(await repair(log))
            finally:
                await log.aclose()
    except AgentError as error:
        services.warn(f"the child session {session_id} is left as it is: {error.message}")
        return None
    return Descendant(opened.header, history)

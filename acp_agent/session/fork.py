"""Client-made forks: a new root session that begins with another one's ended turns."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import UNSET

from acp_agent.errors import SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.events import Event, SessionHeader, TurnEnd
from acp_agent.session.loading import give_up, refuse_child
from acp_agent.session.log import SessionLog
from acp_agent.session.session import Services, Session
from acp_agent.stores.base import Store


async def fork_root(
    services: Services, source_id: SessionId, source: Session | None, directory: Path
) -> tuple[SessionLog, deque[Event]]:
    """The log of a new root session with the ended turns of another root, and the events it inherited; both are stored.

    `source` is the other session where it is active, also in the middle of a turn. Without an ended turn there is
    nothing to inherit, and the fork is simply a new session. Raises `SessionNotFound`, `LogDamaged`, `StoreError`, and
    `InvalidParams` for a child's id; nothing is left then.
    """
    await refuse_child(services.store, source_id)
    cut = await _last_end(services.store, source_id) if source is None else source.log.state.last_end
    header = SessionHeader(
        id=services.ids.session(), created_at=services.clock.created_at(), cwd=str(directory), seed_length=cut or UNSET
    )
    log = SessionLog(header, services.store.create(header, header.id), services.clock)
    try:
        return log, await _inherit(services.store, log, source_id, cut)
    except BaseException:
        await discard(services.store, log)
        raise


async def discard(store: Store, log: SessionLog) -> None:
    """Take back a fork that nobody is told of."""
    await give_up(log)
    with anyio.CancelScope(shield=True), suppress(StoreError, SessionNotFound):
        await store.delete(log.header.id)


async def _inherit(store: Store, log: SessionLog, source_id: SessionId, cut: int) -> deque[Event]:
    if not cut:
        return deque()
    with anyio.CancelScope(shield=True):
        events = await store.fork(log.header.id, source_id, cut)
    await log.seed(events)
    await log.sync()
    return deque(events)


async def _last_end(store: Store, session_id: SessionId) -> int:
    """How many events a stored session had just after its newest turn/end; 0 before the first."""
    events = (await store.inspect(session_id)).events
    return next((event.seq + 1 for event in reversed(events) if isinstance(event.body, TurnEnd)), 0)

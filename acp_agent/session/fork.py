"""Client-made forks: a new root session that begins with another one's ended turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import UNSET, Struct

from acp_agent.errors import ProjectedLog, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.session.configuration import Choices
from acp_agent.session.events import Event, ImageBlock, SessionHeader
from acp_agent.session.loading import give_up, refuse_child
from acp_agent.session.log import SessionLog
from acp_agent.session.prompts import attachment
from acp_agent.session.session import Services, Session
from acp_agent.session.slices import in_slices
from acp_agent.session.state import SessionState
from acp_agent.session.stored_images import shown_content
from acp_agent.stores.base import Store


class Forked(Struct, frozen=True):
    """A fork's log, the events it inherited, and the one of its own that tells what its source's user chose since."""

    log: SessionLog
    inherited: deque[Event]
    choices: Event | None


async def fork_root(
    services: Services, source_id: SessionId, source: Session | None, directory: Path
) -> Forked:
    """A new root session with the ended turns of another root; all of it is stored.

    `source` is the other session where it is active, also in the middle of a turn. Without an ended turn there is
    nothing to inherit, and the fork is simply a new session. Raises `SessionNotFound`, `LogDamaged`, `StoreError`, and
    `InvalidParams` for a child's id; nothing is left then.
    """
    await refuse_child(services.store, source_id)
    state = await _stored_state(services.store, source_id) if source is None else source.log.state
    cut, choices = state.last_end, Choices.of(state)
    header = SessionHeader(
        id=services.ids.session(), created_at=services.clock.created_at(), cwd=str(directory), seed_length=cut or UNSET
    )
    log = SessionLog(header, services.store.create(header, header.id), services.clock)
    try:
        inherited = await _inherit(services.store, log, source_id, cut)
        await _tell_of_lost(services, log.header.id, source_id, inherited)
        return Forked(log, inherited, await _hand_down(choices, log))
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


async def _tell_of_lost(
    services: Services, fork_id: SessionId, source_id: SessionId, inherited: Iterable[Event]
) -> None:
    """Warn of images that a fork's history refers to and its source has not, or not as they were."""
    named = {about.attachment_id for event in inherited for block in shown_content(event.body)
             if isinstance(block, ImageBlock) and (about := attachment(block)) is not None}
    lost = sorted(named.difference(await services.store.blobs(fork_id))) if named else []
    for blob in lost:
        services.warn(f"the session {fork_id} is forked without the image {blob}: {source_id} has no sound copy of it")


async def _stored_state(store: Store, session_id: SessionId) -> SessionState:
    log = await store.inspect(session_id)
    if log.projected:
        raise StoreError(f"session {session_id!r}: {ProjectedLog.words}", sessionId=session_id)
    state = SessionState()
    await in_slices(state.apply, log.events)
    return state


async def _hand_down(choices: Choices, log: SessionLog) -> Event | None:
    """Tell a fork of what its source's user chose after the turns it inherited, if that is anything."""
    change = choices.beyond(Choices.of(log.state))
    if change is None:
        return None
    event = log.append(change)
    await log.sync()
    return event

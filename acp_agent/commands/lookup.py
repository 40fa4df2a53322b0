"""Which session a word on the command line means: a whole id, or the unique beginning of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from acp_agent.commands.work import Work, unknown
from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.stores.base import Page, Store

SHORTEST = 4
"""Characters of an id that may stand for it."""

_PAGE = 500
_NAMED = 8
"""Candidates named when a word could mean several sessions."""


async def pages(store: Store, cwd: str | None = None, limit: int | None = None) -> AsyncIterator[Page]:
    """A list's pages until its end, or until they hold `limit` sessions."""
    cursor: str | None = None
    while True:
        page = await store.list(cwd=cwd, cursor=cursor, limit=_PAGE if limit is None else min(limit, _PAGE))
        yield page
        cursor = page.cursor
        limit = None if limit is None else limit - len(page.sessions)
        if cursor is None or limit == 0:
            return


async def find(work: Work, word: str) -> SessionId:
    """The session that `word` means. A beginning is looked for among the roots first, then among their children.

    Raises `StoreError` when it means none or several.
    """
    if work.store.exists(SessionId(word)):
        return SessionId(word)
    found = await _beginning_with(work.store, word) if len(word) >= SHORTEST else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise StoreError(unknown(word, work.where))
    named = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    raise StoreError(f"{word!r} begins the ids of {len(found)} sessions: {named}; write more of the id")


async def _beginning_with(store: Store, word: str) -> list[SessionId]:
    roots: list[SessionId] = []
    refused: list[SessionId] = []
    async for page in pages(store):
        roots += [one.id for one in page.sessions]
        refused += [SessionId(one.name) for one in page.refused]
    found = [session for session in dict.fromkeys(roots + refused) if session.startswith(word)]
    return found or [child for root in roots for child in await _children(store, root) if child.startswith(word)]


async def _children(store: Store, root: SessionId) -> list[SessionId]:
    with suppress(SessionNotFound, LogDamaged):  # deleted or damaged since it was listed
        return [one.id for one in (await store.tree(root))[1:]]
    return []

"""`acp-agent sessions delete`: root sessions with everything that belongs to them."""

from __future__ import annotations

from acp_agent.commands.options import Usage
from acp_agent.commands.work import Command, Work, complain_of, say
from acp_agent.errors import AgentError, LogDamaged
from acp_agent.ids import SessionId

USAGE = Usage(
    "delete", "ID...", "Delete sessions with their children, blobs and kept tool output. Nothing is asked.",
    teaching="""
ID is a root session's whole id. A session that another process writes to is not deleted.

exit status: 0 when every ID was deleted, 1 when one was not""",
)


async def run(work: Work) -> int:
    failed = 0
    for operand in dict.fromkeys(work.given.operands):
        session = SessionId(operand)
        try:
            children = await _children(work, session)
            await work.store.delete(session)
        except AgentError as error:
            complain_of(error, work.where)
            failed += 1
            continue
        say(f"deleted {session}" + (f" and its children {', '.join(children)}" if children else ""))
    return 1 if failed else 0


async def _children(work: Work, session: SessionId) -> list[SessionId]:
    try:
        return [one.id for one in (await work.store.tree(session))[1:]]
    except LogDamaged:
        return []


COMMAND = Command(USAGE, run)

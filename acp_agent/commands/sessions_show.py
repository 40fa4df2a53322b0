"""`acp-agent sessions show`: what was said and done in a session, its children's part where it was delegated."""

from __future__ import annotations

from pathlib import Path

from acp_agent.clock import SystemClock
from acp_agent.commands.lookup import find
from acp_agent.commands.options import Flag, Usage
from acp_agent.commands.times import both, exactly
from acp_agent.commands.work import Command, Work, complain_of, say
from acp_agent.errors import SessionNotFound
from acp_agent.stores.packing import write_tree

USAGE = Usage(
    "show", "ID", "Show what was said and done in a session. A child's part stands where it was delegated.",
    (Flag("--json", "", "one JSON object: the moments in order, a child's in the one that made it"),),
    """
ID may be the beginning of an id (4 characters or more), as long as no other session's begins so. What a session
inherited is marked, and so are turns that were interrupted or have no end. Nothing is written: a session may be looked
at while it runs.""",
)  # fmt: skip


async def run(work: Work) -> int:
    import tempfile

    session = await find(work, work.given.operands[0])
    summary = next((one for one in await work.store.tree(session) if one.id == session), None)
    if summary is None:  # a tree tells nothing of a damaged child
        await work.store.inspect(session)
        raise SessionNotFound(session)
    with tempfile.TemporaryDirectory(prefix="acp-show-") as folder:
        tree = Path(folder) / "tree"
        written = await write_tree(work.store, session, tree, blobs=False)
        from acp_agent.app import show_session

        if not work.given.has("--json"):
            where = f"in {summary.cwd}, " if isinstance(summary.cwd, str) else ""
            updated = both(summary.updated_at, SystemClock().now())
            say(f"{where}created {exactly(summary.created_at)}, updated {updated}")
        show_session(tree, session, as_json=work.given.has("--json"))
    for damaged in written.left_out:
        complain_of(damaged, work.where)
    return 1 if written.left_out else 0


COMMAND = Command(USAGE, run)

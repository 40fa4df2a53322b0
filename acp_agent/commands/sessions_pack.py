"""`acp-agent sessions pack`: a session's whole tree as one directory that replays anywhere."""

from __future__ import annotations

from pathlib import Path

from acp_agent.commands.lookup import find
from acp_agent.commands.options import Usage
from acp_agent.commands.work import Command, Work, complain, complain_of, counted, say
from acp_agent.stores.packing import write_tree

USAGE = Usage(
    "pack", "ID OUT", "Write a session, its children, blobs and kept output into one directory that replays anywhere.",
    teaching="""
OUT must not exist or be empty. For a child's ID the whole tree of its root is packed. ID may be the beginning of an id
(4 characters or more), as long as no other session's begins so. A session may be packed while it runs.

Read what you pack before you hand it on: it holds every prompt, answer and tool result.

exit status: 0 when OUT can be replayed; 1 when something damaged or missing was left out of it, when it was written and
cannot be replayed, or when it was not written: which, and why, is told

example, a bug report:
  acp-agent sessions pack 3f2a ./bug-report
  acp-agent replay ./bug-report""",
)


async def run(work: Work) -> int:
    word, out = work.given.operands
    session = await find(work, word)
    written = await write_tree(work.store, session, Path(out))
    tree = written.tree
    from acp_agent.app import replay_problems

    parts = [counted(len(tree.logs), "log")] + ([counted(len(tree.blobs), "blob")] if tree.blobs else [])
    parts += [counted(len(tree.outputs), "kept output")] if tree.outputs else []
    say(f"packed {session} into {out}: {', '.join(parts)}")
    problems = replay_problems(Path(out))
    for damaged in written.left_out:
        complain_of(damaged, work.where)
    for problem in problems:
        complain(problem)
    if written.left_out:
        complain(f"{out} was written without what is damaged or missing")
    if problems:
        complain(f"{out} was written, but cannot be replayed as it is")
    return 1 if problems or written.left_out else 0


COMMAND = Command(USAGE, run)

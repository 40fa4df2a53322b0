"""`acp-agent sessions import`: session trees from files into the store."""

from __future__ import annotations

from pathlib import Path

from acp_agent.commands.options import Usage
from acp_agent.commands.work import Command, Work, complain_of, counted, say
from acp_agent.errors import AgentError
from acp_agent.stores.packing import read_tree

USAGE = Usage(
    "import", "PATH...", "Take sessions into the store, each with its children, blobs and kept output.",
    teaching="""
PATH is
  a directory  a pack, a session's directory from another store, or any directory of a session's logs
  a file       one log, a root session's, alone

Refused are ids that are taken, logs that are damaged (told with file and line), and children without their root. Of
each PATH all is taken in or nothing.

A JSONL store keeps every byte of a log. A database keeps every event and writes the lines anew when it is asked for the
log: as this agent writes them, whatever spaces and order of keys they had. It has no place for keys that this agent
does not know beside an event's type and data, and refuses a log with such keys.

exit status: 0 when every PATH was taken in, 1 when one was not

example, from one store into another:
  acp-agent sessions pack ID ./moved
  acp-agent sessions import --session-store sqlite:sessions.db ./moved""",
)


async def run(work: Work) -> int:
    failed = 0
    for operand in work.given.operands:
        try:
            tree = read_tree(Path(operand))
            session = await work.store.adopt(tree)
        except AgentError as error:
            complain_of(error, work.where)
            failed += 1
            continue
        children = counted(len(tree.logs) - 1, "child", "children")
        say(f"imported {session} from {operand}{f' with {children}' if len(tree.logs) > 1 else ''}")
    return 1 if failed else 0


COMMAND = Command(USAGE, run)

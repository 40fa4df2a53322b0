"""`acp-agent sessions repair`: make a damaged session readable again."""

from __future__ import annotations

from acp_agent.commands.options import Flag, Usage
from acp_agent.commands.work import Command, Work, counted, say
from acp_agent.ids import SessionId

USAGE = Usage(
    "repair", "ID", "Make a damaged session readable again: what is there is backed up, all that is sound is kept.",
    (Flag("--dry-run", "", "only tell what would be done"),),
    """
ID is a session's whole id, a root's or a child's; `acp-agent sessions list` names those that are damaged. A session
that another process writes to is not repaired. What was cut off by a crash needs no repair: that is mended when the
session is continued.

exit status: 0 when the session is readable now, or was; 1 when it cannot be repaired""",
)  # fmt: skip


async def run(work: Work) -> int:
    session = SessionId(work.given.operands[0])
    dry = work.given.has("--dry-run")
    report = await work.store.repair(session, dry_run=dry)
    if not report.changes:
        say(f"{session}: nothing is wrong with its {counted(report.kept, 'event')}")
        return 0
    for change in report.changes:
        say(f"{session}: {change}")
    if dry:
        say(f"{session}: {counted(report.kept, 'event')} would be kept; nothing was changed")
        return 0
    say(f"{session}: {counted(report.kept, 'event')} kept; what was there before is in {report.backup}")
    return 0


COMMAND = Command(USAGE, run)

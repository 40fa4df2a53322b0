"""`acp-agent sessions repair`: make a damaged session readable again."""

from __future__ import annotations

from contextlib import suppress

from acp_agent.commands.options import Flag, Usage
from acp_agent.commands.work import Command, Work, complain_of, counted, say
from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.stores.base import RepairReport
from acp_agent.stores.packing import unsound_blobs

USAGE = Usage(
    "repair", "ID", "Make a damaged session readable again: what is there is backed up, all that is sound is kept.",
    (Flag("--dry-run", "", "only tell what would be done"),),
    """
ID is a session's whole id, a root's or a child's; `acp-agent sessions list` names those that are damaged. A session
that another process writes to is not repaired. An image that is missing, or is not what it was, is named on stderr: no
repair can bring it back. What was cut off by a crash needs no repair: that is mended when the session is continued.

exit status: 0 when the session is readable now, or was; 1 when it cannot be repaired""",
)  # fmt: skip


async def run(work: Work) -> int:
    session = SessionId(work.given.operands[0])
    dry = work.given.has("--dry-run")
    report = await work.store.repair(session, dry_run=dry)
    _tell(report, dry=dry)
    with suppress(LogDamaged):  # a dry run mends nothing, so there may be no log to look through
        for unsound in await unsound_blobs(work.store, session):
            complain_of(unsound, work.where)
    return 0


def _tell(report: RepairReport, *, dry: bool) -> None:
    session = report.session
    if not report.changes:
        say(f"{session}: nothing is wrong with its {counted(report.kept, 'event')}")
        return
    for change in report.changes:
        say(f"{session}: {change}")
    if dry:
        say(f"{session}: {counted(report.kept, 'event')} would be kept; nothing was changed")
        return
    say(f"{session}: {counted(report.kept, 'event')} kept; what was there before is in {report.backup}")


COMMAND = Command(USAGE, run)

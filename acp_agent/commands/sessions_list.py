"""`acp-agent sessions list`: the stored root sessions, newest first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.clock import SystemClock
from acp_agent.commands.lookup import pages
from acp_agent.commands.options import Flag, Usage, whole_number
from acp_agent.commands.times import both
from acp_agent.commands.work import Command, Work, complain
from acp_agent.errors import LogDamaged, SessionNotFound
from acp_agent.ids import SessionId
from acp_agent.session.directory import plain
from acp_agent.stores.base import PAGE, Refusal, SessionSummary, Store
from acp_agent.visible import harmless_json, one_line

USAGE = Usage(
    "list", "", "Show the stored sessions, the newest first. Children are counted with their root.",
    (Flag("--cwd", "DIR", "only those whose working directory this is"),
     Flag("--limit", "N", f"at most so many (default {PAGE}, with --json all)"),
     Flag("--json", "", "one JSON object a line: id, title, createdAt, updatedAt (epoch milliseconds), cwd, seeded,"
          " children")),
    """
A session that cannot be read is named on stderr with its file and line, and what to do; the others are listed all the
same.

exit status: 0 when every session could be listed, 1 when one could not""",
)  # fmt: skip

_ENDLESS = 1 << 20
"""The width of a table nobody looks at: nothing in it is cut."""

_ID = 36
"""Characters of a usual id: it is to be copied, so it stays on one line."""


class Listed(Struct, frozen=True, rename="camel"):
    """A session as `--json` writes it. `children` counts all descendants."""

    id: SessionId
    title: str | None
    created_at: int
    updated_at: int
    seeded: bool
    children: int
    cwd: str | UnsetType = UNSET


async def run(work: Work) -> int:
    limit = whole_number(work.given, "--limit", USAGE)
    as_json = work.given.has("--json")
    most = PAGE if limit is None and not as_json else limit
    cwd = plain(os.path.join(os.getcwd(), work.given.flags["--cwd"])) if work.given.has("--cwd") else None  # noqa: PTH109, PTH118
    listed: list[Listed] = []
    refused: dict[str, Refusal] = {}
    more = False
    async for page in pages(work.store, cwd, most):
        found = [await _listed(work.store, one) for one in page.sessions]
        if as_json:
            _write_json(found)
        else:
            listed += found
        refused |= {one.name: one for one in page.refused}
        more = page.cursor is not None
    if not as_json:
        _show(listed, work.where, SystemClock().now(), more=more)
    for one in refused.values():
        complain(f"{one.name}: {one.reason}")
    return 1 if refused else 0


async def _listed(store: Store, one: SessionSummary) -> Listed:
    children = 0
    with suppress(SessionNotFound, LogDamaged):  # deleted or damaged since it was listed
        children = len(await store.tree(one.id)) - 1
    return Listed(one.id, one.title, one.created_at, one.updated_at, one.seeded, children, one.cwd)


def _write_json(listed: Sequence[Listed]) -> None:
    for one in listed:
        sys.stdout.write(harmless_json(msgspec.json.encode(one).decode()) + "\n")


def _show(listed: Sequence[Listed], where: str, now: int, *, more: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not listed:
        console.print(Text(f"no sessions in {one_line(where)}"), soft_wrap=True)
        return
    if not console.is_terminal:
        console.width = _ENDLESS
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id", overflow="fold", min_width=_ID)
    for name in ("title", "updated", "children", "directory"):
        table.add_column(name, overflow="fold", justify="right" if name == "children" else "left")
    for one in listed:
        table.add_row(
            Text(one_line(one.id), "cyan"), Text(_title(one)),
            Text(both(one.updated_at, now)), Text(str(one.children or "")),
            Text("" if one.cwd is UNSET else one_line(one.cwd)),
        )  # fmt: skip
    console.print(table)
    if more:
        console.print(Text(f"the newest {len(listed)} are shown; --limit N shows more", "dim"), soft_wrap=True)


def _title(one: Listed) -> str:
    return one_line(one.title or "") + (" (fork)" if one.seeded else "")


COMMAND = Command(USAGE, run)

"""`acp-agent sessions export`: a session's exact log."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from acp_agent.commands.lookup import find
from acp_agent.commands.options import Flag, Usage
from acp_agent.commands.work import Command, Work, complain, counted
from acp_agent.errors import StoreError
from acp_agent.ids import SessionId
from acp_agent.stores.base import Store
from acp_agent.stores.packing import write_log

USAGE = Usage(
    "export", "ID", "Write a session's exact log, the header line first, to stdout or to a file.",
    (Flag("--output", "FILE", "write to this file, which must not exist"),),
    """
This is one session's log alone; `acp-agent sessions pack` writes its children's and what they refer to as well.
ID may be the beginning of an id (4 characters or more), as long as no other session's begins so.""",
)  # fmt: skip


async def run(work: Work) -> int:
    session = await find(work, work.given.operands[0])
    if work.given.has("--output"):
        await _to_file(work.store, session, Path(work.given.flags["--output"]).absolute())
    else:
        async for piece in work.store.export(session):
            sys.stdout.buffer.write(piece)
    await _tell_of_the_rest(work.store, session)
    return 0


async def _tell_of_the_rest(store: Store, session: SessionId) -> None:
    beside = [(len(await store.blobs(session)), "blob"), (len(await store.outputs(session)), "kept output")]
    stays = " and ".join(counted(number, what) for number, what in beside if number)
    if stays:
        complain(f"{session}: a log alone is exported; {stays} of its tree stay behind: sessions pack takes them along")


async def _to_file(store: Store, session: SessionId, file: Path) -> None:
    """The file gets its name when all is in it, and never another's."""
    scratch = file.with_name(f".{file.name}.{os.urandom(8).hex()}.new")
    try:
        if os.path.lexists(file):
            raise FileExistsError
        await write_log(store, session, scratch)
        try:
            os.link(scratch, file)
        finally:
            scratch.unlink()
    except FileExistsError:
        raise StoreError(f"{file}: it exists and is left as it is; name a file that does not") from None
    except OSError as error:
        raise StoreError(f"{file}: it cannot be written: {error.strerror or error}") from None


COMMAND = Command(USAGE, run)

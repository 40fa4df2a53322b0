"""The real agent on a disk that is slow: nothing is known to be on the device until the test says so.

    python -m tests.support.slow_agent WAITING GATE [FLAGS OF THE AGENT...]

Before a log is synced, the file WAITING appears, and the sync goes on when something is written to the named pipe
GATE, once for each sync. The rest of the agent runs meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec

from acp_agent import app, cli
from acp_agent.ids import SessionId
from acp_agent.session.events import SessionHeader
from acp_agent.settings import Settings
from acp_agent.stores.base import Appender, Continuation, Store


class SlowAppender:
    """An appender whose `sync` waits at the gate."""

    def __init__(self, inner: Appender, waiting: Path, gate: Path) -> None:
        self._inner = inner
        self._waiting = waiting
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def sync(self) -> None:
        await self._inner.write()
        self._waiting.touch()
        await anyio.to_thread.run_sync(self._gate.read_bytes)
        await self._inner.sync()


class SlowStore:
    """A store whose appenders are slow to sync."""

    def __init__(self, inner: Store, waiting: Path, gate: Path) -> None:
        self._inner = inner
        self._ends = (waiting, gate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, header: SessionHeader, root: SessionId) -> Any:
        return SlowAppender(self._inner.create(header, root), *self._ends)

    async def load(self, session_id: SessionId) -> Continuation:
        found = await self._inner.load(session_id)
        slow: Any = SlowAppender(found.appender, *self._ends)
        return msgspec.structs.replace(found, appender=slow)


def main(words: Sequence[str]) -> int:
    waiting, gate, *flags = words
    make_store = app.make_store

    def make_slow_store(settings: Settings) -> Any:
        return SlowStore(make_store(settings), Path(waiting), Path(gate))

    app.make_store = make_slow_store
    return cli.main(flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

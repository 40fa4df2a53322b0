"""A process that opens a session for writing, says so and waits: `python -m tests.support.store_holder KIND PLACE ID`.

Prints `held`; each line on its stdin is a turn's number to append and write, answered `written`. Ends at end of input.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from acp_agent.ids import SessionId
from acp_agent.session.events import Event, TurnStart
from tests.support.store_builders import root_header, store_at


async def hold(arguments: list[str]) -> None:
    kind, place, name = arguments
    store = store_at(kind, Path(place))  # type: ignore[arg-type]  # the test says it right
    session = SessionId(name)
    if store.exists(session):
        opened = await store.load(session)
        appender, count = opened.appender, opened.count
    else:
        appender, count = store.create(root_header(name), session), 0
        appender.append(Event(0, 1, TurnStart(1)))
        await appender.write()
        count = 1
    print("held", flush=True)  # noqa: T201  # the test reads it
    for line in sys.stdin:
        appender.append(Event(count, 1, TurnStart(int(line))))
        count += 1
        await appender.write()
        print("written", flush=True)  # noqa: T201  # the test reads it
    await store.aclose()


if __name__ == "__main__":
    anyio.run(hold, sys.argv[1:])

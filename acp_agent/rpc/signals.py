"""Signals that ask the process to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from acp_agent.rpc.connection import Connection


@contextmanager
def stop_on_signals(connection: Connection) -> Iterator[None]:
    """While open, SIGTERM, SIGINT and SIGHUP stop `connection`; one that was being ignored stays ignored.

    The second signal stops the waiting, a third ends the process where it stands.
    """
    loop = asyncio.get_running_loop()
    seen = 0

    def stop(number: signal.Signals) -> None:
        nonlocal seen
        seen += 1
        if seen > 2:
            connection.abandon()
            os._exit(128 + number)
        connection.request_stop(number.name)

    heeded = [number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
              if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)

"""The agent's processes of one run, one after another: the same command in the same workspace, home and store."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from replay.exchange import Exchange
from replay.failures import AgentGone, StepFailed
from replay.transports import Transport, TransportName, end_processes, open_transport
from replay.workspace import Workspace


class Processes:
    """Starts the first process at once; `current` is the one that runs, or ran last.

    environ  the environment of the process with this number, from 1
    """

    def __init__(
        self, transport: TransportName, command: Sequence[str], ground: Workspace,
        environ: Callable[[int], Mapping[str, str]],
    ) -> None:
        """Raises `CannotStart`."""
        self._transport = transport
        self._command = command
        self._ground = ground
        self._environ = environ
        self.count = 0
        self.current = self._start()

    def _start(self) -> Transport:
        self.count += 1
        ground = self._ground
        return open_transport(self._transport, self._command, cwd=ground.directory, env=self._environ(self.count),
                              stderr=ground.stderr_file)

    def restart(self, how: Literal["eof", "kill"], exchange: Exchange) -> None:
        """End the process and start the next one, which the exchange goes on with.

        Raises `StepFailed` for a process that did not end well by itself, `AgentGone` where there was none to kill,
        `Stuck`, `CannotStart`.
        """
        if how == "eof":
            status = exchange.end()
            if status != 0:
                raise StepFailed(f"the agent ended with status {status} when its input was closed", exchange.scene())
        else:
            self._kill(exchange)
        self.leave()
        self.current = self._start()
        exchange.resume(self.current, how)

    def _kill(self, exchange: Exchange) -> None:
        if self.current.status() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.current.pid, signal.SIGKILL)
        exchange.drain()
        status = exchange.wait(self.current.status, "the killed agent's exit", of_agent=False)
        if status != -signal.SIGKILL:
            raise AgentGone("the moment to kill it", exchange.scene())

    def leave(self) -> None:
        """Leave no process of the run. Safe to call twice."""
        end_processes(self.current, self._ground.marks())
        self.current.close()

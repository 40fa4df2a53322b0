"""The client's terminals: the `terminal/` methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import anyio
from msgspec import UNSET, UnsetType

from acp_agent.acp.asking import Asking, Done, silence
from acp_agent.acp.handshake import Wire
from acp_agent.ids import SessionId
from acp_agent.rpc.peer import PeerError
from acp_agent.tools.terminals import TerminalError, TerminalExit, TerminalOutput

T = TypeVar("T")


class Variable(Wire, frozen=True):
    name: str
    value: str


class CreateTerminal(Wire, frozen=True):
    session_id: SessionId
    command: str
    args: list[str]
    env: list[Variable]
    cwd: str
    output_byte_limit: int


class TerminalCreated(Wire, frozen=True):
    terminal_id: str


class TerminalParams(Wire, frozen=True):
    session_id: SessionId
    terminal_id: str


class ExitStatus(Wire, frozen=True):
    exit_code: int | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET


class OutputResult(Wire, frozen=True):
    output: str
    truncated: bool = False


class ClientTerminals:
    """`terminal/create`."""

    def __init__(self, client: Asking, session: SessionId, patience: float) -> None:
        self._client = client
        self._session = session
        self._patience = patience

    async def create(
        self, command: Sequence[str], *, cwd: str, env: Mapping[str, str], limit: int
    ) -> ClientTerminal:
        program, *arguments = command
        variables = [Variable(name, value) for name, value in env.items()]
        params = CreateTerminal(self._session, program, arguments, variables, cwd, limit)
        try:
            with anyio.fail_after(self._patience):
                return self._made(await self._client.request(
                    "terminal/create", params, TerminalCreated, late=lambda made: self._made(made).release()
                ))  # fmt: skip
        except TimeoutError:
            raise TerminalError(silence(self._patience)) from None
        except PeerError as error:
            raise TerminalError(str(error)) from None

    def _made(self, made: TerminalCreated) -> ClientTerminal:
        return ClientTerminal(self._client, TerminalParams(self._session, made.terminal_id), self._patience)


class ClientTerminal:
    """The other `terminal/` methods, for one terminal."""

    def __init__(self, client: Asking, params: TerminalParams, patience: float) -> None:
        self._client = client
        self._params = params
        self._patience = patience
        self.id = params.terminal_id

    async def wait(self) -> TerminalExit:
        status = await self._ask("wait_for_exit", ExitStatus, limit=None)
        return TerminalExit(status.exit_code or None, status.signal or None)

    async def output(self) -> TerminalOutput:
        result = await self._ask("output", OutputResult, limit=self._patience)
        return TerminalOutput(result.output, result.truncated)

    async def kill(self) -> None:
        await self._ask("kill", Done, limit=self._patience)

    def release(self) -> None:
        """The answer is not waited for: a cancel must not depend on it, and nothing would follow from it."""
        self._client.tell("terminal/release", self._params)

    async def _ask(self, method: str, result_type: type[T], *, limit: float | None) -> T:
        try:
            with anyio.fail_after(limit):
                return await self._client.request(f"terminal/{method}", self._params, result_type)
        except TimeoutError:
            raise TerminalError(silence(self._patience)) from None
        except PeerError as error:
            raise TerminalError(str(error)) from None

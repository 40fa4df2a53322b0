"""Commands in a client's terminal: the model gets the same texts, and each terminal is given back exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from acp_agent.tools.bash import Bash
from acp_agent.tools.terminals import TerminalError, TerminalExit, TerminalOutput
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

pytestmark = pytest.mark.anyio
BASH = Bash()


class FakeTerminal:
    id = "term-1"

    def __init__(self, owner: FakeTerminals) -> None:
        self.owner = owner

    async def wait(self) -> TerminalExit:
        await self.owner.did("wait")
        self.owner.waited.set()
        await self.owner.ended.wait()
        return self.owner.exit

    async def output(self) -> TerminalOutput:
        await self.owner.did("output")
        return self.owner.printed

    async def kill(self) -> None:
        await self.owner.did("kill")
        self.owner.ended.set()

    def release(self) -> None:
        self.owner.deeds.append("release")


class FakeTerminals:
    """A client with one terminal; `fails` names deeds it refuses."""

    def __init__(self) -> None:
        self.deeds: list[str] = []
        self.fails: set[str] = set()
        self.exit = TerminalExit(0)
        self.printed = TerminalOutput("hello\n")
        self.waited = anyio.Event()
        self.ended = anyio.Event()
        self.created: tuple[tuple[str, ...], str, dict[str, str], int] | None = None

    async def did(self, deed: str) -> None:
        self.deeds.append(deed)
        await anyio.lowlevel.checkpoint()
        if deed in self.fails:
            raise TerminalError(f"no {deed} today")

    async def create(self, command: Sequence[str], *, cwd: str, env: Mapping[str, str], limit: int) -> FakeTerminal:
        self.created = (tuple(command), cwd, dict(env), limit)
        await self.did("create")
        return FakeTerminal(self)


class TerminalSession(ToolSession):
    """A session at a client with terminals."""

    def __init__(self, cwd: Path, spill: Path) -> None:
        super().__init__(cwd, spill)
        self.terminals = FakeTerminals()
        self.shown: list[str] = []  # type: ignore[assignment]  # another meaning than the base's method

    def context(self) -> Any:
        return msgspec.structs.replace(super().context(), terminals=self.terminals, show_terminal=self._show)

    def _show(self, terminal: str, remark: str) -> None:
        self.terminals.deeds.append("show")
        self.shown.append(f"{terminal} {remark}".rstrip())


@pytest.fixture
def client(tmp_path: Path) -> TerminalSession:
    return TerminalSession(tmp_path, tmp_path / "spill")


async def run(client: TerminalSession, **arguments: Any) -> Any:
    return await client.call(BASH, command="make", description="d", **arguments)


async def test_a_command_runs_in_the_clients_terminal(client: TerminalSession) -> None:
    client.terminals.ended.set()
    outcome = await run(client)
    assert text_of(outcome) == "hello\n"
    assert client.terminals.deeds == ["create", "show", "wait", "output", "release"]
    assert client.shown == ["term-1"], "embedded before it is released"
    assert client.terminals.created is not None
    command, cwd, env, limit = client.terminals.created
    assert (command[1:], cwd, limit) == (("-c", "make"), str(client.cwd), 64_000)
    assert env["PAGER"] == "cat"
    assert "PATH" not in env, "the client adds its own environment"


@pytest.mark.parametrize(("end", "text"), [
    (TerminalExit(3), "hello\n[exit code: 3]"),
    (TerminalExit(None, "SIGKILL"), "hello\n[killed by signal: SIGKILL]"),
    (TerminalExit(), "hello\n"),
])
async def test_how_it_ended_is_told(client: TerminalSession, end: TerminalExit, text: str) -> None:
    client.terminals.exit = end
    client.terminals.ended.set()
    assert text_of(await run(client)) == text


async def test_silence_and_too_much_output_are_told(client: TerminalSession) -> None:
    client.terminals.ended.set()
    client.terminals.printed = TerminalOutput("")
    assert text_of(await run(client)) == "(no output)"
    client.terminals.printed = TerminalOutput("end", truncated=True)
    assert text_of(await run(client)) == "end\n[output truncated: the last 64000 bytes are shown]"


async def test_a_timeout_kills_then_takes_the_output_then_releases(client: TerminalSession) -> None:
    outcome = await run(client, timeoutMs=1)
    assert text_of(outcome) == "hello\n[timed out after 1ms]"
    assert client.shown == ["term-1", "term-1 [timed out after 1ms]"], "a terminal does not show it"
    assert client.terminals.deeds == ["create", "show", "wait", "show", "kill", "output", "release"]


@pytest.mark.parametrize("failing", ["create", "wait", "output"])
async def test_a_client_that_fails_fails_the_call(client: TerminalSession, failing: str) -> None:
    client.terminals.ended.set()
    client.terminals.fails = {failing}
    outcome = await run(client)
    assert outcome.is_error
    assert code_of(outcome) == "TERMINAL_FAILED"
    assert f"no {failing} today" in text_of(outcome)
    said = text_of(outcome).removeprefix("Error: ")
    assert client.shown[1:] == [f"term-1 {said}"] * (failing != "create"), "a terminal does not show it"
    assert client.terminals.deeds.count("release") == (failing != "create")


async def test_a_command_that_cannot_be_killed_still_tells_what_it_printed(client: TerminalSession) -> None:
    client.terminals.fails = {"kill"}
    assert text_of(await run(client, timeoutMs=1)) == "hello\n[timed out after 1ms]"
    assert client.terminals.deeds == ["create", "show", "wait", "show", "kill", "output", "release"]


async def test_a_client_that_keeps_more_than_was_asked_for_is_cut_between_characters(client: TerminalSession) -> None:
    client.terminals.ended.set()
    client.terminals.printed = TerminalOutput("é" * 40_000 + "x")
    text, _, marker = text_of(await run(client)).partition("\n")
    assert text == "é" * 31_999 + "x"
    assert marker == "[output truncated: the last 64000 bytes are shown]"


async def test_a_cancelled_command_is_released(client: TerminalSession) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: run(client))
        await client.terminals.waited.wait()
        group.cancel_scope.cancel()
    assert client.terminals.deeds == ["create", "show", "wait", "release"]

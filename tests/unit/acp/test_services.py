"""The client's services as it is asked for them: what is sent, and what becomes of every kind of answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest

from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.services import ChildDesk, ClientDesk, ClientServices
from acp_agent.app import Client
from acp_agent.ids import SessionId, WireCallId
from acp_agent.rpc.connection import Connection
from acp_agent.rpc.envelope import Response, classify
from acp_agent.rpc.peer import Peer
from acp_agent.tools.editor import EditorError
from acp_agent.tools.questions import ElicitError, Reply
from acp_agent.tools.terminals import TerminalError, TerminalExit, TerminalOutput
from tests.support.schema import Frame, Pending, validate_frame

pytestmark = pytest.mark.anyio

EVERYTHING = ClientCapabilities(read_text_file=True, write_text_file=True, terminal=True, elicitation_form=True,
                                elicitation_url=True)
NO = {"error": {"code": -32603, "message": "not today"}}


class Wire:
    """The client's end: what it was sent, judged by the schema, and how it answers."""

    def __init__(self, patience: float = 30) -> None:
        self.frames: list[Frame] = []
        self.sent = anyio.Event()
        self.peer = Peer(self._see)
        self.offered = EVERYTHING
        client, tokens = Client(), iter("abcdef")
        client.connection = cast(Connection, SimpleNamespace(peer=self.peer))
        self.services = ClientServices(client, SessionId("s"), lambda: self.offered, tokens.__next__, patience)
        self._pending = Pending()

    def _see(self, line: bytes) -> None:
        frame: Frame = msgspec.json.decode(line)
        assert validate_frame(frame, "agent", self._pending) == []
        self.frames.append(frame)
        self.sent.set()

    def answer(self, **members: Any) -> None:
        """Answer the newest request."""
        number = max(frame["id"] for frame in self.frames if "id" in frame)
        response = classify(msgspec.json.encode({"jsonrpc": "2.0", "id": number, **members}))
        assert isinstance(response, Response)
        self.peer.resolve(response)

    async def put(self, deed: Callable[[], Awaitable[Any]], **members: Any) -> Any:
        """Do something that asks the client once, and answer that."""
        outcome: list[Any] = []

        async def ask() -> None:
            try:
                outcome.append(await deed())
            except (EditorError, TerminalError, ElicitError) as error:
                outcome.append(error)

        self.sent = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await self.sent.wait()
            self.answer(**members)
        return outcome[0]

    @property
    def methods(self) -> list[str]:
        return [frame["method"] for frame in self.frames]

    async def terminal(self) -> Any:
        """A terminal the client made."""
        assert self.services.terminals is not None
        create = self.services.terminals.create
        return await self.put(lambda: create(["/bin/sh", "-c", "make"], cwd="/w", env={"A": "b"}, limit=9),
                              result={"terminalId": "t"})


# ---------------------------------------------------------------- what is offered


async def test_each_service_is_there_only_while_the_client_offers_it() -> None:
    wire = Wire()
    desk = ClientDesk(wire.services, lambda position: WireCallId(f"call-{position}"))
    for offered, editor, terminals, asks in (
        (ClientCapabilities(), False, False, False), (ClientCapabilities(read_text_file=True), True, False, False),
        (ClientCapabilities(write_text_file=True), True, False, False),
        (ClientCapabilities(terminal=True), False, True, False),
        (ClientCapabilities(elicitation_url=True), False, False, True), (EVERYTHING, True, True, True),
    ):
        wire.offered = offered  # as a second `initialize` changes it
        assert (desk.editor is not None, desk.terminals is not None, bool(desk.asks)) == (editor, terminals, asks)
        assert (desk.elicit(0) is not None) == asks
        child = ChildDesk(desk)
        assert (child.editor is not None, child.terminals is not None) == (editor, terminals)
        assert (child.asks, child.elicit(0)) == (frozenset(), None)
        if desk.editor is not None:
            assert (desk.editor.reads, desk.editor.writes) == (offered.read_text_file, offered.write_text_file)


# ---------------------------------------------------------------- files


async def test_files_are_asked_for_whole() -> None:
    wire = Wire()
    editor = wire.services.editor
    assert editor is not None
    assert await wire.put(lambda: editor.read("/w/a"), result={"content": "text", "more": 1}) == "text"
    assert await wire.put(lambda: editor.write("/w/a", "new"), result=None) is None
    assert [(frame["method"], frame["params"]) for frame in wire.frames] == [
        ("fs/read_text_file", {"sessionId": "s", "path": "/w/a"}),
        ("fs/write_text_file", {"sessionId": "s", "path": "/w/a", "content": "new"})]


@pytest.mark.parametrize(("members", "missing", "refused"), [
    ({"error": {"code": -32002, "message": "gone"}}, True, True), (NO, False, True),
    ({"error": {"code": -32601, "message": "no such method"}}, False, False),
    ({"error": 7}, False, False), ({"result": {"content": 5}}, False, False), ({"result": None}, False, False),
])
async def test_what_an_answer_without_a_text_means(members: Any, missing: bool, refused: bool) -> None:
    wire = Wire()
    editor = wire.services.editor
    assert editor is not None
    error = await wire.put(lambda: editor.read("/w/a"), **members)
    assert isinstance(error, EditorError)
    assert (error.missing, error.refused) == (missing, refused)


async def test_a_client_that_never_answers_is_given_up() -> None:
    wire = Wire(patience=0)
    editor, terminals = wire.services.editor, wire.services.terminals
    assert editor is not None
    assert terminals is not None
    for deed in (lambda: editor.read("/a"), lambda: editor.write("/a", "")):
        with pytest.raises(EditorError, match="did not answer within 0 seconds"):
            await deed()
    with pytest.raises(TerminalError, match="did not answer"):
        await terminals.create(["x"], cwd="/", env={}, limit=1)
    assert wire.methods == ["fs/read_text_file", "$/cancel_request", "fs/write_text_file", "$/cancel_request",
                            "terminal/create", "$/cancel_request"]


# ---------------------------------------------------------------- terminals


async def test_a_terminals_whole_life() -> None:
    wire = Wire()
    terminal = await wire.terminal()
    assert terminal.id == "t"
    assert await wire.put(terminal.wait, result={"exitCode": 0, "signal": None}) == TerminalExit()
    assert await wire.put(terminal.wait, result={"exitCode": 2}) == TerminalExit(2)
    assert await wire.put(terminal.wait, result={"signal": "SIGKILL"}) == TerminalExit(None, "SIGKILL")
    printed = {"output": "é", "truncated": True, "exitStatus": {"exitCode": 0}}
    assert await wire.put(terminal.output, result=printed) == TerminalOutput("é", truncated=True)
    assert await wire.put(terminal.kill, result={}) is None
    terminal.release()
    assert wire.frames[0]["params"] == {
        "sessionId": "s", "command": "/bin/sh", "args": ["-c", "make"], "env": [{"name": "A", "value": "b"}],
        "cwd": "/w", "outputByteLimit": 9}
    assert [frame["params"] for frame in wire.frames[1:]] == [{"sessionId": "s", "terminalId": "t"}] * 6
    assert wire.methods[-1] == "terminal/release"


@pytest.mark.parametrize("members", [NO, {"result": None}, {"result": {}}, {"result": {"output": 1}}, {"error": "x"}])
async def test_an_answer_that_is_none_is_an_error(members: Any) -> None:
    wire = Wire()
    terminal = await wire.terminal()
    assert isinstance(await wire.put(terminal.output, **members), TerminalError)
    if members != {"result": None} and "result" not in members:  # no member of these results is required
        assert isinstance(await wire.put(terminal.wait, **members), TerminalError)
        assert isinstance(await wire.put(terminal.kill, **members), TerminalError)


@pytest.mark.parametrize("members", [{"result": {"terminalId": "late"}}, NO, {"result": {}}])
async def test_a_terminal_that_comes_after_the_cancel_is_released(members: Any) -> None:
    wire = Wire()
    terminals = wire.services.terminals
    assert terminals is not None
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: terminals.create(["x"], cwd="/", env={}, limit=1))
        await wire.sent.wait()
        group.cancel_scope.cancel()
    assert wire.methods == ["terminal/create", "$/cancel_request"]
    wire.answer(**members)
    wire.answer(**members)
    await anyio.lowlevel.checkpoint()
    made = "terminalId" in members.get("result", {})
    assert wire.methods[2:] == (["terminal/release"] if made else [])
    assert [frame["params"]["terminalId"] for frame in wire.frames[2:]] == (["late"] if made else [])


async def test_a_terminal_is_released_also_when_the_client_can_answer_no_more() -> None:
    wire = Wire()
    terminal = await wire.terminal()
    wire.peer.fail_all()
    with pytest.raises(TerminalError):
        await terminal.output()
    terminal.release()
    assert wire.methods == ["terminal/create", "terminal/release"]


# ---------------------------------------------------------------- questions


async def test_a_question_has_one_scope_and_each_link_its_own_id() -> None:
    wire = Wire()
    user = wire.services.elicit(WireCallId("call-1"))
    assert user is not None
    schema: Any = {"type": "object", "properties": {}}
    answered = await wire.put(lambda: user.form("m", schema), result={"action": "accept", "content": {"a": [1]}})
    assert answered == Reply("accept", {"a": [1]})
    for content in ({}, {"content": None}):
        assert await wire.put(lambda: user.link("m", "https://x"), result={"action": "_other", **content}) == Reply(
            "_other")
    scope = {"sessionId": "s", "toolCallId": "call-1", "message": "m"}
    assert [frame["params"] for frame in wire.frames] == [
        {"mode": "form", **scope, "requestedSchema": schema},
        {"mode": "url", **scope, "elicitationId": "a", "url": "https://x"},
        {"mode": "url", **scope, "elicitationId": "b", "url": "https://x"}]


@pytest.mark.parametrize("members", [
    NO, {"result": None}, {"result": {}}, {"result": {"action": 1}}, {"result": {"action": "accept", "content": []}},
])
async def test_an_answer_of_the_users_that_is_none_is_an_error(members: Any) -> None:
    wire = Wire()
    user = wire.services.elicit(WireCallId("c"))
    assert user is not None
    assert isinstance(await wire.put(lambda: user.form("m", {"type": "object", "properties": {}}), **members),
                      ElicitError)


async def test_a_user_may_take_any_time() -> None:
    wire = Wire(patience=0)
    user = wire.services.elicit(WireCallId("c"))
    assert user is not None
    with anyio.move_on_after(0.05) as scope:
        await user.form("m", {"type": "object", "properties": {}})
    assert scope.cancelled_caught, "only a cancel ends the wait"
    assert wire.methods == ["elicitation/create", "$/cancel_request"]

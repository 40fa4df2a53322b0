"""The methods: what they admit, what they refuse, and how a turn's end reads to the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from acp_agent.acp.handlers import Handlers, stop_reason
from acp_agent.acp.offer import MODES
from acp_agent.acp.schema import Update
from acp_agent.errors import AgentError, InvalidParams, SessionNotFound, StoreError, TurnFailed
from acp_agent.ids import MessageId
from acp_agent.rpc.dispatch import RequestContext
from acp_agent.rpc.envelope import Request
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Blocked,
    Completed,
    Failed,
    Failure,
    Interrupted,
    MaxTokens,
    Source,
    TurnOutcome,
    UserMessage,
)
from acp_agent.session.session import QueuedPrompt
from acp_agent.tools.permission import Mode
from tests.support.fakes import Hang, Reached, ScriptedProvider, fails, says
from tests.support.world import World, bodies

pytestmark = pytest.mark.anyio

TEXT = [{"type": "text", "text": "hi"}]


class Caller:
    """Calls methods the way the dispatcher does, and replies to them."""

    def __init__(self, world: World) -> None:
        self.told: list[tuple[str, Any]] = []
        """Updates of the handlers' own: the session and the update."""
        self._handlers = Handlers(world.manager, self._tell)
        self.contexts: list[RequestContext] = []

    def _tell(self, session: str, update: Update) -> None:
        self.told.append((session, msgspec.to_builtins(update)))

    async def __call__(self, method: str, params: Any) -> Any:
        raw = Raw(msgspec.json.encode(params))
        context = RequestContext(Request(b"1", b"1", method, raw))
        self.contexts.append(context)
        try:
            return msgspec.to_builtins(await self._handlers.methods()[method](raw, context))
        finally:
            context.replied()

    def cancel(self, session: str) -> None:
        self._handlers.notifications()["session/cancel"](Raw(msgspec.json.encode({"sessionId": session})))

    async def new(self, world: World, **more: Any) -> str:
        answer = await self("session/new", {"cwd": str(world.cwd), "mcpServers": [], **more})
        name: str = answer["sessionId"]
        return name


@pytest.mark.parametrize(("outcome", "reason"), [
    (Completed(), "end_turn"), (MaxTokens(), "max_tokens"), (Blocked(), "refusal"),
    (Aborted(AbortCause("user")), "cancelled"), (Aborted(AbortCause("disposed")), "cancelled"),
    (Failed(Failure("too many", "MAX_TURN_REQUESTS")), "max_turn_requests"),
])
async def test_how_a_turns_end_reads_on_the_wire(outcome: TurnOutcome, reason: str) -> None:
    assert stop_reason(settled(outcome)) == reason


@pytest.mark.parametrize("outcome", [Failed(Failure("who are you", "AUTH")), Interrupted(), None])
async def test_a_failed_turn_is_an_error_never_a_stop_reason(outcome: TurnOutcome | None) -> None:
    with pytest.raises(TurnFailed) as caught:
        stop_reason(settled(outcome))
    assert caught.value.code == -32603


async def test_an_error_of_the_prompt_is_its_answer() -> None:
    with pytest.raises(StoreError, match="the disk is full"):
        stop_reason(settled(None, StoreError("the disk is full")))


def settled(outcome: TurnOutcome | None, error: AgentError | None = None) -> QueuedPrompt:
    prompt = QueuedPrompt((), UserMessage((), Source("user"), "user", MessageId("m")), ())
    prompt.settle(outcome, error)
    return prompt


async def test_a_new_session_offers_the_four_modes_and_says_which_is_in_force(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(), mode=Mode.ACCEPT_EDITS) as world:
        answer = await Caller(world)("session/new", {"cwd": str(world.cwd), "mcpServers": []})
        assert answer["modes"]["currentModeId"] == "accept-edits"
        assert [mode["id"] for mode in answer["modes"]["availableModes"]] == [mode.value for mode in Mode]
        assert len(MODES) == 4


@pytest.mark.parametrize("servers", [
    [], None, [{"name": "s", "command": "/bin/true", "args": [], "env": [{"name": "A", "value": "1"}]}],
    [{"type": "stdio", "name": "s", "command": "/bin/true", "args": [], "env": []}],
])
async def test_stdio_servers_need_no_advertising(tmp_path: Path, servers: Any) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        assert await Caller(world).new(world, mcpServers=servers, additionalDirectories=[]) == "session-1"


@pytest.mark.parametrize(("more", "what"), [
    ({"mcpServers": [{"type": "http", "name": "far", "url": "x", "headers": []}]}, r"mcpServers\[0\]\.url: .*'far'"),
    ({"mcpServers": [{"type": "carrier-pigeon", "name": "x"}]}, "'carrier-pigeon'; stdio and http are supported"),
    ({"mcpServers": [{"name": "x"}]}, r"mcpServers\[0\]: "),
    ({"mcpServers": [7]}, r"mcpServers\[0\]: "),
    ({"additionalDirectories": ["/x"]}, "additionalDirectories"),
    ({"cwd": "relative"}, "absolute path"),
    ({"cwd": "/no/such/place"}, "'/no/such/place' does not exist"),
])
async def test_a_session_that_cannot_be_had_is_refused_naming_why(
    tmp_path: Path, more: dict[str, Any], what: str,
) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        with pytest.raises(InvalidParams, match=what):
            await Caller(world).new(world, **more)
        assert world.views == []


@pytest.mark.parametrize("params", [{}, {"cwd": 7, "mcpServers": []}, {"cwd": "/"}, {"mcpServers": []}])
async def test_params_of_the_wrong_shape_are_the_dispatchers_to_answer(tmp_path: Path, params: Any) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        with pytest.raises(msgspec.ValidationError):
            await Caller(world)("session/new", params)


async def test_a_prompt_is_answered_with_its_stop_reason(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("done"), fails("AUTH", "who are you"))) as world:
        call = Caller(world)
        session = await call.new(world)
        assert await call("session/prompt", {"sessionId": session, "prompt": TEXT}) == {"stopReason": "end_turn"}
        with pytest.raises(TurnFailed, match="who are you") as caught:
            await call("session/prompt", {"sessionId": session, "prompt": TEXT})
        assert caught.value.facts == {"code": "AUTH"}


@pytest.mark.parametrize("prompt", [[], [{"type": "image"}]])
async def test_a_prompt_that_cannot_be_taken_starts_no_turn(tmp_path: Path, prompt: Any) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        call = Caller(world)
        session = await call.new(world)
        with pytest.raises(InvalidParams):
            await call("session/prompt", {"sessionId": session, "prompt": prompt})
        assert world.view.events == []


@pytest.mark.parametrize(("method", "more"), [
    ("session/prompt", {"prompt": TEXT}), ("session/set_mode", {"modeId": "ask"})])
async def test_an_unknown_session_is_not_found(tmp_path: Path, method: str, more: dict[str, Any]) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        with pytest.raises(SessionNotFound):
            await Caller(world)(method, {"sessionId": "nobody", **more})


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request"])
async def test_a_cancelled_prompt_is_answered_with_cancelled(tmp_path: Path, how: str) -> None:
    reached = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Reached(reached), Hang()])) as world:
        call = Caller(world)
        session = await call.new(world)
        answers: list[Any] = []

        async def prompt() -> None:
            answers.append(await call("session/prompt", {"sessionId": session, "prompt": TEXT}))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                await reached.wait()
                if how == "session/cancel":
                    call.cancel(session)
                else:
                    call.contexts[-1].cancel()
        assert answers == [{"stopReason": "cancelled"}]


async def test_cancelling_an_idle_or_unknown_session_is_nothing(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        call = Caller(world)
        call.cancel(await call.new(world))
        call.cancel("nobody")
        assert world.view.events == []


async def test_a_mode_is_set_and_stored(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(), mode=Mode.ASK) as world:
        call = Caller(world)
        session = await call.new(world)
        assert await call("session/set_mode", {"sessionId": session, "modeId": "read-only"}) == {}
        assert [event.body.type for event in world.stored(session).events] == ["session/config"]
        assert bodies(world.view.events, object)[0].mode == "read-only"


async def test_an_unknown_mode_is_refused_naming_the_known_ones(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        call = Caller(world)
        session = await call.new(world)
        with pytest.raises(InvalidParams, match="'yolo'; expected one of read-only, ask, "):
            await call("session/set_mode", {"sessionId": session, "modeId": "yolo"})


async def test_there_is_nothing_to_log_in_to(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        with pytest.raises(InvalidParams, match="unknown authentication method 'key'"):
            await Caller(world)("authenticate", {"methodId": "key"})

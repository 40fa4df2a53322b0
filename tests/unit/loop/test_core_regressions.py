"""Mistakes the core once made, each by the test that found it."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.acp.schema import ToolCallStart
from acp_agent.errors import LogDamaged, SessionNotFound, StoreError
from acp_agent.ids import MessageId, SequentialIds, SessionId
from acp_agent.providers.base import ModelRequest
from acp_agent.session import codec
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    ApprovalAsked,
    ApprovalDecided,
    Chunk,
    Event,
    Failed,
    RequestSent,
    SessionHeader,
    Source,
    ToolContent,
    ToolResult,
    TurnStart,
    UserMessage,
)
from acp_agent.stores.jsonl import JsonlAppender, JsonlStore
from acp_agent.tools.base import Access, Diff, ToolContext, ToolFailure
from acp_agent.tools.permission import Mode
from acp_agent.tools.subagent import Subagent
from tests.support.fake_client import FakeClient
from tests.support.fakes import (
    FakeTool,
    Hang,
    Reached,
    Script,
    ScriptedProvider,
    asks,
    call,
    call_chunks,
    finish,
    says,
    text_chunks,
)
from tests.support.memory_store import MemoryStore
from tests.support.world import World, bodies, finishes, shape
from tests.unit.acp.test_projection import answer, project

pytestmark = pytest.mark.anyio


def job(call_id: str) -> Any:
    return call(call_id, "subagent", description="d", prompt="do it")


# ---------------------------------------------------------------- loop


async def test_a_request_that_could_not_be_stored_has_its_finish_too(tmp_path: Path) -> None:
    store = MemoryStore()
    async with World(tmp_path, ScriptedProvider(), store=store) as world:
        session = world.session()
        store.broken = True
        with pytest.raises(StoreError):
            await world.prompt(session)
        store.broken = False
        assert len(bodies(world.view.events, RequestSent)) == len(finishes(world.view.events))


class Closing(ScriptedProvider):
    """Its streams take note that they are closed, wait, and then may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.closing, self.go = anyio.Event(), anyio.Event()
        self.error = error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        try:
            yield [*text_chunks("done"), finish()]
        finally:
            self.closing.set()
            await self.go.wait()
            if self.error is not None:
                raise self.error


async def test_a_stream_that_fails_while_it_is_closed_has_one_finish_still(tmp_path: Path) -> None:
    provider = Closing(RuntimeError("connection lost"))
    provider.go.set()
    async with World(tmp_path, provider, store=MemoryStore()) as world:
        world.expect_warnings = True
        await world.prompt(world.session())
        assert finishes(world.view.events) == ["stop"]


async def test_a_cancel_while_the_last_stream_is_closed_counts(tmp_path: Path) -> None:
    provider = Closing()
    async with World(tmp_path, provider) as world:
        session = world.session()
        prompt = session.admit("go")
        await provider.closing.wait()
        session.cancel()
        provider.go.set()
        assert await world.outcome(prompt) == Aborted(AbortCause("user"))


async def test_a_mistake_in_the_agent_leaves_no_turn_open(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    provider.refusal = RuntimeError("secret")
    async with World(tmp_path, provider) as world:
        world.expect_warnings = True
        outcome = await world.prompt(world.session())
        assert isinstance(outcome, Failed)
        assert "secret" not in outcome.error.message
        assert shape(world.view.events)[-2:] == ["step/end", "turn/end"]


class Blind(FakeTool):
    """A tool whose preview fails."""

    async def preview(self, args: Any, context: ToolContext) -> tuple[Diff, ...]:
        raise ToolFailure("no such file")


async def test_a_question_that_cannot_be_put_is_decided_too(tmp_path: Path) -> None:
    tool = Blind("change", access=Access.EDIT)
    provider = ScriptedProvider(asks(call("c", "change")), says("done"))
    async with World(tmp_path, provider, tool, mode=Mode.ASK) as world:
        await world.prompt(world.session())
        asked, decided = bodies(world.view.events, ApprovalAsked), bodies(world.view.events, ApprovalDecided)
        assert len(asked) == len(decided)


async def test_an_answer_without_content_is_no_message_to_the_model(tmp_path: Path) -> None:
    """Format reference 1.9: kept in the log, but it contributes no message."""
    provider = ScriptedProvider([[*call_chunks(call("c", "peek")), finish("max-tokens")]], says("done"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert [type(message) for message in provider.requests[1].messages] == [UserMessage, UserMessage]


# ---------------------------------------------------------------- wire ids


def test_a_wire_id_is_new_even_where_the_model_made_one_like_it() -> None:
    updates = project([answer("m", call(one, "peek")) for one in ("c#2", "c", "c")], FakeTool("peek"))
    ids = [update.tool_call_id for update in updates if isinstance(update, ToolCallStart)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(("own", "childs"), [([], ["c", "c", "c#2"]), (["p/c"], ["c"])], ids=["child", "root"])
async def test_a_childs_wire_id_is_new_in_the_session(tmp_path: Path, own: list[str], childs: list[str]) -> None:
    tools = FakeTool("change", access=Access.EDIT), Subagent()
    client = FakeClient(*["allow-once"] * 3)
    scripts: list[Script] = [asks(call(one, "change")) for one in childs]
    provider = ScriptedProvider(*(asks(call(one, "change")) for one in own), asks(job("p")), says("done"),
                                children={"p": [*scripts, says("ok")]})
    async with World(tmp_path, provider, *tools, views=client.views(*tools), mode=Mode.ASK) as world:
        await world.prompt(world.session())
    ids = [update["toolCallId"] for update in client.updates("tool_call")]
    assert len(set(ids)) == len(ids)


def test_a_foreign_result_without_a_block_is_shown_or_refused_but_does_not_break() -> None:
    empty = ToolResult(1, 1, ToolContent(Source("tool"), (), "user", MessageId("r")))
    project([answer("m", call("c", "peek")), empty], FakeTool("peek"), settled=True)


# ---------------------------------------------------------------- codec

ROW = (b'{"type":"text-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],'
       b'"texts":["a","b","c"]}}')


@pytest.mark.parametrize("row", [
    ROW.replace(b'"seq0"', b'"seq"').replace(b'"time0"', b'"time"'),
    ROW.replace(b'"data"', b'"ignorable":true,"data"'),
    ROW.replace(b'"data"', b'"surfaceOp":"append","data"'),
    ROW.replace(b'"data"', b'"extra":1,"data"'),
    ROW.replace(b"[0,0]", b"[0,9007199254740993]"),
], ids=["seq", "ignorable", "surfaceOp", "extra", "unsafe time"])
def test_a_packed_row_with_other_keys_or_an_unsafe_time_is_refused(row: bytes) -> None:
    with pytest.raises(LogDamaged):
        list(codec.Reader("log").read(row))


def test_a_line_nested_too_deep_is_damage_like_any_other() -> None:
    line = b'{"type":"team/task","seq":0,"time":0,"data":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with pytest.raises(LogDamaged):
        list(codec.Reader("log").read(line))


# ---------------------------------------------------------------- store


def appender(store: JsonlStore, session: str) -> JsonlAppender:
    made = store.create(SessionHeader(id=SessionId(session), created_at=1, cwd="/w"), SessionId(session))
    made.append(Event(0, 1, TurnStart(1)))
    return made


async def test_every_directory_of_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        made = appender(JsonlStore(tmp_path / "state" / "sessions"), "s")
        await made.aclose()
    finally:
        os.umask(before)
    project_directory, root = made.path.parents[1], made.path.parents[2]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (project_directory, root)] == [0o700, 0o700]


async def test_closing_the_store_closes_every_log_though_one_fails(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    appender(store, "a")
    other = appender(store, "b")
    (tmp_path / "--w--").mkdir()
    (tmp_path / "--w--" / "a").touch()
    with pytest.raises(StoreError):
        await store.aclose()
    assert other.path.exists()


async def test_closing_the_manager_closes_every_session_though_one_fails(tmp_path: Path) -> None:
    reached = anyio.Event()
    store = JsonlStore(tmp_path / "logs")
    async with World(tmp_path, ScriptedProvider([Reached(reached), Hang()]), store=store) as world:
        project_name = "--" + str(world.cwd).strip("/").replace("/", "-") + "--"
        in_the_way = world.logs / project_name / "session-1"
        in_the_way.parent.mkdir(parents=True)
        in_the_way.touch()
        with pytest.raises(StoreError):
            await world.prompt(world.session())
        sound = world.session()
        sound.admit("go")
        await reached.wait()
        with pytest.raises((StoreError, ExceptionGroup)):
            await world.manager.aclose()
        in_the_way.unlink()
        with pytest.raises(KeyError):  # the sound session's log is given up, as it is when all is stored
            store.spill_directory(sound.place.session)


async def test_a_stored_childs_id_is_not_given_out_again(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "logs")
    provider = ScriptedProvider(asks(job("p")), says("done"), children={"p": [says("ok")]})
    async with World(tmp_path, provider, Subagent(), store=store, ids=SequentialIds(store.exists)) as world:
        await world.prompt(world.session())
        assert [child.header.id for child in world.children()] == ["session-2"]
    assert JsonlStore(tmp_path / "logs").exists(SessionId("session-2"))
    assert SequentialIds(JsonlStore(tmp_path / "logs").exists).session() == "session-3"


@pytest.mark.parametrize("spelling", ["{0}/.{1}", "{0}{1}/..{1}"])
async def test_a_childs_log_stands_beside_its_parents_however_the_directory_is_spelt(
    tmp_path: Path, spelling: str,
) -> None:
    provider = ScriptedProvider(asks(job("p")), says("done"), children={"p": [says("ok")]})
    async with World(tmp_path, provider, Subagent()) as world:
        session = world.manager.create(spelling.format(tmp_path, "/work"))
        await world.prompt(session)
        (child,) = world.children()
        assert world.path(child.header.id).parent == world.path(session.place.session).parent


async def test_damage_in_another_session_does_not_stand_in_the_way(tmp_path: Path) -> None:
    other = tmp_path / "--w--" / "other"
    other.mkdir(parents=True)
    (other / "session.1.jsonl").write_bytes(b"nonsense\n")
    with pytest.raises(SessionNotFound):
        await JsonlStore(tmp_path).load(SessionId("nobody"))

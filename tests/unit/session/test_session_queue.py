"""Sessions of one process: independent of each other, each working its prompts off in order."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from acp_agent.errors import InvalidParams, SessionNotFound
from acp_agent.ids import SequentialIds, SessionId
from acp_agent.session.directory import working_directory
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    Completed,
    Failed,
    SessionConfig,
    TextBlock,
    UserMessage,
)
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.tools.permission import Mode
from tests.support.fakes import FakeTool, Gate, Hang, Reached, Script, ScriptedProvider, asks, call, says
from tests.support.memory_store import MemoryStore
from tests.support.world import World, bodies, finishes, shape

pytestmark = pytest.mark.anyio


def hanging(reached: list[anyio.Event]) -> list[Script]:
    """Answers that set their event and never end."""
    return [[Reached(event), Hang()] for event in reached]


async def test_prompts_of_a_busy_session_run_one_after_the_other_in_order(tmp_path: Path) -> None:
    release = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Gate(release), *says("1")], says("2"), says("3"))) as world:
        session = world.session()
        prompts = [session.admit(text) for text in ("one", "two", "three")]
        assert not any(prompt.done.is_set() for prompt in prompts)
        release.set()
        assert [await world.outcome(prompt) for prompt in prompts] == [Completed()] * 3
        texts = [message.content[0] for message in bodies(world.view.events, UserMessage)]
        assert texts == [TextBlock("one"), TextBlock("two"), TextBlock("three")]
        assert shape(world.view.events).count("turn/end") == 3


async def test_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    reached = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Reached(reached), Hang()], says("quick"))) as world:
        slow, quick = world.session(), world.session()
        hanging = slow.admit("one")
        await reached.wait()
        assert await world.prompt(quick, "two") == Completed()
        assert not hanging.done.is_set()
        slow.cancel()
        assert await world.outcome(hanging) == Aborted(AbortCause("user"))


async def test_an_idle_session_is_idle_and_a_busy_one_becomes_it(tmp_path: Path) -> None:
    release = anyio.Event()
    async with World(tmp_path, ScriptedProvider([Gate(release), *says("1")])) as world:
        session = world.session()
        with anyio.fail_after(10):
            await session.idle()
            prompt = session.admit("go")
            release.set()
            await session.idle()
        assert prompt.done.is_set()


async def test_a_closed_session_has_everything_stored(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("a", "b", "c", "d"))) as world:
        session = world.session()
        await world.prompt(session)
        await session.aclose()
        log = world.stored(session)
        assert list(log.events) == world.view.events
        assert log.header.id == session.place.session
        assert log.header.cwd == str(world.cwd)


async def test_closing_the_manager_ends_all_sessions_at_once(tmp_path: Path) -> None:
    reached = [anyio.Event(), anyio.Event()]
    provider = ScriptedProvider(*hanging(reached))
    async with World(tmp_path, provider) as world:
        sessions = [world.session(), world.session()]
        prompts = [session.admit("go") for session in sessions]
        for event in reached:
            await event.wait()
        await world.manager.aclose()
        assert [await world.outcome(prompt) for prompt in prompts] == [Aborted(AbortCause("disposed"))] * 2
        assert [finishes(world.stored(session).events) for session in sessions] == [["aborted"]] * 2
        with pytest.raises(SessionNotFound):
            world.manager.get(sessions[0].place.session)


async def test_a_session_without_a_prompt_leaves_no_file(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        world.session()
    assert list(world.logs.rglob("*")) == []


async def test_sessions_are_found_by_their_id(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        session = world.session()
        assert world.manager.get(session.place.session) is session
        with pytest.raises(SessionNotFound, match="'nobody'"):
            world.manager.get(SessionId("nobody"))


async def test_cancelling_everything_reaches_every_session(tmp_path: Path) -> None:
    reached = [anyio.Event(), anyio.Event()]
    provider = ScriptedProvider(*hanging(reached))
    async with World(tmp_path, provider) as world:
        prompts = [world.session().admit("go") for _ in reached]
        for event in reached:
            await event.wait()
        world.manager.cancel_all("disposed")
        assert [await world.outcome(prompt) for prompt in prompts] == [Aborted(AbortCause("disposed"))] * 2


async def test_a_mode_is_logged_when_it_changes_and_not_when_it_does_not(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("done")), mode=Mode.ASK) as world:
        session = world.session()
        session.set_mode(Mode.ASK)
        assert world.view.events == []
        session.set_mode(Mode.READ_ONLY)
        session.set_mode(Mode.READ_ONLY)
        assert [event.body for event in world.view.events] == [SessionConfig(mode="read-only")]
        assert session.mode is Mode.READ_ONLY
        assert await world.prompt(session) == Completed()


async def test_a_mistake_in_the_agent_settles_the_prompt_and_spares_the_queue(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("fine"))
    provider.refusal = RuntimeError("secret")
    async with World(tmp_path, provider, store=MemoryStore()) as world:
        world.expect_warnings = True
        session = world.session()
        first, second = session.admit("one"), session.admit("two")
        for prompt in (first, second):
            outcome = await world.outcome(prompt)
            assert isinstance(outcome, Failed)
            assert outcome.error.message == "the turn failed unexpectedly (RuntimeError)"
        assert len(world.warned) == 2


# ---------------------------------------------------------------- working directories and ids


def test_a_relative_directory_is_refused_by_name() -> None:
    with pytest.raises(InvalidParams, match="absolute path, got 'work'"):
        working_directory("work")
    with pytest.raises(InvalidParams, match="absolute path, got ''"):
        working_directory("")


def test_a_directory_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParams, match=r"/file' is not a directory"):
        working_directory(str(tmp_path / "file"))
    with pytest.raises(InvalidParams, match=r"/missing' does not exist"):
        working_directory(str(tmp_path / "missing"))
    assert working_directory(str(tmp_path)) == tmp_path


async def test_a_refused_directory_makes_no_session(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        with pytest.raises(InvalidParams):
            world.manager.create(str(tmp_path / "missing"))
        assert world.views == []


async def test_sequential_ids_skip_what_the_store_has(tmp_path: Path) -> None:
    for expected in ("session-1", "session-2"):
        async with World(tmp_path, ScriptedProvider(says("done")),
                         ids=SequentialIds(JsonlStore(tmp_path / "logs").exists)) as world:
            session = world.session()
            assert session.place.session == expected
            await world.prompt(session)


async def test_two_sessions_of_one_process_never_share_an_id(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "logs")
    async with World(tmp_path, ScriptedProvider(), FakeTool("peek"), store=store,
                     ids=SequentialIds(store.exists)) as world:
        assert [world.session().place.session for _ in range(3)] == ["session-1", "session-2", "session-3"]


async def test_one_log_serves_sessions_of_different_directories(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(call("c", "peek")), says("one"), says("two"))
    async with World(tmp_path, provider, FakeTool("peek")) as world:
        (tmp_path / "other").mkdir()
        first, second = world.session(), world.manager.create(str(tmp_path / "other"))
        await world.prompt(first)
        await world.prompt(second)
        assert world.path(first.place.session).parent.parent != world.path(second.place.session).parent.parent
        directories = [request.caller.cwd for request in provider.requests]
        assert directories == [str(world.cwd), str(world.cwd), str(tmp_path / "other")]

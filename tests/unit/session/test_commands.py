"""Slash commands: which prompts are one, what they log, and how they stand in a session's queue."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.session.commands import COMMANDS, called
from acp_agent.session.events import Aborted, Completed, SessionCommand, SessionTitle
from acp_agent.session.prompts import TextPart
from acp_agent.session.session import QueuedPrompt, Session
from acp_agent.tools.base import Access
from tests.support.fakes import FakeTool, Gate, Reached, ScriptedProvider, says
from tests.support.world import World, bodies, shape

pytestmark = pytest.mark.anyio

NAMES = [command.name for command in COMMANDS]


@pytest.mark.parametrize(("text", "name", "argument"), [
    ("/help", "help", ""), ("/rename A  title\n", "rename", "A  title"), ("/usage\nnow", "usage", "now"),
    ("/tools \t", "tools", ""), ("/rename /help", "rename", "/help"),
])
def test_a_known_name_after_a_slash_is_a_command(text: str, name: str, argument: str) -> None:
    call = called(text)
    assert call is not None
    assert (call.command.name, call.argument) == (name, argument)


@pytest.mark.parametrize("text", ["", "/", "help", " /help", "/ help", "//help", "/Help", "/help!", "/he", "/help/x"])
def test_everything_else_is_a_prompt(text: str) -> None:
    assert called(text) is None


@given(st.text(max_size=20))
def test_a_command_is_what_begins_with_a_slash_and_its_name_as_a_word(text: str) -> None:
    first = text.split(maxsplit=1)[0] if text[:1] == "/" and text.split() else ""
    assert (called(text) is not None) == (text[:1] == "/" and first[1:] in NAMES)


def admit(session: Session, text: str) -> QueuedPrompt:
    return session.admit([TextPart(text)], command=called(text))


async def test_a_command_is_one_event_and_calls_no_model(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    async with World(tmp_path, provider) as world:
        session = world.session()
        assert await world.outcome(admit(session, "/help")) == Completed()
        assert shape(world.stored(session).events) == ["session/command"]
        (command,) = bodies(world.view.events, SessionCommand)
        assert command.text == "/help"
        assert command.id != command.answer_id
        assert provider.requests == []
        assert session.log.state.history == []


async def test_a_new_title_follows_the_command_and_stands_when_the_first_prompt_comes(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("x"))) as world:
        session = world.session()
        await world.outcome(admit(session, "/rename Mine"))
        await world.prompt(session, "go on")
        events = world.stored(session).events
        assert shape(events)[:2] == ["session/command", "session/title"]
        assert [(title.title, title.source.kind, title.message_seqs) for title in bodies(events, SessionTitle)] == [
            ("Mine", "user", [])]


async def test_tools_tells_apart_what_tools_do(tmp_path: Path) -> None:
    tools = [FakeTool(access.value, access=access) for access in Access]
    async with World(tmp_path, ScriptedProvider(), *tools) as world:
        session = world.session()
        await world.outcome(admit(session, "/tools"))
        (command,) = bodies(world.view.events, SessionCommand)
        rows = dict(row.removeprefix("- ").split(": ", 1) for row in command.output.splitlines()[2:])
        assert list(rows) == ["`edit`", "`execute`", "`none`", "`read`"]
        assert len(set(rows.values())) == 4


async def test_commands_and_prompts_run_in_the_order_they_came(tmp_path: Path) -> None:
    reached, gate = anyio.Event(), anyio.Event()
    async with World(tmp_path, ScriptedProvider([Reached(reached), Gate(gate), *says("a")], says("b"))) as world:
        session = world.session()
        first = admit(session, "go")
        await reached.wait()
        command, last = admit(session, "/usage"), admit(session, "more")
        assert bodies(world.view.events, SessionCommand) == []
        gate.set()
        for prompt in (first, command, last):
            assert await world.outcome(prompt) == Completed()
        kinds = [kind for kind in shape(world.stored(session).events) if kind in (
            "turn/start", "turn/end", "session/command")]
        assert kinds == ["turn/start", "turn/end", "session/command", "turn/start", "turn/end"]


@pytest.mark.parametrize("how", ["session", "prompt"])
async def test_a_command_that_was_cancelled_before_it_began_is_not_logged(tmp_path: Path, how: str) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        session = world.session()
        prompt = admit(session, "/rename Never")
        if how == "session":
            session.cancel()
        else:
            session.cancel_prompt(prompt)
        assert isinstance(await world.outcome(prompt), Aborted)
        assert world.view.events == []
        assert await world.outcome(admit(session, "/rename After")) == Completed()


async def test_a_cancel_that_comes_while_a_command_is_stored_still_is_its_outcome(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        session = world.session()
        sync = session.log.sync

        async def slow() -> None:
            session.cancel()
            await sync()

        session.log.sync = slow  # type: ignore[method-assign]
        assert isinstance(await world.outcome(admit(session, "/rename Kept")), Aborted)
        session.log.sync = sync  # type: ignore[method-assign]
        assert shape(world.stored(session).events) == ["session/command", "session/title"]

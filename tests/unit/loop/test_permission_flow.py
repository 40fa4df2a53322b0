"""Permission, from the question to the grant: who is asked what, what is logged, and what the model is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_agent.loop.host import Answer
from acp_agent.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalGrant,
    Completed,
    ToolResult,
)
from acp_agent.tools.base import Access, Diff, Outcome, RecordedCall, ToolContext
from acp_agent.tools.permission import Mode
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, says
from tests.support.world import (
    ALLOW,
    ALLOW_ALWAYS,
    REJECT,
    REJECT_ALWAYS,
    RecordedEffects,
    World,
    bodies,
    shape,
)

pytestmark = pytest.mark.anyio

REFUSED = 'Error: the user rejected tool "change"'


def provider(turns: int = 1, **arguments: Any) -> ScriptedProvider:
    """Each turn asks for one call of `change`."""
    calls = [call(f"c{n}", "change", **arguments) for n in range(turns)]
    return ScriptedProvider(*(script for one in calls for script in (asks(one), says("done"))))


def change(access: Access = Access.EDIT) -> FakeTool:
    return FakeTool("change", access=access, diffs=(Diff("/w/x", "new", "old"),))


def results(world: World) -> list[str]:
    return [result.message.content[0].content[0].text for result in bodies(world.view.events, ToolResult)]


async def test_the_question_shows_what_the_call_would_do(tmp_path: Path) -> None:
    tool = change()
    async with World(tmp_path, provider(n=1), tool, mode=Mode.ASK, replies=[ALLOW]) as world:
        await world.prompt(world.session())
        (question,) = world.view.questions
        assert (question.position, question.call_id, question.tool) == (0, "c0", "change")
        assert (question.arguments, question.diffs) == ({"n": 1}, (Diff("/w/x", "new", "old"),))
        assert question.view.title == "change something"
        assert question.covers == "all file edits in this session"
        assert tool.runs == [{"n": 1}]


@pytest.mark.parametrize(("answer", "outcome", "runs"), [(ALLOW, "approved", 1), (REJECT, "rejected", 0)])
async def test_the_question_and_its_answer_stand_between_call_and_result(
    tmp_path: Path, answer: Answer, outcome: str, runs: int,
) -> None:
    tool = change()
    async with World(tmp_path, provider(), tool, mode=Mode.ASK, replies=[answer]) as world:
        assert await world.prompt(world.session()) == Completed()
        kinds = shape(world.view.events)
        at = kinds.index("tool/call")
        assert kinds[at : at + 4] == ["tool/call", "approval/asked", "approval/decided", "tool/result"]
        (asked,), (decided,) = (bodies(world.view.events, one) for one in (ApprovalAsked, ApprovalDecided))
        assert (asked.tool_name, asked.call_id) == ("change", "c0")
        assert (decided.id, decided.outcome) == (asked.id, outcome)
        assert len(tool.runs) == runs
        assert len(world.view.started) == runs, "a call is shown as running only when it may run"


async def test_a_call_that_is_rejected_tells_the_model_without_an_error_object(tmp_path: Path) -> None:
    async with World(tmp_path, provider(), change(), mode=Mode.ASK, replies=[REJECT]) as world:
        await world.prompt(world.session())
        (result,) = bodies(world.view.events, ToolResult)
        assert result.message.content[0].is_error
        assert results(world) == [REFUSED]
        assert not result.error


@pytest.mark.parametrize(("answer", "questions", "runs"), [
    (ALLOW, 2, 2), (REJECT, 2, 0), (ALLOW_ALWAYS, 1, 2), (REJECT_ALWAYS, 1, 0)])
async def test_an_answer_lasts_for_the_session_only_when_it_says_so(
    tmp_path: Path, answer: Answer, questions: int, runs: int,
) -> None:
    tool = change()
    async with World(tmp_path, provider(2), tool, mode=Mode.ASK, replies=[answer, answer]) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        assert len(world.view.questions) == len(bodies(world.view.events, ApprovalAsked)) == questions
        assert len(tool.runs) == runs
        assert results(world).count(REFUSED) == 2 - runs
        other = world.session()
        assert other.grants() == {}, "and not beyond it"


@pytest.mark.parametrize(("answer", "allow"), [(ALLOW_ALWAYS, True), (REJECT_ALWAYS, False)])
async def test_a_lasting_answer_is_logged_with_what_it_covers(tmp_path: Path, answer: Answer, allow: bool) -> None:
    async with World(tmp_path, provider(), change(), mode=Mode.ASK, replies=[answer]) as world:
        session = world.session()
        await world.prompt(session)
        assert bodies(world.view.events, ApprovalGrant) == [
            ApprovalGrant("edit", allow, "all file edits in this session")]
        assert session.grants() == {"edit": allow}
        kinds = shape(world.view.events)
        assert kinds[kinds.index("approval/decided") + 1] == "approval/grant"


async def test_a_command_is_granted_by_itself_not_every_command(tmp_path: Path) -> None:
    tool = change(Access.EXECUTE)
    scripts = [asks(call("c0", "change", n=0)), asks(call("c1", "change", n=0)), asks(call("c2", "change", n=1)),
               says("done")]
    async with World(tmp_path, ScriptedProvider(*scripts), tool, mode=Mode.ASK,
                     replies=[ALLOW_ALWAYS, REJECT]) as world:
        await world.prompt(world.session())
        assert [question.call_id for question in world.view.questions] == ["c0", "c2"]
        assert tool.runs == [{"n": 0}, {"n": 0}]


@pytest.mark.parametrize("access", [Access.NONE, Access.READ])
@pytest.mark.parametrize("mode", list(Mode))
async def test_what_changes_nothing_is_never_asked_about(tmp_path: Path, mode: Mode, access: Access) -> None:
    async with World(tmp_path, provider(), change(access), mode=mode) as world:
        await world.prompt(world.session())
        assert world.view.questions == []
        assert results(world) == ["change: {}"]


async def test_read_only_mode_refuses_without_asking_and_says_so(tmp_path: Path) -> None:
    tool = change()
    async with World(tmp_path, provider(), tool, mode=Mode.READ_ONLY) as world:
        await world.prompt(world.session())
        assert "read-only" in results(world)[0]
        assert (tool.runs, world.view.questions, bodies(world.view.events, ApprovalAsked)) == ([], [], [])


async def test_a_mode_set_in_the_middle_of_a_turn_judges_its_next_call(tmp_path: Path) -> None:
    confined: list[bool] = []
    scripts = ScriptedProvider(asks(call("c0", "change"), call("c1", "change")), says("done"))

    async with World(tmp_path, scripts, mode=Mode.FULL_ACCESS) as plain:
        assert plain.session().mode is Mode.FULL_ACCESS

    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        confined.append(context.confined)
        session.set_mode(Mode.READ_ONLY)
        return Outcome.text("ok")

    tool = FakeTool("change", work, access=Access.EDIT)
    async with World(tmp_path, scripts, tool, mode=Mode.FULL_ACCESS) as world:
        session = world.session()
        await world.prompt(session)
        assert confined == [False]
        assert results(world)[0] == "ok"
        assert "read-only" in results(world)[1]


async def test_without_full_access_tools_are_confined(tmp_path: Path) -> None:
    contexts: list[ToolContext] = []

    async def work(args: dict[str, Any], context: ToolContext) -> Outcome:
        contexts.append(context)
        return Outcome.text("ok")

    async with World(tmp_path, provider(), FakeTool("change", work), mode=Mode.ASK) as world:
        await world.prompt(world.session())
        (context,) = contexts
        assert context.confined
        assert (context.cwd, context.roots) == (world.cwd, (world.cwd.resolve(),))
        assert (context.turn, context.step, context.call_id) == (1, 1, "c0")
        assert not context.spill.exists()


# ---------------------------------------------------------------- recorded decisions


@pytest.mark.parametrize(("approved", "decided"), [(True, "approved"), (False, "rejected")])
async def test_a_recorded_decision_is_applied_and_nobody_is_asked(
    tmp_path: Path, approved: bool, decided: str,
) -> None:
    tool, effects = change(), RecordedEffects(c0=RecordedCall(Outcome.text("as recorded"), approved))
    async with World(tmp_path, provider(), tool, mode=Mode.ASK, effects=effects) as world:
        await world.prompt(world.session())
        assert world.view.questions == []
        assert [one.outcome for one in bodies(world.view.events, ApprovalDecided)] == [decided]
        assert results(world) == ["as recorded"]
        assert tool.runs == []
        assert len(world.view.started) == approved


@pytest.mark.parametrize(("answer", "text"), [(ALLOW, "as recorded"), (REJECT, REFUSED)])
async def test_without_a_recorded_decision_the_mode_asks_as_live_and_a_no_is_a_no(
    tmp_path: Path, answer: Answer, text: str,
) -> None:
    tool, effects = change(), RecordedEffects(c0=RecordedCall(Outcome.text("as recorded")))
    async with World(tmp_path, provider(), tool, mode=Mode.ASK, effects=effects, replies=[answer]) as world:
        await world.prompt(world.session())
        (question,) = world.view.questions
        assert question.diffs == (), "no file is looked at"
        assert results(world) == [text]
        assert tool.runs == []


async def test_a_recorded_call_with_wrong_arguments_is_still_refused(tmp_path: Path) -> None:
    tool, effects = change(), RecordedEffects(c0=RecordedCall(Outcome.text("as recorded")))
    block = call("c0", "change")
    broken = type(block)(block.id, block.name, "[")
    async with World(tmp_path, ScriptedProvider(asks(broken), says("done")), tool, effects=effects) as world:
        await world.prompt(world.session())
        assert results(world)[0].startswith("Error: invalid arguments")

"""The real recordings, where they lie beside the repository: every one loads, binds and is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acp_agent.ids import CallId, SessionId
from acp_agent.providers.base import Caller
from acp_agent.session.events import BlockEnd, Finish, TextBlock
from acp_agent.tools.base import CallKey
from replay import addresses
from replay.engine import Replay, read_directory
from replay.explain import explain, render
from replay.problems import Findings
from replay.rows import EndSeedRow, TurnEndRow
from replay.script import Chunks
from tests.unit.replay.recordings import caller, opened, prepared, served

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"
SCENARIOS = sorted(path.parent for path in RECORDED.glob("*/session.jsonl"))

pytestmark = pytest.mark.skipif(not SCENARIOS, reason=f"there are no recordings in {RECORDED}")

SIZES = {
    "text-turn": [(40, 1)], "multi-turn": [(71, 2)], "tool-call-turn": [(104, 2)], "todo-write": [(115, 2)],
    "fs-edit": [(163, 3)], "cancel": [(14, 1)], "error-finish": [(12, 1)], "parallel-tool-calls": [(32, 2)],
    "subagent-spawn-in-process": [(164, 2), (40, 1)], "subagent-multi": [(212, 3), (42, 1), (40, 1)],
    "subagent-fork-in-process": [(200, 3), (99, 1)], "subagent-mixed": [(294, 4), (42, 1), (89, 1)],
}  # fmt: skip
"""Events and own model calls of each session, as the format reference gives them (a hang counts here)."""


@pytest.fixture(params=SCENARIOS, ids=lambda path: str(path.name))
def scenario(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_a_recording_has_no_problems(scenario: Path) -> None:
    explanation = explain(scenario)
    assert (explanation.problems, explanation.doubts) == ([], [])
    assert render(explanation)
    if scenario.name in SIZES:
        assert [(lane.events, len(lane.calls)) for lane in explanation.lanes] == SIZES[scenario.name]


def test_a_fork_s_boundary_stands_between_turns(scenario: Path) -> None:
    for recording in read_directory(scenario, Findings()).recordings:
        if recording.own:
            before, here = recording.rows[recording.own - 1 : recording.own + 1]
            assert (type(before), type(here)) == (TurnEndRow, EndSeedRow)


async def all_calls(replay: Replay, who: Caller, count: int) -> list[str]:
    """The committed text of each of a lane's calls."""
    texts = []
    for ordinal in range(count):
        chunks = await served(replay, caller(who.session, root=who.root, path=who.path, ordinal=ordinal))
        assert [isinstance(chunk, Finish) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        blocks = [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]
        texts.append("".join(block.text for block in blocks if isinstance(block, TextBlock)))
    return texts


def test_every_lane_is_served_its_own_calls(scenario: Path) -> None:
    read = read_directory(scenario, Findings())
    replay = opened(scenario)
    for one in read.placed:
        calls = read.scripts[id(one.recording)]
        assert one.path is not None
        who = caller(addresses.address(one.path), root="root", path=one.path)
        if all(isinstance(call.action, Chunks) for call in calls):
            heard = asyncio.run(all_calls(replay, who, len(calls)))
            words = [word for text in heard for word in text.split()]
            for word in ("ALPHA", "BETA", "SAFFRON"):
                # Each of the children answers with its own code word, and only that one.
                assert (word in words) == (scenario.name.startswith("subagent") and words == [word])


def test_every_recorded_result_is_served_with_the_live_directory(scenario: Path) -> None:
    replay = opened(scenario)
    prepared(replay, caller("live"))
    steps = replay.effects._of(replay.lanes.primary)
    for (turn, step), calls in steps.items():
        for position, call in enumerate(calls):
            assert call.name is not None
            assert call.arguments is not None
            served_call = replay.effects.recorded(CallKey(
                SessionId("live"), turn, step, position, CallId(call.call_id), call.name, call.arguments, "/live"))
            assert served_call is not None
            texts = [block.text for block in served_call.outcome.content if isinstance(block, TextBlock)]
            assert texts
            assert not any("{{cwd}}" in text for text in texts)

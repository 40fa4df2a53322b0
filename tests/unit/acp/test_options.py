"""Config options: which there are, what each is worth now, and that only what is offered can be chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from acp_agent.acp.options import config_options, set_option
from acp_agent.acp.schema import SetOptionParams
from acp_agent.errors import InvalidParams
from acp_agent.ids import SessionId
from acp_agent.providers.base import ModelInfo
from acp_agent.session.configuration import Choices, Thought, applied, thought
from acp_agent.session.events import Event, ModelConfig, RequestHeader, SessionConfig
from acp_agent.session.session import Session
from acp_agent.session.state import SessionState
from acp_agent.tools.permission import Mode
from tests.support.fakes import ScriptedProvider, says
from tests.support.world import World, bodies

pytestmark = pytest.mark.anyio

TWO = (ModelInfo("fake/model-1", "Model 1"), ModelInfo("fake/model-2", "Model 2", "The larger one."))


def values(session: Session) -> dict[str, str]:
    return {option.id: option.current_value for option in config_options(session)}


def choose(session: Session, option: str, value: Any, **more: Any) -> None:
    set_option(session, SetOptionParams(SessionId("session-1"), option, value, **more))


def provider(*answers: Any) -> ScriptedProvider:
    made = ScriptedProvider(*answers)
    made.offered = TWO
    return made


async def test_every_option_says_what_it_is_and_what_it_is_worth(tmp_path: Path) -> None:
    async with World(tmp_path, provider(), mode=Mode.ACCEPT_EDITS) as world:
        options = json.loads(msgspec.json.encode(config_options(world.session())))
        assert [option["category"] for option in options] == ["mode", "model", "thought_level"]
        assert [option["currentValue"] for option in options] == ["accept-edits", "fake/model-1", "default"]
        assert options[1]["options"] == [{"value": "fake/model-1", "name": "Model 1"},
                                         {"value": "fake/model-2", "name": "Model 2", "description": "The larger one."}]
        assert {option["type"] for option in options} == {"select"}
        assert all(option["name"] and option["description"] for option in options)


async def test_a_provider_without_models_has_none_to_choose(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider()) as world:
        assert list(values(world.session())) == ["mode", "thought_level"]


async def test_a_chosen_model_and_level_are_what_the_next_call_is_made_with(tmp_path: Path) -> None:
    model = provider(says("a"), says("b"))
    async with World(tmp_path, model) as world:
        session = world.session()
        await world.prompt(session)
        choose(session, "model", "fake/model-2")
        choose(session, "thought_level", "high")
        assert values(session) == {"mode": "full-access", "model": "fake/model-2", "thought_level": "high"}
        await world.prompt(session)
        assert [request.caller.model for request in model.requests] == [None, "fake/model-2"]
        headers = bodies(world.stored(session).events, RequestHeader)
        assert [one.header.config.reasoning_effort for one in headers] == [UNSET, "high"]
        assert [one.reason for one in headers] == ["initial", "change"]


@pytest.mark.parametrize(("option", "value", "more"), [
    ("nothing", "x", {}), ("mode", "fake/model-1", {}), ("model", "Model 1", {}), ("thought_level", "max", {}),
    ("thought_level", True, {}), ("thought_level", "low", {"type": "boolean"}),
])
async def test_what_is_not_offered_is_refused_and_nothing_is_logged(
    tmp_path: Path, option: str, value: Any, more: dict[str, Any],
) -> None:
    async with World(tmp_path, provider()) as world:
        session = world.session()
        with pytest.raises(InvalidParams, match=r"configId: unknown|value: "):
            choose(session, option, value, **more)
        assert world.view.events == []


async def test_a_type_that_is_not_known_does_not_hurt(tmp_path: Path) -> None:
    async with World(tmp_path, provider()) as world:
        session = world.session()
        choose(session, "thought_level", "low", type="_of_tomorrow")
        choose(session, "mode", "ask", type=7)
        assert values(session) == {"mode": "ask", "model": "fake/model-1", "thought_level": "low"}


async def test_what_is_in_force_is_not_chosen_again(tmp_path: Path) -> None:
    async with World(tmp_path, provider()) as world:
        session = world.session()
        for option, value in values(session).items():
            choose(session, option, value)
        assert world.view.events == []


async def test_choices_of_another_version_fall_back_to_what_is_usual(tmp_path: Path) -> None:
    async with World(tmp_path, provider()) as world:
        session = world.session()
        session.log.append(SessionConfig("yolo", "other/model", {"thought_level": "infinite", "colour": "red"}))
        assert values(session) == {"mode": "ask", "model": "fake/model-1", "thought_level": "default"}


# ---------------------------------------------------------------- what a log says was chosen


def folded(*configs: SessionConfig) -> SessionState:
    state = SessionState()
    for seq, body in enumerate(configs):
        state.apply(Event(seq, seq, body))
    return state


def test_the_newest_choice_of_each_kind_counts() -> None:
    state = folded(SessionConfig(mode="ask", options={"thought_level": "low", "a": 1}), SessionConfig(model="m"),
                   SessionConfig(options={"thought_level": "high"}))
    assert (state.mode, state.model, state.options) == ("ask", "m", {"thought_level": "high", "a": 1})
    assert thought(state) is Thought.HIGH


def test_the_usual_level_leaves_a_models_own_setting_alone() -> None:
    config = ModelConfig("p", "m", reasoning_effort="minimal")
    assert applied(folded(), config) is config
    assert applied(folded(SessionConfig(options={"thought_level": "default"})), config) is config
    changed = applied(folded(SessionConfig(options={"thought_level": "low"})), config)
    assert changed == msgspec.structs.replace(config, reasoning_effort="low")


def test_a_fork_is_told_of_what_it_did_not_inherit_and_of_no_more() -> None:
    early = [SessionConfig(mode="ask", model="m", options={"thought_level": "low", "a": 1})]
    late = [*early, SessionConfig(mode="read-only", options={"a": 2})]
    assert Choices.of(folded(*early)).beyond(Choices.of(folded(*early))) is None
    assert Choices.of(folded()).beyond(Choices.of(folded())) is None
    assert Choices.of(folded(*late)).beyond(Choices.of(folded(*early))) == SessionConfig(
        mode="read-only", options={"a": 2})
    assert Choices.of(folded(*early)).beyond(Choices.of(folded())) == early[0]
    assert Choices.of(folded(*early), "full-access").whole() == SessionConfig(
        "full-access", "m", {"thought_level": "low", "a": 1})
    assert Choices.of(folded(), "ask").whole() == SessionConfig(mode="ask")

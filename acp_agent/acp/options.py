"""A session's config options: what its user can choose, what is chosen, and choosing it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from acp_agent.acp.offer import MODES
from acp_agent.acp.schema import ConfigOption, OptionValue, SetOptionParams
from acp_agent.errors import InvalidParams
from acp_agent.providers.base import ModelInfo
from acp_agent.session.configuration import THOUGHT_LEVEL, Thought, thought
from acp_agent.session.session import Session
from acp_agent.tools.permission import Mode

MODE, MODEL = "mode", "model"
"""The ids of options; the third is `THOUGHT_LEVEL`. Each is its category's name, too."""

_MODE_VALUES = tuple(OptionValue(mode.id, mode.name, mode.description) for mode in MODES)

_LEVELS = (
    OptionValue(Thought.DEFAULT, "Default", "Whatever is usual for the model."),
    OptionValue(Thought.LOW, "Low"),
    OptionValue(Thought.MEDIUM, "Medium"),
    OptionValue(Thought.HIGH, "High"),
)


def config_options(session: Session) -> tuple[ConfigOption, ...]:
    """All options of a session, the most important first. There is no model to choose where none can be named."""
    models = session.models()
    mode = ConfigOption(MODE, "Mode", "What the agent may do without asking.", MODE, session.mode.value, _MODE_VALUES)
    level = ConfigOption(THOUGHT_LEVEL, "Thought level", "How hard the model is to think.", THOUGHT_LEVEL,
                         thought(session.log.state).value, _LEVELS)
    if not models:
        return mode, level
    model = ConfigOption(MODEL, "Model", "Which model answers.", MODEL, _current_model(session, models),
                         tuple(map(_model_value, models)))
    return mode, model, level


def _current_model(session: Session, models: Sequence[ModelInfo]) -> str:
    """The chosen one. One that is not offered here cannot be kept: the usual one answers."""
    chosen = session.log.state.model
    return next((model.id for model in models if model.id == chosen), models[0].id)


def _model_value(model: ModelInfo) -> OptionValue:
    return OptionValue(model.id, model.name, model.description or UNSET)


def set_option(session: Session, params: SetOptionParams) -> None:
    """Choose. Raises `InvalidParams`, and nothing is changed, for an option or a value that there is not."""
    options = config_options(session)
    option = next((one for one in options if one.id == params.config_id), None)
    if option is None:
        known = ", ".join(one.id for one in options)
        raise InvalidParams(f"configId: unknown option {params.config_id!r}; expected one of {known}")
    if isinstance(params.value, bool) or params.type == "boolean":
        raise InvalidParams(f"value: the option {option.id} takes the id of a value, not a boolean")
    known = ", ".join(one.value for one in option.options)
    if all(one.value != params.value for one in option.options):
        raise InvalidParams(f"value: unknown value {params.value!r} of {option.id}; expected one of {known}")
    if params.value == option.current_value:
        return
    if option.id == MODE:
        session.set_mode(Mode(params.value))
    elif option.id == MODEL:
        session.configure(model=params.value)
    else:
        session.configure(**{option.id: params.value})

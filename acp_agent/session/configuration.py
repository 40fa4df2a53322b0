"""What a session's user has chosen, as its log says it: mode, model, and how hard the model is to think."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Self

import msgspec
from msgspec import UNSET, Struct

from acp_agent.session.events import ModelConfig, SessionConfig
from acp_agent.session.state import SessionState

THOUGHT_LEVEL = "thought_level"
"""The key of the thought level among a `SessionConfig`'s options."""


class Thought(enum.StrEnum):
    """How hard the model is to think before it answers."""

    DEFAULT = "default"
    """Whatever is usual for the model."""
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


_LEVELS = frozenset(level.value for level in Thought)


def thought(state: SessionState) -> Thought:
    """The level in force. One that only a newer version knows is taken for the usual one."""
    stored = state.options.get(THOUGHT_LEVEL)
    return Thought(stored) if stored in _LEVELS else Thought.DEFAULT


def applied(state: SessionState, config: ModelConfig) -> ModelConfig:
    """A model's configuration with what the user chose."""
    level = thought(state)
    return config if level is Thought.DEFAULT else msgspec.structs.replace(config, reasoning_effort=level.value)


class Choices(Struct, frozen=True):
    """All that was chosen; None and absent keys are what was not."""

    mode: str | None
    model: str | None
    options: Mapping[str, Any]

    @classmethod
    def of(cls, state: SessionState, mode: str | None = None) -> Self:
        """A session's choices now; `mode` is the one in force, where it is to be told whoever chose it."""
        return cls(mode or state.mode, state.model, dict(state.options))

    def whole(self) -> SessionConfig:
        """The choices as an event."""
        return SessionConfig(_given(self.mode), _given(self.model), dict(self.options) or UNSET)

    def beyond(self, others: Choices) -> SessionConfig | None:
        """The event that makes these of `others`, which hold no further ones; None where they are the same."""
        options = {key: value for key, value in self.options.items() if others.options.get(key) != value}
        change = SessionConfig(
            UNSET if self.mode == others.mode else _given(self.mode),
            UNSET if self.model == others.model else _given(self.model), options or UNSET,
        )  # fmt: skip
        return None if change == SessionConfig() else change


def _given(value: str | None) -> Any:
    return UNSET if value is None else value

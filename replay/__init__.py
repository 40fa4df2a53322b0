"""Replaying recorded sessions: the engine that answers model calls and tool calls from session logs.

The names are loaded when they are used: pytest imports `replay.pytest_plugin` at every start, the engine it need not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.engine import Replay, open_replay

__all__ = ("Replay", "open_replay")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'replay' has no attribute {name!r}")
    from replay import engine

    return getattr(engine, name)

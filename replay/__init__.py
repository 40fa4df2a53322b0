"""Replaying recorded sessions: the engine that answers model calls and tool calls from session logs."""

from replay.engine import Replay, open_replay

__all__ = ("Replay", "open_replay")

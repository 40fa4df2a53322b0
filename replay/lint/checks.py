"""What a check is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from replay.lint.probe import Probe

Attempt: TypeAlias = Callable[[Probe], Awaitable[None]]
"""Tries a statement on a fresh agent. Raises `Broken`, or `Inapplicable` with the reason."""


class Check(Struct, frozen=True):
    """How a statement is tried.

    prompts  the model is asked, which may cost money
    needs    the path of the agent's capability without which the statement says nothing
    """

    number: int
    attempt: Attempt
    prompts: bool = False
    needs: tuple[str, ...] = ()

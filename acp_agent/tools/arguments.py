"""A tool call's arguments: from the model's raw string to a typed struct, or a failure the model can act on."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from acp_agent.tools.base import ToolFailure

T = TypeVar("T")

JsonDecoder = msgspec.json.Decoder

ESCALATION: dict[str, Any] = {
    "sandbox_permissions": {
        "type": "string",
        "enum": ["workspace-write", "danger-full-access"],
        "description": "Accepted for compatibility; the session's permission mode decides.",
    },
    "justification": {"type": "string", "description": "Why the call is needed, in a sentence."},
}
"""Parameters of the tools that change something, kept because recorded calls carry them."""


def invalid(tool: str, problem: str) -> ToolFailure:
    """The failure of a call whose arguments are wrong (code INVALID_ARGS)."""
    return ToolFailure(f'invalid arguments for tool "{tool}": {problem}', "InvalidArgumentsError", "INVALID_ARGS")


def decode_arguments(tool: str, arguments: str, decoder: JsonDecoder[T]) -> T:
    """Arguments as `decoder`'s type; the empty string means `{}`.

    Raises `ToolFailure` with code INVALID_ARGS naming the field and what was expected.
    """
    try:
        return decoder.decode(arguments if arguments.strip() else "{}")
    except msgspec.ValidationError as error:
        raise invalid(tool, _describe(str(error))) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid(tool, f"not valid JSON ({error})") from None


def whole(tool: str, field: str, value: float | None, default: int, *, most: int | None = None) -> int:
    """A positive whole number; 5.0 counts as 5 and what exceeds `most` becomes `most`.

    Raises `ToolFailure` with code INVALID_ARGS.
    """
    if value is None:
        return default
    if value != int(value):
        raise invalid(tool, f"{field}: expected a whole number, got {value}")
    if value < 1:
        raise invalid(tool, f"{field}: expected 1 or more, got {int(value)}")
    return int(value) if most is None else min(int(value), most)


def _describe(problem: str) -> str:
    """msgspec's message with the field first, where it names one."""
    what, _, where = problem.replace("`", "").partition(" - at $")
    field = where.lstrip(".")
    what = what[:1].lower() + what[1:]
    return f"{field}: {what}" if field else what

"""Forms that an agent asks to be filled in, a field a line (ACP elicitation, mode `form`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct

from replay.chat.protocol import Field, Form, FormAnswer, NamedValue
from replay.chat.screen import Screen
from replay.printer import one_line

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]

_DECLINE: Final = "/decline"
_YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class _Wrong(Exception):
    """What was typed is no value of the field; the text says what would be."""


class _Value(Struct, frozen=True):
    """What a field gets."""

    value: Any


class _Declined(Struct, frozen=True):
    """The whole form is declined."""


class _Left(Struct, frozen=True):
    """The field stays empty."""


class FormFiller:
    """Asks for each field. `ask` puts a question and gives the line that was typed, None when none can come."""

    def __init__(self, ask: Ask, screen: Screen) -> None:
        self._ask = ask
        self._screen = screen

    async def fill(self, form: Form) -> FormAnswer:
        """The filled form, or that it was declined or cancelled."""
        self._screen.note(f"{form.message}\n({_DECLINE} declines, an empty line leaves out what is optional)")
        content: dict[str, Any] = {}
        fields = form.requested_schema.properties
        if not fields and await self._plain_yes() is not True:
            return FormAnswer("decline")
        for name, field in fields.items():
            match await self._field(name, field, required=name in (form.requested_schema.required or ())):
                case None:
                    return FormAnswer("cancel")
                case _Declined():
                    return FormAnswer("decline")
                case _Value(value):
                    content[name] = value
                case _Left():
                    pass
        return FormAnswer("accept", content)

    async def _plain_yes(self) -> bool | None:
        return _YES_NO.get((await self._ask("accept? [y/n]: ") or "").strip().lower())

    async def _field(self, name: str, field: Field, *, required: bool) -> _Value | _Left | _Declined | None:
        choices = _choices(field)
        if field.description:
            self._screen.note(f"  {one_line(field.description)}")
        for number, choice in enumerate(choices, 1):
            self._screen.note(f"  {number}  {one_line(choice.title or choice.const)}")
        while True:
            line = await self._ask(_label(name, field, choices, required=required))
            if line is None:
                return None
            if line.strip() == _DECLINE:
                return _Declined()
            try:
                return _value(line.strip(), field, choices, required=required)
            except _Wrong as wrong:
                self._screen.problem(str(wrong))


def _choices(field: Field) -> Sequence[NamedValue]:
    named, plain = field.one_of, field.enum
    if field.items is not None:
        named, plain = field.items.any_of, field.items.enum
    return named or [NamedValue(value) for value in plain or ()]


def _label(name: str, field: Field, choices: Sequence[NamedValue], *, required: bool) -> str:
    if choices:
        hint = f"1-{len(choices)}, with commas" if field.type == "array" else f"1-{len(choices)}"
    else:
        hint = {"boolean": "y/n", "array": "with commas"}.get(field.type, field.type)
    default = "" if field.default is UNSET else f", default {field.default}"
    return one_line(f"{field.title or name} [{hint}{default}{'' if required else ', optional'}]: ")


def _value(line: str, field: Field, choices: Sequence[NamedValue], *, required: bool) -> _Value | _Left:
    if not line:
        if field.default is not UNSET:
            return _Value(field.default)
        if not required:
            return _Left()
        if field.type != "string" or choices:
            raise _Wrong("this one is required")
    if field.type == "array":
        words = [word.strip() for word in line.split(",") if word.strip()]
        return _Value([_choice(word, choices) for word in words] if choices else words)
    return _Value(_choice(line, choices) if choices else _scalar(line, field.type))


def _choice(line: str, choices: Sequence[NamedValue]) -> str:
    if line.isdecimal() and 1 <= int(line) <= len(choices):
        return choices[int(line) - 1].const
    raise _Wrong(f"a number from 1 to {len(choices)}, please")


def _scalar(line: str, kind: str) -> Any:
    try:
        match kind:
            case "integer":
                return int(line)
            case "number":
                return float(line)
            case "boolean":
                return _YES_NO[line.lower()]
            case _:
                return line
    except (ValueError, KeyError):
        raise _Wrong(f"{'y or n' if kind == 'boolean' else f'a {kind}'}, please") from None

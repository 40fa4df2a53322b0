"""Questions to the user: the fields of a form as a JSON schema, and the check of what comes back.

A client may show the form as it likes and may return anything; an answer counts only when it fits the schema
(ACP guide, elicitation: the agent validates again).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

Mode = Literal["form", "link"]
"""A way to put a question: a form to fill in, or a page to open."""

Modes: TypeAlias = frozenset[Mode]

FieldType = Literal["text", "number", "integer", "boolean", "choice", "choices"]


class Field(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to ask for. `options` are what a choice is made from; `required` fields must be answered."""

    name: str
    type: FieldType = "text"
    title: str | None = None
    description: str | None = None
    options: tuple[str, ...] = ()
    required: bool = True


class ElicitError(Exception):
    """The client could not ask."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Reply(Struct, frozen=True):
    """What the user did: accept, decline or cancel; anything else counts as not accepted."""

    action: str
    content: Mapping[str, Any] = {}


class Elicit(Protocol):
    """A client that can ask its user, about one tool call. A mode that is not offered is never used."""

    @property
    def forms(self) -> bool: ...

    @property
    def links(self) -> bool: ...

    async def form(self, message: str, schema: dict[str, Any]) -> Reply:
        """Have a form filled in. Raises `ElicitError`."""
        ...

    async def link(self, message: str, url: str) -> Reply:
        """Have a page opened; accepted only means that it was opened. Raises `ElicitError`."""
        ...


_TYPES = {"text": "string", "choice": "string"}


def form_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """The form's schema: flat, with properties in order (ACP guide, elicitation)."""
    return {
        "type": "object",
        "properties": {field.name: _property(field) for field in fields},
        "required": [field.name for field in fields if field.required],
    }


def _property(field: Field) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array" if field.type == "choices" else _TYPES.get(field.type, field.type)}
    if field.title:
        made["title"] = field.title
    if field.description:
        made["description"] = field.description
    if field.type == "choice":
        made["enum"] = list(field.options)
    elif field.type == "choices":
        made["items"] = {"type": "string", "enum": list(field.options)}
        if field.required:
            made["minItems"] = 1
    return made


def problem_of(fields: Sequence[Field], content: Mapping[str, Any]) -> str | None:
    """Why `content` is no answer to the form; None when it is one. Members nobody asked for do not matter."""
    for field in fields:
        value = content.get(field.name)
        if value is None:
            if field.required:
                return f"{field.name} is missing"
        elif not _fits(field, value):
            return f"{field.name} does not fit: {value!r}"
    return None


def _fits(field: Field, value: Any) -> bool:
    match field.type:
        case "text":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            if isinstance(value, float):
                return value.is_integer()  # to JSON schema, 5.0 is one
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "choice":
            return value in field.options
        case "choices":
            chosen = isinstance(value, list) and all(item in field.options for item in value)
            return chosen and bool(value or not field.required)


def told(fields: Sequence[Field], content: Mapping[str, Any]) -> str:
    """A checked answer, for the model: a line for each field that was filled in."""
    lines = [f"{field.name}: {_shown(field, content[field.name])}" for field in fields
             if content.get(field.name) is not None]
    return "\n".join(lines) or "(nothing was filled in)"


def _shown(field: Field, value: Any) -> str:
    if field.type == "integer":
        return str(int(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)

"""The protocol's schema as a judge of frames: the definition is found by who handles a method and its name.

The schema's root accepts any extension message, so it is never used. Members that no definition names are passed
over: peers may be newer than the schema.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

Form = Literal["Request", "Notification", "Response"]

_FILE = Path(__file__).parent / "schema" / "schema.unstable.json"
_TEXT = 200
"""Characters of a value shown in a problem."""


def known(method: str, form: Form, side: str = "client") -> bool:
    """Whether the protocol defines this for a side: `client` handles what the agent asks, `agent` answers."""
    return _name(method, form, side) is not None


def problems(method: str, form: Form, value: Any, side: str = "client") -> list[str]:
    """What is wrong with a method's params, or its result. Empty for what the protocol does not define."""
    name = _name(method, form, side)
    if name is None:
        return []
    where = f"{method} {'result' if form == 'Response' else 'params'}"
    return [_words(error, where) for error in _validator(name).iter_errors(value)]


def error_problems(value: Any) -> list[str]:
    """What is wrong with the `error` of a response."""
    return [_words(error, "error") for error in _validator("Error").iter_errors(value)]


def _name(method: str, form: Form, side: str) -> str | None:
    names = _names()
    return names.get((side, method, form), names.get(("protocol", method, form)))


@functools.cache
def _definitions() -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))["$defs"]
    return definitions


@functools.cache
def _names() -> dict[tuple[str, str, Form], str]:
    forms: tuple[Form, ...] = ("Request", "Notification", "Response")
    return {(definition["x-side"], definition["x-method"], form): name
            for name, definition in _definitions().items() if "x-method" in definition
            for form in forms if name.endswith(form)}


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _definitions()})


def _words(error: ValidationError, where: str) -> str:
    error = _meant(error)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{where}{path}: {error.message[:_TEXT]}"


def _meant(error: ValidationError) -> ValidationError:
    """The error of the union's member that was meant: the one whose constants match."""
    while error.context:
        branches: defaultdict[Any, list[ValidationError]] = defaultdict(list)
        for inner in error.context:
            branches[inner.schema_path[0]].append(inner)
        meant = [inner for inner in branches.values() if all(one.validator != "const" for one in inner)]
        if not meant:
            return error
        error = meant[0][0]
    return error

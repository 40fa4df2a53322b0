"""Every frame against the protocol's schema: the definition is found by who handles the method and its name.

The schema's root accepts any extension message, so it is never used. What the agent sends is checked
strictly: a member that no definition names is a problem too, because nearly all members are optional and a
misspelt one would go unnoticed.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

Frame: TypeAlias = dict[str, Any]
Sender = Literal["client", "agent"]
OTHER: Mapping[Sender, Sender] = {"client": "agent", "agent": "client"}
CHUNKS = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})

_SCHEMAS = Path(__file__).parent.parent / "schema"


class Pending:
    """The requests that have not been answered yet: who sent them, by id, with their method."""

    def __init__(self) -> None:
        self._open: defaultdict[tuple[Sender, str], list[str]] = defaultdict(list)

    def asked(self, sender: Sender, request: Frame) -> None:
        self._open[sender, id_key(request["id"])].append(request["method"])

    def answered(self, responder: Sender, response: Frame) -> str | None:
        """The method of the request that `response` answers; None when there is none open."""
        methods = self._open[OTHER[responder], id_key(response["id"])]
        return methods.pop(0) if methods else None


def id_key(request_id: Any) -> str:
    """A request id such that equal keys mean same value and same JSON type (`1` is not `"1"`)."""
    return json.dumps(request_id)


def is_request(frame: Any) -> bool:
    return isinstance(frame, dict) and "method" in frame and "id" in frame


def is_response(frame: Any) -> bool:
    return isinstance(frame, dict) and "method" not in frame and ("result" in frame or "error" in frame)


def validate_frame(frame: Any, sender: Sender, pending: Pending, *, unstable: bool = False) -> list[str]:
    """What is wrong with a frame, in words; empty when it is valid. `pending` is brought up to date.

    `unstable` allows what only the unstable schema defines. A method that no schema knows is a problem when
    the agent uses it without a leading underscore; what a client sends there is its own business.
    """
    if not isinstance(frame, dict):
        return [f"not an object: {_short(frame)}"]
    problems = [f"{where}: {what}" for where, what in _envelope(frame)]
    if problems:
        return problems
    if "method" in frame:
        return _call(frame, sender, pending, unstable)
    method = pending.answered(sender, frame)
    if "error" in frame:
        return _problems("Error", frame["error"], sender == "agent", unstable, "error")
    if method is None:
        return []  # unknown ids are the laws' business
    name = _definitions(unstable).get((sender, method, "Response"))
    if name is None:
        return []
    return _problems(name, frame["result"], sender == "agent", unstable, f"{method} result")


def _call(frame: Frame, sender: Sender, pending: Pending, unstable: bool) -> list[str]:
    method = frame["method"]
    if "id" in frame:
        pending.asked(sender, frame)
    form = "Request" if "id" in frame else "Notification"
    definitions = _definitions(unstable)
    name = definitions.get((OTHER[sender], method, form), definitions.get(("protocol", method, form)))
    if name is None:
        unknown = sender == "agent" and not method.startswith("_")
        return [f"the {form.lower()} {method!r} is not in the protocol"] if unknown else []
    params = frame.get("params")
    return _problems(name, {} if params is None else params, sender == "agent", unstable, f"{method} params")


def _envelope(frame: Frame) -> list[tuple[str, str]]:
    problems = []
    if frame.get("jsonrpc") != "2.0":
        problems.append(("jsonrpc", f"must be \"2.0\", is {_short(frame.get('jsonrpc'))}"))
    shapes = ({"method", "params"}, {"method", "params", "id"}, {"result", "id"}, {"error", "id"})
    members = frame.keys() - {"jsonrpc"}
    if not any(members <= shape and (members | {"params"}) >= shape for shape in shapes):
        problems.append(("frame", f"is neither request, notification nor response: members {sorted(frame)}"))
    if "method" in frame and not isinstance(frame["method"], str):
        problems.append(("method", "must be a string"))
    identity = frame.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        problems.append(("id", f"must be a string, an integer or null, is {_short(identity)}"))
    return problems


# ---------------------------------------------------------------- definitions


@functools.cache
def _schema(unstable: bool, strict: bool) -> Frame:
    name = "schema.unstable.json" if unstable else "schema.json"
    schema = json.loads((_SCHEMAS / name).read_text(encoding="utf-8"))
    # What is offered is said to every client; one that knows the stable part alone passes over the rest.
    schema["$defs"]["SessionCapabilities"]["properties"].setdefault("fork", {"type": "object"})
    return {"$defs": _closed(schema["$defs"]) if strict else schema["$defs"]}


@functools.cache
def _definitions(unstable: bool) -> dict[tuple[str, str, str], str]:
    """(handling side, method, Request | Notification | Response) -> the definition's name."""
    return {
        (definition["x-side"], definition["x-method"], form): name
        for name, definition in _schema(unstable, strict=False)["$defs"].items() if "x-method" in definition
        for form in ("Request", "Notification", "Response") if name.endswith(form)
    }


@functools.cache
def _validator(name: str, unstable: bool, strict: bool) -> Draft202012Validator:
    root: Frame = {"$ref": f"#/$defs/{name}"} | _schema(unstable, strict)
    if strict:
        root["unevaluatedProperties"] = False
    return Draft202012Validator(root)


def _closed(schema: Any, value: bool = False) -> Any:
    """The schema with every place that holds a defined object refusing members which no branch names.

    `value` marks a schema of a value (a property's, an item's): only there are all branches together.
    """
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed: Frame = {}
    for key, member in schema.items():
        if key == "properties":
            closed[key] = {name: _closed(one, value=True) for name, one in member.items()}
        else:
            closed[key] = _closed(member, value=key in ("items", "additionalProperties"))
    if value and any(key in schema for key in ("$ref", "allOf", "anyOf", "oneOf")):
        closed.setdefault("unevaluatedProperties", False)
    return closed


# ---------------------------------------------------------------- problems


_seen_chunks: set[str] = set()
"""Shapes of message chunks found valid: text is free, so thousands of chunks need one validation."""


def _problems(name: str, instance: Any, strict: bool, unstable: bool, where: str) -> list[str]:
    shape = _chunk_shape(instance, strict, unstable) if name == "SessionNotification" else None
    if shape is not None and shape in _seen_chunks:
        return []
    errors = list(_validator(name, unstable, strict).iter_errors(instance))
    if shape is not None and not errors:
        _seen_chunks.add(shape)
    return [_words(error, where) for error in errors]


def _chunk_shape(instance: Any, strict: bool, unstable: bool) -> str | None:
    update = instance.get("update") if isinstance(instance, dict) else None
    if not isinstance(update, dict) or update.get("sessionUpdate") not in CHUNKS:
        return None
    return json.dumps([strict, unstable, _shape(instance)])


def _shape(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _shape(member, name) for name, member in value.items()}
    if isinstance(value, list):
        return [_shape(item, key) for item in value]
    return "" if isinstance(value, str) and key not in ("sessionUpdate", "type", "audience") else value


def _words(error: ValidationError, where: str) -> str:
    error = _deepest(error)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{where}{path}: {error.message[:300]}"


def _deepest(error: ValidationError) -> ValidationError:
    """The error of the union member that was meant: the one whose discriminator matches."""
    while error.context:
        branches: defaultdict[Any, list[ValidationError]] = defaultdict(list)
        for inner in error.context:
            branches[inner.schema_path[0]].append(inner)
        meant = [inner for inner in branches.values() if all(one.validator != "const" for one in inner)]
        if not meant:
            return error
        error = meant[0][0]
    return error


def _short(value: Any) -> str:
    return json.dumps(value)[:80]

"""The `ask_user` tool: have the user fill in a form, or open a page, in the middle of a turn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import JsonDecoder, decode_arguments, invalid
from acp_agent.tools.base import Access, CallView, Diff, Effect, Kind, Outcome, ResultView, ToolContext, ToolFailure
from acp_agent.tools.questions import Elicit, ElicitError, Field, Modes, Reply, form_schema, problem_of, told
from acp_agent.tools.views import result_text, shorten

_SECRET = re.compile(
    r"(?<![a-z])(pass(word|wd|phrase|code)|secret|(api|private|access|ssh)[ -]?key|credential"
    r"|(access|api|auth|bearer|refresh|session|github|gitlab)[ -]?token)s?(?![a-z])", re.IGNORECASE)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AskUserArguments(Struct, frozen=True):
    """Either `fields`, a form, or `url`, a page to open. Without both, one line of text is asked for."""

    message: str
    fields: tuple[Field, ...] = ()
    url: str | None = None


_FIELD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "What the answer is called."},
        "type": {
            "type": "string",
            "enum": ["text", "number", "integer", "boolean", "choice", "choices"],
            "description": "text unless given; choice is one of the options, choices any number of them.",
        },
        "title": {"type": "string", "description": "What the user sees instead of the name."},
        "description": {"type": "string", "description": "A hint for the user."},
        "options": {"type": "array", "items": {"type": "string"}, "description": "For choice and choices."},
        "required": {"type": "boolean", "description": "Whether it must be answered: true unless given."},
    },
    "required": ["name"],
    "additionalProperties": False,
}

_MESSAGE = {"type": "string", "description": "What is asked, in one or two sentences."}
_FIELDS = {"type": "array", "items": _FIELD, "description": "What to fill in. Without it: one line of text."}
_URL = {"type": "string", "description": "Instead of fields: a page the user is asked to open."}
_ONLY_URL = {"type": "string", "description": "A page the user is asked to open."}
_EVERY_WAY: Modes = frozenset({"form", "link"})


def _parameters(asks: Modes) -> dict[str, Any]:
    """What the model is told can be asked."""
    properties: dict[str, Any] = {"message": _MESSAGE}
    if "form" in asks:
        properties["fields"] = _FIELDS
    if "link" in asks:
        properties["url"] = _URL if "form" in asks else _ONLY_URL
    required = ["message"] if "form" in asks else ["message", "url"]
    return {"type": "object", "properties": properties, "required": required}


class AskUser:
    name = "ask_user"
    description = (
        "Ask the user something that you cannot find out and must not guess, and wait for the answer. The user may "
        "decline. Never ask for passwords, keys or other secrets."
    )
    access = Access.NONE
    effect = Effect.WORLD
    parallel = False

    def __init__(self, asks: Modes = _EVERY_WAY) -> None:
        """`asks` says in which ways the user can be asked."""
        self.parameters = _parameters(asks)

    def decode(self, arguments: str) -> AskUserArguments:
        args = decode_arguments(self.name, arguments, _DECODER)
        if not args.message.strip():
            raise invalid(self.name, "message: expected a question, got an empty string")
        if args.url is not None:
            if args.fields:
                raise invalid(self.name, "url: expected either url or fields, not both")
            _check_url(args.url)
            return args
        fields = args.fields or (Field("answer"),)
        _check_fields(fields)
        return AskUserArguments(args.message, fields)

    def announce(self, args: AskUserArguments, cwd: Path) -> CallView:  # noqa: ARG002 - contract
        return CallView(f"Ask: {shorten(args.message)}", Kind.other)

    async def preview(self, args: AskUserArguments, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: AskUserArguments, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        return ResultView(result_text(result))

    async def run(self, args: AskUserArguments, context: ToolContext) -> Outcome:
        elicit = context.elicit
        if elicit is None or not (elicit.forms if args.url is None else elicit.links):
            what = "be asked with a form" if args.url is None else "be sent to a page"
            raise ToolFailure(f"the user cannot {what} here; go on without an answer", "AskUserError", "UNAVAILABLE")
        try:
            return _outcome(args, await _ask(elicit, args))
        except ElicitError as error:
            raise ToolFailure(f"the user could not be asked: {error.message}", "AskUserError", "ASK_FAILED") from None


async def _ask(elicit: Elicit, args: AskUserArguments) -> Reply:
    if args.url is not None:
        return await elicit.link(args.message, args.url)
    return await elicit.form(args.message, form_schema(args.fields))


def _outcome(args: AskUserArguments, reply: Reply) -> Outcome:
    if reply.action == "decline":
        return Outcome.text("The user declined to answer.")
    if reply.action != "accept":
        return Outcome.text("The user dismissed the question without an answer.")
    if args.url is not None:
        return Outcome.text("The user agreed to open the page. Whether anything was done there is not known.")
    problem = problem_of(args.fields, reply.content)
    if problem is not None:
        raise ToolFailure(f"the answer cannot be used: {problem}", "AskUserError", "BAD_ANSWER")
    return Outcome.text(f"The user answered:\n{told(args.fields, reply.content)}")


def _check_fields(fields: tuple[Field, ...]) -> None:
    names: set[str] = set()
    for at, field in enumerate(fields):
        where = f"fields[{at}]"
        if not field.name or field.name in names:
            raise invalid(AskUser.name, f"{where}.name: expected a name that no other field has, got {field.name!r}")
        names.add(field.name)
        if (field.type in ("choice", "choices")) != bool(field.options):
            raise invalid(AskUser.name, f"{where}.options: expected options for choice and choices, and only for them")
        if _SECRET.search(f"{field.name} {field.title or ''} {field.description or ''}".replace("_", " ")):
            raise invalid(AskUser.name, f"{where}: a form must not ask for secrets; do without, or give a url where "
                                        "the user can enter it")


def _check_url(url: str) -> None:
    """A page anybody may be sent to: no credentials in the address, and nobody listens on the way (ACP guide)."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if not host or parts.scheme not in ("https", "http"):
        raise invalid(AskUser.name, f"url: expected an https address, got {url!r}")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise invalid(AskUser.name, "url: expected https; plain http only for this machine")
    if parts.username or parts.password:
        raise invalid(AskUser.name, "url: expected an address without a user name or password in it")


_DECODER = JsonDecoder(AskUserArguments)

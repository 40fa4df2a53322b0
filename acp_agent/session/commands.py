"""Slash commands: what the agent does itself when a prompt begins with one. No model is called, none is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from msgspec import UNSET, Struct

from acp_agent.ids import IdSource, MessageId
from acp_agent.mcp.names import is_mcp_name
from acp_agent.session.events import AbortCause, Aborted, Body, Completed, SessionCommand, SessionTitle, TitleSource
from acp_agent.session.log import SessionLog
from acp_agent.session.state import SessionState
from acp_agent.text import one_line
from acp_agent.tools.base import Access, Tool
from acp_agent.tools.registry import Registry

if TYPE_CHECKING:
    from acp_agent.mcp.servers import ServerReport

MAX_TITLE = 200
"""Characters of a title that a user gives."""


class Subject(Struct, frozen=True):
    """The session that a command is about. `servers` are its MCP servers."""

    log: SessionLog
    registry: Callable[[], Registry]
    servers: Callable[[], Sequence[ServerReport]]


class Reply(Struct, frozen=True):
    """What a command came to: the answer, in Markdown, and what it changes."""

    output: str
    changes: tuple[Body, ...] = ()


class Command(Struct, frozen=True):
    """A command. `hint` says what may follow its name, if anything."""

    name: str
    description: str
    run: Callable[[Subject, str], Reply]
    hint: str | None = None


class Call(Struct, frozen=True):
    """A command as a user called it; `argument` is what followed its name."""

    command: Command
    argument: str


_CALL = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


def called(text: str) -> Call | None:
    """The command that a prompt's first text calls; None where it is an ordinary prompt."""
    match = _CALL.fullmatch(text)
    command = None if match is None else _BY_NAME.get(match[1])
    return None if match is None or command is None else Call(command, (match[2] or "").strip())


class CommandRun:
    """Runs one command, in a turn's place. `cancel` may be called at any time, also before `run`."""

    def __init__(self, subject: Subject, ids: IdSource, call: Call, message: MessageId, text: str) -> None:
        """`message` is the id of the prompt, `text` what it says."""
        self._subject = subject
        self._ids = ids
        self._call = call
        self._message = message
        self._text = text
        self._scope = anyio.CancelScope()
        self._cause = AbortCause("user")

    def cancel(self, cause: str = "user") -> None:
        """Stop as soon as possible."""
        if not self._scope.cancel_called:
            self._cause = AbortCause(cause)
            self._scope.cancel()

    async def run(self) -> Completed | Aborted:
        """Do it and store that it was done. Raises `StoreError`."""
        with self._scope:
            await anyio.lowlevel.checkpoint()
            reply = self._call.command.run(self._subject, self._call.argument)
            log = self._subject.log
            log.append(SessionCommand(self._message, self._text, self._ids.message(), reply.output))
            for change in reply.changes:
                log.append(change)
            with anyio.CancelScope(shield=True):
                await log.sync()
        return Aborted(self._cause) if self._scope.cancel_called else Completed()


# ---------------------------------------------------------------- the commands


def _list(title: str, rows: Iterable[str]) -> Reply:
    return Reply("\n".join([title, "", *(f"- {row}" for row in rows)]))


def _help(_subject: Subject, _argument: str) -> Reply:
    rows = [f"`/{one.name}{f' {one.hint}' if one.hint else ''}`: {one.description}" for one in COMMANDS]
    return _list("Commands that the agent runs itself; the model is not asked and not told:", rows)


def _usage(subject: Subject, _argument: str) -> Reply:
    state = subject.log.state
    spent = state.spent
    if not spent.answers:
        used = "No tokens used by this session yet."
    else:
        cached = f", {spent.cached:,} of the cache" if spent.cached else ""
        answers = "1 answer" if spent.answers == 1 else f"{spent.answers:,} answers"
        used = (f"Tokens used by this session: {spent.input + spent.cached:,} in{cached}, {spent.output:,} out, "
                f"in {answers}.")  # fmt: skip
    context = _context(state)
    return Reply(used if context is None else f"{used}\n\n{context}")


def _context(state: SessionState) -> str | None:
    window = UNSET if state.context is None else state.context.context_window
    if window is UNSET or state.usage is UNSET:
        return None
    used = state.usage.total
    share = f" ({100 * used / window:.1f} %)" if window else ""
    return f"Context: {used:,} of {window:,} tokens{share}."


_DOES = {
    Access.NONE: "acts on the session alone",
    Access.READ: "reads files",
    Access.EDIT: "changes files",
    Access.EXECUTE: "runs programs, which nothing confines",
}


def _tools(subject: Subject, _argument: str) -> Reply:
    registry = subject.registry()
    offered = [registry.get(schema.name) for schema in registry.schemas()]
    rows = [f"`{tool.name}`: {_what(tool)}" for tool in offered if tool is not None]
    return _list("Tools that the model is offered, and what they do to the world:", rows)


def _what(tool: Tool) -> str:
    return "whatever its MCP server does" if is_mcp_name(tool.name) else _DOES[tool.access]


def _mcp(subject: Subject, _argument: str) -> Reply:
    servers = subject.servers()
    if not servers:
        return Reply("No MCP server was started for this session.")
    return _list("MCP servers of this session:", map(_server, servers))


def _server(report: ServerReport) -> str:
    tools = f"; tools: {', '.join(f'`{name}`' for name in report.tools)}" if report.tools else ""
    return f"{report.name}: {report.state}{tools}"


def _rename(_subject: Subject, argument: str) -> Reply:
    title = one_line(argument)
    if not title:
        return Reply("A title is missing: `/rename TITLE`.")
    if len(title) > MAX_TITLE:
        return Reply(f"The title is too long: {len(title)} characters, and {MAX_TITLE} are allowed.")
    return Reply(f"The session is called: {title}", (SessionTitle(title, [], TitleSource("user")),))


COMMANDS = (
    Command("help", "Say which commands there are.", _help),
    Command("usage", "Say how many tokens the session has used, and how full the context is.", _usage),
    Command("tools", "List the tools, and what each does to the world.", _tools),
    Command("mcp", "Say how the session's MCP servers are doing.", _mcp),
    Command("rename", "Give the session a title.", _rename, "TITLE"),
)
"""Every command, in the order in which they are shown."""

_BY_NAME = {command.name: command for command in COMMANDS}

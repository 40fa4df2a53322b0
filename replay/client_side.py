"""What the driver answers when the agent asks: permissions, files, terminals, elicitations, all from the script."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay.exchange import Exchange, Frame, Id, RpcError
from replay.scenario import ElicitationAnswer, PermissionAnswer, Scenario
from replay.terminals import CreateParams, ExitStatus, Terminal, Terminals
from replay.workspace import Workspace

T = TypeVar("T")

NOT_FOUND, BAD_PARAMS, NO_METHOD, FAILED = -32002, -32602, -32601, -32603


class _Option(Struct, frozen=True, rename="camel"):
    option_id: str
    kind: str


class _AskedCall(Struct, frozen=True, rename="camel"):
    tool_call_id: str
    title: str | None = None


class _Permission(Struct, frozen=True, rename="camel"):
    session_id: str
    tool_call: _AskedCall
    options: list[_Option]


class _Read(Struct, frozen=True):
    path: str
    line: int | None = None
    limit: int | None = None


class _Write(Struct, frozen=True):
    path: str
    content: str


class _Elicitation(Struct, frozen=True):
    mode: str


class _TerminalId(Struct, frozen=True, rename="camel"):
    terminal_id: str


class _Told(Struct, frozen=True, rename="camel"):
    """An update, as far as it may tell of a child."""

    session_update: Any = None
    session_id: Any = None


class _Held(Struct, frozen=True):
    session: str
    request: Id | UnsetType


class Refused(Exception):
    """A request gets an error for an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = RpcError(code, message)


CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


class ClientSide:
    """Answers an agent's requests. `problems` collects what the script got wrong; look at it after each step."""

    def __init__(self, scenario: Scenario, workspace: Workspace, exchange: Exchange) -> None:
        self.problems: list[str] = []
        self._exchange = exchange
        self._workspace = workspace
        self._permissions = list(scenario.permission_answers)
        self._held: list[_Held] = []
        self._elicitations = list(scenario.answers.elicitations)
        self._modes = scenario.capabilities.elicitation
        self._buffers = {os.path.normpath(workspace.directory / path): text
                         for path, text in scenario.answers.files.items()}
        self._terminals = Terminals(workspace.root / "terminals", workspace.directory, workspace.plain_environment())
        self._handlers = self._offered(scenario)
        exchange.on_request = self.answer
        exchange.on_look = self._terminals.look

    def _offered(self, scenario: Scenario) -> dict[str, Callable[[Frame], Any]]:
        """The methods that the scenario's capabilities offer."""
        offered = scenario.capabilities
        handlers: dict[str, Callable[[Frame], Any]] = {"session/request_permission": self._permission}
        if offered.fs.read_text_file:
            handlers["fs/read_text_file"] = self._read
        if offered.fs.write_text_file:
            handlers["fs/write_text_file"] = self._write
        if offered.terminal:
            handlers |= {
                "terminal/create": self._create, "terminal/output": self._output, "terminal/kill": self._kill,
                "terminal/wait_for_exit": self._wait_for_exit, "terminal/release": self._release,
            }
        if self._modes.form is not None or self._modes.url is not None:
            handlers["elicitation/create"] = self._elicit
        return handlers

    def answer(self, request: Frame) -> None:
        """Answer a request now, or see to it that it is answered when it can be."""
        handler = self._handlers.get(str(request.method))
        try:
            if handler is None:
                raise Refused(NO_METHOD, f"this client does not offer {request.method}")
            result = handler(request)
        except Refused as refused:
            self._exchange.refuse(request.id, refused.error)
        else:
            if result is not None:
                self._exchange.respond(request.id, result)

    def cancelled(self, session: str) -> None:
        """A session was cancelled: the questions that were held for it and for its children are answered so."""
        held, self._held = self._held, []
        family = self._family(session) if held else []
        for question in held:
            if question.session in family:
                self._exchange.respond(question.request, CANCELLED)
            else:
                self._held.append(question)

    def _family(self, session: str) -> list[str]:
        """A session, and all below it that the agent told of."""
        family = [session]
        for parent in family:
            for _, raw in self._exchange.updates(parent, 0):
                told = msgspec.json.decode(raw, type=_Told)
                if told.session_update == "subagent_update" and told.session_id not in (None, *family):
                    family.append(str(told.session_id))
        return family

    def release_held(self) -> None:
        """The script has ended: every question that is still held is answered as cancelled."""
        for question in self._held:
            self._exchange.respond(question.request, CANCELLED)
        self._held.clear()

    def forget(self) -> None:
        """The agent's process is gone: nobody waits for an answer or for a terminal any more."""
        self._held.clear()
        self._terminals.close()

    def close(self) -> None:
        """Kill what runs in the client's terminals."""
        self._terminals.close()

    # -- permissions

    def _permission(self, request: Frame) -> Any:
        asked = _params(request, _Permission)
        answer = self._next_answer(asked.tool_call)
        if answer is None or answer.kind == "cancelled":
            return CANCELLED
        if answer.kind == "hold":
            self._held.append(_Held(asked.session_id, request.id))
            return None
        for option in asked.options:
            if option.kind == answer.kind:
                return {"outcome": {"outcome": "selected", "optionId": option.option_id}}
        offered = ", ".join(option.kind for option in asked.options) or "nothing"
        self.problems.append(f"the permission answer {answer.kind!r} was not offered for the call "
                             f"{asked.tool_call.tool_call_id!r}; offered: {offered}")
        return CANCELLED

    def _next_answer(self, call: _AskedCall) -> PermissionAnswer | None:
        for position, answer in enumerate(self._permissions):
            wanted_id, wanted_title = answer.tool_call_id, answer.title
            if wanted_id not in (UNSET, call.tool_call_id):
                continue
            if wanted_title is UNSET or wanted_title in (call.title or ""):
                return self._permissions.pop(position)
        return None

    # -- files

    def _read(self, request: Frame) -> Any:
        params = _params(request, _Read)
        path = self._path(params.path)
        if (params.line is not None and params.line < 1) or (params.limit is not None and params.limit < 0):
            raise Refused(BAD_PARAMS, "`line` counts from 1 and `limit` from 0")
        buffer = self._buffers.get(os.path.normpath(path))
        text = _file_text(path) if buffer is None else buffer
        return {"content": _window(text, params.line or 1, params.limit)}

    def _write(self, request: Frame) -> Any:
        params = _params(request, _Write)
        path = self._path(params.path)
        self._buffers.pop(os.path.normpath(path), None)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(params.content.encode())
        except OSError as error:
            raise Refused(FAILED, f"{params.path}: {error.strerror}") from None
        return {}

    def _path(self, path: str) -> Path:
        if not Path(path).is_absolute():
            raise Refused(BAD_PARAMS, f"`path` must be absolute, not {path!r}")
        if not self._workspace.holds(path):
            raise Refused(BAD_PARAMS, f"{path} is outside of what this client has open")
        return Path(path)

    # -- elicitation

    def _elicit(self, request: Frame) -> Any:
        mode = _params(request, _Elicitation).mode
        if getattr(self._modes, mode, None) is None:
            raise Refused(BAD_PARAMS, f"this client does not offer elicitations of the mode {mode!r}")
        return self._elicitations.pop(0) if self._elicitations else ElicitationAnswer("cancel")

    # -- terminals

    def _create(self, request: Frame) -> Any:
        params = _params(request, CreateParams)
        try:
            return {"terminalId": self._terminals.create(params)}
        except (OSError, ValueError) as error:
            raise Refused(FAILED, f"cannot start {params.command!r}: {error}") from None

    def _output(self, request: Frame) -> Any:
        return self._terminal(request).output()

    def _wait_for_exit(self, request: Frame) -> Any:
        def tell(status: ExitStatus) -> None:
            self._exchange.respond(request.id, status)

        self._terminal(request).when_ended(tell)

    def _kill(self, request: Frame) -> Any:
        self._terminal(request).kill()
        return {}

    def _release(self, request: Frame) -> Any:
        self._terminal(request)
        self._terminals.release(_params(request, _TerminalId).terminal_id)
        return {}

    def _terminal(self, request: Frame) -> Terminal:
        name = _params(request, _TerminalId).terminal_id
        terminal = self._terminals.find(name)
        if terminal is None:
            raise Refused(NOT_FOUND, f"there is no terminal {name!r}")
        return terminal


def _params(request: Frame, cls: type[T]) -> T:
    try:
        return msgspec.json.decode(Raw(b"{}") if request.params is UNSET else request.params, type=cls)
    except msgspec.ValidationError as error:
        raise Refused(BAD_PARAMS, str(error)) from None


def _window(text: str, line: int, limit: int | None) -> str:
    """`limit` lines of a text, or all, from the `line`-th on; a line's end is its newline and nothing else."""
    lines = text.split("\n")
    ended = [f"{one}\n" for one in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return "".join(ended[line - 1 :] if limit is None else ended[line - 1 : line - 1 + limit])


def _file_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(NOT_FOUND, f"{path} does not exist") from None
    except OSError as error:
        raise Refused(FAILED, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(FAILED, f"{path} is not UTF-8 text") from None

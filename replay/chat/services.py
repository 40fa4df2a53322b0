"""What the client does when the agent asks: files below the working directory, terminals, and questions."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from acp_agent.rpc.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from replay.chat.contract import Refused
from replay.chat.outputs import Outputs
from replay.chat.protocol import Done, FileText, Form, NewTerminal, Read, TerminalName, Write
from replay.chat.questions import Asker
from replay.terminals import CreateParams, ExitStatus, Terminal, Terminals
from replay.transcript_frames import Permission

T = TypeVar("T")

NOT_FOUND = -32002


class Services:
    """Serves one agent. `wrote` is told, while commands run, the terminal's name and the lines that they wrote.

    cwd        the session's directory, resolved
    directory  for the output of commands
    environ    what commands get beside their own variables
    """

    def __init__(
        self, cwd: Path, directory: Path, environ: Mapping[str, str], asker: Asker, wrote: Callable[[str, str], None],
    ) -> None:
        self._cwd = cwd
        self._asker = asker
        self._terminals = Terminals(directory, cwd, environ)
        self._outputs = Outputs(wrote)
        self._methods: dict[str, Callable[[Raw], Awaitable[Struct]]] = {
            "session/request_permission": self._permission,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait_for_exit,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }
        if asker.fills_forms:
            self._methods["elicitation/create"] = self._elicit

    async def serve(self, method: str, params: Raw) -> Struct:
        """Answer a request. Raises `Refused`."""
        service = self._methods.get(method)
        if service is None:
            raise Refused(METHOD_NOT_FOUND, f"this client does not offer {method}")
        return await service(params)

    def look(self) -> None:
        """Some child process has ended: tell those who wait for it."""
        self._terminals.look()

    def close(self) -> None:
        """Kill what runs in terminals."""
        self._outputs.close()
        self._terminals.close()

    # -- questions

    async def _permission(self, raw: Raw) -> Struct:
        return await self._asker.permission(_params(raw, Permission))

    async def _elicit(self, raw: Raw) -> Struct:
        form = _params(raw, Form)
        if form.mode != "form":
            raise Refused(INVALID_PARAMS, f"this client does not offer elicitations of the mode {form.mode!r}")
        return await self._asker.form(form)

    # -- files

    async def _read(self, raw: Raw) -> Struct:
        params = _params(raw, Read)
        text = _text(self._inside(params.path))
        if params.line is None and params.limit is None:
            return FileText(text)
        first = (params.line or 1) - 1
        last = None if params.limit is None else first + params.limit
        return FileText("".join(io.StringIO(text, newline="\n").readlines()[first:last]))

    async def _write(self, raw: Raw) -> Struct:
        params = _params(raw, Write)
        path = self._inside(params.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(params.content.encode())
        except OSError as error:
            raise Refused(INTERNAL_ERROR, f"{params.path}: {error.strerror}") from None
        return Done()

    def _inside(self, path: str) -> Path:
        """The file a path names in truth. An editor opens no files outside of its project; nor does this client."""
        if not Path(path).is_absolute():
            raise Refused(INVALID_PARAMS, f"`path` must be absolute, not {path!r}")
        try:
            real = Path(path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise Refused(INVALID_PARAMS, f"`path` cannot be used: {error}") from None
        if not real.is_relative_to(self._cwd):
            raise Refused(INVALID_PARAMS, f"{path} is outside of the session's directory {self._cwd}")
        return real

    # -- terminals

    async def _create(self, raw: Raw) -> Struct:
        params = _params(raw, CreateParams)
        try:
            name = self._terminals.create(params)
        except (OSError, ValueError) as error:
            raise Refused(INTERNAL_ERROR, f"cannot start {params.command!r}: {error}") from None
        self._outputs.follow(name, self._find(name))
        return NewTerminal(name)

    async def _output(self, raw: Raw) -> Struct:
        return self._terminal(raw).output()

    async def _wait_for_exit(self, raw: Raw) -> Struct:
        ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._terminal(raw).when_ended(lambda status: None if ended.done() else ended.set_result(status))
        self.look()  # it may have ended before
        return await ended

    async def _kill(self, raw: Raw) -> Struct:
        self._terminal(raw).kill()
        self.look()
        return Done()

    async def _release(self, raw: Raw) -> Struct:
        self._terminal(raw)
        name = _params(raw, TerminalName).terminal_id
        self._terminals.release(name)
        self._outputs.forget(name)
        return Done()

    def _terminal(self, raw: Raw) -> Terminal:
        return self._find(_params(raw, TerminalName).terminal_id)

    def _find(self, name: str) -> Terminal:
        terminal = self._terminals.find(name)
        if terminal is None:
            raise Refused(NOT_FOUND, f"there is no terminal {name!r}")
        return terminal


def _params(raw: Raw, cls: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=cls)
    except msgspec.MsgspecError as error:
        raise Refused(INVALID_PARAMS, str(error)) from None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(NOT_FOUND, f"{path} does not exist") from None
    except OSError as error:
        raise Refused(INTERNAL_ERROR, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(INTERNAL_ERROR, f"{path} is not UTF-8 text") from None

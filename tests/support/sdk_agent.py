"""A small agent on the Python SDK, for tests of the kit with an agent that is not ours. The prompt says what to do:

    say TEXT            answer with the text, a chunk a word
    big N               answer with one chunk of N characters
    big-tool N          the same as a tool call's content
    ask [CALL]          ask whether a tool may run, say what came of it
    ask-many CALLS      the same about several calls at once
    read PATH [L [N]]   fs/read_text_file, say the content
    write PATH TEXT     fs/write_text_file
    run ARGS            run a command in the client's terminal, say its output and how it ended
    run-in DIR ARGS     the same in a directory, with GREETING=hello in its environment and 10 bytes of output
    kill ARGS           run a command, kill it, say how it ended
    leave ARGS          run a command in a terminal and never release it
    elicit TEXT         elicitation/create, say the action and the content
    hang                say so, then wait until cancelled
    touch PATH          make a file in the working directory
    orphan              leave a process behind
    fail TEXT           a JSON-RPC error
    extension           a request no client knows
    environment NAME    say a variable
    echo-blocks         say each block's type
    complain TEXT       write to stderr
    print TEXT          write to stdout what is not protocol
    exit N              end at once
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from acp import (
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    text_block,
    update_agent_message,
)
from acp.helpers import start_tool_call, tool_content, update_tool_call
from acp.interfaces import Client
from acp.schema import (
    ElicitationFormSessionMode,
    ElicitationSchema,
    EnvVariable,
    PermissionOption,
    SetSessionModeResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
)


class SdkAgent:
    """One connection's agent; it keeps nothing."""

    def __init__(self) -> None:
        self._client: Client
        self._cwds: dict[str, str] = {}
        self._cancelled: dict[str, asyncio.Event] = {}

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, *_: Any, **__: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, *_: Any, **__: Any) -> NewSessionResponse:
        if not Path(cwd).is_absolute():
            raise RequestError.invalid_params({"cwd": "must be absolute"})
        session = f"session-{len(self._cwds) + 1}"
        self._cwds[session] = cwd
        self._cancelled[session] = asyncio.Event()
        return NewSessionResponse(session_id=session)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        if mode_id == "nowhere":
            raise RequestError.invalid_params({"modeId": mode_id})
        await self._say(session_id, f"mode {mode_id}")
        return SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled[session_id].set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        cancelled = self._cancelled[session_id]
        cancelled.clear()
        word, _sep, rest = getattr(prompt[0], "text", "").partition(" ")
        if word == "echo-blocks":
            await self._say(session_id, " ".join(block.type for block in prompt))
        else:
            await getattr(self, f"_{word.replace('-', '_')}")(session_id, rest)
        return PromptResponse(stop_reason="cancelled" if cancelled.is_set() else "end_turn")

    async def _say(self, session: str, text: str) -> None:
        for number, word in enumerate(text.split(" ")):
            await self._client.session_update(session, update_agent_message(text_block(f" {word}" if number else word)))

    async def _big(self, session: str, rest: str) -> None:
        await self._say(session, "x" * int(rest))

    async def _big_tool(self, session: str, rest: str) -> None:
        await self._client.session_update(session, start_tool_call("call-1", "Big", kind="other", status="pending"))
        content = [tool_content(text_block("x" * int(rest)))]
        await self._client.session_update(session, update_tool_call("call-1", status="completed", content=content))

    async def _ask(self, session: str, rest: str) -> None:
        call = rest or "call-1"
        await self._client.session_update(
            session, start_tool_call(call, f"Write {call}", kind="edit", status="pending"))
        options = [PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
                   PermissionOption(option_id="no", name="No", kind="reject_once")]
        asked = ToolCallUpdate(tool_call_id=call, title=f"Write {call}")
        outcome = (await self._client.request_permission(session, asked, options)).outcome
        said = outcome.option_id if outcome.outcome == "selected" else outcome.outcome
        await self._client.session_update(session, update_tool_call(call, status="completed"))
        await self._say(session, f"{call}:{said}")

    async def _ask_many(self, session: str, rest: str) -> None:
        await asyncio.gather(*(self._ask(session, call) for call in rest.split()))

    async def _read(self, session: str, rest: str) -> None:
        path, *numbers = rest.split()
        line, limit = [*map(int, numbers), None, None][:2]
        read = await self._client.read_text_file(session, self._path(session, path), line, limit)
        await self._say(session, read.content)

    async def _write(self, session: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        await self._client.write_text_file(session, self._path(session, path), text)

    def _path(self, session: str, path: str) -> str:
        return path if path.startswith("./") else os.path.join(self._cwds[session], path)  # noqa: PTH118  # as sent

    async def _run(self, session: str, rest: str) -> None:
        command, *args = shlex.split(rest)
        terminal = (await self._client.create_terminal(session, command, args)).terminal_id
        await self._report(session, terminal)

    async def _run_in(self, session: str, rest: str) -> None:
        directory, command, *args = shlex.split(rest)
        env = [EnvVariable(name="GREETING", value="hello")]
        terminal = (await self._client.create_terminal(
            session, command, args, env, self._path(session, directory), 10)).terminal_id
        await self._report(session, terminal)

    async def _kill(self, session: str, rest: str) -> None:
        command, *args = shlex.split(rest)
        terminal = (await self._client.create_terminal(session, command, args)).terminal_id
        waiting = asyncio.create_task(self._wait(session, terminal))
        await self._client.kill_terminal(session, terminal)
        await waiting
        await self._report(session, terminal)

    async def _leave(self, session: str, rest: str) -> None:
        command, *args = shlex.split(rest)
        await self._say(session, (await self._client.create_terminal(session, command, args)).terminal_id)

    async def _wait(self, session: str, terminal: str) -> WaitForTerminalExitResponse:
        return await self._client.wait_for_terminal_exit(session, terminal)

    async def _report(self, session: str, terminal: str) -> None:
        ended = await self._wait(session, terminal)
        output = await self._client.terminal_output(session, terminal)
        await self._client.release_terminal(session, terminal)
        await self._say(session, f"[{output.output}]{output.truncated}/{ended.exit_code}/{ended.signal}")
        try:
            await self._client.terminal_output(session, terminal)
        except RequestError as error:
            await self._say(session, f"({error.code})")

    async def _elicit(self, session: str, rest: str) -> None:
        schema = ElicitationSchema(type="object", properties={})
        mode = ElicitationFormSessionMode(session_id=session, requested_schema=schema)
        answer = await self._client.create_elicitation(rest, mode)
        await self._say(session, f"{answer.action}:{getattr(answer, 'content', None)}")

    async def _hang(self, session: str, rest: str) -> None:
        await self._say(session, "hanging")
        await self._cancelled[session].wait()

    async def _touch(self, session: str, rest: str) -> None:
        Path(self._cwds[session], rest).touch()

    async def _orphan(self, session: str, rest: str) -> None:
        left = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: ASYNC220
        await self._say(session, str(left.pid))

    async def _fail(self, session: str, rest: str) -> None:
        raise RequestError(-32050, rest)

    async def _extension(self, session: str, rest: str) -> None:
        try:
            await self._client.ext_method("nobody/knows", {})
        except RequestError as error:
            await self._say(session, str(error.code))

    async def _environment(self, session: str, rest: str) -> None:
        await self._say(session, os.environ.get(rest, "(unset)"))

    async def _complain(self, session: str, rest: str) -> None:
        sys.stderr.write(f"{rest}\n")
        sys.stderr.flush()

    async def _print(self, session: str, rest: str) -> None:
        os.write(1, f"{rest}\n".encode())

    async def _exit(self, session: str, rest: str) -> None:
        os._exit(int(rest))


if __name__ == "__main__":
    asyncio.run(run_agent(cast(Agent, SdkAgent()), use_unstable_protocol=True))  # the methods nobody calls are missing

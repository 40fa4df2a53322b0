"""A client on the Python SDK: `sdk_client.py PLAN COMMAND...` does what the plan says with an agent.

The plan is a JSON file: `cwd`, `capabilities` of the client, `unstable`, and `steps`, which are

    initialize, new, list              as the protocol has it
    prompt     `text`; `answers` are the kinds of options chosen when asked, in order, afterwards the dialogue is
               closed; `cancelAt` cancels as soon as the agent says `text`, or a tool is `running`
    mode       `mode`
    load, resume, fork, close, delete  a session of another client's, by `id`

A step is about the first session, or the one at the position `session`. A report for each is printed as a JSON line:
what came of it (or its `error` code), and what was `heard` meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from acp import PROTOCOL_VERSION, ReadTextFileResponse, RequestError, WriteTextFileResponse, spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)

Json = dict[str, Any]
CHUNKS = {"user_message_chunk": "user", "agent_thought_chunk": "thought", "agent_message_chunk": "text"}


class Ear:
    """What the agent says and asks, as the SDK hands it over."""

    def __init__(self) -> None:
        self.heard: Json = {}
        self.answers: list[str] = []
        self.watch: str | None = None
        self.seen = asyncio.Event()
        """What is watched for was heard."""
        self.listen()

    def listen(self) -> None:
        self.heard = {"user": "", "thought": "", "text": "", "tools": [], "asked": [], "other": []}

    def on_connect(self, conn: Any) -> None:
        """The connection is held elsewhere."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        kind = update.session_update
        if kind in CHUNKS:
            self.heard[CHUNKS[kind]] += update.content.text
        elif kind == "tool_call":
            self.heard["tools"].append({"id": update.tool_call_id, "title": update.title, "kind": update.kind,
                                        "status": update.status})
        elif kind == "tool_call_update":
            (tool,) = (one for one in self.heard["tools"] if one["id"] == update.tool_call_id)
            for name in ("title", "kind", "status"):
                tool[name] = getattr(update, name) or tool[name]
        else:
            self.heard["other"].append(kind)
        running = getattr(update, "status", None) == "in_progress"
        if self.watch == ("text" if kind == "agent_message_chunk" else "running" if running else "nothing"):
            self.seen.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any,
    ) -> RequestPermissionResponse:
        self.heard["asked"].append({"id": tool_call.tool_call_id, "kinds": [option.kind for option in options]})
        kind = self.answers.pop(0) if self.answers else None
        for option in options:
            if option.kind == kind:
                return RequestPermissionResponse(
                    outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        try:
            return ReadTextFileResponse(content=Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        Path(path).write_text(content, encoding="utf-8")
        return WriteTextFileResponse()


class Steps:
    """The steps of a plan, by name."""

    def __init__(self, agent: ClientSideConnection, ear: Ear, plan: Json) -> None:
        self._agent = agent
        self._ear = ear
        self._plan = plan
        self._cwd = plan["cwd"]
        self._sessions: list[str] = []

    async def take(self, step: Json) -> Json:
        """Do a step; returns the report on it."""
        self._ear.listen()
        try:
            came: Json = await getattr(self, f"_{step['op']}")(step) or {}
        except RequestError as error:
            came = {"error": error.code, "message": str(error)}
        return {"did": step["op"], **came, "heard": self._ear.heard}

    def _session(self, step: Json) -> str:
        return str(step.get("id") or self._sessions[step.get("session", 0)])

    async def _initialize(self, step: Json) -> Json:
        result = await self._agent.initialize(
            PROTOCOL_VERSION, ClientCapabilities.model_validate(self._plan.get("capabilities", {})),
            Implementation(name="tests", version="1"))
        assert result.agent_info is not None
        return {"agent": result.agent_info.name, "version": result.protocol_version}

    async def _new(self, step: Json) -> Json:
        result = await self._agent.new_session(self._cwd)
        self._sessions.append(result.session_id)
        return {"session": result.session_id} | _mode(result)

    async def _prompt(self, step: Json) -> Json:
        session = self._session(step)
        self._ear.answers = list(step.get("answers", []))
        self._ear.watch = step.get("cancelAt")
        self._ear.seen.clear()
        prompted = asyncio.create_task(
            self._agent.prompt(session, [TextContentBlock(type="text", text=step["text"])]))
        if self._ear.watch is not None:
            await self._ear.seen.wait()
            await self._agent.cancel(session)
        return {"stop": (await prompted).stop_reason}

    async def _mode(self, step: Json) -> None:
        await self._agent.set_session_mode(self._session(step), step["mode"])

    async def _list(self, step: Json) -> Json:
        result = await self._agent.list_sessions(self._cwd)
        return {"listed": [{"session": one.session_id, "title": one.title} for one in result.sessions]}

    async def _load(self, step: Json) -> Json:
        return _mode(await self._agent.load_session(self._cwd, self._session(step)))

    async def _resume(self, step: Json) -> Json:
        return _mode(await self._agent.resume_session(self._session(step), self._cwd))

    async def _fork(self, step: Json) -> Json:
        result = await self._agent.fork_session(self._session(step), self._cwd)
        self._sessions.append(result.session_id)
        return {"session": result.session_id}

    async def _close(self, step: Json) -> None:
        await self._agent.close_session(self._session(step))


def _mode(result: Any) -> Json:
    return {"mode": None if result.modes is None else result.modes.current_mode_id}


async def main(plan: Json, command: str, *args: str) -> None:
    ear = Ear()  # without terminals and dialogues, which the SDK's type asks for
    async with spawn_agent_process(
        cast(Client, ear), command, *args, env=os.environ, transport_kwargs={"stderr": None},
        use_unstable_protocol=plan.get("unstable", False),
    ) as (agent, _process):
        steps = Steps(agent, ear, plan)
        for step in plan["steps"]:
            sys.stdout.write(json.dumps(await steps.take(step)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), *sys.argv[2:]))

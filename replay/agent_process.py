"""An agent's process and its client, to be driven from code: what a script's steps say, as methods.

    with AgentProcess(["my-agent"], tmp_path) as agent:
        agent.initialize()
        answer = agent.new_session().prompt("Say hello.")
    assert answer.text == "Hello."
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay import steps
from replay.artefacts import Artefacts, WireLine
from replay.client_side import ClientSide
from replay.cut import Mark
from replay.driver import TIMEOUT
from replay.exchange import Exchange, Frame, RpcError
from replay.failures import CannotStart, RunFailed, ScriptError
from replay.paths import map_strings
from replay.player import CLIENT
from replay.receipts import joined
from replay.scenario import INPUT, PermissionMode, Scenario, read_scenario
from replay.transports import Transport, TransportName, end_processes, open_transport
from replay.waits import OpenPrompt, OpenSession, Waits
from replay.workspace import Workspace

Params = Mapping[str, Any]


class Refused(RunFailed):
    """The agent answered a request with an error; `error` has its code, message and data."""

    def __init__(self, method: str, error: RpcError) -> None:
        super().__init__(f"{method} was answered with {error}")
        self.error = error


class ToolCall(Struct, frozen=True):
    """A tool call as the updates of one prompt left it."""

    id: str
    title: str
    status: str
    content: list[Any]


class Answer(Struct, frozen=True):
    """How a prompt ended. `updates` are those of its session from its sending to its response, as JSON values."""

    stop_reason: str
    updates: tuple[dict[str, Any], ...]

    @property
    def text(self) -> str:
        """What the agent said, all chunks joined."""
        return _joined(self.updates, "agent_message_chunk")

    @property
    def thoughts(self) -> str:
        """What the agent thought, all chunks joined."""
        return _joined(self.updates, "agent_thought_chunk")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls in the order they were announced."""
        calls: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
                known = calls.setdefault(update["toolCallId"], {})
                known.update({key: value for key, value in update.items() if value is not None})
        return [ToolCall(call, known.get("title", ""), known.get("status", "pending"), known.get("content", []))
                for call, known in calls.items()]


def _joined(updates: Sequence[Mapping[str, Any]], kind: str) -> str:
    contents = (update["content"] for update in updates if update.get("sessionUpdate") == kind)
    return "".join(content.get("text", "") for content in contents)


class AgentProcess:
    """One run of an agent in a fresh workspace. A context manager: it starts the agent, and ends it in order.

    command          starts the agent
    root             a directory for this run alone: `workspace`, home and stored sessions lie in it
    recording        what the agent is to replay (`ACP_REPLAY_DIR`)
    seed             a directory whose content the workspace begins with
    env              further variables, `{{cwd}}` and `{{home}}` filled in
    permission_mode  `ask` when there are `permissions`, else `full-access`, unless given
    permissions      answers to permission questions in their order; afterwards each is answered `cancelled`
    files            unsaved editor buffers by path, for the file methods
    capabilities     client capabilities, with what they offer served: `{"fs": {"readTextFile": True}}`
    timeout          seconds for each wait
    on_line          called with each line that passed, both directions, in order

    No method waits by time. All raise `RunFailed` in one of its forms, with the last frames and stderr.
    """

    def __init__(
        self, command: Sequence[str], root: Path, *, recording: Path | None = None, seed: Path | None = None,
        env: Mapping[str, str] | None = None, permission_mode: PermissionMode | None = None,
        permissions: Sequence[str] = (), files: Mapping[str, str] | None = None, capabilities: Params | None = None,
        transport: TransportName = "pipe", timeout: float = TIMEOUT,
        on_line: Callable[[WireLine], None] | None = None,
    ) -> None:
        self._command = command
        self._root = root
        self._recording = recording
        self._seed = root / "no-seed" if seed is None else seed
        self._mode = permission_mode
        self._scenario = _scenario(permissions, files or {}, capabilities or {})
        self._env = dict(env or {})
        self._transport_name = transport
        self._timeout = timeout
        self._on_line = on_line
        self._told = 0
        self._running: _Running | None = None
        self._artefacts: Artefacts | None = None

    def __enter__(self) -> Self:
        try:
            ground = Workspace.make(self._root, self._seed)
        except OSError as error:
            raise CannotStart(f"cannot make the run's directories in {self._root}: {error}") from None
        env = ground.environment(self._mode or self._scenario.permission_mode, self._recording, {}, self._env)
        agent = open_transport(
            self._transport_name, self._command, cwd=ground.directory, env=env, stderr=ground.stderr_file)
        exchange = Exchange(agent, self._timeout, ground.stderr)
        client = ClientSide(self._scenario, ground, exchange)
        look = exchange.on_look

        def look_and_tell() -> None:
            look()
            self._tell(exchange)

        exchange.on_look = look_and_tell
        self._running = _Running(ground, agent, exchange, client, Waits(exchange, ground))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None,
    ) -> None:
        if self._running is None:
            return
        try:
            if error is None:
                self.close()
        finally:
            self._leave()

    def close(self) -> Artefacts:
        """Close the agent's input, await its exit, and gather what it left. Safe to call twice.

        Raises `Stuck` when it does not exit; no process is left then either.
        """
        if self._artefacts is not None:
            return self._artefacts
        running = self._now
        try:
            running.client.release_held()
            status = running.exchange.end()
            self._tell(running.exchange)
            self._artefacts = running.harvest(status)
            self._check()
        finally:
            self._leave()
        return self._artefacts

    def _leave(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.leave()

    @property
    def artefacts(self) -> Artefacts:
        """What the run left: wire, logs, files, stderr, exit status. Once it was closed."""
        if self._artefacts is None:
            raise ScriptError("the agent was not closed yet")
        return self._artefacts

    @property
    def workspace(self) -> Path:
        """The agent's working directory."""
        return self._root.absolute() / "workspace"

    # -- the protocol

    def initialize(self, protocol_version: int = 1) -> dict[str, Any]:
        """`initialize` with the capabilities; its result."""
        result: dict[str, Any] = self.request("initialize", {
            "protocolVersion": protocol_version, "clientCapabilities": self._scenario.sent_capabilities,
            "clientInfo": CLIENT})
        return result

    def new_session(self, cwd: str = "{{cwd}}", mcp_servers: Sequence[Params] = ()) -> AgentSession:
        """`session/new` in the workspace."""
        result = self.request("session/new", {"cwd": cwd, "mcpServers": list(mcp_servers)})
        session = result.get("sessionId") if isinstance(result, dict) else None
        if not isinstance(session, str):
            raise ScriptError(f"session/new was answered without a `sessionId`: {result}", self._now.exchange.scene())
        return AgentSession(self, OpenSession(session))

    def request(self, method: str, params: Any = UNSET) -> Any:
        """Any request; its result as JSON values. Raises `Refused`."""
        return self.result(method, self.send(method, params))

    def notify(self, method: str, params: Params) -> None:
        """Any notification."""
        running = self._now
        running.exchange.notify(method, map_strings(params, running.ground.expand))

    def wait_for_file(self, path: str) -> None:
        """Wait until a file of the workspace exists."""
        self._now.waits.file(path, None)

    # -- for sessions

    def send(self, method: str, params: Any = UNSET) -> int:
        """Send a request and go on; its id."""
        running = self._now
        expanded = params if params is UNSET else map_strings(params, running.ground.expand)
        return running.exchange.request(method, expanded)

    def result(self, method: str, request: int) -> Any:
        """The result of a request that was sent. Raises `Refused`."""
        return _result(method, self.response(method, request))

    def response(self, method: str, request: int) -> Frame:
        """The response to a request that was sent."""
        frame = self._now.exchange.response(request, method)
        self._tell(self._now.exchange)
        self._check()
        return frame

    def updates(self, session: str, since: int, until: Frame) -> tuple[dict[str, Any], ...]:
        """A session's updates from a position on the wire to a response."""
        exchange = self._now.exchange
        end = next(at for at, passed in enumerate(exchange.passed) if passed.frame is until)
        return tuple(msgspec.json.decode(update) for at, update in exchange.updates(session, since) if at <= end)

    @property
    def position(self) -> int:
        """How many lines have passed."""
        return len(self._now.exchange.passed)

    @property
    def waits(self) -> Waits:
        """The waits of this run."""
        return self._now.waits

    def cancelled(self, session: str) -> None:
        """A session was cancelled: questions that are held for it are answered."""
        self._now.client.cancelled(session)

    @property
    def _now(self) -> _Running:
        if self._running is None:
            raise ScriptError("the agent does not run: use `with AgentProcess(...) as agent`")
        return self._running

    def _check(self) -> None:
        if self._running is not None and self._running.client.problems:
            raise ScriptError("; ".join(self._running.client.problems), self._running.exchange.scene())

    def _tell(self, exchange: Exchange) -> None:
        if self._on_line is not None:
            for passed in exchange.passed[self._told :]:
                self._on_line(WireLine(passed.sender, passed.line))
        self._told = len(exchange.passed)


class AgentSession:
    """One session of a running agent."""

    def __init__(self, agent: AgentProcess, session: OpenSession) -> None:
        self._agent = agent
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    def prompt(self, content: str | Sequence[Params]) -> Answer:
        """Send a prompt, a text or content blocks, and wait for its answer. Raises `Refused`."""
        return self.start(content).wait()

    def start(self, content: str | Sequence[Params]) -> RunningPrompt:
        """Send a prompt and go on."""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        since = self._agent.position
        request = self._agent.send("session/prompt", {"sessionId": self.id, "prompt": blocks})
        self._session.seen = max(self._session.seen, since)
        self._session.prompts.append(OpenPrompt(request, UNSET, since))
        return RunningPrompt(self._agent, self.id, request, since)

    def wait_for(self, update: str | Params, text: str | UnsetType = UNSET) -> None:
        """Wait for an update: of a kind, or with all these members; whose text, of message chunks joined, contains
        `text`. Updates since the last prompt was sent count, each for one wait.
        """
        pattern = update if isinstance(update, str) else dict(update)
        self._agent.waits.update(self._session, steps.WaitForUpdate(update=pattern, text=text))

    def wait_for_turn(self) -> None:
        """Wait until the session's log says that the last prompt's turn began; of an agent that stores its logs."""
        self._agent.waits.turn_start(self._session, len(self._session.prompts), None)

    def wait_for_marks(self, marks: Sequence[Mark]) -> None:
        """Wait until the session's children and theirs are as far as the marks say, by their logs."""
        self._agent.waits.marks(self._session, marks)

    def cancel(self) -> None:
        """`session/cancel`."""
        self._agent.notify("session/cancel", {"sessionId": self.id})
        self._agent.cancelled(self.id)

    def set_mode(self, mode: str) -> None:
        """`session/set_mode`. Raises `Refused`."""
        self._agent.request("session/set_mode", {"sessionId": self.id, "modeId": mode})


class RunningPrompt:
    """A prompt that was sent."""

    def __init__(self, agent: AgentProcess, session: str, request: int, since: int) -> None:
        self._agent = agent
        self._session = session
        self._request = request
        self._since = since

    def wait(self) -> Answer:
        """Wait for the answer. Raises `Refused`."""
        frame = self._agent.response("session/prompt", self._request)
        result = _result("session/prompt", frame)
        reason = result.get("stopReason", "") if isinstance(result, dict) else ""
        return Answer(reason, self._agent.updates(self._session, self._since, frame))


def _result(method: str, frame: Frame) -> Any:
    if frame.error is not UNSET:
        raise Refused(method, frame.error)
    return None if frame.result is UNSET else msgspec.json.decode(frame.result)


class _Running(Struct, frozen=True):
    ground: Workspace
    agent: Transport
    exchange: Exchange
    client: ClientSide
    waits: Waits

    def harvest(self, status: int) -> Artefacts:
        ground = self.ground
        return Artefacts(
            wire=self.exchange.wire(), logs=ground.logs(), files=ground.difference(), stderr=ground.stderr(),
            status=status, receipt=joined(ground.receipts(1)), workspace=ground.spellings, home=str(ground.home),
        )  # fmt: skip

    def leave(self) -> None:
        with contextlib.ExitStack() as ends:
            ends.callback(self.agent.close)
            ends.callback(end_processes, self.agent, self.ground.marks())
            ends.callback(self.client.close)


def _scenario(permissions: Sequence[str], files: Mapping[str, str], capabilities: Params) -> Scenario:
    """The client's side as a scenario's script would say it. Raises `ScenarioError`."""
    script = {
        "steps": [{"op": "initialize"}], "permissionAnswers": [{"kind": kind} for kind in permissions],
        "answers": {"files": files}, "capabilities": Raw(msgspec.json.encode(capabilities)),
    }  # fmt: skip
    return read_scenario(msgspec.json.encode(script), Path(INPUT))

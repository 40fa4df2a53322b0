"""Does a script's steps, one after the other, with a running agent."""

from __future__ import annotations

import os
import re
import signal
from typing import Any, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay import steps
from replay.client_side import ClientSide
from replay.exchange import Exchange, Frame
from replay.failures import AgentGone, ScriptError, StepFailed
from replay.paths import map_strings
from replay.scenario import Scenario
from replay.transports import Transport
from replay.waits import OpenPrompt, OpenSession, Waits, seconds_of
from replay.workspace import Workspace

CLIENT = {"name": "acp-replay", "version": "1"}
"""How the driver introduces itself: the same in every version, because it is part of every wire."""


class _NewSession(Struct, frozen=True, rename="camel"):
    session_id: str


class Player:
    """Keeps what a script's steps refer to: its sessions and prompts, and how far its waits have come."""

    def __init__(
        self, scenario: Scenario, ground: Workspace, exchange: Exchange, client: ClientSide, agent: Transport,
    ) -> None:
        self._scenario = scenario
        self._ground = ground
        self._exchange = exchange
        self._client = client
        self._agent = agent
        self._waits = Waits(exchange, ground)
        self._sessions: dict[str, OpenSession] = {}
        self._latest: OpenSession | None = None

    def do(self, step: steps.AnyStep) -> None:  # one case for each op
        """Do one step. Raises `RunFailed`."""
        match step:
            case steps.Initialize():
                self._initialize(step)
            case steps.NewSession():
                self._new_session(step)
            case steps.NewSessionExpectError():
                self._call(step, "session/new", self._session_params(step), refused=True, code=step.code)
            case steps.SetMode():
                params = {"sessionId": self._session(step).id, "modeId": step.mode}
                self._call(step, "session/set_mode", params, refused=step.expect_error)
            case steps.Call():
                params = map_strings(self._expanded(step.params), self._with_sessions)
                self._call(step, step.method, params, refused=step.expect_error)
            case steps.Prompt():
                self._result(step, self._send(step, _text(step.text)))
            case steps.PromptContent():
                self._result(step, self._send(step, step.content))
            case steps.PromptExpectError():
                self._result(step, self._send(step, _text(step.text)), refused=True, code=step.code)
            case steps.PromptAndCancel():
                self._prompt_and_cancel(step)
            case steps.PromptAndWaitForAgentMessage():
                prompt = self._send(step, _text(step.text))
                self._waits.message(self._session(step), step.wait_for_text, prompt.since, seconds_of(step))
                self._result(step, prompt)
            case steps.StartPrompt():
                self._send(step, step.content if step.text is UNSET else _text(step.text), step.name)
            case steps.AwaitPrompt():
                self._result(step, self._started(step), refused=step.expect_error)
            case steps.CancelRequest():
                self._exchange.notify("$/cancel_request", {"requestId": self._started(step).request})
            case steps.Cancel():
                self._cancel(step)
            case steps.CloseInput():
                self._exchange.close_input()
            case steps.Signal():
                self._signal(signal.Signals[step.signal])
            case _:
                self._wait(step)

    def _wait(
        self,
        step: steps.WaitForFile | steps.WaitForUpdate | steps.WaitForRequest | steps.WaitForTurnStart
        | steps.WaitForTurnEnd | steps.WaitForSubagentTurnEnd | steps.WaitForEventAfterTurnEnd
        | steps.WaitForTitleAfterTurnEnd,
    ) -> None:
        match step:
            case steps.WaitForFile():
                self._waits.file(step.path, seconds_of(step))
            case steps.WaitForUpdate():
                self._waits.update(self._session(step), step)
            case steps.WaitForRequest():
                self._waits.request(step)
            case steps.WaitForTurnStart():
                session = self._session(step)
                turn = max(1, len(session.prompts)) if step.minimum_turn is UNSET else step.minimum_turn
                self._waits.turn_start(session, turn, seconds_of(step))
            case steps.WaitForTurnEnd():
                self._waits.turn_end(self._session(step), step)
            case steps.WaitForSubagentTurnEnd():
                self._waits.child_turn_end(self._session(step), step)
            case steps.WaitForEventAfterTurnEnd():
                self._waits.event(self._session(step), step.type, seconds_of(step))
            case steps.WaitForTitleAfterTurnEnd():
                self._waits.event(self._session(step), "session/title", seconds_of(step))
            case _:
                assert_never(step)

    # -- connection and sessions

    def _initialize(self, step: steps.Initialize) -> None:
        capabilities = self._scenario.sent_capabilities if step.capabilities is UNSET else step.capabilities
        params = {"protocolVersion": step.protocol_version, "clientCapabilities": capabilities, "clientInfo": CLIENT}
        self._call(step, "initialize", params)

    def _new_session(self, step: steps.NewSession) -> None:
        result = self._call(step, "session/new", self._session_params(step))
        try:
            made = OpenSession(msgspec.json.decode(result, type=_NewSession).session_id)
        except msgspec.ValidationError as error:
            raise StepFailed(f"session/new was answered wrongly: {error}", self._exchange.scene()) from None
        self._latest = made
        if step.session is not UNSET:
            self._sessions[step.session] = made

    def _session_params(self, step: steps.SessionOptions) -> Any:
        params: dict[str, Any] = {"cwd": step.cwd, "mcpServers": step.mcp_servers}
        if step.additional_directories is not UNSET:
            params["additionalDirectories"] = step.additional_directories
        return self._expanded(params)

    def _session(self, step: steps.SessionStep) -> OpenSession:
        session = self._latest if step.session is UNSET else self._sessions.get(step.session)
        if session is None:
            raise ScriptError("no session was made for it")
        return session

    # -- prompts

    def _send(self, step: steps.SessionStep, content: Any, name: str | UnsetType = UNSET) -> OpenPrompt:
        session = self._session(step)
        since = len(self._exchange.passed)
        if all(self._exchange.answered(prompt.request) for prompt in session.prompts):
            session.seen = since
        params = {"sessionId": session.id, "prompt": self._expanded(content)}
        prompt = OpenPrompt(self._exchange.request("session/prompt", params), name, since)
        session.prompts.append(prompt)
        return prompt

    def _started(self, step: steps.StartedPrompt) -> OpenPrompt:
        for prompt in self._session(step).prompts:
            if prompt.name == step.prompt if step.prompt is not UNSET else not prompt.awaited:
                return prompt
        if step.prompt is UNSET:
            raise ScriptError("every prompt of this session was awaited already")
        raise ScriptError(f"the prompt {step.prompt!r} was sent in another session; name that in `session`")

    def _result(
        self, step: steps.Step, prompt: OpenPrompt, *, refused: bool = False, code: int | UnsetType = UNSET,
    ) -> None:
        prompt.awaited = True
        self._answer(step, "session/prompt", prompt.request, refused=refused, code=code)

    def _prompt_and_cancel(self, step: steps.PromptAndCancel) -> None:
        prompt = self._send(step, _text(step.text))
        if step.wait_for_file is UNSET:
            session = self._session(step)
            self._waits.turn_start(session, len(session.prompts), seconds_of(step))
        self._cancel(step)
        self._result(step, prompt)

    def _cancel(self, step: steps.PromptAndCancel | steps.Cancel) -> None:
        file = step.wait_for_file
        if file is not UNSET:
            seconds = seconds_of(step) if file.timeout_ms is UNSET else file.timeout_ms / 1000
            self._waits.file(file.path, seconds)
        session = self._session(step)
        self._exchange.notify("session/cancel", {"sessionId": session.id})
        self._client.cancelled(session.id)

    # -- the process

    def _signal(self, number: signal.Signals) -> None:
        if self._agent.status() is not None:
            raise AgentGone(f"the moment to send {number.name}", self._exchange.scene())
        os.kill(self._agent.pid, number)

    # -- requests and their answers

    def _call(
        self, step: steps.Step, method: str, params: Any, *, refused: bool = False, code: int | UnsetType = UNSET,
    ) -> Raw:
        return self._answer(step, method, self._exchange.request(method, params), refused=refused, code=code)

    def _answer(
        self, step: steps.Step, method: str, request: int, *, refused: bool, code: int | UnsetType,
    ) -> Raw:
        """The result of a request, or nothing when it was `refused` as it should be."""
        frame = self._exchange.response(request, method, seconds_of(step))
        wrong = _unlike(frame, refused=refused, code=code)
        if wrong:
            raise StepFailed(f"{method} was answered with {wrong}", self._exchange.scene())
        return Raw(b"") if frame.result is UNSET else frame.result

    def _expanded(self, value: Any) -> Any:
        return value if value is UNSET else map_strings(value, self._ground.expand)

    def _with_sessions(self, text: str) -> str:
        def named(found: re.Match[str]) -> str:
            session = self._sessions.get(found[1]) if found[1] else self._latest
            if session is None:
                raise ScriptError(f"no session was made for {found[0]}")
            return session.id

        return re.sub(r"\{\{session(?::([^{}]+))?\}\}", named, text)


def _text(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


def _unlike(frame: Frame, *, refused: bool, code: int | UnsetType) -> str:
    """In what way a response is not the expected one; empty when it is."""
    if frame.error is UNSET:
        return "a result where an error was expected" if refused else ""
    if not refused:
        return f"{frame.error}, where a result was expected (a step that expects an error has to say so)"
    return "" if code in (UNSET, frame.error.code) else f"{frame.error}, expected the code {code}"

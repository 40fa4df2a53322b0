"""Does a script's steps, one after the other, with a running agent."""

from __future__ import annotations

import os
import signal
from typing import Any, assert_never

from msgspec import UNSET, UnsetType

from replay import steps
from replay.asking import Asking
from replay.client_side import ClientSide
from replay.exchange import Exchange
from replay.failures import AgentGone, ScriptError
from replay.paths import map_strings
from replay.processes import Processes
from replay.scenario import Scenario
from replay.script_sessions import ScriptSessions
from replay.waits import OpenPrompt, OpenSession, Waits, seconds_of
from replay.workspace import Workspace

CLIENT = {"name": "acp-replay", "version": "1"}
"""How the driver introduces itself: the same in every version, because it is part of every wire."""


class Player:
    """Keeps what a script's steps refer to: its sessions and prompts, and how far its waits have come."""

    def __init__(
        self, scenario: Scenario, ground: Workspace, exchange: Exchange, client: ClientSide, agent: Processes,
    ) -> None:
        self._scenario = scenario
        self._exchange = exchange
        self._client = client
        self._agent = agent
        self._waits = Waits(exchange, ground)
        self._asking = Asking(exchange, ground)
        self._sessions = ScriptSessions(self._asking, exchange, client, self._waits)

    def do(self, step: steps.AnyStep) -> None:  # one case for each op
        """Do one step. Raises `RunFailed`."""
        match step:
            case steps.Initialize():
                self._initialize(step)
            case (
                steps.NewSession() | steps.NewSessionExpectError() | steps.LoadSession() | steps.ResumeSession()
                | steps.ForkSession() | steps.CloseSession() | steps.DeleteSession() | steps.ListSessions()
            ):
                self._sessions.do(step)
            case steps.SetMode():
                params = {"sessionId": self._session(step).id, "modeId": step.mode}
                self._asking.call(step, "session/set_mode", params, refused=step.expect_error)
            case steps.Call():
                params = map_strings(self._asking.expanded(step.params), self._sessions.fill)
                self._asking.call(step, step.method, params, refused=step.expect_error, code=step.code)
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
            case steps.Restart():
                self._restart(step)
            case steps.Repeat():
                for again in step.steps * step.times:
                    self.do(again)
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
                turn = max(1, session.turns) if step.minimum_turn is UNSET else step.minimum_turn
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
        self._asking.call(step, "initialize", params)

    def _session(self, step: steps.SessionStep) -> OpenSession:
        return self._sessions.find(step.session)

    # -- prompts

    def _send(self, step: steps.SessionStep, content: Any, name: str | UnsetType = UNSET) -> OpenPrompt:
        session = self._session(step)
        since = len(self._exchange.passed)
        if all(self._exchange.answered(prompt.request) for prompt in session.prompts):
            session.seen = since
        params = {"sessionId": session.id, "prompt": self._asking.expanded(content)}
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
        self._asking.answer(step, "session/prompt", prompt.request, refused=refused, code=code)

    def _prompt_and_cancel(self, step: steps.PromptAndCancel) -> None:
        prompt = self._send(step, _text(step.text))
        if step.wait_for_file is UNSET:
            session = self._session(step)
            self._waits.turn_start(session, session.turns, seconds_of(step))
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
        agent = self._agent.current
        if agent.status() is not None:
            raise AgentGone(f"the moment to send {number.name}", self._exchange.scene())
        os.kill(agent.pid, number)

    def _restart(self, step: steps.Restart) -> None:
        if step.how == "eof":
            self._client.release_held()
        self._agent.restart(step.how, self._exchange)
        self._client.forget()
        for session in self._sessions.all():
            for prompt in session.prompts:
                prompt.awaited = True


def _text(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]

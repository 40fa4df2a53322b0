"""The conversation: sessions, prompts, the user's commands, cancelling."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import UNSET

from acp_agent import __version__
from acp_agent.acp.handshake import PROTOCOL_VERSION, Implementation
from replay.chat.commands import COMMANDS, Run, Say, Wrong, read_command
from replay.chat.contract import Refused, Unreadable
from replay.chat.link import Link
from replay.chat.protocol import (
    Authenticate,
    AuthMethod,
    Cancel,
    Capabilities,
    Done,
    Elicitation,
    Initialize,
    Initialized,
    ModeChoice,
    Modes,
    NewSession,
    Prompt,
    Session,
    SetMode,
    Text,
    TurnEnd,
)
from replay.chat.questions import Asker, Person
from replay.chat.screen import Screen

_LOGIN_NEEDED: Final = -32000


class CannotTalk(Exception):
    """The agent runs, but no session can be had of it. The message says why."""


class Talk:
    """Talks with an agent: opens sessions, prompts, obeys the user's commands."""

    def __init__(self, link: Link, screen: Screen, asker: Asker, cwd: Path) -> None:
        self.running = False
        """Whether a turn runs."""
        self.all_ended_well = True
        """Whether every turn so far ended with `end_turn`."""
        self._cancelling = False
        self._link = link
        self._screen = screen
        self._asker = asker
        self._cwd = cwd
        self._session = ""
        self._modes: Modes | None = None
        self._logins: list[AuthMethod] = []

    # -- sessions

    async def start(self) -> None:
        """Shake hands and open the first session. Raises `CannotTalk`, `AgentGone`."""
        offered = Capabilities(elicitation=Elicitation() if self._asker.fills_forms else UNSET)
        hello = Initialize(offered, Implementation("acp-agent-chat", __version__, "acp-agent chat"))
        try:
            agent = await self._link.call("initialize", hello, Initialized)
        except Refused as refused:
            raise CannotTalk(f"the agent refused initialize: {refused}") from None
        if agent.protocol_version != PROTOCOL_VERSION:
            raise CannotTalk(f"the agent speaks version {agent.protocol_version} of the protocol, this client version "
                             f"{PROTOCOL_VERSION}")
        if agent.agent_info is not None:
            self._screen.note(f"agent: {agent.agent_info.name} {agent.agent_info.version}".rstrip())
        self._logins = [method for method in agent.auth_methods or () if method.type != "terminal"]
        await self._open_session()

    async def _open_session(self) -> None:
        try:
            await self._new_session()
        except Refused as refused:
            if refused.code != _LOGIN_NEEDED or not await self._log_in():
                raise CannotTalk(f"the agent opened no session: {refused}{self._login_advice(refused)}") from None
            try:
                await self._new_session()
            except Refused as again:
                raise CannotTalk(f"the agent opened no session after the login either: {again}") from None

    async def _new_session(self) -> None:
        session = await self._link.call("session/new", NewSession(str(self._cwd)), Session)
        self._session, self._modes = session.session_id, session.modes
        mode = "" if self._modes is None else f", mode {self._modes.current_mode_id}"
        self._screen.note(f"session {self._session} in {self._cwd}{mode}")

    async def _log_in(self) -> bool:
        """Let the user choose a login; whether it worked."""
        if not self._logins or not isinstance(self._asker, Person):
            return False
        self._screen.note("the agent wants a login first")
        chosen = await self._asker.choose([method.name or method.id for method in self._logins])
        if chosen is None:
            return False
        await self._link.call("authenticate", Authenticate(self._logins[chosen].id), Done)
        return True

    def _login_advice(self, refused: Refused) -> str:
        if refused.code != _LOGIN_NEEDED:
            return ""
        names = ", ".join(method.id for method in self._logins)
        return f"; log in with the agent's own means first{f' (it offers: {names})' if names else ''}"

    # -- turns

    async def prompt(self, text: str) -> None:
        """Run one turn. Raises `AgentGone`."""
        self.running, self._cancelling = True, False
        well = False
        try:
            end = await self._link.call("session/prompt", Prompt(self._session, (Text(text),)), TurnEnd)
            well = end.stop_reason == "end_turn"
        except Refused as refused:
            self._tell(refused)
        finally:
            self.running = False
            self.all_ended_well = self.all_ended_well and well

    def cancel(self) -> bool:
        """Cancel the running turn; whether there was one that was not being cancelled already."""
        if not self.running or self._cancelling:
            return False
        self._cancelling = True
        self._link.notify("session/cancel", Cancel(self._session))
        self._asker.cancel()
        return True

    # -- what the user types

    def at_once(self, line: str) -> bool:
        """Obey a line that does not wait for the end of the running turn; whether it was one."""
        match read_command(line):
            case Run("/cancel") if self.running:
                self.cancel()
                return True
            case Run("/wire") if self.running:
                self._screen.toggle_wire()
                return True
            case _:
                return False

    async def obey(self, line: str) -> bool:
        """Do what a line asks for; whether the conversation goes on. Raises `AgentGone`."""
        match read_command(line):
            case Say(text):
                if text.strip():
                    await self.prompt(text)
            case Wrong(advice):
                self._screen.problem(advice)
            case Run("/quit"):
                return False
            case Run(name, rest):
                await self._run(name, rest)
        return True

    async def _run(self, name: str, rest: str) -> None:
        try:
            match name:
                case "/new":
                    await self._new_session()
                case "/mode":
                    await self._mode(rest)
                case "/wire":
                    self._screen.toggle_wire()
                case "/cancel":
                    self._screen.note("no turn is running")
                case _:
                    self._screen.note(COMMANDS)
        except Refused as refused:
            self._tell(refused)

    async def _mode(self, wanted: str) -> None:
        modes = () if self._modes is None else self._modes.available_modes
        if not wanted:
            self._screen.note("\n".join(map(_described, modes)) or "the agent has no modes")
            return
        known = [mode.id for mode in modes if wanted.lower() in (mode.id.lower(), mode.name.lower())]
        await self._link.call("session/set_mode", SetMode(self._session, known[0] if known else wanted), Done)

    def _tell(self, refused: Refused) -> None:
        """Errors that the agent sent are in the transcript."""
        if isinstance(refused, Unreadable):
            self._screen.problem(refused.message)


def _described(mode: ModeChoice) -> str:
    facts = ": ".join(filter(None, (mode.name, mode.description)))
    return f"  {mode.id}  {facts}".rstrip()

"""One agent process on which one statement is tried: what a check can say to it, and how it judges what comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Raw, Struct

from acp_agent.rpc.envelope import METHOD_NOT_FOUND
from replay.chat.contract import AgentGone, Refused
from replay.chat.link import Link
from replay.chat.protocol import Cancelled, PermissionAnswer
from replay.lint.statements import Strength
from replay.lint.traffic import Json, Traffic, is_response, same_id
from replay.transports import marked

VERSION: Final = 1
LOGIN_NEEDED: Final = -32000
INVALID_PARAMS: Final = -32602
NOT_FOUND: Final = -32002
INVALID_REQUEST: Final = -32600
PARSE_ERROR: Final = -32700

NO_SESSION: Final = "acp-lint-no-such-session"
"""An id that no session has."""

CHEAP: Final = "Reply with the single word: ok"
LONG: Final = "Count from 1 to 200 in words, one number to a line. Use no tools."


TURN: Final = 120.0
"""Seconds a turn may take at least: a real model thinks."""

_GONE: Final = 1.0
"""Seconds in which the processes of an agent that has ended must be gone."""


class Broken(Exception):
    """The agent breaks the statement that is tried. `strength` is that of the broken part, where it is another."""

    def __init__(self, what: str, strength: Strength | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.strength = strength


class Inapplicable(Exception):
    """The statement says nothing about this agent, or cannot be tried on it; the reason."""


class About(Struct, frozen=True):
    """What an agent says of itself to a client that declares nothing. `session` is a result of session/new."""

    initialized: Json
    session: Json | None

    @property
    def capabilities(self) -> Json:
        value = self.initialized.get("agentCapabilities")
        return value if isinstance(value, dict) else {}

    def offers(self, *path: str) -> bool:
        """Whether a capability is advertised: true, or an object."""
        value: Any = self.capabilities
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value is True or isinstance(value, dict)

    def needs(self, *path: str) -> None:
        """Raises `Inapplicable` where a capability is not advertised."""
        if not self.offers(*path):
            raise Inapplicable(f"the capability {'.'.join(path)} is not advertised")

    @property
    def logins(self) -> list[Json]:
        """The advertised ways to log in."""
        methods = self.initialized.get("authMethods")
        return [one for one in methods if isinstance(one, dict)] if isinstance(methods, list) else []


class Limits(Struct, frozen=True):
    """`seconds` is the longest single wait; `prompts` says whether the model may be asked."""

    seconds: float
    prompts: bool


class Visitor:
    """The agent's client: it offers nothing, and closes every permission question."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.lost: AgentGone | None = None

    async def serve(self, method: str, params: Raw) -> Struct:  # noqa: ARG002 - contract
        if method == "session/request_permission":
            return PermissionAnswer(Cancelled())
        raise Refused(METHOD_NOT_FOUND, f"this client does not offer {method}")

    def child_ended(self) -> None:
        """There are none but the agent."""

    def gone(self, how: AgentGone) -> None:
        self.lost = how
        self._traffic.wake()


class Probe:
    """A started agent. Waits are limited to `seconds` each; those that end without what they wait for are `Broken`."""

    def __init__(
        self, link: Link, traffic: Traffic, visitor: Visitor, about: About, workspace: Path, mark: bytes,
        options: Limits,
    ) -> None:
        """`workspace` is an empty directory for sessions; `mark` stands in the environment of all its processes."""
        self.link = link
        self.traffic = traffic
        self.about = about
        self.workspace = workspace
        self.seconds = options.seconds
        self.prompts = options.prompts
        self._mark = mark
        self._visitor = visitor
        self._last = 0

    # -- saying

    def send_bytes(self, line: bytes) -> None:
        """Say a line as it is; its line end is added."""
        self.link.send_line(line + b"\n")

    def send(self, frame: Any) -> None:
        """Say a frame; an object without `jsonrpc` gets it."""
        if isinstance(frame, dict):
            frame = {"jsonrpc": "2.0"} | frame
        self.send_bytes(json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode())

    def request(self, method: str, params: Any = None) -> int:
        """Ask; the request's id. Without `params` it has none."""
        self._last += 1
        self.send({"id": self._last, "method": method} | ({} if params is None else {"params": params}))
        return self._last

    def notify(self, method: str, params: Any = None) -> None:
        """Tell."""
        self.send({"method": method} | ({} if params is None else {"params": params}))

    # -- waiting

    @property
    def position(self) -> int:
        """Where the next line will stand."""
        return len(self.traffic.lines)

    async def answer(self, request: Any, since: int = 0, seconds: float | None = None) -> Json:
        """The response to a request, which must come."""
        seconds = seconds or self.seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(request, since)
        except TimeoutError:
            raise Broken(f"no response to {_id(request)} within {seconds:g} s") from None

    async def _answer(self, request: Any, since: int) -> Json:
        while True:
            for frame in self.answers(since):
                if "id" in frame and same_id(frame["id"], request):
                    return frame
            since = self.position
            if self.traffic.flood is not None:
                raise Broken(f"no response to {_id(request)}: {self.traffic.flood}")
            if self._visitor.lost is not None:
                raise Broken(f"{self._visitor.lost}, before it answered {_id(request)}")
            await self.traffic.change()

    async def turn_end(self, request: int, *, stopped: bool = False) -> str:
        """The stop reason of a turn, for which a model may take its time unless it was `stopped`."""
        return stop_reason(await self.answer(request, seconds=None if stopped else max(self.seconds, TURN)))

    def after(self, request: int) -> int:
        """Where the line stands that follows the response to a request."""
        return next(at for at, line in enumerate(self.traffic.lines, 1)
                    if line.sender == "agent" and line.frame is not None and is_response(line.frame)
                    and same_id(line.frame.get("id"), request))

    async def call(self, method: str, params: Any = None) -> Json:
        """Ask, and wait for the response, whatever it is."""
        return await self.answer(self.request(method, params))

    async def result(self, method: str, params: Any = None) -> Json:
        """Ask for something that must succeed; null counts as an empty object."""
        answer = await self.call(method, params)
        if "error" in answer:
            raise Broken(f"{method} was refused: {told(answer)}")
        result = answer["result"]
        if result is None:
            return {}
        if not isinstance(result, dict):
            raise Broken(f"the result of {method} is no object: {json.dumps(result)[:80]}")
        return result

    async def refused(self, why: str, method: str, params: Any, *codes: int) -> Json:
        """Ask for something that must fail with one of these codes, or with any; the error."""
        answer = await self.call(method, params)
        expected = f"error {' or '.join(map(str, codes))}" if codes else "an error"
        if "error" not in answer:
            raise Broken(f"{why}: expected {expected}, got a result")
        error = answer["error"] if isinstance(answer["error"], dict) else {}
        if codes and error.get("code") not in codes:
            raise Broken(f"{why}: expected {expected}, got {told(answer)}")
        return error

    async def barrier(self) -> None:
        """Wait until the agent has read everything sent so far, and said what it has to say at once.

        Told by a request that nobody knows; an agent which does not answer it cannot be waited for.
        """
        try:
            await self.call("_acp_lint/barrier", {})
        except Broken as broken:
            raise Inapplicable(f"cannot be told: the agent does not answer unknown requests ({broken.what})") from None

    def answers(self, since: int) -> list[Json]:
        """The responses from a position on."""
        return [line.frame for line in self.traffic.lines[since:]
                if line.sender == "agent" and line.frame is not None and is_response(line.frame)]

    def updates(self, since: int = 0) -> list[tuple[str, Json]]:
        """Session and update of every session update from a position on."""
        found = []
        for line in self.traffic.lines[since:]:
            if line.sender == "agent" and line.frame is not None and line.frame.get("method") == "session/update":
                params = line.frame.get("params")
                if isinstance(params, dict) and isinstance(params.get("update"), dict):
                    found.append((str(params.get("sessionId")), params["update"]))
        return found

    async def left_behind(self) -> list[int] | None:
        """The processes that an agent which has ended left; None where that cannot be seen."""
        if not Path("/proc").is_dir():
            return None
        until = asyncio.get_running_loop().time() + _GONE
        while True:
            left = marked(frozenset({self._mark}))
            if not left or asyncio.get_running_loop().time() > until:
                return left
            await asyncio.sleep(0.02)  # a process that was told to end takes a moment

    # -- usual moves

    async def start(self, capabilities: Mapping[str, Any] | None = None) -> Json:
        """Initialize."""
        return await self.result("initialize", hello(capabilities))

    def place(self, **members: Any) -> Json:
        """Params of session/new."""
        return {"cwd": str(self.workspace), "mcpServers": []} | members

    async def session(self, **members: Any) -> str:
        """Make a session, and give its id."""
        session: str = (await self.session_result(**members))["sessionId"]
        return session

    async def session_result(self, **members: Any) -> Json:
        """Make a session, and give the whole result."""
        answer = await self.call("session/new", self.place(**members))
        if "error" in answer and isinstance(answer["error"], dict) and answer["error"].get("code") == LOGIN_NEEDED:
            raise Inapplicable("sessions need a login: log in with the agent's own means first")
        result = answer.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("sessionId"), str):
            raise Broken(f"session/new gives no session: {told(answer)}")
        return result

    async def open(self) -> str:
        """Initialize, and make a session."""
        await self.start()
        return await self.session()

    def prompt(self, session: str, text: str = CHEAP) -> int:
        """Send a prompt."""
        return self.request("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    async def turn(self, session: str, text: str = CHEAP) -> str:
        """Run a turn; its stop reason."""
        return await self.turn_end(self.prompt(session, text))


def hello(capabilities: Mapping[str, Any] | None = None, version: Any = VERSION) -> Json:
    """Params of initialize."""
    return {"protocolVersion": version, "clientCapabilities": dict(capabilities or {}),
            "clientInfo": {"name": "acp-lint", "version": "1"}}


def stop_reason(answer: Json) -> str:
    """The stop reason in a prompt's response, which must be a result."""
    result = answer.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("stopReason"), str):
        raise Broken(f"a prompt's response has no stop reason: {told(answer)}")
    reason: str = result["stopReason"]
    return reason


def told(answer: Json) -> str:
    """A response in words."""
    if "error" not in answer:
        return f"the result {json.dumps(answer.get('result'))[:120]}"
    error = answer["error"]
    if not isinstance(error, dict):
        return f"a malformed error {json.dumps(error)[:80]}"
    return f"error {error.get('code')} ({str(error.get('message'))[:120]})"


def _id(request: Any) -> str:
    return f"request {json.dumps(request)}"

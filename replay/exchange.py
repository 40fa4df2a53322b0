"""The exchange between the driver and an agent: every line of both directions, in the order it passed.

Several processes of the agent may follow one another in one exchange; requests are numbered on and on.

One thread does everything: while it waits for a state it reads what the agent writes, writes what is queued, lets
the client's side answer, and looks at the state again. Nothing is ever waited for by time alone.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay.artefacts import Restart, Side, WireLine
from replay.failures import LAST_FRAMES, AgentGone, NotProtocol, Scene, Stuck, scene
from replay.transports import Transport

T = TypeVar("T")

Id: TypeAlias = int | str | None

_LOOK = 0.01
"""Seconds between two looks at a state that is not on the wire: a file, a process."""

_EXIT = 0.5
"""Seconds for which an exit status is worth waiting for when the output has ended."""

_SLICE = 1 << 16


class RpcError(Struct, frozen=True):
    """A JSON-RPC error."""

    code: int
    message: str
    data: Any = UNSET

    def __str__(self) -> str:
        return f"error {self.code}: {self.message}"


class Frame(Struct, frozen=True):
    """A JSON-RPC message of the agent's."""

    jsonrpc: Literal["2.0"]
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: RpcError | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_message(self) -> bool:
        """Whether it is a request, a notification, or a response with either a result or an error."""
        answers = (self.result is not UNSET) + (self.error is not UNSET)
        return self.method is not UNSET or (self.id is not UNSET and answers == 1)


class Update(Struct, frozen=True, rename="camel"):
    """The params of a `session/update`."""

    session_id: str
    update: Raw


class Passed(Struct, frozen=True):
    """A line that passed; `frame` is what an agent's line says."""

    sender: Side
    line: bytes
    frame: Frame | None


_frame = msgspec.json.Decoder(Frame).decode
_update = msgspec.json.Decoder(Update).decode


class Exchange:
    """Talks with one agent process. `stderr` gives what it wrote there; `seconds` is how long a wait may take."""

    def __init__(self, transport: Transport, seconds: float, stderr: Callable[[], str]) -> None:
        self.passed: list[Passed] = []
        self.restarts: list[Restart] = []
        self.on_request: Callable[[Frame], None] = lambda _: None
        """Answers a request of the agent's, now or later."""
        self.on_look: Callable[[], None] = lambda: None
        """Called each time states are looked at."""
        self._transport = transport
        self._seconds = seconds
        self._stderr = stderr
        self._partial: list[bytes] = []
        self._queued = bytearray()
        self._responses: dict[Id, Frame] = {}
        self._last_id = 0
        self._lost = 0
        self._ended = False
        self._input_closed = False
        self._killed = False

    # -- sending

    def request(self, method: str, params: Any) -> int:
        """Send a request; returns its id. With `params` UNSET it has none."""
        self._last_id += 1
        members = {} if params is UNSET else {"params": params}
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, **members})
        return self._last_id

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def respond(self, request: Id | UnsetType, result: Any) -> None:
        """Answer a request of the agent's with a result."""
        self._send({"jsonrpc": "2.0", "id": request, "result": result})

    def refuse(self, request: Id | UnsetType, error: RpcError) -> None:
        """Answer a request of the agent's with an error."""
        self._send({"jsonrpc": "2.0", "id": request, "error": error})

    def _send(self, message: Any) -> None:
        """Queue a line: a client that waits until it is written would stop an agent that waits to be read.

        After the input was closed nothing can be said any more, and nothing is.
        """
        if self._input_closed:
            return
        line = self._transport.fit(msgspec.json.encode(message))
        self.passed.append(Passed("client", line, None))
        self._queued += line + b"\n"
        self._write()

    @property
    def input_closed(self) -> bool:
        return self._input_closed

    def close_input(self) -> None:
        """Write what is queued, then let the agent see the end of its input. Safe to call twice."""
        if not self._input_closed:
            self.wait(self._input_done, "the agent to read its input")
            self._input_closed = True
            self._queued.clear()
            self._transport.close_input()

    def _input_done(self) -> bool | None:
        return self._ended or (not self._queued and self._transport.all_read()) or None

    # -- waiting

    def response(self, request: int, what: str, seconds: float | None = None) -> Frame:
        """Wait for the response to a request."""
        return self.wait(lambda: self._responses.get(request), f"the response to {what}", seconds)

    def answered(self, request: int) -> bool:
        """Whether a request has its response, or will never have one: its process is gone."""
        return request in self._responses or request <= self._lost

    def wait(
        self, look: Callable[[], T | None], what: str, seconds: float | None = None, *, of_agent: bool = True,
    ) -> T:
        """Wait until `look` finds something; returns it. Nothing `of_agent` comes any more once its output ended.

        Raises `Stuck`, `AgentGone`, `NotProtocol`.
        """
        limit = self._seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        while True:
            ended = self._ended and of_agent  # whatever came before the end was there to be found
            found = look()
            if found is not None:
                return found
            if ended:
                self._see_exit()
                raise AgentGone(what, self.scene())
            left = deadline - time.monotonic()
            if left <= 0:
                raise Stuck(what, limit, self.scene())
            self._exchange(min(left, _LOOK))
            self.on_look()

    def _see_exit(self) -> None:
        """The exit follows the end of output within moments; a failure that is to be told should know its status."""
        deadline = time.monotonic() + _EXIT
        while self._transport.status() is None and time.monotonic() < deadline:
            time.sleep(_LOOK / 10)

    def end(self) -> int:
        """Close the agent's input, read to the end of its output, wait for its exit; returns the status."""
        self.close_input()
        self.wait(lambda: self._ended or None, "the end of the agent's output", of_agent=False)
        return self.wait(self._transport.status, "the agent's exit", of_agent=False)

    # -- one process after another

    def drain(self) -> None:
        """Read to the end of the output of an agent that was killed: a line that it did not finish is dropped, and
        nothing is answered any more.
        """
        self._killed = True
        self.wait(lambda: self._ended or None, "the end of the killed agent's output", of_agent=False)

    def resume(self, transport: Transport, how: Literal["eof", "kill"]) -> None:
        """Go on with another process. What was asked and not answered will never be."""
        self.restarts.append(Restart(len(self.passed), how))
        self._transport = transport
        self._lost = self._last_id
        self._partial.clear()
        self._queued.clear()
        self._ended = self._input_closed = self._killed = False

    # -- what passed

    def updates(self, session: str, since: int) -> Iterator[tuple[int, Raw]]:
        """The updates of a session from a position on: the position after each, and the update."""
        for position in range(since, len(self.passed)):
            frame = self.passed[position].frame
            if frame is not None and frame.method == "session/update" and frame.params is not UNSET:
                try:
                    found = _update(frame.params)
                except msgspec.ValidationError:
                    continue  # not an update of ACP's: nobody can wait for it
                if found.session_id == session:
                    yield position + 1, found.update

    def requests(self, method: str) -> int:
        """How many requests of a method the agent has sent."""
        return sum(1 for passed in self.passed if passed.frame is not None and passed.frame.is_request
                   and passed.frame.method == method)

    def wire(self) -> tuple[WireLine, ...]:
        """Every line."""
        return tuple(WireLine(passed.sender, passed.line) for passed in self.passed)

    def scene(self) -> Scene:
        """What there is to see now."""
        arrows = {"client": "->", "agent": "<-"}
        frames = [(arrows[passed.sender], passed.line) for passed in self.passed[-LAST_FRAMES:]]
        return scene(frames, self._stderr(), self._transport.status())

    # -- bytes

    def _exchange(self, seconds: float) -> None:
        if self._queued:
            select.select([self._transport.read_fd], [self._transport.write_fd], [], seconds)
            self._write()
            seconds = 0
        data = self._transport.read(seconds)
        if data is None:
            if self._ended:
                time.sleep(seconds)  # there is nothing to read any more: a file or the exit is awaited
            else:
                self._ended = True
                if not self._killed:
                    self._take_line(b"".join(self._partial))
                self._partial.clear()
        elif data:
            self._take(data)

    def _write(self) -> None:
        written = 1
        while self._queued and written:
            try:
                written = self._transport.write(bytes(self._queued[:_SLICE]))
            except OSError:
                self._queued.clear()  # the agent reads no more; its output tells what became of it
            del self._queued[:written]

    def _take(self, data: bytes) -> None:
        head, *rest = data.split(b"\n")
        self._partial.append(head)
        for piece in rest:
            line = b"".join(self._partial)
            self._partial = [piece]
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = _frame(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NotProtocol(line, str(error), self.scene()) from None
        if not frame.is_message:
            raise NotProtocol(line, "neither a request nor a response", self.scene())
        self.passed.append(Passed("agent", line.rstrip(b"\r"), frame))
        if frame.is_request:
            if not self._killed:
                self.on_request(frame)
        elif frame.method is UNSET and frame.id is not UNSET:
            self._responses.setdefault(frame.id, frame)

"""The wire as a conversation: which request a response answers, which session a line is about, and whose process
sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from replay.artefacts import Restart, WireLine

CANCEL_REQUEST = "$/cancel_request"
UPDATE = "session/update"
LOAD = "session/load"
PROMPT = "session/prompt"


class Request(Struct, frozen=True):
    """A request of the client's. `number` counts them from 1, in the order they were sent, `at` is its line's position,
    `process` counts the agent's processes from 0.
    """

    number: int
    method: str
    session: str | None
    at: int = 0
    process: int = 0


class Frame(Struct, frozen=True):
    """One JSON object the agent sent.

    at       its line's position
    answers  the request it responds to
    process  which of the agent's processes sent it, from 0
    loads    how often its session had been loaded, this time included
    history  whether a load shows it
    """

    at: int
    value: dict[str, Any]
    session: str | None
    answers: Request | None = None
    process: int = 0
    loads: int = 0
    history: bool = False

    @property
    def method(self) -> str | None:
        method = self.value.get("method")
        return method if isinstance(method, str) else None

    @property
    def is_request(self) -> bool:
        """Whether the agent asks the client something."""
        return self.method is not None and "id" in self.value

    @property
    def update(self) -> dict[str, Any]:
        """The update a `session/update` carries; {} for other lines."""
        return as_object(as_object(self.value.get("params")).get("update")) if self.method == UPDATE else {}

    @property
    def call(self) -> str | None:
        """The tool call this line is about."""
        place = self.update if self.method == UPDATE else as_object(self.params.get("toolCall"))
        call = place.get("toolCallId")
        return call if isinstance(call, str) else None

    @property
    def params(self) -> dict[str, Any]:
        return as_object(self.value.get("params"))


class Conversation(Struct, frozen=True):
    """Both directions, read. `problems` are lines that broke the framing or answered nothing."""

    requests: tuple[Request, ...]
    frames: tuple[Frame, ...]
    problems: tuple[str, ...]
    restarts: tuple[Restart, ...] = ()

    def processes(self) -> list[Conversation]:
        """The conversation with each of the agent's processes."""
        return [
            Conversation(tuple(request for request in self.requests if request.process == number),
                         tuple(frame for frame in self.frames if frame.process == number), ())
            for number in range(len(self.restarts) + 1)
        ]

    def prompted(self) -> dict[str, int]:
        """Which process each session's first prompt was sent to."""
        first: dict[str, int] = {}
        for request in self.requests:
            if request.method == PROMPT and request.session is not None:
                first.setdefault(request.session, request.process)
        return first

    def sessions(self) -> list[str]:
        """Session ids in the order of the requests that made or named them, then as the agent named them."""
        made = {frame.answers.number: _made(frame) for frame in self.frames if frame.answers is not None}
        named: dict[str, None] = {}
        for request in self.requests:
            for session in (made.get(request.number), request.session):
                if session is not None:
                    named.setdefault(session)
        return list(named)


def key(request_id: Any) -> str:
    """A JSON-RPC id as text that keeps 1 and "1" apart."""
    return msgspec.json.encode(request_id).decode()


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object; {} for anything else."""
    return value if isinstance(value, dict) else {}


def read(lines: Sequence[WireLine], restarts: Sequence[Restart] = ()) -> Conversation:
    """The conversation in `lines`. Nothing is refused: what is wrong with the agent's lines is a problem."""
    return _Reading(restarts).read(lines)


class _Reading:
    def __init__(self, restarts: Sequence[Restart]) -> None:
        self._restarts = restarts
        self._process = 0
        self._requests: list[Request] = []
        self._open: dict[str, list[Request]] = {}
        self._frames: list[Frame] = []
        self._problems: list[str] = []

    def read(self, lines: Sequence[WireLine]) -> Conversation:
        for at, line in enumerate(lines):
            while self._process < len(self._restarts) and self._restarts[self._process].at <= at:
                self._process += 1
                self._open.clear()  # the next process was never asked
            if not line.line.strip():
                continue
            value = _decoded(line.line)
            if line.sender == "client":
                self._take_client(at, value)
            elif isinstance(value, dict):
                self._take_agent(at, value)
            else:
                shown = line.line[:80].decode(errors="replace")
                self._problems.append(f"the agent wrote a line that is no JSON object: {shown}")
        return Conversation(tuple(self._requests), tuple(self._with_loads()), tuple(self._problems),
                            tuple(self._restarts))

    def _take_client(self, at: int, value: Any) -> None:
        if not isinstance(value, dict):
            return  # a script may send junk on purpose
        method = value.get("method")
        if isinstance(method, str) and "id" in value:
            session = as_object(value.get("params")).get("sessionId")
            request = Request(len(self._requests) + 1, method, session if isinstance(session, str) else None, at,
                              self._process)
            self._requests.append(request)
            self._open.setdefault(key(value["id"]), []).append(request)

    def _take_agent(self, at: int, value: dict[str, Any]) -> None:
        answers: Request | None = None
        if "method" not in value and value.get("id") is not None:
            waiting = self._open.get(key(value["id"]), [])
            if waiting:
                answers = waiting.pop(0)
            else:
                self._problems.append(f"the agent answered a request that was not open: id {key(value['id'])}")
        session = as_object(value.get("params")).get("sessionId")
        session = session if isinstance(session, str) else None
        self._frames.append(Frame(at, value, session, answers, self._process))

    def _with_loads(self) -> Iterator[Frame]:
        """The frames, with what loads mean for them; a load that was refused means nothing."""
        loads: dict[str, list[tuple[int, int]]] = {}
        for frame in self._frames:
            request = frame.answers
            if request is not None and request.method == LOAD and request.session and "result" in frame.value:
                loads.setdefault(request.session, []).append((request.at, frame.at))
        for frame in self._frames:
            spans = [span for span in loads.get(frame.session or "", ()) if span[0] < frame.at]
            history = bool(spans) and frame.at < spans[-1][1]
            yield msgspec.structs.replace(frame, loads=len(spans), history=history) if spans else frame


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _made(frame: Frame) -> str | None:
    session = as_object(frame.value.get("result")).get("sessionId")
    return session if isinstance(session, str) else None

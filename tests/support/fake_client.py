"""A client for the views: keeps every frame, judged by the protocol's schema, and answers permission questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec import Struct

from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.roots import ClientViews
from acp_agent.acp.services import ClientServices
from acp_agent.ids import SessionId
from acp_agent.rpc.envelope import encode_request
from acp_agent.rpc.peer import PeerError
from acp_agent.tools.registry import Registry
from tests.support.fakes import Hang
from tests.support.schema import Frame, Pending, validate_frame

T = TypeVar("T")


class FakeClient:
    """`answers` are option ids, or whole results, or what else becomes of a question."""

    def __init__(self, *answers: str | dict[str, Any] | PeerError | Hang, unstable: bool = False) -> None:
        """`unstable` allows frames that only the protocol's unstable schema has."""
        self.frames: list[Frame] = []
        self.capabilities = ClientCapabilities()
        self.questions: list[Frame] = []
        self.told: list[Frame] = []
        self.asked = anyio.Event()
        self._answers = deque(answers)
        self._pending = Pending()
        self._unstable = unstable

    def _see(self, line: bytes) -> Frame:
        assert line.endswith(b"\n")
        frame: Frame = msgspec.json.decode(line)
        assert validate_frame(frame, "agent", self._pending, unstable=self._unstable) == []
        self.frames.append(frame)
        return frame

    def send(self, frame: bytes) -> None:
        self._see(frame)

    def behind(self) -> bool:
        return False

    async def drained(self) -> None:
        """Always."""

    def tell(self, method: str, params: Struct) -> None:
        self.told.append(self._see(encode_request(1_000_000 + len(self.told), method, params)))

    async def request(
        self, method: str, params: Struct, result_type: type[T], late: Callable[[T], None] | None = None
    ) -> T:
        self.questions.append(self._see(encode_request(len(self.questions), method, params))["params"])
        self.asked.set()
        answer = self._answers.popleft()
        if isinstance(answer, PeerError):
            raise answer
        if isinstance(answer, Hang):
            await anyio.sleep_forever()
        if isinstance(answer, str):
            answer = {"outcome": {"outcome": "selected", "optionId": answer}}
        return msgspec.convert(answer, result_type)

    def services(self, session: SessionId) -> ClientServices:
        """The session's way to this client."""
        return ClientServices(self, session, lambda: self.capabilities, iter("abcdefgh").__next__)

    def views(self, *tools: Any) -> Any:
        """Makes the views of root sessions that offer `tools`."""
        registry = Registry(tools)
        return lambda place: ClientViews(self, registry, place, self.services(place.session))

    def updates(self, *kinds: str) -> list[Frame]:
        """The updates of the given kinds, in order; all of them without one."""
        found = [frame["params"]["update"] for frame in self.frames if frame["method"] == "session/update"]
        return [update for update in found if not kinds or update["sessionUpdate"] in kinds]

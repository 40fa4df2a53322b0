"""Answers of a server in which a part is wrong: that part is taken out, and the rest can be used.

The SDK judges an answer as a whole: one tool with a bad schema, or one piece of content of a kind that it does not
know, would lose all the others. So answers are mended on their way to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from acp_agent.mcp.sdk import shortened, what_is_wrong

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

_PARTS = {"tools/list": "tools", "tools/call": "content"}
"""The requests whose answers are mended, and where the parts stand."""


class Mending:
    """One connection's answers. `unusable` holds what was taken out of tool lists: name and why."""

    def __init__(self) -> None:
        self.unusable: list[tuple[str, str]] = []
        self._asked: dict[Any, str] = {}
        self._version: str | None = None

    @asynccontextmanager
    async def over(self, transport: AbstractAsyncContextManager[TransportStreams]) -> AsyncIterator[TransportStreams]:
        """A transport whose answers are mended."""
        async with transport as (read, write):
            yield _Reader(read, self.arriving), _Writer(write, self.leaving)

    def leaving(self, message: Any) -> None:
        """Note what is asked."""
        if (method := getattr(message, "method", None)) in _PARTS and hasattr(message, "id"):
            self._asked[message.id] = method

    def arriving(self, message: Any) -> None:
        """Mend an answer, in place."""
        result = getattr(message, "result", None)
        if isinstance(result, dict):
            if isinstance(version := result.get("protocolVersion"), str):
                self._version = version
            if (method := self._asked.pop(message.id, None)) is not None:
                message.result = self._mended(method, result)

    def _mended(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        where = _PARTS[method]
        parts = result.get(where)
        if not isinstance(parts, list) or self._wrong(method, result) is None:
            return result
        kept = []
        for part in parts:
            problem = self._wrong(method, {**result, where: [part]})
            if problem is None:
                kept.append(part)
            elif method == "tools/call":
                kept.append({"type": "text", "text": _described(part)})
            else:
                self.unusable.append((_name(part), problem))
        mended = {**result, where: kept}
        # What is wrong elsewhere is the SDK's to say.
        return result if self._wrong(method, mended) is not None else mended

    def _wrong(self, method: str, result: dict[str, Any]) -> str | None:
        """What is wrong with an answer that has one part, if anything."""
        from mcp_types import LATEST_PROTOCOL_VERSION
        from mcp_types.methods import parse_server_result

        try:
            with suppress(KeyError):  # of a method the version does not have
                parse_server_result(method, self._version or LATEST_PROTOCOL_VERSION, result)
        except ValueError as error:
            return what_is_wrong(error, _PARTS[method])
        return self._silently_dropped(result["tools"]) if method == "tools/list" else None

    def _silently_dropped(self, tools: list[Any]) -> str | None:
        """Why the SDK drops a tool without a word, in the versions that have no `initialize`."""
        from mcp.shared.inbound import find_invalid_x_mcp_header

        if self._version is not None:
            return None
        reasons = (find_invalid_x_mcp_header(tool["inputSchema"]) for tool in tools)
        return next((shortened(reason) for reason in reasons if reason is not None), None)


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return shortened(name) if isinstance(name, str) else "one without a name"


def _described(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return "(content of an unknown kind)"
    if kind in ("text", "image", "audio", "resource", "resource_link"):
        return f"(content of the kind {kind} that is not as the protocol has it)"
    return f"(content of an unknown kind: {shortened(kind)})"


class _Reader:
    """A stream of messages, each looked at before it is given on."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], look: Callable[[Any], None]) -> None:
        self._stream = stream
        self._look = look

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        if not isinstance(item, Exception):
            self._look(item.message)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await anext(self._stream)
        if not isinstance(item, Exception):
            self._look(item.message)
        return item

    async def __aenter__(self) -> _Reader:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stream.__aexit__(*error)


class _Writer:
    """The other direction."""

    def __init__(self, stream: WriteStream[SessionMessage], look: Callable[[Any], None]) -> None:
        self._stream = stream
        self._look = look

    async def send(self, item: SessionMessage, /) -> None:
        self._look(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Writer:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stream.__aexit__(*error)

"""The client's files: `fs/read_text_file` and `fs/write_text_file`."""

from __future__ import annotations

from typing import TypeVar

import anyio
from msgspec import Struct

from acp_agent.acp.asking import Asking, Done, silence
from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.handshake import Wire
from acp_agent.ids import SessionId
from acp_agent.rpc.peer import PeerError, PeerGone, PeerUnclear
from acp_agent.tools.editor import EditorError

T = TypeVar("T")

RESOURCE_NOT_FOUND = -32002
METHOD_NOT_FOUND = -32601


class ReadFile(Wire, frozen=True):
    session_id: SessionId
    path: str


class FileText(Wire, frozen=True):
    content: str


class WriteFile(Wire, frozen=True):
    session_id: SessionId
    path: str
    content: str


class ClientEditor:
    """A client as an editor; it offers at least one of reading and writing."""

    def __init__(self, client: Asking, session: SessionId, offered: ClientCapabilities, patience: float) -> None:
        self._client = client
        self._session = session
        self._patience = patience
        self.reads = offered.read_text_file
        self.writes = offered.write_text_file

    async def read(self, path: str) -> str:
        """All of the file: a version is one of the whole file, so no part of it is asked for."""
        return (await self._ask("read", ReadFile(self._session, path), FileText)).content

    async def write(self, path: str, text: str) -> None:
        await self._ask("write", WriteFile(self._session, path, text), Done)

    async def _ask(self, deed: str, params: Struct, result_type: type[T]) -> T:
        try:
            with anyio.fail_after(self._patience):
                return await self._client.request(f"fs/{deed}_text_file", params, result_type)
        except TimeoutError:
            raise EditorError(silence(self._patience)) from None
        except PeerError as error:
            raise EditorError(str(error), missing=error.peer_code == RESOURCE_NOT_FOUND,
                              refused=_is_refusal(error)) from None


def _is_refusal(error: PeerError) -> bool:
    """Whether the client itself said no to what it was asked, and not to being asked."""
    return error.peer_code != METHOD_NOT_FOUND and not isinstance(error, PeerGone | PeerUnclear)

"""What this agent offers a client with every session: its modes, and what it can be given to work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, UnsetType

from acp_agent.acp.schema import ModeState, ServerProbe, SessionMode, StdioServer
from acp_agent.errors import InvalidParams
from acp_agent.session.session import Session
from acp_agent.tools.permission import Mode

T = TypeVar("T")

MODES = (
    SessionMode(Mode.READ_ONLY.value, "Read only", "Reads files; changes nothing and runs nothing."),
    SessionMode(Mode.ASK.value, "Ask", "Asks before it changes a file or runs a command."),
    SessionMode(Mode.ACCEPT_EDITS.value, "Accept edits", "Changes files freely; asks before it runs a command."),
    SessionMode(Mode.FULL_ACCESS.value, "Full access", "Never asks, and is not confined to the directory."),
)


def mode_state(session: Session) -> ModeState:
    """The modes there are, and the session's own."""
    return ModeState(session.mode.value, MODES)


def check_surroundings(
    directories: Sequence[str] | UnsetType | None, servers: Sequence[Raw] | UnsetType | None
) -> None:
    """Refuse what a session cannot be given. Raises `InvalidParams` naming it.

    Every server must be a transport that is advertised: stdio needs no advertising (ACP digest 6.1).
    """
    if directories:
        raise InvalidParams("additionalDirectories: more than one root is not supported; send none")
    for at, entry in enumerate(servers or ()):
        try:
            probe = msgspec.json.decode(entry, type=ServerProbe)
            if probe.type == "stdio":
                msgspec.json.decode(entry, type=StdioServer)
                continue
        except msgspec.ValidationError as error:
            raise InvalidParams(f"mcpServers[{at}]: {error}") from None
        raise InvalidParams(f"mcpServers[{at}] ({probe.name}): the transport {probe.type!r} is not supported")

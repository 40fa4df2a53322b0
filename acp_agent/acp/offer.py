"""What this agent offers a client with every session: its modes, and what it can be given to work with."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType

from acp_agent.acp.schema import AvailableCommands, CommandInput, ModeState, SessionMode, WireCommand
from acp_agent.mcp.config import read_servers
from acp_agent.session.commands import COMMANDS
from acp_agent.session.directory import further_directories
from acp_agent.session.session import Session
from acp_agent.session.surroundings import Surroundings
from acp_agent.tools.permission import Mode

MODES = (
    SessionMode(Mode.READ_ONLY.value, "Read only", "Reads files; changes nothing and runs nothing."),
    SessionMode(Mode.ASK.value, "Ask", "Asks before it changes a file or runs a command."),
    SessionMode(Mode.ACCEPT_EDITS.value, "Accept edits", "Changes files freely; asks before it runs a command."),
    SessionMode(Mode.FULL_ACCESS.value, "Full access", "Never asks, and is not confined to the directory."),
)


def mode_state(session: Session) -> ModeState:
    """The modes there are, and the session's own."""
    return ModeState(session.mode.value, MODES)


def available_commands() -> AvailableCommands:
    """The commands that every session has."""
    return AvailableCommands(tuple(
        WireCommand(one.name, one.description, UNSET if one.hint is None else CommandInput(one.hint))
        for one in COMMANDS
    ))  # fmt: skip


def surroundings(
    directories: Sequence[str] | UnsetType | None, servers: Sequence[Raw] | UnsetType | None
) -> Surroundings:
    """What a request gives a session. Raises `InvalidParams` naming what it cannot be given; nothing is started yet.
    """
    return Surroundings(further_directories(directories or ()), read_servers(servers or ()))

"""What can go wrong, as one tree: each class is a situation, with its JSON-RPC code, facts and advice.

Codes follow the ACP guides: -32602 for anything wrong with a request's params, -32002 for an unknown
session, -32603 for a failed turn. -32000 means "log in first" to every client and is used for nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar


class AgentError(Exception):
    """Base of every error this agent raises on purpose.

    `code` is the JSON-RPC code the client sees; `facts` become the error's `data`.
    """

    code: ClassVar[int] = -32603

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts


class InvalidParams(AgentError):
    """A request's params are wrong: the message names the field and what was expected."""

    code = -32602


class SessionNotFound(AgentError):
    """No session has this id: among those that are active, or those that are stored."""

    code = -32002

    def __init__(self, session_id: str, *, active: bool = False) -> None:
        """`active` says that only active sessions were looked through."""
        which = "no active session" if active else "no stored session"
        advice = "create one with session/new, or load a stored one" if active else "session/list tells which there are"
        super().__init__(f"{which} has the id {session_id!r}; {advice}", sessionId=session_id)


class SessionBusy(AgentError):
    """A session is not in a state in which it can do what was asked."""

    code = -32600


class AuthRequired(AgentError):
    """A key is needed before sessions can be made: a client starts its login when it sees the code."""

    code = -32000


class SettingsError(AgentError):
    """The agent was started with a setting it cannot use: exit status 2."""


class StoreError(AgentError):
    """A session's log could not be written or read."""


class LogDamaged(StoreError):
    """A stored log is not what it should be; names the file and, where there is one, the line."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}", file=file, line=line)
        self.file = file
        self.line = line


class ProjectedLog(LogDamaged):
    """A log whose records were stripped of their numbers: sound to read and to replay, but nothing can be added to it.
    """

    words: ClassVar[str] = "its records have no seq and time: it is a recording to replay, and cannot be continued"

    def __init__(self, *, file: str, line: int) -> None:
        super().__init__(self.words, file=file, line=line)


class SessionHeld(StoreError):
    """Another process writes to the session; names it."""

    code = -32600

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(f"session {session_id!r} is open for writing in {holder}; close it there first, or end that "
                         "process", sessionId=session_id, holder=holder)


class BadCursor(InvalidParams):
    """A list was asked to go on from a cursor that no list gave out."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor: {cursor!r} is none that session/list gave out; leave it out to begin at the start",
                         cursor=cursor)


class BlobNotFound(StoreError):
    """A session's log refers to binary content that is not stored with it."""

    def __init__(self, session_id: str, blob: str) -> None:
        super().__init__(f"session {session_id!r} has no stored content {blob!r}", sessionId=session_id, blob=blob)


class RecordingError(AgentError):
    """A recording cannot be replayed, or was asked for something it does not hold."""


class ModelError(AgentError):
    """A model call failed. `kind` is the failure code of the log (RATE_LIMIT, SERVER, AUTH, ...)."""

    def __init__(self, message: str, kind: str, *, retry_after_ms: int | None = None,
                 status: int | None = None) -> None:
        super().__init__(message, code=kind)
        self.kind = kind
        self.retry_after_ms = retry_after_ms
        self.status = status


class TurnFailed(AgentError):
    """A prompt's turn ended with an error: answered as a JSON-RPC error, never as a stop reason."""

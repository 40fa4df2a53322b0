"""Identities as distinct types, and the source that makes new ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NewType, Protocol

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
"""A tool call's id as the model made it: unique in one step, not in a session."""
WireCallId = NewType("WireCallId", str)
"""A tool call's id as the client sees it: unique in the session."""
BlobId = NewType("BlobId", str)
"""Binary content's name: the SHA-256 of its bytes in lower-case hex."""
TurnNumber = NewType("TurnNumber", int)
StepNumber = NewType("StepNumber", int)
Seq = NewType("Seq", int)
"""An event's position in its session's log: 0, 1, 2, ... without gaps."""


class IdSource(Protocol):
    """Makes identities. Injected, so that a scripted run can name its sessions in advance."""

    def session(self) -> SessionId:
        """A session id that no stored session has."""
        ...

    def message(self) -> MessageId:
        """A message id that is unique wherever the log travels."""
        ...

    def token(self) -> str:
        """An id for anything else (an approval, a retry)."""
        ...


def uuid4_text() -> str:
    """A random UUID in its text form, without importing the uuid module (it costs start-up time)."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RandomIds:
    """UUID v4 for everything."""

    def session(self) -> SessionId:
        return SessionId(uuid4_text())

    def message(self) -> MessageId:
        return MessageId(uuid4_text())

    def token(self) -> str:
        return uuid4_text()


class SequentialIds:
    """`session-1`, `session-2`, ...: scripts typed or piped by hand can name them.

    Only session ids are predictable; messages keep random ids because their logs may be merged.
    """

    def __init__(self, taken: Callable[[SessionId], bool]) -> None:
        """`taken` tells whether a stored session already has the id; such numbers are skipped."""
        self._taken = taken
        self._last = 0

    def session(self) -> SessionId:
        while True:
            self._last += 1
            candidate = SessionId(f"session-{self._last}")
            if not self._taken(candidate):
                return candidate

    def message(self) -> MessageId:
        return MessageId(uuid4_text())

    def token(self) -> str:
        return uuid4_text()

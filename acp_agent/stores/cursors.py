"""Where the next page of a list begins: after a session, by its creation time and id, and not by a count.

So a cursor stays good whatever is created and deleted meanwhile. Its text is opaque to clients.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from acp_agent.errors import BadCursor
from acp_agent.ids import SessionId
from acp_agent.session.codec import MAX_SAFE

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[int, str]).decode


def encode_cursor(created_at: int, session_id: SessionId) -> str:
    """The cursor after a session in a list."""
    return urlsafe_b64encode(_encode((created_at, session_id))).rstrip(b"=").decode()


def decode_cursor(text: str) -> tuple[int, SessionId]:
    """The creation time and id of the session a page goes on after. Raises `BadCursor`."""
    try:
        created_at, session_id = _decode(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (ValueError, msgspec.MsgspecError):  # bad base64 and bad UTF-8 are ValueErrors
        raise BadCursor(text) from None
    if not 0 <= created_at <= MAX_SAFE or encode_cursor(created_at, SessionId(session_id)) != text:
        raise BadCursor(text)
    return created_at, SessionId(session_id)

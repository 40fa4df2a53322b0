"""A cursor is opaque text that says after which session a page begins; nothing else is taken for one."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.errors import BadCursor
from acp_agent.ids import SessionId
from acp_agent.session.codec import MAX_SAFE
from acp_agent.stores.cursors import decode_cursor, encode_cursor

TIMES = st.integers(0, MAX_SAFE)
IDS = st.text(st.characters(codec="utf-8"))


@given(TIMES, IDS)
def test_a_cursor_gives_back_what_it_was_made_of(created_at: int, session: str) -> None:
    text = encode_cursor(created_at, SessionId(session))
    assert text.isascii()
    assert not set(text) & set(" \n\"/+=")
    assert decode_cursor(text) == (created_at, session)


@given(st.text() | st.text("ABCDEFabcdef0123456789-_=", max_size=24))
def test_any_other_text_is_refused(text: str) -> None:
    try:
        created_at, session = decode_cursor(text)
    except BadCursor:
        return
    assert encode_cursor(created_at, session) == text


@pytest.mark.parametrize("json", [b"[-1,\"a\"]", b"[9007199254740992,\"a\"]", b"[1]", b"[1,2]", b"{}", b"[1, \"a\"]",
                                  b"[1,\"a\",2]", b"\xff", b"[1.0,\"a\"]", b"[1,\"\\ud800\"]"])
def test_what_no_list_gave_out_is_refused(json: bytes) -> None:
    with pytest.raises(BadCursor, match="session/list gave out"):
        decode_cursor(urlsafe_b64encode(json).rstrip(b"=").decode())


def test_a_cursor_with_anything_added_is_refused() -> None:
    text = encode_cursor(12, SessionId("a"))
    for wrong in (text + "=", text + "A", text + "\n", " " + text, text[:-1], "\ud800"):
        with pytest.raises(BadCursor):
            decode_cursor(wrong)

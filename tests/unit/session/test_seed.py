"""Where inherited events end: refused with both numbers when the header and the log disagree."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from acp_agent.errors import LogDamaged
from acp_agent.ids import SessionId
from acp_agent.session.events import SessionHeader
from acp_agent.session.seed import check_seed


def header(length: object) -> SessionHeader:
    return SessionHeader(id=SessionId("s"), created_at=1, seed_length=length)  # type: ignore[arg-type]  # or UNSET


@pytest.mark.parametrize("length", [UNSET, 0])
@pytest.mark.parametrize("count", [0, 3])
def test_nothing_inherited_fits_any_log(length: object, count: int) -> None:
    check_seed(header(length), count, None, None, "log")


def test_a_boundary_stands_between_a_turns_end_and_the_seeds() -> None:
    check_seed(header(5), 9, "turn/end", "session/end-seed", "log")


def test_a_log_may_end_at_its_boundary() -> None:
    check_seed(header(5), 5, "turn/end", None, "log")


def test_a_boundary_beyond_the_log_is_refused_with_both_numbers() -> None:
    with pytest.raises(LogDamaged, match=r"^log: .*\b6\b.*\b5\b"):
        check_seed(header(6), 5, None, None, "log")


@pytest.mark.parametrize(("before", "at"), [
    ("step/end", "session/end-seed"), ("turn/end", "turn/start"), ("turn/start", None), (None, None),
])
def test_a_boundary_elsewhere_is_refused_with_both_numbers(before: str | None, at: str | None) -> None:
    with pytest.raises(LogDamaged, match=r"^log: .*\b5\b.*\b9\b") as caught:
        check_seed(header(5), 9, before, at, "log")
    assert str(before) in str(caught.value)
    assert caught.value.file == "log"

"""Moments in words."""

from __future__ import annotations

import time

import pytest

from acp_agent.commands.times import ago, both, exactly

NOW = 1_800_000_000_000


@pytest.mark.parametrize(("seconds", "said"), [
    (0, "just now"), (59, "just now"), (60, "1 minute ago"), (7199, "1 hour ago"), (7200, "2 hours ago"),
    (86_400 * 3, "3 days ago"), (86_400 * 800, "2 years ago"), (-5, "in the future"),
])
def test_the_largest_unit_that_fits_is_named(seconds: int, said: str) -> None:
    assert ago(NOW - seconds * 1000, NOW) == said


def test_moments_are_exact_to_the_second_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        assert exactly(NOW) == "2027-01-15 10:00:00"
        assert both(NOW, NOW) == "just now, 2027-01-15 10:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_moment_that_is_none_is_still_told() -> None:
    assert both(0, NOW) == exactly(0) == "unknown"
    assert exactly(2**80) == f"{2**80} ms"

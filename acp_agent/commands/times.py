"""Moments for people: how long ago, and when exactly."""

from __future__ import annotations

import time

_UNITS = (("year", 31_536_000), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def exactly(moment: int) -> str:
    """A moment (epoch milliseconds) in local time, to the second; a log whose times were taken out has 0."""
    if not moment:
        return "unknown"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment / 1000))
    except (OverflowError, ValueError, OSError):  # a log may claim any number
        return f"{moment} ms"


def ago(moment: int, now: int) -> str:
    """How long before `now` a moment was, both in epoch milliseconds, in the largest unit that fits."""
    seconds = (now - moment) // 1000
    for name, size in _UNITS:
        if seconds >= size:
            number = seconds // size
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return "just now" if seconds >= 0 else "in the future"


def both(moment: int, now: int) -> str:
    """How long ago, and when exactly."""
    return f"{ago(moment, now)}, {exactly(moment)}" if moment else "unknown"

"""How far the children of a turn came before it was cut short, so that its replay is cut at the same point.

What a client is shown of children depends on what it can show. Their logs do not: each model call is written before it
is made, and each tool call before it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from acp_agent.providers.base import Path
from replay.addresses import UNCERTAIN, Placed, address
from replay.logform import LogEvent, LogForm
from replay.stored import GrowingLog

CUT = frozenset({"aborted", "interrupted"})
"""How a turn ends whose last model call or tool never came to its end."""


class Mark(Struct, frozen=True):
    """How far one session below a root came.

    asked    how many model calls it made
    started  the tool calls that never came to their end, by id, each with how often that id was used
    ended    whether it had nothing more to do
    """

    path: Path
    asked: int
    started: Mapping[str, int]
    ended: bool

    def reached(self, log: GrowingLog | None) -> bool:
        """Whether a session at this address, whose log this is, is as far."""
        return (log is not None and log.asked >= self.asked and not (self.ended and (log.open or not log.turn))
                and all(log.started[call] >= times for call, times in self.started.items()))

    def __str__(self) -> str:
        parts = [f"{self.asked} model calls", *map(repr, self.started), *(["its end"] if self.ended else [])]
        return f"{', '.join(parts)} at {address(self.path)}"


class Family:
    """The recorded sessions below one root."""

    def __init__(self, root: LogForm, placed: Sequence[Placed], forms: Mapping[str, LogForm]) -> None:
        logs_requests = any(event.type == "request/sent" for form in forms.values() for event in form.events)
        self._marks = [
            _mark(one.path, own_events(forms[one.recording.file]), "request/sent" if logs_requests else "step/start")
            for one in placed if one.path and one.root.file == root.file
        ]  # fmt: skip

    def of(self, calls: Sequence[str], earlier: Sequence[str]) -> Iterator[Mark]:
        """What came of a turn's tool `calls`; ids may have been used in earlier turns."""
        used, now = Counter(earlier), Counter(calls)
        for mark in self._marks:
            hop = mark.path[0]
            if used[hop.call_id] <= hop.index < used[hop.call_id] + now[hop.call_id]:
                yield mark


def own_events(form: LogForm) -> Sequence[LogEvent]:
    """What a session did itself, without what it inherited."""
    seed = form.header.seed_length
    return form.events[seed:] if isinstance(seed, int) else form.events


def _mark(path: Path, events: Sequence[LogEvent], call: str) -> Mark:
    begun = Counter(event.data["callId"] for event in events if event.type == "tool/call")
    done = Counter(event.data["message"]["source"].get("callId") for event in events
                   if event.type == "tool/result" and _code(event) not in UNCERTAIN)
    ends = [event.data["reason"]["kind"] for event in events if event.type == "turn/end"]
    turns = sum(event.type == "turn/start" for event in events)
    return Mark(path, sum(event.type == call for event in events),
                {name: times for name, times in begun.items() if done[name] < times},
                len(ends) == turns and bool(ends) and ends[-1] not in CUT)  # fmt: skip


def _code(event: LogEvent) -> str | None:
    error = event.data.get("error")
    return error.get("code") if isinstance(error, dict) else None

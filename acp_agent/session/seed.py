"""The seed boundary: how many leading events of a log were inherited (DESIGN 4, format reference 1.10)."""

from __future__ import annotations

from msgspec import UNSET

from acp_agent.errors import LogDamaged
from acp_agent.session.events import EndSeed, SessionHeader, TurnEnd


def check_seed(header: SessionHeader, count: int, before: str | None, at: str | None, file: str) -> None:
    """Check the header's `seed_length` against the log it stands over.

    `count` is how many events the log has; `before` and `at` are the types of the events numbered `seed_length` - 1
    and `seed_length`, None where there is no such event. A log that ends at the boundary is sound: its process died
    before the session/end-seed was stored, and a continuation begins with that. Raises `LogDamaged` naming `file` for a
    boundary beyond the log's end, or one that does not stand between turn/end and session/end-seed.
    """
    length = header.seed_length
    if length is UNSET or length == 0:
        return
    if length > count:
        raise LogDamaged(f"the header says that {length} events were inherited, but the log has only {count}",
                         file=file)
    if before != TurnEnd.type or at not in (EndSeed.type, None):
        raise LogDamaged(f"the header says that {length} of {count} events were inherited, but event {length - 1} is "
                         f"{before} and event {length} is {at}: inherited events end with {TurnEnd.type}, and "
                         f"{EndSeed.type} follows them", file=file)

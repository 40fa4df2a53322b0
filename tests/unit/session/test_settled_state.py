"""What a continuation leaves out of a log makes no difference to its state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from acp_agent.session import codec
from acp_agent.session.events import AssistantChunk, Chunk, EndSeed, Event, Finish, SessionConfig, SessionHeader
from acp_agent.session.log import SessionLog
from acp_agent.session.state import SessionState
from tests.support.fakes import FixedClock, ScriptedProvider, asks, call, says
from tests.support.world import World
from tests.unit.session.test_session_state import LOGS, facts


def settled(events: Sequence[Event]) -> list[Event]:
    """The events of a continuation, as its contract has them."""
    return [msgspec.structs.replace(event, source_event_seqs=UNSET) for event in events
            if not isinstance(event.body, AssistantChunk) or isinstance(event.body.chunk, Finish)]


def read(path: Path) -> tuple[SessionHeader, list[Event]]:
    lines = codec.split_lines(path.read_bytes())[0]
    reader = codec.Reader(str(path))
    return codec.decode_header(lines[0], str(path)), [event for line in lines[1:] for event in reader.read(line)]


def folded(header: SessionHeader, events: Sequence[Event]) -> SessionState:
    state = SessionState(0 if header.seed_length is UNSET else header.seed_length)
    for event in events:
        state.apply(event)
    return state


@pytest.mark.parametrize("path", LOGS, ids=[f"{path.parent.name}/{path.name}" for path in LOGS])
def test_at_every_event_of_a_recorded_log_the_settled_ones_give_the_state(path: Path) -> None:
    header, events = read(path)
    for count in range(1, len(events) + 1, max(1, len(events) // 40)):
        part = events[:count]
        state = folded(header, settled(part))
        state.settle(count, part[-1].time)
        assert facts(state) == facts(folded(header, part)), f"after {count} events"


@pytest.mark.anyio
async def test_at_every_event_of_a_log_of_ours_the_settled_ones_give_the_state(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("one", "two"), asks(call("a", "nobody")), says("done"))
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.prompt(session)
        await world.prompt(session)
        events = list(world.view.events)
        for count in range(1, len(events) + 1):
            state = folded(session.log.header, settled(events[:count]))
            state.settle(count, events[count - 1].time)
            assert facts(state) == facts(folded(session.log.header, events[:count]))
        assert facts(folded(session.log.header, events)) == facts(session.log.state)


# ---------------------------------------------------------------- the log that goes on


class Rows:
    """An appender that keeps what it takes."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, event: Event) -> None:
        self.events.append(event)

    def append_chunks(self, first: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]) -> None:
        for seq, chunk in enumerate(chunks, first):
            self.append(Event(seq, time, AssistantChunk(turn, step, chunk)))

    async def write(self) -> None: ...

    async def sync(self) -> None: ...

    async def aclose(self) -> None: ...


async def going_on(*stored: Any) -> tuple[SessionLog, Rows]:
    """A log that holds these events from before."""
    rows = Rows()
    log = SessionLog(SessionHeader(id="s", created_at=1), rows, FixedClock())  # type: ignore[arg-type]  # plain text
    events = [Event(seq, 10 + seq, body) for seq, body in enumerate(stored)]
    await log.restore(events, len(events), events[-1].time)
    return log, rows


@pytest.mark.anyio
async def test_a_new_lifecycle_begins_with_its_first_event_and_is_marked_once() -> None:
    log, rows = await going_on(SessionConfig(mode="ask"))
    assert rows.events == []
    log.append(SessionConfig(mode="read-only"))
    log.append(SessionConfig(mode="full-access"))
    assert [(event.seq, event.body.type) for event in rows.events] == [
        (1, "session/end-seed"), (2, "session/config"), (3, "session/config")]
    assert log.state.mode == "full-access"


@pytest.mark.anyio
async def test_a_log_that_ends_with_the_mark_gets_no_second_one() -> None:
    log, rows = await going_on(SessionConfig(mode="ask"), EndSeed())
    log.append(SessionConfig(mode="read-only"))
    assert [(event.seq, event.body.type) for event in rows.events] == [(2, "session/config")]


@pytest.mark.anyio
async def test_a_mark_that_is_not_the_last_event_does_not_count() -> None:
    log, rows = await going_on(EndSeed(), SessionConfig(mode="ask"))
    log.append(SessionConfig(mode="read-only"))
    assert [event.body.type for event in rows.events] == ["session/end-seed", "session/config"]


@pytest.mark.anyio
async def test_a_mark_before_chunks_that_were_left_out_does_not_count() -> None:
    rows = Rows()
    log = SessionLog(SessionHeader(id="s", created_at=1), rows, FixedClock())  # type: ignore[arg-type]  # plain text
    await log.restore([Event(0, 1, EndSeed())], 3, 7)
    assert (log.state.count, log.state.time) == (3, 7)
    log.append(SessionConfig(mode="read-only"))
    assert [(event.seq, event.body.type) for event in rows.events] == [(3, "session/end-seed"), (4, "session/config")]


@pytest.mark.anyio
async def test_inherited_events_are_marked_at_once() -> None:
    rows = Rows()
    log = SessionLog(SessionHeader(id="s", created_at=1), rows, FixedClock())  # type: ignore[arg-type]  # plain text
    await log.seed([Event(0, 5, SessionConfig(mode="ask"))])
    assert [(event.seq, event.body.type) for event in rows.events] == [(1, "session/end-seed")]
    log.append(SessionConfig(mode="read-only"))
    assert [event.body.type for event in rows.events] == ["session/end-seed", "session/config"]

"""A client that does not read: the agent's memory stays bounded, nothing is lost, and it can still be stopped."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Workbench
from tests.support import processes
from tests.support.client import AgentProcess
from tests.wire.moves import resident_memory, stop_reason
from tests.wire.recordings import Log, says, write
from tests.wire.runs import data, end_of, root_log

MANY = 200_000
ON_THE_WIRE = 230
"""Bytes of a short delta's update."""
CALM = 40
"""Looks in a row at a process that sleeps and has used no time since the look before, until it counts as idle."""


def numbered(count: int) -> list[str]:
    return [f"{number} " for number in range(count)]


def flooding(bench: Workbench, count: int) -> tuple[AgentProcess, str, str]:
    """An agent and two sessions, both warm: the first one's next answer has `count` deltas, the other's a few."""
    flood = Log("floods").turn("1", says("warm")).turn("2", says(*numbered(count))).turn("3", says("after"))
    other = Log("other", created=2000).turn("1", says("warm")).turn("2", says("served"))
    running = bench(replay=write(bench.store.parent / "flood", flood, other))
    running.initialize()
    first, second = running.new_session(), running.new_session()
    for session in (first, second):
        assert stop_reason(running.prompt(session, "go")) == "end_turn"
    return running, first, second


def wait_until_idle(running: AgentProcess) -> None:
    """Wait until the agent waits itself, for a client that does not read."""
    looks: list[tuple[str, ...]] = []

    def idle() -> bool:
        fields = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
        looks.append((fields[0], *fields[11:13]))
        return len(looks) >= CALM and set(looks[-CALM:]) == {("S", *fields[11:13])}

    running.wait_until(idle, "the agent to wait")


def test_what_a_client_does_not_read_is_not_piled_up_and_can_be_cancelled(agent: Workbench) -> None:
    running, session, other = flooding(agent, MANY)
    before = resident_memory(running.pid)
    running.stop_reading()
    prompt = running.start_prompt(session, "go")
    wait_until_idle(running)
    grown = resident_memory(running.pid) - before
    assert grown < MANY * ON_THE_WIRE // 8, f"{grown} bytes more"
    served = running.start_prompt(other, "go")
    running.cancel(session)
    running.resume_reading()
    assert stop_reason(running.response(prompt)) == "cancelled"
    assert stop_reason(running.response(served)) == "end_turn"
    assert running.text(other).endswith("served")
    shown = running.text(session).removeprefix("warm").split()
    assert 100 < len(shown) < MANY // 10
    assert shown == [str(number) for number in range(len(shown))]
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    log = root_log(agent, session)
    assert [part["reason"]["kind"] for part in data(log, "turn/end")] == ["completed", "aborted", "completed"]


def test_a_client_that_reads_on_gets_everything_in_order_and_others_are_served_meanwhile(agent: Workbench) -> None:
    count = 20_000
    running, session, other = flooding(agent, count)
    running.stop_reading()
    prompt = running.start_prompt(session, "go")
    wait_until_idle(running)
    served = running.start_prompt(other, "go")
    running.resume_reading()
    since = running.position
    answers = [running.response(one) for one in (served, prompt)]
    ends = [running.received.index(answer) for answer in answers]
    assert ends[0] < ends[1] - count // 2, "the flood held the other session up"
    assert running.text(session).removeprefix("warm") == "".join(numbered(count))
    assert running.text(other, since=since) == "served"
    assert end_of(root_log(agent, session)) == {"kind": "completed"}


def test_a_client_that_never_reads_again_does_not_keep_the_agent_from_ending(agent: Workbench) -> None:
    running, session, _ = flooding(agent, 20_000)
    running.unlawful = "what was not read is lost"
    running.stop_reading()
    running.start_prompt(session, "go")
    wait_until_idle(running)
    running.end_input()
    running.wait_until(lambda: running.process.poll() is not None, "the agent's exit")
    assert running.wait() == 0
    assert processes.wait_until_gone(running.mark) == []
    assert end_of(root_log(agent, session)) == {"kind": "aborted", "reason": {"kind": "disposed"}}

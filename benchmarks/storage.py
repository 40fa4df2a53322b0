"""How fast sessions are stored, loaded and listed, beside what the machine's Python can do at all.

usage: storage.py AGENT_COMMAND [ROUNDS] [append|load|memory|list|latency ...]

The floors come from the shared `py_floors.py` ($ACP_BENCH_DIR, else ../shared/bench), measured in the same run and
interleaved with ours. Prints medians of the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import io
import json
import os
import queue
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from storage_data import header, log_of, put_log, put_many, put_many_rows, scenario_events

from acp_agent.clock import SystemClock
from acp_agent.session import codec
from acp_agent.session.events import BlockStart, Chunk, Event, Finish, FinishReason, StepStart, TextDelta
from acp_agent.session.log import SessionLog
from acp_agent.stores.base import Store
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.stores.sqlite import SqliteStore

HERE = Path(__file__).resolve().parent

SIZE = 50_000_000
"""Bytes of the long log."""

STORES: dict[str, Callable[[Path], Store]] = {
    "jsonl": lambda root: JsonlStore(root / "logs"), "sqlite": lambda root: SqliteStore(root / "sessions.db"),
}


def floors() -> Any:
    """The shared module of floors."""
    folder = Path(os.environ.get("ACP_BENCH_DIR", HERE.parent.parent / "shared" / "bench"))
    spec = importlib.util.spec_from_file_location("py_floors", folder / "py_floors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def median(values: list[float]) -> float:
    return statistics.median(values)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall, and of the processor in all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


# ---------------------------------------------------------------- appending

TEXT = "tok tok tok tok tok tok tok"
"""One delta's text: the event it makes is as long as the one that the floors store."""

APPENDED = {100: 40_000, 1_000: 80_000}
"""How many events are stored in groups of so many."""


def answer(size: int) -> list[Chunk]:
    """A model call of so many chunks, all but two of them deltas."""
    return [BlockStart(0, "text"), *[TextDelta(0, TEXT)] * (size - 2), Finish(FinishReason("stop"))]


async def append(store: Store, root: Path, batch: int, *, sync: bool) -> tuple[float, float]:
    """Events a second through the session's log and the store, written, or written and synced, in such groups: by the
    clock on the wall, and by processor time in all threads.
    """
    head = header("appended", root)
    log = SessionLog(head, store.create(head, head.id), SystemClock())
    log.append(StepStart(1, 1))
    await log.sync()
    chunks, count = answer(batch), APPENDED[batch] if not sync else APPENDED[batch] // 10
    start, used = time.perf_counter(), time.process_time()
    for _ in range(count // batch):
        log.append_chunks(1, 1, chunks)
        await (log.sync() if sync else log.write())
    seconds, used = time.perf_counter() - start, time.process_time() - used
    await log.aclose()
    await store.aclose()
    return count / seconds, count / used


BUFFERED = "JSONL: buffered file.write each row, flush at the end: rows/s"
APPEND_FLOORS = {
    ("jsonl", 100, False): (BUFFERED, "JSONL: os.write 100 rows, no fsync: rows/s",
                            "JSONL: os.write each row, no fsync: rows/s"),
    ("jsonl", 1_000, False): (BUFFERED, "JSONL: os.write 100 rows, no fsync: rows/s",
                              "JSONL: os.write each row, no fsync: rows/s"),
    ("jsonl", 100, True): ("JSONL: 100 rows + fdatasync: rows/s",),
    ("sqlite", 100, False): ("sqlite3 WAL synchronous=NORMAL, 100 a transaction: rows/s",),
    ("sqlite", 1_000, False): ("sqlite3 WAL synchronous=NORMAL, 1000 a transaction: rows/s",),
    ("sqlite", 100, True): ("sqlite3 WAL synchronous=FULL, 100 a transaction: rows/s",),
    ("sqlite", 1_000, True): ("sqlite3 WAL synchronous=FULL, 1000 a transaction: rows/s",),
}
"""For each way of appending the floors beside it. The first one is its measure: it hands over the same single rows, or
groups of the same size, with the same promise."""


def append_floors(module: Any, folder: str, clock: Callable[[], int]) -> dict[str, float]:
    """Rows a second of the shared floors, by such a clock (nanoseconds)."""
    module.NS = clock
    with contextlib.redirect_stdout(io.StringIO()):
        module.storage(folder)
    rates: dict[str, float] = module.OUT["appending events"]
    return rates


def appending(_: str, rounds: int) -> None:
    """A stream of deltas in both stores: by processor time, but by the wall's clock where the device is waited for."""
    module = floors()
    clocks = time.perf_counter_ns, time.process_time_ns
    rates, lows = dict[Any, list[float]](), tuple(dict[str, list[float]]() for _clock in clocks)
    for _round in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for low, clock in zip(lows, clocks, strict=True):
                for name, value in append_floors(module, folder, clock).items():
                    low.setdefault(name, []).append(value)
            gc.collect()
            gc.freeze()  # what the floors leave is nobody's work to look through
            for number, way in enumerate(APPEND_FLOORS):
                kind, batch, sync = way
                root = Path(folder) / str(number)
                root.mkdir()
                both = asyncio.run(append(STORES[kind](root), root, batch, sync=sync))
                rates.setdefault(way, []).append(both[0 if sync else 1])
    for way, names in APPEND_FLOORS.items():
        kind, batch, sync = way
        low = lows[0 if sync else 1]
        beside = "; ".join(
            f"{median([ours / one for ours, one in zip(rates[way], low[name], strict=True)]):.2f} of "
            f"{name.removesuffix(': rows/s')} ({median(low[name]):,.0f})" for name in names)
        print(f"append, {kind}, {batch} a {'sync' if sync else 'write'}: {median(rates[way]):,.0f} events/s; {beside}")


# ---------------------------------------------------------------- loading


async def import_into(store: Store, events: list[Event], root: Path) -> None:
    """Store a whole log."""
    head = header("long", root)
    appender = store.create(head, head.id)
    for event in events:
        appender.append(event)
    await appender.aclose()
    await store.aclose()


def prepare(kind: str, root: Path, rows: bytes) -> None:
    """A store with one session of such rows."""
    root.mkdir(exist_ok=True)
    if kind == "jsonl":
        put_log(root / "logs", header("long", root), rows)
        return
    reader = codec.Reader("rows")
    events = [event for line in codec.split_lines(rows)[0] for event in reader.read(line)]
    asyncio.run(import_into(STORES[kind](root), events, root))


async def load(store: Store, name: str) -> int:
    """Load a session for continuation; how many events it has."""
    opened = await store.load(header(name, Path()).id)
    await opened.appender.aclose()
    await store.aclose()
    return opened.count


def corpora() -> dict[str, list[Event]]:
    """What long logs are made of: what this agent writes, and what real models said where the recordings are there."""
    recorded = Path(os.environ.get("ACP_RECORDED_DIR", HERE.parent.parent / "shared" / "recorded"))
    found = {"golden logs": scenario_events(HERE.parent / "golden"), "recordings": scenario_events(recorded)}
    return {name: events for name, events in found.items() if events}


def loading(_: str, rounds: int) -> None:
    """A long log in both stores, and the decoder alone, beside the typed decode floor on the same bytes."""
    module = floors()
    for name, events in corpora().items():
        rows, count = log_of(events, size=SIZE)
        lines = codec.split_lines(rows)[0]
        print(f"load: {name} of {len(rows) / 1e6:.0f} MB, {len(lines):,} lines, {count:,} events")
        with tempfile.TemporaryDirectory() as folder:
            compare(module, rows, lines, Path(folder), rounds)
        linear(events, rounds)


def single_rows(lines: list[bytes]) -> list[bytes]:
    """The same events as a row each, as SQLite stores them."""
    reader = codec.Reader("rows")
    return [codec.encode_event(event)[:-1] for line in lines for event in reader.read(line)]


def fetched(module: Any, file: Path) -> None:
    """The typed decode floor on rows that have to be fetched first."""
    database = sqlite3.connect(file)
    database.text_factory = bytes
    query = """SELECT '{"type":"' || type || '","data":' || data || '}' FROM events WHERE session_id = ? ORDER BY seq"""
    module.grouped(row for (row,) in database.execute(query, ("long",)))
    database.close()


def compare(module: Any, rows: bytes, lines: list[bytes], folder: Path, rounds: int) -> None:
    """Each way of loading the same bytes, right after each of its floors."""

    pieces = [b"".join(line + b"\n" for line in lines[at:at + 48]) for at in range(0, len(lines), 48)]

    def decode() -> None:
        reader = codec.Reader("rows")
        for piece in pieces:
            reader.settle(piece)

    works: dict[str, Callable[[], object]] = {"the decoder alone": decode}
    for kind, make in STORES.items():
        root = folder / kind
        prepare(kind, root, rows)
        works[kind] = lambda make=make, root=root: asyncio.run(load(make(root), "long"))  # type: ignore[misc]  # bound early
    singles = single_rows(lines)
    decoded: Floors = {"the lines of its JSONL log": lambda: module.grouped(lines)}
    of_rows: Floors = {
        "its rows, fetched": lambda: fetched(module, folder / "sqlite" / "sessions.db"),
        f"its rows as {sum(map(len, singles)) / 1e6:.0f} MB of lines": lambda: module.grouped(singles),
    }
    gc.collect()
    gc.freeze()  # what this module holds is nobody's work to look through
    for name, work in works.items():
        beside(f"load, {name}", work, of_rows | decoded if name == "sqlite" else decoded, rounds)
    gc.unfreeze()


Floors: TypeAlias = dict[str, Callable[[], object]]


def beside(what: str, work: Callable[[], object], floors: Floors, rounds: int) -> None:
    """Print how fast work is, and its share of each floor's speed, by the wall's clock and by processor time."""
    ratios = dict[str, list[tuple[float, float]]]()
    seconds = []
    for _round in range(rounds):
        for name, floor in floors.items():
            low, ours = timed(floor), timed(work)
            seconds.append(ours[0])
            ratios.setdefault(name, []).append((low[0] / ours[0], low[1] / ours[1]))
    told = "; ".join(
        f"{median([one[0] for one in found]):.2f} of the floor on {name}, by processor time "
        f"{median([one[1] for one in found]):.2f}" for name, found in ratios.items())
    print(f"{what}: {median(seconds):.2f} s; {told}")


def linear(events: list[Event], rounds: int) -> None:
    """What an event costs in a log of 50,000 over one of 5,000, both stores."""
    for kind, make in STORES.items():
        with tempfile.TemporaryDirectory() as folder:
            roots = {count: Path(folder) / str(count) for count in (5_000, 50_000)}
            for count, root in roots.items():
                prepare(kind, root, log_of(events, count=count)[0])

            def cost(root: Path, times: int, make: Callable[[Path], Store] = make) -> float:
                return sum(timed(lambda: asyncio.run(load(make(root), "long")))[1] for _ in range(times))

            ratios = [cost(roots[50_000], 1) / cost(roots[5_000], 10) for _ in range(3 * rounds)]
            print(f"load, {kind}: an event of 50,000 costs {median(ratios):.2f} of one of 5,000 (processor time)")


PROBE = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from storage import STORES, header
opened = []
async def main():  # gives nothing back: asyncio.run makes the repr of what it gives back
    store = STORES[{kind!r}](Path({root!r}))
    opened.append(await store.load(header("long", Path()).id))
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
before = peak()
asyncio.run(main())
print(before, peak(), opened[0].count)
"""


def memory(_: str, rounds: int) -> None:
    """Peak memory of a fresh process that loads a long log, over the log's size."""
    for name, events in corpora().items():
        rows, _count = log_of(events, size=SIZE)
        with tempfile.TemporaryDirectory() as folder:
            for kind in STORES:
                measure_memory(name, kind, Path(folder) / kind, rows, rounds)


def measure_memory(name: str, kind: str, root: Path, rows: bytes, rounds: int) -> None:
    """One store's."""
    prepare(kind, root, rows)
    code = PROBE.format(here=str(HERE), kind=kind, root=str(root))
    peaks = []
    for _round in range(rounds):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        before, peak, _events = map(int, done.stdout.split())
        peaks.append((peak / len(rows), (peak - before) / len(rows)))
    print(f"memory, {kind}, {name}: the process peaks at {median([one[0] for one in peaks]):.2f} times the log's size, "
          f"{median([one[1] for one in peaks]):.2f} above what it needs before")


# ---------------------------------------------------------------- listing


async def first_page(store: Store) -> tuple[float, float]:
    """Milliseconds to the first page, in a store just opened: on the wall, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    page = await store.list()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    assert len(page.sessions) == 50, page
    assert not page.refused, page.refused[:3]
    assert page.sessions[0].id == "session-09999"
    await store.aclose()
    return seconds * 1e3, used * 1e3


def listing(_: str, rounds: int) -> None:
    """The first page of a list of 10,000 sessions."""
    rows, _count = log_of(scenario_events(HERE.parent / "golden"), count=60)
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in STORES.items():
            root = Path(folder) / kind
            prepare(kind, root, rows)
            if kind == "jsonl":
                put_many(root / "logs", root, rows, 10_000)
            else:
                put_many_rows(root / "sessions.db", 10_000)
            if kind == "jsonl":
                (next((root / "logs").glob("*/long")) / "session.jsonl").unlink()
            times = [asyncio.run(first_page(make(root))) for _ in range(3 * rounds)]
            wall, used = (median([one[at] for one in times]) for at in (0, 1))
            print(f"list, {kind}: {wall:.1f} ms for the first page of 10,000, {used:.1f} ms of the processor (the very "
                  f"first time {times[0][0]:.1f} and {times[0][1]:.1f} ms)")


# ---------------------------------------------------------------- latency


class Agent:
    """One agent process over raw pipes. A thread reads, so that requests can overlap."""

    def __init__(self, command: str, recording: Path, store: str) -> None:
        env = {**os.environ, "ACP_REPLAY_DIR": str(recording), "ACP_SESSION_STORE": store,
               "ACP_REPLAY_SESSIONS": "repeat"}
        self._process = subprocess.Popen([command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answers: dict[int, queue.Queue[tuple[float, dict[str, Any]]]] = {}
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.call("initialize", {"protocolVersion": 1})

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b'"session/update"' not in line[:200]:
                answer = json.loads(line)
                self._answers[answer["id"]].put((time.perf_counter(), answer))

    def send(self, method: str, params: dict[str, Any]) -> queue.Queue[tuple[float, dict[str, Any]]]:
        """One request; where its answer will be."""
        assert self._process.stdin is not None
        self._next += 1
        answers: queue.Queue[tuple[float, dict[str, Any]]] = queue.Queue()
        self._answers[self._next] = answers
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return answers

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request; its result."""
        _, answer = self.send(method, params).get(timeout=120)
        result: dict[str, Any] = answer["result"]
        return result

    def prompt(self, session: str) -> float:
        """Milliseconds from a prompt to its answer."""
        start = time.perf_counter()
        end, answer = self.send("session/prompt", {"sessionId": session,
                                                   "prompt": [{"type": "text", "text": "go"}]}).get(timeout=120)
        assert "result" in answer, answer
        return (end - start) * 1e3

    def close(self) -> None:
        """End of input, and wait."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def latency(command: str, rounds: int) -> None:
    """What a prompt takes while another session is brought back, and while nothing else happens."""
    rows, _count = log_of(scenario_events(HERE.parent / "golden"), size=SIZE)
    with tempfile.TemporaryDirectory() as folder:
        fixtures = Path(folder) / "fixtures"
        subprocess.run([sys.executable, str(HERE / "fixtures.py"), str(fixtures)], check=True)
        for kind in STORES:
            root = Path(folder) / kind
            prepare(kind, root, rows)
            store = f"jsonl:{root}/logs" if kind == "jsonl" else f"sqlite:{root}/sessions.db"
            for method in ("session/resume", "session/load"):
                found = [disturbed(command, fixtures / "turns", store, root, method) for _ in range(rounds)]
                idle, mean, worst, seconds = (median(list(column)) for column in zip(*found, strict=True))
                print(f"latency, {kind}, {method} of {seconds:.1f} s: a prompt takes {mean:.2f} ms (median), at most "
                      f"{worst:.2f} ms; {idle:.2f} ms else")


def disturbed(command: str, recording: Path, store: str, root: Path, method: str) -> tuple[float, float, float, float]:
    """Milliseconds of a prompt alone, and the median and the longest while a session comes back, and its seconds."""
    agent = Agent(command, recording, store)
    session = agent.call("session/new", {"cwd": str(root), "mcpServers": []})["sessionId"]
    for _ in range(20):
        agent.prompt(session)
    idle = median([agent.prompt(session) for _ in range(100)])
    start = time.perf_counter()
    answers = agent.send(method, {"sessionId": "long", "cwd": str(root), "mcpServers": []})
    times = [agent.prompt(session)]
    while answers.empty() and len(times) < 900:
        times.append(agent.prompt(session))
    end, answer = answers.get(timeout=120)
    assert "result" in answer, answer
    agent.close()
    return idle, median(times), max(times), end - start


PARTS: dict[str, Callable[[str, int], None]] = {
    "append": appending, "load": loading, "memory": memory, "list": listing, "latency": latency,
}


def main() -> None:
    """The parts that were named, or all of them."""
    command, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for name in sys.argv[3:] or PARTS:
        PARTS[name](command, rounds)


if __name__ == "__main__":
    main()

"""What only our own agent can be asked: does it stay linear, and how fast does it load?

usage: own.py AGENT_COMMAND [ROUNDS]

Starts the agent in replay of recordings it writes itself, and prints medians. Loading is measured in this
process against the typed decode floor of the shared `py_floors.py` ($ACP_BENCH_DIR, else ../shared/bench).
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Driver:
    """One agent process and one session, over raw pipes."""

    def __init__(self, command: str, recording: Path, root: Path) -> None:
        env = {**os.environ, "ACP_REPLAY_DIR": str(recording), "ACP_SESSION_STORE": f"jsonl:{root}/store"}
        self._process = subprocess.Popen([command], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._next = 0
        self.call("initialize", {"protocolVersion": 1})
        self.session = self.call("session/new", {"cwd": str(root), "mcpServers": []})["sessionId"]

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request; its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._next += 1
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if b'"session/update"' not in line:
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == self._next:
                    result: dict[str, Any] = answer["result"]
                    return result
        raise RuntimeError("the agent ended")

    def prompt(self) -> float:
        """Seconds from a prompt to its answer."""
        start = time.perf_counter()
        self.call("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": "go"}]})
        return time.perf_counter() - start

    def cpu(self) -> float:
        """Seconds of processor time the agent has used: other load does not move it."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def cost(self, prompts: int) -> float:
        """Processor seconds for one of so many prompts."""
        before = self.cpu()
        for _ in range(prompts):
            self.prompt()
        return (self.cpu() - before) / prompts

    def close(self) -> None:
        """End of input, and wait."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait()


def deltas(command: str, fixtures: Path, rounds: int) -> None:
    """Deltas a second, and for a second of processor time, in turns of 5,000 and of 40,000."""
    cpu: dict[int, list[float]] = {5_000: [], 40_000: []}
    rates: dict[int, list[float]] = {5_000: [], 40_000: []}
    for _ in range(rounds):
        for count, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                driver = Driver(command, fixtures / f"deltas-{count}", Path(folder))
                driver.prompt()  # loads the recording
                before = driver.cpu()
                found.append(count / statistics.median(driver.prompt() for _ in range(5)))
                cpu[count].append(5 * count / (driver.cpu() - before))
                driver.close()
    small, large = (statistics.median(rates[count]) for count in (5_000, 40_000))
    ratio = statistics.median(b / a for a, b in zip(rates[5_000], rates[40_000], strict=True))
    print(f"deltas/s at 5,000: {small:,.0f}; at 40,000: {large:,.0f}; ratio {ratio:.2f}")
    busy = statistics.median(b / a for a, b in zip(cpu[5_000], cpu[40_000], strict=True))
    print(f"the same for a second of processor time: ratio {busy:.2f}")


def turns(command: str, fixtures: Path, rounds: int) -> None:
    """What a prompt costs around turn 10 and around turn 1,000 of one session."""
    ratios = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(command, fixtures / "turns", Path(folder))
            driver.cost(10)
            early = driver.cost(80)
            driver.cost(880)
            late = driver.cost(80)
            driver.close()
        ratios.append(late / early)
        print(f"turn 10: {early * 1e3:.2f} ms of CPU; turn 1,000: {late * 1e3:.2f} ms; ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")


def loading(fixtures: Path, corpus: Path) -> None:
    """MB/s of loading recordings, beside the typed decode floor over the same bytes."""
    folder = Path(os.environ.get("ACP_BENCH_DIR", HERE.parent.parent / "shared" / "bench"))
    spec = importlib.util.spec_from_file_location("py_floors", folder / "py_floors.py")
    assert spec is not None
    assert spec.loader is not None
    floors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(floors)
    from replay.engine import read_directory
    from replay.problems import Findings

    directories = [_lengthened(path, fixtures / "long") for path in sorted(corpus.iterdir())
                   if (path / "session.jsonl").exists() and not (path / "session.1.jsonl").exists()]  # fmt: skip
    data = [(one / "session.jsonl").read_bytes() for one in directories]
    lines = [line for blob in data for line in blob.splitlines()]
    size = sum(map(len, data)) / 1e6

    def load_all() -> None:
        for directory in directories:
            read_directory(directory, Findings())

    ours, floor = _rate(load_all, size), _rate(lambda: floors.grouped(lines), size)
    many = f"loading {len(directories)} recordings, lengthened"
    print(f"{many}: {ours:.0f} MB/s; floor {floor:.0f} MB/s; ratio {ours / floor:.2f}")
    big = fixtures / "endless"
    blob = (big / "session.jsonl").read_bytes()
    ours = _rate(lambda: read_directory(big, Findings()), len(blob) / 1e6)
    floor = _rate(lambda: floors.grouped(blob.splitlines()), len(blob) / 1e6)
    print(f"loading one long recording: {ours:.0f} MB/s; floor {floor:.0f} MB/s; ratio {ours / floor:.2f}")


def _lengthened(recording: Path, root: Path, size: int = 500_000) -> Path:
    """A recording whose one session goes on and on: opening files must not hide what reading them costs."""
    header, body = (recording / "session.jsonl").read_bytes().split(b"\n", 1)
    target = root / recording.name
    target.mkdir(parents=True)
    (target / "session.jsonl").write_bytes(header + b"\n" + body * (size // len(body) + 1))
    return target


def _rate(work: Callable[[], object], megabytes: float) -> float:
    """Megabytes for a second of processor time."""
    work()
    times = []
    for _ in range(15):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return megabytes / statistics.median(times)


def main() -> None:
    """Everything, in turn."""
    command, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as folder:
        fixtures = Path(folder)
        subprocess.run([sys.executable, str(HERE / "fixtures.py"), folder], check=True)
        loading(fixtures, Path(os.environ.get("ACP_RECORDED_DIR", HERE.parent.parent / "shared" / "recorded")))
        deltas(command, fixtures, rounds)
        turns(command, fixtures, rounds)


if __name__ == "__main__":
    main()

"""Commands end with the process that runs them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import processes
from tests.unit.tools.test_bash_tool import FAMILY, TREE, alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finding who left the group needs /proc")

RUN = """
import asyncio, os, sys
from pathlib import Path
from acp_agent.tools.processes import run_process
async def main():
    for number, command in enumerate(sys.argv[1:]):
        end = await run_process(("bash", "-c", command), cwd=".", env=os.environ, timeout=None, sink=print)
        Path(f"done-{number}").write_text(f"{end.code} {end.signal}")
        while Path("wait").exists():
            await asyncio.sleep(0.005)
asyncio.run(main())
"""
"""Runs commands one after the other; a file says that each has ended, another has it wait."""

Runner = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    mark = processes.new_mark()

    def start(*commands: str) -> subprocess.Popen[bytes]:
        environ = processes.clean_environment(tmp_path) | {processes.MARK: mark}
        return subprocess.Popen([sys.executable, "-c", RUN, *commands], cwd=tmp_path, env=environ)

    yield start
    left = processes.wait_until_gone(mark)
    processes.kill_marked(mark)
    assert left == []


def wait_for(running: subprocess.Popen[bytes], *files: Path) -> None:
    """The test's own timeout is the limit."""
    while not all(file.exists() and file.read_text().strip() for file in files):
        assert running.poll() is None
        processes.pause()


def watchmen(running: subprocess.Popen[bytes]) -> list[int]:
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"trees.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def gone(tmp_path: Path) -> bool:
    pids = [int((tmp_path / name).read_text()) for name in FAMILY]
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_and_all_it_started_end_with_the_process_that_runs_it(
    runner: Runner, tmp_path: Path, number: int,
) -> None:
    running = runner(TREE)
    wait_for(running, *[tmp_path / name for name in FAMILY])
    (watchman,) = watchmen(running)
    running.send_signal(number)
    running.wait()
    while alive(watchman) or not gone(tmp_path):
        processes.pause()


def test_a_command_may_clean_up_when_its_agent_is_killed(runner: Runner, tmp_path: Path) -> None:
    # What bash says of the end of its `sleep` would end it, too: nobody reads that any more.
    running = runner("exec 2> /dev/null; trap 'echo bye > bye; exit' TERM; echo $$ > up; while :; do sleep 0.01; done")
    wait_for(running, tmp_path / "up")
    running.kill()
    running.wait()
    pid = int((tmp_path / "up").read_text())
    while alive(pid):
        processes.pause()
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_what_is_over_is_not_looked_for_and_the_watchman_goes_with_the_process(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    running = runner("exit 3")
    wait_for(running, tmp_path / "done-0")
    assert (tmp_path / "done-0").read_text() == "3 None"
    (watchman,) = watchmen(running)
    assert processes.MARK.encode() not in Path(f"/proc/{watchman}/environ").read_bytes()
    (tmp_path / "wait").unlink()
    assert running.wait() == 0
    assert not alive(watchman)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_watchman_that_was_ended_is_replaced(runner: Runner, tmp_path: Path, number: int) -> None:
    (tmp_path / "wait").touch()
    running = runner("true", TREE)
    wait_for(running, tmp_path / "done-0")
    (watchman,) = watchmen(running)
    os.kill(watchman, number)
    while alive(watchman):
        processes.pause()
    (tmp_path / "wait").unlink()
    wait_for(running, *[tmp_path / name for name in FAMILY])
    (another,) = watchmen(running)
    assert another != watchman
    running.kill()
    running.wait()
    while not gone(tmp_path):
        processes.pause()

"""Disks that are full, read-only or slow: the client is told in that turn, the step does not run, saving goes on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support import policies
from tests.support.client import AgentProcess
from tests.support.log_laws import Log, check_store_laws
from tests.support.reopen import KINDS, StorePlace, database_files
from tests.wire.kills import place_of
from tests.wire.moves import recording, stop_reason
from tests.wire.recordings import call, says, tool
from tests.wire.runs import LIVE, data, failures, order

RUNS = call(tool("c", "bash", command="touch ran", description="Run"))
UNLIMITED = resource.RLIM_INFINITY


def started(bench: Workbench, place: StorePlace, *entries: Any, **environ: str) -> AgentProcess:
    """An initialized agent on this store that is served these model calls."""
    running = bench(replay=recording(bench, *entries), environ=LIVE | place.environ | environ)
    running.initialize()
    return running


def limit_files(running: AgentProcess, size: int) -> None:
    """Let no file of a running agent grow beyond a size in bytes: for the agent the disk is full then."""
    hard = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, hard))


def fill_disk(running: AgentProcess, place: StorePlace, left: int) -> None:
    """Leave an agent so many bytes at the end of what it stores its logs in."""
    files = database_files(place.path) if place.kind == "sqlite" else list(place.path.rglob("*.jsonl"))
    limit_files(running, max((file.stat().st_size for file in files), default=0) + left)


def stored(place: StorePlace, into: Path, session: str) -> Log:
    """A session's own log when all is over; every log of the store must be lawful."""
    logs = place.export(into)
    problems = check_store_laws(into)
    assert not problems, problems
    return logs[session][0]


def error_of(answer: dict[str, Any]) -> str:
    """The message of a failed prompt."""
    assert "error" in answer, answer
    message: str = answer["error"]["message"]
    return message


# ---------------------------------------------------------------- full


@pytest.mark.parametrize("left", [0, 100, 700])
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_fails_the_turn_before_the_model_is_called_and_saving_resumes(
    agent: Workbench, tmp_path: Path, kind: str, left: int,
) -> None:
    place, receipt = place_of(agent, kind), tmp_path / "receipt.json"
    running = started(agent, place, says("one"), says("two"), says("three"), ACP_REPLAY_RECEIPT=str(receipt))
    session = running.new_session()
    assert stop_reason(running.prompt(session, "1")) == "end_turn"
    fill_disk(running, place, left)
    since = running.position
    told = error_of(running.prompt(session, "2"))
    assert str(place.path) in told
    assert "cannot be written" in told
    assert running.text(session, since=since) == "", "the model was called although its request was not stored"
    limit_files(running, UNLIMITED)
    assert stop_reason(running.prompt(session, "3")) == "end_turn"
    assert running.close() == 0
    log = stored(place, tmp_path / "end", session)
    assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["completed", "error", "completed"]
    served = json.loads(receipt.read_text())
    assert "two" not in running.text(session), served


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_keeps_a_command_from_running(agent: Workbench, tmp_path: Path, kind: str) -> None:
    place = place_of(agent, kind)
    running = started(agent, place, RUNS, says("after"), ACP_PERMISSION_MODE="ask")
    running.answers["session/request_permission"] = policies.silent
    session = running.new_session()
    prompt = running.start_prompt(session, "go")
    question = running.wait_for_request("session/request_permission")
    fill_disk(running, place, 0)
    running.respond(question, **policies.choose("allow_once")(question))
    told = error_of(running.response(prompt))
    assert "cannot be" in told
    assert str(place.path) in told
    assert not (agent.workspace / "ran").exists(), "the command ran although its start was not stored"
    limit_files(running, UNLIMITED)
    assert stop_reason(running.prompt(session, "again")) == "end_turn"
    assert running.close() == 0
    log = stored(place, tmp_path / "end", session)
    assert failures(log) == [True]
    assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["error", "completed"]
    assert not (agent.workspace / "ran").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_begins_on_a_full_disk_leaves_no_half_of_itself(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    place = place_of(agent, kind)
    running = started(agent, place, says("one"), says("two"))
    limit_files(running, 64)
    session = running.new_session()
    assert "cannot be" in error_of(running.prompt(session, "1"))
    if kind == "jsonl":
        assert [file for file in place.path.rglob("*") if file.is_file() and file.name != "lock"] == []
    limit_files(running, UNLIMITED)
    assert stop_reason(running.prompt(session, "2")) == "end_turn"
    assert running.close() == 0
    log = stored(place, tmp_path / "end", session)
    assert order(log, "turn/start", "turn/end") == ["turn/start", "turn/end"] * 2
    if kind == "jsonl":
        assert [file.name for file in place.path.rglob("*") if file.is_file() and file.name != "lock"] == [
            "session.jsonl"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_ends_on_a_full_disk_says_so_and_what_was_stored_stays_sound(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    place = place_of(agent, kind)
    agent.open_turns = "the end of the second turn cannot be stored"
    running = started(agent, place, says("one"), says("two"))
    session = running.new_session()
    assert stop_reason(running.prompt(session, "1")) == "end_turn"
    fill_disk(running, place, 0)
    error_of(running.prompt(session, "2"))
    assert running.close() == 1
    assert "cannot be" in running.stderr
    log = stored(place, tmp_path / "end", session)
    assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["completed"]
    again = started(agent, place, says("one"), says("two"))
    assert "result" in again.call("session/load", load_params(agent, session))
    assert again.text(session) == "one"


def load_params(bench: Workbench, session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(bench.workspace), "mcpServers": []}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; the test is skipped where none can be mounted."""
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(disk)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all that is left of a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


@pytest.mark.parametrize("when", ["before-the-first-write", "between-turns"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_system_without_space_is_told_and_saving_resumes_when_there_is_some(
    agent: Workbench, tmp_path: Path, small_disk: Path, kind: str, when: str,
) -> None:
    place = StorePlace(kind, small_disk / "store")
    running = started(agent, place, RUNS, says("one"), RUNS, says("two"), says("three"), says("four"))
    session = running.new_session()
    if when == "between-turns":
        assert stop_reason(running.prompt(session, "1")) == "end_turn"
        (agent.workspace / "ran").unlink()
    filler = fill(small_disk)
    for text in ("2", "3"):
        told = error_of(running.prompt(session, text))
        assert str(place.path) in told
        assert "cannot be" in told
    other = running.new_session()
    assert "cannot be" in error_of(running.prompt(other, "1"))
    assert not (agent.workspace / "ran").exists(), "a command ran although its start was not stored"
    filler.unlink()
    assert stop_reason(running.prompt(session, "4")) == "end_turn"
    assert running.close() == 0
    log = stored(place, tmp_path / "end", session)
    ends = [end["reason"]["kind"] for end in data(log, "turn/end")]
    assert ends == ["completed"] * (when == "between-turns") + ["error", "error", "completed"]


# ---------------------------------------------------------------- read-only


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_cannot_be_made_is_told_in_the_first_turn_and_nothing_runs(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    (tmp_path / "file").write_text("in the way")
    place = StorePlace(kind, tmp_path / "file" / "below")
    running = started(agent, place, RUNS, says("two"))
    answer = running.call("session/new", {"cwd": str(agent.workspace), "mcpServers": []})
    if "result" in answer:
        answer = running.prompt(answer["result"]["sessionId"], "1")
    told = error_of(answer)
    assert str(place.path) in told
    assert "ACP_SESSION_STORE" in told
    assert not (agent.workspace / "ran").exists()
    assert (tmp_path / "file").read_text() == "in the way"
    running.close()


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """A file or directory that not even the superuser may change; the test is skipped where that cannot be had."""
    done = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("nothing can be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A file or directory that this process and its agents may not write to."""
    if os.geteuid() == 0:
        with immutable(path):
            yield
        return
    mode = path.stat().st_mode
    path.chmod(mode & 0o555)
    try:
        yield
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_only_directory_is_told_in_that_turn_and_saving_resumes_when_it_is_writable(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    place = StorePlace(kind, directory / ("store.db" if kind == "sqlite" else "logs"))
    running = started(agent, place, says("one"), says("two"))
    session = running.new_session()
    with read_only(directory):
        told = error_of(running.prompt(session, "1"))
        assert str(place.path) in told
        assert list(directory.iterdir()) == []
    assert stop_reason(running.prompt(session, "2")) == "end_turn"
    running.close()
    log = stored(place, tmp_path / "end", session)
    assert [end["reason"]["kind"] for end in data(log, "turn/end")] == ["error", "completed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_session_that_is_read_only_is_listed_and_not_opened_until_it_is_writable(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    agent.open_turns = "a session that was loaded is compared with several transcripts"
    place = place_of(agent, kind)
    first = started(agent, place, says("one"))
    session = first.new_session()
    first.prompt(session, "1")
    first.close()
    (file,) = [place.path] if kind == "sqlite" else place.path.rglob("session.jsonl")
    before = place.content()
    running = started(agent, place, says("one"), says("two"), says("three"))
    with read_only(file):
        listed = running.call("session/list", {})["result"]["sessions"]
        assert [one["sessionId"] for one in listed] == [session]
        answer = running.call("session/load", load_params(agent, session))
        if "result" in answer:  # it may be looked at; going on is what cannot be
            answer = running.prompt(session, "2")
        assert str(file) in error_of(answer)
    assert place.content() == before
    if "error" in running.call("session/load", load_params(agent, session)):
        running.close()
        running = started(agent, place, says("one"), says("two"), says("three"))
        assert "result" in running.call("session/load", load_params(agent, session))
    assert stop_reason(running.prompt(session, "3")) == "end_turn"
    running.close()


# ---------------------------------------------------------------- slow


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_disk_holds_back_the_command_and_the_answer_and_nobody_else(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    place, waiting, gate = place_of(agent, kind), tmp_path / "waiting", tmp_path / "gate"
    os.mkfifo(gate)
    running = agent.prepare(replay=recording(agent, RUNS, says("done")), environ=LIVE | place.environ)
    running.command = [sys.executable, "-m", "tests.support.slow_agent", str(waiting), str(gate)]
    running.start()
    running.initialize()
    session = running.new_session()
    prompt = running.start_prompt(session, "go")
    running.wait_until(waiting.exists, "the sync before the command")
    assert running.new_session() != session, "a slow disk holds up what need not wait for it"
    assert running.call("session/list", {})["result"]["sessions"]
    assert not (agent.workspace / "ran").exists(), "the command ran before the disk had its start"
    waiting.unlink()
    gate.write_bytes(b"go on")
    running.wait_until(waiting.exists, "the sync before the answer")
    assert (agent.workspace / "ran").exists()
    assert running.new_session() != session
    answered = [frame for frame in running.received if frame.get("id") == prompt and "result" in frame]
    assert answered == [], "the prompt was answered before the disk had its turn"
    gate.write_bytes(b"go on")
    assert stop_reason(running.response(prompt)) == "end_turn"
    running.close()

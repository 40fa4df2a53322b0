"""Commands and agents that are killed at any operation on files: a session is there, or not, and never half."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support.client import TIMEOUT
from tests.support.log_laws import check_store_laws
from tests.support.processes import clean_environment
from tests.support.reopen import StorePlace, sessions
from tests.wire.kills import REPEAT, dies, mortal, place_of, play, replay_family
from tests.wire.runs import log_files

pytestmark = pytest.mark.timeout(300)  # each test starts some fifty processes, one after the other


class Scene:
    """A store with a stored session of three logs; copies of it are worked on."""

    def __init__(self, bench: Workbench, directory: Path) -> None:
        self.bench = bench
        self.place = place_of(bench, "jsonl")
        self.directory = directory
        self.replay = replay_family(directory / "replay")
        running = bench(replay=self.replay, environ=REPEAT | self.place.environ)
        running.initialize()
        self.session = running.new_session()
        play(running, self.session)
        running.close()

    def killed(self, *words: str) -> Iterator[StorePlace]:
        """For each operation on files of a command: a copy of the store in which it was killed at that operation."""
        for number in itertools.count(1):
            place = StorePlace("jsonl", self.directory / f"copy-{number}")
            shutil.copytree(self.place.path, place.path)
            done = subprocess.run(
                [sys.executable, "-m", "tests.support.killed_agent", "filing", str(number),
                 str(self.directory / "acknowledged"), "sessions", *words],
                env=clean_environment(self.bench.home) | place.environ, capture_output=True, timeout=TIMEOUT,
                check=False,
            )  # fmt: skip
            if done.returncode != -signal.SIGKILL:
                assert done.returncode == 0, done.stderr
                assert number > 4, "the command does too little to be killed in"
                return
            yield place


def directory_in(place: StorePlace, session: str) -> Path:
    (found,) = place.path.glob(f"--*--/{session}")
    return found


def test_a_repair_killed_anywhere_loses_nothing_and_can_be_done_again(agent: Workbench, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    agent.unlawful_logs = "a log is damaged on purpose"
    file = directory_in(scene.place, scene.session) / "session.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:20], b"garbage\n", *lines[20:]]))
    original, sound = file.read_bytes(), b"".join(lines)
    for place in scene.killed("repair", scene.session):
        held = [one.read_bytes() for one in place.path.rglob("*") if one.is_file()]
        assert original in held, f"{place.path.name}: what was there before is gone"
        log = directory_in(place, scene.session) / "session.jsonl"
        assert log.read_bytes() in (original, sound), f"{place.path.name}: a half repair stands under the log's name"
        done = sessions(agent, place, "repair", scene.session)
        assert done.returncode == 0, done.stderr
        assert log.read_bytes() == sound
        assert place.load(scene.session) == []
        held = [one.read_bytes() for one in place.path.rglob("*") if one.is_file()]
        assert original in held, f"{place.path.name}: the backup is gone"


def test_a_deletion_killed_anywhere_leaves_a_whole_session_or_none(agent: Workbench, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    whole = [file.read_bytes() for file in log_files(directory_in(scene.place, scene.session))]
    for place in scene.killed("delete", scene.session):
        if place.listed() == [scene.session]:
            assert [file.read_bytes() for file in log_files(directory_in(place, scene.session))] == whole
            assert place.load(scene.session) == []
            assert sessions(agent, place, "delete", scene.session).returncode == 0
        assert place.listed() == []
        assert sessions(agent, place, "import", str(directory_in(scene.place, scene.session))).returncode == 0
        assert place.listed() == [scene.session], "what is left of a deleted session is in the way of another"
        assert [file.read_bytes() for file in log_files(directory_in(place, scene.session))] == whole


def test_an_import_killed_anywhere_brings_a_whole_session_or_none(agent: Workbench, tmp_path: Path) -> None:
    scene = Scene(agent, tmp_path)
    source = tmp_path / "source"
    shutil.copytree(directory_in(scene.place, scene.session), source)
    whole = [file.read_bytes() for file in log_files(source)]
    assert sessions(agent, scene.place, "delete", scene.session).returncode == 0
    for place in scene.killed("import", str(source)):
        if place.listed() == []:
            done = sessions(agent, place, "import", str(source))
            assert done.returncode == 0, done.stderr
        assert place.listed() == [scene.session]
        assert [file.read_bytes() for file in log_files(directory_in(place, scene.session))] == whole
        assert place.load(scene.session) == []


def test_an_agent_killed_at_any_operation_on_files_leaves_no_half_log(agent: Workbench, tmp_path: Path) -> None:
    agent.open_turns = "agents are killed in the middle of their turns"
    replay = replay_family(tmp_path / "replay")
    for number in itertools.count(1):
        place = StorePlace("jsonl", tmp_path / f"store-{number}")
        victim = mortal(agent, place, replay, "filing", number, tmp_path / "acknowledged")
        session = victim.new_session()
        if not dies(victim, lambda victim=victim, session=session: play(victim, session)):  # type: ignore[misc]  # bound early
            break
        problems = check_store_laws(place.path, closed=False)
        assert not problems, f"killed at operation {number}: {problems}"
        torn = [file for file in place.path.rglob("*.jsonl") if not file.read_bytes().endswith(b"\n")]
        assert torn == []
        if place.listed():
            assert place.load(session) == []
            left = [file.name for file in place.path.rglob("*") if file.is_file() and file.suffix != ".jsonl"]
            assert left == [], f"killed at operation {number}: {left} stays behind after a load"
    assert number > 10, "the agent does too little to be killed in"

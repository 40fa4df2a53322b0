"""What lies beside a log, over both stores: images that are damaged or gone, and tool output too long for a log."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.images import GIF, PNG, encoded
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.wire.moves import stop_reason
from tests.wire.recordings import call, says, script, tool
from tests.wire.runs import LIVE

LOST, KEPT = (hashlib.sha256(data).hexdigest() for data in (PNG, GIF))
SPILLS = call(tool("c-1", "bash", command="seq 1 200000", description="Count"))
WHOLE = "".join(f"{number}\n" for number in range(1, 200_001))


class Beside:
    """A store with one session of a few turns, and commands on it."""

    def __init__(self, bench: Workbench, kind: str, directory: Path) -> None:
        self.bench = bench
        self.directory = directory
        self.place = self.other(kind, "here")

    def other(self, kind: str, name: str) -> StorePlace:
        return StorePlace(kind, self.directory / name / ("logs" if kind == "jsonl" else "s.db"))

    def start(self) -> AgentProcess:
        recording = script(self.directory / "recording", SPILLS, says("Counted."), says("Seen."), says("Both."))
        running = self.bench(replay=recording, environ=self.place.environ | LIVE, unstable=True)
        running.initialize()
        return running

    def counted(self) -> str:
        """A session whose command wrote more than a log keeps."""
        running = self.start()
        session = running.new_session()
        assert stop_reason(running.prompt(session, "Count.")) == "end_turn"
        running.close()
        return session

    def pictured(self) -> str:
        """A session with two images."""
        running = self.start()
        session = running.new_session()
        running.prompt(session, "Count.")
        blocks = [{"type": "image", "data": encoded(data), "mimeType": kind}
                  for data, kind in ((PNG, "image/png"), (GIF, "image/gif"))]
        answer = running.call("session/prompt", {"sessionId": session, "prompt": blocks})
        assert stop_reason(answer) == "end_turn"
        running.close()
        return session

    def spoil(self, session: str, data: bytes | None) -> None:
        """Another content in the place of the one that is going to be lost; None takes it away."""
        if self.place.kind == "jsonl":
            (blob,) = self.place.path.glob(f"*/{session}/blobs/{LOST}")
            blob.unlink()
            if data is not None:
                blob.write_bytes(data)
            return
        with closing(sqlite3.connect(self.place.path, isolation_level=None)) as database:
            if data is None:
                database.execute("DELETE FROM blobs WHERE id = ?", (LOST,))
            else:
                database.execute("UPDATE blobs SET data = ? WHERE id = ?", (data, LOST))

    def run(self, *words: Any, place: StorePlace | None = None) -> tuple[int, str, str]:
        done = sessions(self.bench, place or self.place, *map(str, words))
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=KINDS)
def beside(agent: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Beside:
    return Beside(agent, request.param, tmp_path)


SPOILT = pytest.mark.parametrize("data", [b"bad", None], ids=["damaged", "missing"])


@SPOILT
def test_a_pack_leaves_unsound_images_out_and_names_them(beside: Beside, tmp_path: Path, data: bytes | None) -> None:
    session = beside.pictured()
    beside.spoil(session, data)
    status, said, told = beside.run("pack", session, tmp_path / "pack")
    assert (status, "1 log, 1 blob" in said, LOST in told) == (1, True, True), told
    assert KEPT not in told
    assert [file.name for file in (tmp_path / "pack" / "blobs").iterdir()] == [KEPT]
    assert "was written without what is damaged or missing" in told
    assert beside.run("import", tmp_path / "pack", place=beside.other("jsonl", "there"))[0] == 0


@SPOILT
def test_a_repair_names_unsound_images_and_does_not_fail(beside: Beside, data: bytes | None) -> None:
    session = beside.pictured()
    assert beside.run("repair", session)[2] == ""
    beside.spoil(session, data)
    for words in (["--dry-run", session], [session]):
        status, said, told = beside.run("repair", *words)
        assert (status, "nothing is wrong with its" in said, told.count(LOST)) == (0, True, 1), told
        assert KEPT not in told


@SPOILT
def test_a_fork_takes_the_sound_images_and_warns_of_the_others(beside: Beside, data: bytes | None) -> None:
    session = beside.pictured()
    beside.spoil(session, data)
    running = beside.start()
    fork = running.call("session/fork", {"sessionId": session, "cwd": str(running.cwd), "mcpServers": []})
    forked = fork["result"]["sessionId"]
    running.wait_for_stderr(LOST)
    assert KEPT not in running.stderr
    running.close()
    assert list(beside.place.use(lambda store: store.blobs(forked))) == [KEPT]


@pytest.mark.parametrize("kind", KINDS)
def test_kept_output_goes_with_a_pack_and_an_import(beside: Beside, tmp_path: Path, kind: str) -> None:
    session = beside.counted()
    status, said, told = beside.run("pack", session, tmp_path / "pack")
    assert (status, "1 log, 1 kept output" in said, told) == (0, True, "")
    (packed,) = (tmp_path / "pack" / "output").iterdir()
    assert packed.read_text() == WHOLE
    assert f"/{packed.name}]" in (tmp_path / "pack" / "session.jsonl").read_text(), "the log's text tells which it is"
    there = beside.other(kind, "there")
    assert beside.run("import", tmp_path / "pack", place=there)[0] == 0
    assert beside.run("pack", session, tmp_path / "again", place=there)[0] == 0
    assert (tmp_path / "again" / "output" / packed.name).read_text() == WHOLE
    for file in there.path.parent.rglob(packed.name):
        assert file.stat().st_mode & 0o777 == 0o600
    assert beside.run("import", tmp_path / "pack", place=there)[0] == 1
    assert beside.run("pack", session, tmp_path / "third", place=there)[0] == 0, "what is there stays"
    assert (tmp_path / "third" / "output" / packed.name).read_text() == WHOLE
    assert beside.run("delete", session, place=there)[0] == 0
    assert not list(there.path.parent.rglob(packed.name))


def test_a_link_in_a_pack_is_not_followed(beside: Beside, tmp_path: Path) -> None:
    session = beside.counted()
    beside.run("pack", session, tmp_path / "pack")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "pack" / "output" / "link.txt").symlink_to(tmp_path / "secret")
    there = beside.other(beside.place.kind, "there")
    assert beside.run("import", tmp_path / "pack", place=there)[0] == 0
    assert not list(there.path.parent.rglob("link.txt"))


def test_an_export_says_what_stays_behind(beside: Beside, tmp_path: Path) -> None:
    session = beside.pictured()
    for words in ([session], [session, "--output", tmp_path / "log.jsonl"]):
        status, _, told = beside.run("export", *words)
        assert (status, "2 blobs and 1 kept output" in told, "sessions pack" in told) == (0, True, True)

"""Recordings without numbers among the sessions: read, shown and replayed, and never continued, in either store."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Workbench
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.wire.kills import place_of
from tests.wire.moves import stop_reason
from tests.wire.recordings import Log, says, write
from tests.wire.runs import log_in

WORDS = "its records have no seq and time: it is a recording to replay, and cannot be continued"
SAID = ("Hello.", "Hi there, you.")


@pytest.fixture
def projected(agent: Workbench, tmp_path: Path) -> tuple[Path, str]:
    """A recording of one turn that an agent stored, without its numbers; and its session."""
    place = StorePlace("jsonl", tmp_path / "recorded")
    made = write(tmp_path / "script", Log("parent").turn(SAID[0], says("Hi ", "there", ", ", "you.")))
    running = agent(replay=made, environ=place.environ)
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, SAID[0])) == "end_turn"
    running.close()
    (log,) = place.path.rglob("session.jsonl")
    directory = tmp_path / "projected"
    directory.mkdir()
    (directory / "session.jsonl").write_bytes(without_numbers(log.read_bytes()))
    return directory, session


def without_numbers(log: bytes) -> bytes:
    return re.sub(rb'(?m)^(\{"type":"[^"]+"),"seq0?":\d+,"time0?":\d+', rb"\1", log)


def put_in_store(place: StorePlace, directory: Path, session: str) -> Path:
    """Put a recording where a JSONL store has its sessions."""
    log = directory / "session.jsonl"
    cwd = json.loads(log.read_bytes().split(b"\n")[0])["cwd"]
    into = place.path / f"--{cwd.strip('/').replace('/', '-')}--" / session
    into.mkdir(parents=True)
    shutil.copy(log, into)
    return into / log.name


@pytest.mark.parametrize("kind", KINDS)
def test_neither_store_takes_it_in(
    agent: Workbench, projected: tuple[Path, str], kind: str,
) -> None:
    directory, session = projected
    place = place_of(agent, kind)
    done = sessions(agent, place, "import", str(directory))
    assert done.returncode == 1
    assert f"{directory / 'session.jsonl'}:2: {WORDS}" in done.stderr
    assert sessions(agent, place, "list").stdout == f"no sessions in {kind}:{place.path}\n"
    assert session not in done.stdout


def test_one_in_the_store_is_read_and_neither_continued_nor_forked_nor_repaired(
    agent: Workbench, projected: tuple[Path, str], tmp_path: Path,
) -> None:
    agent.unlawful_logs = "a recording has no numbers"
    directory, session = projected
    place = place_of(agent, "jsonl")
    log = put_in_store(place, directory, session)
    before = place.raw()
    running = agent(replay=directory)
    running.initialize()
    params = {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []}
    for method in ("session/load", "session/resume"):
        assert running.call(method, params)["error"]["message"] == f"{log}:2: {WORDS}"
    told = running.call("session/fork", params)["error"]["message"]
    assert told == f"session {session!r}: {WORDS}"
    assert [one["sessionId"] for one in running.call("session/list", {})["result"]["sessions"]] == [session]
    assert running.close() == 0
    for words in (["repair", "--dry-run", session], ["repair", session]):
        done = sessions(agent, place, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert WORDS in done.stderr
    for words in (["list"], ["show", session], ["export", session], ["pack", session, str(tmp_path / "pack")]):
        done = sessions(agent, place, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    shown = sessions(agent, place, "show", session).stdout
    assert all(words in shown for words in SAID)
    assert (tmp_path / "pack" / "session.jsonl").read_bytes() == log.read_bytes()
    assert place.raw() == before


def test_a_recording_is_replayed_as_ever(agent: Workbench, projected: tuple[Path, str]) -> None:
    running = agent(replay=projected[0])
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, SAID[0])) == "end_turn"
    assert running.text(session) == SAID[1]


def test_one_that_was_continued_in_spite_of_it_is_repaired_with_its_whole_history(
    agent: Workbench, projected: tuple[Path, str],
) -> None:
    directory, session = projected
    place = place_of(agent, "jsonl")
    log = put_in_store(place, directory, session)
    whole = without_numbers(log.read_bytes()).splitlines(keepends=True)
    count = sum(len(json.loads(row)["data"].get("texts", [0])) for row in whole[1:])
    log.write_bytes(b"".join(whole) + b'{"type":"session/end-seed","seq":%d,"time":5,"data":{}}\n' % count)
    running = agent(replay=directory)
    running.initialize()
    params = {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []}
    told = running.call("session/load", params)["error"]["message"]
    assert f"one or the other; `acp-agent sessions repair {session}`" in told
    done = sessions(agent, place, "repair", session)
    assert done.returncode == 0, done.stderr
    assert f"numbered 0 to {count - 1}" in done.stdout
    assert "dropped" not in done.stdout
    assert "result" in running.call("session/load", params)
    assert running.text(session) == SAID[1]
    assert stop_reason(running.prompt(session, "/rename Numbered")) == "end_turn"
    assert running.close() == 0
    assert [event["seq"] for event in log_in(log).events][:count] == list(range(count))

"""Writes that a crash tore: a last record cut at every byte, a write-ahead log cut anywhere, a missing result.

Cuts at single bytes are opened by the real session layer in this process, for there are thousands; a few of each
kind go through a real agent.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from acp_agent.ids import SessionId
from acp_agent.stores.base import Store
from tests.conftest import Workbench
from tests.support.log_laws import Log, canonical_rows, check_store_laws, read_log
from tests.support.reopen import StorePlace, load_and_close, rows_of
from tests.support.repair_laws import OUTCOME_UNKNOWN, repair_problems
from tests.wire.kills import AGAIN, REPEAT, accept, kill_at, place_of, play, replay_family
from tests.wire.moves import stop_reason
from tests.wire.runs import data, log_files, log_in, results


class Scene(NamedTuple):
    """A stored session with two children, complete and closed."""

    place: StorePlace
    workspace: Path
    replay: Path
    session: str


def played(root: Path, kind: str) -> Scene:
    bench = Workbench(root)
    place, replay = place_of(bench, kind), replay_family(root / "replay")
    running = bench(replay=replay, environ=REPEAT | place.environ)
    running.initialize()
    session = running.new_session()
    play(running, session)
    running.close()
    return Scene(place, bench.workspace, replay, session)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The session in a JSONL store."""
    return played(tmp_path_factory.mktemp("scene"), "jsonl")


def copy_of(scene: Scene, to: Path) -> tuple[StorePlace, list[Path]]:
    """A copy of the scene's store, and the log files of the session in it, the root's first."""
    shutil.copytree(scene.place.path, to)
    (directory,) = to.glob(f"--*--/{scene.session}")
    return StorePlace("jsonl", to), log_files(directory)


def sound_part(data: bytes) -> Log:
    """What whole lines there are."""
    return read_log(data.split(b"\n")[:-1])


# ---------------------------------------------------------------- every byte of a last record


LAST = [
    (0, "turn/start"), (0, "user/message"), (0, "text-chunks"), (0, "assistant/message"), (0, "tool/call"),
    (0, "tool/result"), (0, "turn/end"), (1, "text-chunks"), (1, "tool/call"), (1, "step/end"), (2, "session/end-seed"),
    (2, "user/message"), (2, "text-chunks"), (2, "tool/result"), (2, "turn/end"),
]  # fmt: skip
"""Which record is the last one: the number of the log (root, spawn, fork), and the type of its newest such row."""


@pytest.mark.parametrize(("number", "kind"), LAST)
def test_a_last_record_cut_at_any_byte_is_dropped_and_the_turn_is_closed(
    scene: Scene, tmp_path: Path, number: int, kind: str,
) -> None:
    place, files = copy_of(scene, tmp_path / "store")
    file, whole = files[number], [one.read_bytes() for one in files]
    lines = whole[number].splitlines(keepends=True)
    index = max(at for at, line in enumerate(lines) if line.startswith(b'{"type":"%s"' % kind.encode()))
    before, last = b"".join(lines[:index]), lines[index]
    torn = sound_part(before)

    async def cut_everywhere(store: Store) -> None:
        for length in range(1, len(last)):
            for one, content in zip(files, whole, strict=True):
                one.write_bytes(content)
            file.write_bytes(before + last[:length])
            assert await load_and_close(store, SessionId(scene.session)) == []
            check_mended(torn, file.read_bytes(), f"cut at {length}")
            if length % 8 == 1:
                mended = place.raw()
                assert await load_and_close(store, SessionId(scene.session)) == []
                assert place.raw() == mended, f"cut at {length}: a second load changed something"

    place.use(cut_everywhere)


def check_mended(torn: Log, data: bytes, what: str) -> None:
    assert data.endswith(b"\n"), what
    after = sound_part(data)
    problems = repair_problems(torn.events, after.events)
    assert not problems, f"{what}: {problems}"
    assert after.rows == canonical_rows(after.events), what


def test_what_is_cut_has_packed_rows_and_text_outside_ascii(scene: Scene) -> None:
    (directory,) = scene.place.path.glob(f"--*--/{scene.session}")
    rows = [json.loads(line) for line in log_files(directory)[0].read_bytes().splitlines()]
    newest = {row["type"]: json.dumps(row, ensure_ascii=False) for row in rows}
    assert not newest["text-chunks"].isascii()
    assert not newest["assistant/message"].isascii()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_agent_mends_a_torn_log_and_goes_on(agent: Workbench, scene: Scene, tmp_path: Path, number: int) -> None:
    place, files = copy_of(scene, tmp_path / "store")
    content = files[number].read_bytes()
    lines = content.splitlines(keepends=True)
    files[number].write_bytes(b"".join(lines[:-3]) + lines[-3][: len(lines[-3]) // 2])
    torn = sound_part(files[number].read_bytes())
    before = place.raw()
    assert place.listed() == [scene.session]
    place.export(tmp_path / "looked")
    assert place.raw() == before, "looking at a torn log changed it"
    running = agent(replay=scene.replay, environ=REPEAT | place.environ)
    running.initialize()
    accept(running.call("session/load", {"sessionId": scene.session, "cwd": str(scene.workspace), "mcpServers": []}))
    assert repair_problems(torn.events, log_in(files[number]).events) == []
    assert stop_reason(running.prompt(scene.session, "Again.")) == "end_turn"
    assert running.text(scene.session).endswith(AGAIN)
    running.close()
    assert check_store_laws(place.path) == []


# ---------------------------------------------------------------- between a child's end and its parent's record


@pytest.mark.parametrize("kept", [0, 1])
def test_a_child_that_ended_before_its_parent_could_say_so_is_an_unknown_outcome_and_is_not_run_again(
    agent: Workbench, scene: Scene, tmp_path: Path, kept: int,
) -> None:
    """The parent's log stops just before the first or the second of two results; both children are complete."""
    place, files = copy_of(scene, tmp_path / "store")
    lines = files[0].read_bytes().splitlines(keepends=True)
    at = [index for index, line in enumerate(lines) if line.startswith(b'{"type":"tool/result"')][1 + kept]
    files[0].write_bytes(b"".join(lines[:at]))
    torn, children = log_in(files[0]), [file.read_bytes() for file in files[1:]]
    running = agent(replay=scene.replay, environ=REPEAT | place.environ)
    running.initialize()
    accept(running.call("session/load", {"sessionId": scene.session, "cwd": str(scene.workspace), "mcpServers": []}))
    loaded = log_in(files[0])
    assert repair_problems(torn.events, loaded.events) == []
    assert [part.get("error") for part in data(loaded, "tool/result")[1 + kept :]] == [OUTCOME_UNKNOWN] * (2 - kept)
    assert results(loaded)[1 : 1 + kept] == ["From the spawn."][:kept]
    assert stop_reason(running.prompt(scene.session, "Again.")) == "end_turn"
    running.close()
    assert [file.read_bytes() for file in files[1:]] == children
    assert log_files(files[0].parent) == files, "a child was made once more"
    assert check_store_laws(place.path) == []


# ---------------------------------------------------------------- SQLite's write-ahead log

FRAME = 24 + 4096
"""Bytes of a page in the write-ahead log, with its header."""


def test_a_write_ahead_log_cut_anywhere_opens_with_all_that_was_committed_before_the_cut(
    agent: Workbench, tmp_path: Path,
) -> None:
    place, replay = place_of(agent, "sqlite"), replay_family(tmp_path / "replay")
    run = kill_at(agent, place, replay, "written", 70)
    assert run.killed
    log = place.path.with_name(place.path.name + "-wal")
    content, base = log.read_bytes(), place.path.read_bytes()
    assert len(content) > 20_000, "a killed agent left no write-ahead log"
    before = 0
    for step, length in enumerate(sorted({32 + FRAME * n + off for n in range(len(content) // FRAME)
                                          for off in (0, 2000)} | {len(content)})):
        cut = StorePlace("sqlite", tmp_path / f"cut-{step}" / "sessions.db")
        cut.path.parent.mkdir()
        cut.path.write_bytes(base)
        cut.path.with_name("sessions.db-wal").write_bytes(content[:length])
        rows = rows_of(cut.path)
        events = len(rows.get("events", ()))
        assert events >= before, "a longer log holds less"
        before = events
        if step % 11 == 0 and events:
            found = cut.export(cut.path.parent / "logs")
            assert sum(len(one.events) for logs in found.values() for one in logs) == events
            assert check_store_laws(cut.path.parent / "logs", closed=False) == []
            for session in found:
                assert cut.load(session) == []
                loaded = cut.content()
                assert cut.load(session) == []
                assert cut.content() == loaded, f"a log of {length} bytes: a second load changed something"
            assert cut.listed() == list(found)
    assert before == len(rows_of(place.path)["events"])


def test_a_checkpoint_that_was_cut_off_is_no_damage(agent: Workbench, tmp_path: Path) -> None:
    """The main file has got its first page from the write-ahead log, and none of the others."""
    place, replay = place_of(agent, "sqlite"), replay_family(tmp_path / "replay")
    run = kill_at(agent, place, replay, "written", 70)
    rows = rows_of(place.path)
    log = place.path.with_name(place.path.name + "-wal").read_bytes()
    newest = None
    for start in range(32, len(log) - FRAME + 1, FRAME):
        page = log[start + 24 : start + FRAME]
        newest = page if int.from_bytes(log[start : start + 4]) == 1 else newest
    assert newest is not None, "the first page was never written again"
    with place.path.open("r+b") as file:
        file.write(newest)
    assert int.from_bytes(newest[28:32]) > place.path.stat().st_size // 4096, "the main file has all its pages"
    assert rows_of(place.path) == rows
    running = agent(replay=replay, environ=REPEAT | place.environ)
    running.initialize()
    accept(running.call("session/load", run.load_params))
    assert stop_reason(running.prompt(run.session, "Again.")) == "end_turn"
    running.close()

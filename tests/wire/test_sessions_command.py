"""`acp-agent sessions` as real processes, over both stores: what one store holds, the other can, and a pack replays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AGENT, TIMEOUT, AgentProcess
from tests.support.processes import clean_environment, pause
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.wire.kills import place_of
from tests.wire.moves import stop_reason
from tests.wire.recordings import Log, call, hang, override, says, script, step, text, tool, write
from tests.wire.runs import Tokens, log_files, normal_logs

PROMPTS = ("Hello.", "Go.")
FULL = {"ACP_PERMISSION_MODE": "full-access"}


def family(directory: Path) -> Path:
    """A recording with a spawned child, a fork, and a child of the spawned one."""
    parent = Log("parent").turn(PROMPTS[0], says("Hi ", "there", ", ", "you."))
    fork = parent.forked("fork", "f").turn("Remember?", says("I ", "do", " so."))
    spawn = tool("s", "subagent", description="Spawn", prompt="Task.")
    parent.turn(PROMPTS[1], step(call(spawn), "(other)"),
                step(call(tool("f", "subagent_fork", description="Fork", prompt="Remember?")), "(other)"),
                says("All ", "done ", "– ünï", "."))
    child = parent.spawned("child", "s")
    deeper = tool("d", "subagent", description="Deeper", prompt="Deeper.")
    child.turn("Task.", step(call(deeper), "(other)"), says("From the child."))
    return write(directory, parent, child, child.spawned("deep", "d").turn("Deeper.", says("Deepest.")), fork)


class Stored:
    """A session of the family in a store of one kind, its agent still running, or ended."""

    def __init__(self, bench: Workbench, kind: str, tmp_path: Path) -> None:
        self.bench = bench
        self.place = place_of(bench, kind)
        self.agent = bench(replay=family(tmp_path / "recording"), environ=FULL | self.place.environ)
        self.agent.initialize()
        self.session = self.agent.new_session()
        for prompt in PROMPTS:
            assert stop_reason(self.agent.prompt(self.session, prompt)) == "end_turn"
        bench.unlawful_logs = "the store is SQLite, which the workbench does not read" if kind == "sqlite" else None

    def run(self, *words: str | Path, place: StorePlace | None = None) -> subprocess.CompletedProcess[str]:
        return sessions(self.bench, place or self.place, *map(str, words))

    def good(self, *words: str | Path, place: StorePlace | None = None) -> str:
        """Run a command that must succeed and have nothing to complain of; its output."""
        done = self.run(*words, place=place)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def refused(self, *words: str | Path, place: StorePlace | None = None) -> str:
        """Run a command that must find something wrong; what it complained of."""
        done = self.run(*words, place=place)
        assert done.returncode == 1, done
        assert "Traceback" not in done.stderr
        return done.stderr


def content(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def other_place(tmp_path: Path, kind: str) -> StorePlace:
    """An empty store of the other kind."""
    return StorePlace("jsonl", tmp_path / "other") if kind == "sqlite" else StorePlace("sqlite", tmp_path / "other.db")


def replayed(bench: Workbench, pack: Path, name: str) -> tuple[list[str], dict[str, list[str]]]:
    """What is comparable of the wire and the logs of a run that replays a pack."""
    workspace = bench.workspace / name
    workspace.mkdir()
    process = bench(replay=pack, environ=FULL)
    process.initialize()
    session = process.new_session(workspace)
    for prompt in PROMPTS:
        assert stop_reason(process.prompt(session, prompt)) == "end_turn"
    process.close()
    tokens = Tokens(workspace)
    (directory,) = bench.store.glob(f"--*--/{session}")
    return [tokens(json.dumps(frame)) for frame in process.received], normal_logs(directory, workspace)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_session_is_listed_shown_and_exported(agent: Workbench, tmp_path: Path, kind: str) -> None:
    stored = Stored(agent, kind, tmp_path)
    stored.agent.close()
    before = stored.place.raw()
    [listed] = map(json.loads, stored.good("list", "--json").splitlines())
    assert (listed["id"], listed["title"], listed["children"]) == (stored.session, "Hello.", 3)
    assert listed["cwd"] == str(agent.workspace)
    assert listed["createdAt"] <= listed["updatedAt"]
    row = stored.good("list", "--cwd", ".").splitlines()[1]
    assert stored.session in row
    assert "just now" in row
    assert stored.good("list", "--cwd", tmp_path).startswith("no sessions in ")
    shown = [line.rstrip() for line in stored.good("show", stored.session[:8]).splitlines()]
    told = [line for line in shown if "·" not in line and not line.startswith("in ")]
    assert told == [
        "│ > Hello.", "│ answers come from the recording parent", "│ Hi there, you.", "│ > Go.",
        '│ subagent {"description":"Spawn","prompt":"Task."}  s', "│ → From the child.", "│ │ set: mode full-access",
        "│ │ > Task.", '│ │ subagent {"description":"Deeper","prompt":"Deeper."}  d', "│ │ → Deepest.",
        "│ │ │ set: mode full-access", "│ │ │ > Deeper.", "│ │ │ Deepest.", "│ │ From the child.",
        '│ subagent_fork {"description":"Fork","prompt":"Remember?"}  f', "│ → I do so.",
        "│ │ set: mode full-access", "│ │ > Remember?", "│ │ I do so.", "│ All done – ünï."]
    assert [line.split("·")[0].strip("│ ") for line in shown if "·" in line] == [
        "root", "root > s", "root > s > d", "root > f"]
    exported = stored.good("export", stored.session)
    assert json.loads(exported.splitlines()[0])["id"] == stored.session
    assert stored.place.raw() == before, "a command that reads wrote"


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_store_is_not_made_by_looking_at_it(agent: Workbench, tmp_path: Path, kind: str) -> None:
    place = StorePlace(kind, tmp_path / "deep" / "store")
    done = sessions(agent, place, "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"no sessions in {kind}:{place.path}\n", "")
    for words in (["show", "nobody"], ["export", "nobody"], ["delete", "nobody"], ["repair", "nobody"],
                  ["pack", "nobody", str(tmp_path / "out")]):
        done = sessions(agent, place, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"no stored session has the id 'nobody' in {kind}:{place.path}; acp-agent sessions list" in done.stderr
    assert not (tmp_path / "deep").exists()
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- packs, between stores


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_goes_through_both_stores_unchanged(agent: Workbench, tmp_path: Path, kind: str) -> None:
    stored, other = Stored(agent, kind, tmp_path), other_place(tmp_path, kind)
    stored.agent.close()
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    stored.good("pack", stored.session, one)
    assert set(content(one)) == {"session.jsonl", "session.1.jsonl", "session.2.jsonl", "session.3.jsonl"}
    assert stored.good("import", one, place=other) == f"imported {stored.session} from {one} with 3 children\n"
    stored.good("pack", stored.session, two, place=other)
    assert content(two) == content(one)
    ids = [json.loads(file.read_bytes().splitlines()[0])["id"] for file in log_files(one)]
    for session, file in zip(ids, log_files(one), strict=True):
        assert stored.good("export", session) == stored.good("export", session, place=other) == file.read_text()
        stored.good("pack", session, tmp_path / session)
        assert content(tmp_path / session) == content(one), "a child's pack is its root's"
    assert stored.good("show", stored.session).splitlines() == stored.good(
        "show", stored.session, place=other).splitlines()
    assert stored.session in stored.refused("import", one), "the id is taken"
    deleted = stored.good("delete", stored.session)
    assert deleted == f"deleted {stored.session} and its children {', '.join(ids[1:])}\n"
    assert stored.good("list", "--json") == ""
    stored.good("import", two)
    stored.good("pack", stored.session, three)
    assert content(three) == content(one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_replays_equal_to_what_was_recorded_from_either_store(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    stored, other = Stored(agent, kind, tmp_path), other_place(tmp_path, kind)
    stored.agent.close()
    one, two = tmp_path / "one", tmp_path / "two"
    stored.good("pack", stored.session, one)
    stored.good("import", one, place=other)
    stored.good("pack", stored.session, two, place=other)
    explained = subprocess.run([*AGENT, "explain", str(two)], capture_output=True, text=True, timeout=TIMEOUT,
                               env=clean_environment(agent.home), check=False)
    assert explained.returncode == 0, explained.stdout
    wire, logs = replayed(agent, one, "first")
    assert replayed(agent, two, "second") == (wire, logs)
    tokens = Tokens(agent.workspace)
    assert wire == [tokens(json.dumps(frame)) for frame in stored.agent.received]
    assert logs == normal_logs(one, agent.workspace)


# ---------------------------------------------------------------- while it is open, and after a kill


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_packed_and_shown_while_it_is_open_and_deleted_only_after(
    agent: Workbench, tmp_path: Path, kind: str,
) -> None:
    stored = Stored(agent, kind, tmp_path)
    pack = tmp_path / "pack"
    stored.good("pack", stored.session, pack)
    assert "All done – ünï." in stored.good("show", stored.session)
    replayed(agent, pack, "again")
    assert str(stored.agent.pid) in stored.refused("delete", stored.session)
    assert stored.session in stored.good("list")
    stored.agent.close()
    assert stored.session in stored.good("delete", stored.session)


def hanging(bench: Workbench, place: StorePlace, tmp_path: Path) -> tuple[AgentProcess, str]:
    """A session whose second turn has begun to answer, and hangs."""
    recording = override(script(tmp_path / "recording"), says("One."), hang())
    running = bench(replay=recording, environ=place.environ)
    running.initialize()
    session = running.new_session()
    running.prompt(session, "First.")
    running.start_prompt(session, "Second.")
    running.wait_for_update("agent_message_chunk", content={"type": "text", "text": "partial"})
    return running, session


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_session_is_shown_as_such_and_packs(agent: Workbench, tmp_path: Path, kind: str) -> None:
    place = place_of(agent, kind)
    running, session = hanging(agent, place, tmp_path)
    agent.open_turns = agent.unlawful_logs = "the agent is killed in a turn"
    for moment in ("open", "killed"):
        if moment == "killed":
            running.kill()
        before = place.content()
        shown = sessions(agent, place, "show", session)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.splitlines()[-2:] == ["│ > Second.", "│ the log stops within this turn"]
        done = sessions(agent, place, "pack", session, str(tmp_path / moment))
        assert set(content(tmp_path / moment)) == {"session.jsonl"}
        if done.returncode:
            assert f"{tmp_path / moment} was written, but cannot be replayed as it is" in done.stderr
            assert re.search(r"session\.jsonl(:\d+)?: ", done.stderr)
        assert place.content() == before


# ---------------------------------------------------------------- what cannot be taken in, damage


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_is_not_imported_and_named_by_line(agent: Workbench, tmp_path: Path, kind: str) -> None:
    stored = Stored(agent, kind, tmp_path)
    stored.agent.close()
    pack, target = tmp_path / "pack", StorePlace(kind, tmp_path / "target")
    stored.good("pack", stored.session, pack)
    child = pack / "session.2.jsonl"
    lines = child.read_bytes().splitlines(keepends=True)
    child.write_bytes(b"".join([*lines[:4], b"garbage\n", *lines[4:]]))
    assert f"{child}:5: " in stored.refused("import", pack, place=target)
    (pack / "session.jsonl").rename(tmp_path / "root.jsonl")
    assert "only children are here" in stored.refused("import", pack, place=target)
    assert stored.good("list", "--json", place=target) == "", "all or nothing"
    stored.good("import", tmp_path / "root.jsonl", place=target)
    [alone] = map(json.loads, stored.good("list", "--json", place=target).splitlines())
    assert (alone["id"], alone["children"]) == (stored.session, 0)


def damage(stored: Stored) -> None:
    """Make a record of the stored root unreadable."""
    if stored.place.kind == "sqlite":
        import sqlite3

        with sqlite3.connect(stored.place.path) as database:
            database.execute("UPDATE events SET data = '{' WHERE session_id = ? AND seq = 5", (stored.session,))
        database.close()
        return
    (file,) = stored.place.path.glob(f"--*--/{stored.session}/session.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:6], b"garbage\n", *lines[7:]]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_tells_what_it_does_and_a_dry_run_only_tells(agent: Workbench, tmp_path: Path, kind: str) -> None:
    stored = Stored(agent, kind, tmp_path)
    stored.agent.close()
    agent.unlawful_logs = "the logs are damaged"
    assert "nothing is wrong with its " in stored.good("repair", stored.session)
    damage(stored)
    before = stored.place.raw()
    for words in (("show", stored.session), ("export", stored.session), ("pack", stored.session, tmp_path / "pack")):
        assert f"sessions repair {stored.session}" in stored.refused(*words)
    assert not (tmp_path / "pack").exists()
    dry = stored.good("repair", "--dry-run", stored.session)
    assert ": dropped, for it is damaged" in dry
    kept = re.search(rf"^{stored.session}: (\d+ events) would be kept; nothing was changed$", dry, re.MULTILINE)
    assert kept is not None, dry
    assert stored.place.raw() == before
    done = stored.good("repair", stored.session)
    assert done.splitlines()[:-1] == dry.splitlines()[:-1], "the dry run told something else"
    told, backup = done.strip().rsplit(" is in ", 1)
    assert Path(backup).exists()
    assert f"{stored.session}: {kept[1]} kept; what was there before" in told
    assert "nothing is wrong with its " in stored.good("repair", stored.session)
    assert "All done – ünï." in stored.good("show", stored.session)
    stored.good("pack", stored.session, tmp_path / "pack")
    assert replayed(agent, tmp_path / "pack", "again")


# ---------------------------------------------------------------- as a process


def start(bench: Workbench, place: StorePlace, *words: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*AGENT, "sessions", *words], stdout=stdout, stderr=subprocess.PIPE,
                            env=clean_environment(bench.home) | place.environ)


def long_session(bench: Workbench, tmp_path: Path) -> tuple[StorePlace, str]:
    """A stored session whose log no pipe holds."""
    place, recording = place_of(bench, "jsonl"), tmp_path / "long"
    running = bench(replay=script(recording, call(text("x" * 4_000_000))), environ=place.environ)
    running.initialize()
    session = running.new_session()
    running.prompt(session, "Speak.")
    running.close()
    return place, session


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_reader_that_has_seen_enough_and_an_interrupt_end_it_quietly(
    agent: Workbench, tmp_path: Path, interrupt: bool,
) -> None:
    place, session = long_session(agent, tmp_path)
    with start(agent, place, "export", session) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type":"session"')
        wait_until_it_waits_for_the_pipe(process.pid)
        if interrupt:
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        assert process.wait(TIMEOUT) == (130 if interrupt else 1)
        assert process.stderr.read() == b""


def wait_until_it_waits_for_the_pipe(pid: int) -> None:
    """Until the process is asleep in a write: the pipe is full, and nobody reads."""
    deadline = time.monotonic() + TIMEOUT
    while "pipe_write" not in Path(f"/proc/{pid}/wchan").read_text():
        assert time.monotonic() < deadline, "the log fitted into the pipe"
        pause()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")  # noqa: PTH110
def test_output_that_cannot_be_written_is_told(agent: Workbench, tmp_path: Path) -> None:
    place, session = long_session(agent, tmp_path)
    for words in (["export", session], ["list"], ["show", session], ["--help"]):
        with open("/dev/full", "wb") as full, start(agent, place, *words, stdout=full) as process:  # noqa: PTH123
            assert process.stderr is not None
            assert process.wait(TIMEOUT) == 1
            assert process.stderr.read() == b"acp-agent: No space left on device\n"


def test_the_store_is_chosen_as_for_serving(agent: Workbench, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('session_store = "jsonl:from-file"\n')
    environ = clean_environment(agent.home)

    def named(*words: str, **more: str) -> str:
        done = subprocess.run([*AGENT, "sessions", "list", *words], env=environ | more, cwd=tmp_path, text=True,
                              capture_output=True, timeout=TIMEOUT, check=True)
        return done.stdout.removeprefix("no sessions in ").strip()

    assert named() == f"jsonl:{agent.home}/state/acp-agent/sessions"
    assert named("--config", str(config)) == f"jsonl:{tmp_path}/from-file"
    assert named(ACP_CONFIG=str(config), ACP_SESSION_STORE="jsonl:named") == f"jsonl:{tmp_path}/named"
    assert named("--session-store", "sqlite:x.db", ACP_SESSION_STORE="jsonl:named") == f"sqlite:{tmp_path}/x.db"

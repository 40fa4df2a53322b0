"""Recordings that cannot be replayed: the server starts, and the first prompt says what is wrong and what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Workbench
from tests.support import processes
from tests.support.client import AGENT
from tests.wire.recordings import Log, call, says, script, step, tool, write
from tests.wire.runs import begin


def good() -> Log:
    """A recording without a fault."""
    return Log("good").turn("One.", says("1")).turn("Two.", says("2"))


class Fault(NamedTuple):
    """`make` puts a faulty recording into a directory that is still to be made. `where` is the file and line that
    must be named, relative to it; `says` are parts of the message.
    """

    make: Callable[[Path], object]
    where: str
    says: tuple[str, ...]


def nothing(directory: Path) -> None:
    """Do not make it."""


def empty(directory: Path) -> None:
    directory.mkdir()


def a_file(directory: Path) -> None:
    directory.write_text("not a directory")


def unreadable(directory: Path) -> None:
    """A log nobody can open, not even root: a link to itself."""
    directory.mkdir()
    (directory / "session.jsonl").symlink_to("session.jsonl")


def lines(*rows: str, name: str = "session.jsonl") -> Callable[[Path], None]:
    """A log of these lines."""
    def make(directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        (directory / name).write_text("".join(f"{row}\n" for row in rows))

    return make


def changed(line: int, row: str) -> Callable[[Path], None]:
    """The good log with one line (from 1) replaced."""
    rows = good().lines()
    rows[line - 1] = row
    return lines(*rows)


def with_header(**members: object) -> Callable[[Path], None]:
    """The good log with another header."""
    log = good()
    log.header |= members
    return lines(*log.lines())


def unfinished(directory: Path) -> None:
    """A model call without its finish, in a turn that claims to be complete."""
    write(directory, Log().turn("One.", says("1")[:-1]))


def orphan(directory: Path) -> None:
    """A delegated child without its parent."""
    write(directory, Log("parent").spawned("child", "c").turn("Task.", says("1")))


def orphan_beside(directory: Path) -> None:
    """A delegated child whose parent is not the one that is there."""
    write(directory, good(), Log("elsewhere").spawned("child", "c").turn("Task.", says("1")))


def seeded(seed: int) -> Callable[[Path], None]:
    """A forked child with a wrong boundary."""
    def make(directory: Path) -> None:
        parent = Log("parent").turn("One.", says(*"abcdef"))
        child = parent.forked("child", "f").turn("Task.", says("1"))
        child.header["seedLength"] = seed
        parent.turn("Two.", step(call(tool("f", "subagent_fork", description="d", prompt="Task.")), "1"), says("."))
        write(directory, parent, child)

    return make


def twice(directory: Path) -> None:
    write(directory, good(), good())


def overridden(document: str) -> Callable[[Path], None]:
    """The good log with an override file of this text."""
    def make(directory: Path) -> None:
        write(directory, good())
        (directory / "replay.override.json").write_text(document)

    return make


OVERRIDE = "replay.override.json"
FAULTS = {
    "missing": Fault(nothing, "", ("does not exist", "ACP_REPLAY_DIR")),
    "empty": Fault(empty, "", ("no recorded session", "session.jsonl")),
    "a file": Fault(a_file, "", ("this is a file", "ACP_REPLAY_DIR")),
    "a log that cannot be read": Fault(unreadable, "session.jsonl", ("cannot be read",)),
    "no header": Fault(lines('{"type":"turn/start","data":{"turn":1}}'), "session.jsonl:1",
                       ("not a session header", "restore")),
    "an empty log": Fault(lines(), "session.jsonl:1", ("not a session header",)),
    "other files only": Fault(lines("{}", name="notes.jsonl"), "", ("no recorded session", "notes.jsonl")),
    "a newer format": Fault(with_header(version=1), "session.jsonl:1", ("log format 1", "upgrade")),
    "a broken line": Fault(changed(5, '{"type":"assistant/chunk","data":{"turn":1,'), "session.jsonl:5",
                           ("broken line", "restore")),
    "a line that is no event": Fault(changed(4, "[1, 2]"), "session.jsonl:4", ("broken line",)),
    "a packed row with a gap too many": Fault(
        changed(6, '{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[0,0,0],"texts":["a","b"]}}'),
        "session.jsonl:6", ()),
    "numbers on some lines only": Fault(
        changed(3, '{"type":"step/start","seq":1,"time":5,"data":{"turn":1,"step":1}}'), "session.jsonl:3",
        ("seq and time",)),
    "an unfinished call": Fault(unfinished, "session.jsonl:5", ("turn 1 step 1", "no finish chunk", OVERRIDE)),
    "a child alone": Fault(orphan, "session.jsonl:1", ("parent", "beside it")),
    "a child of another parent": Fault(orphan_beside, "session.1.jsonl:1", ("elsewhere", "beside it")),
    "a boundary beyond the log": Fault(seeded(99), "session.1.jsonl:1", ("seedLength is 99", "holds only")),
    "a boundary in the wrong place": Fault(seeded(4), "session.1.jsonl:1", ("seedLength is 4", "correct")),
    "one id twice": Fault(twice, "session.1.jsonl:1", ("same session id good", "remove")),
    "an override that is no JSON": Fault(overridden("[{"), OVERRIDE, ("correct the override file",)),
    "an override with an unknown kind": Fault(overridden('[{"kind":"sing"}]'), OVERRIDE, ("entry 0", "sing")),
    "a ready file outside": Fault(overridden('[{"kind":"hang","readyFile":"../x"}]'), OVERRIDE,
                                  ("entry 0", "readyFile")),
    "a patch out of range": Fault(overridden('{"patches":[{"at":3,"entry":{"kind":"hang"}}]}'), OVERRIDE,
                                  ("at 3", "2 recorded calls")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_recording_that_cannot_be_replayed_is_told_by_the_first_prompt_and_on_stderr(
    agent: Workbench, tmp_path: Path, name: str,
) -> None:
    fault = FAULTS[name]
    replay = tmp_path / "replay"
    fault.make(replay)
    process, session = begin(agent, replay)
    error = process.prompt(session, "Hello.")["error"]
    assert error["code"] == -32603
    message = error["message"]
    assert f"{replay / fault.where}: " in message
    assert [part for part in fault.says if part not in message] == []
    process.wait_for_stderr(message.removeprefix("the turn failed: "))
    assert process.prompt(session, "And now?")["error"]["message"] == message, "it stays wrong"
    assert process.close() == 0
    assert process.stderr.count(f"{replay / fault.where}: ") == 1, "said once"


def test_several_faults_are_counted_and_explain_names_them_all(agent: Workbench, tmp_path: Path) -> None:
    replay = write(tmp_path / "replay", Log("one").turn("A.", says("1")[:-1]), Log("two").turn("B.", says("1")[:-1]))
    process, session = begin(agent, replay)
    assert "(and 1 more: run `acp-agent explain`" in process.prompt(session, "Hello.")["error"]["message"]
    done = subprocess.run([*AGENT, "explain", str(replay)], capture_output=True,
                          env=processes.clean_environment(agent.home), text=True, check=False, timeout=30)
    assert done.returncode == 1
    for file in ("session.jsonl:5", "session.1.jsonl:5"):
        assert file in done.stdout


@pytest.mark.parametrize("torn", ['{"type":"assistant/chunk","da', '{"type":"turn/start","data":{"turn":3}}'])
def test_a_torn_last_line_is_no_fault(agent: Workbench, tmp_path: Path, torn: str) -> None:
    replay = write(tmp_path / "replay", good())
    with (replay / "session.jsonl").open("a") as file:
        file.write(torn)
    process, session = begin(agent, replay)
    assert process.prompt(session, "One.")["result"] == {"stopReason": "end_turn"}
    assert process.text(session) == "1"


def test_event_types_nobody_knows_and_foreign_files_are_no_fault(agent: Workbench, tmp_path: Path) -> None:
    log = Log().add("weather/report", sun=True).turn("One.", says("1")).add("weather/report", sun=False)
    replay = write(tmp_path / "replay", log)
    (replay / "README.md").write_text("A recording.")
    (replay / "wire.jsonl").write_text(json.dumps({"jsonrpc": "2.0"}))
    (replay / "more").mkdir()
    process, session = begin(agent, replay)
    assert process.prompt(session, "One.")["result"] == {"stopReason": "end_turn"}
    assert process.text(session) == "1"
    assert process.stderr == ""


def test_a_placeholder_that_nothing_fills_fails_its_call_and_no_other(agent: Workbench, tmp_path: Path) -> None:
    replay = script(tmp_path / "replay", says("{{fromRequest:token (\\w+)}}"), says("Fine."))
    process, session = begin(agent, replay)
    assert "nothing in the request matches" in process.prompt(session, "None here.")["error"]["message"]
    assert process.prompt(session, "And now?")["result"] == {"stopReason": "end_turn"}

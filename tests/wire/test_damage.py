"""Damaged sessions: refused by name with line and remedy, alone; the remedy works; what was there is kept."""

from __future__ import annotations

import re
import shlex
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acp_agent.ids import SessionId
from acp_agent.stores import layout
from tests.conftest import Workbench
from tests.support import store_damage
from tests.support.client import AgentProcess
from tests.support.log_laws import Log, check_store_laws
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.support.store_damage import FILE_DAMAGES, LOG_DAMAGES, NO_LOGS, ROW_DAMAGES, LogDamage, RowDamage
from tests.wire.kills import accept, past
from tests.wire.moves import stop_reason
from tests.wire.recordings import Log as Recorded
from tests.wire.recordings import call, says, step, text, thought, tool, write
from tests.wire.runs import data

REPEAT = {"ACP_REPLAY_SESSIONS": "repeat"}
PROMPTS = ("First, if you please.", "Second.")
DAMAGED, OTHER = 0, 1
"""Of the sessions in the template: the one that is damaged, and one that must not suffer from it."""


class Template(NamedTuple):
    """A store with two sessions of one kind, each with two turns and a child, and what their logs hold."""

    place: StorePlace
    workspace: Path
    replay: Path
    sessions: list[str]
    logs: dict[str, list[Log]]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """A template store of each kind."""
    made = {}
    for kind in KINDS:
        root = tmp_path_factory.mktemp(kind)
        bench = Workbench(root)
        place = StorePlace(kind, root / "store")
        replay = recorded(root / "replay")
        running = bench(replay=replay, environ=REPEAT | place.environ)
        running.initialize()
        found = []
        for _ in (DAMAGED, OTHER):
            found.append(running.new_session())
            for prompt in PROMPTS:
                assert stop_reason(running.prompt(found[-1], prompt)) == "end_turn"
        running.close()
        made[kind] = Template(place, bench.workspace, replay, found, place.export(root / "logs"))
    return made


def recorded(directory: Path) -> Path:
    """A recording whose logs have every kind of row: packed and single, of text, thoughts and arguments."""
    first = call(thought("Hm", "m ", "– ", "so."), text("Añ", "swer ", "öne", "."))
    parent = Recorded("parent").turn(PROMPTS[0], first)
    child = tool("s", "subagent", description="Spawn", prompt="Task.")
    parent.turn(PROMPTS[1], step(call(tool("r", "read", file_path="note")), "1\tnoted\n"), step(call(child), "(other)"),
                says("Answer ", "two", ".", "!"))
    for _ in range(3):
        parent.turn("More.", says("More."))
    spawned = parent.spawned("child", "s").turn("Task.", says("From ", "the ", "child", "."))
    return write(directory, parent, spawned)


class Patient:
    """A copy of a template whose first session is about to be damaged."""

    def __init__(self, bench: Workbench, template: Template, directory: Path) -> None:
        self.bench = bench
        self.template = template
        source = template.place.path
        self.place = StorePlace(template.place.kind, directory / "damaged" / source.name)
        self.place.path.parent.mkdir()
        shutil.copytree(source, self.place.path) if source.is_dir() else shutil.copy(source, self.place.path)
        self.session, self.other = template.sessions[DAMAGED], template.sessions[OTHER]

    def log(self, number: int = 0) -> Log:
        """What the damaged session's log (or that of its child) held before."""
        return self.template.logs[self.session][number]

    def file(self, name: str = "session.jsonl") -> Path:
        """The file of the damaged session."""
        (found,) = self.place.path.glob(f"--*--/{self.session}/{name}")
        return found

    def agent(self) -> AgentProcess:
        running = self.bench(replay=self.template.replay, environ=REPEAT | self.place.environ)
        running.initialize()
        return running

    def params(self, session: str) -> dict[str, Any]:
        return {"sessionId": session, "cwd": str(self.template.workspace), "mcpServers": []}

    def listed(self, running: AgentProcess) -> list[str]:
        """The ids in the agent's list."""
        return [one["sessionId"] for one in running.call("session/list", {})["result"]["sessions"]]

    def load_refused(self, running: AgentProcess) -> str:
        """The refusal of the damaged session; it must not change anything, nor make a session of it."""
        before = self.place.raw()
        told: list[str] = []
        while len(told) < 2:
            answer = running.call("session/load", self.params(self.session))
            assert "error" in answer, "a damaged session was loaded"
            told.append(answer["error"]["message"])
            prompt = running.prompt(self.session, "Go on.")
            assert prompt["error"]["code"] == -32002, "a failed load became a session"
        assert self.place.raw() == before, "a refused load changed what is stored"
        assert told[0] == told[1]
        return told[0]

    def check_others(self, running: AgentProcess) -> None:
        """Whatever is wrong with one session, the other is listed, loads and works, and new ones can be made."""
        assert self.other in self.listed(running)
        accept(running.call("session/load", self.params(self.other)))
        assert "Answer two.!" in running.text(self.other)
        assert stop_reason(running.prompt(self.other, "More.")) == "end_turn"
        new = running.new_session(self.template.workspace)
        assert stop_reason(running.prompt(new, PROMPTS[0])) == "end_turn"
        assert new in self.listed(running)

    def follow(self, message: str) -> str:
        """Do what a refusal advises, word by word; gives what that told."""
        found = re.search(r"acp-agent sessions (repair \S+?)[;,.)`']*(\s|$)", message)
        assert found is not None, f"no remedy in {message!r}"
        done = sessions(self.bench, self.place, *shlex.split(found[1]))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def goes_on(self, kept: int, into: Path) -> Log:
        """The repaired session loads twice alike and works, and has its first `kept` events."""
        first = self.agent()
        accept(first.call("session/load", self.params(self.session)))
        shown = past(first.updates(self.session))
        first.close()
        loaded = self.place.content()
        second = self.agent()
        accept(second.call("session/load", self.params(self.session)))
        assert past(second.updates(self.session)) == shown
        assert self.place.content() == loaded
        assert stop_reason(second.prompt(self.session, "More.")) == "end_turn"
        second.close()
        logs = self.place.export(into)
        shutil.rmtree(layout.session_directory(into, str(self.template.workspace), SessionId(self.session)))
        problems = check_store_laws(into)
        assert not problems, problems
        log = logs[self.session][0]
        assert unbalanced(log) == []
        assert log.events[:kept] == self.log().events[:kept]
        return log


def unbalanced(log: Log) -> list[str]:
    """What is wrong with a log that was repaired. Not all laws hold: what was lost is missing."""
    wrong = [f"{event['seq']} is event {at}" for at, event in enumerate(log.events) if event["seq"] != at]
    for what in ("turn", "step"):
        edges = [event["type"] for event in log.events if event["type"] in (f"{what}/start", f"{what}/end")]
        wrong += [f"{what}s are {edges}"] if edges != [f"{what}/start", f"{what}/end"] * (len(edges) // 2) else []
    asked = [block["id"] for answer in data(log, "assistant/message") for block in answer["message"]["content"]
             if block["type"] == "tool-call"]
    given = [result["message"]["content"][0]["toolCallId"] for result in data(log, "tool/result")]
    return wrong + ([] if asked == given else [f"calls are {asked}, results are {given}"])


# ---------------------------------------------------------------- a log's lines

WHOLE = {"garbage", "empty-line", "other-json", "duplicated"}
"""Damages that take nothing of a log away: every event of it is sound."""


@pytest.mark.parametrize("damage", LOG_DAMAGES, ids=str)
def test_a_damaged_log_is_refused_by_line_and_the_remedy_keeps_what_is_sound(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, damage: LogDamage,
) -> None:
    patient = Patient(agent, templates["jsonl"], tmp_path)
    file = patient.file()
    rows = file.read_bytes().splitlines()
    at = next(number for number, row in enumerate(rows) if row.startswith(b'{"type":"tool/call"'))
    line = damage.damage(file, at)
    original = file.read_bytes()
    running = patient.agent()
    told = patient.load_refused(running)
    assert str(file) in told
    assert f"{file}:{line}: " in told or line == 0
    assert damage.says in told
    patient.check_others(running)
    running.close()
    assert file.read_bytes() == original
    if damage.repairable:
        said = patient.follow(told)
        assert store_damage.backed_up(tmp_path / "damaged", original), f"the original is gone: {said}"
        assert said.strip()
        sound = len(patient.log().events) if damage.name in WHOLE else events_above(patient.log(), at)
        patient.goes_on(sound, tmp_path / "end")
    else:
        assert "sessions repair" not in told, "a repair is advised that is going to refuse"
        done = sessions(agent, patient.place, "repair", patient.session)
        assert done.returncode == 1, done.stdout
        assert str(file) in done.stderr
        assert file.read_bytes() == original


def events_above(log: Log, line: int) -> int:
    """How many events a log's rows hold above the line at this index."""
    return sum(log.rows[: line - 1])


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_at_all_is_refused_by_name_and_hurts_nobody_else(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, name: str,
) -> None:
    patient = Patient(agent, templates["jsonl"], tmp_path)
    file = patient.file()
    NO_LOGS[name](file)
    running = patient.agent()
    told = running.call("session/load", patient.params(patient.session))["error"]["message"]
    assert patient.session in told
    patient.check_others(running)
    running.close()
    for words in (["list"], ["show", patient.session], ["export", patient.session], ["repair", patient.session]):
        done = sessions(agent, patient.place, *words)
        assert done.returncode == 1, (words, done)
        assert patient.session in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr
    assert patient.other in sessions(agent, patient.place, "list").stdout


@pytest.mark.parametrize("damage", [one for one in LOG_DAMAGES if one.line(5) > 1], ids=str)
def test_a_damaged_child_does_not_stand_in_its_roots_way_and_can_be_repaired(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, damage: LogDamage,
) -> None:
    patient = Patient(agent, templates["jsonl"], tmp_path)
    file = patient.file("session.1.jsonl")
    line = damage.damage(file, len(file.read_bytes().splitlines()) - 5)
    original, child = file.read_bytes(), patient.log(1).header["id"]
    running = patient.agent()
    accept(running.call("session/load", patient.params(patient.session)))
    running.wait_for_stderr(f"{file}:{line}: ")
    assert child in running.stderr
    assert stop_reason(running.prompt(patient.session, "More.")) == "end_turn"
    running.close()
    assert file.read_bytes() == original
    done = sessions(agent, patient.place, "repair", child)
    assert done.returncode == 0, done.stderr
    assert store_damage.backed_up(tmp_path / "damaged", original)
    again = patient.agent()
    accept(again.call("session/load", patient.params(patient.session)))
    again.close()
    assert str(file) not in again.stderr
    assert unbalanced(patient.place.export(tmp_path / "end")[patient.session][1]) == []


def test_a_session_whose_file_stands_under_another_id_is_refused(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path,
) -> None:
    patient = Patient(agent, templates["jsonl"], tmp_path)
    patient.file().parent.rename(patient.file().parent.with_name("another-one"))
    running = patient.agent()
    told = running.call("session/load", patient.params("another-one"))["error"]["message"]
    assert patient.session in told
    assert "another-one" in told
    patient.check_others(running)


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("damage", ROW_DAMAGES, ids=str)
def test_a_damaged_row_is_refused_by_event_and_the_remedy_keeps_what_is_sound(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, damage: RowDamage,
) -> None:
    patient = Patient(agent, templates["sqlite"], tmp_path)
    seq = next(event["seq"] for event in patient.log().events if event["type"] == "tool/call")
    damage.damage(patient.place.path, patient.session, seq)
    running = patient.agent()
    told = patient.load_refused(running)
    assert str(patient.place.path) in told
    assert patient.session in told
    assert damage.says in told
    if damage.repairable and damage.name != "negative":
        assert re.search(rf"\b{seq}\b", told), f"event {seq} is not named: {told}"
    patient.check_others(running)
    running.close()
    if damage.repairable:
        said = patient.follow(told)
        backup = Path(said.strip().rsplit(" is in ", 1)[1])
        assert backup.exists(), said
        patient.goes_on(seq, tmp_path / "end")
    else:
        assert "sessions repair" not in told, "a repair is advised that is going to refuse"
        before = patient.place.content()
        done = sessions(agent, patient.place, "repair", patient.session)
        assert done.returncode == 1, done.stdout
        assert patient.place.content() == before


@pytest.mark.parametrize("name", FILE_DAMAGES)
def test_a_damaged_database_is_refused_by_name_and_left_as_it_is(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, name: str,
) -> None:
    patient = Patient(agent, templates["sqlite"], tmp_path)
    file = patient.place.path
    FILE_DAMAGES[name](file)
    original = file.read_bytes()
    running = patient.agent()
    told = running.call("session/load", patient.params(patient.session))["error"]["message"]
    assert str(file) in told
    answer = running.call("session/list", {})
    assert "result" in answer or str(file) in answer["error"]["message"]
    answer = running.call("session/new", {"cwd": str(agent.workspace), "mcpServers": []})
    if "result" in answer:
        answer = running.prompt(answer["result"]["sessionId"], PROMPTS[0])
    assert name == "cut" or str(file) in answer["error"]["message"]
    running.close()
    assert "Traceback" not in running.stderr
    if name != "cut":
        assert file.read_bytes() == original
    for words in (["list"], ["repair", patient.session]):
        done = sessions(agent, patient.place, *words)
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- deleted while listing


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_that_are_deleted_while_somebody_lists_take_no_other_one_with_them(
    agent: Workbench, templates: dict[str, Template], tmp_path: Path, kind: str,
) -> None:
    patient = Patient(agent, templates[kind], tmp_path)
    worker, lister = patient.agent(), patient.agent()
    made = []
    for _ in range(60):
        made.append(worker.new_session(patient.template.workspace))
        asked = worker.start_prompt(made[-1], PROMPTS[0])
        worker.response(asked)
    for session in made:
        accept(worker.call("session/close", {"sessionId": session}))
    stay = set(made[::4]) | set(patient.template.sessions)
    done = threading.Event()

    def delete() -> None:
        for session in made:
            if session not in stay:
                accept(worker.call("session/delete", {"sessionId": session}))
        done.set()

    deleter = threading.Thread(target=delete)
    deleter.start()
    rounds = 0
    while rounds < 3 or not done.is_set():
        rounds += 1
        seen = list_all(lister.call)
        assert stay <= set(seen)
        assert len(seen) == len(set(seen))
        assert set(seen) <= stay | set(made)
    deleter.join()
    assert set(list_all(lister.call)) == stay
    assert lister.stderr == ""


def list_all(ask: Callable[..., dict[str, Any]]) -> list[str]:
    """The ids on all pages."""
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = ask("session/list", cursor)["result"]
        found += [one["sessionId"] for one in page["sessions"]]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


def test_the_templates_are_what_the_damages_need(templates: dict[str, Template]) -> None:
    for template in templates.values():
        for session in template.sessions:
            root, child = template.logs[session]
            assert [end["reason"]["kind"] for end in data(root, "turn/end")] == ["completed"] * 2
            assert max(root.rows) > 2, "nothing is packed"
            assert child.header["parentSession"] == session

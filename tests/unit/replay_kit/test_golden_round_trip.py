"""Goldens of real runs: written, replayed from, equal; and what a change of the run shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from replay.artefacts import Artefacts
from replay.compare import compare
from replay.differences import Category, report
from replay.explain import explain
from replay.golden import load_golden, write_golden
from replay.golden_tree import check_tree
from replay.normalize import normalise
from replay.pins import settle
from replay.snapshot import Normalised
from tests.conftest import Workbench
from tests.support.policies import allow, reject
from tests.unit.replay_kit.kit_runs import environ, harvested, seed_files
from tests.wire.recordings import Log, Part, call, failed, says, step, text, thought, tool, write

PROMPTS = ("One.", "All three.")


def spawn(call_id: str, prompt: str) -> Part:
    return tool(call_id, "subagent", description=f"Child {call_id}", prompt=prompt)


def family(word: str = "you ", written: str = "new\n") -> list[Log]:
    """Two turns: an answer, then three children at once, one forked and one with a child of its own, and files."""
    delegate = call(text("I ", "will", "."), thought("a", "b", "c"), spawn("p", "Be p."), spawn("q", "Be q."),
                    tool("r", "subagent_fork", description="Fork", prompt="Be r."),
                    tool("rd", "read", file_path="a.txt"))
    work = call(tool("w", "write", file_path="b.txt", content=written),
                tool("b", "bash", command="pwd; cp a.txt c.sh; chmod +x c.sh; rm a.txt", description="d"))
    parent = Log("parent").turn("One.", says("Hi ", "there ", word, "all")).turn(
        "All three.", step(delegate, "I am p.", "I am q.", "forked", "(read)"), step(work, "", ""), says("done"))
    p = parent.spawned("child-p", "p").turn("Be p.", step(call(spawn("deep", "Be deep.")), "deep"), says("I am ", "p."))
    deep = p.spawned("child-deep", "deep").turn("Be deep.", says("deep"))
    q = parent.spawned("child-q", "q").turn(
        "Be q.", step(call(tool("look", "read", file_path="a.txt")), "x"), says("I am ", "q."))
    r = Log("parent").turn("One.", says("Hi ", "there ", word, "all")).forked("child-r", "r").turn(
        "Be r.", says("forked"))
    r.header |= {"parentSession": "parent"}
    return [parent, r, q, deep, p]


def played(
    bench: Workbench, recording: Path, prompts: Sequence[str] = PROMPTS, *, name: str = "run",
    mode: str = "full-access",
) -> Artefacts:
    """A run of its own store and workspace."""
    root = bench.home.parent / name
    for directory in ("workspace", "home", "sessions"):
        (root / directory).mkdir(parents=True)
    bench.home, bench.store, bench.workspace = root / "home", root / "sessions", root / "workspace"
    (bench.workspace / "a.txt").write_text("hello\n")
    before = seed_files(bench.workspace)
    process = bench(replay=recording, environ=environ(bench, ACP_PERMISSION_MODE=mode))
    answers = iter([allow, reject, allow])
    process.answers["session/request_permission"] = lambda request: next(answers)(request)
    process.initialize()
    session = process.new_session()
    for prompt in prompts:
        process.prompt(session, prompt)
    process.close()
    return harvested(bench, process, before)


def golden_of(run: Normalised, directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "input.json").write_text('{"provenance": "a test", "steps": []}\n')
    write_golden(directory, run)
    settle(directory.parent)
    return directory


def test_a_golden_replays_to_itself(agent: Workbench, tmp_path: Path) -> None:
    first = normalise(played(agent, write(tmp_path / "recording", *family()), name="first"))
    golden = golden_of(first, tmp_path / "golden" / "family")
    assert check_tree(tmp_path / "golden") == []
    assert explain(golden).problems == []
    run = normalise(played(agent, golden, name="second"))
    found = compare(load_golden(golden), run)
    assert not found, report(found)
    assert (run.broken, run.leftovers) == ((), ())
    assert write_golden(golden, run) == []
    assert settle(golden.parent) == []


def test_a_golden_keeps_every_session_in_order_and_its_pins_once(agent: Workbench, tmp_path: Path) -> None:
    run = normalise(played(agent, write(tmp_path / "recording", *family())))
    golden = golden_of(run, tmp_path / "golden" / "family")
    assert [log.address for log in load_golden(golden).expected.logs] == [
        "root", "root > p", "root > p > deep", "root > q", "root > r"]
    assert [log.name for log in run.logs] == [f"{{{{session:{number}}}}}" for number in range(1, 6)]
    assert sorted(path.name for path in golden.iterdir()) == [
        "files.json", "input.json", "session.1.jsonl", "session.2.jsonl", "session.3.jsonl", "session.4.jsonl",
        "session.jsonl", "stdout.jsonl"]
    assert (tmp_path / "golden" / "_pins" / "system-1.md").read_text().startswith("You are ")
    assert '{{system:1}}","tools":"{{tools:1}}' in (golden / "session.jsonl").read_text()
    assert {path: (entry.text, entry.mode, entry.removed) for path, entry in run.files.items()} == {
        "a.txt": (load_golden(golden).expected.files["a.txt"].text, run.files["a.txt"].mode, True),
        "b.txt": ("new\n", run.files["b.txt"].mode, run.files["b.txt"].removed),
        "c.sh": ("hello\n", "755", run.files["c.sh"].removed),
    }
    assert str(tmp_path) not in "".join(path.read_text() for path in golden.iterdir())


def test_questions_about_children_and_parents_replay_to_the_same_golden(agent: Workbench, tmp_path: Path) -> None:
    ask = tool("w", "write", file_path="b.txt", content="new\n")
    parent = Log("parent").turn("Go.", step(call(spawn("p", "Be p."), spawn("q", "Be q.")), "", ""), says("done"))
    kids = [parent.spawned(name, name).turn(f"Be {name}.", step(call(ask), ""), says(name)) for name in "pq"]
    first = normalise(played(agent, write(tmp_path / "recording", parent, *kids), ["Go."], name="first", mode="ask"))
    golden = golden_of(first, tmp_path / "golden" / "asking")
    asked = [frame.value for frame in first.wire if frame.value.get("method") == "session/request_permission"]
    assert [question["id"] for question in asked] == [1, 2]
    assert [question["params"]["toolCall"]["toolCallId"] for question in asked] == ["p/w", "q/w"]
    # Which child asks first is a race, so the same answers may reach the other: only order is compared here.
    again = normalise(played(agent, golden, ["Go."], name="second", mode="ask"))
    categories = {one.category for one in compare(load_golden(golden), again)}
    questions = [frame.value["params"]["toolCall"]["toolCallId"] for frame in again.wire
                 if frame.value.get("method") == "session/request_permission"]
    assert questions == ["p/w", "q/w"]
    assert Category.SESSIONS not in categories


def test_a_failed_turn_replays_to_itself(agent: Workbench, tmp_path: Path) -> None:
    log = Log("parent").turn("One.", failed("no such model", "AUTH", text("par", "tial")), end="error")
    first = normalise(played(agent, write(tmp_path / "recording", log), ["One."], name="first"))
    golden = golden_of(first, tmp_path / "golden" / "failing")
    found = compare(load_golden(golden), normalise(played(agent, golden, ["One."], name="second")))
    assert not found, report(found)


def test_a_recording_that_was_not_used_up_is_a_difference(agent: Workbench, tmp_path: Path) -> None:
    first = normalise(played(agent, write(tmp_path / "recording", *family()), name="first"))
    golden = golden_of(first, tmp_path / "golden" / "family")
    found = compare(load_golden(golden), normalise(played(agent, golden, PROMPTS[:1], name="second")))
    told = [f"{one.where}: {one.what}" for one in found]
    assert "recording session.jsonl: root made 1 of its 4 recorded calls" in told
    assert "recording session.1.jsonl: no session stood at root > p, its 2 recorded calls were not asked for" in told
    assert [one.category for one in found] == sorted(one.category for one in found)
    lonely = [one.where for one in found if one.category is Category.SESSIONS]
    assert lonely == ["{{session:2}} (root > p)", "{{session:3}} (root > p > deep)", "{{session:4}} (root > q)",
                      "{{session:5}} (root > r)"]


def test_one_prompt_too_many_is_over_use(agent: Workbench, tmp_path: Path) -> None:
    recording = write(tmp_path / "recording", Log("parent").turn("One.", says("Hi.")))
    golden = golden_of(normalise(played(agent, recording, ["One."], name="first")), tmp_path / "golden" / "short")
    found = compare(load_golden(golden), normalise(played(agent, golden, ["One.", "Two."], name="second")))
    assert "root made 1 calls beyond the 1 recorded" in [one.what for one in found]


def test_what_an_edited_recording_changes_is_told_behaviour_first(agent: Workbench, tmp_path: Path) -> None:
    first = normalise(played(agent, write(tmp_path / "recording", *family()), name="first"))
    golden = golden_of(first, tmp_path / "golden" / "family")
    other = write(tmp_path / "other", *family("us ", "changed\n"))
    found = compare(load_golden(golden), normalise(played(agent, other, name="second")))
    shown = report(found)
    categories = [one.category.name for one in found]
    assert categories == sorted(categories, key=["SESSIONS", "BEHAVIOUR", "WORDING", "VOLATILE"].index)
    assert found[0].where == "{{session:1}} (root)"
    assert "assistant/message" in found[0].what
    assert next(one.lines for one in found if one.where == "file b.txt") == ("@@ -1 +1 @@", "-new", "+changed")
    wording = next(one for one in found if one.category is Category.WORDING)
    assert '- text-delta index=0 text="you "' in wording.lines
    assert '+ text-delta index=0 text="us "' in wording.lines
    assert "{{session:5}} (root > r)" in shown

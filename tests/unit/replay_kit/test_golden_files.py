"""Golden directories: what is written, what is left alone, and what is wrong with a tree."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from replay.artefacts import FileState
from replay.golden import FILES, WIRE, harvest, load_golden, write_golden
from replay.golden_tree import check_tree
from replay.normalize import normalise
from replay.pins import GoldenError, Pins, settle
from replay.snapshot import Normalised
from tests.unit.replay_kit.kit_wire import (
    ONE,
    STRANGER,
    TWO,
    Frame,
    answers,
    event,
    log,
    opened,
    run,
    says,
    update,
    user,
)

RECORDED = Path(__file__).parents[4] / "shared" / "recorded"


def header(system: str, tool: str = "read") -> Frame:
    tools = [{"name": tool, "description": "d", "parameters": {"type": "object"}}]
    return event("request/header", reason="initial",
                 header={"config": {"provider": "p", "model": "m"}, "system": system, "tools": tools})


def small(*, system: str = "Be good.\n", texts: tuple[str, ...] = ("Hi",), children: int = 1) -> Normalised:
    """A run with one root and some children."""
    wire = [*opened(), *(says(ONE, text) for text in texts), answers(2, stopReason="end_turn")]
    calls = [event("tool/call", turn=1, step=1, callId=f"c{number}", name="subagent", arguments="{}")
             for number in range(children)]
    kids = [log(f"{TWO}{number}", [user("Task", f"m{number}")], parentSession=ONE, origin="subagent",
                delegationDepth=1, spawn={"callId": f"c{number}", "index": 0}) for number in range(children)]
    return normalise(run(wire, [log(ONE, [user("Go"), header(system), *calls]), *kids],
                         [FileState("a.txt", b"new\n")]))


def golden(root: Path, name: str = "small", of: Normalised | None = None) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    (directory / "input.json").write_text('{"steps": []}')
    write_golden(directory, of or small())
    return directory


def problems(root: Path) -> list[str]:
    return [f"{problem.path.relative_to(root)}: {problem.message}" for problem in check_tree(root)]


# ---------------------------------------------------------------- writing


def test_a_golden_loads_as_what_was_written(tmp_path: Path) -> None:
    of = small(texts=("Hi", "there"))
    loaded = load_golden(golden(tmp_path, of=of))
    assert loaded.expected.logs == of.logs
    assert loaded.expected.files == of.files
    assert [frame.value for frame in loaded.expected.wire] == [frame.value for frame in of.wire]
    assert (loaded.missing, loaded.is_new) == ((), False)


def test_writing_the_same_again_touches_nothing(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert write_golden(directory, small()) == []
    assert settle(tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    assert write_golden(directory, small(texts=("Hello",))) == [directory / WIRE]


def test_logs_of_sessions_that_are_gone_are_removed_and_hand_made_files_stay(tmp_path: Path) -> None:
    directory = golden(tmp_path, of=small(children=3))
    (directory / "workspace").mkdir()
    (directory / "replay.override.json").write_text("[]")
    changed = write_golden(directory, small(children=1))
    assert {path.name for path in changed} == {"session.jsonl", "session.2.jsonl", "session.3.jsonl"}
    assert {path.name for path in directory.iterdir()} == {
        "input.json", "workspace", "replay.override.json", "session.jsonl", "session.1.jsonl", WIRE, FILES}


def test_an_empty_directory_is_a_new_golden(tmp_path: Path) -> None:
    loaded = load_golden(tmp_path)
    assert loaded.is_new
    assert loaded.missing == (WIRE, FILES)


def test_a_run_without_sessions_has_no_logs(tmp_path: Path) -> None:
    assert set(harvest(normalise(run()), Pins(tmp_path))) == {WIRE, FILES}


def test_a_broken_golden_names_its_file(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    (directory / WIRE).write_text("{\n")
    with pytest.raises(GoldenError, match=r"stdout\.jsonl:1: broken line"):
        load_golden(directory)
    (directory / WIRE).write_text("")
    (directory / FILES).write_text('{"a": {"text": "x", "mood": 1}}')
    with pytest.raises(GoldenError, match=r"files\.json: .*mood"):
        load_golden(directory)
    (directory / FILES).write_text("{}")
    (directory / "session.jsonl").write_text('{"type":"x"}\n')
    with pytest.raises(GoldenError, match="not a session header"):
        load_golden(directory)


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded scenarios of other writers are not here")
def test_recordings_of_other_writers_load() -> None:
    for directory in sorted(RECORDED.iterdir()):
        if (directory / "session.jsonl").exists():
            loaded = load_golden(directory)
            assert len(loaded.expected.logs) == len(list(directory.glob("session*.jsonl")))
            assert loaded.missing == (WIRE, FILES)


# ---------------------------------------------------------------- pins


def test_equal_prompts_share_a_pin_and_each_version_has_one(tmp_path: Path) -> None:
    golden(tmp_path, "a")
    golden(tmp_path, "b")
    golden(tmp_path, "c", small(system="Be bad.\n"))
    pins = tmp_path / "_pins"
    assert sorted(path.name for path in pins.iterdir()) == ["system-1.md", "system-2.md", "tools-1.json"]
    assert (pins / "system-2.md").read_text() == "Be bad.\n"
    assert msgspec.json.decode((pins / "tools-1.json").read_bytes())[0]["name"] == "read"
    assert problems(tmp_path) == []


def test_a_new_prompt_in_every_golden_keeps_the_logs_as_they_were(tmp_path: Path) -> None:
    directories = [golden(tmp_path, name) for name in "ab"]
    logs = [(directory / "session.jsonl").read_bytes() for directory in directories]
    for directory in directories:
        write_golden(directory, small(system="Be better.\n"))
    settle(tmp_path)
    assert [(directory / "session.jsonl").read_bytes() for directory in directories] == logs
    assert (tmp_path / "_pins" / "system-1.md").read_text() == "Be better.\n"
    assert not (tmp_path / "_pins" / "system-2.md").exists()
    assert problems(tmp_path) == []


def test_settling_swaps_pins_into_their_order_of_use(tmp_path: Path) -> None:
    golden(tmp_path, "b", small(system="B"))
    golden(tmp_path, "a", small(system="A"))
    assert len(settle(tmp_path)) == 4
    assert [(tmp_path / "_pins" / f"system-{n}.md").read_text() for n in (1, 2)] == ["A", "B"]
    assert load_golden(tmp_path / "b").expected.logs == small(system="B").logs
    assert problems(tmp_path) == []


def test_processes_that_pin_at_once_agree(tmp_path: Path) -> None:
    prompts = [f"prompt {number % 4}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda prompt: Pins(tmp_path).pin("system", prompt), prompts))
    assert len(set(tokens)) == 4
    assert [Pins(tmp_path).value(one) for one in tokens] == prompts


def test_a_missing_pin_is_told(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    (tmp_path / "_pins" / "system-1.md").unlink()
    with pytest.raises(GoldenError, match=r"\{\{system:1\}\} stands for this file"):
        load_golden(directory)
    with pytest.raises(GoldenError, match="has no pin"):
        settle(tmp_path)


# ---------------------------------------------------------------- the tree


def test_a_tree_in_order_has_no_problems(tmp_path: Path) -> None:
    golden(tmp_path)
    assert problems(tmp_path) == []


def test_missing_and_orphaned_files_are_told(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    (directory / WIRE).unlink()
    (directory / "notes.txt").write_text("x")
    (directory / "input.json").unlink()
    (tmp_path / "_pins" / "prompt.md").write_text("x")
    (tmp_path / "empty").mkdir()
    told = problems(tmp_path)
    assert [one.partition(":")[0] for one in told] == [
        "empty", "empty/stdout.jsonl", "empty/files.json", "small", "small/stdout.jsonl", "small/notes.txt",
        "_pins/prompt.md"]
    assert "no input.json" in told[0]


def test_a_gap_in_the_numbers_is_told(tmp_path: Path) -> None:
    directory = golden(tmp_path, of=small(children=2))
    (directory / "session.1.jsonl").unlink()
    assert problems(tmp_path) == [
        "small: the logs are session.jsonl, session.2.jsonl, they must be session.jsonl, session.1.jsonl"]


def test_logs_out_of_order_are_told(tmp_path: Path) -> None:
    directory = golden(tmp_path, of=small(children=2))
    shutil.move(directory / "session.1.jsonl", directory / "x")
    shutil.move(directory / "session.2.jsonl", directory / "session.1.jsonl")
    shutil.move(directory / "x", directory / "session.2.jsonl")
    (told,) = problems(tmp_path)
    assert "not in their order, which is session.jsonl, session.2.jsonl, session.1.jsonl" in told


def test_a_child_without_its_parent_is_told(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    child = (directory / "session.1.jsonl").read_text()
    (directory / "session.1.jsonl").write_text(child.replace("{{session:1}}", "{{session:9}}"))
    assert any("its parent {{session:9}} has no log here" in one for one in problems(tmp_path))


@pytest.mark.parametrize(("old", "new", "told"), [
    ('"type":"user/message","data"', '"type":"user/message","seq":0,"time":0,"data"', "some records carry seq"),
    ('"data":{"content"', '"data": {"content"', "not the canonical one"),
    ('{"type":"user/message"', '{"type":"replay/bound","data":{"lane":"x","ordinal":0},"ignorable":true}\n'
     '{"type":"user/message"', "a golden leaves out"),
    ('"delegationDepth":0}', '"seedLength":99,"delegationDepth":0}', "seedLength is 99"),
    ('"source":{"kind":"user"}', f'"source":{{"kind":"user","summary":"{STRANGER}"}}', "looks like an id"),
])
def test_a_log_that_is_not_canonical_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = golden(tmp_path) / "session.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert any(told in one and one.startswith("small/session.jsonl") for one in problems(tmp_path))


def test_texts_that_are_not_canonical_are_told(tmp_path: Path) -> None:
    directory = golden(tmp_path)
    (directory / WIRE).write_text((directory / WIRE).read_text().replace('":', '": ', 1))
    (directory / FILES).write_text("{ }")
    assert [one.partition(":")[0] for one in problems(tmp_path)] == ["small/stdout.jsonl", "small/files.json"]


def test_a_machine_value_in_the_wire_is_told(tmp_path: Path) -> None:
    golden(tmp_path, of=normalise(run([*opened(), update(ONE, "usage_update", used=1, _meta={"x": STRANGER})])))
    (told,) = problems(tmp_path)
    assert told.startswith("small/stdout.jsonl: line 2, params, update, _meta, x")


def test_pins_that_nobody_uses_or_that_repeat_are_told(tmp_path: Path) -> None:
    golden(tmp_path)
    (tmp_path / "_pins" / "system-2.md").write_text("Be good.\n")
    assert problems(tmp_path) == [
        "_pins/system-2.md: orphan: no log refers to this pin; settle the pins",
        "_pins/system-2.md: says the same as system-1.md; write the goldens again"]


def test_no_directory_is_a_problem(tmp_path: Path) -> None:
    (told,) = check_tree(tmp_path / "nowhere")
    assert "no such directory" in told.message

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acp_agent.tools.base import Diff, ToolFailure
from acp_agent.tools.edit import Edit
from acp_agent.tools.observed import version_of
from acp_agent.tools.paths import resolve
from acp_agent.tools.publish import create_file
from acp_agent.tools.read import Read
from acp_agent.tools.write import Write
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

READ, WRITE, EDIT = Read(), Write(), Edit()


def written(path: Path, done: str) -> str:
    return f"<path>{path}</path>\n<type>file</type>\n<content>\n{done}\n</content>"


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".acp-")]


# ---------------------------------------------------------------- write


def test_writing_a_new_file_creates_it_with_its_directories(session: ToolSession) -> None:
    outcome = session.run(WRITE, file_path="a/b/notes.txt", content="hello world")
    path = session.cwd / "a/b/notes.txt"
    assert text_of(outcome) == written(path, "Created file")
    assert outcome.meta == {"diffs": []}
    assert path.read_bytes() == b"hello world"
    assert session.seen == {str(path.resolve()): version_of(str(path))}
    assert leftovers(path.parent) == []


def test_a_new_file_has_the_mode_the_umask_leaves(session: ToolSession) -> None:
    before = os.umask(0o027)
    try:
        session.run(WRITE, file_path="f", content="")
    finally:
        os.umask(before)
    assert (session.cwd / "f").stat().st_mode & 0o777 == 0o640


def test_overwriting_needs_a_read_first(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("old\n")
    outcome = session.run(WRITE, file_path="f", content="new\n")
    assert text_of(outcome) == (
        f'Error: cannot overwrite existing "{path}" without reading it first — read the file, then retry'
    )
    assert code_of(outcome) == "FS_NOT_OBSERVED"
    assert path.read_text() == "old\n"


def test_overwriting_after_a_read_reports_what_changed(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("a\nb\nc\nd\ne\nf\n")
    path.chmod(0o751)
    session.run(READ, file_path="f")
    outcome = session.run(WRITE, file_path="./f", content="a\nb\nc\nd\ne\nF\n")
    assert text_of(outcome) == written(path, "Updated file")
    assert outcome.meta == {"diffs": [{"path": "./f", "oldText": "c\nd\ne\nf", "newText": "c\nd\ne\nF"}]}
    assert path.read_text() == "a\nb\nc\nd\ne\nF\n"
    assert path.stat().st_mode & 0o777 == 0o751
    assert leftovers(session.cwd) == []


def test_a_file_written_by_the_session_may_be_written_again(session: ToolSession) -> None:
    session.run(WRITE, file_path="f", content="one")
    assert not session.run(WRITE, file_path="f", content="two").is_error
    assert not session.run(EDIT, file_path="f", old_string="two", new_string="three").is_error
    assert not session.run(EDIT, file_path="f", old_string="three", new_string="four").is_error
    assert (session.cwd / "f").read_text() == "four"


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("one")
    session.run(READ, file_path="f")
    path.write_text("two")
    for outcome in (
        session.run(WRITE, file_path="f", content="x"),
        session.run(EDIT, file_path="f", old_string="w", new_string="x"),
    ):
        assert text_of(outcome) == f'Error: "{path}" changed since it was read — read the file again, then retry'
        assert code_of(outcome) == "FS_STALE_VERSION"
    assert path.read_text() == "two"
    path.write_text("one")
    assert not session.run(WRITE, file_path="f", content="x").is_error


def test_a_deleted_file_is_created_again_once_its_absence_was_read(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("one")
    session.run(READ, file_path="f")
    path.unlink()
    assert code_of(session.run(WRITE, file_path="f", content="two")) == "FS_STALE_VERSION"
    assert code_of(session.run(READ, file_path="f")) == "FS_NOT_FOUND"
    assert text_of(session.run(WRITE, file_path="f", content="two")) == written(path, "Created file")
    assert path.read_text() == "two"


def test_a_file_that_appeared_after_its_absence_was_read_is_not_overwritten(session: ToolSession) -> None:
    session.run(READ, file_path="f")
    (session.cwd / "f").write_text("someone's")
    assert code_of(session.run(WRITE, file_path="f", content="mine")) == "FS_NOT_OBSERVED"
    assert (session.cwd / "f").read_text() == "someone's"


def test_creating_never_replaces_what_appeared_in_between(session: ToolSession) -> None:
    target = resolve("f", session.context(), "write")
    (session.cwd / "f").write_text("someone's")
    with pytest.raises(FileExistsError):
        create_file(target, b"mine")
    assert (session.cwd / "f").read_text() == "someone's"
    assert leftovers(session.cwd) == []


def test_a_file_system_without_hard_links_still_creates(
    session: ToolSession, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert not session.run(WRITE, file_path="f", content="x").is_error
    assert (session.cwd / "f").read_text() == "x"
    assert leftovers(session.cwd) == []


def test_what_is_not_a_file_is_not_written(session: ToolSession) -> None:
    os.mkfifo(session.cwd / "fifo")
    for path in (".", "fifo"):
        assert code_of(session.run(WRITE, file_path=path, content="x")) == "FS_NOT_REGULAR_FILE"
        assert code_of(session.run(EDIT, file_path=path, old_string="a", new_string="b")) == "FS_NOT_REGULAR_FILE"


def test_a_failed_replacement_leaves_the_file_and_nothing_else(
    session: ToolSession, monkeypatch: pytest.MonkeyPatch,
) -> None:
    (session.cwd / "f").write_text("old")
    session.run(READ, file_path="f")

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    outcome = session.run(WRITE, file_path="f", content="new")
    monkeypatch.undo()
    assert text_of(outcome) == f'Error: cannot write "{session.cwd / "f"}": no space left on device'
    assert (session.cwd / "f").read_text() == "old"
    assert leftovers(session.cwd) == []


def test_a_large_change_is_not_described(session: ToolSession) -> None:
    (session.cwd / "f").write_text("x\n" * 40_000)
    session.run(READ, file_path="f")
    assert session.run(WRITE, file_path="f", content="short\n").meta == {"diffs": []}


def test_a_crlf_file_keeps_its_line_endings(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    session.run(READ, file_path="f")
    outcome = session.run(EDIT, file_path="f", old_string="one\ntwo", new_string="1\n2")
    assert path.read_bytes() == b"1\r\n2\r\nthree\r\n"
    assert outcome.meta == {"diffs": [{"path": "f", "oldText": "one\ntwo\nthree", "newText": "1\n2\nthree"}]}
    session.run(WRITE, file_path="f", content="a\nb\n")
    assert path.read_bytes() == b"a\r\nb\r\n"


def test_a_file_with_mixed_endings_changes_only_where_it_is_edited(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_bytes(b"a\r\nb\nc\nd\n")
    session.run(READ, file_path="f")
    session.run(EDIT, file_path="f", old_string="a\nb", new_string="A\nB")
    assert path.read_bytes() == b"A\nB\nc\nd\n"


def test_bytes_that_are_not_utf8_survive_an_edit(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_bytes(b"caf\xe9 one\n")
    session.run(READ, file_path="f")
    outcome = session.run(EDIT, file_path="f", old_string="one", new_string="two")
    assert path.read_bytes() == b"caf\xe9 two\n"
    assert outcome.meta == {"diffs": [{"path": "f", "oldText": "caf\ufffd one", "newText": "caf\ufffd two"}]}


# ---------------------------------------------------------------- edit


def test_an_edit_reports_the_hunk_as_recorded(session: ToolSession) -> None:
    path = session.cwd / "config.txt"
    path.write_text("mode=DEBUG\nlevel=info\n")
    session.run(READ, file_path="config.txt")
    outcome = session.run(EDIT, file_path="config.txt", old_string="DEBUG", new_string="RELEASE")
    assert text_of(outcome) == f"The file {path} has been updated successfully."
    assert outcome.meta == {
        "diffs": [
            {"path": "config.txt", "oldText": "mode=DEBUG\nlevel=info", "newText": "mode=RELEASE\nlevel=info"},
        ],
    }
    assert path.read_text() == "mode=RELEASE\nlevel=info\n"


def test_an_edit_needs_a_read_first(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("a")
    outcome = session.run(EDIT, file_path="f", old_string="a", new_string="b")
    assert text_of(outcome) == f'Error: edit requires reading "{path}" first — read the file, then retry'
    assert code_of(outcome) == "FS_NOT_OBSERVED"


def test_editing_a_missing_file_says_so(session: ToolSession) -> None:
    outcome = session.run(EDIT, file_path="f", old_string="a", new_string="b")
    assert text_of(outcome) == f'Error: cannot edit "{session.cwd / "f"}": not found'
    assert code_of(outcome) == "FS_NOT_FOUND"
    assert session.seen == {str((session.cwd / "f").resolve()): None}


def test_an_absent_piece_is_reported(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("a.c\n")
    session.run(READ, file_path="f")
    outcome = session.run(EDIT, file_path="f", old_string="abc", new_string="x")
    assert text_of(outcome) == f'Error: old_string was not found in "{path}"'
    assert code_of(outcome) == "FS_EDIT_NOT_FOUND"


def test_an_ambiguous_piece_is_reported_with_its_count(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("x x x\n")
    session.run(READ, file_path="f")
    outcome = session.run(EDIT, file_path="f", old_string="x", new_string="y")
    assert text_of(outcome) == (
        f'Error: old_string occurs 3 times in "{path}" — make it more specific, or set replace_all to change '
        "every occurrence"
    )
    assert code_of(outcome) == "FS_AMBIGUOUS_EDIT"
    every = session.run(EDIT, file_path="f", old_string="x", new_string="y", replace_all=True)
    assert text_of(every) == f"The file {path} has been updated. All occurrences were successfully replaced."
    assert path.read_text() == "y y y\n"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "x", "old_string: expected text to replace"),
        ("x", "x", "new_string: expected a text different from old_string"),
    ],
)
def test_an_edit_that_means_nothing_is_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(ToolFailure, match=problem):
        EDIT.decode(f'{{"file_path": "f", "old_string": "{old}", "new_string": "{new}"}}')


def test_a_large_file_is_edited(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("filler\n" * 300_000 + "needle\n")
    session.run(READ, file_path="f", limit=1)
    assert not session.run(EDIT, file_path="f", old_string="needle", new_string="pin").is_error
    assert path.read_text().endswith("filler\npin\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_file_is_not_replaced(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("a")
    path.chmod(0o444)
    session.run(READ, file_path="f")
    assert code_of(session.run(WRITE, file_path="f", content="b")) == "FS_ACCESS_DENIED"
    assert path.read_text() == "a"


# ---------------------------------------------------------------- what the client is shown


def test_results_are_shown_as_diffs(session: ToolSession) -> None:
    path = str(session.cwd / "f")
    created = session.run(WRITE, file_path="f", content="a\n")
    assert session.shown(WRITE, created, file_path="f", content="a\n").diffs == (Diff(path, "a\n"),)
    updated = session.run(WRITE, file_path="f", content="b\n")
    view = session.shown(WRITE, updated, file_path="f", content="b\n")
    assert (view.text, view.diffs) == (None, (Diff(path, "b", "a"),))
    edited = session.run(EDIT, file_path="f", old_string="b", new_string="c")
    view = session.shown(EDIT, edited, file_path="f", old_string="b", new_string="c")
    assert (view.text, view.diffs) == (None, (Diff(path, "c", "b"),))
    failed = session.run(EDIT, file_path="f", old_string="nothing", new_string="c")
    view = session.shown(EDIT, failed, file_path="f", old_string="nothing", new_string="c")
    assert (view.text, view.diffs) == (f'Error: old_string was not found in "{path}"', ())


def test_a_preview_shows_the_change_and_makes_none(session: ToolSession) -> None:
    path = session.cwd / "f"
    assert session.preview(WRITE, file_path="f", content="new\n") == (Diff(str(path), "new\n"),)
    assert not path.exists()
    path.write_text("one\ntwo\n")
    assert session.preview(WRITE, file_path="f", content="one\n2\n") == (Diff(str(path), "one\n2", "one\ntwo"),)
    assert session.preview(EDIT, file_path="f", old_string="two", new_string="2") == (
        Diff(str(path), "one\n2", "one\ntwo"),
    )
    assert session.preview(EDIT, file_path="f", old_string="absent", new_string="2") == ()
    assert session.preview(EDIT, file_path="missing", old_string="a", new_string="2") == ()
    assert path.read_text() == "one\ntwo\n"

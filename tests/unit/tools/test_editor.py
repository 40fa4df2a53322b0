"""File tools at a client that offers its editor: what is unsaved there wins, and reads and writes agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acp_agent.tools.base import Diff
from acp_agent.tools.edit import Edit
from acp_agent.tools.editor import EditorError
from acp_agent.tools.read import Read
from acp_agent.tools.write import Write
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

READ, WRITE, EDIT = Read(), Write(), Edit()


class FakeEditor:
    """Buffers by path; what has none is on disk, as an editor would open it."""

    def __init__(self, *, reads: bool = True, writes: bool = True) -> None:
        self.reads, self.writes = reads, writes
        self.buffers: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.broken: EditorError | None = None

    async def read(self, path: str) -> str:
        self._note("read", path)
        if path in self.buffers:
            return self.buffers[path]
        try:
            return Path(path).read_text()
        except OSError:
            raise EditorError("Resource not found", missing=True) from None

    async def write(self, path: str, text: str) -> None:
        self._note("write", path)
        self.buffers[path] = text

    def _note(self, deed: str, path: str) -> None:
        assert os.path.isabs(path)  # noqa: PTH117  # a str
        self.asked.append((deed, path))
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def editor(session: ToolSession) -> FakeEditor:
    session.editor = made = FakeEditor()
    return made


def at(session: ToolSession, name: str) -> str:
    return str(session.cwd / name)


def test_unsaved_text_is_what_is_read_and_edited(session: ToolSession, editor: FakeEditor) -> None:
    (session.cwd / "f").write_text("saved\n")
    editor.buffers[at(session, "f")] = "unsaved\nmore\n"
    assert "1: unsaved" in text_of(session.run(READ, file_path="f"))
    outcome = session.run(EDIT, file_path="f", old_string="unsaved", new_string="changed")
    assert not outcome.is_error
    assert editor.buffers[at(session, "f")] == "changed\nmore\n"
    assert (session.cwd / "f").read_text() == "saved\n", "the editor saves, not we"
    again = session.run(EDIT, file_path="f", old_string="changed", new_string="twice")
    assert not again.is_error, "the version of what was written is the one seen"


def test_typing_in_the_editor_makes_what_was_seen_stale(session: ToolSession, editor: FakeEditor) -> None:
    (session.cwd / "f").write_text("one\n")
    session.run(READ, file_path="f")
    editor.buffers[at(session, "f")] = "one and more\n"
    for tool, arguments in ((EDIT, {"old_string": "one", "new_string": "2"}), (WRITE, {"content": "x"})):
        assert code_of(session.run(tool, file_path="f", **arguments)) == "FS_STALE_VERSION"
    assert editor.buffers[at(session, "f")] == "one and more\n"


def test_a_file_that_was_read_from_disk_is_the_same_file_in_the_editor(session: ToolSession) -> None:
    (session.cwd / "f").write_text("text\n")
    session.run(READ, file_path="f")
    session.editor = editor = FakeEditor()
    assert not session.run(EDIT, file_path="f", old_string="text", new_string="new").is_error
    assert editor.buffers[at(session, "f")] == "new\n"


def test_a_new_file_is_made_in_the_editor(session: ToolSession, editor: FakeEditor) -> None:
    assert not session.run(WRITE, file_path="d/new", content="a\n").is_error
    assert editor.buffers == {at(session, "d/new"): "a\n"}
    assert not (session.cwd / "d").exists()
    assert code_of(session.run(WRITE, file_path="d/new", content="b\n")) is None
    assert editor.buffers[at(session, "d/new")] == "b\n"


def test_a_file_that_only_the_editor_has_must_be_read_first(session: ToolSession, editor: FakeEditor) -> None:
    editor.buffers[at(session, "draft")] = "mine\n"
    assert code_of(session.run(WRITE, file_path="draft", content="x")) == "FS_NOT_OBSERVED"
    assert not session.run(READ, file_path="draft").is_error
    assert not session.run(WRITE, file_path="draft", content="x").is_error


def test_an_editor_that_only_reads_leaves_writing_to_the_disk(session: ToolSession) -> None:
    session.editor = editor = FakeEditor(writes=False)
    (session.cwd / "f").write_text("saved\n")
    editor.buffers[at(session, "f")] = "unsaved\n"
    session.run(READ, file_path="f")
    assert not session.run(EDIT, file_path="f", old_string="unsaved", new_string="changed").is_error
    assert (session.cwd / "f").read_text() == "changed\n"
    assert not session.run(WRITE, file_path="new", content="n").is_error
    assert (session.cwd / "new").read_text() == "n"
    assert {deed for deed, _ in editor.asked} == {"read"}


def test_an_editor_that_only_writes_leaves_reading_to_the_disk(session: ToolSession) -> None:
    session.editor = editor = FakeEditor(reads=False)
    (session.cwd / "f").write_text("saved\n")
    session.run(READ, file_path="f")
    assert not session.run(EDIT, file_path="f", old_string="saved", new_string="changed").is_error
    assert editor.buffers == {at(session, "f"): "changed\n"}
    assert {deed for deed, _ in editor.asked} == {"write"}


def test_paths_are_confined_before_the_editor_is_asked(
    session: ToolSession, editor: FakeEditor, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    (session.cwd / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", "link"):
        assert code_of(session.run(READ, file_path=path)) == "FS_OUTSIDE_ROOTS"
        assert code_of(session.run(WRITE, file_path=path, content="x")) == "FS_OUTSIDE_ROOTS"
    (session.cwd / "dir").mkdir()
    assert code_of(session.run(READ, file_path="dir")) == "FS_NOT_REGULAR_FILE"
    assert editor.asked == []


def test_spilled_output_is_read_from_where_it_lies(session: ToolSession, editor: FakeEditor) -> None:
    session.spill.mkdir()
    (session.spill / "out.txt").write_text("long\n")
    assert "1: long" in text_of(session.run(READ, file_path=str(session.spill / "out.txt")))
    assert editor.asked == []


def test_a_missing_file_is_missing_and_seen_to_be(session: ToolSession, editor: FakeEditor) -> None:
    outcome = session.run(READ, file_path="none")
    assert code_of(outcome) == "FS_NOT_FOUND"
    assert session.seen == {os.path.realpath(at(session, "none")): None}
    assert editor.asked


@pytest.mark.parametrize("missing", [False, True])
def test_an_editor_that_fails_fails_the_call(session: ToolSession, editor: FakeEditor, missing: bool) -> None:
    (session.cwd / "f").write_text("text\n")
    session.run(READ, file_path="f")
    editor.broken = EditorError("the buffer is busy", missing=missing)
    outcome = session.run(READ, file_path="f")
    assert outcome.is_error
    assert "the buffer is busy" in text_of(outcome)
    assert session.run(EDIT, file_path="f", old_string="text", new_string="x").is_error
    assert session.run(WRITE, file_path="f", content="x").is_error
    assert (session.cwd / "f").read_text() == "text\n"
    assert session.preview(EDIT, file_path="f", old_string="text", new_string="x") == ()


def test_a_file_that_is_on_disk_is_not_made_anew_because_the_editor_knows_none(
    session: ToolSession, editor: FakeEditor
) -> None:
    (session.cwd / "f").write_text("text\n")
    editor.broken = EditorError("no such resource", missing=True)
    outcome = session.run(WRITE, file_path="f", content="x")
    assert code_of(outcome) == "FS_IO"
    assert editor.asked == [("read", at(session, "f"))], "nothing was written over what was never seen"
    assert session.seen == {}


def test_any_error_of_the_editors_means_missing_where_the_disk_has_no_file_either(
    session: ToolSession, editor: FakeEditor
) -> None:
    editor.broken = EditorError("internal error", refused=True)
    assert code_of(session.run(READ, file_path="new")) == "FS_NOT_FOUND"
    editor.broken = EditorError("the client did not answer")
    assert code_of(session.run(READ, file_path="new")) == "FS_IO"


def test_a_file_nobody_edits_by_hand_is_left_to_the_disk(session: ToolSession, editor: FakeEditor) -> None:
    (session.cwd / "big").write_text("line\n" * 900_000)
    assert "1: line" in text_of(session.run(READ, file_path="big", limit=1))
    assert not session.run(WRITE, file_path="big", content="small\n").is_error
    assert editor.asked == []
    assert (session.cwd / "big").read_text() == "small\n"


def test_a_buffer_does_not_grow_beyond_what_a_line_of_the_protocol_takes(
    session: ToolSession, editor: FakeEditor
) -> None:
    assert code_of(session.run(WRITE, file_path="new", content="x" * (4 * 1024 * 1024 + 1))) == "FS_TOO_LARGE"
    assert ("write", at(session, "new")) not in editor.asked


def test_bytes_that_are_no_text_are_changed_on_disk_and_stay_what_they_are(session: ToolSession) -> None:
    session.editor = editor = FakeEditor(reads=False)
    (session.cwd / "f").write_bytes(b"caf\xe9 one\n")
    session.run(READ, file_path="f")
    assert not session.run(EDIT, file_path="f", old_string="one", new_string="two").is_error
    assert (session.cwd / "f").read_bytes() == b"caf\xe9 two\n"
    assert editor.asked == []


def test_a_preview_is_made_from_unsaved_text(session: ToolSession, editor: FakeEditor) -> None:
    editor.buffers[at(session, "f")] = "one\ntwo\n"
    path = at(session, "f")
    assert session.preview(EDIT, file_path="f", old_string="two", new_string="2") == (
        Diff(path, "one\n2", "one\ntwo"),
    )
    assert session.preview(WRITE, file_path="f", content="one\n") == (Diff(path, "one", "one\ntwo"),)
    assert session.preview(WRITE, file_path="g", content="one\n") == (Diff(at(session, "g"), "one\n"),)


def test_a_long_buffer_is_windowed_and_a_binary_one_refused(session: ToolSession, editor: FakeEditor) -> None:
    editor.buffers[at(session, "long")] = "".join(f"line {n}\n" for n in range(1, 5001))
    text = text_of(session.run(READ, file_path="long", offset=4000, limit=2))
    assert "4000: line 4000\n4001: line 4001\n" in text
    assert "(Showing lines 4000-4001 of 5000. Use offset=4002 to continue.)" in text
    assert code_of(session.run(READ, file_path="long", offset=6000)) == "FS_OFFSET_PAST_END"
    editor.buffers[at(session, "bin")] = "a\0b"
    assert code_of(session.run(READ, file_path="bin")) == "FS_BINARY"

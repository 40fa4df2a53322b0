from __future__ import annotations

import os
from pathlib import Path

import pytest

from acp_agent.tools import paths
from acp_agent.tools.base import ToolFailure
from acp_agent.tools.edit import Edit
from acp_agent.tools.glob import Glob
from acp_agent.tools.grep import Grep
from acp_agent.tools.read import Read
from acp_agent.tools.write import Write
from tests.unit.tools.tool_session import ToolSession, code_of, text_of


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_text("secret\n")
    return directory


def spellings(session: ToolSession, outside: Path) -> list[str]:
    """Ways to name the outside file."""
    (session.cwd / "direct").symlink_to(outside / "secret")
    (session.cwd / "dir").symlink_to(outside)
    (session.cwd / "relative").symlink_to("../outside/secret")
    (session.cwd / "chain").symlink_to("dir/secret")
    return [
        str(outside / "secret"), "../outside/secret", "a/../../outside/secret", "direct", "dir/secret", "relative",
        "chain", f"{session.cwd}/../outside/secret",
    ]


def test_no_spelling_leads_outside(session: ToolSession, outside: Path) -> None:
    for path in spellings(session, outside):
        for tool, arguments in (
            (Read(), {}), (Write(), {"content": "x"}), (Edit(), {"old_string": "secret", "new_string": "x"}),
        ):
            outcome = session.run(tool, file_path=path, **arguments)
            assert code_of(outcome) == "FS_OUTSIDE_ROOTS", (tool.name, path)
            assert str(session.cwd.resolve()) in text_of(outcome)
            assert session.preview(tool, file_path=path, **arguments) == ()
    assert (outside / "secret").read_text() == "secret\n"
    assert session.seen == {}


def test_a_dangling_link_does_not_create_a_file_outside(session: ToolSession, outside: Path) -> None:
    (session.cwd / "new").symlink_to(outside / "new")
    (session.cwd / "dir").symlink_to(outside)
    assert code_of(session.run(Write(), file_path="new", content="x")) == "FS_OUTSIDE_ROOTS"
    assert code_of(session.run(Write(), file_path="dir/deep/new", content="x")) == "FS_OUTSIDE_ROOTS"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_name_that_begins_like_a_root_is_outside_it(session: ToolSession) -> None:
    sibling = session.cwd.with_name("workspace-other")
    sibling.mkdir()
    assert code_of(session.run(Write(), file_path=str(sibling / "f"), content="x")) == "FS_OUTSIDE_ROOTS"


def test_links_inside_are_followed(session: ToolSession) -> None:
    (session.cwd / "real").mkdir()
    (session.cwd / "real" / "f").write_text("inside\n")
    (session.cwd / "link").symlink_to("real")
    outcome = session.run(Read(), file_path="link/f")
    assert f"<path>{session.cwd}/link/f</path>" in text_of(outcome)
    assert not session.run(Edit(), file_path="link/f", old_string="inside", new_string="still").is_error
    assert (session.cwd / "real" / "f").read_text() == "still\n"
    assert (session.cwd / "link").is_symlink()


def test_another_root_is_allowed(session: ToolSession, outside: Path) -> None:
    both = ToolSession(session.cwd, session.spill, roots=(outside,))
    assert not both.run(Read(), file_path="../outside/secret").is_error


def test_full_access_reaches_everything(session: ToolSession, outside: Path) -> None:
    session.confined = False
    for path in spellings(session, outside):
        assert not session.run(Read(), file_path=path).is_error
    assert not session.run(Write(), file_path=str(outside / "deep" / "new"), content="x").is_error
    assert (outside / "deep" / "new").read_text() == "x"


def test_a_home_sign_has_no_meaning(session: ToolSession) -> None:
    assert f'"{session.cwd}/~/f": not found' in text_of(session.run(Read(), file_path="~/f"))


def test_a_nul_in_a_path_is_refused(session: ToolSession) -> None:
    assert code_of(session.run(Read(), file_path="a\0b")) == "FS_BAD_PATH"


def test_a_loop_of_links_ends_in_an_error(session: ToolSession) -> None:
    (session.cwd / "a").symlink_to("b")
    (session.cwd / "b").symlink_to("a")
    assert session.run(Read(), file_path="a").is_error
    assert session.run(Write(), file_path="a", content="x").is_error


def test_a_directory_swapped_for_a_link_after_the_check_leads_nowhere(session: ToolSession, outside: Path) -> None:
    (session.cwd / "dir").mkdir()
    target = paths.resolve("dir/secret", session.context(), "read")
    (session.cwd / "dir").rmdir()
    (session.cwd / "dir").symlink_to(outside)
    with pytest.raises(ToolFailure), paths.reporting(target, "read"), paths.open_regular(target, "read"):
        pytest.fail("the file outside was opened")


def test_a_file_swapped_for_a_link_after_the_check_leads_nowhere(
    session: ToolSession, outside: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    (session.cwd / "f").write_text("inside")
    target = paths.resolve("f", session.context(), "read")
    check = paths.check_regular

    def check_then_swap(target: paths.Target, verb: str) -> os.stat_result:
        state = check(target, verb)
        (session.cwd / "f").unlink()
        (session.cwd / "f").symlink_to(outside / "secret")
        return state

    monkeypatch.setattr(paths, "check_regular", check_then_swap)
    refused = pytest.raises(ToolFailure, match="a symlink appeared in its path")
    with refused, paths.reporting(target, "read"), paths.open_regular(target, "read"):
        pytest.fail("the file outside was opened")


def test_searches_stay_inside(session: ToolSession, outside: Path) -> None:
    (session.cwd / "dir").symlink_to(outside)
    for path in (str(outside), "..", "dir", "dir/secret"):
        assert code_of(session.run(Grep(), pattern="secret", path=path)) == "FS_OUTSIDE_ROOTS"
        assert code_of(session.run(Glob(), pattern="**/*", path=path)) == "FS_OUTSIDE_ROOTS"
    assert code_of(session.run(Glob(), pattern="../outside/*")) == "FS_OUTSIDE_ROOTS"
    assert code_of(session.run(Glob(), pattern=f"{outside}/*")) == "FS_OUTSIDE_ROOTS"
    assert text_of(session.run(Grep(), pattern="secret")) == "No matches found"
    assert text_of(session.run(Glob(), pattern="**/*")) == "No files found"


def test_output_kept_aside_can_be_read_and_searched(session: ToolSession) -> None:
    session.spill.mkdir()
    (session.spill / "kept.txt").write_text("needle\n")
    kept = str(session.spill / "kept.txt")
    assert not session.run(Read(), file_path=kept).is_error
    assert "Line 1: needle" in text_of(session.run(Grep(), pattern="needle", path=kept))
    assert code_of(session.run(Write(), file_path=kept, content="x")) == "FS_OUTSIDE_ROOTS"

"""Where logs go: no session id and no working directory leads out of the store or into another session."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from acp_agent.ids import SessionId
from acp_agent.stores import layout

ANY_TEXT = st.text(min_size=1, max_size=12)


@pytest.mark.parametrize(("cwd", "key"), [
    ("/home/me/project", "home-me-project"),
    ("/", "root"),
    ("//", "root"),
    ("/a//b", "a-b"),
    ("C:\\work", "C-work"),
    ("/a b", "a~0020b"),
    ("/ü", "~00FC"),
    ("/\U0001f600", "~D83D~DE00"),
    ("/a~b", "a~007Eb"),
    ("/..", ".."),
    (UNSET, "_no-cwd"),
])
def test_a_working_directory_has_a_readable_key(cwd: str, key: str) -> None:
    assert layout.project_key(cwd) == key


def test_a_long_working_directory_still_makes_a_file_name() -> None:
    name = layout.session_directory(Path("/s"), "/" + "d" * 4000, SessionId("x")).parent.name
    assert len(name) == 255


@pytest.mark.parametrize(("session", "segment"), [
    ("0c1f-a_b.c", "0c1f-a_b.c"),
    (".", "~002E"),
    ("..", "~002E~002E"),
    ("...", "~002E~002E~002E"),
    (".hidden", "~002Ehidden"),
    ("../../etc/passwd", "~002E~002E~002F..~002Fetc~002Fpasswd"),
    ("a/b", "a~002Fb"),
    ("a\\b", "a~005Cb"),
    ("a\x00b", "a~0000b"),
    ("ü", "~00FC"),
    ("\U0001f600", "~D83D~DE00"),
    ("\ud800", "~D800"),
    ("~002E", "~007E002E"),
])
def test_a_session_id_is_one_path_segment(session: str, segment: str) -> None:
    assert layout.session_segment(SessionId(session)) == segment


@given(ANY_TEXT)
def test_no_session_id_leaves_its_project(session: str) -> None:
    directory = layout.session_directory(Path("/store"), "/w", SessionId(session))
    assert directory.parent == Path("/store/--w--")
    assert directory.name
    assert not directory.name.startswith("."), "such names are those of trees on their way"
    assert layout.id_of(directory.name) == session
    directory.name.encode("ascii")


@given(ANY_TEXT)
def test_no_working_directory_leaves_the_store(cwd: str) -> None:
    directory = layout.session_directory(Path("/store"), cwd, SessionId("s")).parent
    assert directory.parent == Path("/store")
    assert directory.name.startswith("--")
    assert directory.name.endswith("--")
    assert len(directory.name) <= 255


@given(ANY_TEXT, ANY_TEXT)
def test_different_session_ids_have_different_segments(one: str, other: str) -> None:
    same = layout.session_segment(SessionId(one)) == layout.session_segment(SessionId(other))
    assert same == (one == other)


def test_a_trees_children_are_found_in_their_order(tmp_path: Path) -> None:
    names = [layout.child_log(number) for number in (1, 2, 9, 10, 11)]
    for name in [*names, "session.jsonl", "session.0.jsonl", "session.01.jsonl", "session.x.jsonl", "session.1.jsonl~",
                 "receipt.json", ".session.12.jsonl.99.new", "session.jsonl-20200101T000000Z.backup"]:
        (tmp_path / name).touch()
    assert [path.name for path in layout.child_logs(tmp_path)] == names
    assert layout.child_logs(tmp_path / "missing") == []
    assert layout.child_logs(tmp_path / "receipt.json") == []


def test_an_empty_or_missing_store_has_no_projects(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        assert layout.projects(root) == []
        assert list(layout.directories(root, SessionId("s"))) == []


def test_a_session_is_found_in_whichever_project_it_is(tmp_path: Path) -> None:
    wanted = layout.session_directory(tmp_path, "/b", SessionId("s"))
    begun = layout.session_directory(tmp_path, "/c", SessionId("s"))
    for directory in (layout.session_directory(tmp_path, "/a", SessionId("t")), wanted, begun):
        directory.mkdir(parents=True)
    (wanted / layout.MAIN_LOG).touch()
    assert list(layout.directories(tmp_path, SessionId("s"))) == [wanted]


@pytest.mark.parametrize("session", ["", "x" * 5000, "\x00"])
def test_an_id_that_is_no_name_is_found_nowhere(tmp_path: Path, session: str) -> None:
    (tmp_path / "--w--").mkdir()
    (tmp_path / "--w--" / layout.MAIN_LOG).touch()
    assert list(layout.directories(tmp_path, SessionId(session))) == []

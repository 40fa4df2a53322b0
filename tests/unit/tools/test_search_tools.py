from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.glob import Glob, split_pattern
from acp_agent.tools.grep import Grep
from acp_agent.tools.search_worker import BadPattern, braces, compile_glob
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

GLOB, GREP = Glob(), Grep()


@pytest.fixture
def tree(session: ToolSession) -> ToolSession:
    for path in (
        "b.py", "a.py", "src/x.ts", "src/deep/y.tsx", "src/deep/z.py", ".git/config", ".hidden/h.py", "a b.txt",
    ):
        file = session.cwd / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"first\nneedle in {path}\nlast needle\n")
    return session


# ---------------------------------------------------------------- glob


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "b.py"]),
        ("**/*.py", [".hidden/h.py", "a.py", "b.py", "src/deep/z.py"]),
        ("src/**/*.{ts,tsx}", ["src/deep/y.tsx", "src/x.ts"]),
        ("src/**", ["src/deep/y.tsx", "src/deep/z.py", "src/x.ts"]),
        ("s?c/*", ["src/x.ts"]),
        ("[!a].py", ["b.py"]),
        ("[a-b].py", ["a.py", "b.py"]),
        ("a b.*", ["a b.txt"]),
        ("src/x.ts", ["src/x.ts"]),
        ("./src/../a.py", ["a.py"]),
        ("**/config", []),
        ("nowhere/*.py", []),
        ("src", []),
    ],
)
def test_glob_lists_matching_files_sorted(tree: ToolSession, pattern: str, found: list[str]) -> None:
    outcome = tree.run(GLOB, pattern=pattern)
    assert text_of(outcome) == ("\n".join(found) or "No files found")
    assert outcome.meta == {"shape": "paths", "paths": found, "truncated": False, "total": len(found)}


def test_glob_searches_a_directory_but_shows_paths_from_the_session(tree: ToolSession) -> None:
    assert text_of(tree.run(GLOB, pattern="*", path="src")) == "src/x.ts"
    assert text_of(tree.run(GLOB, pattern=f"{tree.cwd}/src/*")) == "src/x.ts"
    assert code_of(tree.run(GLOB, pattern="*", path="gone")) == "FS_NOT_FOUND"
    assert code_of(tree.run(GLOB, pattern="*", path="a.py")) == "FS_NOT_DIRECTORY"


def test_files_of_another_root_are_shown_with_their_whole_path(tree: ToolSession) -> None:
    other = tree.cwd.with_name("other")
    other.mkdir()
    (other / "f").write_text("needle\n")
    both = ToolSession(tree.cwd, tree.spill, roots=(other,))
    assert text_of(both.run(GLOB, pattern="*", path=str(other))) == f"{other}/f"
    found = both.run(GREP, pattern="needle", path=str(other))
    assert text_of(found) == f"Found 1 matches\n\n{other}/f\nLine 1: needle"


def test_too_many_files_are_sampled_from_every_directory(session: ToolSession) -> None:
    names = [f"{directory}/{n:03}" for directory, count in (("a", 150), ("b", 3), ("c", 40)) for n in range(count)]
    names.append("top")
    for name in names:
        (session.cwd / name).parent.mkdir(exist_ok=True)
        (session.cwd / name).touch()
    outcome = session.run(GLOB, pattern="**/*")
    lines = text_of(outcome).split("\n")
    assert lines[:8] == ["a/000", "b/000", "c/000", "top", "a/001", "b/001", "c/001", "a/002"]
    (saved,) = session.spill.iterdir()
    assert lines[100:] == [
        "", f"(Showing 100 of 194 files, from 4 of 4 top-level entries. The full list was saved to {saved}.)",
    ]
    assert outcome.meta == {"shape": "paths", "paths": lines[:100], "truncated": True, "total": 194}
    assert saved.read_text() == "".join(f"{name}\n" for name in names)


def test_a_list_that_cannot_be_saved_says_so(session: ToolSession) -> None:
    for number in range(101):
        (session.cwd / f"{number:03}").touch()
    session.spill.write_text("a file where the directory should be")
    text = text_of(session.run(GLOB, pattern="*"))
    assert text.endswith("(Showing 100 of 101 files, from 100 of 101 top-level entries. "
                         "The full list could not be saved.)")


def test_names_that_are_not_utf8_are_readable(session: ToolSession) -> None:
    (session.cwd / os.fsdecode(b"caf\xe9")).touch()
    assert text_of(session.run(GLOB, pattern="*")) == "caf\ufffd"


def test_braces_nest_and_multiply() -> None:
    assert braces("{a,b{c,d}}{e,f}") == ["ae", "af", "bce", "bcf", "bde", "bdf"]
    assert braces("{a}") == ["{a}"]
    assert braces("\\{a,b}") == ["\\{a,b}"]
    with pytest.raises(BadPattern, match="more than 1000"):
        braces("{a,b}" * 12)


@given(st.text("ab*?[]!{},\\/-&|~", max_size=12), st.text("ab/", max_size=8))
def test_any_pattern_is_usable_or_refused(pattern: str, path: str) -> None:
    try:
        compile_glob(pattern).fullmatch(path)
    except BadPattern:
        return


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a/b/*.py", ("a/b", "*.py")), ("*.py", ("", "*.py")), ("a", ("", "a")), ("/a/b*", ("/a", "b*")),
        ("/*", ("/", "*")), ("a/{b,c}/d", ("a", "{b,c}/d")), ("../x/**", ("../x", "**")),
    ],
)
def test_a_pattern_is_split_before_its_first_special_part(pattern: str, parts: tuple[str, str]) -> None:
    assert split_pattern(pattern) == parts


# ---------------------------------------------------------------- grep


def test_grep_lists_lines_by_file(tree: ToolSession) -> None:
    outcome = tree.run(GREP, pattern="^needle", path="src")
    assert text_of(outcome) == (
        "Found 3 matches\n\n"
        "src/deep/y.tsx\nLine 2: needle in src/deep/y.tsx\n\n"
        "src/deep/z.py\nLine 2: needle in src/deep/z.py\n\n"
        "src/x.ts\nLine 2: needle in src/x.ts"
    )
    assert outcome.meta["files"][2] == {
        "path": "src/x.ts", "matches": [{"lineNumber": 2, "line": "needle in src/x.ts"}],
    }
    assert (outcome.meta["shape"], outcome.meta["truncated"], outcome.meta["total"]) == ("matches", False, 3)


@pytest.mark.parametrize(
    ("include", "files"),
    [
        ("*.py", [".hidden/h.py", "a.py", "b.py", "src/deep/z.py"]),
        ("src/**/*.{ts,tsx}", ["src/deep/y.tsx", "src/x.ts"]),
        ("src/*", ["src/x.ts"]),
    ],
)
def test_include_selects_by_name_or_by_path(tree: ToolSession, include: str, files: list[str]) -> None:
    outcome = tree.run(GREP, pattern="first", include=include)
    assert [file["path"] for file in outcome.meta["files"]] == files


def test_grep_looks_into_one_file_when_told_to(tree: ToolSession) -> None:
    found = tree.run(GREP, pattern="last", path="src/x.ts")
    assert text_of(found) == "Found 1 matches\n\nsrc/x.ts\nLine 3: last needle"
    os.mkfifo(tree.cwd / "fifo")
    assert code_of(tree.run(GREP, pattern="x", path="fifo")) == "FS_NOT_REGULAR_FILE"
    assert code_of(tree.run(GREP, pattern="x", path="gone")) == "FS_NOT_FOUND"


def test_nothing_found_says_so(tree: ToolSession) -> None:
    outcome = tree.run(GREP, pattern="absent")
    assert text_of(outcome) == "No matches found"
    assert outcome.meta == {"shape": "matches", "files": [], "truncated": False, "total": 0}


def test_binary_files_and_links_are_passed_over(session: ToolSession) -> None:
    (session.cwd / "bin").write_bytes(b"needle\0\n")
    (session.cwd / "text").write_bytes(b"needle \xe9\r\n")
    (session.cwd / "link").symlink_to("text")
    os.mkfifo(session.cwd / "fifo")
    assert text_of(session.run(GREP, pattern="needle")) == "Found 1 matches\n\ntext\nLine 1: needle \ufffd"


def test_too_many_matches_are_cut_at_the_cap(session: ToolSession) -> None:
    (session.cwd / "a").write_text("hit\n" * 200)
    (session.cwd / "b").write_text("hit\n" * 100)
    (session.cwd / "c").write_text("hit\n" * 100)
    outcome = session.run(GREP, pattern="hit")
    text = text_of(outcome)
    assert text.startswith("Found 400 matches\n\na\nLine 1: hit\n")
    assert text.count("Line ") == 250
    assert text.endswith(
        "Line 50: hit\n\n(Showing the first 250. Narrow the pattern, the path or include to see others.)",
    )
    assert (outcome.meta["truncated"], outcome.meta["total"]) == (True, 400)


def test_long_lines_are_cut_and_counted_once(session: ToolSession) -> None:
    (session.cwd / "a").write_text("x" * 3_000_000 + "\nx\n")
    text = text_of(session.run(GREP, pattern="x"))
    assert text == f"Found 2 matches\n\na\nLine 1: {'x' * 500}... (line truncated to 500 chars)\nLine 2: x"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{2,1}", "*"])
def test_a_bad_expression_is_explained(session: ToolSession, pattern: str) -> None:
    outcome = session.run(GREP, pattern=pattern)
    problem = "pattern: not a valid regular expression:"
    assert text_of(outcome).startswith(f'Error: invalid arguments for tool "grep": {problem}')
    assert code_of(outcome) == "INVALID_ARGS"


def test_an_expression_that_never_ends_can_be_cancelled(session: ToolSession) -> None:
    """It would keep the agent's own interpreter busy for ages; the search has a process of its own."""
    (session.cwd / "f").write_text("a" * 60 + "!\n")

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4) as limit:
                await session.call(GREP, pattern="(a|aa)+$")
        when = limit.when()
        assert when is not None
        return loop.time() - when

    assert asyncio.run(scenario()) < 1.0


# ---------------------------------------------------------------- a place that cannot be looked at


@pytest.mark.parametrize("path", ["n" * 300, "p/" * 2500], ids=["long-name", "long-path"])
def test_a_path_that_the_system_will_not_look_at_is_not_found(session: ToolSession, path: str) -> None:
    for tool in (GLOB, GREP):
        outcome = session.run(tool, pattern="x", path=path)
        assert text_of(outcome).startswith("Error: cannot search "), tool.name
        assert text_of(outcome).endswith(": not found")

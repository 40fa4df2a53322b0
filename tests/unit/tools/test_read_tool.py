from __future__ import annotations

import os
from pathlib import Path

import pytest

from acp_agent.tools.base import Kind, Location, ToolFailure
from acp_agent.tools.observed import DIGEST_LIMIT
from acp_agent.tools.read import Read
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

READ = Read()


def envelope(path: Path, *lines: str, footer: str) -> str:
    return "\n".join([f"<path>{path}</path>", "<type>file</type>", "<content>", *lines, "", footer, "</content>"])


def test_the_whole_file_comes_numbered_with_its_total(session: ToolSession) -> None:
    path = session.cwd / "config.txt"
    path.write_text("mode=DEBUG\nlevel=info\n")
    outcome = session.run(READ, file_path="config.txt")
    footer = "(End of file - total 2 lines)"
    assert text_of(outcome) == envelope(path, "1: mode=DEBUG", "2: level=info", footer=footer)
    assert outcome.meta == {
        "path": str(path),
        "offset": 1,
        "lines": [{"number": 1, "text": "mode=DEBUG"}, {"number": 2, "text": "level=info"}],
        "totalLines": 2,
    }
    assert not outcome.is_error


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("hello\n", ["1: hello"]),
        ("hello", ["1: hello"]),
        ("", []),
        ("\n", ["1: "]),
        ("a\n\n", ["1: a", "2: "]),
        ("a\r\nb\r\n", ["1: a", "2: b"]),
        ("\ufeffa\n", ["1: a"]),
        ("a\u2028b\n", ["1: a\u2028b"]),
    ],
)
def test_lines_end_at_newlines_only(session: ToolSession, content: str, lines: list[str]) -> None:
    path = session.cwd / "f"
    path.write_bytes(content.encode())
    footer = f"(End of file - total {len(lines)} lines)"
    assert text_of(session.run(READ, file_path="f")) == envelope(path, *lines, footer=footer)


def test_a_window_says_where_to_continue(session: ToolSession) -> None:
    path = session.cwd / "f"
    path.write_text("".join(f"line {n}\n" for n in range(1, 11)))
    outcome = session.run(READ, file_path="f", offset=3.0, limit=2)
    footer = "(Showing lines 3-4 of 10. Use offset=5 to continue.)"
    assert text_of(outcome) == envelope(path, "3: line 3", "4: line 4", footer=footer)
    last = session.run(READ, file_path="f", offset=9, limit=2)
    assert text_of(last) == envelope(path, "9: line 9", "10: line 10", footer="(End of file - total 10 lines)")


def test_two_thousand_lines_are_the_most_whatever_the_limit(session: ToolSession) -> None:
    (session.cwd / "f").write_text("x\n" * 2001)
    text = text_of(session.run(READ, file_path="f", limit=5000))
    assert "\n2000: x\n\n(Showing lines 1-2000 of 2001. Use offset=2001 to continue.)\n" in text
    assert "\n2001: " not in text


def test_output_is_capped_at_fifty_kibibytes(session: ToolSession) -> None:
    (session.cwd / "f").write_text(("y" * 1023 + "\n") * 60)
    text = text_of(session.run(READ, file_path="f"))
    assert text.endswith("\n\n(Output capped. Showing lines 1-50. Use offset=51 to continue.)\n</content>")
    assert "(End of file - total 60 lines)" in text_of(session.run(READ, file_path="f", offset=51))


@pytest.mark.parametrize("char", ["a", "é", "𝄞"])
def test_a_long_line_is_cut_with_a_marker(session: ToolSession, char: str) -> None:
    (session.cwd / "f").write_text(char * 2000 + "\n" + char * 2001 + "\n")
    lines = text_of(session.run(READ, file_path="f")).split("\n")
    assert lines[3] == "1: " + char * 2000
    assert lines[4] == "2: " + char * 2000 + "... (line truncated to 2000 chars)"


def test_a_large_file_is_paged_without_being_held(session: ToolSession) -> None:
    path = session.cwd / "large"
    with path.open("wb") as out:
        out.write(b"z" * 3_000_000 + b"\n")
        out.writelines(b"%d\n" % number for number in range(2, 400_001))
    outcome = session.run(READ, file_path="large", offset=399_999, limit=1)
    footer = "(Showing lines 399999-399999 of 400000. Use offset=400000 to continue.)"
    assert text_of(outcome) == envelope(path, "399999: 399999", footer=footer)
    assert text_of(session.run(READ, file_path="large", limit=1)).count("z") == 2000


def test_the_version_of_a_huge_file_is_its_size_and_time(session: ToolSession) -> None:
    path = session.cwd / "huge"
    with path.open("wb") as out:
        out.write(b"line\n")
        out.seek(DIGEST_LIMIT)
        out.write(b"x")
    path.write_bytes(path.read_bytes().replace(b"\0", b" "))
    (seen,) = session.run(READ, file_path="huge", limit=1).observed
    assert seen.version == f"stat:{DIGEST_LIMIT + 1}:{path.stat().st_mtime_ns}"


def test_reading_observes_the_real_file(session: ToolSession) -> None:
    (session.cwd / "a").write_text("one")
    (session.cwd / "link").symlink_to("a")
    (first,) = session.run(READ, file_path="link").observed
    assert first.path == str((session.cwd / "a").resolve())
    (session.cwd / "a").write_text("two")
    (second,) = session.run(READ, file_path="a").observed
    assert first.version != second.version


def test_a_missing_file_is_an_observation_of_absence(session: ToolSession) -> None:
    outcome = session.run(READ, file_path="gone.txt")
    path = session.cwd / "gone.txt"
    assert text_of(outcome) == f'Error: cannot read "{path}": not found'
    assert (outcome.is_error, code_of(outcome)) == (True, "FS_NOT_FOUND")
    assert session.seen == {str(path.resolve()): None}


def test_a_path_through_a_file_is_not_found(session: ToolSession) -> None:
    (session.cwd / "a").write_text("")
    assert code_of(session.run(READ, file_path="a/b")) == "FS_NOT_FOUND"


def test_what_is_not_a_file_is_refused_without_blocking(session: ToolSession) -> None:
    (session.cwd / "dir").mkdir()
    os.mkfifo(session.cwd / "fifo")
    directory, fifo = session.run(READ, file_path="dir"), session.run(READ, file_path="fifo")
    assert text_of(directory) == f'Error: cannot read "{session.cwd / "dir"}": it is a directory'
    assert text_of(fifo) == f'Error: cannot read "{session.cwd / "fifo"}": it is not a regular file'
    assert code_of(directory) == code_of(fifo) == "FS_NOT_REGULAR_FILE"
    session.confined = False
    assert code_of(session.run(READ, file_path="/dev/zero")) == "FS_NOT_REGULAR_FILE"


def test_binary_content_is_refused_and_bad_utf8_is_replaced(session: ToolSession) -> None:
    (session.cwd / "bin").write_bytes(b"ab\0cd")
    (session.cwd / "latin").write_bytes(b"caf\xe9\n")
    assert text_of(session.run(READ, file_path="bin")) == (
        f'Error: cannot read "{session.cwd / "bin"}": it is a binary file'
    )
    assert "1: caf\ufffd\n" in text_of(session.run(READ, file_path="latin"))


def test_an_offset_past_the_end_is_refused_with_the_total(session: ToolSession) -> None:
    (session.cwd / "f").write_text("a\nb\n")
    outcome = session.run(READ, file_path="f", offset=3)
    assert text_of(outcome) == f'Error: cannot read "{session.cwd / "f"}" from line 3: it has 2 lines'
    assert outcome.is_error


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "object missing required field file_path"),
        ("{}", "object missing required field file_path"),
        ('{"file_path": 1}', "file_path: expected str, got int"),
        ('{"file_path": ""}', "file_path: expected a path, got an empty string"),
        ('{"file_path": "a", "offset": 0}', "offset: expected 1 or more, got 0"),
        ('{"file_path": "a", "offset": 1.5}', "offset: expected a whole number, got 1.5"),
        ('{"file_path": "a", "limit": "9"}', "limit: expected float | null, got str"),
        ("[]", "expected object, got array"),
        ('{"file_path": ', "not valid JSON (Input data was truncated)"),
        ("\ud800", "not valid JSON"),
    ],
)
def test_wrong_arguments_name_the_field(arguments: str, problem: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        READ.decode(arguments)
    assert caught.value.message.startswith(f'invalid arguments for tool "read": {problem}')
    assert caught.value.error
    assert (caught.value.error.name, caught.value.error.code) == ("InvalidArgumentsError", "INVALID_ARGS")


def test_unknown_fields_and_nulls_are_tolerated() -> None:
    request = READ.decode('{"file_path": "a", "offset": null, "limit": 7.0, "mood": "fine"}')
    assert (request.offset, request.limit) == (1, 7)


def test_it_is_announced_with_its_place_and_shown_without_the_envelope(session: ToolSession) -> None:
    (session.cwd / "f").write_text("a ``` b\nc\n")
    view = READ.announce(READ.decode('{"file_path": "f", "offset": 2}'), session.cwd)
    assert (view.kind, view.locations) == (Kind.read, (Location(str(session.cwd / "f"), 2),))
    outcome = session.run(READ, file_path="f")
    shown = session.shown(READ, outcome, file_path="f")
    assert shown.text == "````\n1: a ``` b\n2: c\n\n(End of file - total 2 lines)\n````"

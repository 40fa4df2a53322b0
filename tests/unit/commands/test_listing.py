"""`sessions list` and what an id may be shortened to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acp_agent.stores.base import Refusal
from tests.unit.commands.bench import CommandBench, Refusing
from tests.wire.recordings import Log, says, tool
from tests.wire.recordings import call as answer


def plain(session: str, created: int = 1000, cwd: str = "/project") -> Log:
    log = Log(session, created=created, cwd=cwd).turn("Hello.", says("Hi."))
    return log.add("session/title", title=f"About {session}", messageSeqs=[2], source={"kind": "fallback"})


def parent(session: str, *children: str) -> list[Log]:
    calls = [tool(f"call-{child}", "subagent", description="d", prompt=child) for child in children]
    root = Log(session).turn("Go.", answer(*calls), says("Done."))
    return [root, *(root.spawned(child, f"call-{child}").turn(child, says("Yes.")) for child in children)]


def test_the_newest_come_first_with_title_children_and_directory(sessions: CommandBench) -> None:
    sessions.keep(plain("old", 1000))
    sessions.keep(*parent("family", "one", "two"))
    sessions.keep(plain("new", 3000, "/elsewhere"))
    done = sessions("list")
    assert (done.status, done.err) == (0, [])
    head, *rows = [line.rstrip() for line in done.out]
    assert head.split() == ["id", "title", "updated", "children", "directory"]
    assert [row.split()[0] for row in rows] == ["new", "family", "old"]
    assert rows[0].endswith("/elsewhere")
    assert "About new" in rows[0]
    assert rows[1][head.index("children"):].split() == ["2", "{{cwd}}"]


def test_only_those_of_a_directory_are_listed_when_it_is_named(
    sessions: CommandBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    sessions.keep(plain("here", cwd=str(tmp_path)))
    sessions.keep(plain("there", cwd="/elsewhere"))
    for words in (("--cwd", "."), ("--cwd", tmp_path)):
        assert [row.split()[0] for row in sessions("list", *words).out[1:]] == ["here"]


def test_an_empty_store_is_told_by_its_name(sessions: CommandBench) -> None:
    assert sessions("list") == (0, ["no sessions in memory:here"], [])
    assert sessions("list", "--json") == (0, [], [])


def test_a_limit_is_told_when_there_are_more(sessions: CommandBench) -> None:
    for number in range(3):
        sessions.keep(plain(f"s{number}", number))
    told = sessions("list", "--limit", "2").out
    assert [row.split()[0] for row in told[1:3]] == ["s2", "s1"]
    assert told[3:] == ["the newest 2 are shown; --limit N shows more"]
    assert len(sessions("list", "--limit", "3").out) == 4


def test_json_is_one_object_a_line_and_has_them_all(sessions: CommandBench) -> None:
    for number in range(60):
        sessions.keep(plain(f"s{number:02}", number))
    sessions.keep(*parent("family", "one"))
    done = sessions("list", "--json")
    found = [json.loads(line) for line in done.out]
    assert [one["id"] for one in found] == ["family", *(f"s{number:02}" for number in reversed(range(60)))]
    assert found[0] == {"id": "family", "title": None, "createdAt": 1000, "updatedAt": 0, "seeded": False,
                        "children": 1, "cwd": "{{cwd}}"}
    assert found[1]["title"] == "About s59"
    assert len(sessions("list", "--json", "--limit", "5").out) == 5


def test_a_terminal_is_sent_no_control_characters(sessions: CommandBench) -> None:
    log = Log("a\x1b[2Jb", cwd="/x\x07\u202e").turn("Hello.", says("Hi."))
    sessions.keep(log.add("session/title", title="t\x1b]0;owned\x07\x9b\n", messageSeqs=[2], source={"kind": "x"}))
    table, [line] = "\n".join(sessions("list").out), sessions("list", "--json").out
    for text in (table, line):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert "2Jb" in text
    assert json.loads(line)["title"] == "t\x1b]0;owned\x07\x9b\n"


def test_a_session_that_cannot_be_read_is_named_and_the_others_are_listed(sessions: CommandBench) -> None:
    sessions.store = Refusing([Refusal("broken\x1b", "/store/broken/session.jsonl:3: no JSON")])
    sessions.keep(plain("sound"))
    for words in ((), ("--json",)):
        done = sessions("list", *words)
        assert done.status == 1
        assert "sound" in done.out[-1]
        assert done.err == ["acp-agent: broken␛: /store/broken/session.jsonl:3: no JSON"]


# ---------------------------------------------------------------- ids


def test_the_beginning_of_an_id_will_do_where_nothing_is_changed(sessions: CommandBench) -> None:
    sessions.keep(plain("abcdef-1"))
    sessions.keep(*parent("family", "abcxyz-2"))
    whole = sessions("export", "abcdef-1")
    assert whole.status == 0
    assert sessions("export", "abcd") == whole
    assert sessions("export", "abcx").out[0].startswith('{"type": "session", "version": 0, "id": "abcxyz-2"')
    assert sessions("export", "abc").status == 1
    for command in ("delete", "repair"):
        done = sessions(command, "abcd")
        assert (done.status, done.out) == (1, [])
        assert "no stored session has the id 'abcd' in memory:here; acp-agent sessions list" in done.err[0]
    assert len(sessions.store.disk.logs) == 3


def test_a_beginning_of_several_ids_names_them(sessions: CommandBench) -> None:
    for number in range(11):
        sessions.keep(plain(f"same-{number:02}", number))
    done = sessions("show", "same")
    assert (done.status, done.out) == (1, [])
    assert done.err == ["acp-agent: 'same' begins the ids of 11 sessions: same-10, same-09, same-08, same-07, same-06, "
                        "same-05, same-04, same-03 and 3 more; write more of the id"]


def test_a_whole_id_is_meant_even_when_it_begins_others(sessions: CommandBench) -> None:
    sessions.keep(plain("session-1"))
    sessions.keep(plain("session-10"))
    assert '"id": "session-1"' in sessions("export", "session-1").out[0]
    assert "2 sessions" in sessions("export", "session").err[0]


def test_a_damaged_session_is_found_by_its_beginning_too(sessions: CommandBench) -> None:
    sessions.store = Refusing([Refusal("abcdef", "no JSON")])
    done = sessions("show", "abcd")
    assert (done.status, done.out) == (1, [])
    assert "'abcdef'" in done.err[0]

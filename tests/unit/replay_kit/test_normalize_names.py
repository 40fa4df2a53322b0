"""Names: one for each id, the same everywhere, and nothing else touched."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.names import UUID, AmbiguousNames, Names, Places, check_one_to_one, token

KINDS = st.sampled_from(["session", "message", "approval", "run"])
IDS = st.lists(st.uuids(version=4).map(str), unique=True, max_size=8)
TEXTS = st.text(alphabet="ab1-/ .\n{}:\"", max_size=12)


@given(IDS, st.data())
def test_every_id_gets_one_name_and_no_two_share_one(ids: list[str], data: st.DataObject) -> None:
    names = Names()
    kinds = {raw: data.draw(KINDS) for raw in ids}
    given_names = [names.give(kinds[raw], raw) for raw in ids for _ in range(2)]
    assert len(set(given_names)) == len(ids)
    assert given_names == [names.id(raw) for raw in ids for _ in range(2)]
    check_one_to_one(dict(names.items()))


@given(IDS, st.data())
def test_naming_a_text_can_be_undone(ids: list[str], data: st.DataObject) -> None:
    names = Names()
    for raw in ids:
        names.give("message", raw)
    pieces = data.draw(st.lists(st.one_of(TEXTS, st.sampled_from(ids or [""]), st.uuids().map(str)), max_size=8))
    text = " ".join(pieces)
    named = names.text(text)
    for raw, name in names.items():
        named = named.replace(name, raw)
    assert named == text


@given(IDS, st.uuids().map(str))
def test_an_id_of_another_run_is_left_alone(ids: list[str], stranger: str) -> None:
    names = Names()
    for raw in ids:
        if raw != stranger:
            names.give("session", raw)
    assert names.text(f"see {stranger}.") == f"see {stranger}."


def test_numbers_follow_the_order_of_giving_for_each_kind() -> None:
    names = Names()
    assert [names.give("session", "b"), names.give("message", "x"), names.give("session", "a"),
            names.give("session", "b")] == ["{{session:1}}", "{{message:1}}", "{{session:2}}", "{{session:1}}"]


def test_an_id_that_is_two_things_is_refused() -> None:
    names = Names()
    names.give("session", "one")
    with pytest.raises(AmbiguousNames, match="a session and for a message"):
        names.give("message", "one")


def test_an_id_that_reads_like_another_ids_name_is_refused() -> None:
    names = Names()
    with pytest.raises(AmbiguousNames, match="reads like a name"):
        names.give("session", token("session", 2))
    assert names.give("session", token("session", 1)) == token("session", 1)


def test_two_things_of_one_name_are_refused() -> None:
    with pytest.raises(AmbiguousNames, match="would both become"):
        check_one_to_one({"a": "x", "b": "x"})


def test_a_short_id_is_named_in_its_place_and_not_in_texts() -> None:
    names = Names()
    names.give("session", "session-1")
    assert names.id("session-1") == "{{session:1}}"
    assert names.text("session-1 and session-10") == "session-1 and session-10"


def test_what_is_derived_from_an_id_keeps_what_was_added() -> None:
    names, raw = Names(), str(uuid.UUID(int=7))
    names.give("message", raw)
    assert names.id(f"{raw}-thought") == "{{message:1}}-thought"
    assert names.text(f"x{raw}") == f"x{raw}"


# ---------------------------------------------------------------- places

PLACES = Places(["/tmp/run/ws", "/private/tmp/run/ws"], "/tmp/run/home")


@pytest.mark.parametrize(("text", "named"), [
    ("/tmp/run/ws/a.txt", "{{cwd}}/a.txt"),
    ("in /tmp/run/ws.", "in {{cwd}}."),
    ("/private/tmp/run/ws:12", "{{cwd}}:12"),
    ('{"p":"/tmp/run/ws"}', '{"p":"{{cwd}}"}'),
    ("file:///tmp/run/ws/a", "file://{{cwd}}/a"),
    ("/tmp/run/home/.config", "{{home}}/.config"),
    ("/tmp/run/sessions/x", "{{root}}/sessions/x"),
    ("/tmp/run/sessions/--tmp-run-ws--/x", "{{root}}/sessions/--{{project}}--/x"),
])
def test_every_spelling_of_a_place_is_named(text: str, named: str) -> None:
    assert PLACES.text(text) == named


@pytest.mark.parametrize("text", ["/tmp/runner/x", "/x/tmp/run/ws", "/tmp/run-2", "tmp/run/ws", "/tmp", "/home"])
def test_a_path_that_only_looks_like_a_place_is_left_alone(text: str) -> None:
    assert PLACES.text(text) == text


def test_a_neighbour_of_the_workspace_is_not_the_workspace() -> None:
    assert PLACES.text("/tmp/run/ws2/a") == "{{root}}/ws2/a"


def test_a_place_with_blanks_is_known_in_addresses() -> None:
    places = Places(["/w/my dir"], "/elsewhere/home")
    assert places.text("file:///w/my%20dir/a and /w/my dir/b") == "file://{{cwd}}/a and {{cwd}}/b"


def test_the_root_directory_is_never_a_place() -> None:
    assert Places(["/"], "/").text("/usr/bin / x") == "/usr/bin / x"


@given(st.text(alphabet="/abws.-tmprun ", max_size=40))
def test_naming_places_twice_changes_nothing_more(text: str) -> None:
    once = PLACES.text(text)
    assert PLACES.text(once) == once
    assert not UUID.search(once)

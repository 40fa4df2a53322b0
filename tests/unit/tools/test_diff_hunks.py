from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.diffs import BOUND, CONTEXT, hunks
from acp_agent.tools.replacing import like, replace
from acp_agent.tools.views import Hunk

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d"]), max_size=40)


def lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def as_text(parts: list[str]) -> str:
    return "".join(f"{part}\n" for part in parts)


def apply(old: list[str], changes: tuple[Hunk, ...]) -> set[tuple[str, ...]]:
    """Every text that results from applying the hunks in order to non-overlapping places."""
    results: set[tuple[str, ...]] = set()

    def place(start: int, number: int, done: tuple[str, ...]) -> None:
        if number == len(changes):
            results.add((*done, *old[start:]))
            return
        before, after = lines(changes[number].old_text), lines(changes[number].new_text)
        for at in range(start, len(old) - len(before) + 1):
            if old[at : at + len(before)] == before:
                place(at + len(before), number + 1, (*done, *old[start:at], *after))

    place(0, 0, ())
    return results


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60, unique=False), st.data())
def test_applying_the_hunks_gives_the_new_text(seed: list[int], data: st.DataObject) -> None:
    old = [f"{number}:{value}" for number, value in enumerate(seed)]
    new = list(old)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(new)))
        new[at : at + data.draw(st.integers(0, 3))] = data.draw(st.lists(st.sampled_from("xyz"), max_size=3))
    assert tuple(new) in apply(old, hunks("f", as_text(old), as_text(new)))


@given(LINES, LINES)
def test_hunks_of_repetitive_texts_apply_too(old: list[str], new: list[str]) -> None:
    changes = hunks("f", as_text(old), as_text(new))
    assert (changes == ()) == (old == new)
    if len(changes) == 1 and "" not in (*old, *new):
        assert tuple(new) in apply(old, changes)


def test_separate_regions_are_separate_hunks_with_their_context() -> None:
    old = [str(number) for number in range(30)]
    new = [*old[:5], "five", *old[6:20], "more", *old[20:]]
    assert hunks("f", as_text(old), as_text(new)) == (
        Hunk("f", "\n".join(old[2:9]), "\n".join([*old[2:5], "five", *old[6:9]])),
        Hunk("f", "\n".join(old[17:23]), "\n".join([*old[17:20], "more", *old[20:23]])),
    )


def test_regions_whose_context_touches_are_one_hunk() -> None:
    old = [str(number) for number in range(20)]
    new = list(old)
    new[5] = new[5 + 2 * CONTEXT] = "x"
    assert len(hunks("f", as_text(old), as_text(new))) == 1
    new[5 + 2 * CONTEXT] = old[5 + 2 * CONTEXT]
    new[6 + 2 * CONTEXT + 1] = "x"
    assert len(hunks("f", as_text(old), as_text(new))) == 2


def test_only_the_last_newline_changing_is_one_hunk() -> None:
    assert hunks("f", "a\nb", "a\nb\n") == (Hunk("f", "a\nb", "a\nb\n"),)


def test_the_bound_counts_bytes_of_either_text() -> None:
    assert hunks("f", "é" * (BOUND // 2), "x") != ()
    assert hunks("f", "é" * (BOUND // 2) + "y", "x") == ()
    assert hunks("f", "x", "é" * (BOUND // 2) + "y") == ()


@pytest.mark.parametrize("count", [30_000, 900])
def test_a_hopeless_comparison_is_one_hunk(count: int) -> None:
    """So many equal lines against as many equal lines: matching each with each would take minutes, or seconds."""
    old, new = ["a", *([""] * count), "b"], ["c", *([""] * count), "d"]
    assert len(hunks("f", as_text(old), as_text(new))) == 1
    assert len(hunks("f", as_text(["a", *([""] * 20), "b"]), as_text(["c", *([""] * 20), "d"]))) == 2


@given(st.text("ab\n", max_size=30), st.text("ab\n", min_size=1, max_size=4), st.text("ab\n", max_size=4))
def test_replacing_in_crlf_text_is_replacing_in_lf_text(text: str, old: str, new: str) -> None:
    expected = replace(text, old, new)
    crlf = replace(text.replace("\n", "\r\n"), old, new)
    assert crlf.count == expected.count
    if "\n" in text:
        assert crlf.text == expected.text.replace("\n", "\r\n")


def test_content_with_endings_of_its_own_is_kept() -> None:
    assert like("a\nb\n", "x\r\ny\r\n") == "a\r\nb\r\n"
    assert like("a\r\nb\n", "x\r\ny\r\n") == "a\r\nb\n"
    assert like("a\nb\n", "x\r\ny\n") == "a\nb\n"

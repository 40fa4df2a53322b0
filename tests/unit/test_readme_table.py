"""README's table of what is supported is what the code does. `python -m tests.support.conformance_table` renews it."""

from __future__ import annotations

import pytest

from tests.support import conformance_table
from tests.support.conformance_table import BEGIN, END, LEFT_OUT, README, rows, written


def test_readme_has_the_table_of_today() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme.count(BEGIN) == readme.count(END) == 1
    assert readme == written(readme), "renew it: python -m tests.support.conformance_table"


def test_every_stable_part_is_supported_or_has_its_reason() -> None:
    missing = {what: word for what, status, word in rows() if status == "stable" and word != "yes"}
    assert set(missing) == {"`elicitation/complete` (to the client)", "update `compaction_update`",
                            "update `compaction_summary_chunk`"}
    shown = " ".join(what for what, _, word in rows() if word == "yes")
    assert not [name for name in LEFT_OUT if f"`{name}`" in shown], "a reason for something that is there"


def test_what_is_neither_there_nor_excused_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_table, "agent_methods", lambda: ["initialize"])
    with pytest.raises(KeyError, match="authenticate"):
        rows()

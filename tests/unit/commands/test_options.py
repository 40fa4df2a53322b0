"""The words of `acp-agent sessions`: what is wrong with them is named, and `--help` teaches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.cli import main
from acp_agent.commands.options import STORE, Flag, Given, Usage, parse, whole_number
from acp_agent.commands.sessions import COMMANDS, help_text
from acp_agent.errors import SettingsError

USAGE = Usage("try", "ID OUT", "Try it.", (Flag("--json", "", "as JSON"), Flag("--limit", "N", "at most N")))
MANY = Usage("many", "ID...", "Try many.")


def test_flags_and_operands_come_in_any_order() -> None:
    assert parse(USAGE, ["--limit=3", "a", "--json", "b", "--session-store", "jsonl:x"]) == Given(
        ["a", "b"], {"--limit": "3", "--json": "", "--session-store": "jsonl:x"})


def test_behind_two_dashes_every_word_is_an_operand() -> None:
    assert parse(USAGE, ["a", "--", "--json"]) == Given(["a", "--json"], {})


def test_only_the_settings_are_handed_on_as_settings() -> None:
    given = parse(USAGE, ["a", "b", "--json", "--config=c.toml", "--session-store=sqlite:y"])
    assert given.settings == {"--config": "c.toml", "--session-store": "sqlite:y"}


@pytest.mark.parametrize(("words", "named"), [
    ([], "ID is missing"),
    (["a"], "OUT is missing"),
    (["a", "b", "c"], "'c' is one word too many"),
    (["a", "b", "--jsn"], "unknown flag --jsn; did you mean --json?"),
    (["a", "b", "--sesion-store", "x"], "unknown flag --sesion-store; did you mean --session-store?"),
    (["a", "-b"], "unknown flag -b; write -- before a word that begins with -"),
    (["a", "b", "--json=yes"], "--json takes no value"),
    (["a", "b", "--limit"], "--limit needs a value: N"),
    (["a", "b", "--limit", "--json"], "--limit needs a value: N"),
])
def test_the_word_that_is_wrong_is_named(words: list[str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(USAGE, words)
    assert caught.value.message == (
        f"sessions try: {named} (usage: acp-agent sessions try ID OUT [--json] [--limit N])")


def test_one_or_more_operands_are_one_or_more() -> None:
    assert parse(MANY, ["a", "b", "c"]).operands == ["a", "b", "c"]
    with pytest.raises(SettingsError, match="ID is missing"):
        parse(MANY, [])


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "9999999999", "٣"])
def test_a_limit_is_a_whole_number_from_1_up(text: str) -> None:
    with pytest.raises(SettingsError, match="a whole number from 1 up"):
        whole_number(Given([], {"--limit": text}), "--limit", USAGE)
    assert whole_number(Given([], {"--limit": "12"}), "--limit", USAGE) == 12
    assert whole_number(Given([], {}), "--limit", USAGE) is None


def test_help_names_every_command_and_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "--help"]) == 0
    assert capsys.readouterr().out == help_text() + "\n"
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in help_text()
        assert main(["sessions", name, "--help"]) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"usage: {command.usage.line}\n")
        for flag in (*command.usage.flags, *STORE):
            assert flag.name in told
            assert flag.meaning in told


@pytest.mark.parametrize(("words", "named"), [
    (["sessions"], "a command is missing: acp-agent sessions COMMAND, one of list, show, export, import, delete"),
    (["sessions", "--json"], "--json comes behind a command"),
    (["sessions", "lst"], "unknown command 'sessions lst'; did you mean list?"),
    (["sessions", "remove", "x"], "unknown command 'sessions remove'; there are list, show, export"),
    (["sessions", "list", "--limit", "0"], "--limit: '0' is not allowed"),
    (["sessions", "list", "--session-store", "file"], "--session-store: 'file' is not allowed; allowed: jsonl:DIR"),
])
def test_words_that_cannot_be_used_end_with_status_2(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACP_SESSION_STORE", f"jsonl:{tmp_path}")
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert named in told.err

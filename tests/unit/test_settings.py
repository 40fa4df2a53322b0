"""Settings: precedence, values, typos, and errors that name everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.errors import SettingsError
from acp_agent.settings import (
    CONFIG,
    SETTINGS,
    JsonlStore,
    ModelChoice,
    Settings,
    SqliteStore,
    credentials_file,
    read_settings,
    refuse_unavailable,
    setting_for_flag,
    within_one_edit,
)

HOME, CWD = Path("/home/someone"), Path("/started/here")
DEFAULT_FILE = HOME / ".config/acp-agent/config.toml"


def settings(
    flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None,
    files: Mapping[Path, str | bytes] | None = None,
) -> Settings:
    def read(path: Path) -> bytes:
        if files is None or path not in files:
            raise FileNotFoundError(2, "No such file or directory")
        content = files[path]
        return content if isinstance(content, bytes) else content.encode()

    return read_settings(flags or {}, environ or {}, home=HOME, cwd=CWD, read=read)


def refusal(
    flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None,
    files: Mapping[Path, str | bytes] | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        settings(flags, environ, files)
    return caught.value.message


def test_without_any_setting_the_defaults_of_the_design_hold() -> None:
    assert settings() == Settings(store=JsonlStore(HOME / ".local/state/acp-agent/sessions"))


def test_the_struct_and_the_table_state_the_same_defaults() -> None:
    assert settings() == settings(flags={
        s.flag: s.default.replace("$XDG_STATE_HOME", str(HOME / ".local/state"))
        for s in SETTINGS if s.default != "none"
    })


def test_every_setting_can_come_from_the_environment() -> None:
    got = settings(environ={
        "ACP_REPLAY_DIR": "/rec", "ACP_REPLAY_TOOLS": "live", "ACP_REPLAY_DRIFT": "fail",
        "ACP_REPLAY_SESSIONS": "repeat", "ACP_REPLAY_PACE": "25", "ACP_REPLAY_RECEIPT": "/r.json",
        "ACP_SESSION_STORE": "jsonl:/logs", "ACP_MODEL": "openai/vendor/some-model",
        "ACP_PERMISSION_MODE": "read-only", "ACP_SUBAGENT_MAX_DEPTH": "0", "ACP_IDS": "sequential",
        "ACP_LOG_LEVEL": "debug",
    })
    assert got == Settings(
        replay_dir=Path("/rec"), replay_tools="live", replay_drift="fail", replay_sessions="repeat",
        replay_pace=25, replay_receipt=Path("/r.json"), store=JsonlStore(Path("/logs")),
        model=ModelChoice("openai", "vendor/some-model"), permission_mode="read-only", subagent_max_depth=0,
        ids="sequential", log_level="debug",
    )


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    files = {DEFAULT_FILE: 'ids = "sequential"\nlog_level = "error"\nreplay_tools = "live"\n'}
    got = settings({"--ids": "random"}, {"ACP_IDS": "sequential", "ACP_LOG_LEVEL": "info"}, files)
    assert (got.ids, got.log_level, got.replay_tools) == ("random", "info", "live")


def test_the_config_file_holds_numbers_as_numbers_or_text() -> None:
    got = settings(files={DEFAULT_FILE: 'replay_pace = 5\nsubagent_max_depth = "1"\n'})
    assert (got.replay_pace, got.subagent_max_depth) == (5, 1)


def test_relative_paths_start_at_the_working_directory_and_in_the_file_at_the_file() -> None:
    files = {Path("/etc/agent/c.toml"): 'replay_receipt = "r.json"\nsession_store = "jsonl:logs"\n'}
    got = settings({"--replay-dir": "rec"}, {"ACP_CONFIG": "/etc/agent/c.toml"}, files)
    assert got.replay_dir == CWD / "rec"
    assert got.replay_receipt == Path("/etc/agent/r.json")
    assert got.store == JsonlStore(Path("/etc/agent/logs"))


def test_a_tilde_means_home_wherever_it_stands() -> None:
    got = settings(environ={"ACP_SESSION_STORE": "jsonl:~/logs", "ACP_REPLAY_DIR": "~"})
    assert (got.store, got.replay_dir) == (JsonlStore(HOME / "logs"), HOME)


def test_xdg_directories_move_the_defaults_unless_they_are_relative() -> None:
    environ = {"XDG_STATE_HOME": "/state", "XDG_CONFIG_HOME": "/conf"}
    got = settings(environ=environ, files={Path("/conf/acp-agent/config.toml"): 'ids = "sequential"'})
    assert (got.store, got.ids) == (JsonlStore(Path("/state/acp-agent/sessions")), "sequential")
    assert settings(environ={"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": ""}) == settings()


def test_an_empty_variable_counts_as_unset() -> None:
    assert settings(environ={s.variable: "" for s in (CONFIG, *SETTINGS)}) == settings()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ACP_REPLAY_TOOLS", "Live", "recorded or live"),
        ("ACP_REPLAY_DRIFT", "warm", "warn, fail or ignore"),
        ("ACP_REPLAY_SESSIONS", "twice", "once or repeat"),
        ("ACP_REPLAY_PACE", "-1", "burst, recorded or a whole number"),
        ("ACP_REPLAY_PACE", "1.5", "burst, recorded or a whole number"),
        ("ACP_REPLAY_PACE", "٣", "burst, recorded or a whole number"),
        ("ACP_SESSION_STORE", "/logs", "jsonl:DIR or sqlite:FILE"),
        ("ACP_SESSION_STORE", "jsonl:", "jsonl:DIR or sqlite:FILE"),
        ("ACP_MODEL", "gpt", "PROVIDER/MODEL"),
        ("ACP_MODEL", "openai/", "PROVIDER/MODEL"),
        ("ACP_PERMISSION_MODE", "yolo", "read-only, ask, accept-edits or full-access"),
        ("ACP_SUBAGENT_MAX_DEPTH", "-1", "a whole number from 0 up"),
        ("ACP_SUBAGENT_MAX_DEPTH", "9" * 5000, "a whole number from 0 up"),
        ("ACP_IDS", "serial", "random or sequential"),
        ("ACP_LOG_LEVEL", "verbose", "error, warning, info or debug"),
    ],
)
def test_a_bad_value_is_refused_naming_variable_value_and_what_is_allowed(
    name: str, value: str, allowed: str,
) -> None:
    message = refusal(environ={name: value})
    assert message.startswith(f"{name}: {value!r} is not allowed; allowed: {allowed}")


def test_a_bad_value_of_a_flag_names_the_flag() -> None:
    assert refusal({"--ids": "x"}).startswith("--ids: 'x' is not allowed")
    assert refusal({"--replay-dir": ""}).startswith("--replay-dir: '' is not allowed")


def test_a_bad_value_in_the_file_names_key_and_file() -> None:
    assert refusal(files={DEFAULT_FILE: 'ids = "x"'}).startswith(f"ids in {DEFAULT_FILE}: 'x' is not allowed")
    for value in ("true", "1.5", "[]", "{}", "1979-05-27"):
        assert f"ids in {DEFAULT_FILE}" in refusal(files={DEFAULT_FILE: f"ids = {value}"})
    assert "replay_dir in" in refusal(files={DEFAULT_FILE: 'replay_dir = "a\\u0000b"'})


def test_an_unknown_key_is_refused_naming_the_right_one_or_all() -> None:
    assert "did you mean replay_dir?" in refusal(files={DEFAULT_FILE: 'replay-dir = "x"'})
    assert "did you mean replay_dir?" in refusal(files={DEFAULT_FILE: 'Replay_Dri = "x"'})
    assert "known keys: ids, log_level" in refusal(files={DEFAULT_FILE: 'colour = "x"'})
    assert "unknown key 'config'" in refusal(files={DEFAULT_FILE: 'config = "x"'})


def test_a_named_config_file_must_exist_and_the_default_one_need_not() -> None:
    assert "ACP_CONFIG: cannot read /no.toml: No such file" in refusal(environ={"ACP_CONFIG": "/no.toml"})
    assert "--config: cannot read /started/here/c.toml" in refusal({"--config": "c.toml"})


def test_an_unreadable_default_config_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acp-agent/config.toml").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"cannot read .*config\.toml: Is a directory"):
        read_settings({}, {"XDG_CONFIG_HOME": str(tmp_path)}, home=HOME, cwd=CWD)


@pytest.mark.parametrize("content", [b"ids = ", b"\xff\xfe"])
def test_a_broken_config_file_is_refused_naming_it(content: bytes) -> None:
    assert f"{DEFAULT_FILE} is not valid TOML" in refusal(files={DEFAULT_FILE: content})


@pytest.mark.parametrize(
    ("typo", "right"),
    [
        ("ACP_REPLAY_DIRS", "ACP_REPLAY_DIR"), ("ACP_REPLAY_DRI", "ACP_REPLAY_DIR"),
        ("ACP_REPLAYDIR", "ACP_REPLAY_DIR"), ("acp_replay_dir", "ACP_REPLAY_DIR"),
        ("ACP-REPLAY-DIR", "ACP_REPLAY_DIR"), ("ACPREPLAY_DIR", "ACP_REPLAY_DIR"),
        ("ACP_ID", "ACP_IDS"), ("ACP_MODLE", "ACP_MODEL"), ("ACP_SESSION_STORES", "ACP_SESSION_STORE"),
        ("Acp_Confg", "ACP_CONFIG"),
    ],
)
def test_a_variable_one_typo_away_is_refused_naming_the_right_one(typo: str, right: str) -> None:
    assert refusal(environ={typo: "x"}) == f"unknown variable {typo}; did you mean {right}?"
    assert settings(environ={typo: ""}) == settings()


@pytest.mark.parametrize("name", ["ACP_TOKEN", "ACP_REPLAY", "MCP_CONFIG", "MCP_MODEL", "ACPI_DIR", "CONFIG"])
def test_a_variable_that_belongs_to_somebody_else_is_left_alone(name: str) -> None:
    assert settings(environ={name: "x"}) == settings()


def test_an_unknown_flag_is_refused_naming_the_right_one() -> None:
    assert setting_for_flag("--replay-dir").variable == "ACP_REPLAY_DIR"
    for typo in ("--replay_dir", "--replay-dirs", "-replay-dir", "--Replay-Dir"):
        with pytest.raises(SettingsError, match=f"unknown flag {typo}; did you mean --replay-dir?"):
            setting_for_flag(typo)
    with pytest.raises(SettingsError, match="unknown flag --colour; see acp-agent --help"):
        setting_for_flag("--colour")


def test_a_database_is_a_file_found_as_every_other_path_is() -> None:
    for text, file in (("db", CWD / "db"), ("/var/a:b.db", Path("/var/a:b.db")), ("~/db", HOME / "db")):
        chosen = settings(environ={"ACP_SESSION_STORE": f"sqlite:{text}"})
        assert chosen.store == SqliteStore(file)
        refuse_unavailable(chosen)
    with pytest.raises(SettingsError, match="jsonl:DIR or sqlite:FILE"):
        settings(environ={"ACP_SESSION_STORE": "sqlite:"})


@pytest.mark.parametrize("environ", [{}, {"ACP_REPLAY_DIR": "recording"}])
def test_a_live_model_may_be_named_so_that_one_can_log_in(environ: dict[str, str]) -> None:
    for model in ("openai/gpt", "anthropic/claude/latest"):
        refuse_unavailable(settings(environ={"ACP_MODEL": model, **environ}))


@pytest.mark.parametrize(("environ", "directory"), [
    ({}, HOME / ".config"), ({"XDG_CONFIG_HOME": "/etc/mine"}, Path("/etc/mine")),
    ({"XDG_CONFIG_HOME": "relative"}, HOME / ".config"),
])
def test_keys_lie_beside_the_config_file(environ: dict[str, str], directory: Path) -> None:
    assert credentials_file(environ, HOME) == directory / "acp-agent/credentials.json"


def test_a_scripted_model_is_a_file_found_as_every_other_path_is() -> None:
    refuse_unavailable(settings(environ={"ACP_MODEL": "scripted/a.script"}))
    for text, file in (("a/b.script", CWD / "a/b.script"), ("/a.script", Path("/a.script")), ("~/a", HOME / "a")):
        assert settings(environ={"ACP_MODEL": f"scripted/{text}"}).model == ModelChoice("scripted", str(file))
    files = {Path("/etc/agent/c.toml"): 'model = "scripted/a.script"'}
    assert settings({"--config": "/etc/agent/c.toml"}, files=files).model == ModelChoice(
        "scripted", "/etc/agent/a.script")


@pytest.mark.parametrize("environ", [{}, {"ACP_REPLAY_DIR": "recording"}])
def test_a_provider_nobody_knows_is_refused_naming_the_known_ones(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"no provider is named 'script' .*; known: scripted, .*openai"):
        refuse_unavailable(settings(environ={"ACP_MODEL": "script/a", **environ}))


NAMES = st.text("abc_", max_size=6)


@given(NAMES, st.data())
def test_one_edit_of_any_kind_is_seen_as_one(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name)))
    letter = data.draw(st.sampled_from("abcd_"))
    assert within_one_edit(name, name)
    assert within_one_edit(name, name[:at] + letter + name[at:])
    assert within_one_edit(name, name[:at] + name[at + 1:])
    assert within_one_edit(name, name[:at] + letter + name[at + 1:])
    assert within_one_edit(name, name[:at] + name[at:at + 2][::-1] + name[at + 2:])


def damerau(one: str, other: str) -> int:
    """Restricted Damerau-Levenshtein distance by the textbook table."""
    rows = [list(range(len(other) + 1))]
    for i in range(1, len(one) + 1):
        row = [i]
        for j in range(1, len(other) + 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (one[i - 1] != other[j - 1]))
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


@given(NAMES, NAMES)
def test_one_edit_agrees_with_the_textbook_distance(one: str, other: str) -> None:
    assert within_one_edit(one, other) == (damerau(one, other) <= 1)


def test_the_readme_lists_every_setting_with_its_default() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    rows = {m[1]: m[0] for m in re.finditer(r"^\| `(ACP_\w+)`.*$", readme, re.MULTILINE)}
    assert set(rows) == {s.variable for s in (CONFIG, *SETTINGS)}
    for setting in (CONFIG, *SETTINGS):
        assert setting.default in rows[setting.variable], rows[setting.variable]
        for word in re.findall(r"[a-z-]{4,}|[A-Z]{3,}", setting.allowed):
            assert word in rows[setting.variable], (word, rows[setting.variable])

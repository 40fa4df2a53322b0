"""The command line, as a real process where the process is the point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent import __version__
from acp_agent.cli import help_text, main, parse_flags
from acp_agent.errors import SettingsError
from acp_agent.settings import CONFIG, SETTINGS


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("ACP")}
    return subprocess.run(
        [sys.executable, "-m", "acp_agent", *words], env=clean | environ, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False)


def test_a_bad_setting_ends_with_status_2_and_nothing_on_stdout() -> None:
    done = run(ACP_REPLAY_TOOLS="maybe")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "acp-agent: ACP_REPLAY_TOOLS: 'maybe' is not allowed; allowed: recorded or live\n"


def test_a_misspelt_variable_ends_with_status_2_naming_the_right_one() -> None:
    done = run(ACP_REPLAY_DIRR="/x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean ACP_REPLAY_DIR?" in done.stderr


def test_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"acp-agent {__version__}\n", "")


def test_help_teaches_every_setting_and_the_subcommand() -> None:
    text = help_text()
    for setting in (CONFIG, *SETTINGS):
        assert setting.flag in text
        assert setting.variable in text
        assert setting.default in text
        assert setting.meaning in text
    assert "explain DIR" in text
    assert "sessions COMMAND" in text
    assert "exit status 2" in text
    assert run("--help").stdout == text + "\n"


def test_flags_take_their_value_from_the_next_word_or_after_an_equals_sign() -> None:
    assert parse_flags(["--replay-dir", "a=b", "--ids=sequential", "--model="]) == {
        "--replay-dir": "a=b", "--ids": "sequential", "--model": ""}


def test_the_last_of_two_equal_flags_wins() -> None:
    assert parse_flags(["--ids", "random", "--ids", "sequential"]) == {"--ids": "sequential"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--replay-dir"], "--replay-dir needs a value: DIR"),
        (["--replay-dir", "--ids", "random"], "--replay-dir needs a value: DIR"),
        (["serve"], "unknown command 'serve'"),
        (["--ids", "random", "extra"], "unknown command 'extra'"),
        (["--idz", "random"], "did you mean --ids?"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_flags(words)
    assert message in caught.value.message


@pytest.mark.parametrize("words", ["", "a b", "--jsn a", "-x"])
def test_explain_wants_one_directory(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words.split()]) == 2
    captured = capsys.readouterr()
    hint = "; write ./ before a name that begins with -" if "-" in words else ""
    assert (captured.out, captured.err) == ("", f"acp-agent: usage: acp-agent explain DIR [--json]{hint}\n")


def test_explain_takes_a_directory_that_begins_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "--w--").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "--", "--w--"]) == 1
    assert "0 recorded sessions" in capsys.readouterr().out


def test_a_vanished_working_directory_is_a_clear_error(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.rmdir(os.getcwd()); sys.path.insert(0, sys.argv[1]);"
        "from acp_agent.cli import main; sys.exit(main([]))"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    source = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code, source], cwd=gone, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the working directory is gone" in done.stderr


def test_serving_imports_nothing_of_the_commands_for_sessions() -> None:
    frames = ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
              '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ACP", "COV"))}
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "acp_agent"], input=frames, env=environ,
                          capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parents[2])
    assert '"sessionId"' in done.stdout
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "acp_agent.session.session" in loaded
    strangers = ("acp_agent.commands", "acp_agent.stores.packing", "acp_agent.visible", "rich")
    assert [name for name in sorted(loaded) if name.startswith(strangers)] == []


def test_a_refused_start_imports_neither_the_server_nor_anything_heavy() -> None:
    code = (
        "import sys; from acp_agent.cli import main; main(['--ids', 'x']);"
        "print(*sorted(sys.modules.keys() & {'acp_agent.app', 'anyio', 'asyncio', 'argparse', 'json',"
        " 'subprocess', 'tomllib', 'jsonrpcserver', 'replay'}))"
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ACP", "COV"))}
    environ["XDG_CONFIG_HOME"] = "/nonexistent"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60,
                          check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == []

"""The settings in docs/editors.md: they can be read, all start the agent alike, and the agent takes what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import clean_environment
from tests.wire.recordings import says, script

PAGE = Path(__file__).parents[2] / "docs" / "editors.md"
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
ARGUMENTS = ["--replay-dir", "/path/to/recording", "--replay-sessions", "repeat"]
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


def agent(*words: str, directory: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "acp_agent", *words], input=stdin, capture_output=True, text=True,
                          timeout=60, check=False, cwd=directory, env=clean_environment(directory))


def command(language: str, snippet: str) -> list[str]:
    """The command that a snippet makes an editor start."""
    if language == "json":
        (server,) = json.loads(snippet)["agent_servers"].values()
        return [server["command"], *server["args"]]
    words = re.findall(r'"([^"]*)"', snippet)
    start = words.index("/path/to/.venv/bin/acp-agent")
    return words[start : start + 1 + len(ARGUMENTS)]


def test_the_page_has_a_snippet_for_each_editor() -> None:
    assert [language for language, _ in SNIPPETS] == ["json", "json", "lua", "elisp"]


@pytest.mark.parametrize(("language", "snippet"), SNIPPETS)
def test_a_snippet_names_the_command_and_its_flags(language: str, snippet: str) -> None:
    assert command(language, snippet) == ["/path/to/.venv/bin/acp-agent", *ARGUMENTS]
    if language != "json":
        assert all(snippet.count(opening) == snippet.count(closing) for opening, closing in ("()", "{}", "[]"))


def test_a_json_snippet_holds_the_keys_that_the_editor_asks_for() -> None:
    snippets = (json.loads(snippet) for language, snippet in SNIPPETS if language == "json")
    zed, jetbrains = (settings["agent_servers"]["acp-replay"] for settings in snippets)
    assert zed["type"] == "custom"
    assert set(zed) - {"type"} == set(jetbrains) == {"command", "args", "env"}


def test_the_agent_serves_a_recording_with_the_flags_of_the_snippets(tmp_path: Path) -> None:
    recording = script(tmp_path / "recording", says("Hello."))
    words = [str(recording) if word == "/path/to/recording" else word for word in ARGUMENTS]
    done = agent(*words, directory=tmp_path, stdin=json.dumps(HELLO) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["protocolVersion"] == 1


def test_every_flag_that_the_page_names_is_one_of_the_agents(tmp_path: Path) -> None:
    flags = set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text(encoding="utf-8")))
    assert {"--replay-dir", "--model"} < flags
    assert flags <= set(re.findall(r"--[a-z][a-z-]+", agent("--help", directory=tmp_path).stdout))

"""Logging in: who needs it, the two ways to do it, what it opens, and that no key is ever shown."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.conftest import Workbench
from tests.support.client import AGENT, TIMEOUT, AgentProcess
from tests.support.processes import clean_environment
from tests.wire.runs import directory_of
from tests.wire.scripted import Json, Stage

KEY = "not-a-real-key-0123456789"
TERMINAL_AUTH = {"auth": {"terminal": True}}
VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
AUTH_REQUIRED, INVALID, UNKNOWN_METHOD, INTERNAL = -32000, -32602, -32601, -32603


@pytest.fixture(params=VARIABLES)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def live(bench: Workbench, provider: str, *flags: str, **environ: str) -> AgentProcess:
    """An agent of a provider that needs a key, started but not initialised."""
    return bench(*flags, environ={"ACP_MODEL": f"{provider}/some-model"} | environ)


def new(running: AgentProcess) -> Json:
    """Ask for a session; the whole answer."""
    return running.call("session/new", {"cwd": str(running.cwd), "mcpServers": []})


def authenticate(running: AgentProcess, method: str = "environment") -> Json:
    return running.call("authenticate", {"methodId": method})


def stored(bench: Workbench) -> Path:
    environ = clean_environment(bench.home)
    return Path(environ["XDG_CONFIG_HOME"]) / "acp-agent/credentials.json"


def log_in(bench: Workbench, provider: str, key: str = KEY) -> None:
    """Store a key the way a client's terminal does."""
    done = subprocess.run([*AGENT, "login", provider], env=clean_environment(bench.home), input=f"{key}\n", text=True,
                          capture_output=True, check=True, timeout=TIMEOUT)  # fmt: skip
    assert key not in done.stdout + done.stderr


def silent_about(running: AgentProcess, key: str = KEY) -> None:
    """No frame and no log of the process holds the key."""
    running.close()
    assert key not in running.stderr
    assert not [entry for entry in running.transcript if entry.sender == "agent" and key.encode() in entry.raw]


# ---------------------------------------------------------------- who needs it


@pytest.mark.parametrize("environ", [
    {}, {"ACP_MODEL": "scripted/a.script"}, {"ACP_REPLAY_DIR": "recording"},
    {"ACP_REPLAY_DIR": "recording", "ACP_MODEL": "openai/some-model"},
])
def test_nothing_that_runs_without_a_key_asks_for_one(agent: Workbench, environ: dict[str, str]) -> None:
    running = agent(environ=environ)
    result = running.initialize(TERMINAL_AUTH)
    assert result["authMethods"] == []
    assert "auth" not in result["agentCapabilities"]
    assert authenticate(running)["error"]["code"] == INVALID
    assert running.call("logout", {})["error"]["code"] == UNKNOWN_METHOD
    assert "result" in new(running)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_methods_fit_the_provider_and_the_client(agent: Workbench, provider: str, terminal: bool) -> None:
    running = live(agent, provider)
    result = running.initialize(TERMINAL_AUTH if terminal else {})
    assert result["agentCapabilities"]["auth"] == {"logout": {}}
    environment, *others = result["authMethods"]
    assert environment["id"] == "environment"
    assert "type" not in environment
    assert VARIABLES[provider] in environment["description"]
    assert [(one["id"], one["type"], one["args"]) for one in others] == (
        [("terminal", "terminal", ["login", provider])] if terminal else [])


# ---------------------------------------------------------------- before a login


@pytest.mark.parametrize(("method", "params"), [
    ("session/new", {}), ("session/load", {"sessionId": "s"}), ("session/resume", {"sessionId": "s"}),
    ("session/fork", {"sessionId": "s"}),
])
def test_no_session_is_had_before_a_key_is_known(
    agent: Workbench, provider: str, method: str, params: dict[str, str],
) -> None:
    running = live(agent, provider)
    running.initialize()
    answer = running.call(method, {"cwd": str(agent.workspace), "mcpServers": [], **params})
    assert answer["error"]["code"] == AUTH_REQUIRED
    assert VARIABLES[provider] in answer["error"]["message"]
    assert f"acp-agent login {provider}" in answer["error"]["message"]


def test_other_failures_never_look_like_a_missing_login(agent: Workbench) -> None:
    running = live(agent, "openai")
    running.initialize()
    codes = [running.call(method, params)["error"]["code"] for method, params in (
        ("session/new", {"cwd": 7}), ("authenticate", {}), ("authenticate", {"methodId": "environment"}),
        ("authenticate", {"methodId": "browser"}), ("session/close", {"sessionId": "s"}),
        ("session/prompt", {"sessionId": "s", "prompt": [{"type": "text", "text": "x"}]}),
        ("session/set_config_option", {"sessionId": "s", "configId": "mode", "value": "ask"}),
    )]
    assert codes == [INVALID, INVALID, AUTH_REQUIRED, INVALID, -32002, -32002, -32002]
    assert running.call("session/list", {})["result"] == {"sessions": []}
    assert running.call("session/delete", {"sessionId": "s"})["result"] == {}


@pytest.mark.parametrize("method", ["terminal", "browser", ""])
def test_authenticate_takes_the_methods_of_its_own_kind_only(agent: Workbench, method: str) -> None:
    running = live(agent, "openai", OPENAI_API_KEY=KEY)
    running.initialize(TERMINAL_AUTH)
    answer = authenticate(running, method)
    assert answer["error"]["code"] == INVALID
    assert "environment" in answer["error"]["message"]


# ---------------------------------------------------------------- logging in and out


def test_a_key_in_the_environment_is_a_login_until_the_logout(agent: Workbench, provider: str) -> None:
    running = live(agent, provider, **{VARIABLES[provider]: KEY})
    running.initialize()
    assert "result" in new(running)
    assert authenticate(running)["result"] == {}
    assert running.call("logout", {})["result"] == {}
    assert new(running)["error"]["code"] == AUTH_REQUIRED
    assert authenticate(running)["result"] == {}
    assert "result" in new(running)
    silent_about(running)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": "  "}, {"ANTHROPIC_API_KEY": KEY}])
def test_without_a_key_of_the_provider_authenticate_fails(agent: Workbench, environ: dict[str, str]) -> None:
    running = live(agent, "openai", **environ)
    running.initialize()
    error = authenticate(running)["error"]
    assert error["code"] == AUTH_REQUIRED
    assert "set OPENAI_API_KEY where the agent is started, or run `acp-agent login openai`" in error["message"]
    assert new(running)["error"]["code"] == AUTH_REQUIRED


def test_a_stored_key_is_a_login_at_once_and_a_logout_forgets_it_for_good(agent: Workbench, provider: str) -> None:
    log_in(agent, "openai", "the-other-one") if provider == "anthropic" else log_in(agent, "anthropic", "the-other-one")
    running = live(agent, provider)
    running.initialize()
    assert new(running)["error"]["code"] == AUTH_REQUIRED
    log_in(agent, provider)
    assert "result" in new(running)
    assert authenticate(running)["result"] == {}
    assert running.call("logout", {})["result"] == {}
    assert new(running)["error"]["code"] == AUTH_REQUIRED
    assert authenticate(running)["error"]["code"] == AUTH_REQUIRED
    assert list(json.loads(stored(agent).read_text()).values()) == ["the-other-one"]
    log_in(agent, provider)
    assert "result" in new(running)
    silent_about(running)
    again = live(agent, provider)
    again.initialize()
    assert "result" in new(again)


def test_a_session_that_is_open_goes_on_after_a_logout(agent: Workbench) -> None:
    running = live(agent, "openai", OPENAI_API_KEY=KEY)
    running.initialize()
    session = running.new_session()
    assert running.call("logout", {})["result"] == {}
    assert running.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})["result"] == {}
    assert running.prompt(session, "/help")["result"] == {"stopReason": "end_turn"}


def test_a_prompt_says_that_live_models_come_later(agent: Workbench, provider: str) -> None:
    running = live(agent, provider, **{VARIABLES[provider]: KEY})
    running.initialize()
    result = running.new_session_result()
    assert [option["id"] for option in result["configOptions"]] == ["mode", "thought_level"]
    error = running.prompt(result["sessionId"], "Hello?")["error"]
    assert error["code"] == INTERNAL
    assert f"live models ({provider}/some-model) arrive with a later version" in error["message"]
    assert "ACP_REPLAY_DIR" in error["message"]
    silent_about(running)


def test_a_session_made_without_a_key_can_be_loaded_with_one(agent: Workbench, tmp_path: Path) -> None:
    stage = Stage(agent, "jsonl", tmp_path)
    first = stage.start()
    session = first.new_session()
    first.prompt(session, "Hi")
    first.close()
    running = live(agent, "openai", OPENAI_API_KEY=KEY)
    running.initialize()
    result = running.call("session/load", {"sessionId": session, "cwd": str(agent.workspace), "mcpServers": []})
    assert result["result"]["modes"]["currentModeId"] == "ask"
    assert running.text(session) == "Hello."
    silent_about(running)
    assert KEY not in (directory_of(agent, session) / "session.jsonl").read_text()


def test_a_file_without_a_key_is_none(agent: Workbench) -> None:
    file = stored(agent)
    for content in ("", "{}", '{"openai": ""}'):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        running = live(agent, "openai")
        running.initialize()
        assert new(running)["error"]["code"] == AUTH_REQUIRED
        running.close()
    log_in(agent, "openai")
    assert json.loads(file.read_text()) == {"openai": KEY}


def test_a_key_that_cannot_be_forgotten_is_named_by_its_file_and_not_used(agent: Workbench) -> None:
    log_in(agent, "openai")
    running = live(agent, "openai")
    running.initialize()
    assert "result" in new(running)
    blocked = stored(agent).parent / f".credentials.json.{running.pid}"
    (blocked / "in the way").mkdir(parents=True)
    answer = running.call("logout", {})
    assert answer["error"]["code"] == INTERNAL
    assert str(stored(agent)) in answer["error"]["message"]
    silent_about(running)


# ---------------------------------------------------------------- acp-agent login


def test_the_terminal_method_logs_in_as_a_client_runs_it(agent: Workbench, provider: str) -> None:
    """The client runs the command it knows with the method's arguments after its own, and starts it anew."""
    own = ["--model", f"{provider}/some-model", "--log-level=error"]
    running = agent(*own)
    (method,) = [one for one in running.initialize(TERMINAL_AUTH)["authMethods"] if one.get("type") == "terminal"]
    assert new(running)["error"]["code"] == AUTH_REQUIRED
    running.close()
    environ = clean_environment(agent.home) | method.get("env", {})
    with pexpect.spawn(AGENT[0], [*AGENT[1:], *own, *method["args"]], env=environ, timeout=TIMEOUT,
                       encoding="utf-8") as terminal:  # fmt: skip
        terminal.expect_exact(f"Key for {provider} ({VARIABLES[provider]}): ")
        terminal.waitnoecho()
        terminal.sendline(KEY)
        terminal.expect(pexpect.EOF)
        shown = terminal.before
        terminal.close()
        assert terminal.exitstatus == 0
    assert f"The key for {provider} is stored in" in shown
    assert KEY not in shown
    again = agent(*own)
    again.initialize(TERMINAL_AUTH)
    assert "result" in new(again)


def test_the_stored_key_is_its_owners_alone(agent: Workbench) -> None:
    log_in(agent, "openai")
    log_in(agent, "anthropic", "another")
    assert json.loads(stored(agent).read_text()) == {"openai": KEY, "anthropic": "another"}
    assert stat.S_IMODE(stored(agent).stat().st_mode) == 0o600
    assert stat.S_IMODE(stored(agent).parent.stat().st_mode) == 0o700
    assert [one.name for one in stored(agent).parent.iterdir()] == ["credentials.json"]


def run(bench: Workbench, *words: str, given: str = f"{KEY}\n", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AGENT, *words], env=clean_environment(bench.home) | environ, input=given, text=True,
                          capture_output=True, check=False, timeout=TIMEOUT)  # fmt: skip


@pytest.mark.parametrize(("words", "environ"), [
    (["login"], {"ACP_MODEL": "openai/x"}), (["--model", "openai/x", "login"], {}), (["--model=openai/x", "login"], {}),
    (["--model", "scripted/login", "login", "openai"], {}),
])
def test_login_knows_the_provider_from_its_word_or_from_the_model(
    agent: Workbench, words: list[str], environ: dict[str, str],
) -> None:
    assert run(agent, *words, **environ).returncode == 0
    assert json.loads(stored(agent).read_text()) == {"openai": KEY}


@pytest.mark.parametrize(("words", "given", "status", "why"), [
    (["login"], "k\n", 2, "usage: acp-agent login PROVIDER"),
    (["login", "gemini"], "k\n", 2, "openai or anthropic"),
    (["login", "openai", "more"], "k\n", 2, "usage: acp-agent login PROVIDER"),
    (["--model", "scripted/x", "login"], "k\n", 2, "openai or anthropic"),
    (["--modle", "x", "login"], "k\n", 2, "did you mean --model?"),
    (["login", "openai"], "", 1, "no key was given"),
    (["login", "openai"], " \n", 1, "no key was given"),
    (["login", "openai"], "two words\n", 1, "that is no key"),
    (["login", "openai"], "k\x1b[A\n", 1, "that is no key"),
])
def test_a_login_that_cannot_be_stores_nothing(
    agent: Workbench, words: list[str], given: str, status: int, why: str,
) -> None:
    done = run(agent, *words, given=given)
    assert (done.returncode, done.stdout) == (status, "")
    assert why in done.stderr
    assert not stored(agent).exists()


def test_a_login_that_is_interrupted_or_left_stores_nothing(agent: Workbench) -> None:
    for end, status in (("\x03", 130), ("\x04", 1)):
        with pexpect.spawn(AGENT[0], [*AGENT[1:], "login", "openai"], env=clean_environment(agent.home),
                           timeout=TIMEOUT, encoding="utf-8") as terminal:  # fmt: skip
            terminal.waitnoecho()
            terminal.send(end)
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == status
    assert not stored(agent).exists()


def test_a_key_that_cannot_be_stored_is_a_failure_that_names_the_file(agent: Workbench) -> None:
    stored(agent).parent.parent.mkdir(parents=True, exist_ok=True)
    stored(agent).parent.write_text("in the way")
    done = run(agent, "login", "openai")
    assert done.returncode == 1
    assert str(stored(agent)) in done.stderr
    assert KEY not in done.stderr


@pytest.mark.parametrize("words", [
    ["login", "--help"], ["login", "openai", "-h"], ["--model", "openai/x", "login", "-h"]])
def test_login_explains_itself(agent: Workbench, words: list[str]) -> None:
    done = run(agent, *words)
    assert done.returncode == 0
    assert "usage: acp-agent [FLAGS] login [PROVIDER]" in done.stdout


# ---------------------------------------------------------------- a damaged file of keys


def test_damaged_keys_are_told_of_and_kept(agent: Workbench) -> None:
    log_in(agent, "anthropic", "the-other-one")
    file = stored(agent)
    damaged = file.read_bytes()[:-4]
    file.write_bytes(damaged)
    done = subprocess.run([*AGENT, "login", "openai"], env=clean_environment(agent.home), input=f"{KEY}\n", text=True,
                          capture_output=True, check=False, timeout=TIMEOUT)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    running = live(agent, "openai")
    running.initialize()
    for answer in (new(running), authenticate(running), running.call("logout", {})):
        assert answer["error"]["code"] == INTERNAL
        assert f"{file}" in answer["error"]["message"]
        assert "is not JSON" in answer["error"]["message"]
    assert file.read_bytes() == damaged
    silent_about(running, "the-other-one")
    given = live(agent, "openai", OPENAI_API_KEY=KEY)
    given.initialize()
    assert "result" in new(given)

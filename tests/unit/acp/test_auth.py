"""Authentication: which methods are offered, when a key is known, and where keys are kept."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from acp_agent.acp.auth import Authentication
from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.commands.login import login
from acp_agent.credentials import VARIABLES, Credentials, KeysDamaged
from acp_agent.errors import AgentError, AuthRequired, InvalidParams

KEY = "a-key"


class Desk:
    """A provider's authentication, with an environment and a file of keys."""

    def __init__(self, directory: Path, provider: str = "openai") -> None:
        self.environ: dict[str, str] = {}
        self.file = directory / "config" / "credentials.json"
        self.credentials = Credentials(self.file, self.environ)
        self.auth = Authentication(provider, self.credentials)

    def known(self) -> bool:
        try:
            self.auth.require()
        except AuthRequired:
            return False
        return True


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_terminal_is_offered_to_clients_that_have_one(desk: Desk) -> None:
    without = msgspec.to_builtins(desk.auth.methods(ClientCapabilities()))
    both = msgspec.to_builtins(desk.auth.methods(ClientCapabilities(terminal_auth=True)))
    assert [method["id"] for method in without] == ["environment"]
    assert both[:1] == without
    assert "type" not in both[0]
    assert (both[1]["type"], both[1]["args"]) == ("terminal", ("login", "openai"))


@pytest.mark.parametrize("provider", VARIABLES)
def test_a_key_is_known_from_the_environment_or_the_file(tmp_path: Path, provider: str) -> None:
    desk = Desk(tmp_path, provider)
    assert not desk.known()
    desk.environ[VARIABLES[provider]] = KEY
    assert desk.known()
    del desk.environ[VARIABLES[provider]]
    desk.credentials.store(provider, KEY)
    assert desk.known()
    (other,) = set(VARIABLES) - {provider}
    desk.credentials.forget(other)
    assert desk.known()
    desk.credentials.forget(provider)
    assert not desk.known()


def test_a_missing_key_is_the_error_that_clients_log_in_on(desk: Desk) -> None:
    with pytest.raises(AuthRequired, match="a key for openai is needed") as caught:
        desk.auth.require()
    assert caught.value.code == -32000


def test_the_environment_comes_before_the_file(desk: Desk) -> None:
    desk.credentials.store("openai", "stored")
    assert desk.credentials.key("openai") == "stored"
    desk.environ["OPENAI_API_KEY"] = " given \n"
    assert desk.credentials.key("openai") == "given"
    desk.environ["OPENAI_API_KEY"] = " "
    assert desk.credentials.key("openai") == "stored"


def test_after_a_logout_the_environment_counts_only_when_it_is_asked_for(desk: Desk) -> None:
    desk.environ["OPENAI_API_KEY"] = KEY
    desk.credentials.store("openai", KEY)
    desk.auth.log_out()
    assert not desk.known()
    assert desk.credentials.stored("openai") is None
    desk.auth.authenticate("environment")
    assert desk.known()


def test_after_a_logout_a_new_login_in_a_terminal_counts_at_once(desk: Desk) -> None:
    desk.environ["OPENAI_API_KEY"] = KEY
    desk.auth.log_out()
    desk.credentials.store("openai", KEY)
    assert desk.known()


@pytest.mark.parametrize("method", ["terminal", "other", ""])
def test_other_methods_are_not_authenticates(desk: Desk, method: str) -> None:
    desk.environ["OPENAI_API_KEY"] = KEY
    with pytest.raises(InvalidParams, match="methodId"):
        desk.auth.authenticate(method)


def test_authenticating_without_a_key_says_where_one_is_looked_for(desk: Desk) -> None:
    with pytest.raises(AuthRequired, match="set OPENAI_API_KEY where the agent is started, or run `acp-agent login") \
            as caught:
        desk.auth.authenticate("environment")
    assert caught.value.code == -32000


def test_the_file_is_its_owners_alone_and_holds_every_providers_key(desk: Desk) -> None:
    desk.credentials.store("openai", "one")
    desk.credentials.store("anthropic", "two")
    desk.credentials.store("openai", "three")
    assert json.loads(desk.file.read_text()) == {"openai": "three", "anthropic": "two"}
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    assert [path.name for path in desk.file.parent.iterdir()] == [desk.file.name]


def test_a_file_that_was_open_to_others_is_not_any_more(desk: Desk) -> None:
    desk.file.parent.mkdir()
    desk.file.write_text("{}")
    desk.file.chmod(0o644)
    desk.credentials.store("openai", KEY)
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b" \n", b"{}", b'{"openai": ""}'])
def test_a_file_without_a_key_is_none(desk: Desk, content: bytes) -> None:
    desk.file.parent.mkdir()
    desk.file.write_bytes(content)
    assert not desk.known()
    desk.auth.log_out()
    assert desk.file.read_bytes() == content
    desk.credentials.store("openai", KEY)
    assert desk.known()


DAMAGED = {
    b'{"anthropic": "two",\n "openai": "on': "is not JSON (line 2, column 12)",
    b'{"anthropic": "two"} {"openai": "one"}': "is not JSON (line 1, column 22)",
    b"\xff\xfe\x00": "is not JSON",
    b"[" * 100_000: "is not JSON",
    b"[]": "is not a JSON object of providers and keys",
    b"null": "is not a JSON object of providers and keys",
    b'{"anthropic": "two", "openai": null}': "has something that is no text as the key of openai",
    b'{"a-secret": {"openai": "one"}}': "has something that is no text as a key",
}


@pytest.fixture(params=[*DAMAGED.items(), "directory", "pipe", "unreadable", "loop"], ids=range(len(DAMAGED) + 4))
def damage(desk: Desk, request: pytest.FixtureRequest) -> str:
    """A file of keys that cannot be used; what is wrong with it."""
    desk.file.parent.mkdir()
    if request.param == "directory":
        desk.file.mkdir()
        return "is no regular file"
    if request.param == "pipe":
        os.mkfifo(desk.file)
        return "is no regular file"
    if request.param == "loop":
        desk.file.symlink_to(desk.file)
        return f"cannot be read: {os.strerror(errno.ELOOP)}"
    if request.param == "unreadable":
        desk.file.write_bytes(b"{}")
        desk.file.chmod(0)
        if os.access(desk.file, os.R_OK):
            pytest.skip("this user may read everything")
        return f"cannot be read: {os.strerror(errno.EACCES)}"
    content, what = request.param
    desk.file.write_bytes(content)
    return str(what)


def state(file: Path) -> tuple[object, ...]:
    status = file.lstat()
    readable = stat.S_ISREG(status.st_mode) and os.access(file, os.R_OK)
    return status.st_ino, status.st_mode, status.st_mtime_ns, file.read_bytes() if readable else None


def test_a_damaged_file_is_told_of_and_nothing_is_written_to_it(desk: Desk, damage: str) -> None:
    before = state(desk.file)
    told = f"the stored keys cannot be used: {desk.file} {damage}; mend it, or move it away and log in again"
    for attempt in (
        desk.auth.require, lambda: desk.auth.authenticate("environment"),
        lambda: desk.credentials.store("openai", KEY), lambda: desk.credentials.forget("openai"),
    ):
        with pytest.raises(KeysDamaged) as caught:
            attempt()
        assert told in caught.value.message
        assert not [secret for secret in ("two", "one", "a-secret", KEY) if secret in caught.value.message]
    assert state(desk.file) == before
    assert [path.name for path in desk.file.parent.iterdir()] == [desk.file.name]


def test_a_damaged_file_is_no_obstacle_to_a_key_from_the_environment(desk: Desk, damage: str) -> None:
    desk.environ["OPENAI_API_KEY"] = KEY
    assert desk.known()
    with pytest.raises(AgentError) as caught:
        desk.auth.log_out()
    assert caught.value.message == (f"the key of openai may still be in {desk.file}, which {damage}: take it out by "
                                    "hand, or delete the file")  # fmt: skip
    with pytest.raises(KeysDamaged):
        desk.auth.require()
    desk.auth.authenticate("environment")
    assert desk.known()


def test_nobody_is_asked_for_a_key_that_cannot_be_stored(
    desk: Desk, damage: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = state(desk.file)
    monkeypatch.setattr(sys, "stdin", None)  # whoever asks fails
    assert login("openai", desk.credentials) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("acp-agent: no key is stored, and nothing was changed: ")
    assert f"{desk.file} {damage}; mend it" in err
    assert state(desk.file) == before


def test_a_key_that_cannot_be_forgotten_names_its_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.credentials.store("openai", KEY)

    def full(_provider: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(desk.credentials, "forget", full)
    with pytest.raises(AgentError, match="No space left on device") as caught:
        desk.auth.log_out()
    assert str(desk.file) in caught.value.message
    assert KEY not in caught.value.message

"""Wrong params of every method: -32602 that names the field and what was expected; other errors where they belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.conformance_moves import code
from tests.support.schema import Frame
from tests.wire.services import model

INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND = -32602, -32600, -32002
NOBODY = "no-such-session"
OK = 'call repeat\n  say "ok"\n'
KEY = {"ACP_MODEL": "openai/some-model", "OPENAI_API_KEY": "not-a-key"}

ID = (5, None, ["s"], {"id": "s"})
CWD: tuple[Any, ...] = (5, None, [], "", "relative", "~", "/no/such/directory", "/dev/null")
SERVERS: tuple[Any, ...] = (
    "none", 5, {}, ["x"], [{}], [{"name": "a"}], [{"name": 5, "command": "c", "args": [], "env": []}],
    [{"name": "a", "command": 5, "args": [], "env": []}], [{"type": "carrier-pigeon", "name": "a"}],
    [{"name": "a", "command": "c", "args": "-v", "env": []}],
    [{"name": "a", "command": "c", "args": [], "env": [{"name": "A"}]}],
    [{"type": "http", "name": "a", "url": "ftp://example.invalid", "headers": []}])
ROOTS = ("/tmp", 5, [5], [None], [""], ["relative"], ["/no/such/directory"])
OPENING: Mapping[str, tuple[Any, ...]] = {
    "sessionId": ID, "cwd": CWD, "mcpServers": SERVERS, "additionalDirectories": ROOTS}

WRONG: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "initialize": {"protocolVersion": ("1", 1.5, -1, 65536, None, True, [])},
    "authenticate": {"methodId": (5, None, [], "no-such-method", "")},
    "session/new": {"cwd": CWD, "mcpServers": SERVERS, "additionalDirectories": ROOTS},
    "session/load": OPENING,
    "session/resume": OPENING,
    "session/fork": OPENING,
    "session/list": {"cwd": (5, [], "relative"), "cursor": (5, [], "no-such-cursor")},
    "session/close": {"sessionId": ID},
    "session/delete": {"sessionId": ID},
    "session/prompt": {"sessionId": ID, "prompt": ("go", None, {}, [], [5], [{}], [{"type": "smell"}],
                                                   [{"type": "text"}], [{"type": "text", "text": 5}])},
    "session/set_mode": {"sessionId": ID, "modeId": (5, None, "", "no-such-mode")},
    "session/set_config_option": {"sessionId": ID, "configId": (5, None, "no-such-option"),
                                  "value": (5, None, "no-such-value", True)},
}
"""For each method, what is wrong for each of its fields."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "initialize": ("protocolVersion",), "authenticate": ("methodId",), "session/new": ("cwd", "mcpServers"),
    "session/load": ("sessionId", "cwd", "mcpServers"), "session/resume": ("sessionId", "cwd"),
    "session/fork": ("sessionId", "cwd"), "session/list": (), "session/close": ("sessionId",),
    "session/delete": ("sessionId",), "session/prompt": ("sessionId", "prompt"),
    "session/set_mode": ("sessionId", "modeId"), "session/set_config_option": ("sessionId", "configId", "value"),
    "logout": (),
}
"""The fields without which a method's params are wrong."""

EXPECTATIONS = ("xpected", "missing required", "is done by running", "is not a directory", "not a directory",
                "does not exist", "must", "are supported", "none that session/list", "needs", "takes", "not found",
                "none is offered")
"""Words with which a message says what was expected."""


def sound(method: str, session: str, bench: Workbench) -> Frame:
    """Params of a method that are right."""
    cwd = str(bench.workspace)
    everything: Frame = {
        "protocolVersion": 1, "methodId": "environment", "sessionId": session, "cwd": cwd, "mcpServers": [],
        "prompt": [{"type": "text", "text": "go"}], "modeId": "ask", "configId": "mode", "value": "ask"}
    return {name: everything[name] for name in REQUIRED[method]}


@pytest.fixture
def ready(agent: Workbench) -> tuple[AgentProcess, str]:
    """An agent with an open session."""
    process = agent(environ=model(agent, OK), unstable=True)
    process.initialize()
    return process, process.new_session()


def cases(method: str) -> Iterator[tuple[str, Any]]:
    for field, values in WRONG[method].items():
        yield from ((field, value) for value in values)


@pytest.mark.parametrize("method", WRONG)
def test_a_wrong_value_is_refused_with_its_field_and_what_was_expected(
    agent: Workbench, ready: tuple[AgentProcess, str], method: str,
) -> None:
    process, session = ready
    good = sound(method, session, agent)
    for field, value in cases(method):
        error = process.call(method, good | {field: value}).get("error", {})
        assert error.get("code") == INVALID_PARAMS, (field, value, error)
        assert field in error["message"], (field, value, error)
        assert any(word in error["message"] for word in EXPECTATIONS), (field, value, error)
    assert process.text(session) == ""
    assert process.prompt(session, "go")["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize("method", [method for method, fields in REQUIRED.items() if fields])
def test_a_missing_field_is_named(agent: Workbench, ready: tuple[AgentProcess, str], method: str) -> None:
    process, session = ready
    good = sound(method, session, agent)
    for field in REQUIRED[method]:
        error = process.call(method, {name: value for name, value in good.items() if name != field})["error"]
        assert error["code"] == INVALID_PARAMS, field
        assert field in error["message"], error
        assert "missing" in error["message"], error


def test_params_that_are_no_object_are_refused_by_every_method(agent: Workbench) -> None:
    process = agent(environ=KEY, unstable=True)
    process.initialize()
    wrong: list[Any] = [[], [1], "text", 5, True]
    for method in REQUIRED:
        for number, params in enumerate(wrong):
            process.send({"id": f"{method} {number}", "method": method, "params": params})
            error = process.response(f"{method} {number}")["error"]
            assert error["code"] == INVALID_PARAMS, (method, params)
            assert "object" in error["message"]


def test_null_params_are_no_params(agent: Workbench) -> None:
    process = agent(environ=KEY, unstable=True)
    process.initialize()
    for method, fields in REQUIRED.items():
        process.send({"id": method, "method": method, "params": None})
        assert code(process.response(method)) == (INVALID_PARAMS if fields else None), method


def test_an_unknown_session_is_not_found_and_named(agent: Workbench, ready: tuple[AgentProcess, str]) -> None:
    process, _ = ready
    for method, fields in REQUIRED.items():
        if "sessionId" not in fields or method == "session/delete":
            continue
        error = process.call(method, sound(method, NOBODY, agent))["error"]
        assert error["code"] == NOT_FOUND, method
        assert error["data"]["sessionId"] == NOBODY, method
        assert NOBODY in error["message"]
    assert process.call("session/delete", {"sessionId": NOBODY})["result"] == {}


def test_wrong_params_are_told_before_an_unknown_session(agent: Workbench, ready: tuple[AgentProcess, str]) -> None:
    """What is wrong with the request itself does not depend on what there is."""
    process, _ = ready
    for method, field in (("session/load", "cwd"), ("session/resume", "cwd"), ("session/fork", "cwd"),
                          ("session/prompt", "prompt")):
        params = sound(method, NOBODY, agent)
        assert code(process.call(method, params | {field: 5})) == INVALID_PARAMS, method


def test_nothing_is_served_before_initialize(agent: Workbench) -> None:
    process = agent(environ=KEY, unstable=True)
    for method in REQUIRED:
        if method != "initialize":
            error = process.call(method, sound(method, NOBODY, agent))["error"]
            assert error["code"] == INVALID_REQUEST, method
            assert "initialize" in error["message"]
    process.initialize()
    assert process.new_session()


def test_every_method_of_the_agent_is_in_the_tables(agent: Workbench) -> None:
    from tests.support.conformance_table import agent_methods

    assert set(agent_methods()) == set(REQUIRED)
    assert set(WRONG) == {method for method in REQUIRED if method != "logout"}

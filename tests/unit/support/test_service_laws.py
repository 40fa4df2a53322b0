"""Each law of the client's services, broken once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.laws import Entry, check_laws
from tests.unit.support.test_transcript_laws import agent, client, new, prompt, stopped, update

SERVICES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "elicitation": {"form": {}}}
START = [
    client(id=1, method="initialize", params={"protocolVersion": 1, "clientCapabilities": SERVICES}),
    agent(id=1, result={"protocolVersion": 1}), *new(2), prompt(3),
    update("tool_call", toolCallId="c", title="Run", name="bash", kind="execute", status="pending"),
    update("tool_call_update", toolCallId="c", status="in_progress"),
]
END = [update("tool_call_update", toolCallId="c", status="completed"), stopped(3)]


def asks(request: int, method: str, **params: Any) -> Entry:
    return agent(id=request, method=method, params={"sessionId": "s1", **params})


def terminal(request: int, deed: str, name: str = "t") -> Entry:
    return asks(request, f"terminal/{deed}", terminalId=name)


def form(request: int = 0, **params: Any) -> Entry:
    schema = {"type": "object", "properties": {}}
    return asks(request, "elicitation/create", mode="form", message="m", requestedSchema=schema, **params)


CREATE, CREATED = asks(0, "terminal/create", command="make"), client(id=0, result={"terminalId": "t"})
EMBED = update("tool_call_update", toolCallId="c", status="in_progress",
               content=[{"type": "terminal", "terminalId": "t"}])
RAN = [CREATE, CREATED, EMBED, terminal(1, "wait_for_exit"), client(id=1, result={"exitCode": 0}),
       terminal(2, "release"), client(id=2, result={})]


@pytest.mark.parametrize("lines", [
    RAN, [*RAN[:-2], EMBED, *RAN[-2:]], [CREATE, client(id=0, error={"code": -32603, "message": "no"})], [CREATE],
    [asks(0, "fs/read_text_file", path="/w/a", line=1, limit=0)], [form()],
])
def test_lawful_use_of_the_services(lines: list[Entry]) -> None:
    assert check_laws([*START, *lines, *END]) == []


@pytest.mark.parametrize(("law", "lines"), [
    ("never released", [CREATE, CREATED]),
    ("after it was released", [*RAN, terminal(3, "output")]),
    ("after it was released", [*RAN, terminal(3, "release")]),
    ("nobody made", [terminal(0, "output")]),
    ("is not there", [EMBED]),
    ("is not there", [CREATE, CREATED, terminal(1, "release"), EMBED]),
    ("is not there", [*RAN, EMBED]),
    ("after it was used", [CREATE, CREATED, terminal(1, "output"), EMBED, terminal(2, "release")]),
    ("not absolute", [asks(0, "fs/read_text_file", path="a")]),
    ("not absolute", [asks(0, "fs/write_text_file", path="a", content="")]),
    ("line 0", [asks(0, "fs/read_text_file", path="/a", line=0)]),
    ("mode 'url'", [asks(0, "elicitation/create", mode="url", message="m", url="https://x", elicitationId="e")]),
    ("one scope", [form(requestId=3)]),
    ("was not asked", [agent(method="elicitation/complete", params={"elicitationId": "e"})]),
])
def test_a_broken_law_is_found(law: str, lines: list[Entry]) -> None:
    problems = check_laws([*START, *lines, *END])
    assert [problem for problem in problems if law in problem], problems

"""A directory that a client names: refused by its parameter where it cannot be entered, and one however it is spelt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.reopen import KINDS, StorePlace
from tests.wire.moves import recording
from tests.wire.recordings import says

INVALID = -32602
LOOP, LONG_NAME, LONG_PATH = "loop/x", "n" * 300, "p/" * 2500
"""Below a directory that is there: nothing that the system lets anybody look at, whoever asks."""


@pytest.fixture(params=KINDS)
def place(agent: Workbench, request: pytest.FixtureRequest) -> StorePlace:
    return StorePlace(request.param, agent.store if request.param == "jsonl" else agent.store.with_suffix(".db"))


def started(bench: Workbench, place: StorePlace, *, sessions: int = 1) -> AgentProcess:
    running = bench(replay=recording(bench, *[says("fine")] * sessions), unstable=True,
                    environ=place.environ | {"ACP_REPLAY_SESSIONS": "repeat"})
    running.initialize()
    return running


def named(session: str | None, **more: Any) -> dict[str, Any]:
    return {**({} if session is None else {"sessionId": session}), "mcpServers": [], **more}


@pytest.mark.parametrize("wrong", [LOOP, LONG_NAME, LONG_PATH], ids=["loop", "long-name", "long-path"])
def test_what_the_system_will_not_look_at_is_refused_by_its_parameter(
    agent: Workbench, place: StorePlace, tmp_path: Path, wrong: str,
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = str(tmp_path / wrong)
    running = started(agent, place)
    session = running.new_session()
    running.prompt(session, "go")
    running.call("session/close", {"sessionId": session})
    for method, known in (("new", None), ("load", session), ("resume", session), ("fork", session)):
        for parameter, value, rest in (("cwd", path, {}), ("additionalDirectories[1]", [str(tmp_path), path], {
                "cwd": str(running.cwd)})):
            params = named(known, **rest, **{parameter.partition("[")[0]: value})
            error = running.call(f"session/{method}", params)["error"]
            assert (error["code"], error["message"].startswith(parameter)) == (INVALID, True), (method, error)
            assert len(error["message"]) < 500
    assert running.call("session/list", {"cwd": path})["result"] == {"sessions": []}
    assert running.close() == 0
    assert "Traceback" not in running.stderr


def spelt(directory: Path) -> list[str]:
    """Other spellings of a directory, none of them through a link."""
    up = directory.parent
    return [f"{directory}/", f"{up}/./{directory.name}", f"{up}/../{up.name}/{directory.name}",
            f"{directory}/below/..", f"/{directory}", str(directory).replace("/", "//")]


def test_a_session_is_found_by_every_spelling_of_its_directory(agent: Workbench, place: StorePlace) -> None:
    (agent.workspace / "below").mkdir()
    running = started(agent, place, sessions=1)
    spellings = [str(agent.workspace), *spelt(agent.workspace)]
    made = []
    for spelling in spellings:
        session = running.call("session/new", named(None, cwd=spelling))["result"]["sessionId"]
        running.prompt(session, "go")
        running.call("session/close", {"sessionId": session})
        made.append(session)
    for spelling in spellings:
        listed = running.call("session/list", {"cwd": spelling})["result"]["sessions"]
        assert {one["sessionId"] for one in listed} == set(made), spelling
        assert {one["cwd"] for one in listed} == {str(agent.workspace)}
    for session, spelling in zip(made, spellings, strict=True):
        assert "result" in running.call("session/load", named(session, cwd=spelling))


def test_a_link_keeps_its_name_but_is_not_stepped_out_of(agent: Workbench, place: StorePlace, tmp_path: Path) -> None:
    """`link/..` is the directory above what the link leads to, not the one that the link is in."""
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "link").symlink_to(tmp_path / "far" / "inner")
    running = started(agent, place)
    for spelling, stored in ((tmp_path / "near" / "link", tmp_path / "near" / "link"),
                             (f"{tmp_path}/near/link/..", tmp_path / "far"),
                             (f"{tmp_path}/far/../near/link", tmp_path / "near" / "link")):
        session = running.call("session/new", named(None, cwd=str(spelling)))["result"]["sessionId"]
        running.prompt(session, "go")
        listed = running.call("session/list", {"cwd": str(spelling)})["result"]["sessions"]
        assert (session, str(stored)) in [(one["sessionId"], one["cwd"]) for one in listed], spelling
        running.call("session/close", {"sessionId": session})
        other = {"result": True} if stored.name != "link" else running.call(
            "session/load", named(session, cwd=str(tmp_path / "far" / "inner")))
        assert "result" in other, "a session is loaded by any way to its directory"

"""Further directories: granted for as long as the request says that named them, and no further than it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.wire.moves import recording, stop_reason
from tests.wire.recordings import Call, Log, call, says, step, tool, write
from tests.wire.runs import data, failures, logs_of, results, root_log

INVALID = -32602
ASK = {"ACP_REPLAY_TOOLS": "live", "ACP_PERMISSION_MODE": "accept-edits", "ACP_IDS": "sequential"}
Json = dict[str, Any]


class Roots:
    """The workspace, two further directories, and one outside of all; each holds a file with its name."""

    def __init__(self, bench: Workbench, tmp_path: Path) -> None:
        self.bench = bench
        self.cwd = bench.workspace
        self.one, self.two, self.outside = (tmp_path / name for name in ("one", "two", "outside"))
        for directory in (self.cwd, self.one, self.two, self.outside):
            directory.mkdir(exist_ok=True)
            (directory / "name.txt").write_text(f"this is {directory.name}\n")

    def start(self, *calls: Call) -> AgentProcess:
        running = self.bench(replay=recording(self.bench, *calls), environ=ASK, unstable=True)
        running.initialize()
        return running

    def params(self, *directories: Any, **more: Any) -> Json:
        return {"cwd": str(self.cwd), "mcpServers": [], "additionalDirectories": [
            str(one) if isinstance(one, Path) else one for one in directories], **more}


@pytest.fixture
def roots(agent: Workbench, tmp_path: Path) -> Roots:
    return Roots(agent, tmp_path)


def new(running: AgentProcess, params: Json) -> str:
    session: str = running.call("session/new", params)["result"]["sessionId"]
    return session


def reading(*paths: Path | str) -> Call:
    return call(*(tool(f"c{at}", "read", file_path=str(path)) for at, path in enumerate(paths)))


# ---------------------------------------------------------------- asking for them


def test_further_directories_are_offered(agent: Workbench) -> None:
    capabilities = agent().initialize()["agentCapabilities"]["sessionCapabilities"]
    assert capabilities["additionalDirectories"] == {}


def test_a_directory_that_cannot_be_granted_is_refused_by_its_entry_and_nothing_is_made(roots: Roots) -> None:
    running = roots.start(says("fine"), says("fine"))
    session = new(running, roots.params())
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    running.call("session/close", {"sessionId": session})
    file = roots.one / "name.txt"
    for wrong in ("", "one", ".", "~", "../x", str(roots.one / "missing"), str(file), f"{file}/below", "/no\0where"):
        for method in ("new", "load", "resume", "fork"):
            more = {} if method == "new" else {"sessionId": session}
            error = running.call(f"session/{method}", roots.params(roots.one, wrong, **more))["error"]
            assert error["code"] == INVALID, (method, wrong)
            assert "additionalDirectories[1]" in error["message"]
            assert repr(wrong) in error["message"]
    for malformed in ([5], [None], [["x"]], "one", {"a": 1}, 5, True):
        error = running.call("session/new", roots.params() | {"additionalDirectories": malformed})["error"]
        assert error["code"] == INVALID, malformed
        assert "additionalDirectories" in error["message"]
    listed = running.call("session/list", {})["result"]["sessions"]
    assert [one["sessionId"] for one in listed] == [session]
    assert new(running, roots.params()) == "session-2"
    assert "result" in running.call("session/load", roots.params(sessionId=session)), "it is not open"


def test_none_is_the_same_in_all_its_spellings(roots: Roots) -> None:
    running = roots.start(says("fine"))
    spellings: list[Json] = [{}, {"additionalDirectories": None}, {"additionalDirectories": []}]
    for nothing in spellings:
        session = new(running, {"cwd": str(roots.cwd), "mcpServers": []} | nothing)
        running.call("session/close", {"sessionId": session})
    session = new(running, roots.params(roots.cwd, roots.cwd))
    running.prompt(session, "go")
    (header,) = data(root_log(roots.bench, session), "request/header")
    assert "You may also work in" not in header["header"]["system"]


# ---------------------------------------------------------------- working in them


def test_file_tools_and_searches_work_in_all_roots_and_in_no_other_place(roots: Roots) -> None:
    (roots.one / "way-out").symlink_to(roots.outside)
    (roots.cwd / "way-over").symlink_to(roots.two)
    running = roots.start(
        reading(roots.one / "name.txt", roots.two / "name.txt", "name.txt", roots.cwd / "way-over" / "name.txt"),
        call(tool("e", "edit", file_path=str(roots.two / "name.txt"), old_string="this", new_string="that"),
             tool("w", "write", file_path=str(roots.one / "deep" / "new.txt"), content="needle\n"),
             tool("g", "glob", pattern="**/*.txt", path=str(roots.one)),
             tool("h", "glob", pattern=f"{roots.two}/*.txt"),
             tool("s", "grep", pattern="needle", path=str(roots.one))),
        call(*(tool(f"o{at}", name, **arguments) for at, (name, arguments) in enumerate([
            ("read", {"file_path": str(roots.outside / "name.txt")}),
            ("read", {"file_path": str(roots.one / "way-out" / "name.txt")}),
            ("read", {"file_path": str(roots.one / ".." / "outside" / "name.txt")}),
            ("write", {"file_path": str(roots.one / "way-out" / "new.txt"), "content": "x"}),
            ("glob", {"pattern": "*", "path": str(roots.outside)}),
            ("grep", {"pattern": "this", "path": str(roots.one / "way-out")})]))),
        call(tool("r", "read", file_path="deep/new.txt"), tool("w2", "write", file_path="made.txt", content="x")),
        says("done"))
    session = new(running, roots.params(roots.one, roots.two))
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    log = root_log(roots.bench, session)
    told, failed = results(log), failures(log)
    assert failed[:9] == [False] * 9, told
    for text, name in zip(told, ("one", "two", "workspace", "two"), strict=False):
        assert f"this is {name}" in text
    assert (roots.two / "name.txt").read_text() == "that is two\n"
    assert sorted(told[6].split()) == sorted([str(roots.one / "name.txt"), str(roots.one / "deep" / "new.txt")])
    assert told[7].strip() == str(roots.two / "name.txt")
    assert "needle" in told[8]
    assert failed[9:15] == [True] * 6, told
    allowed = ", ".join(f'"{root}"' for root in (roots.cwd, roots.one, roots.two))
    assert all(f"outside the session's directories ({allowed})" in text for text in told[9:15]), told[9:15]
    assert failed[15:] == [True, False], "relative paths are of the working directory alone"
    assert (roots.cwd / "made.txt").read_text() == "x"
    assert not (roots.outside / "new.txt").exists()


def test_the_model_is_told_its_directories_in_order(roots: Roots) -> None:
    told = []
    for directories in ((), (roots.two, roots.one, roots.two, roots.cwd)):
        running = roots.start(says("fine"))
        session = new(running, roots.params(*directories))
        running.prompt(session, "go")
        (header,) = data(root_log(roots.bench, session), "request/header")
        told.append(header["header"]["system"])
        running.close()
    plain, further = told
    assert further == (
        f"{plain}\nYou may also work in these directories, named by their whole paths:\n- {roots.two}\n- {roots.one}\n")


def test_children_work_in_the_directories_of_their_parent(roots: Roots) -> None:
    parent = Log("parent").turn("go", step(call(tool("s", "subagent", description="d", prompt="Look.")), "(seen)"),
                                says("done"))
    look = reading(roots.one / "name.txt", roots.outside / "name.txt")
    child = parent.spawned("child", "s").turn("Look.", step(look, "(one)", "(outside)"), says("seen"))
    running = roots.bench(replay=write(roots.bench.store.parent / "family", parent, child), environ=ASK)
    running.initialize()
    session = new(running, roots.params(roots.one))
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    log = logs_of(roots.bench, session)[1]
    assert "this is one" in results(log)[0]
    assert failures(log) == [False, True]
    assert str(roots.one) in data(log, "request/header")[0]["header"]["system"]


# ---------------------------------------------------------------- for how long


@pytest.mark.parametrize("method", ["load", "resume"])
def test_what_opens_a_session_again_says_its_directories_anew(roots: Roots, method: str) -> None:
    look = reading(roots.one / "name.txt", roots.two / "name.txt")
    running = roots.start(look, says("a"), look, says("b"), look, says("c"))
    session = new(running, roots.params(roots.one))
    seen = []
    for further in (None, {}, {"additionalDirectories": [str(roots.two)]}):
        if further is not None:
            running.call("session/close", {"sessionId": session})
            place = {"sessionId": session, "cwd": str(roots.cwd), "mcpServers": []}
            assert "result" in running.call(f"session/{method}", place | further)
        assert stop_reason(running.prompt(session, "go")) == "end_turn"
        seen.append(failures(root_log(roots.bench, session))[-2:])
    assert seen == [[False, True], [True, True], [True, False]]


def test_a_fork_has_the_directories_that_its_request_names(roots: Roots) -> None:
    look = reading(roots.one / "name.txt", roots.two / "name.txt")
    running = roots.bench(replay=recording(roots.bench, look, says("a")), unstable=True,
                          environ=ASK | {"ACP_REPLAY_SESSIONS": "repeat"})
    running.initialize()
    session = new(running, roots.params(roots.one))
    found = {}
    for directories in ((), (roots.two,)):
        params = roots.params(*directories, sessionId=session)
        fork = running.call("session/fork", params)["result"]["sessionId"]
        assert stop_reason(running.prompt(fork, "go")) == "end_turn"
        found[directories] = failures(root_log(roots.bench, fork))
    assert found == {(): [True, True], (roots.two,): [True, False]}

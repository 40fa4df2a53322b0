"""The kinds of things stdin and stdout can be: pipes, sockets, files, terminals, nothing; and who else may write."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.conftest import Workbench
from tests.support import processes
from tests.support.client import TIMEOUT, AgentProcess
from tests.support.laws import Entry, check_laws, parse_line
from tests.wire.moves import line, opened, recording, request, stop_reason, text_prompt
from tests.wire.recordings import Entry as Served
from tests.wire.recordings import call, hang, says, tool
from tests.wire.runs import LIVE, data, end_of, failures, results, root_log

SEQUENTIAL = {"ACP_IDS": "sequential"}
PACE = 100
"""Milliseconds for each chunk of a slow answer."""
SLOW = [f"{number} " for number in range(24)]
"""An answer that takes longer than the two seconds which work gets after the end of a pipe."""


def script(bench: Workbench, *prompts: str) -> bytes:
    """A whole conversation: one session, some prompts."""
    frames = [request("hello", "initialize", protocolVersion=1),
              request("new", "session/new", cwd=str(bench.workspace), mcpServers=[]),
              *(request(f"prompt {number}", "session/prompt", sessionId="session-1", prompt=text_prompt(text))
                for number, text in enumerate(prompts, 1))]
    return b"".join(map(line, frames))


class Run:
    """An agent with any stdin and stdout. `unseen` says why nobody sees what it writes."""

    def __init__(self, bench: Workbench, *entries: Served, stdin: int | IO[bytes], stdout: int | IO[bytes],
                 environ: Mapping[str, str] | None = None, unseen: str | None = None) -> None:
        self.agent = bench.prepare(replay=recording(bench, *entries), unlawful=unseen,
                                   environ=SEQUENTIAL | dict(environ or {}))
        self.process = subprocess.Popen(self.agent.command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
                                        cwd=self.agent.cwd, env=self.agent.environ)

    def end(self) -> tuple[bytes, str]:
        """Wait for the agent's end, which must be orderly; returns what it wrote to a piped stdout, and stderr."""
        output, errors = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, errors.decode()
        assert processes.wait_until_gone(self.agent.mark) == []
        return output or b"", errors.decode()

    @contextmanager
    def watched(self) -> Iterator[Run]:
        """Kill what is left when the block fails."""
        try:
            yield self
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()
            self.agent.abandon()

    def judge(self, sent: bytes, received: bytes) -> dict[str, Any]:
        """Check every law of a conversation whose input was all there from the beginning; the answers by id."""
        transcript = self.agent.transcript
        transcript += [Entry("client", parse_line(raw), raw) for raw in sent.splitlines(keepends=True)]
        transcript += [Entry("agent", parse_line(raw), raw) for raw in received.splitlines(keepends=True)]
        assert check_laws(transcript) == []
        return {frame["id"]: frame for frame in self.agent.received if "method" not in frame}


def said(received: bytes) -> str:
    """The visible text in an agent's output."""
    updates = [parse_line(raw)["params"]["update"] for raw in received.splitlines() if b"agent_message_chunk" in raw]
    return "".join(update["content"]["text"] for update in updates)


# ---------------------------------------------------------------- stdin


def test_a_script_in_a_file_is_worked_to_its_end_however_long_that_takes(agent: Workbench, tmp_path: Path) -> None:
    sent = script(agent, "slow", "then this")
    (tmp_path / "script").write_bytes(sent)
    with (tmp_path / "script").open("rb") as stdin:
        run = Run(agent, says(*SLOW), says("done"), stdin=stdin, stdout=subprocess.PIPE,
                  environ={"ACP_REPLAY_PACE": str(PACE)})
    with run.watched():
        received, errors = run.end()
    answers = run.judge(sent, received)
    assert [stop_reason(answers[f"prompt {number}"]) for number in (1, 2)] == ["end_turn", "end_turn"]
    assert said(received) == "".join(SLOW) + "done"
    assert errors == ""


def test_questions_that_come_up_after_the_end_of_a_script_are_refused(agent: Workbench, tmp_path: Path) -> None:
    asks = call(tool("c", "bash", command="touch ran", description="d"))
    sent = script(agent, "go", "again")
    (tmp_path / "script").write_bytes(sent)
    with (tmp_path / "script").open("rb") as stdin:
        run = Run(agent, asks, says("one"), asks, says("two"), stdin=stdin, stdout=subprocess.PIPE,
                  environ={"ACP_REPLAY_TOOLS": "live"})
    with run.watched():
        received, _ = run.end()
    answers = run.judge(sent, received)
    assert [stop_reason(answers[f"prompt {number}"]) for number in (1, 2)] == ["end_turn", "end_turn"]
    assert failures(root_log(agent, "session-1")) == [True, True]
    assert not (agent.workspace / "ran").exists()


def test_a_socket_for_both_directions_is_as_good_as_pipes(agent: Workbench) -> None:
    ours, theirs = socket.socketpair()
    sent = script(agent, "go")
    with ours:
        with theirs:
            run = Run(agent, says(*["é"] * 3000), stdin=theirs.fileno(), stdout=theirs.fileno())
        with run.watched():
            ours.settimeout(TIMEOUT)
            ours.sendall(sent)
            ours.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: ours.recv(1 << 16), b""))
            run.end()
    assert stop_reason(run.judge(sent, received)["prompt 1"]) == "end_turn"
    assert said(received) == "é" * 3000


def test_no_input_at_all_is_the_end_of_input(agent: Workbench) -> None:
    run = Run(agent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with run.watched():
        assert run.end() == (b"", "")


# ---------------------------------------------------------------- a terminal


class Terminal:
    """The other end of a terminal that an agent reads from. What is echoed is read and thrown away."""

    def __init__(self, bench: Workbench, *entries: Served) -> None:
        self._master, self._slave = pty.openpty()
        self.run = Run(bench, *entries, stdin=self._slave, stdout=subprocess.PIPE)
        threading.Thread(target=self._read_echo, daemon=True).start()

    def wait_until_switched(self) -> None:
        """Wait until the kernel's line editor is off: what is pasted before has its limits."""
        while self.run.process.poll() is None and self.editing:
            processes.pause()

    @property
    def editing(self) -> bool:
        """Whether the kernel edits lines, as it does in a shell."""
        lflag: int = termios.tcgetattr(self._slave)[3]
        return bool(lflag & termios.ICANON)

    def type(self, keys: bytes) -> None:
        while keys:
            keys = keys[os.write(self._master, keys):]

    def close(self) -> None:
        os.close(self._slave)
        os.close(self._master)

    def _read_echo(self) -> None:
        try:
            while os.read(self._master, 1 << 16):
                pass
        except OSError:
            return


def test_at_a_terminal_there_is_a_hint_long_lines_can_be_pasted_and_ctrl_d_ends(agent: Workbench) -> None:
    terminal = Terminal(agent, says("typed"))
    try:
        with terminal.run.watched():
            terminal.wait_until_switched()
            pasted = script(agent, "x" * 100_000)
            terminal.type(pasted + b'\x7f{"jsonrpc":"2.0","id":"last","method":"foo/bar"}\n\x04')
            received, errors = terminal.run.end()
            assert terminal.editing, "the terminal did not get its settings back"
    finally:
        terminal.close()
    sent = pasted + b'{"jsonrpc":"2.0","id":"last","method":"foo/bar"}\n'
    answers = terminal.run.judge(sent, received)
    assert stop_reason(answers["prompt 1"]) == "end_turn"
    assert answers["last"]["error"]["code"] == -32601
    assert data(root_log(agent, "session-1"), "user/message")[0]["content"] == text_prompt("x" * 100_000)
    assert "Agent Client Protocol" in errors
    assert "Ctrl-D" in errors


# ---------------------------------------------------------------- stdout


def test_output_to_a_file_is_the_same_conversation(agent: Workbench, tmp_path: Path) -> None:
    sent = script(agent, "go")
    (tmp_path / "script").write_bytes(sent)
    with (tmp_path / "script").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        run = Run(agent, says(*["é"] * 3000), stdin=stdin, stdout=stdout)
    with run.watched():
        run.end()
    received = (tmp_path / "out").read_bytes()
    assert stop_reason(run.judge(sent, received)["prompt 1"]) == "end_turn"
    assert said(received) == "é" * 3000


def test_output_to_nowhere_stops_nobody_from_working(agent: Workbench, tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(script(agent, "go", "on"))
    with (tmp_path / "script").open("rb") as stdin:
        run = Run(agent, says("one"), says("two"), stdin=stdin, stdout=subprocess.DEVNULL, unseen="/dev/null")
    with run.watched():
        run.end()
    assert len(data(root_log(agent, "session-1"), "turn/end")) == 2


@pytest.mark.parametrize(("served", "ends"), [
    (says(*["more "] * 5000), {"kind": "completed"}),
    (hang(), {"kind": "aborted", "reason": {"kind": "disposed"}}),
], ids=["streaming", "hanging"])  # fmt: skip
def test_a_client_that_goes_away_ends_the_agent_and_everything_is_stored(
    agent: Workbench, served: Served, ends: dict[str, Any],
) -> None:
    read, write = os.pipe()
    run = Run(agent, served, stdin=subprocess.PIPE, stdout=write, unseen="the client is gone")
    os.close(write)
    with run.watched():
        assert run.process.stdin is not None
        run.process.stdin.write(script(agent, "go"))
        run.process.stdin.flush()
        with os.fdopen(read, "rb") as output:
            while b"agent_message_chunk" not in output.readline():
                pass
        assert run.end() == (b"", "")
    assert end_of(root_log(agent, "session-1")) == ends


# ---------------------------------------------------------------- who else writes


def test_nothing_that_a_tool_or_its_children_write_gets_between_the_messages(agent: Workbench) -> None:
    # The agent's own descriptor 1 is tried too: a child can reach it by name.
    command = ("echo to stdout; echo to stderr >&2; (setsid sh -c 'echo from far >&1'); "
               "echo stray > /proc/$PPID/fd/1; echo end")
    running, session = opened(agent, call(tool("c", "bash", command=command, description="d")), says("done"), **LIVE)
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert running.close() == 0
    output = results(root_log(agent, session))[0]
    for words in ("to stdout", "to stderr", "from far", "end"):
        assert words in output
    assert all(isinstance(entry.frame, dict) for entry in running.transcript if entry.sender == "agent")
    assert "stray" in running.stderr


def test_nothing_that_a_library_prints_gets_between_the_messages(agent: Workbench, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "jsonrpcserver.py").write_text(
        "import atexit, os, sys\n"
        "def shout(when):\n"
        "    print('printed', when)\n"
        "    sys.__stdout__.write(f'written {when}\\n')\n"
        "    sys.__stdout__.flush()\n"
        "    os.write(1, f'raw {when}\\n'.encode())\n"
        "    os.system(f'echo child {when}')\n"
        "shout('at import')\n"
        "atexit.register(shout, 'at exit')\n"
        "sys.path.remove(os.path.dirname(__file__))\n"
        "del sys.modules['jsonrpcserver']\n"
        "import jsonrpcserver\n", encoding="utf-8")
    running = shadowed(agent, tmp_path / "library")
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, "go")) == "end_turn"
    assert running.close() == 0
    for how in ("printed", "written", "raw", "child"):
        for when in ("at import", "at exit"):
            assert f"{how} {when}\n" in running.stderr


def shadowed(bench: Workbench, library: Path) -> AgentProcess:
    """An agent that finds modules in this directory first."""
    running = bench.prepare(replay=recording(bench, says("fine")))
    running.environ["PYTHONPATH"] = f"{library}{os.pathsep}{running.environ['PYTHONPATH']}"
    running.start()
    return running

"""The transport in a real process: a tiny agent behind real descriptors, signals included."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

AGENT = [sys.executable, str(Path(__file__).parent / "echo_agent.py")]
ROOT = Path(__file__).parents[3]
SCREAMS = 3  # at start-up, at shutdown, after the connection; and one for each scream asked for

Frame = dict[str, Any]


def request(number: Any, method: str, **params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"


INITIALIZE = request("init", "initialize")


class Echo:
    """The process, and a client's view of its pipes."""

    def __init__(self, arguments: tuple[str, ...], stderr: IO[bytes], stdin: Any, stdout: Any) -> None:
        self._stderr = stderr
        self.process = subprocess.Popen(
            [*AGENT, *arguments], stdin=stdin, stdout=stdout, stderr=self._stderr, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)})
        self.stdout = self.process.stdout

    @property
    def stderr(self) -> str:
        """What the agent has said there so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode()

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line)
        self.process.stdin.flush()

    def frame(self) -> Frame:
        """The next line from the agent."""
        assert self.stdout is not None
        line = self.stdout.readline()
        assert line.endswith(b"\n"), line
        frame: Frame = msgspec.json.decode(line)
        return frame

    def frames_until(self, done: Callable[[Frame], bool]) -> list[Frame]:
        frames = [self.frame()]
        while not done(frames[-1]):
            frames.append(self.frame())
        return frames

    def finish(self) -> list[Frame]:
        """Close the input, wait for the process's end, return what else it said on stdout."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        lines = [] if self.stdout is None else self.stdout.read().split(b"\n")
        assert not lines or lines.pop() == b""
        assert self.process.wait(60) == 0
        return [msgspec.json.decode(line) for line in lines]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextlib.contextmanager
def echo(
    *arguments: str, stdin: Any = subprocess.PIPE, stdout: Any = subprocess.PIPE
) -> Iterator[Echo]:
    # A file takes any amount of stderr without a reader.
    with tempfile.TemporaryFile() as stderr:
        running = Echo(arguments, stderr, stdin, stdout)
        try:
            yield running
        finally:
            running.close()


def ids(frames: list[Frame]) -> list[Any]:
    return [frame.get("id") for frame in frames]


def waiting_to_be_read(fd: int) -> int:
    """Bytes that a pipe or socket holds for its reader."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)


# ---------------------------------------------------------------- purity


def test_no_scream_of_a_library_or_child_process_reaches_stdout() -> None:
    with echo() as agent:
        agent.send(INITIALIZE, request(1, "scream"), request(2, "echo", text="x"))
        frames, err = agent.finish(), agent.stderr
    assert ids(frames) == ["init", 1, 2]
    for word in ("print", "write", "descriptor 1", "no input for a child"):
        assert err.count(word + "\n") >= SCREAMS + 1, err


def test_a_closed_stderr_harms_nothing() -> None:
    command = f'exec "{AGENT[0]}" "{AGENT[1]}" 2>&-'
    done = subprocess.run(["/bin/sh", "-c", command], input=INITIALIZE + request(1, "echo", text="x"), cwd=ROOT,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True)
    assert ids([msgspec.json.decode(line) for line in done.stdout.splitlines()]) == ["init", 1]


def test_a_closed_stdin_is_an_end_of_input() -> None:
    command = f'exec "{AGENT[0]}" "{AGENT[1]}" <&-'
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, check=True)
    assert done.stdout == b""


def test_text_separators_never_split_a_line() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\rg\nh\x1ei \"\\ 🙂\x00"
    with echo() as agent:
        agent.send(INITIALIZE, request(1, "echo", text=text))
        raw = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        for control in "\x00\x0b\x0c\x1e":
            raw = raw.replace(control, f"\\u{ord(control):04x}")
        agent.send(f'{{"jsonrpc":"2.0","id":2,"method":"echo","params":{{"text":"{raw}"}}}}\r\n'.encode())
        frames = agent.finish()
    assert [frame["result"]["text"] for frame in frames[1:]] == [text, text]


# ---------------------------------------------------------------- volume


def test_fifty_requests_sent_without_reading_are_each_answered_once() -> None:
    with echo() as agent:
        agent.send(INITIALIZE, *(request(number, "echo", text="x") for number in range(50)))
        frames = agent.finish()
    assert sorted(ids(frames[1:])) == list(range(50))


def test_a_line_of_8_mib_passes_both_ways() -> None:
    text = "0123456789abcdef" * (8 * 1024 * 1024 // 16)
    with echo() as agent:
        agent.send(INITIALIZE, request(1, "echo", text=text))
        frames = agent.finish()
    assert frames[1]["result"]["text"] == text


def test_a_line_over_the_limit_is_a_parse_error_and_the_next_one_is_served() -> None:
    with echo() as agent:
        agent.send(INITIALIZE)
        agent.frame()
        for _ in range(70):
            agent.send(b"x" * (1024 * 1024))
        agent.send(b"\n", request(1, "echo", text="x"))
        error = agent.frame()
        assert (error["id"], error["error"]["code"]) == (None, -32700)
        assert str(70 * 1024 * 1024) in error["error"]["message"]
        assert agent.frame()["id"] == 1


@pytest.mark.parametrize("transport", ["pipe", "socket"])
def test_a_slow_reader_bounds_memory_and_gets_everything_in_order(transport: str) -> None:
    count, size = 3_000, 10_000
    theirs, ours = socket.socketpair()
    with echo(stdout=ours if transport == "socket" else subprocess.PIPE) as agent:
        ours.close()
        if transport == "socket":
            agent.stdout = theirs.makefile("rb")
        theirs.close()  # the file made of it stays open
        agent.send(INITIALIZE, request(1, "stream", count=count, size=size))
        assert agent.stdout is not None
        assert agent.frame()["id"] == "init"
        while waiting_to_be_read(agent.stdout.fileno()) < 60_000:
            os.sched_yield()
        frames = agent.frames_until(lambda frame: frame.get("id") == 1)
        assert agent.finish() == []
    updates = [frame["params"]["number"] for frame in frames[:-1]]
    assert updates == list(range(count))
    done = frames[-1]["result"]
    assert 64 * 1024 < done["peak_queued"] < 64 * 1024 + 2 * size
    assert done["grown_kib"] < 6_000


def test_output_to_a_regular_file_is_complete(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, echo(stdout=out) as agent:
        agent.send(INITIALIZE, request(1, "stream", count=2_000, size=100))
        agent.finish()
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert len(lines) == 2_002
    assert msgspec.json.decode(lines[-1])["result"]["outcome"] == "sent"


def test_both_ends_may_be_one_socket() -> None:
    theirs, ours = socket.socketpair()
    with echo(stdin=ours, stdout=ours) as agent:
        ours.close()
        theirs.sendall(INITIALIZE + request(1, "echo", text="x"))
        theirs.shutdown(socket.SHUT_WR)
        with theirs, theirs.makefile("rb") as stream:
            assert ids([msgspec.json.decode(line) for line in stream]) == ["init", 1]
        assert agent.process.wait(60) == 0


# ---------------------------------------------------------------- the end


def test_at_the_end_of_a_pipe_an_unanswered_question_is_refused_and_the_request_answered() -> None:
    with echo() as agent:
        agent.send(INITIALIZE, request(1, "ask"))
        agent.frames_until(lambda frame: frame.get("method") == "question")
        assert [frame["result"] for frame in agent.finish()] == [{"outcome": "refused"}]
        assert "[end of input]" in agent.stderr


def test_at_the_end_of_a_pipe_hanging_work_is_cancelled_after_the_grace() -> None:
    with echo("0.1") as agent:
        agent.send(INITIALIZE, request(1, "hang"))
        agent.frames_until(lambda frame: frame.get("method") == "hanging")
        frames = agent.finish()
    assert [frame["result"] for frame in frames] == [{"outcome": "cancelled"}]


def test_a_script_in_a_file_is_worked_to_its_end_whatever_the_grace(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_bytes(INITIALIZE + b"\r\n\n" + request(1, "work", count=30_000).rstrip(b"\n"))
    with script.open("rb") as stdin, echo("0.01", stdin=stdin) as agent:
        frames = agent.finish()
    assert frames[1]["result"] == {"outcome": "finished"}


def test_the_same_script_in_a_pipe_is_cut_after_the_grace() -> None:
    with echo("0.01") as agent:
        agent.send(INITIALIZE, request(1, "work", count=3_000_000))
        frames = agent.finish()
    assert frames[1].get("result") == {"outcome": "cancelled"} or frames[1]["error"]["code"] == -32800


def test_dev_null_as_input_ends_at_once() -> None:
    with echo(stdin=subprocess.DEVNULL) as agent:
        assert agent.finish() == []


@pytest.mark.parametrize("busy", [False, True])
def test_a_client_that_closes_our_stdout_ends_the_process(busy: bool) -> None:
    with echo("0.1") as agent:
        assert agent.stdout is not None
        agent.send(INITIALIZE)
        agent.frame()
        if busy:
            agent.send(request(1, "stream", count=100_000_000, size=1_000))
            agent.frame()
        agent.stdout.close()
        assert agent.process.wait(60) == 0
        assert "[client gone]" in agent.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_cancels_the_work_answers_and_ends_in_order(number: signal.Signals) -> None:
    with echo("1000") as agent:
        agent.send(INITIALIZE, request(1, "hang"))
        agent.frames_until(lambda frame: frame.get("method") == "hanging")
        agent.process.send_signal(number)
        assert agent.frame()["result"] == {"outcome": "cancelled"}
        assert agent.process.wait(60) == 0
        assert "[stopped]" in agent.stderr


def test_a_third_signal_ends_even_an_agent_that_hangs() -> None:
    with echo("1000") as agent:
        agent.send(INITIALIZE, request(1, "sleepless"))
        agent.frames_until(lambda frame: frame.get("method") == "hanging")
        agent.process.send_signal(signal.SIGTERM)
        agent.frames_until(lambda frame: frame.get("method") == "shutting down")
        agent.process.send_signal(signal.SIGINT)
        agent.process.send_signal(signal.SIGHUP)
        assert agent.process.wait(60) in (128 + signal.SIGHUP, 128 + signal.SIGINT)


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the agent inherits it, as under nohup
    try:
        with echo() as agent:
            agent.send(INITIALIZE)
            agent.frame()
            agent.process.send_signal(signal.SIGHUP)
            agent.send(request(1, "echo", text="alive"))
            assert agent.frame()["result"] == {"text": "alive"}
            agent.finish()
            assert "[end of input]" in agent.stderr
    finally:
        signal.signal(signal.SIGHUP, before)


# ---------------------------------------------------------------- terminal


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
def test_a_terminal_is_served_and_gets_its_settings_back(number: signal.Signals | None) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with echo(stdin=slave) as agent:
        try:
            os.write(master, INITIALIZE)
            assert agent.frame()["id"] == "init"
            assert not termios.tcgetattr(slave)[3] & termios.ICANON
            long_line = request(1, "echo", text="x" * 20_000)
            while long_line:
                if select.select([master], [], [], 0)[0]:
                    os.read(master, 65_536)  # the echo
                if select.select([], [master], [], 0)[1]:
                    long_line = long_line[os.write(master, long_line[:1_000]):]
            assert len(agent.frame()["result"]["text"]) == 20_000
            if number is None:
                os.write(master, b"\x04")
            else:
                agent.process.send_signal(number)
            assert agent.process.wait(60) == 0
            assert termios.tcgetattr(slave) == before
            assert "Ctrl-D" in agent.stderr
        finally:
            os.close(master)
            os.close(slave)

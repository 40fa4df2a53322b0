"""An ACP client for tests: drives a real agent process over its pipes and judges everything that passes.

Every wait is for a state and has a limit; what it reports when it fails is what was awaited, the last frames and
stderr. When it closes, the transcript must keep every law, unless the test says why it cannot.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.support import policies, processes
from tests.support.laws import Entry, check_laws, parse_line
from tests.support.schema import Frame, Pending, id_key, is_request, is_response, validate_frame
from tests.support.transcript import Transcript

TIMEOUT = float(os.environ.get("TEST_TIMEOUT", "30"))
AGENT = (sys.executable, "-m", "acp_agent")


class Failed(AssertionError):
    """A wait that ended without its state, or a broken law."""


class AgentProcess(Transcript):
    """An agent as a child process. A context manager that starts it and, on leaving, closes and judges it.

    `environ` is added to an environment without `ACP_` settings and secrets, whose HOME and XDG directories lie in
    `home`. `unlawful` names the reason why this test's transcript may break laws. `unstable` allows the protocol's
    unstable parts.
    """

    def __init__(
        self, command: Sequence[str] = AGENT, *, cwd: Path, home: Path, environ: Mapping[str, str] | None = None,
        unlawful: str | None = None, unstable: bool = False, timeout: float = TIMEOUT,
    ) -> None:
        super().__init__()
        self.command = list(command)
        self.cwd = cwd
        self.timeout = timeout
        self.unlawful = unlawful
        self.unstable = unstable
        self.mark = processes.new_mark()
        self.environ = processes.clean_environment(home) | dict(environ or {}) | {processes.MARK: self.mark}
        self.answers: dict[str, policies.Policy] = {"session/request_permission": policies.cancel}
        """How requests of the agent's are answered, by method; others get -32601."""
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._reading = threading.Event()
        self._reading.set()
        self._todo: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._errors: list[str] = []
        self._stderr = bytearray()
        self._half_line = b""
        self._last_id = 0
        self._asked_at: dict[str, int] = {}
        self._ended = False
        self._killed = False
        self._judged = False
        self._process: subprocess.Popen[bytes] | None = None

    # -- life

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abandon()
        elif not self._judged:
            self.close()

    def start(self, stdin: int | IO[bytes] = subprocess.PIPE) -> None:
        """Start the process. With another `stdin` than a pipe, nothing can be sent."""
        self._process = subprocess.Popen(
            self.command, cwd=self.cwd, env=self.environ, stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        for work in (self._read_stdout, self._read_stderr, self._answer_requests):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the agent was not started"
        return self._process

    @property
    def judged(self) -> bool:
        """Whether the transcript was checked, or given up."""
        return self._judged

    @property
    def pid(self) -> int:
        return self.process.pid

    def end_input(self) -> None:
        """Close the agent's stdin. Safe to call twice."""
        with self._write_lock:
            if self.process.stdin is not None and not self.process.stdin.closed:
                self._note_sent(b"", last=True)
                with contextlib.suppress(BrokenPipeError):
                    self.process.stdin.close()

    def close(self) -> int:
        """End the input, wait until the agent exits, check all laws; returns the exit status."""
        self.end_input()
        status = self.wait()
        self.judge()
        return status

    def wait(self) -> int:
        """Wait until the agent exits by itself and everything it wrote was read; returns the exit status."""
        self.resume_reading()
        try:
            status = self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise Failed(self._report(f"the agent's exit, {self.timeout:g} s")) from None
        self._join()
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the agent."""
        if number == signal.SIGKILL:
            self._killed = True
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the agent as a crash would, and wait until it is gone. What was open may stay unanswered."""
        self.signal(signal.SIGKILL)
        self.wait()

    def abandon(self) -> None:
        """Kill whatever runs; judge nothing. For a test that failed already."""
        self._judged = True
        if self._process is None:
            return
        self.resume_reading()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        processes.kill_marked(self.mark)
        self._join()

    def _join(self) -> None:
        self._todo.put(None)
        for thread in self._threads:
            thread.join(self.timeout)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    # -- judging

    def judge(self) -> None:
        """Raise `Failed` for every broken law, and for processes that the agent left behind."""
        self._judged = True
        left = processes.wait_until_gone(self.mark)
        problems = [f"law 6: the agent left a process behind: {name}" for name in left]
        processes.kill_marked(self.mark)
        if self.unlawful is None:
            problems += check_laws(self.transcript, finished=not self._killed, unstable=self.unstable)
        problems += self._errors
        if problems:
            raise Failed(self._report("a lawful transcript\n  " + "\n  ".join(problems)))

    # -- sending

    def send_bytes(self, data: bytes) -> None:
        """Write bytes as they are: any frame, half a frame, or none."""
        with self._write_lock:
            self._note_sent(data)
            assert self.process.stdin is not None, "this agent's stdin is not a pipe"
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, frame: Any) -> None:
        """Write one frame; an object without `jsonrpc` gets it."""
        if isinstance(frame, dict):
            frame = {"jsonrpc": "2.0"} | frame
        self.send_bytes(json.dumps(frame, separators=(",", ":")).encode() + b"\n")

    def _note_sent(self, data: bytes, *, last: bool = False) -> None:
        *lines, self._half_line = (self._half_line + data).split(b"\n")
        if last and self._half_line:
            lines.append(self._half_line)
            self._half_line = b""
        for line in lines:
            frame = parse_line(line.removeprefix(b"\xef\xbb\xbf"))
            self._note(Entry("client", frame, line + b"\n", time.monotonic()))

    def request(self, method: str, params: Frame | None = None) -> int:
        """Send a request with a new id; returns the id."""
        self._last_id += 1
        self._asked_at[id_key(self._last_id)] = self.position
        self.send({"id": self._last_id, "method": method} | ({} if params is None else {"params": params}))
        return self._last_id

    def notify(self, method: str, params: Frame | None = None) -> None:
        """Send a notification."""
        self.send({"method": method} | ({} if params is None else {"params": params}))

    def respond(self, request: Frame, **members: Any) -> None:
        """Answer a request of the agent's with `result=...` or `error=...`."""
        self.send({"id": request["id"], **members})

    def call(self, method: str, params: Frame | None = None) -> Frame:
        """Send a request and wait for its response; returns the whole frame, result or error."""
        return self.response(self.request(method, params))

    # -- the protocol's usual moves

    def initialize(self, capabilities: Frame | None = None, *, version: int = 1) -> Frame:
        """Initialize; returns the result."""
        params = {"protocolVersion": version, "clientCapabilities": capabilities or {},
                  "clientInfo": {"name": "tests", "version": "1"}}
        return self._result("initialize", params)

    def new_session(self, cwd: Path | None = None) -> str:
        """Make a session; returns its id."""
        session: str = self.new_session_result(cwd)["sessionId"]
        return session

    def new_session_result(self, cwd: Path | None = None) -> Frame:
        """Make a session; returns the whole result."""
        return self._result("session/new", {"cwd": str(cwd or self.cwd), "mcpServers": []})

    def start_prompt(self, session: str, text: str) -> int:
        """Send a text prompt; returns the request's id."""
        return self.request("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def prompt(self, session: str, text: str) -> Frame:
        """Send a text prompt and wait for the turn's end; returns the response frame, result or error."""
        return self.response(self.start_prompt(session, text))

    def cancel(self, session: str) -> None:
        """Cancel what runs in a session."""
        self.notify("session/cancel", {"sessionId": session})

    def _result(self, method: str, params: Frame) -> Frame:
        frame = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        wrong = validate_frame(frame, "client", Pending(), unstable=self.unstable)
        assert not wrong, f"this client is wrong: {wrong}"
        answer = self.call(method, params)
        if "result" not in answer:
            raise Failed(self._report(f"a result of {method}, not {answer['error']}"))
        result: Frame = answer["result"]
        return result

    # -- waiting

    def response(self, request: Any) -> Frame:
        """Wait for the response to a request id."""
        key = id_key(request)
        return self.wait_for(lambda frame: is_response(frame) and id_key(frame.get("id")) == key,
                             f"the response to {key}", since=self._asked_at.get(key, 0))

    def wait_for(self, predicate: Callable[[Frame], bool], what: str, *, since: int = 0) -> Frame:
        """Wait until the agent sends (or sent, from position `since` of the transcript on) such a frame.

        Raises `Failed` when the agent ends or the time limit passes before that.
        """
        deadline = time.monotonic() + self.timeout
        position = since
        with self._changed:
            while True:
                while position < len(self.transcript):
                    entry = self.transcript[position]
                    position += 1
                    if entry.sender == "agent" and isinstance(entry.frame, dict) and predicate(entry.frame):
                        return entry.frame
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise Failed(self._report(what, gone=self._ended))
                self._changed.wait(left)

    def wait_for_update(self, kind: str, *, since: int = 0, session: str | None = None, **members: Any) -> Frame:
        """Wait for a session update of a kind with certain members; returns the update."""
        def matches(frame: Frame) -> bool:
            if frame.get("method") != "session/update" or session not in (None, frame["params"]["sessionId"]):
                return False
            update = frame["params"]["update"]
            return update["sessionUpdate"] == kind and all(update.get(k) == v for k, v in members.items())

        update: Frame = self.wait_for(matches, f"{kind} {members or ''}", since=since)["params"]["update"]
        return update

    def wait_for_request(self, method: str, *, since: int = 0) -> Frame:
        """Wait for a request of the agent's."""
        def matches(frame: Frame) -> bool:
            return is_request(frame) and frame["method"] == method

        return self.wait_for(matches, f"the request {method}", since=since)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a state outside the protocol: a file, a process that is gone."""
        deadline = time.monotonic() + self.timeout
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(self._report(what))
            processes.pause()

    def wait_for_stderr(self, text: str) -> None:
        """Wait until the agent wrote this to stderr."""
        self.wait_until(lambda: text in self.stderr, f"{text!r} on stderr")

    @property
    def stderr(self) -> str:
        """Everything the agent wrote to stderr so far."""
        return bytes(self._stderr).decode(errors="replace")

    # -- a client that does not read

    def stop_reading(self) -> None:
        """Leave the agent's output in the pipe (after at most one more line)."""
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    # -- threads

    def _read_stdout(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        while True:
            self._reading.wait()
            line = stdout.readline()
            if not line:
                break
            frame = parse_line(line)
            self._note(Entry("agent", frame, line, time.monotonic()))
            if is_request(frame):
                self._todo.put(frame)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_stderr(self) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        while data := os.read(stderr.fileno(), 65536):
            self._stderr += data

    def _answer_requests(self) -> None:
        """Apart from the reader, which must not wait for a pipe that is full."""
        while (request := self._todo.get()) is not None:
            try:
                members = self.answers.get(request["method"], policies.not_offered)(request)
                if members is not None:
                    self.respond(request, **members)
            except (OSError, ValueError):
                continue  # the agent is gone, or its input has ended: nobody waits for this answer
            except Exception as error:
                self._errors.append(f"the test's answer to {request['method']} failed: {error!r}")
                self._give_up(request)

    def _give_up(self, request: Frame) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.respond(request, error={"code": -32603, "message": "the test has no answer"})

    def _note(self, entry: Entry) -> None:
        with self._changed:
            self.transcript.append(entry)
            self._changed.notify_all()

    def _report(self, what: str, *, gone: bool = False) -> str:
        status = None if self._process is None else self._process.poll()
        ended = f" (the agent closed stdout; exit status {status})" if gone or status is not None else ""
        lines = [f"  {'->' if e.sender == 'client' else '<-'} {e.raw[:400].decode(errors='replace').rstrip()}"
                 for e in self.transcript[-20:]]
        return "\n".join([f"waited for {what}{ended}", "last frames:", *lines, "stderr:", self.stderr[-3000:]])

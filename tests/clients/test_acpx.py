"""acpx, a command line client, meets our agent: one-shot runs, and sessions that live on between its commands."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.clients.meeting import Meeting, Wire
from tests.clients.npm import Npm
from tests.clients.recorded import Turn, turns, writing
from tests.support.schema import Frame
from tests.wire.recordings import hang, patch, says
from tests.wire.runs import LIVE

DENIED = 5
"""acpx's exit status when a permission was denied."""


class Acpx:
    """acpx with our agent as its own."""

    def __init__(self, meeting: Meeting, npm: Npm, tmp_path: Path) -> None:
        self.meeting = meeting
        self.replay = writing(tmp_path / "replay")
        meeting.settings |= LIVE | {"ACP_PERMISSION_MODE": "ask", "ACP_REPLAY_DIR": str(self.replay)}
        meeting.signalled = "acpx ends an agent by SIGTERM that is still there 0.1 s after the end of its input"
        self._command = npm.command("acpx", "--agent", shlex.join(meeting.command), "--ttl", "0")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A running command."""
        return self.meeting.start(*self._command, *arguments)

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run a command to its end; returns what it printed."""
        return self.meeting.run(*self._command, *arguments, status=status)

    def frames(self, *arguments: str) -> list[Frame]:
        """Run a command; returns the JSON lines it printed."""
        return _lines(self.run("--format", "json", "--approve-all", *arguments))

    @property
    def wire(self) -> Wire:
        """What passed with the agent that was started last."""
        return self.meeting.wires()[-1]

    def recorded(self) -> Turn:
        """The recorded turn, without its prompt, which its own client is not told."""
        (turn,) = turns(self.replay, self.meeting.workspace)
        return Turn("", turn.thought, turn.text, turn.tools, turn.stop)


@pytest.fixture
def acpx(meeting: Meeting, clients: Npm, tmp_path: Path) -> Acpx:
    """acpx, whose agent replays the turn that writes."""
    return Acpx(meeting, clients, tmp_path)


def _lines(printed: str) -> list[Frame]:
    return [json.loads(line) for line in printed.splitlines()]


def reported(frames: list[Frame]) -> Turn:
    """A turn as acpx told it: it prints what it received, frame by frame."""
    turn = Turn()
    said = {"user_message_chunk": "prompt", "agent_thought_chunk": "thought", "agent_message_chunk": "text"}
    for update in (frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"):
        kind = update["sessionUpdate"]
        if kind in said:
            setattr(turn, said[kind], getattr(turn, said[kind]) + update["content"]["text"])
        elif "status" in update:
            turn.tools[update["toolCallId"]] = update["status"]
    (turn.stop,) = [frame["result"]["stopReason"] for frame in frames if "stopReason" in frame.get("result", {})]
    return turn


# ---------------------------------------------------------------- one-shot runs


def test_a_run_with_everything_approved_reports_what_was_recorded(acpx: Acpx) -> None:
    printed = acpx.frames("exec", "Write.")
    assert reported(printed) == acpx.recorded()
    assert [frame for frame in printed if frame in acpx.wire.received] == acpx.wire.received
    assert acpx.wire.call_methods()[:3] == ["initialize", "session/new", "session/prompt"]
    assert [question["toolCall"]["toolCallId"] for question in acpx.wire.questions()][:2] == ["w", "b"]
    assert (acpx.meeting.workspace / "note.txt").read_text() == "remember\n"
    assert (acpx.meeting.workspace / "ran.txt").read_text() == "ran"


def test_a_run_with_everything_denied_changes_nothing_and_goes_on(acpx: Acpx) -> None:
    printed = acpx.run("--format", "quiet", "--deny-all", "exec", "Write.", status=DENIED)
    assert printed.strip() == acpx.recorded().text
    assert list(acpx.meeting.workspace.iterdir()) == []
    ends = {one["toolCallId"]: one["status"] for one in acpx.wire.updates() if "status" in one}
    assert ends == {"w": "failed", "b": "failed", "t": "completed"}


# ---------------------------------------------------------------- sessions


def test_a_session_takes_prompts_a_mode_and_a_cancel_from_one_command_after_another(acpx: Acpx) -> None:
    patch(acpx.replay, {2: hang(), 3: says("Still ", "here.")})
    acpx.run("sessions", "new", "--name", "work")
    acpx.run("set-mode", "-s", "work", "full-access")
    assert reported(acpx.frames("prompt", "-s", "work", "Write.")) == acpx.recorded()
    assert acpx.wire.questions() == []

    hanging = acpx.start("--format", "json", "prompt", "-s", "work", "Wait.")
    acpx.meeting.wait_until(lambda: "partial" in json.dumps(acpx.wire.updates()), hanging)
    acpx.run("cancel", "-s", "work")
    assert reported(_lines(acpx.meeting.finish(hanging))) == Turn("", "", "partial", {}, "cancelled")
    assert reported(acpx.frames("prompt", "-s", "work", "And now?")) == Turn("", "", "Still here.", {}, "end_turn")
    acpx.run("sessions", "close", "work")
    assert acpx.wire.call_methods()[-4:] == ["session/prompt", "session/cancel", "session/prompt", "session/close"]


@pytest.mark.parametrize("method", ["session/resume", "session/load"])
def test_a_stored_session_is_listed_and_continued(method: str, acpx: Acpx) -> None:
    """acpx loads a session only where it cannot resume it."""
    patch(acpx.replay, {2: says("And ", "again.")})
    acpx.frames("exec", "Write.")
    (session,) = {frame["params"]["sessionId"] for frame in acpx.wire.received if "params" in frame}
    (page,) = acpx.frames("sessions", "list")
    assert [(one["sessionId"], one["title"]) for one in page["sessions"]] == [(session, "Write.")]

    if method == "session/load":
        acpx.meeting.settings["TEE_HIDE"] = "resume"
    acpx.run("sessions", "new", "--name", "old", "--resume-session", session)
    asked = {"sessionId": session, "cwd": str(acpx.meeting.workspace), "mcpServers": []}
    assert (acpx.wire.sent(method), acpx.wire.sent("session/new")) == ([asked], [])
    told = "".join(update["content"]["text"] for update in acpx.wire.updates(session)
                   if update["sessionUpdate"] == "user_message_chunk")
    assert told == ("Write." if method == "session/load" else "")

    assert reported(acpx.frames("prompt", "-s", "old", "Again?")) == Turn("", "", "And again.", {}, "end_turn")
    acpx.run("sessions", "close", "old")
    assert acpx.wire.call_methods() == ["initialize", method, "session/prompt", "session/close"]

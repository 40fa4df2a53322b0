from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.tools.base import Kind, ToolFailure
from acp_agent.tools.bash import Bash
from acp_agent.tools.output import LIMIT, SHOWN, Output
from tests.unit.tools.tool_session import ToolSession, code_of, text_of

BASH = Bash()
linux = pytest.mark.skipif(sys.platform != "linux", reason="finding who left the group needs /proc")


def run(session: ToolSession, command: str, **arguments: object) -> str:
    outcome = session.run(BASH, command=command, description="test", **arguments)
    assert not outcome.is_error
    return text_of(outcome)


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        if sys.platform != "linux":
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def until(condition: Callable[[], bool]) -> None:
    """The test's own timeout is the limit."""
    while not condition():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0.005)


def pids(session: ToolSession, *names: str) -> list[int]:
    return [int((session.cwd / name).read_text()) for name in names]


def written(session: ToolSession, *names: str) -> Callable[[], bool]:
    files = [session.cwd / name for name in names]
    return lambda: all(file.exists() and file.read_text().strip() for file in files)


def let_go_once_shown(session: ToolSession) -> None:
    """The command may end when its output was shown for the first time."""

    def note(text: str) -> None:
        session.progress.append(text)
        (session.cwd / "go").touch()

    session.on_progress = note


# ---------------------------------------------------------------- result texts


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo SNAPSHOT_OK", "SNAPSHOT_OK\n"),
        ("printf plain", "plain"),
        ("true", "(no output)"),
        ("exit 3", "(no output)\n[exit code: 3]"),
        ("echo out; exit 3", "out\n[exit code: 3]"),
        ("printf out; exit 3", "out\n[exit code: 3]"),
        ("echo err >&2", "[stderr]\nerr\n"),
        ("printf out; printf err >&2", "out\n[stderr]\nerr"),
        ("echo err >&2; echo out; exit 1", "out\n[stderr]\nerr\n[exit code: 1]"),
        ("kill -KILL $$", "(no output)\n[killed by signal: SIGKILL]"),
        ("echo a; kill -TERM $$", "a\n[killed by signal: SIGTERM]"),
        ("printf 'caf\\xe9'", "caf\ufffd"),
        ("printf 'a\\000b'", "a\0b"),
        ("cat", "(no output)"),
        ("echo $NO_COLOR $TERM $PAGER $GIT_PAGER", "1 dumb cat cat\n"),
        ("[[ bash == b* ]] && shopt -q login_shell || echo not a login shell", "not a login shell\n"),
        ("no-such-command-here 2>/dev/null", "(no output)\n[exit code: 127]"),
    ],
)
def test_result_texts(session: ToolSession, command: str, text: str) -> None:
    assert run(session, command) == text


def test_it_runs_in_the_session_directory_or_the_one_asked_for(session: ToolSession) -> None:
    (session.cwd / "sub").mkdir()
    assert run(session, "pwd") == f"{session.cwd}\n"
    assert run(session, "pwd", workdir="sub") == f"{session.cwd}/sub\n"
    assert run(session, "pwd", workdir="/") == "/\n"


def test_a_directory_that_cannot_be_used_is_named(session: ToolSession) -> None:
    (session.cwd / "f").write_text("")
    missing = session.run(BASH, command="pwd", description="d", workdir="gone")
    assert text_of(missing) == f'Error: cannot run in "{session.cwd}/gone": not found'
    assert code_of(missing) == "FS_NOT_FOUND"
    file = session.run(BASH, command="pwd", description="d", workdir="f")
    assert text_of(file) == f'Error: cannot run in "{session.cwd}/f": it is not a directory'


def test_background_jobs_are_refused(session: ToolSession) -> None:
    outcome = session.run(BASH, command="touch ran", description="d", run_in_background=True)
    assert outcome.is_error
    assert text_of(outcome).startswith("Error: background jobs are not available")
    assert not (session.cwd / "ran").exists()
    assert run(session, "echo ran", run_in_background=False) == "ran\n"


def test_a_command_too_long_for_the_system_is_refused(session: ToolSession) -> None:
    outcome = session.run(BASH, command=": " + "x" * 3_000_000, description="d")
    assert text_of(outcome).startswith("Error: the command could not be started: it is too long")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"command": "ls"}', "object missing required field description"),
        ('{"description": "d"}', "object missing required field command"),
        ('{"command": " ", "description": "d"}', "command: expected a command"),
        ('{"command": "a\\u0000b", "description": "d"}', "command: expected text without NUL"),
        ('{"command": "ls", "description": "d", "timeoutMs": 0}', "timeoutMs: expected more than 0, got 0"),
        ('{"command": "ls", "description": "d", "timeoutMs": "1"}', "timeoutMs: expected float | null, got str"),
    ],
)
def test_wrong_arguments_name_the_field(arguments: str, problem: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        BASH.decode(arguments)
    assert caught.value.message.startswith(f'invalid arguments for tool "bash": {problem}')


def test_the_timeout_has_a_default_and_a_maximum() -> None:
    assert BASH.decode('{"command": "ls", "description": "d"}').timeout_ms == 120_000
    assert BASH.decode('{"command": "ls", "description": "d", "timeoutMs": 1e9}').timeout_ms == 600_000
    assert BASH.decode('{"command": "ls", "description": "d", "timeoutMs": 2500.0}').timeout_ms == 2500


def test_it_is_announced_by_its_first_line(session: ToolSession) -> None:
    view = BASH.announce(BASH.decode('{"command": "echo one\\necho two", "description": "d"}'), session.cwd)
    assert (view.title, view.kind) == ("echo one…", Kind.execute)


# ---------------------------------------------------------------- much output


def test_of_much_output_the_end_is_kept_and_all_of_it_saved(session: ToolSession) -> None:
    text = run(session, "seq 1 200000; echo END; exit 2")
    body, _, markers = text.partition("END\n")
    assert len(body) + 4 == LIMIT
    code, truncated = markers.split("\n")
    assert code == "[exit code: 2]"
    whole = "".join(f"{number}\n" for number in range(1, 200_001)) + "END\n"
    (saved,) = session.spill.iterdir()
    assert truncated == f"[output truncated: the last 64000 of {len(whole)} bytes are shown; full output: {saved}]"
    assert saved.read_text() == whole
    assert whole.endswith(body + "END\n")
    assert session.spill.stat().st_mode & 0o777 == 0o700


def test_a_megabyte_on_one_line_keeps_whole_characters(session: ToolSession) -> None:
    text = run(session, f"{sys.executable} -c 'print(\"€\" * 500000, end=\"\")'")
    body, _, marker = text.rpartition("\n")
    assert body == "€" * (LIMIT // 3)
    assert marker.startswith("[output truncated: ")


def test_neither_stream_crowds_out_the_other(session: ToolSession) -> None:
    text = run(session, "head -c 100000 /dev/zero | tr '\\0' o; head -c 100000 /dev/zero | tr '\\0' e >&2")
    assert text.count("o" * (LIMIT // 2)) == 1
    assert "\n[stderr]\n" + "e" * (LIMIT // 2) + "\n[output" in text
    assert "[output truncated: the last 64000 of 200000 bytes" in text


def test_exactly_the_limit_is_not_truncated(session: ToolSession) -> None:
    assert run(session, f"head -c {LIMIT} /dev/zero | tr '\\0' x") == "x" * LIMIT
    assert not session.spill.exists()


def test_output_that_cannot_be_saved_is_still_returned(session: ToolSession) -> None:
    session.spill.write_text("a file where the directory should be")
    text = run(session, "seq 1 200000")
    assert text.endswith("bytes are shown; the rest could not be saved: file exists]")
    assert "\n200000\n" in text


def test_a_saved_output_does_not_replace_an_earlier_one(tmp_path: Path) -> None:
    for _ in range(2):
        output = Output(tmp_path, "bash-1-1-c.txt")
        output.feed(1, b"x" * (LIMIT + 1))
        output.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bash-1-1-c-2.txt", "bash-1-1-c.txt"]


# ---------------------------------------------------------------- while it runs


def test_output_is_shown_while_the_command_runs(session: ToolSession) -> None:
    """The command waits for a file that is only made once its first output was shown."""
    let_go_once_shown(session)
    assert run(session, "echo first; until [ -e go ]; do sleep 0.01; done; echo second") == "first\nsecond\n"
    assert session.progress[0] == "```\nfirst\n```"


def test_a_chatty_command_is_shown_seldom_and_its_end_only(session: ToolSession) -> None:
    let_go_once_shown(session)
    run(session, "seq 1 100000; until [ -e go ]; do sleep 0.01; done")
    assert len(session.progress) < 50
    assert max(map(len, session.progress)) <= SHOWN + len("```\n\n```")
    assert "\n100000\n" in session.progress[-1]


# ---------------------------------------------------------------- ending it


def test_a_timeout_ends_the_command_and_keeps_its_output(session: ToolSession) -> None:
    text = run(session, "echo before; sleep 1000", timeoutMs=300)
    assert text == "before\n[timed out after 300ms]\n[killed by signal: SIGTERM]"


def test_a_command_may_clean_up_at_its_timeout(session: ToolSession) -> None:
    text = run(session, "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done", timeoutMs=300)
    assert text.startswith("bye\n")
    assert text.endswith("\n[timed out after 300ms]")


TREE = """
trap '' TERM
(trap '' TERM; echo $BASHPID > child; exec sleep 1000) &
setsid bash -c 'trap "" TERM; echo $$ > left; sleep 1000' &
env -i setsid bash -c 'echo $$ > bare; sleep 1000' &
(setsid bash -c 'echo $$ > orphan; exec sleep 1000' & )
until [ -s child ] && [ -s left ] && [ -s bare ] && [ -s orphan ]; do sleep 0.01; done
echo $$ > shell
wait
"""
FAMILY = ("child", "left", "bare", "orphan", "shell")


@linux
def test_a_timeout_leaves_no_descendant(session: ToolSession) -> None:
    text = run(session, TREE, timeoutMs=1500)
    assert text == "(no output)\n[timed out after 1500ms]\n[killed by signal: SIGKILL]"
    assert [pid for pid in pids(session, *FAMILY) if alive(pid)] == []


@linux
def test_cancelling_leaves_no_descendant_and_is_quick(session: ToolSession) -> None:
    async def scenario() -> float:
        call = asyncio.ensure_future(session.call(BASH, command=TREE, description="d"))
        await until(written(session, *FAMILY))
        start = asyncio.get_running_loop().time()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return asyncio.get_running_loop().time() - start

    took = asyncio.run(scenario())
    assert [pid for pid in pids(session, *FAMILY) if alive(pid)] == []
    assert took < 1.0


@linux
def test_cancelling_while_a_command_is_being_started_leaves_no_descendant(session: ToolSession) -> None:
    """On a busy machine a command can be far along before the agent knows that it has started it."""
    run(session, "true")  # with the first command, its watchman is started
    children = Path("/proc/thread-self/children")
    before = children.read_text()

    async def scenario() -> None:
        call = asyncio.ensure_future(session.call(BASH, command=TREE, description="d"))
        while children.read_text() == before:  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(0)
        while not written(session, *FAMILY)():
            time.sleep(0.005)  # noqa: ASYNC251 - the event loop gets no turn: that is what is tested
        call.cancel()
        done, _ = await asyncio.wait({call}, timeout=20)
        assert done
        assert call.cancelled()

    asyncio.run(scenario())
    assert [pid for pid in pids(session, *FAMILY) if alive(pid)] == []


def test_cancelling_at_the_start_leaves_nothing(session: ToolSession) -> None:
    async def scenario() -> None:
        call = asyncio.ensure_future(session.call(BASH, command="echo $$ > pid; sleep 1000", description="d"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not written(session, "pid")() or not alive(pids(session, "pid")[0])

    asyncio.run(scenario())


def test_a_background_child_neither_holds_up_the_call_nor_survives_it(session: ToolSession) -> None:
    assert run(session, "sleep 1000 & echo $! > pid; echo done") == "done\n"
    assert run(session, "sleep 1000 > /dev/null 2>&1 & echo $! > quiet; echo done") == "done\n"

    async def gone() -> None:
        await until(lambda: not any(alive(pid) for pid in pids(session, "pid", "quiet")))

    asyncio.run(gone())


def test_output_of_a_late_child_is_still_collected(session: ToolSession) -> None:
    assert run(session, "echo early; (sleep 0.05; echo late) &") == "early\nlate\n"


def test_the_command_has_no_descriptor_of_the_agent(session: ToolSession) -> None:
    reader, writer = os.pipe()
    try:
        text = run(session, "ls /proc/self/fd | wc -l" if sys.platform == "linux" else "echo 4")
    finally:
        os.close(reader)
        os.close(writer)
    assert int(text) == 4  # stdin, stdout, stderr and the directory ls reads

"""Runs an MCP server's program and ends it, with everything it started, when the agent dies or says so.

Run as a script, isolated and without site packages, so that it starts in a few milliseconds:
`python -I -S tether.py AGENT-PID PROGRAM ARGUMENT...`. Linux only: it is told of the agent's death by the kernel,
however that happens, and whoever of the server's descendants loses its parent becomes its child, wherever it went. The
server has this script's stdin, stdout and stderr to itself.
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

GRACE = 0.4
"""Seconds between SIGTERM and SIGKILL."""

STUBBORN = 0.4
"""Seconds after the first SIGKILL in which descendants are looked for: they may be starting others meanwhile."""

POLL = 0.01

CANNOT_START = 127


def main() -> None:
    """Never returns. The exit status is the server's, 128 and its number for a signal."""
    agent, program, *arguments = sys.argv[1:]
    signal.signal(signal.SIGTERM, _told_to_end)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != int(agent):  # it died before it could be watched
        sys.exit(CANNOT_START)
    child = os.fork()
    if child == 0:
        _become(program, arguments, libc)
    _let_go_of_the_pipes()
    while True:
        pid, status = os.wait()
        if pid == child:
            _kill_all()
            os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _become(program: str, arguments: list[str], libc: ctypes.CDLL) -> None:
    """Never returns."""
    parent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the latter two
        signal.signal(number, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(CANNOT_START)
    try:
        os.execvp(program, [program, *arguments])
    except OSError as error:
        os.write(2, os.fsencode(f"{program}: {error.strerror}\n"))
    os._exit(CANNOT_START)


def _let_go_of_the_pipes() -> None:
    """The server's last reader or writer is nobody but the agent."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _told_to_end(number: int, frame: object) -> None:  # noqa: ARG001  # what a signal's handler is given
    """End everything: asked nicely first."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in _descendants():
        _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while _reaped() and time.monotonic() < deadline:
        time.sleep(POLL)
    _kill_all()
    os._exit(128 + signal.SIGTERM)


def _kill_all() -> None:
    deadline = time.monotonic() + STUBBORN
    while time.monotonic() < deadline:
        for pid in _descendants():
            _send(pid, signal.SIGKILL)
        if not _reaped():
            return
        time.sleep(POLL)


def _reaped() -> bool:
    """Take note of children that ended; whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants() -> set[int]:
    """Every process below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib costs more to import than all else here
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # likewise
                    text = file.read()
            except OSError:
                continue
            # The name in parentheses may hold anything; the numbers follow its last one. See proc_pid_stat(5).
            parent = text[text.rfind(")") + 2 :].split()[1]
            children.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    parents = [os.getpid()]
    while parents:
        below = children.get(parents.pop(), [])
        found.update(below)
        parents.extend(below)
    return found


if __name__ == "__main__":
    main()

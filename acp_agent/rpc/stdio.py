"""Standard input and output as the protocol's own: what they are, and taking them away from everybody else."""

from __future__ import annotations

import enum
import os
import stat
import sys

from msgspec import Struct


class Kind(enum.Enum):
    """What a descriptor is."""

    PIPE = "pipe"
    SOCKET = "socket"
    FILE = "file"
    TERMINAL = "terminal"
    DEVICE = "device"


def kind_of(fd: int) -> Kind:
    """What `fd` is; DEVICE for anything that is none of the others, such as /dev/null."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode):
        return Kind.PIPE
    if stat.S_ISSOCK(mode):
        return Kind.SOCKET
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.TERMINAL if os.isatty(fd) else Kind.DEVICE


class Stdio(Struct, frozen=True):
    """The protocol's private descriptors; child processes do not inherit them."""

    input: int
    output: int


def claim_stdio() -> Stdio:
    """Take stdin and stdout for the protocol, for the rest of the process's life.

    Afterwards descriptor 0 is /dev/null and descriptor 1 is stderr, and so is `sys.stdout`: what a library
    prints and what a child process writes can not reach the protocol. A standard descriptor that was closed
    counts as /dev/null. To be called once, before anything can print.
    """
    import fcntl

    for fd in (0, 1, 2):
        _open_if_closed(fd)
    claimed = Stdio(*(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.__stderr__ is None:  # Python makes no file of a closed descriptor
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stdout = sys.stderr
    return claimed


def _open_if_closed(fd: int) -> None:
    try:
        os.fstat(fd)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)

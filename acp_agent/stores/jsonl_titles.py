"""Titles that a list could not find: those that stand too far inside a log are noted beside it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from acp_agent.stores import layout
from acp_agent.stores.jsonl_tree import publish

HEAD = 1 << 16
"""Bytes at a log's start that a list reads."""

_LIMIT = 1 << 16


class _Note(Struct):
    title: str


def beyond_head(path: Path, end: int) -> bool:
    """Whether a title that ends at byte `end` of a log is to be noted. Only roots are listed."""
    return end > HEAD and path.name == layout.MAIN_LOG


def note_title(log: Path, title: str) -> None:
    """Note a root session's newest title. That it cannot be is no failure: a list then shows an older one."""
    with contextlib.suppress(OSError):
        publish(log.with_name(layout.TITLE), msgspec.json.encode(_Note(title)) + b"\n", durable=False)


def noted_title(log: Path) -> str | None:
    """The title noted beside a log, if there is one."""
    try:
        fd = os.open(f"{log.parent}/{layout.TITLE}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return msgspec.json.decode(os.read(fd, _LIMIT), type=_Note).title
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    finally:
        os.close(fd)

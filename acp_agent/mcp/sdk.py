"""The official MCP SDK: loaded once a session has a server, kept quiet, its errors put into words."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from contextlib import suppress

from acp_agent.visible import one_line

_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
"""What the SDK and its HTTP client log as: they log messages and addresses, in which secrets may stand."""

_QUOTED = re.compile(r"\d+ validation errors? for .*?\n\s*(?P<what>.*?) \[type=.*", re.DOTALL)
"""Pydantic's text for a program's author, as the SDK quotes it in some of its errors."""

_MOST = 500
"""Characters of an error that are told."""


class SdkMissing(Exception):
    """The SDK is not installed."""

    def __init__(self) -> None:
        super().__init__("MCP servers need a package that is not installed: install acp-replay[mcp]")


async def load_sdk() -> None:
    """Import the SDK; this takes a second, in a thread so that nothing else waits for it. Raises `SdkMissing`.

    The thread is no obstacle to the process's end.
    """
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[Exception | None] = loop.create_future()

    def tell(problem: Exception | None) -> None:
        if not loaded.done():
            loaded.set_result(problem)

    def load() -> None:
        problem: Exception | None = None
        try:
            _import()
        except Exception as error:
            problem = error
        with suppress(RuntimeError):  # the process is ending: nobody waits any more
            loop.call_soon_threadsafe(tell, problem)

    threading.Thread(target=load, name="mcp import", daemon=True).start()
    problem = await loaded
    if isinstance(problem, ModuleNotFoundError) and (problem.name or "").partition(".")[0] in ("mcp", "mcp_types"):
        raise SdkMissing
    if problem is not None:
        raise problem


def _import() -> None:
    """Loaded for those who import from it afterwards."""
    import mcp.client.stdio
    import mcp.client.streamable_http  # noqa: F401  # see above

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def in_words(error: BaseException) -> str:
    """An error as one line: of a group the first that says something; of a validation, where and what."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return shortened(_message(error))


def _message(error: BaseException) -> str:
    if (first := _first_detail(error)) is not None:
        return f"its answer cannot be read: {first[0]}: {first[1]}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = _QUOTED.sub(lambda match: " ".join(match["what"].split()), str(error))
    return text or type(error).__name__


def what_is_wrong(error: Exception, where: str) -> str:
    """A validation's complaint about a part of the list `where`: its place in the part, and what it is."""
    place, what = _first_detail(error) or ("", str(error))
    inside = re.sub(rf"^.*?\b{where}\.\d+\.?", "", place)
    return shortened(f"{inside}: {what}" if inside else what)


def _first_detail(error: BaseException) -> tuple[str, str] | None:
    """Place and complaint; pydantic's own text quotes what it was given."""
    details = getattr(error, "errors", None)
    if callable(details):
        with suppress(TypeError, ValueError, LookupError):
            first = details(include_url=False, include_input=False)[0]
            return ".".join(map(str, first["loc"])), first["msg"]
    return None


def shortened(text: str) -> str:
    """A text of the server's for people to read: one line, harmless to terminals, not too long."""
    line = one_line(text.strip()[: _MOST + 1])
    return line if len(line) <= _MOST else line[: _MOST - 1] + "…"

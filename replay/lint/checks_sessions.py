"""Statements 32 to 52: making, listing, opening and ending sessions."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from replay.lint.checks import Check
from replay.lint.probe import INVALID_PARAMS, INVALID_REQUEST, LONG, NO_SESSION, NOT_FOUND, Broken, Inapplicable, Probe
from replay.lint.traffic import Json

_PAGES: Final = 200
"""Pages of a list that are followed."""

_SERVER: Final = """\
import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps([sys.argv[2], os.environ.get("ACP_LINT_VARIABLE")]))
sys.stdin.read()
"""
"""A server that says how it was started and then never answers."""


async def distinct(probe: Probe) -> None:
    await probe.start()
    first, second = await probe.session(), await probe.session()
    if not first or first == second:
        raise Broken(f"two session/new gave the ids {first!r} and {second!r}")


async def servers_required(probe: Probe) -> None:
    await probe.start()
    await probe.session()
    await probe.session(mcpServers=None)
    await probe.refused("session/new without mcpServers", "session/new", {"cwd": str(probe.workspace)}, INVALID_PARAMS)


async def relative_cwd(probe: Probe) -> None:
    await probe.open()
    for cwd in ("", ".", "work"):
        await probe.refused(f"session/new with the cwd {cwd!r}", "session/new", probe.place(cwd=cwd), INVALID_PARAMS)


async def stdio_servers(probe: Probe) -> None:
    await probe.start()
    for number, kind in enumerate(({}, {"type": "stdio"})):
        told = probe.workspace.parent / f"server-{number}"
        server = {"name": "acp-lint", "command": sys.executable, "args": ["-c", _SERVER, str(told), "an argument"],
                  "env": [{"name": "ACP_LINT_VARIABLE", "value": "a value"}], **kind}
        session = await probe.session(mcpServers=[server])
        if probe.prompts:
            probe.prompt(session)
        started = await _appears(told, probe.seconds)
        if started is None and not probe.prompts:
            raise Inapplicable("the server is not started before a prompt, and no model may be asked")
        if started != ["an argument", "a value"]:
            raise Broken(f"a server that was to get an argument and a variable got {json.dumps(started)}")


async def _appears(file: Path, seconds: float) -> Any:
    """What a server wrote; None when it did not."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if file.exists() and (text := file.read_text()):
                    return json.loads(text)
                await asyncio.sleep(0.02)  # a file is looked for
    except TimeoutError:
        return None


async def unusable_servers(probe: Probe) -> None:
    await probe.open()
    for kind in ("http", "sse"):
        if not probe.about.offers("mcpCapabilities", kind):
            server: Json = {"type": kind, "name": "web", "url": "https://example.invalid", "headers": []}
            await probe.refused(f"an MCP server of the type {kind}, which is not advertised", "session/new",
                                probe.place(mcpServers=[server]), INVALID_PARAMS)
    for wrong in ("x", {"name": "no command"}, {"name": "a", "command": "/bin/true", "args": [1], "env": []}):
        await probe.refused(f"the MCP server {json.dumps(wrong)}", "session/new", probe.place(mcpServers=[wrong]),
                            INVALID_PARAMS)


async def servers_that_hang(probe: Probe) -> None:
    await probe.start()
    missing = {"name": "missing", "command": str(probe.workspace / "no-such-server"), "args": [], "env": []}
    silent = {"name": "silent", "command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "env": []}
    for server in (missing, silent):
        await probe.call("session/new", probe.place(mcpServers=[server]))


async def further_roots(probe: Probe) -> None:
    await probe.open()
    for wrong in ("", "relative", 5):
        await probe.refused(f"the further root {wrong!r}", "session/new", probe.place(additionalDirectories=[wrong]),
                            INVALID_PARAMS)
    if not probe.about.offers("sessionCapabilities", "additionalDirectories"):
        answer = await probe.call("session/new", probe.place(additionalDirectories=[str(probe.workspace)]))
        if "error" not in answer:
            raise Broken("a further root is taken though they are not advertised", "recommended")
    else:
        await probe.session(additionalDirectories=[str(probe.workspace)])


async def updates_after_the_id(probe: Probe) -> None:
    session = await probe.open()
    await probe.barrier()
    known = False
    for line in probe.traffic.lines:
        result = (line.frame or {}).get("result") if line.sender == "agent" else None
        known = known or (isinstance(result, dict) and result.get("sessionId") == session)
        if not known and line.sender == "agent" and _session_of(line.frame) == session:
            raise Broken("an update precedes the response that gives the session's id")


def _session_of(frame: Json | None) -> Any:
    params = (frame or {}).get("params")
    return params.get("sessionId") if isinstance(params, dict) else None


# ---------------------------------------------------------------- opening stored ones


async def load(probe: Probe) -> None:
    """A session with a turn, loaded by the process that made it."""
    session, since = await _reopened(probe, "session/load")
    kinds = [update.get("sessionUpdate") for own, update in probe.updates(since) if own == session]
    for kind in ("user_message_chunk", "agent_message_chunk"):
        if kind not in kinds:
            raise Broken(f"a session with a turn was loaded, and no {kind} came before the response")


async def load_quietly(probe: Probe) -> None:
    session, since = await _reopened(probe, "session/load")
    asked = [line.frame["method"] for line in probe.traffic.lines[since:]
             if line.sender == "agent" and line.frame is not None and "method" in line.frame and "id" in line.frame]
    if asked:
        raise Broken(f"while it loaded a session it asked the client for {', '.join(map(str, asked))}")
    if any(update.get("sessionUpdate") == "notice" for own, update in probe.updates(since) if own == session):
        raise Broken("a notice was sent again by a load")


async def resume(probe: Probe) -> None:
    session, since = await _reopened(probe, "session/resume")
    history = [update.get("sessionUpdate") for own, update in probe.updates(since) if own == session
               and str(update.get("sessionUpdate")).endswith(("message_chunk", "thought_chunk", "tool_call"))]
    if history:
        raise Broken(f"session/resume sent history before its response: {', '.join(map(str, history))}")


async def _reopened(probe: Probe, method: str) -> tuple[str, int]:
    """A session with a turn, closed and opened again; the session, and where opening began."""
    probe.about.needs("sessionCapabilities", "close")
    session = await probe.open()
    await probe.turn(session)
    await probe.result("session/close", {"sessionId": session})
    since = probe.position
    await probe.result(method, probe.place(sessionId=session))
    return session, since


async def unknown_sessions(probe: Probe) -> None:
    await probe.start()
    methods = [("session/load", probe.place(sessionId=NO_SESSION))] if probe.about.offers("loadSession") else []
    if probe.about.offers("sessionCapabilities", "resume"):
        methods.append(("session/resume", probe.place(sessionId=NO_SESSION)))
    if (probe.about.session or {}).get("modes"):
        methods.append(("session/set_mode", {"sessionId": NO_SESSION, "modeId": "acp-lint"}))
    if probe.prompts:
        methods.append(("session/prompt", {"sessionId": NO_SESSION, "prompt": [{"type": "text", "text": "ok"}]}))
    if not methods:
        raise Inapplicable("no method takes a session's id, except prompts, and no model may be asked")
    for method, params in methods:
        error = await probe.refused(f"{method} with an unknown session", method, params, NOT_FOUND)
        data = error.get("data")
        if not isinstance(data, dict) or data.get("sessionId") != NO_SESSION:
            raise Broken(f"{method} with an unknown session: the error's data has no sessionId")


# ---------------------------------------------------------------- lists


async def empty_list(probe: Probe) -> None:
    await probe.start()
    nowhere = probe.workspace / "nowhere"
    listed = (await probe.result("session/list", {"cwd": str(nowhere)})).get("sessions")
    if listed != []:
        raise Broken(f"a list for a directory without sessions has {json.dumps(listed)[:80]}, expected []")


async def pages(probe: Probe) -> None:
    await probe.start()
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await probe.result("session/list", {} if cursor is None else {"cursor": cursor})
        for entry in page.get("sessions") or ():
            _entry(entry, seen)
        cursor = page.get("nextCursor")
        if cursor is None:
            return
    raise Inapplicable(f"the list has more than {_PAGES} pages; they were in order")


def _entry(entry: Any, seen: set[str]) -> None:
    session = str(entry.get("sessionId") if isinstance(entry, dict) else None)
    if session in seen:
        raise Broken(f"the session {session} is listed twice")
    seen.add(session)
    if not str(entry.get("cwd")).startswith(("/", "\\")) and str(entry.get("cwd"))[1:2] != ":":
        raise Broken(f"the session {session} is listed with the directory {entry.get('cwd')!r}")
    if (moment := entry.get("updatedAt")) is not None:
        try:
            datetime.fromisoformat(str(moment))
        except ValueError:
            raise Broken(f"the session {session} is listed with the time {moment!r}") from None


async def wrong_cursor(probe: Probe) -> None:
    await probe.start()
    await probe.refused("a cursor that no list gave", "session/list", {"cursor": "acp-lint: no cursor"})


# ---------------------------------------------------------------- ending


async def delete(probe: Probe) -> None:
    session = await probe.open()
    await probe.result("session/delete", {"sessionId": session})
    if probe.about.offers("sessionCapabilities", "list"):
        listed = (await probe.result("session/list", {"cwd": str(probe.workspace)})).get("sessions") or ()
        if any(isinstance(entry, dict) and entry.get("sessionId") == session for entry in listed):
            raise Broken("a deleted session is still listed")
    for name in (session, NO_SESSION):
        answer = await probe.call("session/delete", {"sessionId": name})
        if "error" in answer:
            raise Broken("deleting a session that is gone, or never was, is refused", "should")


async def close_in_a_turn(probe: Probe) -> None:
    session = await probe.open()
    prompt = probe.prompt(session, LONG)
    await probe.barrier()
    closing = probe.request("session/close", {"sessionId": session})
    closed = await probe.answer(closing)
    reason = await probe.turn_end(prompt, stopped=True)
    if "error" in closed or reason not in ("cancelled", "end_turn"):
        raise Broken(f"closed in its turn, which ended with {reason}: {json.dumps(closed)[:120]}")
    order = [answer["id"] for answer in probe.answers(0) if answer.get("id") in (prompt, closing)]
    if order != [prompt, closing]:
        raise Broken("session/close was answered before the prompt that it ends")


async def closed(probe: Probe) -> None:
    session = await probe.open()
    await probe.result("session/close", {"sessionId": session})
    answer = await probe.call("session/close", {"sessionId": NO_SESSION})
    if "error" in answer and answer["error"].get("code") != NOT_FOUND:
        raise Broken(f"closing an unknown session: {json.dumps(answer['error'])[:120]}")
    if not probe.prompts:
        raise Inapplicable("closing works; a prompt to a closed session may reach the model, and none may be asked")
    await probe.refused("a prompt to a closed session", "session/prompt",
                        {"sessionId": session, "prompt": [{"type": "text", "text": "ok"}]}, NOT_FOUND)


# ---------------------------------------------------------------- unstable


async def fork(probe: Probe) -> None:
    session = await probe.open()
    await probe.turn(session)
    made = (await probe.result("session/fork", probe.place(sessionId=session))).get("sessionId")
    if not isinstance(made, str) or made == session:
        raise Broken(f"session/fork gave the id {json.dumps(made)}")
    await probe.turn(made)


async def archive(probe: Probe) -> None:
    await probe.start()
    for method in ("session/archive", "session/unarchive"):
        await probe.refused(f"{method} with an unknown session", method, {"sessionId": NO_SESSION}, NOT_FOUND)
    await probe.refused("a list with an unknown filter", "session/list", {"archived": "acp-lint"}, INVALID_PARAMS)


async def status_and_title(probe: Probe) -> None:
    status, title = (probe.about.offers("sessionCapabilities", name) for name in ("status", "title"))
    if not (status or title):
        raise Inapplicable("neither sessionCapabilities.status nor .title is advertised")
    session = await probe.open()
    if status:
        await probe.result("session/status", {"sessionId": session})
        await probe.refused("the status of an unknown session", "session/status", {"sessionId": NO_SESSION}, NOT_FOUND)
    if title:
        await probe.refused("a blank title", "session/set_title", {"sessionId": session, "title": " "}, INVALID_PARAMS)


async def system_prompt(probe: Probe) -> None:
    await probe.open()
    for wrong in ({"mode": "acp-lint", "content": []}, {"mode": "append", "content": [{"type": "audio"}]}):
        await probe.refused(f"the system prompt {json.dumps(wrong)}", "session/new", probe.place(systemPrompt=wrong),
                            INVALID_PARAMS, INVALID_REQUEST)


CHECKS: Final = (
    Check(32, distinct), Check(33, servers_required), Check(34, relative_cwd), Check(36, stdio_servers),
    Check(37, unusable_servers), Check(38, servers_that_hang), Check(39, further_roots),
    Check(40, updates_after_the_id), Check(41, load, prompts=True, needs=("loadSession",)),
    Check(42, load_quietly, prompts=True, needs=("loadSession",)), Check(44, unknown_sessions),
    Check(45, resume, prompts=True, needs=("sessionCapabilities", "resume")),
    Check(47, empty_list, needs=("sessionCapabilities", "list")),
    Check(48, pages, needs=("sessionCapabilities", "list")),
    Check(49, wrong_cursor, needs=("sessionCapabilities", "list")),
    Check(50, delete, needs=("sessionCapabilities", "delete")),
    Check(51, close_in_a_turn, prompts=True, needs=("sessionCapabilities", "close")),
    Check(52, closed, needs=("sessionCapabilities", "close")),
    Check(88, fork, prompts=True, needs=("sessionCapabilities", "fork")),
    Check(89, archive, needs=("sessionCapabilities", "archive")), Check(90, status_and_title),
    Check(94, system_prompt, needs=("sessionCapabilities", "systemPrompt")),
)  # fmt: skip

"""Statements 3 to 17: lines, messages, ids, and the end of the input."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from acp_agent.rpc.envelope import METHOD_NOT_FOUND
from replay.lint.checks import Check
from replay.lint.probe import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    LONG,
    PARSE_ERROR,
    Broken,
    Inapplicable,
    Probe,
    hello,
    told,
)
from replay.lint.traffic import Json, same_id

PING: Final = "_acp_lint/ping"
"""A method that no agent has."""

_IDS: Final[tuple[Any, ...]] = (0, -1, 2**53 - 1, "1", "é")
_END: Final = 5.0
"""Seconds in which an agent exits after its input has ended."""


async def blank_lines(probe: Probe) -> None:
    request = {"jsonrpc": "2.0", "id": "crlf", "method": "initialize", "params": hello()}
    probe.send_bytes(b"\n  \n\r\n" + json.dumps(request).encode() + b"\r")
    answer = await probe.answer("crlf")
    if "result" not in answer:
        raise Broken(f"initialize in a line ended by CR LF, after blank lines: {told(answer)}")
    if len(probe.answers(0)) > 1:
        raise Broken("a blank line was answered")


async def not_json(probe: Probe) -> None:
    await probe.start()
    for line in (b"{bad", b'{"jsonrpc":"2.0","id":"utf8","method":"\xff\xfe"}'):
        await _one_error(probe, line, PARSE_ERROR)


async def not_a_message(probe: Probe) -> None:
    await probe.start()
    for line in (b"42", b'"x"', b"null", b'{"jsonrpc":"2.0","id":"none"}'):
        await _one_error(probe, line, INVALID_REQUEST, "none")
    await _one_error(probe, b'{"jsonrpc":"1.0","id":"old","method":"%b"}' % PING.encode(), INVALID_REQUEST, "old")


async def batches(probe: Probe) -> None:
    await probe.start()
    entries = [{"jsonrpc": "2.0", "id": f"batch-{n}", "method": "session/new", "params": probe.place()} for n in "ab"]
    for line in (json.dumps(entries).encode(), b"[]"):
        await _one_error(probe, line, INVALID_REQUEST)


async def _one_error(probe: Probe, line: bytes, code: int, *ids: str) -> None:
    """Exactly one error of this code, with a null id or one of `ids`, and then life goes on."""
    since = probe.position
    probe.send_bytes(line)
    marker = probe.request(PING, {})
    try:
        await probe.answer(marker, since)
    except Broken as broken:
        raise Broken(f"after the line {_text(line)}: {broken.what}") from None
    found = [answer for answer in probe.answers(since) if not same_id(answer.get("id"), marker)]
    if len(found) != 1:
        raise Broken(f"the line {_text(line)} got {len(found)} answers before the next request's, expected one error "
                     f"{code}")
    error, identity = found[0].get("error"), found[0].get("id")
    if not isinstance(error, dict) or error.get("code") != code or identity not in (None, *ids):
        raise Broken(f"the line {_text(line)}: expected error {code} with a null id, got {told(found[0])} with the id "
                     f"{json.dumps(identity)}")


def _text(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}..."


async def ids(probe: Probe) -> None:
    await probe.start()
    for identity in _IDS:
        since = probe.position
        probe.send({"id": identity, "method": PING})
        marker = probe.request(PING, {})
        await probe.answer(marker, since)
        got = [answer.get("id") for answer in probe.answers(since) if not same_id(answer.get("id"), marker)]
        if not any(same_id(one, identity) for one in got):
            raise Broken(f"a request with the id {json.dumps(identity)} was answered with the ids {json.dumps(got)}")


async def null_id(probe: Probe) -> None:
    await probe.start()
    since = probe.position
    probe.send({"id": None, "method": PING})
    marker = probe.request(PING, {})
    await probe.answer(marker, since)
    found = [answer for answer in probe.answers(since) if not same_id(answer.get("id"), marker)]
    if len(found) != 1 or found[0].get("id", "") is not None:
        raise Broken(f"a request with a null id got {len(found)} responses, expected one with a null id")


async def notifications(probe: Probe) -> None:
    await probe.start()
    since = probe.position
    notes: tuple[tuple[str, Any], ...] = (
        ("session/cancel", {"sessionId": "nobody"}), ("session/cancel", {}), ("session/cancel", [1]),
        ("_acp_lint/note", {"a": 1}), ("$/acp_lint", None), ("session/new", {"cwd": "nowhere"}))
    for method, params in notes:
        probe.notify(method, params)
    await probe.barrier()
    if len(probe.answers(since)) > 1:
        raise Broken("a notification was answered")


async def unknown_methods(probe: Probe) -> None:
    await probe.start()
    for method in ("foo/bar", "_x/y"):
        await probe.refused(f"the request {method}", method, {}, METHOD_NOT_FOUND)


async def unknown_notifications(probe: Probe) -> None:
    await probe.start()
    for method in ("_x/y", "$/foo", "foo/bar"):
        probe.notify(method, {"a": 1})
    await _alive(probe, "unknown notifications")


async def stray_responses(probe: Probe) -> None:
    await probe.start()
    since = probe.position
    probe.send({"id": 987_654, "result": {}})
    probe.send({"id": "nobody", "error": {"code": -1, "message": "no"}})
    await _alive(probe, "responses to nothing")
    if len(probe.answers(since)) > 1:
        raise Broken("a response was answered")


async def _alive(probe: Probe, after: str) -> None:
    try:
        await probe.call(PING, {})
    except Broken as broken:
        raise Broken(f"after {after}: {broken.what}") from None


async def wrong_params(probe: Probe) -> None:
    await probe.start()
    wrong: tuple[Any, ...] = ({"mcpServers": []}, [str(probe.workspace)], "text")
    for params in wrong:
        await probe.refused(f"session/new with the params {json.dumps(params)}", "session/new", params, INVALID_PARAMS)
    if probe.about.offers("sessionCapabilities", "list"):
        probe.send({"id": "null", "method": "session/list", "params": None})
        answer = await probe.answer("null")
        if "result" not in answer:
            raise Broken(f"session/list with null params: {told(answer)}", "recommended")


async def extra_members(probe: Probe) -> None:
    extra: Json = {"_meta": {"acp-lint": {"deep": [1]}}, "acpLint": {"unknown": True}}
    capabilities = {"fs": {"acpLint": 1} | extra} | extra
    await probe.result("initialize", hello(capabilities) | extra)
    await probe.session(**extra)
    await probe.session(_meta="x")


async def long_lines(probe: Probe) -> None:
    await probe.start()
    for size in (1 << 20, 8 << 20):
        try:
            await probe.session(_meta={"acp-lint": "x" * size})
        except Broken as broken:
            raise Broken(f"a line of {size >> 20} MiB: {broken.what}") from None


async def pipelined(probe: Probe) -> None:
    await probe.start()
    since = probe.position
    asked = [probe.request(PING, {"n": number}) for number in range(50)]
    for request in asked:
        await probe.answer(request, since)
    await probe.barrier()
    counts = [sum(same_id(answer.get("id"), request) for answer in probe.answers(since)) for request in asked]
    if set(counts) != {1}:
        more = sum(count != 1 for count in counts)
        raise Broken(f"of 50 requests sent together, {more} were answered more than once")


async def end_of_input(probe: Probe) -> None:
    if probe.prompts:
        session = await probe.open()
        probe.prompt(session, LONG)
        await probe.barrier()
    else:
        await probe.start()
        await probe.barrier()
    begun = time.monotonic()
    try:
        async with asyncio.timeout(_END):
            status = await probe.link.end_input()
    except TimeoutError:
        raise Broken(f"still running {_END:g} s after the end of its input") from None
    if status != 0:
        raise Broken(f"exit status {status} after the end of its input, expected 0")
    left = await probe.left_behind()
    if left is None:
        raise Inapplicable(f"it exited with status 0 after {time.monotonic() - begun:.1f} s; whether it left processes "
                           "behind cannot be seen on this system")
    if left:
        raise Broken(f"processes were left behind: {', '.join(map(str, left))}")


CHECKS: Final = (
    Check(3, blank_lines), Check(4, not_json), Check(5, not_a_message), Check(6, batches), Check(7, ids),
    Check(8, null_id), Check(9, notifications), Check(10, unknown_methods), Check(11, unknown_notifications),
    Check(12, stray_responses), Check(13, wrong_params), Check(14, extra_members), Check(15, long_lines),
    Check(16, pipelined), Check(17, end_of_input),
)  # fmt: skip

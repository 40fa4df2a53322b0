"""An MCP server written by hand that does what its first argument says, most of it wrong.

hang       answers nothing, ignores the end of its input and SIGTERM, and starts a process that does the same elsewhere
die        prints its second argument on stderr and ends with status 3
old        speaks the protocol of 2025, prints other things too, and changes its tools when one is called
shy        like old, and ends when it is asked anything before `initialize`
odd        like old, with tools whose schemas are odd
forbidden  like old, with tools among others that the protocol forbids
novel      like old, and answers calls with content of kinds that nobody knows, or that is not as it should be, and text
listless   like old, and answers calls with content that is no list
deaf       like old, and ignores everything after `tools/list`
garbled    like old, and answers calls with what is no response
mortal     like old, and ends in the middle of a call
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ODD: list[dict[str, Any]] = [
    {"name": "bare", "inputSchema": {"type": "object"}},
    {"name": "referring", "inputSchema": {
        "type": "object", "$ref": "#/$defs/Args",
        "$defs": {"Args": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}},
    {"name": "demanding", "inputSchema": {
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "unknown"]}},
    {"name": "a name with spaces/and slashes", "inputSchema": {"type": "object"}},
    {"name": "a name with spaces_and slashes", "inputSchema": {"type": "object"}},
    {"name": "long" * 30, "inputSchema": {"type": "object"}},
    {"name": "long" * 30 + "er", "inputSchema": {"type": "object"}},
]

FORBIDDEN: list[Any] = [
    {"name": "untyped", "inputSchema": {"properties": {}}},
    {"name": "good", "inputSchema": {"type": "object"}},
    {"name": "text", "inputSchema": {"type": "string"}},
    {"name": "bare"},
    {"name": "noted", "inputSchema": {"type": "object"}, "annotations": 5},
    {"inputSchema": {"type": "object"}},
    5,
    {"name": "fine", "inputSchema": {"type": "object"}},
]
NOVEL: list[Any] = [
    {"type": "text", "text": "before"}, {"type": "video", "data": "AAAA"}, {"type": "image", "mimeType": "image/png"},
    {"kind": "smell"}, 5, {"type": "text", "text": "after"},
]


def hang() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"],
                     start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    Path("hanging").touch()
    while True:
        time.sleep(1000)


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def old(kind: str) -> None:
    tools: list[dict[str, Any]] = ODD if kind == "odd" else [{"name": "first", "inputSchema": {"type": "object"}}]
    if kind == "forbidden":
        tools = FORBIDDEN
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            write("Starting up...\n\n{not json\n[1, 2]")
            say(id=number, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "rude", "version": "0"}})
        elif method == "tools/list":
            say(id=number, result={"tools": tools})
            while kind == "deaf":
                time.sleep(1000)
        elif method == "tools/call":
            called(kind, number, tools)
        elif method == "server/discover" and kind == "shy":
            sys.exit("expected initialize")
        elif number is not None:
            say(id=number, error={"code": -32601, "message": "not found"})


def called(kind: str, number: Any, tools: list[dict[str, Any]]) -> None:
    if kind == "garbled":
        say(id=number, result="not an object")
    elif kind == "mortal":
        os.write(2, b"cannot go on: token " + os.environb[b"TOKEN"] + b"\n")
        os._exit(5)
    elif kind == "novel":
        say(id=number, result={"content": NOVEL})
    elif kind == "listless":
        say(id=number, result={"content": 5})
    else:
        tools[:] = [{"name": "second", "inputSchema": {"type": "object"}}]
        say(method="notifications/tools/list_changed")
        say(id=number, result={"content": [{"type": "text", "text": "lone \ud800 half"}]})


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "hang":
        hang()
    elif mode == "die":
        sys.stderr.write(f"{rest[0]}\n")
        sys.exit(3)
    else:
        old(mode)

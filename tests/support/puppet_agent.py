"""A tiny agent for the tests of the test client: it does what the prompt's text says, lawful or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def update(session: str, variant: str, /, **members: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": variant, **members}})


def say(session: str, text: str) -> None:
    update(session, "agent_message_chunk", content={"type": "text", "text": text}, messageId="m")


def ask(session: str, request: Any) -> None:
    update(session, "tool_call", toolCallId="c", title="write", name="write", kind="edit")
    options = [{"optionId": word, "name": word, "kind": word} for word in ("allow_once", "reject_once")]
    send(id=7, method="session/request_permission",
         params={"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": options})
    answer = json.loads(sys.stdin.readline())
    allowed = answer.get("result", {}).get("outcome", {}).get("optionId") == "allow_once"
    update(session, "tool_call_update", toolCallId="c", status="completed" if allowed else "failed")
    say(session, "allowed" if allowed else "refused")
    send(id=request, result={"stopReason": "end_turn"})


def obey(session: str, request: Any, text: str) -> None:
    word, _, rest = text.partition(" ")
    if word == "ask":
        ask(session, request)
        return
    if word == "print":
        sys.stdout.write(rest + "\n")
    elif word == "complain":
        sys.stderr.write(rest + "\n")
    elif word == "environ":
        say(session, json.dumps(dict(os.environ)))
    elif word == "orphan":
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    elif word == "flood":
        for _ in range(int(rest)):
            say(session, "x" * 10_000)
    elif word == "exit":
        os._exit(int(rest))
    elif word == "silence":
        return
    else:
        say(session, text)
    send(id=request, result={"stopReason": "end_turn"})


def main() -> None:
    for line in sys.stdin:
        frame = json.loads(line)
        method, params = frame.get("method"), frame.get("params", {})
        if method == "initialize":
            send(id=frame["id"], result={"protocolVersion": 1})
        elif method == "session/new":
            send(id=frame["id"], result={"sessionId": "s"})
        elif method == "session/prompt":
            obey("s", frame["id"], params["prompt"][0]["text"])
        elif "id" in frame and method:
            send(id=frame["id"], error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()

"""A tiny agent for the chat's tests: it does what the prompt says, lawful or not. Standard library only, so it starts
at once. Prompts:

    say TEXT          a chunk a word           update JSON      a session update, as it is
    line TEXT         a line on stdout         complain TEXT    a line on stderr
    ask TITLE         a permission question    ask-two          two of them at once
    ask-withdraw      one that is taken back   ask-strange      one with no option that anybody knows
    form JSON         a form                   call METHOD JSON any request; its answer is said
    hang              until it is cancelled    stubborn         never ends, whatever it is told
    left              leaves a process         cwd, pid         says its working directory, its process id
    exit N            ends                     die              is killed
    close             closes its stdout

With AGENT_LOGIN=1 sessions need a login; with AGENT_VERSION=N it answers that protocol version.
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

MODES = {"currentModeId": "slow", "availableModes": [
    {"id": "slow", "name": "Slow and careful"}, {"id": "fast", "name": "Fast", "description": "hurries"}]}


class Agent:
    def __init__(self) -> None:
        self.sessions = 0
        self.asked = 100
        self.logged_in = "AGENT_LOGIN" not in os.environ

    def send(self, **members: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
        sys.stdout.flush()

    def update(self, kind: str, **members: Any) -> None:
        self.send(method="session/update", params={
            "sessionId": f"session-{self.sessions}", "update": {"sessionUpdate": kind, **members}})

    def say(self, text: str) -> None:
        for number, word in enumerate(text.split(" ")):
            self.update("agent_message_chunk", content={"type": "text", "text": f" {word}" if number else word})

    def read(self) -> Any:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def ask(self, method: str, params: Any) -> int:
        self.asked += 1
        self.send(id=self.asked, method=method, params={"sessionId": f"session-{self.sessions}", **params})
        return self.asked

    def permission(self, title: str, kinds: tuple[str, ...] = ("allow_once", "allow_always", "reject_once")) -> int:
        options = [{"optionId": f"o-{kind}", "name": kind.replace("_", " "), "kind": kind} for kind in kinds]
        return self.ask("session/request_permission", {
            "toolCall": {"toolCallId": title, "title": title}, "options": options})

    def answers(self, *requests: int) -> list[str]:
        """What the client answers, in the order of the requests; other lines on the way are passed over."""
        found: dict[int, str] = {}
        while len(found) < len(requests):
            frame = self.read()
            if frame.get("id") in requests:
                found[frame["id"]] = told(frame)
        return [found[request] for request in requests]

    def until_cancelled(self) -> None:
        while self.read().get("method") != "session/cancel":
            pass

    # -- prompts

    def obey(self, text: str) -> str:
        """Do what a prompt says; the stop reason."""
        word, _, rest = text.partition(" ")
        match word:
            case "update":
                update = json.loads(rest)
                self.update(update.pop("sessionUpdate"), **update)
            case "line":
                sys.stdout.write(f"{rest}\n")
                sys.stdout.flush()
            case "complain":
                sys.stderr.write(f"{rest}\n")
                sys.stderr.flush()
            case "ask":
                (answer,) = self.answers(self.permission(rest))
                self.say(answer)
                return "cancelled" if answer == "cancelled" else "end_turn"
            case "ask-two":
                self.say(" then ".join(self.answers(self.permission("first"), self.permission("second"))))
            case "ask-strange":
                self.say(self.answers(self.permission("odd", ("perhaps",)))[0])
            case "ask-withdraw":
                request = self.permission("never mind")
                self.send(method="$/cancel_request", params={"requestId": request})
                self.say(self.answers(request)[0])
            case "form":
                schema = {"type": "object", **json.loads(rest)}
                self.say(self.answers(self.ask("elicitation/create", {
                    "mode": "form", "message": "About you", "requestedSchema": schema}))[0])
            case "call":
                method, _, params = rest.partition(" ")
                self.say(self.answers(self.ask(method, json.loads(params)))[0])
            case "hang":
                self.say("hanging")
                self.until_cancelled()
                return "cancelled"
            case "left":
                subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, start_new_session=True)
                self.say("left")
            case "cwd":
                self.say(str(Path.cwd()))
            case "pid":
                self.say(f"pid {os.getpid()}")
            case _:
                self.end_somehow(word, rest)
                self.say(rest)
        return "end_turn"

    def end_somehow(self, word: str, rest: str) -> None:
        match word:
            case "stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                self.say("no")
                while True:
                    time.sleep(60)
            case "exit":
                os._exit(int(rest))
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "close":
                os.close(1)
                sys.stdin.read()
                os._exit(0)

    # -- requests

    def serve(self, frame: Any) -> None:
        match frame.get("method"):
            case "initialize":
                self.send(id=frame["id"], result={
                    "protocolVersion": int(os.environ.get("AGENT_VERSION", "1")),
                    "agentInfo": {"name": "tiny", "version": "7"},
                    "authMethods": [{"id": "web", "name": "In the browser"}, {"id": "key", "name": "With a key"},
                                    {"id": "tty", "name": "By hand", "type": "terminal"}]})
            case "authenticate":
                self.logged_in = frame["params"]["methodId"] == "key"
                self.send(id=frame["id"], result={})
            case "session/new" if not self.logged_in:
                self.send(id=frame["id"], error={"code": -32000, "message": "who are you?"})
            case "session/new":
                self.sessions += 1
                self.send(id=frame["id"], result={"sessionId": f"session-{self.sessions}", "modes": MODES})
            case "session/set_mode":
                self.update("current_mode_update", currentModeId=frame["params"]["modeId"])
                self.send(id=frame["id"], result={})
            case "session/prompt":
                reason = self.obey("".join(block["text"] for block in frame["params"]["prompt"]))
                self.send(id=frame["id"], result={"stopReason": reason})


def told(frame: Any) -> str:
    """A response in words."""
    if "error" in frame:
        return f"error {frame['error']['code']}: {frame['error']['message']}"
    outcome = frame["result"].get("outcome")
    return json.dumps(frame["result"]) if outcome is None else str(outcome.get("optionId", outcome["outcome"]))


def main() -> None:
    agent = Agent()
    while True:
        agent.serve(agent.read())


if __name__ == "__main__":
    main()

"""A small agent that keeps every statement a lint can try, except the one whose number BREAK names. Standard library
only, so it starts at once. A prompt that begins with "Count" is worked on until it is cancelled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

BREAK = int(os.environ.get("BREAK", "0"))
MODES: Json = {"currentModeId": "slow", "availableModes": [{"id": "slow", "name": "Slow"}, {"id": "fast", "name": "F"}]}
KNOWN = {"protocolVersion", "clientCapabilities", "clientInfo", "_meta", "cwd", "mcpServers"}


class Refusal(Exception):
    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({"data": data} if data else {})


def invalid(message: str) -> Refusal:
    return Refusal(-32602, message)


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def update(session: str, kind: str, **members: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": kind, **members}})


def say(session: str, kind: str, text: str, message: str) -> None:
    update(session, kind, content={"type": "text", "text": text}, messageId=message)


class Agent:
    def __init__(self) -> None:
        self.ready = False
        self.made = 0
        self.messages = 0
        self.open: dict[str, Json] = {}
        self.stored: dict[str, Json] = {}
        """Sessions with a turn: their directory and prompts."""
        self.prompts: dict[str, list[Any]] = {}
        """The ids of the open prompts of each session."""
        self.servers: list[subprocess.Popen[bytes]] = []

    def message(self) -> str:
        self.messages += 1
        return "m" if BREAK == 58 else f"m{self.messages}"

    # -- methods

    def initialize(self, params: Json) -> Json:
        version = params.get("protocolVersion")
        if BREAK != 20 and (type(version) is not int or not 0 <= version <= 65535):
            raise invalid("protocolVersion: expected an integer")
        if BREAK == 19 and version != 1:
            raise invalid("protocolVersion: unknown")
        if BREAK == 22 and not isinstance(params.get("clientCapabilities", {}).get("fs", {}), dict):
            raise invalid("fs: expected an object")
        if BREAK == 26:
            self.open.clear()
        self.ready = True
        sessions: Json = {"list": {}, "delete": {}, "resume": {}, "close": {}, "fork": {}}
        if BREAK == 23:
            sessions["archive"] = {}
        terminal = {"type": "terminal", "id": "t", "name": "T"}
        result: Json = {
            "protocolVersion": "1" if BREAK == 18 else 1,
            "agentCapabilities": {"loadSession": True, "sessionCapabilities": sessions, "mcpCapabilities": {}},
            "authMethods": [terminal] if BREAK == 31 else [{"id": "a", "name": "A"}],
        }
        return result if BREAK == 24 else result | {"agentInfo": {"name": "test", "version": "1"}}

    def authenticate(self, params: Json) -> Json:
        if BREAK == 29:
            return {}
        raise invalid(f"methodId: unknown {params.get('methodId')}")

    def new(self, params: Json) -> Json:
        if BREAK == 27:
            raise Refusal(-32603, "log in first")
        if BREAK == 14 and set(params) - KNOWN:
            raise invalid("unknown members")
        self.place(params)
        if "mcpServers" not in params and BREAK != 33:
            raise invalid("mcpServers: missing")
        self.serve(params.get("mcpServers") or [])
        self.made += BREAK != 32
        session = f"s{self.made}"
        if BREAK == 40:
            update(session, "available_commands_update", availableCommands=[])
        self.open[session] = {"cwd": params["cwd"], "turns": []}
        return {"sessionId": session} | self.state()

    def state(self) -> Json:
        kind: Json = {"type": "select", "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]}
        option = kind | {"id": "o", "name": "O", "currentValue": "c" if BREAK == 83 else "a"}
        if BREAK == 84:
            option = {"type": "boolean", "id": "o", "name": "O", "currentValue": True}
        return {"modes": MODES | ({"currentModeId": "gone"} if BREAK == 82 else {}), "configOptions": [option]}

    def place(self, params: Json) -> None:
        if not isinstance(params.get("cwd"), str) and BREAK != 13:
            raise invalid("cwd: expected a path")
        if BREAK != 34 and not params["cwd"].startswith("/"):
            raise invalid("cwd: expected an absolute path")
        if params.get("additionalDirectories") and BREAK != 39:
            raise invalid("additionalDirectories: not offered")

    def serve(self, servers: list[Any]) -> None:
        for server in servers:
            if BREAK != 37 and (not isinstance(server, dict) or server.get("type", "stdio") != "stdio"
                                or "command" not in server or not all(isinstance(one, str) for one in server["args"])):
                raise invalid("mcpServers: unusable")
            if isinstance(server, dict) and Path(server.get("command", "")).exists():
                extra = {} if BREAK == 36 else {one["name"]: one["value"] for one in server["env"]}
                arguments = list(map(str, server["args"]))
                process = subprocess.Popen([server["command"], *arguments], env=os.environ | extra,
                                           stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                self.servers.append(process)
                if BREAK == 38:
                    process.wait()

    def lookup(self, params: Json, where: Json) -> str:
        session: str = params["sessionId"]
        if session not in where:
            raise Refusal(-32602 if BREAK == 44 else -32002, "no such session", sessionId=session)
        return session

    def load(self, params: Json) -> Json:
        session = self.lookup(params, self.stored)
        self.open[session] = self.stored[session]
        for text in () if BREAK == 41 else self.stored[session]["turns"]:
            say(session, "user_message_chunk", text, self.message())
            say(session, "agent_message_chunk", "ok", self.message())
        if BREAK == 42:
            send(id=77, method="session/request_permission",
                 params={"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": []})
        return self.state()

    def resume(self, params: Json) -> Json:
        session = self.lookup(params, self.stored)
        self.open[session] = self.stored[session]
        if BREAK == 45:
            say(session, "user_message_chunk", "old", self.message())
        return self.state()

    def fork(self, params: Json) -> Json:
        source = self.lookup(params, self.open | self.stored)
        made = self.new({"cwd": params["cwd"], "mcpServers": []})
        return made | ({"sessionId": source} if BREAK == 88 else {})

    def list(self, params: Json) -> Json:
        if params.get("cursor") not in (None, *(("acp-lint: no cursor",) if BREAK == 49 else ())):
            raise invalid("cursor: unknown")
        entries = [{"sessionId": name, "cwd": "." if BREAK == 48 else kept["cwd"]}
                   for name, kept in (self.open | self.stored).items()
                   if BREAK == 47 or params.get("cwd") in (None, kept["cwd"])]
        if BREAK in (47, 48):
            entries += [{"sessionId": "more", "cwd": "."}]
        return {"sessions": entries}

    def delete(self, params: Json) -> Json:
        if BREAK == 50 and params["sessionId"] not in self.open:
            raise Refusal(-32002, "no such session")
        self.open.pop(params["sessionId"], None)
        self.stored.pop(params["sessionId"], None)
        return {}

    def close(self, params: Json) -> Json:
        session = params["sessionId"]
        if session not in self.open:
            raise Refusal(-32603 if BREAK == 52 else -32002, "no such session", sessionId=session)
        if BREAK != 51:
            self.cancel(session)
        if BREAK != 52:
            del self.open[session]
        return {}

    def set_mode(self, params: Json) -> Json:
        self.lookup(params, self.open)
        if params["modeId"] not in ("slow", "fast"):
            raise invalid("modeId: unknown")
        return {}

    def set_option(self, params: Json) -> Json:
        self.lookup(params, self.open)
        if params["configId"] != "o" or params["value"] not in ("a", "b", "c", True):
            raise invalid("unknown option or value")
        return {"configOptions": self.state()["configOptions"]}

    # -- turns

    def prompt(self, request: Any, params: Json) -> None:
        session = self.lookup(params, self.open)
        kinds = [block.get("type") for block in params["prompt"]]
        complete = all(("text" in block) if block.get("type") == "text" else ("uri" in block)
                       for block in params["prompt"])
        allowed = ("text",) if BREAK == 54 else ("text", "resource_link")
        if BREAK != 55 and (not kinds or not complete or any(kind not in allowed for kind in kinds)):
            raise invalid("prompt: unusable")
        if self.open[session]["turns"] and BREAK == 61:
            raise Refusal(-32603, "busy")
        text = params["prompt"][0].get("text", "") if params["prompt"] else ""
        if text.startswith("Count"):
            self.prompts.setdefault(session, []).append(request)
            return
        self.turn(session, request, text)

    def turn(self, session: str, request: Any, text: str) -> None:
        self.open[session]["turns"].append(text)
        self.stored[session] = self.open[session]
        message = self.message()
        if BREAK != 53:
            say(f"not {session}" if BREAK == 60 else session, "agent_message_chunk", "o", message)
            say(session, "agent_message_chunk", "k", message)
        if BREAK == 21:
            send(id=88, method="fs/read_text_file", params={"sessionId": session, "path": "/a"})
        if BREAK == 70:
            update(session, "tool_call_update", toolCallId="never announced", status="completed")
        if BREAK == 73:
            send(id=89, method="session/request_permission", params={"sessionId": session, "options": "none"})
        if BREAK == 86:
            update(session, "usage_update", used="many", size=1)
        if BREAK == 87:
            update(session, "notice", severity="info", title="Hello")
        if BREAK == 93:
            update(session, "plan_removed", planId="p")
        send(id=request, result={"stopReason": "done" if BREAK == 53 else "end_turn"})
        if BREAK == 62:
            say(session, "agent_message_chunk", "late", message)

    def cancel(self, session: str) -> None:
        if session not in self.open and BREAK == 68:
            send(id=None, error={"code": -32002, "message": "no such session"})
        for request in self.prompts.pop(session, []):
            if BREAK == 64:
                send(id=request, error={"code": -32800, "message": "cancelled"})
            else:
                send(id=request, result={"stopReason": "cancelled"})
            if BREAK == 67:
                say(session, "agent_message_chunk", "late", "late")

    # -- lines

    def line(self, raw: bytes) -> None:
        if not raw.strip():
            if BREAK == 3:
                send(id=None, error={"code": -32700, "message": "blank"})
            return
        try:
            frame = json.loads(raw)
        except ValueError:
            if BREAK != 4:
                send(id=None, error={"code": -32700, "message": "not JSON"})
            return
        if isinstance(frame, list) and BREAK == 6:
            for one in frame:
                self.frame(one)
        elif not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0" \
                or not {"method", "result", "error"} & set(frame):
            send(id=None, error={"code": -32603 if BREAK == 5 else -32600, "message": "no message"})
        else:
            self.frame(frame)

    def frame(self, frame: Json) -> None:
        method, params = frame.get("method"), frame.get("params")
        if method is None:
            if BREAK == 12:
                send(id=frame.get("id"), error={"code": -32600, "message": "nobody asked"})
        elif "id" not in frame or (frame["id"] is None and BREAK == 8):
            self.note(method, {} if params is None else params)
        else:
            self.request(frame["id"], method, {} if params is None else params)

    def note(self, method: str, params: Any) -> None:
        if BREAK == 9 and not isinstance(params, dict):
            send(id=None, error={"code": -32602, "message": "expected an object"})
        elif BREAK == 11 and method == "foo/bar":
            sys.exit(3)
        elif method == "session/cancel" and isinstance(params, dict) and "sessionId" in params:
            self.cancel(params["sessionId"])
        elif method == "$/cancel_request":
            for session, requests in list(self.prompts.items()):
                if params.get("requestId") in requests:
                    self.cancel(session)
            if BREAK == 69:
                send(id=None, error={"code": -32002, "message": "no such request"})

    def request(self, request: Any, method: str, params: Any) -> None:
        methods = {
            "initialize": self.initialize, "authenticate": self.authenticate, "session/new": self.new,
            "session/load": self.load, "session/resume": self.resume, "session/fork": self.fork,
            "session/list": self.list, "session/delete": self.delete, "session/close": self.close,
            "session/set_mode": self.set_mode, "session/set_config_option": self.set_option,
        }
        answer = str(request) if BREAK == 7 and request == -1 else request
        try:
            if not self.ready and method != "initialize" and BREAK != 25:
                raise Refusal(-32600, "initialize first")
            if not isinstance(params, dict):
                raise invalid("expected an object")
            if method == "session/prompt":
                self.prompt(request, params)
                return
            if method not in methods:
                raise Refusal(-32603 if BREAK == 10 else -32601, "no such method")
            send(id=answer, result=methods[method](params))
            if BREAK == 85 and method == "session/new":
                commands = [{"name": "x", "description": ""}]
                update(f"s{self.made}", "available_commands_update", availableCommands=commands)
        except Refusal as refusal:
            send(id=answer, error=refusal.error)
            if BREAK == 16 and method not in methods:
                send(id=answer, error=refusal.error)


def main() -> None:
    agent = Agent()
    if BREAK == 1:
        sys.stdout.write("Welcome!\n")
        sys.stdout.flush()
    for raw in sys.stdin.buffer:
        if BREAK == 15 and len(raw) > 2 << 20:
            os._exit(1)
        agent.line(raw)
    if BREAK == 17:
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        sys.exit(1)
    for server in agent.servers:
        server.kill()


if __name__ == "__main__":
    main()

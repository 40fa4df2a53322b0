"""A tiny agent that keeps its sessions in a file, for tests of scripts over several sessions and processes.

It says its process's number and the prompt's text, and asks first when the prompt is `ask`. It never answers `hang` and
`silence`, and stores the turn of `hang` only. Its lists have two sessions a page. Where ACP_SESSION_STORE is a
database, it writes one with what the kit reads of ours, and has the `sessions` command that takes logs out of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

FILE = Path(os.environ["HOME"]) / "kept.json"
STORE = os.environ["ACP_SESSION_STORE"].partition(":")


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def update(session: str, kind: str, text: str) -> None:
    send(method="session/update", params={"sessionId": session, "update": {
        "sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": f"m-{text}"}})


class Kept:
    """What outlives a process: session ids with their texts, and how many processes there were."""

    def __init__(self) -> None:
        kept: dict[str, Any] = {"processes": 0, "sessions": {}}
        if FILE.exists():
            kept = json.loads(FILE.read_text())
        self.process: int = kept["processes"] + 1
        self.sessions: dict[str, list[str]] = kept["sessions"]
        self.open: set[str] = set()
        self.save()

    def save(self) -> None:
        FILE.write_text(json.dumps({"processes": self.process, "sessions": self.sessions}))

    def add(self, texts: list[str]) -> str:
        name = f"kept-session-{self.process}-{len(self.sessions) + 1}"
        self.sessions[name] = texts
        self.open.add(name)
        self.save()
        write_turns(name, len(texts))
        return name


def write_turns(session: str, turns: int, open_turn: int = 0) -> None:
    """What the kit waits for in a log: turns that ended, and one that began."""
    if STORE[0] != "sqlite":
        return
    with sqlite3.connect(STORE[2]) as database:
        database.executescript("CREATE TABLE IF NOT EXISTS sessions(id, created_at, parent_session, spawn_call_id, "
                               "spawn_index, seed_length);"
                               "CREATE TABLE IF NOT EXISTS events(session_id, seq, type, time, data)")
        database.execute("DELETE FROM sessions WHERE id = ?", (session,))
        database.execute("DELETE FROM events WHERE session_id = ?", (session,))
        database.execute("INSERT INTO sessions VALUES (?, ?, NULL, NULL, NULL, NULL)", (session, time.time_ns()))
        rows = [(kind, turn) for turn in range(1, turns + 1) for kind in ("turn/start", "turn/end")]
        rows += [("turn/start", open_turn)] if open_turn else []
        for seq, (kind, turn) in enumerate(rows):
            reason = {"reason": {"kind": "completed"}} if kind == "turn/end" else {}
            database.execute("INSERT INTO events VALUES (?, ?, ?, 0, ?)",
                             (session, seq, kind, json.dumps({"turn": turn, **reason})))


def answer(kept: Kept, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request that needs no waiting. Raises `LookupError`."""
    name = params.get("sessionId", "")
    match method:
        case "initialize":
            return {"protocolVersion": 1}
        case "session/new":
            return {"sessionId": kept.add([])}
        case "session/fork":
            return {"sessionId": kept.add(list(kept.sessions[name]))}
        case "session/load" | "session/resume":
            texts = kept.sessions[name]
            for text in texts if method == "session/load" else ():
                update(name, "agent_message_chunk", text)
            kept.open.add(name)
            return {}
        case "session/close":
            kept.open.remove(name)
            return {}
        case "session/delete":
            kept.sessions.pop(name, None)
            kept.save()
            return {}
        case "session/list":
            return page(kept, params.get("cursor"))
    raise LookupError(method)


def page(kept: Kept, cursor: str | None) -> dict[str, Any]:
    at = 0 if cursor is None else int(cursor.removeprefix("behind-number-"))
    names = list(kept.sessions)[at : at + 2]
    left = {"nextCursor": f"behind-number-{at + 2}"} if at + 2 < len(kept.sessions) else {}
    return {"sessions": [{"sessionId": name, "cwd": "/", "updatedAt": f"2026-01-01T00:00:0{kept.process}Z"}
                         for name in names], **left}


def prompt(kept: Kept, request: Any, session: str, text: str) -> None:
    if session not in kept.open:
        raise LookupError(session)
    if text == "silence":
        return
    if text == "hang":
        write_turns(session, len(kept.sessions[session]), open_turn=len(kept.sessions[session]) + 1)
        update(session, "agent_message_chunk", "hanging")
        return
    if text == "ask":
        send(id=1, method="session/request_permission", params={
            "sessionId": session, "toolCall": {"toolCallId": "c"},
            "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]})
        sys.stdin.readline()
    said = f"{kept.process}: {text}"
    kept.sessions[session].append(said)
    kept.save()
    write_turns(session, len(kept.sessions[session]))
    update(session, "agent_message_chunk", said)
    send(id=request, result={"stopReason": "end_turn"})


def main() -> None:
    kept = Kept()
    for line in sys.stdin:
        frame = json.loads(line) if line.strip() else {}
        if "method" not in frame or "id" not in frame:
            continue
        params = frame.get("params", {})
        try:
            if frame["method"] == "session/prompt":
                prompt(kept, frame["id"], params["sessionId"], params["prompt"][0]["text"])
            else:
                send(id=frame["id"], result=answer(kept, frame["method"], params))
        except LookupError as error:
            send(id=frame["id"], error={"code": -32002, "message": f"there is no {error}"})
    if os.environ.get("END_BADLY"):
        sys.exit(3)


def sessions_command(words: list[str]) -> None:
    """`sessions list --json` and `sessions pack ID OUT`, newest session first."""
    with sqlite3.connect(STORE[2]) as database:
        if words[0] == "list":
            for (name,) in database.execute("SELECT id FROM sessions ORDER BY created_at DESC"):
                sys.stdout.write(json.dumps({"id": name}) + "\n")
            return
        rows = database.execute("SELECT type, seq, data FROM events WHERE session_id = ? ORDER BY seq", (words[1],))
        lines: list[dict[str, Any]] = [{"type": "session", "version": 0, "id": words[1], "createdAt": 1, "cwd": "/"}]
        lines += [{"type": kind, "seq": seq, "time": 1, "data": json.loads(data)} for kind, seq, data in rows]
    Path(words[2]).mkdir(parents=True)
    Path(words[2], "session.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["sessions"]:
        sessions_command(sys.argv[2:])
    else:
        main()

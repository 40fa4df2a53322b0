"""Replays a recording that has no script: a directory of session logs as a store keeps them, a bug report.

The script is what the users of its root sessions said: each root in the order of its first model call, one prompt
for each turn. A turn that was cancelled is cancelled where it was, its children with it. Tool results come from the
recording, so nothing runs, and nothing of the recorded workspace is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct

from replay import logform
from replay.agent_process import AgentProcess, AgentSession, Refused
from replay.artefacts import Artefacts
from replay.conversation import as_object
from replay.cut import CUT, Family, Mark, own_events
from replay.driver import TIMEOUT
from replay.engine import read_directory
from replay.lineage import arrange
from replay.logform import CHUNK, LogEvent, LogForm
from replay.problems import Findings
from replay.transports import TransportName

RECORDED = {"ACP_REPLAY_TOOLS": "recorded"}


class Turn(Struct, frozen=True):
    """One recorded turn of a root: what was asked, and where it was cut short.

    seen      for a turn that was cut: the root's update that was the last to be seen, with its text; () when there was
              none
    children  for a turn that was cut: how far each session below had come
    """

    prompt: tuple[Mapping[str, Any], ...]
    cut: bool = False
    seen: tuple[Mapping[str, Any], str | None] | tuple[()] = ()
    children: tuple[Mark, ...] = ()


def script(directory: Path) -> list[list[Turn]]:
    """The turns of each recorded root. Raises `RecordingError` for a directory that cannot be replayed."""
    findings = Findings()
    read = read_directory(directory, findings)
    error = findings.error()
    if error is not None:
        raise error
    forms = {one.file: logform.read(Path(one.file).read_bytes(), one.file) for one in read.recordings}
    roots = [kin.form for kin in arrange(list(forms.values()), ()).files if not kin.path]
    return [list(_turns(root, Family(root, read.placed, forms))) for root in roots]


def rerun(
    directory: Path, command: Sequence[str], *, root: Path, transport: TransportName = "pipe",
    timeout: float = TIMEOUT,
) -> Artefacts:
    """Replay the recording with the agent `command` starts. Raises `RunFailed`, `RecordingError`."""
    roots = script(directory)
    with AgentProcess(command, root, recording=directory, env=RECORDED, transport=transport, timeout=timeout,
                      permission_mode="full-access") as agent:
        agent.initialize()
        for turns in roots:
            session = agent.new_session()
            for turn in turns:
                _ask(session, turn)
    return agent.artefacts


def _ask(session: AgentSession, turn: Turn) -> None:
    prompt = session.start(turn.prompt)
    if turn.cut:
        if turn.seen:
            update, text = turn.seen
            session.wait_for(update, UNSET if text is None else text)
        else:
            session.wait_for_turn()
        session.wait_for_marks(turn.children)
        session.cancel()
    try:
        prompt.wait()
    except Refused:
        return  # a turn that failed in the recording fails in its replay; the log tells how


# ---------------------------------------------------------------- reading


def _turns(form: LogForm, family: Family) -> Iterator[Turn]:
    earlier: list[str] = []
    for events in _turns_of(own_events(form)):
        calls = [event.data["callId"] for event in events if event.type == "tool/call"]
        asked = next((event.data["content"] for event in events if event.type == "user/message"), None)
        last = events[-1]
        cut = last.type != "turn/end" or last.data["reason"]["kind"] in CUT  # without an end the process was killed
        if asked is not None:
            prompt = tuple(_block(block) for block in asked)
            yield Turn(prompt, cut, _last_seen(events), tuple(family.of(calls, earlier))) if cut else Turn(prompt)
        earlier += calls


def _turns_of(events: Sequence[LogEvent]) -> Iterator[list[LogEvent]]:
    turn: list[LogEvent] = []
    for event in events:
        if event.type == "turn/start":
            turn = []
        turn.append(event)
        if event.type == "turn/end":
            yield turn
            turn = []
    if turn:
        yield turn


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    text = block.get("text")
    return {"type": "text", "text": text if isinstance(text, str) else f"({block.get('type')})"}


def _last_seen(events: Sequence[LogEvent]) -> tuple[Mapping[str, Any], str | None] | tuple[()]:
    """The last thing of a turn that a client is shown: a tool call, or the text of the call that was streaming."""
    call: str | None = None
    texts = {"text-delta": "", "reasoning-delta": ""}
    for event in events:
        if event.type in ("step/start", "tool/call"):
            texts = dict.fromkeys(texts, "")
        if event.type == "tool/call":
            call = event.data["callId"]
        chunk = as_object(event.data.get("chunk")) if event.type == CHUNK else {}
        if chunk.get("type") in texts:
            texts[chunk["type"]] += chunk["text"]
    for kind, update in (("text-delta", "agent_message_chunk"), ("reasoning-delta", "agent_thought_chunk")):
        if texts[kind]:
            return {"sessionUpdate": update}, texts[kind]
    return ({"sessionUpdate": "tool_call", "toolCallId": call}, None) if call is not None else ()

"""Replays a recording that has no script: a directory of session logs as a store keeps them, a bug report.

The script is what the users of its root sessions said: each root in the order of its first model call, one prompt
for each turn. A turn that was cancelled is cancelled where it was. Tool results come from the recording, so
nothing runs, and nothing of the recorded workspace is needed.
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
from replay.driver import TIMEOUT
from replay.engine import read_directory
from replay.lineage import arrange
from replay.logform import CHUNK, LogEvent, LogForm
from replay.problems import Findings
from replay.transports import TransportName

CUT = frozenset({"aborted", "interrupted"})
"""How a turn ends whose last model call or tool never came to its end."""

RECORDED = {"ACP_REPLAY_TOOLS": "recorded"}


class Turn(Struct, frozen=True):
    """One recorded turn of a root: what was asked, and where it was cut short.

    seen  for a turn that was cut: the update that was the last to be seen, with its text; () when there was none
    """

    prompt: tuple[Mapping[str, Any], ...]
    cut: bool = False
    seen: tuple[Mapping[str, Any], str | None] | tuple[()] = ()


def script(directory: Path) -> list[list[Turn]]:
    """The turns of each recorded root. Raises `RecordingError` for a directory that cannot be replayed."""
    findings = Findings()
    read = read_directory(directory, findings)
    error = findings.error()
    if error is not None:
        raise error
    forms = [logform.read(Path(one.file).read_bytes(), one.file) for one in read.recordings]
    return [list(_turns(kin.form)) for kin in arrange(forms, ()).files if not kin.path]


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
        session.cancel()
    try:
        prompt.wait()
    except Refused:
        return  # a turn that failed in the recording fails in its replay; the log tells how


# ---------------------------------------------------------------- reading


def _turns(form: LogForm) -> Iterator[Turn]:
    seed = form.header.seed_length
    turn: list[LogEvent] = []
    for event in form.events[0 if seed is UNSET else seed :]:
        if event.type == "turn/start":
            turn = []
        turn.append(event)
        if event.type == "turn/end":
            yield from _turn(turn, event.data["reason"]["kind"] in CUT)
            turn = []
    yield from _turn(turn, cut=True)  # whose process was killed


def _turn(events: Sequence[LogEvent], cut: bool) -> Iterator[Turn]:
    asked = next((event.data["content"] for event in events if event.type == "user/message"), None)
    if asked is not None:
        yield Turn(tuple(_block(block) for block in asked), cut, _last_seen(events) if cut else ())


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

"""From what a run left behind to what can be compared: ids and places named, times gone, order canonical.

The numbers of names do not depend on scheduling. Sessions are numbered as the client made them, each root
followed by its children by address; messages, approvals, retries and file versions as they stand in the logs in
that order; then whatever only the wire has, in its canonical order. The client's request ids are numbered as it
sent them, the agent's as they stand in the canonical order: two separate numberings, which go on from one process
of the agent to the next. Between the lines of two processes stands `{"restart":"eof"}` or `{"restart":"kill"}`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from acp_agent.session.events import SessionHeader
from replay import conversation, identities, logform, order
from replay.artefacts import Artefacts, FileState
from replay.conversation import CANCEL_REQUEST, Conversation, Frame
from replay.identities import Rewriter
from replay.leftovers import Leftover, leftovers
from replay.lineage import Kin, Lineage, arrange
from replay.logform import CHUNK, LogEvent, LogForm
from replay.names import UUID, Names, Places, check_one_to_one
from replay.order_children import Address
from replay.receipts import Receipt
from replay.snapshot import FileEntry, Normalised, SessionLog, WireFrame

UNASKED = "{{unasked}}"
"""The id of a response that answers no open request."""


def normalise(run: Artefacts) -> Normalised:
    """What a run did, comparable with a golden or another run.

    Raises `AmbiguousNames` where ids cannot be told apart, `LogDamaged` for a log that cannot be read.
    """
    wire = conversation.read(run.wire, run.restarts)
    forms = [logform.read(log.data, str(log.path)) for log in run.logs]
    lineage = arrange(forms, wire.sessions(), wire.prompted())
    settled = {id(kin.form): logform.settled(kin.form) for kin in lineage.files}
    frames = order.canonical(wire, _addresses(lineage))
    names = _named(lineage, [settled[id(kin.form)] for kin in lineage.sessions], wire, frames)
    rewriter = Rewriter(names, Places(run.workspace, run.home))
    logs = tuple(_log(kin, settled[id(kin.form)], rewriter) for kin in lineage.files)
    lines = tuple(_lines(frames, rewriter))
    receipt, faults = _receipt(run.receipt)
    broken = (*wire.problems, *order.broken_promises(wire), *map(_lost, lineage.lost), *faults)
    left = (*_left_in_logs(logs), *_left_in_wire(lines), *_split_names(lineage.files, rewriter))
    return Normalised(lines, logs, _files(run.files, rewriter), broken, left, receipt)


def _addresses(lineage: Lineage) -> dict[str, Address]:
    """Where the children stand."""
    headers = [kin.form.header for kin in lineage.sessions]
    return {header.id: Address(place, header.spawn.call_id)
            for place, header in enumerate(headers) if header.spawn is not UNSET}  # fmt: skip


def _lost(form: LogForm) -> str:
    return f"the log {form.file} is a child's, and its parent {form.header.parent_session} has no log"


def _receipt(data: bytes | None) -> tuple[Receipt | None, list[str]]:
    if data is None:
        return None, []
    try:
        return msgspec.json.decode(data, type=Receipt), []
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return None, [f"the replay receipt cannot be read: {error}"]


# ---------------------------------------------------------------- names


def _named(
    lineage: Lineage, logs: Sequence[LogForm], wire: Conversation, frames: Sequence[Frame]
) -> Names:
    """Every id of the run with its name, given in the order the module describes."""
    names = Names()
    for kin in lineage.sessions:
        names.give("session", kin.form.header.id)
    for session in wire.sessions():
        names.give("session", session)
    models: set[str] = set()
    for form in logs:
        for event in form.events:
            models.update(identities.call_ids(event.data))
            for kind, raw in identities.ids(event.data, event.type):
                names.give(kind, raw)
    for frame in frames:
        body = {key: value for key, value in frame.value.items() if key != "id"}
        for kind, raw in identities.ids(body):
            if names.get(raw) is None:
                names.give(kind, raw)
        for call in identities.call_ids(body):
            if UUID.fullmatch(call) and call not in models:
                names.give("call", call)
    check_one_to_one(dict(names.items()))
    return names


# ---------------------------------------------------------------- logs


def _log(kin: Kin, form: LogForm, rewriter: Rewriter) -> SessionLog:
    events = tuple(_event(event, rewriter) for event in form.events)
    name = rewriter.names.id(form.header.id)
    return SessionLog(name, kin.root, kin.path, _header(form.header, kin, rewriter), events)


def _header(header: SessionHeader, kin: Kin, rewriter: Rewriter) -> SessionHeader:
    """`createdAt` keeps only what a replay binds roots by: which came first."""
    values = rewriter.value(msgspec.to_builtins(header))
    values |= {"id": rewriter.names.id(header.id), "createdAt": 0 if kin.path else kin.root}
    return msgspec.convert(values, SessionHeader)


def _event(event: LogEvent, rewriter: Rewriter) -> LogEvent:
    return msgspec.structs.replace(event, data=rewriter.value(event.data, event.type))


def _left_in_logs(logs: Sequence[SessionLog]) -> Iterator[Leftover]:
    for log in logs:
        for at, event in enumerate(log.events):
            yield from leftovers(event.data, f"{log.name} ({log.address}), event {at} {event.type}")


def _split_names(kin: Sequence[Kin], rewriter: Rewriter) -> Iterator[Leftover]:
    """Ids and places that a model's stream holds in pieces: there they cannot be replaced."""
    for one in kin:
        runs: dict[tuple[Any, ...], list[str]] = {}
        for event in one.form.events:
            if event.type == CHUNK and event.data["chunk"]["type"].endswith("-delta"):
                chunk = event.data["chunk"]
                where = (event.data["turn"], event.data["step"], chunk["type"], chunk["index"])
                runs.setdefault(where, []).append(chunk.get("text", chunk.get("argumentsDelta", "")))
        for (turn, step, kind, _), pieces in runs.items():
            whole = "".join(pieces)
            if len(pieces) > 1 and rewriter.text(whole) != "".join(map(rewriter.text, pieces)):
                where_said = f"{rewriter.names.id(one.form.header.id)}, turn {turn} step {step}, {kind}"
                yield Leftover(where_said, "an id or a path of this run, cut into several deltas,", whole[:80])


# ---------------------------------------------------------------- wire


def _lines(frames: Sequence[Frame], rewriter: Rewriter) -> Iterator[WireFrame]:
    numbers: dict[tuple[int, str], int] = {}
    for frame in frames:
        value: dict[str, Any] = {}
        for key, item in frame.value.items():
            value[key] = item if key == "id" else rewriter.value({key: item})[key]
        answers = frame.answers
        if answers is not None:
            value["id"] = answers.number
        elif frame.method is None and value.get("id") is not None:
            value["id"] = UNASKED
        elif frame.is_request:
            value["id"] = numbers[frame.process, conversation.key(frame.value["id"])] = len(numbers) + 1
        elif frame.method == CANCEL_REQUEST:
            asked = conversation.key(frame.params.get("requestId"))
            number = numbers.get((frame.process, asked), frame.params.get("requestId"))
            value["params"] = value["params"] | {"requestId": number}
        session = frame.session if answers is None else answers.session
        name = None if session is None else rewriter.names.id(session)
        yield WireFrame(value, name, None if answers is None else answers.method)


def _left_in_wire(lines: Sequence[WireFrame]) -> Iterator[Leftover]:
    for at, line in enumerate(lines, 1):
        method = line.value.get("method") or f"response to {line.answers}"
        yield from leftovers(line.value, f"wire line {at} {method}")


# ---------------------------------------------------------------- files


def _files(files: Sequence[FileState], rewriter: Rewriter) -> dict[str, FileEntry]:
    check_one_to_one({file.path: rewriter.text(file.path) for file in files})
    return {rewriter.text(file.path): _file(file, rewriter) for file in sorted(files, key=lambda file: file.path)}


def _file(file: FileState, rewriter: Rewriter) -> FileEntry:
    if file.data is None:
        return FileEntry(removed=True)
    mode = f"{file.mode & 0o777:o}" if file.mode & 0o111 else UNSET
    try:
        text = file.data.decode()
    except UnicodeDecodeError:
        return FileEntry(base64=base64.b64encode(file.data).decode(), mode=mode)
    return FileEntry(text=rewriter.text(text), mode=mode)

"""What the engine sees in a replay directory, without running it: lanes, calls, results and every problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_agent.errors import RecordingError
from acp_agent.session.events import BlockEnd, Finish, TextBlock, TextDelta, ToolCallBlock
from replay.addresses import Placed
from replay.effects import Recorded, read_steps, text_of
from replay.engine import Directory, read_directory
from replay.fixture import Recording
from replay.problems import Findings, Problem
from replay.rows import Piece
from replay.script import Action, Call, Hang, Throw, Unfinished
from replay.stream import count, expand

PREVIEW = 60
"""Characters shown of a text."""


class CallView(Struct, frozen=True, omit_defaults=True):
    """One recorded model call. `kind`: chunks, held, throw, hang, unfinished; `finish` is the reason's kind."""

    purpose: str
    ordinal: int
    kind: str
    chunks: int
    preview: str = ""
    finish: str | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    step: int | UnsetType = UNSET
    overridden: bool = False


class ResultView(Struct, frozen=True, omit_defaults=True):
    """One recorded tool call. `approved` is set where somebody was asked."""

    turn: int
    step: int
    position: int
    tool: str
    call_id: str
    outcome: str
    preview: str = ""
    approved: bool | UnsetType = UNSET


class LaneView(Struct, frozen=True, omit_defaults=True):
    """One recorded session. `address` is unset where nothing can ask for its calls; `seed`: inherited events."""

    session: str
    file: str
    events: int
    calls: list[CallView]
    results: list[ResultView]
    address: list[str] | UnsetType = UNSET
    seed: int = 0


class Explanation(Struct, frozen=True):
    """A replay directory as the engine sees it. `problems` forbid a replay, `doubts` do not."""

    directory: str
    override: bool
    lanes: list[LaneView]
    problems: list[Problem]
    doubts: list[Problem]


def explain(directory: Path) -> Explanation:
    """Read a replay directory and tell all there is to tell. Raises nothing for a faulty one: see `problems`."""
    findings = Findings()
    read = read_directory(directory, findings)
    lanes = [_lane(one, read, findings) for one in _with_unplaced(read)]
    return Explanation(str(directory), read.override is not None, lanes, findings.faults, findings.doubts)


def _with_unplaced(read: Directory) -> Iterator[Placed]:
    yield from read.placed
    reached = {id(one.recording) for one in read.placed}
    for recording in read.recordings:
        if id(recording) not in reached:
            yield Placed(recording, recording, None)


def _lane(one: Placed, read: Directory, findings: Findings) -> LaneView:
    recording = one.recording
    seed = recording.header.seed_length
    return LaneView(
        recording.name, recording.file_name, recording.count,
        _calls(read.scripts[id(recording)]), _results(recording, findings),
        UNSET if one.path is None else [str(hop) for hop in one.path],
        0 if seed is UNSET else seed,
    )  # fmt: skip


# ---------------------------------------------------------------- calls


def _calls(calls: Sequence[Call]) -> list[CallView]:
    counts: dict[str, int] = {}
    views = []
    for call in calls:
        ordinal = counts.get(call.purpose, 0)
        counts[call.purpose] = ordinal + 1
        views.append(_call(call, ordinal))
    return views


def _call(call: Call, ordinal: int) -> CallView:
    action = call.action
    pieces = () if isinstance(action, Hang | Unfinished) else action.pieces
    return CallView(
        call.purpose, ordinal, type(action).__name__.lower(), count(pieces), _preview(action, pieces),
        _finish(pieces), UNSET if call.turn is None else call.turn, UNSET if call.step is None else call.step,
        overridden=call.turn is None,
    )  # fmt: skip


def _preview(action: Action, pieces: Sequence[Piece]) -> str:
    """The text the call streams, else the tools it asks for, else what it does instead."""
    if isinstance(action, Throw):
        return shorten(f"{action.code}: {action.message}")
    if isinstance(action, Unfinished):
        return shorten(action.message)
    chunks = [chunk for piece in pieces for chunk in expand(piece)]
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    blocks = [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]
    if not text:
        text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    tools = ", ".join(block.name for block in blocks if isinstance(block, ToolCallBlock))
    return shorten(text) if not tools else shorten(f"{text} [{tools}]".strip())


def _finish(pieces: Sequence[Piece]) -> str | UnsetType:
    last = expand(pieces[-1])[-1] if pieces else None
    return last.reason.kind if isinstance(last, Finish) else UNSET


# ---------------------------------------------------------------- results


def _results(recording: Recording, findings: Findings) -> list[ResultView]:
    try:
        steps = read_steps(recording)
    except RecordingError as error:
        findings.faults.append(Problem(error.message))
        return []
    return [
        _result(turn, step, at, call) for (turn, step), calls in steps.items() for at, call in enumerate(calls)
    ]


def _result(turn: int, step: int, position: int, call: Recorded) -> ResultView:
    outcome = "none" if call.outcome is None else "error" if call.outcome.is_error else "ok"
    preview = "" if call.outcome is None else shorten(text_of(call.outcome))
    approved = UNSET if call.approved is None else call.approved
    return ResultView(turn, step, position, call.name or "(not started)", call.call_id, outcome, preview, approved)


def shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"


# ---------------------------------------------------------------- plain text


def render(explanation: Explanation) -> str:
    """The explanation as plain text, lanes as a tree."""
    lines = [f"{explanation.directory}: {_counted(len(explanation.lanes), 'recorded session')}"]
    if explanation.override:
        lines.append("replay.override.json is in force for the first root")
    for lane in explanation.lanes:
        lines += ["", *_lane_lines(lane)]
    for title, problems in (("Problems", explanation.problems), ("Doubts", explanation.doubts)):
        if problems:
            lines += ["", f"{title}:", *(f"  {problem}" for problem in problems)]
    if not explanation.problems:
        lines += ["", "Nothing stands in the way of a replay."]
    return "\n".join(lines) + "\n"


def _lane_lines(lane: LaneView) -> Iterator[str]:
    where = "without an address" if lane.address is UNSET else " > ".join(["root", *lane.address])
    indent = "  " * (0 if lane.address is UNSET else len(lane.address))
    seed = f", the first {lane.seed} inherited" if lane.seed else ""
    yield f"{indent}{where}  ({lane.file}, session {lane.session}, {lane.events} events{seed})"
    for call in lane.calls:
        yield f"{indent}  {_call_line(call)}"
    for result in lane.results:
        yield f"{indent}  {_result_line(result)}"
    if not lane.calls:
        yield f"{indent}  no model calls"


def _call_line(call: CallView) -> str:
    place = "override" if call.turn is UNSET else f"turn {call.turn} step {call.step}"
    what = f"{call.kind}, {_counted(call.chunks, 'chunk')}" + ("" if call.finish is UNSET else f" {call.finish}")
    return f"{call.purpose} {call.ordinal + 1}  {place}  {what}{_quoted(call.preview)}"


def _result_line(result: ResultView) -> str:
    asked = "" if result.approved is UNSET else ", approved" if result.approved else ", refused"
    place = f"turn {result.turn} step {result.step}"
    return f"tool    {place}  {result.tool} ({result.call_id}): {result.outcome}{asked}{_quoted(result.preview)}"


def _quoted(preview: str) -> str:
    return f'  "{preview}"' if preview else ""


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def to_json(explanation: Explanation) -> bytes:
    """The explanation as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(explanation), indent=2) + b"\n"

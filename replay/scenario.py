"""A scenario: what one snapshot test does. `input.json` in its directory is the script; see `replay.steps` for it.

    {"provenance": where the recording is from, in words,
     "settings": {"permissionMode": ..., "env": {NAME: value}},
     "capabilities": the client capabilities that `initialize` sends,
     "steps": [{"op": ..., ...}, ...],
     "permissionAnswers": [{"kind": "allow_once"}, ...],
     "answers": {"files": {path: text}, "elicitations": [{"action": "accept", "content": {...}}, ...]}}

Only `steps` is needed. Beside it may stand `workspace/`, which seeds the workspace of each run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from replay.failures import ScenarioError
from replay.script_names import Given
from replay.steps import AnyStep, Step

INPUT = "input.json"

PermissionMode = Literal["read-only", "ask", "accept-edits", "full-access"]
Chosen: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class _Own(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file of ours: what it does not know it refuses."""


class RunSettings(_Own, frozen=True):
    """How the agent is started. `env` beats every variable the driver sets; `{{cwd}}` and `{{home}}` work in it.

    Without `permissionMode` it is `ask` when there are permission answers, else `full-access`.
    """

    permission_mode: PermissionMode | UnsetType = UNSET
    env: dict[str, str] = {}


class PermissionAnswer(_Own, frozen=True):
    """The answer to the next permission question: the option of this kind, `cancelled`, or `hold`, which leaves
    the question open until its session is cancelled or the script ends.

    With `toolCallId` or `title` it is kept for the question about that call, or about one whose title contains
    the text, so that questions that come in no promised order get their own answers.
    """

    kind: Chosen | Literal["cancelled", "hold"]
    tool_call_id: str | UnsetType = UNSET
    title: str | UnsetType = UNSET


class ElicitationAnswer(_Own, frozen=True):
    """The answer to the next `elicitation/create`."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | UnsetType = UNSET


class Answers(_Own, frozen=True):
    """What the client's services say. `files` are unsaved editor buffers by path relative to the workspace: reads
    get them instead of the file, a write replaces them.
    """

    files: dict[str, str] = {}
    elicitations: tuple[ElicitationAnswer, ...] = ()


class FileServices(Struct, frozen=True, rename="camel"):
    """Which file methods the client offers."""

    read_text_file: bool = False
    write_text_file: bool = False


class ElicitationModes(Struct, frozen=True):
    """Which kinds of elicitation the client offers; None and absent offer nothing."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class Capabilities(Struct, frozen=True):
    """The client capabilities this client acts on. Others are sent and mean nothing to it."""

    fs: FileServices = FileServices()
    terminal: bool = False
    elicitation: ElicitationModes = ElicitationModes()


class Scenario(Struct, frozen=True, kw_only=True):
    """One scenario. `sent_capabilities` are the bytes of `capabilities` as written, which `initialize` sends."""

    file: Path
    steps: tuple[AnyStep, ...]
    provenance: str | UnsetType = UNSET
    settings: RunSettings = RunSettings()
    capabilities: Capabilities = Capabilities()
    sent_capabilities: Raw = Raw(b"{}")
    permission_answers: tuple[PermissionAnswer, ...] = ()
    answers: Answers = Answers()

    @property
    def directory(self) -> Path:
        """Where the scenario's files lie."""
        return self.file.parent

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.file.parent.name

    @property
    def seed(self) -> Path:
        """The directory whose content each run's workspace starts with; it need not exist."""
        return self.file.parent / "workspace"

    @property
    def permission_mode(self) -> PermissionMode:
        """The mode that the run's sessions start in."""
        if self.settings.permission_mode is not UNSET:
            return self.settings.permission_mode
        return "ask" if self.permission_answers else "full-access"


class _Input(_Own, frozen=True):
    steps: list[Raw]
    provenance: str | UnsetType = UNSET
    settings: RunSettings = RunSettings()
    capabilities: Raw = Raw(b"{}")
    permission_answers: tuple[PermissionAnswer, ...] = ()
    answers: Answers = Answers()


class _OpProbe(Struct, frozen=True):
    op: str


LATER = {
    "waitForInboxMessage": "messages between sessions",
    "waitForGoalPhase": "goals",
}
"""Ops that other harnesses' scripts may hold, and the feature each needs, which this agent does not have."""


def load_scenario(path: Path) -> Scenario:
    """The scenario of a directory, or of an `input.json`. Raises `ScenarioError`."""
    file = path / INPUT if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ScenarioError(file, f"cannot be read: {error.strerror}") from None
    return read_scenario(data, file)


def read_scenario(data: bytes, file: Path) -> Scenario:
    """The scenario that an `input.json` holds; `file` is where it stands. Raises `ScenarioError`."""
    try:
        read = msgspec.json.decode(data, type=_Input)
    except msgspec.ValidationError as error:
        raise ScenarioError(file, f"{error}; a scenario has {_members(_Input)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(file, f"is not JSON: {error}", line=_line_of(data, str(error))) from None
    if not read.steps:
        raise ScenarioError(file, "`steps` is empty; a script begins with {\"op\": \"initialize\"} as a rule")
    steps = tuple(_step(raw, number, file) for number, raw in enumerate(read.steps, 1))
    Given(file).check(steps)
    return Scenario(
        file=file, steps=steps, provenance=read.provenance, settings=read.settings,
        capabilities=_capabilities(read.capabilities, file), sent_capabilities=read.capabilities.copy(),
        permission_answers=read.permission_answers, answers=read.answers,
    )  # fmt: skip


def _line_of(data: bytes, message: str) -> int | None:
    """The line of the byte that a decoder's message names."""
    _, found, rest = message.partition("(byte ")
    at = rest.partition(")")[0]
    return data.count(b"\n", 0, int(at)) + 1 if found and at.isdigit() else None


@functools.cache
def ops() -> dict[str, type[Step]]:
    """Every op by name."""
    return {msgspec.inspect.type_info(cls).tag: cls for cls in get_args(AnyStep)}  # type: ignore[attr-defined]  # of structs


def _step(raw: Raw, number: int, file: Path) -> AnyStep:
    where = f"step {number}"
    try:
        op = msgspec.json.decode(raw, type=_OpProbe).op
    except msgspec.ValidationError as error:
        raise ScenarioError(file, f"{error}; a step is an object with an `op`", step=where) from None
    if op not in ops():
        raise ScenarioError(file, _unknown(op), step=where)
    try:
        step: AnyStep = msgspec.json.decode(raw, type=AnyStep)
    except msgspec.ValidationError as error:
        raise ScenarioError(file, f"{error}; {op} takes {_members(ops()[op])}", step=f"{where} ({op})") from None
    return step


def _unknown(op: str) -> str:
    if op in LATER:
        return f"the op {op!r} needs {LATER[op]}, which this agent does not have"
    import difflib  # only for a message

    near = difflib.get_close_matches(op, ops(), 1)
    return f"unknown op {op!r}; {f'did you mean {near[0]!r}? ' if near else ''}known ops: {', '.join(ops())}"


def _members(cls: type[Struct]) -> str:
    """A struct's members in words, the needed ones first."""
    needed: list[str] = []
    optional: list[str] = []
    for field in msgspec.structs.fields(cls):
        (needed if field.required else optional).append(f"`{field.encode_name}`")
    return ", ".join([*needed, *(["optionally " + ", ".join(optional)] if optional else [])])


def _capabilities(raw: Raw, file: Path) -> Capabilities:
    try:
        return msgspec.json.decode(raw, type=Capabilities)
    except msgspec.ValidationError as error:
        advice = "capabilities that are wrong on purpose belong into the `initialize` step"
        raise ScenarioError(file, f"`capabilities`: {error}; {advice}") from None

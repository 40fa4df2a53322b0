"""A readable transcript of an ACP conversation: text flows, everything else gets a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from replay.artefacts import Side
from replay.exchange import Id, RpcError
from replay.printer import Printer, brief, one_line, visible
from replay.transcript_calls import ShownCall
from replay.transcript_frames import (
    AgentChunk,
    Asked,
    CallChange,
    CallStart,
    Command,
    Commands,
    Compaction,
    CompactionChunk,
    Content,
    Info,
    Line,
    Mode,
    Notice,
    Permission,
    PermissionResult,
    Plan,
    PlanEntry,
    Result,
    Setting,
    Settings,
    Subagent,
    ThoughtChunk,
    Update,
    Usage,
    UserChunk,
    read_each,
    read_line,
    read_params,
    read_update,
)

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

_Flowing: TypeAlias = AgentChunk | ThoughtChunk | UserChunk | CompactionChunk

_TEXT_STYLES = {AgentChunk: "", ThoughtChunk: "dim italic", UserChunk: "bold", CompactionChunk: "dim"}
_PLAN_SIGNS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}


class Transcript:
    """Prints the lines of a conversation as they come. One for a whole run: it remembers what it has shown.

    prompts       whether prompts are shown; not where the user's own typing shows them
    output_lines  how many lines of one tool call's output are shown

    When the updates come from more than one session, a line says whose the following ones are.
    """

    def __init__(self, console: Console, *, prompts: bool = True, output_lines: int = 8) -> None:
        self.printer = Printer(console)
        self._prompts = prompts
        self._output_lines = output_lines
        self._message: tuple[object, ...] = ()
        self._session: str | None = None
        self._calls: dict[tuple[str, str], ShownCall] = {}
        self._usage: Usage | None = None
        self._settings: dict[str, dict[str, Setting]] = {}
        """The settings of each session, by id."""
        self._requests: dict[Id, tuple[str, str]] = {}
        """Method and session of the client's open requests."""
        self._questions: dict[Id, Permission] = {}

    def show(self, frame: bytes, sender: Side = "agent") -> None:
        """Print what one line says, if it is worth a line. What cannot be read is shown as it came."""
        try:
            line = read_line(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.unreadable(frame, str(error))
            return
        if sender == "client":
            self._client(line)
        else:
            self._agent(line, frame)

    def unreadable(self, line: bytes, why: str) -> None:
        """Print a line of the agent's that is no JSON-RPC message."""
        shown = one_line(line.decode(errors="replace"))
        cut = shown if len(shown) <= 400 else f"{shown[:400]}… ({len(line)} bytes)"
        self.printer.line((f"not a message ({why}): ", "red"), (cut, ""))

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line of the caller's own."""
        self.printer.line((visible(text), style))

    # -- the agent's lines

    def _agent(self, line: Line, frame: bytes) -> None:
        if line.method == "session/update":
            self._update(line.params, frame)
        elif line.method is not UNSET and line.id is not UNSET:
            self._asks(line.id, line.method, line.params)
        elif line.method is UNSET and line.error is not UNSET:
            self._failed(line.id, line.error)
        elif line.method is UNSET and line.result is not UNSET:
            self._answered(line.id, line.result)

    def _failed(self, request: Id | UnsetType, raw: Raw) -> None:
        error = _read(raw, RpcError)
        what, _ = self._asked(request)
        self._usage = None
        facts = "" if error is None or error.data in (UNSET, None) else f" {brief(msgspec.json.encode(error.data))}"
        text = brief(bytes(raw)) if error is None else f"error {error.code}: {one_line(error.message)}{facts}"
        self.printer.line((f"{what}: {text}" if what else text, "red"))

    def _asked(self, request: Id | UnsetType) -> tuple[str, str]:
        """Method and session of what is answered."""
        return ("", "") if request is UNSET else self._requests.pop(request, ("", ""))

    def _answered(self, request: Id | UnsetType, raw: Raw) -> None:
        _, session = self._asked(request)
        result = _read(raw, Result)
        if result is not None and result.config_options is not UNSET:
            known, _ = read_each(_read(result.config_options, list[Raw]) or (), Setting)
            self._settings[result.session_id or session] = {setting.id: setting for setting in known}
        if result is not None and result.stop_reason is not None:
            spent = "" if self._usage is None else f" ({_tokens(self._usage)})"
            self.printer.line((f"turn ended: {one_line(result.stop_reason)}{spent}", "dim"))
            self._usage = None
        if result is not None and result.session_id is not None:
            self._session = result.session_id

    def _asks(self, request: Id, method: str, params: Raw | UnsetType) -> None:
        if method == "session/request_permission":
            question = _read(params, Permission)
            if question is not None:
                self._questions[request] = question
                self._permission(question)
                return
        asked = _read(params, Asked) or Asked()
        detail = " ".join([asked.command, *(asked.args or ())]) or asked.path or asked.message or asked.terminal_id
        self.printer.line((f"agent asks: {one_line(method)} {one_line(detail)}".rstrip(), "dim"))

    def _permission(self, question: Permission) -> None:
        asked = question.tool_call
        call = self._call(question.session_id, asked.tool_call_id)
        title = asked.title or call.title or asked.tool_call_id
        self.printer.line(("asks to run: ", "yellow"), (one_line(title), "bold"))
        call.content(asked)

    # -- updates

    def _update(self, params: Raw | UnsetType, frame: bytes) -> None:
        try:
            known = read_params(b"{}" if params is UNSET else params)
            update = read_update(known.update)
        except msgspec.MsgspecError as error:
            self.printer.line((f"an update that cannot be shown ({error}): {brief(frame)}", "dim"))
            return
        if isinstance(update, Usage):
            self._usage = update
            return
        self._enter(known.session_id)
        self._show(known.session_id, update)

    def _enter(self, session: str) -> None:
        if self._session not in (None, session):
            self.printer.line((f"session {one_line(session)}:", "magenta"))
        self._session = session

    def _show(self, session: str, update: Update) -> None:
        match update:
            case AgentChunk() | ThoughtChunk() | UserChunk():
                self._flow(session, update, update.message_id)
            case CompactionChunk():
                self._flow(session, update, update.compaction_id)
            case CallStart() | CallChange():
                self._call(session, update.tool_call_id).change(update)
            case Plan():
                for entry in self._items(update.entries, PlanEntry):
                    sign = _PLAN_SIGNS.get(entry.status, f"[{one_line(entry.status)}]")
                    self.printer.line((f"  {sign} ", "dim"), (one_line(entry.content), ""))
            case Mode():
                self.printer.line((f"mode: {one_line(update.current_mode_id)}", "dim"))
            case Info():
                if isinstance(update.title, str):
                    self.printer.line((f"title: {one_line(update.title)}", "dim"))
            case Commands():
                commands = self._items(update.available_commands, Command)
                self.printer.line((f"commands: {' '.join(f'/{one_line(one.name)}' for one in commands)}", "dim"))
            case Settings():
                self._set(session, self._items(update.config_options, Setting))
            case Compaction():
                text = ": ".join(filter(None, (update.status, update.error)))
                self.printer.line((f"compaction: {one_line(text)}", "dim"))
                for part in self._items(update.summary or (), Content):
                    self.printer.line((visible(str(part)), "dim"))
            case Subagent():
                facts = (update.title, update.description, str(update.state or ""))
                text = ": ".join(filter(None, (f"subagent {update.session_id}", *facts)))
                self.printer.line((one_line(text), "magenta"))
            case Notice():
                text = ": ".join(filter(None, (update.title, update.description)))
                self.printer.line((f"{one_line(update.severity or 'notice')}: {one_line(text)}", "yellow"))
            case Usage():
                self._usage = update

    def _items(self, raws: Sequence[Raw], cls: type[T]) -> list[T]:
        """What can be read of a list; the rest is shown as it came."""
        items, unreadable = read_each(raws, cls)
        for problem in unreadable:
            self.printer.line((problem, "dim"))
        return items

    def _set(self, session: str, settings: Sequence[Setting]) -> None:
        """Print which settings are not as they were."""
        before = self._settings.get(session, {})
        self._settings[session] = now = {setting.id: setting for setting in settings}
        for setting in settings:
            known = before.get(setting.id)
            if known is None or known.current_value != setting.current_value:
                self._setting(setting, str(setting))
            elif known != setting:
                self._setting(setting, f"other choices, still {setting}")
        for key in before.keys() - now.keys():
            self._setting(before[key], "gone")
        if before == now:
            self.printer.line(("settings: as before", "dim"))

    def _setting(self, setting: Setting, text: str) -> None:
        self.printer.line((one_line(f"{setting.name or setting.id}: {text}"), "dim"))

    def _flow(self, session: str, chunk: _Flowing, name: str | None) -> None:
        message = (session, type(chunk), name)
        if message != self._message:
            self.printer.end_line()
            self._message = message
        self.printer.flow(visible(str(chunk.content)), _TEXT_STYLES[type(chunk)])

    def _call(self, session: str, call: str) -> ShownCall:
        return self._calls.setdefault((session, call), ShownCall(self.printer, self._output_lines))

    # -- the client's lines

    def _client(self, line: Line) -> None:
        if line.method is not UNSET:
            asked = _read(line.params, Asked) or Asked()
            if line.id is not UNSET:
                self._requests[line.id] = line.method, asked.session_id
            self._client_asks(line.method, asked)
        elif line.id is not UNSET:
            self._client_answers(line.id, line)

    def _client_asks(self, method: str, asked: Asked) -> None:
        if method == "session/prompt" and self._prompts:
            self.printer.line(("> ", "bold blue"), (visible("".join(map(str, asked.prompt or ()))), "bold"))
        elif method == "session/cancel":
            self.printer.line(("cancel", "yellow"))
        elif method == "session/set_mode":
            self.printer.line((f"set mode: {one_line(asked.mode_id)}", "dim"))

    def _client_answers(self, request: Id, line: Line) -> None:
        question = self._questions.pop(request, None)
        if line.error is not UNSET:
            error = _read(line.error, RpcError)
            why = one_line(error.message) if error is not None else brief(bytes(line.error))
            self.printer.line((f"client refuses: {why}", "yellow"))
        elif question is not None and line.result is not UNSET:
            answer = _read(line.result, PermissionResult)
            if answer is not None:
                names = {option.option_id: option.name for option in question.options}
                chosen = names.get(answer.outcome.option_id or "", "") or answer.outcome.outcome
                self.printer.line((f"answered: {one_line(chosen)}", "yellow"))


def _tokens(usage: Usage) -> str:
    cost = "" if usage.cost is None else f", {usage.cost.amount:g} {one_line(usage.cost.currency)}"
    return f"{usage.used:,} of {usage.size:,} tokens{cost}"


def _read(raw: Raw | UnsetType, cls: type[T]) -> T | None:
    try:
        return msgspec.json.decode(b"{}" if raw is UNSET else raw, type=cls)
    except msgspec.MsgspecError:
        return None

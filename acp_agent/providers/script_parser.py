"""From a model script's statements to its calls (docs/model-script.md is the grammar in words)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from acp_agent.ids import CallId
from acp_agent.providers.base import MAIN, Hop
from acp_agent.providers.script_actions import CallBuilder
from acp_agent.providers.script_grammar import (
    DEFAULT_MODEL,
    Address,
    Script,
    ScriptCall,
    ScriptError,
    ScriptLane,
)
from acp_agent.providers.script_lexer import Statement, statements
from acp_agent.providers.script_words import Words


def parse_script(data: bytes, file: str) -> Script:
    """A script from the bytes of its file. Raises `ScriptError` with line and what was expected there."""
    parser = _Parser(file)
    for statement in statements(data, file):
        parser.take(statement)
    return parser.script()


class _Parser:
    """Takes statements in order. A lane may be taken up again: its calls continue."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._model = DEFAULT_MODEL
        self._window: int | UnsetType = UNSET
        self._named = False
        self._address = Address()
        self._purpose = MAIN
        self._call: CallBuilder | None = None
        self._calls: dict[Address, dict[str, list[ScriptCall]]] = {}
        self._lines: dict[Address, int] = {}
        self._asked: dict[Address, list[CallId]] = {}
        """The ids of the tool calls a lane makes, in the order of the file."""
        self._directives: dict[str, Callable[[Words], None]] = {
            "model": self._on_model, "lane": self._on_lane, "purpose": self._on_purpose, "call": self._on_call,
        }  # fmt: skip

    def take(self, statement: Statement) -> None:
        words = Words(statement, self._file)
        if statement.indented:
            if self._call is None:
                raise words.error("expected an action to stand below a `call`")
            self._call.take(words)
            return
        self._close()
        directive = self._directives.get(words.keyword(self._directives))
        if directive is None:
            raise words.unknown("at the left margin one of", self._directives)
        directive(words)
        words.end()

    def script(self) -> Script:
        self._close()
        if not self._lines:
            raise ScriptError("expected at least one `call`, found none", file=self._file)
        lanes = {address: ScriptLane(address, line, self._calls.get(address, {}))
                 for address, line in self._lines.items()}
        for lane in lanes.values():
            self._check(lane)
        return Script(self._file, self._model, self._window, lanes)

    # ------------------------------------------------------------ directives

    def _on_model(self, words: Words) -> None:
        if self._named or self._lines:
            raise words.error("expected `model` once, before the first lane and call")
        self._named = True
        self._model = words.name("the model's name")
        if words.option("window"):
            self._window = words.number("the context window in tokens")

    def _on_lane(self, words: Words) -> None:
        words.must("root")
        number = 1 if words.done or words.next_is(">") else words.number("the root session's number or `>`", least=1)
        path = []
        while words.option(">"):
            path.append(_hop(words))
        self._address, self._purpose = Address(number, tuple(path)), MAIN
        self._lines.setdefault(self._address, words.line)

    def _on_purpose(self, words: Words) -> None:
        self._purpose = words.name("what the calls below are made for, such as main or compaction")

    def _on_call(self, words: Words) -> None:
        self._lines.setdefault(self._address, words.line)
        calls = self._calls.setdefault(self._address, {}).setdefault(self._purpose, [])
        if calls and calls[-1].repeat:
            raise words.error(f"expected no call after the one at line {calls[-1].line}, which repeats for ever")
        self._call = CallBuilder(words.line, repeat=words.option("repeat"))

    def _close(self) -> None:
        if self._call is not None:
            self._calls[self._address][self._purpose].append(self._call.build())
            self._asked.setdefault(self._address, []).extend(self._call.asked)
            self._call = None

    # ------------------------------------------------------------ lanes nobody could reach

    def _check(self, lane: ScriptLane) -> None:
        address = lane.address
        if not lane.calls:
            raise self._wrong(lane, f"expected a `call` in lane {address}, found none")
        if not address.path:
            if address.root > 1 and Address(address.root - 1) not in self._lines:
                raise self._wrong(lane, f"expected a lane {Address(address.root - 1)} too: roots count from 1")
            return
        if address.parent not in self._lines:
            raise self._wrong(lane, f"expected a lane {address.parent} too, whose calls make this child")
        hop, asked = address.path[-1], self._asked.get(address.parent, [])
        if hop.call_id not in asked:
            raise self._wrong(lane, f"expected a tool call {hop.call_id} in lane {address.parent} to make this child;"
                                    f" its tool calls: {', '.join(dict.fromkeys(asked)) or 'none'}")

    def _wrong(self, lane: ScriptLane, message: str) -> ScriptError:
        return ScriptError(message, file=self._file, line=lane.line)


def _hop(words: Words) -> Hop:
    """`call-1`, `call-1[2]`, or `"any id" [2]`."""
    quoted = words.quoted
    name = words.name("the id of the delegating tool call")
    index = words.index() if quoted else 0
    if not quoted and name.endswith("]"):
        name, _, digits = name[:-1].rpartition("[")
        if not (name and digits.isascii() and digits.isdigit() and len(digits) <= 9):
            raise words.error("expected a tool call's id, or one like call-1[2] where it had been used before")
        index = int(digits)
    return Hop(CallId(name), index)

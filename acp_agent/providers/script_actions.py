"""The actions of one scripted call, as the chunks a model would stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from acp_agent.ids import CallId
from acp_agent.providers.script_grammar import Done, End, Hang, Move, ScriptCall, Send, Throw, Wait
from acp_agent.providers.script_lexer import reason
from acp_agent.providers.script_words import Words
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Chunk,
    ContentBlock,
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

FINISHES: dict[str, FinishReason] = {
    "stop": FinishReason("stop"), "tool-calls": FinishReason("tool-calls"), "max-tokens": FinishReason("max-tokens"),
}  # fmt: skip


class CallBuilder:
    """Collects one call's actions. A block ends when the next one begins or the answer is complete, so `hang` and
    `throw` leave the one before them unfinished, as a broken stream does.
    """

    def __init__(self, line: int, *, repeat: bool) -> None:
        self._line = line
        self._repeat = repeat
        self._moves: list[Move] = []
        self._chunks: list[Chunk] = []
        self._blocks = 0
        self._open: ContentBlock | None = None
        self._end: End | None = None
        self._ender = ""
        self.asked: list[CallId] = []
        """The ids of its tool calls."""
        self._actions: dict[str, Callable[[Words], None]] = {
            "say": self._on_say, "think": self._on_think, "tool": self._on_tool, "usage": self._on_usage,
            "wait": self._on_wait, "finish": self._on_finish, "throw": self._on_throw, "hang": self._on_hang,
        }  # fmt: skip

    def take(self, words: Words) -> None:
        """One more action. Raises `ScriptError`."""
        if self._end is not None:
            raise words.wrong(f"nothing after `{self._ender}`, which ends the call")
        verb = words.keyword(self._actions)
        if not verb:
            raise words.unknown("an action:", self._actions)
        self._actions[verb](words)
        words.end()
        self._ender = verb

    def build(self) -> ScriptCall:
        """The call; one that was not ended otherwise finishes as its content says."""
        if self._end is None:
            self._finish(FINISHES["tool-calls" if self.asked else "stop"])
        self._flush()
        return ScriptCall(self._line, tuple(self._moves), self._end or Done(), self._repeat)

    # ------------------------------------------------------------ content

    def _on_say(self, words: Words) -> None:
        deltas = _deltas(words)
        index = self._begin("text", TextBlock("".join(deltas)))
        self._chunks += [TextDelta(index, delta) for delta in deltas]

    def _on_think(self, words: Words) -> None:
        deltas = _deltas(words)
        index = self._begin("reasoning", ReasoningBlock("".join(deltas)))
        self._chunks += [ReasoningDelta(index, delta) for delta in deltas]

    def _on_tool(self, words: Words) -> None:
        size = _size(words)
        call_id = CallId(words.name("the tool call's id"))
        name = words.name("the tool's name")
        deltas = _cut(_arguments(words), size)
        index = self._begin("tool-call", ToolCallBlock(call_id, name, "".join(deltas)))
        self._chunks += [ToolCallDelta(index, call_id, name, delta) for delta in deltas]
        self.asked.append(call_id)

    def _on_usage(self, words: Words) -> None:
        sent, received = words.number("the input tokens"), words.number("the output tokens")
        more = _options(words, cached="the cached tokens", written="the tokens written to the cache",
                        reasoning="the reasoning tokens")
        self._close_block()
        self._chunks.append(UsageChunk(Usage(
            sent, received, more.get("cached", UNSET), more.get("written", UNSET), more.get("reasoning", UNSET))))

    def _begin(self, kind: str, block: ContentBlock) -> int:
        """Start a block: its index."""
        self._close_block()
        self._open, index = block, self._blocks
        self._blocks += 1
        self._chunks.append(BlockStart(index, kind))
        return index

    def _close_block(self) -> None:
        if self._open is not None:
            self._chunks.append(BlockEnd(self._blocks - 1, self._open))
            self._open = None

    # ------------------------------------------------------------ gates and ends

    def _on_wait(self, words: Words) -> None:
        self._flush()
        self._moves.append(Wait(_file(words)))

    def _on_finish(self, words: Words) -> None:
        kind = words.keyword(FINISHES)
        if not kind:
            raise words.unknown("a way to finish:", FINISHES)
        self._finish(FINISHES[kind])

    def _on_throw(self, words: Words) -> None:
        code = words.name("a failure code such as RATE_LIMIT")
        message = words.string("the failure's message in quotes")
        facts = _options(words, **{"retry-after": "milliseconds", "status": "the HTTP status"})
        self._end = Throw(code, message, facts.get("retry-after"), facts.get("status"), words.option("final"))

    def _on_hang(self, words: Words) -> None:
        self._end = Hang(None if words.done else _file(words))

    def _finish(self, reason: FinishReason) -> None:
        self._close_block()
        self._chunks.append(Finish(reason))
        self._end = Done()

    def _flush(self) -> None:
        if self._chunks:
            self._moves.append(Send(tuple(self._chunks)))
            self._chunks = []


# ---------------------------------------------------------------- parts of an action


def _size(words: Words) -> int | None:
    return words.number("a delta's length", least=1) if words.option("by") else None


def _deltas(words: Words) -> Sequence[str]:
    size = _size(words)
    return _cut(words.strings("text in quotes"), size)


def _cut(texts: Sequence[str], size: int | None) -> Sequence[str]:
    """The texts, or all of them together cut into pieces of `size` characters. There is always one."""
    if size is None:
        return texts
    whole = "".join(texts)
    return [whole[at : at + size] for at in range(0, len(whole), size)] or [""]


def _arguments(words: Words) -> list[str]:
    """A JSON object, made compact; or strings, which stand for themselves; or nothing."""
    if words.done:
        return [""]
    if words.quoted:
        return words.strings("the arguments")
    try:
        compact = msgspec.json.format(words.rest(), indent=-1)
        msgspec.json.decode(compact, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise words.error(f"expected the tool's arguments as a JSON object ({reason(problem)});"
                    " text that is no object is given as a string") from None
    return [compact]


def _file(words: Words) -> str:
    name = words.name("a file's name")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise words.error(f"expected a file inside the session's working directory, found {name}")
    return name


def _options(words: Words, **meanings: str) -> dict[str, int]:
    """`word NUMBER` pairs in any order, each at most once."""
    found: dict[str, int] = {}
    while word := words.keyword(word for word in meanings if word not in found):
        found[word] = words.number(f"{word}: {meanings[word]}")
    return found

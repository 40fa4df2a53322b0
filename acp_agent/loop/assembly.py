"""A model's stream, put together: blocks may be open side by side and end in any order (reference 1.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from acp_agent.ids import CallId
from acp_agent.session.events import (
    BlockEnd,
    BlockStart,
    Chunk,
    ContentBlock,
    Failure,
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningDelta,
    ReplayState,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

EMPTY_RESPONSE = Failure("the model's answer was empty", "EMPTY_RESPONSE")


class _Growing:
    """One block while its deltas arrive."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.call_id: CallId | None = None
        self.name = ""

    def block(self) -> ContentBlock | None:
        """The block as far as it has come; None where it cannot stand for anything."""
        text = "".join(self.pieces)
        if self.kind == "tool-call":
            return None if self.call_id is None else ToolCallBlock(self.call_id, self.name, text)
        if self.kind == "reasoning":
            return ReasoningBlock(text)
        return TextBlock(text) if self.kind == "text" else None


class Assembler:
    """Collects one attempt's chunks. `finish` and `usage` are set when they have come."""

    def __init__(self) -> None:
        self._growing: dict[int, _Growing] = {}
        self._ended: dict[int, ContentBlock] = {}
        self._told: dict[int, str] = {}
        self.usage: Usage | UnsetType = UNSET
        self.finish: Finish | None = None

    def feed(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Take a batch and give it back as it is to be logged.

        A successful finish without any content is logged as the failure it is (lesson 29: an empty
        completion is retryable, not a success). Chunks after the finish are dropped. What a block's end holds
        beyond its deltas is made a delta of its own: a client is shown deltas, and history must not say more.
        """
        if any(type(chunk) is BlockEnd for chunk in chunks):
            chunks = list(self._with_untold(chunks))
            self._told.clear()
        for at, chunk in enumerate(chunks):
            if type(chunk) is TextDelta:
                self._grow(chunk.index, "text").pieces.append(chunk.text)
            elif type(chunk) is ReasoningDelta:
                self._grow(chunk.index, "reasoning").pieces.append(chunk.text)
            elif isinstance(chunk, Finish):
                self.finish = self._settled(chunk)
                return [*chunks[:at], self.finish]
            else:
                self._take(chunk)
        return chunks

    def _with_untold(self, chunks: Sequence[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            if isinstance(chunk, TextDelta | ReasoningDelta):
                self._told[chunk.index] = self._told.get(chunk.index, "") + chunk.text
            elif isinstance(chunk, BlockEnd) and isinstance(chunk.block, TextBlock | ReasoningBlock):
                growing = self._growing.get(chunk.index)
                told = ("" if growing is None else "".join(growing.pieces)) + self._told.pop(chunk.index, "")
                text = chunk.block.text
                if len(text) > len(told) and text.startswith(told):
                    kind = TextDelta if isinstance(chunk.block, TextBlock) else ReasoningDelta
                    yield kind(chunk.index, text[len(told) :])
            yield chunk

    def _settled(self, finish: Finish) -> Finish:
        if finish.reason.kind in ("stop", "tool-calls") and not any(map(_has_content, self.content())):
            return Finish(FinishReason("error", EMPTY_RESPONSE))
        return finish

    def _grow(self, index: int, kind: str) -> _Growing:
        growing = self._growing.get(index)
        if growing is None:
            growing = self._growing[index] = _Growing(kind)
        return growing

    def _take(self, chunk: Chunk) -> None:
        match chunk:
            case BlockStart():
                self._growing[chunk.index] = _Growing(chunk.block_type)
            case ToolCallDelta():
                growing = self._grow(chunk.index, "tool-call")
                growing.call_id = chunk.id
                growing.name = growing.name if chunk.name is UNSET else chunk.name
                growing.pieces.append(chunk.arguments_delta)
            case BlockEnd():
                self._growing.pop(chunk.index, None)
                self._ended[chunk.index] = chunk.block
            case UsageChunk():
                self.usage = chunk.usage
            case _:
                pass

    def content(self) -> list[ContentBlock]:
        """All blocks in index order, unfinished ones as far as they have come."""
        blocks: dict[int, ContentBlock | None] = {at: growing.block() for at, growing in self._growing.items()}
        blocks.update(self._ended)
        return [block for _, block in sorted(blocks.items()) if block is not None]

    def prefix(self) -> tuple[ContentBlock, ...]:
        """What a cancelled answer leaves in history: text and reasoning that say something (reference 3.3)."""
        return tuple(
            block for block in self.content()
            if isinstance(block, TextBlock | ReasoningBlock) and block.text.strip()
        )  # fmt: skip

    def within_limit(self) -> tuple[tuple[ContentBlock, ...], ReplayState | UnsetType]:
        """An answer cut at the output limit: its tool calls are dropped, and the provider state with them.

        State that does not run parallel to the blocks cannot be pruned and is dropped whole (lesson 19).
        """
        content = self.content()
        keep = [not isinstance(block, ToolCallBlock) for block in content]
        kept = tuple(block for block, keeps in zip(content, keep, strict=True) if keeps)
        state = UNSET if self.finish is None else self.finish.replay_state
        if state is UNSET or state.blocks is UNSET:
            return kept, state
        if len(state.blocks) != len(content):
            return kept, UNSET
        blocks = [part for part, keeps in zip(state.blocks, keep, strict=True) if keeps]
        return kept, ReplayState(state.response, blocks)


def _has_content(block: ContentBlock) -> bool:
    return bool(block.text) if isinstance(block, TextBlock | ReasoningBlock) else True

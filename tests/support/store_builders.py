"""What tests of stores are made of: headers, turns as a model really streams them, and the stores under test."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType

from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session.events import (
    AssistantChunk,
    AssistantContent,
    AssistantMessage,
    BlockEnd,
    BlockStart,
    Body,
    Chunk,
    Completed,
    EndSeed,
    Event,
    Finish,
    FinishReason,
    Opaque,
    ReasoningDelta,
    SessionHeader,
    SessionTitle,
    Source,
    SpawnKey,
    StepEnd,
    StepStart,
    SurfaceOp,
    TextBlock,
    TextDelta,
    TitleSource,
    ToolCall,
    ToolCallBlock,
    ToolCallDelta,
    ToolContent,
    ToolResult,
    ToolResultBlock,
    TurnEnd,
    TurnStart,
    UsageChunk,
    UserMessage,
)
from acp_agent.session.events import Usage as TokenUsage
from acp_agent.stores.base import Appender, Store, StoredLog, Tree
from tests.support.memory_store import MemoryDisk, MemoryStore

Kind = Literal["memory", "jsonl", "sqlite"]
KINDS: tuple[Kind, ...] = ("memory", "jsonl", "sqlite")
DATABASE = "sessions.db"
ROOT, CHILD = SessionId("root"), SessionId("child")

# ---------------------------------------------------------------- stores under test


class Bench:
    """One place where sessions are stored. `open` gives a store on it, as another process would have one."""

    def __init__(self, kind: Kind, place: Path) -> None:
        self.kind = kind
        self.place = place
        self.opened: list[Store] = []
        self._disk = MemoryDisk(place / "spill")

    @property
    def file(self) -> Path:
        """The SQLite store's file."""
        return self.place / DATABASE

    def open(self) -> Store:
        store: Store
        if self.kind == "memory":
            store = MemoryStore(disk=self._disk)
        else:
            self.place.mkdir(exist_ok=True)
            store = store_at(self.kind, self.place)
        self.opened.append(store)
        return store

    def snapshot(self) -> Any:
        """Everything that is stored, byte for byte; in SQLite row for row. Locks do not count: they are no content."""
        if self.kind == "memory":
            disk = self._disk
            return {name: log.text() for name, log in disk.logs.items()}, {**disk.blobs}
        if self.kind == "jsonl":
            return {path: path.read_bytes() for path in self.place.rglob("*") if path.is_file() and path.name != "lock"}
        if not self.file.exists():
            return []
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as connection:
            rows = list(connection.iterdump())
        connection.close()
        return rows

    def logs(self) -> list[Path]:
        """The JSONL store's log files."""
        return sorted(self.place.rglob("*.jsonl"))

    async def aclose(self) -> None:
        for store in self.opened:
            await store.aclose()


def store_at(kind: Kind, place: Path) -> Store:
    """A real store in a directory."""
    if kind == "jsonl":
        from acp_agent.stores.jsonl import JsonlStore

        return JsonlStore(place)
    from acp_agent.stores.sqlite import SqliteStore

    return SqliteStore(place / DATABASE)


# ---------------------------------------------------------------- headers


def root_header(
    session: str = ROOT, *, created: int = 1, cwd: str | UnsetType = "/w", seed: int | UnsetType = UNSET,
) -> SessionHeader:
    return SessionHeader(id=SessionId(session), created_at=created, cwd=cwd, seed_length=seed)


def child_header(
    session: str = CHILD, parent: str = ROOT, *, created: int = 2, call: str = "c", index: int = 0, depth: int = 1,
    seed: int | UnsetType = UNSET,
) -> SessionHeader:
    return SessionHeader(id=SessionId(session), created_at=created, cwd="/w", parent_session=SessionId(parent),
                         origin="subagent", delegation_depth=depth, spawn=SpawnKey(CallId(call), index),
                         seed_length=seed)


# ---------------------------------------------------------------- events


class Script:
    """Numbers events from `first` on; their times grow by a millisecond each."""

    def __init__(self, first: int = 0, time: int = 1000) -> None:
        self.events: list[Event] = []
        self._next = first
        self._time = time

    def add(self, *bodies: Body, sources: list[int] | UnsetType = UNSET,
            surface: SurfaceOp | UnsetType = UNSET) -> range:
        """Give the bodies the next numbers, and return these."""
        first = self._next
        for body in bodies:
            ignorable = True if body.ours else UNSET
            self.events.append(Event(self._next, self._time + self._next, body, sources, surface, ignorable))
            self._next += 1
        return range(first, self._next)


def turn(number: int, first: int, *, text: str = "abcde", title: str | None = None, tool: bool = False) -> list[Event]:
    """A whole turn: a prompt, streamed text and reasoning, and perhaps a tool call with its result."""
    script = Script(first)
    script.add(TurnStart(number), StepStart(number, 1))
    prompt = UserMessage((TextBlock(f"prompt {number}"),), Source("user"), "user", MessageId(f"u{first}"))
    (said,) = script.add(prompt, surface="append")
    if title is not None:
        script.add(SessionTitle(title, [said], TitleSource("fallback")))
    chunks = stream(text, tool=CallId(f"call-{number}") if tool else None)
    cited = script.add(*(AssistantChunk(number, 1, chunk) for chunk in chunks))
    blocks = tuple(chunk.block for chunk in chunks if isinstance(chunk, BlockEnd))
    message = AssistantContent("assistant", blocks, Source("model", "p", "m"), MessageId(f"a{first}"))
    script.add(AssistantMessage(number, 1, message, TokenUsage(3, 4)), sources=list(cited), surface="append")
    if tool:
        call_id = CallId(f"call-{number}")
        (called,) = script.add(ToolCall(number, 1, call_id, "read", '{"path": "é"}'))
        result = ToolContent(Source("tool", call_id=call_id), (ToolResultBlock(call_id, (TextBlock("ok"),), False),),
                             "user", MessageId(f"t{first}"))
        script.add(ToolResult(number, 1, result, meta={"b": [1, 2.5, None], "a": "\u2028"}), sources=[called],
                   surface="append")
    script.add(StepEnd(number, 1), TurnEnd(number, Completed()))
    return script.events


def stream(text: str, tool: CallId | None = None) -> list[Chunk]:
    """A model's answer: reasoning, then text letter by letter, then perhaps a tool call, as providers send them."""
    chunks: list[Chunk] = [BlockStart(0, "reasoning"), *(ReasoningDelta(0, letter) for letter in "why"),
                           BlockStart(1, "text"), *(TextDelta(1, letter) for letter in text)]
    if tool is not None:
        chunks.append(BlockStart(2, "tool-call"))
        chunks += [ToolCallDelta(2, tool, "read" if at == 0 else UNSET, piece)
                   for at, piece in enumerate(('{"pa', "th", '": ', '"é"}'))]
    chunks.append(BlockEnd(1, TextBlock(text)))
    if tool is not None:
        chunks.append(BlockEnd(2, ToolCallBlock(tool, "read", '{"path": "é"}')))
    return [*chunks, UsageChunk(TokenUsage(3, 4)), Finish(FinishReason("tool-calls" if tool else "stop"))]


def end_seed(seq: int) -> Event:
    return Event(seq, 1000 + seq, EndSeed())


def title(seq: int, words: str) -> Event:
    return Event(seq, 1000 + seq, SessionTitle(words, [2], TitleSource("fallback")))


def unknown(seq: int, *, ignorable: bool = False) -> Event:
    """An event of a type that no build knows."""
    body = Opaque("novelty/appeared", Raw(b'{"deep": [1, {"x": null}]}'))
    return Event(seq, 1000 + seq, body, ignorable=True if ignorable else UNSET)


# ---------------------------------------------------------------- deeds


def fill(appender: Appender, events: Sequence[Event]) -> None:
    for event in events:
        appender.append(event)


async def stored(store: Store, header: SessionHeader, events: Sequence[Event], root: str | None = None) -> None:
    """Store a session and close it."""
    appender = store.create(header, header.id if root is None else SessionId(root))
    fill(appender, events)
    await appender.aclose()


async def continued(store: Store, session: str, events: Sequence[Event]) -> None:
    """Append to a stored session and close it."""
    opened = await store.load(SessionId(session))
    fill(opened.appender, events)
    await opened.appender.aclose()


async def exported(store: Store, session: str) -> bytes:
    """A session's exact log. Every piece must be whole lines."""
    pieces = [piece async for piece in store.export(SessionId(session))]
    assert all(piece.endswith(b"\n") for piece in pieces)
    return b"".join(pieces)


async def export_tree(store: Store, session: str, directory: Path) -> Tree:
    """A tree outside any store, as one store gives it and another takes it."""
    directory.mkdir()
    logs, blobs = [], {}
    for at, one in enumerate(await store.tree(SessionId(session))):
        path = directory / (f"session.{at}.jsonl" if at else "session.jsonl")
        path.write_bytes(await exported(store, one.id))
        logs.append(path)
    for name in await store.blobs(SessionId(session)):
        (directory / name).write_bytes(await store.blob(SessionId(session), name))
        blobs[name] = directory / name
    return Tree(logs, blobs)


def tree_of(directory: Path, *logs: bytes) -> Tree:
    """A tree without blobs whose logs have the given text."""
    directory.mkdir(exist_ok=True)
    paths = []
    for at, log in enumerate(logs):
        paths.append(directory / f"{at}.jsonl")
        paths[-1].write_bytes(log)
    return Tree(paths, {})


async def listed(store: Store, *, cwd: str | None = None, limit: int = 50) -> list[str]:
    """The ids of all pages together, cursors followed. No page is longer than asked for."""
    names: list[str] = []
    cursor: str | None = None
    given: set[str | None] = set()
    while True:
        assert cursor not in given, "the list goes round in circles"
        given.add(cursor)
        page = await store.list(cwd=cwd, cursor=cursor, limit=limit)
        assert len(page.sessions) <= limit
        assert list(page.refused) == []
        names += [one.id for one in page.sessions]
        cursor = page.cursor
        if cursor is None:
            return names


def same(log: StoredLog, header: SessionHeader, events: Sequence[Event]) -> bool:
    return log.header == header and list(log.events) == list(events)

"""The same random operations on every store at once: they must agree with the model in memory after each.

A difference is reported with the shortest series of operations that shows it. The search is the same on every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import UNSET, Raw

from acp_agent.errors import AgentError, StoreError
from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.session.events import (
    AssistantChunk,
    Body,
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
    TextBlock,
    TextDelta,
    TitleSource,
    ToolCallDelta,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from acp_agent.stores.base import Appender, Continuation, Page, Store, StoredLog, Tree
from tests.support.memory_store import MemoryStore
from tests.support.store_builders import KINDS, Bench, export_tree, exported, turn

NAMES = [SessionId(name) for name in ("a", "b", "c", "../d", "é'%", "F")]
picks = st.integers(0, 35)
DIRECTORIES = ["/a/b", "/a-b", None]
DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)

# ---------------------------------------------------------------- batches of events

Part = tuple[str, int]
"""A kind of events, and a number that makes them differ or tells how many there are."""

WORDS = ["", "a", "b c", "é\u2028", "\n", "\x00", '"\\']
KNOWN, STRANGE = Opaque("goal/change", Raw(b'{"z":1.50,"a":null}')), Opaque("novelty/appeared", Raw(b"[]"))
PARTS: dict[str, Callable[[int], Sequence[Body | Opaque]]] = {
    "turn": lambda n: [event.body for event in turn(1 + n % 3, 0, text="abcdef"[:n], tool=n % 2 == 0)],
    "text": lambda n: [AssistantChunk(1, 1, TextDelta(0, WORDS[n]))] * n,
    "text of another block": lambda n: [AssistantChunk(1, 1, TextDelta(1, word)) for word in WORDS[n:]],
    "text of another step": lambda n: [AssistantChunk(1, 2, TextDelta(0, word)) for word in WORDS[:n]],
    "reasoning": lambda n: [AssistantChunk(1, 1, ReasoningDelta(0, word)) for word in WORDS[:n]],
    "call": lambda n: [AssistantChunk(1, 1, ToolCallDelta(1, CallId("x"), "read" if n < 3 else UNSET, "{"))] * n,
    "other call": lambda n: [AssistantChunk(1, 1, ToolCallDelta(1, CallId("y"), UNSET, "}"))] * n,
    "finish": lambda n: [AssistantChunk(1, 1, Finish(FinishReason("stop")))],
    "end": lambda n: [TurnEnd(n, Completed())],
    "prompt": lambda n: [UserMessage((TextBlock(WORDS[n]),), Source("user"), "user", MessageId("m"))],
    "title": lambda n: [SessionTitle(WORDS[n], [0], TitleSource("fallback"))],
    "not modelled": lambda n: [KNOWN],
    "ignorable": lambda n: [STRANGE],
}
batches = st.lists(st.tuples(st.sampled_from(sorted(PARTS)), st.integers(0, len(WORDS) - 1)), min_size=1, max_size=5)
gaps = st.lists(st.integers(-3, 9), min_size=1, max_size=3)


def bodies_of(batch: Sequence[Part]) -> list[Body | Opaque]:
    return [body for kind, number in batch for body in PARTS[kind](number)]


def events_of(bodies: Sequence[Body | Opaque], first: int, gaps: Sequence[int]) -> list[Event]:
    """Numbered events; user messages get their surface, strangers their mark."""
    made = []
    time = 1000 + first
    for at, body in enumerate(bodies):
        time += gaps[at % len(gaps)]
        surface = body.type in {"user/message", "assistant/message", "tool/result"}
        made.append(Event(first + at, time, body, [0, first] if surface and first else UNSET,
                          "append" if surface else UNSET, True if body.type == "novelty/appeared" else UNSET))
    return made


def memory_directory() -> str | None:
    """Where files need no disk, so that syncing costs nothing; None where there is no such place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# ---------------------------------------------------------------- comparing

Deed = Callable[[Store, str], Coroutine[Any, Any, Any]]


def comparable(value: Any) -> Any:
    """What must be equal of a result: sequences as lists, no appenders; no cursors: an empty page may end a list."""
    if isinstance(value, StoredLog):
        return value.header, list(value.events)
    if isinstance(value, Continuation):
        return value.header, value.root, list(value.settled), value.count, value.time, value.torn
    if isinstance(value, Page):
        return list(value.sessions), list(value.refused)
    return list(value) if isinstance(value, (list, tuple)) else value


def is_delta(events: Sequence[Event]) -> bool:
    """Whether the only event given is one that packs."""
    return any(isinstance(event.body, AssistantChunk) and isinstance(event.body.chunk, DELTAS) for event in events)


class Stores(RuleBasedStateMachine):
    """One of each store, and one more of each that takes in what they export."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.agreed = True
        self.directory = Path(tempfile.mkdtemp(prefix="stores-", dir=memory_directory()))
        self.benches = {kind: Bench(kind, self.directory / kind) for kind in KINDS}
        self.mirrors = {kind: Bench(kind, self.directory / f"mirror-{kind}") for kind in KINDS}
        self.stores: dict[str, Store] = {kind: bench.open() for kind, bench in self.benches.items()}
        self.others: dict[str, Store] = {kind: bench.open() for kind, bench in self.mirrors.items()}
        self.open: dict[SessionId, dict[str, Appender]] = {}
        self.loaded: set[SessionId] = set()
        """Sessions that are about to begin a new lifecycle."""
        self.trees = 0

    def teardown(self) -> None:
        try:
            if self.agreed:
                for name in sorted(self.open):
                    self.close(name)
                for name in NAMES:
                    self.look(name)
                self.list(3, None)
        finally:
            for store in [*self.stores.values(), *self.others.values()]:
                with contextlib.suppress(StoreError):
                    self.runner.run(store.aclose())
            self.runner.close()
            shutil.rmtree(self.directory)

    @property
    def model(self) -> MemoryStore:
        return memory(self.stores)

    @property
    def mirror(self) -> MemoryStore:
        return memory(self.others)

    def each(self, deed: Deed, stores: dict[str, Store] | None = None) -> dict[str, Any]:
        """Do the same to every store; the outcomes must agree. Nothing is returned for a refusal."""
        results: dict[str, Any] = {}
        outcomes: dict[str, Any] = {}
        for kind, store in (stores or self.stores).items():
            try:
                results[kind] = self.runner.run(deed(store, kind))
                outcomes[kind] = comparable(results[kind])
            except AgentError as error:
                outcomes[kind] = type(error)
        self.agreed = all(outcome == outcomes["memory"] for outcome in outcomes.values())
        for kind in KINDS[1:]:
            assert outcomes[kind] == outcomes["memory"], f"{kind} differs from the model:\n{outcomes}"
        return results

    def settle(self) -> None:
        """End every run of deltas: a store may hold back one that is still open."""
        for name, appender in self.model.open.items():
            written = self.model.disk.logs[name].events if name in self.model.disk.logs else []
            if is_delta(written[-1:]):
                if is_delta(appender.events[-1:]):
                    self.put(name, PARTS["finish"](0), [1])
                self.write(name)

    def put(self, name: SessionId, bodies: Sequence[Body | Opaque], gaps: Sequence[int]) -> None:
        if name in self.loaded:
            bodies = [EndSeed(), *bodies]
            self.loaded.discard(name)
        elif not self.model.open[name].events:
            bodies = [TurnStart(1), *bodies]
        for event in events_of(bodies, len(self.model.open[name].events), gaps):
            for appender in self.open[name].values():
                appender.append(event)

    def begin(self, header: SessionHeader, root: SessionId) -> None:
        self.open[header.id] = {kind: store.create(header, root) for kind, store in self.stores.items()}

    # -- whom to do something to

    def some(self, pick: int, wanted: Sequence[SessionId]) -> SessionId:
        """One of the wanted sessions, now and then any other."""
        names = NAMES if pick % 6 == 0 or not wanted else wanted
        return names[pick // 6 % len(names)]

    def stored(self) -> list[SessionId]:
        return sorted(self.model.disk.logs)

    def stored_roots(self) -> list[SessionId]:
        return [name for name in self.stored() if self.model.disk.logs[name].root == name]

    def free(self) -> list[SessionId]:
        return [name for name in NAMES if not self.model.exists(name)]

    def closed(self) -> list[SessionId]:
        return [name for name in self.stored() if name not in self.open]

    def kin(self) -> list[SessionId]:
        """Stored sessions of trees that are open here."""
        roots = self.model.open_roots()
        return [name for name in self.stored() if self.model.disk.logs[name].root in roots]

    # -- writing

    @initialize(batch=batches, gaps=gaps)
    def a_family(self, batch: list[Part], gaps: list[int]) -> None:
        """Begin with a root and its child, both open."""
        self.create_root(6, 1, "/a/b", batch, gaps, True)
        self.create_child(6, 6, "c", batch, gaps, True)
        self.put_blob(1, b"picture")

    @rule(pick=picks, created=st.integers(0, 3), directory=st.sampled_from(DIRECTORIES), batch=batches, gaps=gaps,
          write=st.booleans())
    def create_root(self, pick: int, created: int, directory: str | None, batch: list[Part],
                    gaps: list[int], write: bool) -> None:
        name = self.some(pick, self.free())
        header = SessionHeader(id=name, created_at=created, cwd=UNSET if directory is None else directory)
        if self.model.exists(name):
            self.each(lambda store, kind: refused(store, header))
            return
        self.begin(header, name)
        self.put(name, bodies_of(batch), gaps)
        if write:
            self.write(name)

    @rule(pick=picks, parent=picks, call=st.sampled_from(["c", "d"]), batch=batches, gaps=gaps, write=st.booleans())
    def create_child(self, pick: int, parent: int, call: str, batch: list[Part], gaps: list[int],
                     write: bool) -> None:
        parents, names = self.kin(), self.free()
        if not parents or not names:
            return
        log = self.model.disk.logs[parents[parent % len(parents)]]
        name = names[pick % len(names)]
        header = SessionHeader(id=name, created_at=5, cwd=log.header.cwd, parent_session=log.header.id,
                               origin="subagent", delegation_depth=log.header.delegation_depth + 1,
                               spawn=SpawnKey(CallId(call), 0))
        self.begin(header, log.root)
        if write:
            self.put(name, bodies_of(batch), gaps)
            self.write(name)

    @precondition(lambda self: self.open)
    @rule(pick=picks, batch=batches, gaps=gaps, then=st.sampled_from(["write", "sync", ""]))
    def append(self, pick: int, batch: list[Part], gaps: list[int], then: str) -> None:
        name = sorted(self.open)[pick % len(self.open)]
        self.put(name, bodies_of(batch), gaps)
        if then:
            self.write(name, then == "sync")

    @precondition(lambda self: self.open)
    @rule(pick=picks, kind=st.sampled_from(["text", "call"]), sizes=st.lists(st.integers(1, 3), min_size=2, max_size=3),
          sync=st.booleans())
    def stream(self, pick: int, kind: str, sizes: list[int], sync: bool) -> None:
        """One run of deltas, cut by writes."""
        name = sorted(self.open)[pick % len(self.open)]
        for size in sizes:
            self.put(name, list(PARTS[kind](3)[:1]) * size, [1])
            self.write(name, sync)

    def write(self, name: SessionId, sync: bool = False) -> None:
        appenders = self.open[name]
        self.each(lambda store, kind: appenders[kind].sync() if sync else appenders[kind].write())

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def close_one(self, pick: int) -> None:
        self.close(sorted(self.open)[pick % len(self.open)])

    def close(self, name: SessionId) -> None:
        appenders = self.open.pop(name)
        self.loaded.discard(name)
        self.each(lambda store, kind: appenders[kind].aclose())

    @precondition(lambda self: len(self.open) > 1)
    @rule()
    def reopen(self) -> None:
        """All stores are closed; another process goes on."""
        self.each(lambda store, kind: store.aclose())
        self.open.clear()
        self.loaded.clear()
        self.stores = {kind: bench.open() for kind, bench in self.benches.items()}

    @rule(pick=picks)
    def load(self, pick: int) -> None:
        name = self.some(pick, self.closed())
        found = self.each(lambda store, kind: store.load(name))
        if found:
            self.open[name] = {kind: continuation.appender for kind, continuation in found.items()}
            self.loaded.add(name)

    @precondition(lambda self: self.free())
    @rule(pick=picks, source=picks, child=st.booleans(), how=st.integers(0, 5))
    def fork(self, pick: int, source: int, child: bool, how: int) -> None:
        """Fork at the last turn's end, into a new root or below the source; or more than there is."""
        name, original = self.free()[pick % len(self.free())], self.some(source, self.stored())
        opened, log = self.model.open.get(original), self.model.disk.logs.get(original)
        events = opened.events if opened else log.events if log else []
        ends = [event.seq + 1 for event in events if isinstance(event.body, TurnEnd)]
        cut = ends[-1] if ends else 0
        seed = cut or UNSET
        if child and original in self.kin():
            assert log is not None
            header = SessionHeader(id=name, created_at=6, parent_session=original, origin="subagent", seed_length=seed,
                                   delegation_depth=log.header.delegation_depth + 1, cwd=log.header.cwd)
            self.begin(header, log.root)
        else:
            self.begin(SessionHeader(id=name, created_at=4, cwd="/a/b", seed_length=seed), name)
        beyond = how == 0
        if self.each(lambda store, kind: store.fork(name, original, len(events) + 1 if beyond else cut)):
            self.put(name, [EndSeed()], [1])
            if how > 2:
                self.write(name)
        else:
            self.close(name)

    @precondition(lambda self: len(self.stored()) > 2)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        name = self.some(pick, self.stored_roots())
        self.each(lambda store, kind: store.delete(name))

    @rule(pick=picks, data=st.sampled_from([b"", b"picture", b"\x00\xff"]))
    def put_blob(self, pick: int, data: bytes) -> None:
        name = self.some(pick, sorted(self.open))
        self.each(lambda store, kind: store.put_blob(name, data))

    # -- reading

    @rule(limit=st.integers(1, 4), directory=st.sampled_from([None, "/a/b", "/a-b"]))
    def list(self, limit: int, directory: str | None) -> None:
        self.settle()
        cursors: dict[str, str | None] = dict.fromkeys(KINDS)
        first = True

        async def page(store: Store, kind: str) -> Page:
            ended = cursors[kind] is None and not first
            return Page([], None) if ended else await store.list(cwd=directory, cursor=cursors[kind], limit=limit)

        while first or any(cursors.values()):
            following = {kind: page.cursor for kind, page in self.each(page).items()}
            assert first or all(after is None or after != cursors[kind] for kind, after in following.items()), following
            cursors.update(following)
            first = False

    @rule(pick=picks, seq=st.integers(0, 30))
    def read_from(self, pick: int, seq: int) -> None:
        self.settle()
        name = self.some(pick, self.stored())
        self.each(lambda store, kind: store.read_from(name, seq))

    @rule(pick=picks)
    def look_at_one(self, pick: int) -> None:
        self.settle()
        self.look(self.some(pick, self.stored()))

    def look(self, name: SessionId) -> None:
        self.each(lambda store, kind: store.inspect(name))
        self.each(lambda store, kind: store.tree(name))
        self.each(lambda store, kind: exported(store, name))
        if self.model.exists(name):
            found = self.each(lambda store, kind: store.blobs(name))
            for blob in found["memory"]:
                self.each(lambda store, kind, blob=blob: store.blob(name, blob))  # type: ignore[misc]  # bound early
        exists = {kind: store.exists(name) for kind, store in self.stores.items()}
        assert len(set(exists.values())) == 1, exists

    @precondition(lambda self: self.stored())
    @rule(pick=picks, source=st.sampled_from(KINDS), forget=st.booleans())
    def adopt_elsewhere(self, pick: int, source: str, forget: bool) -> None:
        """Every other store takes in the tree as one store exports it."""
        tree, root = self.export(pick, source)
        self.each(lambda store, kind: store.adopt(tree), self.others)
        if root in self.mirror.disk.logs:
            for one in self.mirror.disk.tree(root):
                name = one.header.id
                self.each(lambda store, kind, name=name: exported(store, name), self.others)  # type: ignore[misc]  # bound early
                self.each(lambda store, kind, name=name: store.inspect(name), self.others)  # type: ignore[misc]  # bound early
            self.each(lambda store, kind: store.blobs(root), self.others)
        if forget:
            self.each(lambda store, kind: store.delete(root), self.others)

    @precondition(lambda self: self.stored())
    @rule(pick=picks, source=st.sampled_from(KINDS))
    def adopt_again(self, pick: int, source: str) -> None:
        """A tree is deleted, and taken in as it was exported before; or refused, when it is still there."""
        tree, root = self.export(pick, source)
        self.each(lambda store, kind: store.delete(root))
        self.each(lambda store, kind: store.adopt(tree))

    def export(self, pick: int, source: str) -> tuple[Tree, SessionId]:
        """A stored tree as one store gives it, and its root."""
        self.settle()
        name = self.stored()[pick % len(self.stored())]
        self.trees += 1
        place = self.directory / f"tree-{self.trees}"
        return self.runner.run(export_tree(self.stores[source], name, place)), self.model.disk.logs[name].root


def memory(stores: dict[str, Store]) -> MemoryStore:
    store = stores["memory"]
    assert isinstance(store, MemoryStore)
    return store


async def refused(store: Store, header: SessionHeader) -> None:
    """Try a session whose id is taken; at its first write at the latest it is refused."""
    appender = store.create(header, header.id)
    appender.append(Event(0, 1, TurnStart(1)))
    try:
        await appender.write()
    finally:
        with contextlib.suppress(StoreError):
            await appender.aclose()


TestStoresAgree = pytest.mark.timeout(600)(Stores.TestCase)
"""The search is short; making a difference as small as it can be may take minutes."""

TestStoresAgree.settings = settings(
    max_examples=80, stateful_step_count=25, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)

"""Which recording answers whom. Binding happens here and nowhere else (DESIGN 5.3 - 5.5).

A live child has the address of the recorded one, because the delegating call's id is itself replayed: children
bind by address, whatever order they run or finish in. Roots have no address but their place: the first root
to call a model is served the first recorded root, and its log keeps the binding. What is served is then
decided by lane, purpose and call ordinal alone; there is no cursor that could run ahead or fall behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from acp_agent.errors import RecordingError
from acp_agent.ids import SessionId
from acp_agent.providers.base import MAIN, Caller, Path
from acp_agent.session.events import ReplayBound
from replay.addresses import Placed, address
from replay.fixture import Recording
from replay.script import Call


class Drift(Struct, frozen=True):
    """Where a tool's live result first differs from the recorded one. The texts are beginnings."""

    turn: int
    step: int
    position: int
    tool: str
    recorded: str
    live: str


class Lane:
    """The recorded calls of one address, and who was served which of them."""

    def __init__(self, recording: Recording, path: Path, calls: Sequence[Call]) -> None:
        self.recording = recording
        self.path = path
        self.calls: dict[str, list[Call]] = {}
        for call in calls:
            self.calls.setdefault(call.purpose, []).append(call)
        self.sessions: list[SessionId] = []
        self.served: dict[str, set[int]] = {}
        self.over: dict[str, int] = {}
        self.drift: Drift | None = None

    @property
    def title(self) -> str:
        """The lane in words, for messages."""
        return f"{address(self.path)} ({self.recording.file_name})"

    def at(self, purpose: str, ordinal: int) -> Call | None:
        """The recorded call, or None beyond the recorded ones."""
        calls = self.calls.get(purpose, [])
        return calls[ordinal] if 0 <= ordinal < len(calls) else None

    def call(self, purpose: str, ordinal: int, session: SessionId | None) -> Call:
        """The recorded call. Raises `RecordingError` with numbers beyond the recorded ones."""
        call = self.at(purpose, ordinal)
        if call is not None:
            return call
        who = "a request without a session" if session is None else f"session {session}"
        of = "" if purpose == MAIN else f"{purpose} "
        count = len(self.calls.get(purpose, []))
        raise RecordingError(
            f"{of}call {ordinal + 1} of {who} (lane {self.title}): only {count} recorded; record the session"
            " again, or add the call to replay.override.json",
            lane=self.recording.name, purpose=purpose, ordinal=ordinal)

    def take(self, purpose: str, ordinal: int, session: SessionId | None) -> Call:
        """`call`, noting for the receipt that it was served or that it is one too many."""
        try:
            call = self.call(purpose, ordinal, session)
        except RecordingError:
            self.over[purpose] = self.over.get(purpose, 0) + 1
            raise
        self.served.setdefault(purpose, set()).add(ordinal)
        return call


class _Root(Struct):
    """A live root: the recorded root it is served, its place among the process's roots, and whether its log
    was given the binding."""

    recording: Recording
    ordinal: int
    told: bool


class Lanes:
    """All lanes of a replay directory, and which live session is served which."""

    def __init__(self, placed: Iterable[Placed], scripts: Mapping[int, Sequence[Call]], *, repeat: bool) -> None:
        """`scripts` holds each recording's calls by the recording's identity (`id()`)."""
        self._repeat = repeat
        self._roots: list[Recording] = []
        self._lanes: dict[tuple[int, Path], Lane] = {}
        self.unaddressed: list[Recording] = []
        for one in placed:
            if one.path is None:
                self.unaddressed.append(one.recording)
                continue
            if not one.path:
                self._roots.append(one.recording)
            self._lanes[id(one.root), one.path] = Lane(one.recording, one.path, scripts[id(one.recording)])
        self._live_roots: dict[SessionId, _Root] = {}
        self._live: dict[SessionId, Lane] = {}
        self._new = 0

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def primary(self) -> Lane:
        """The first root's lane."""
        return self._lanes[id(self._roots[0]), ()]

    def bind(self, caller: Caller) -> Lane:
        """The caller's lane: the one it has, or a new binding. Raises `RecordingError` when there is none."""
        if caller.session is None:
            return self.primary
        lane = self._live.get(caller.session)
        if lane is None:
            root = self._root(caller)
            lane = self._lanes.get((id(root.recording), caller.path))
            if lane is None:
                raise self._no_lane(caller, root.recording)
            self._live[caller.session] = lane
            lane.sessions.append(caller.session)
        return lane

    def note(self, caller: Caller) -> ReplayBound | None:
        """The binding for a root's log, once, if the log does not hold it already."""
        root = None if caller.session is None or caller.path else self._live_roots.get(caller.session)
        if root is None or root.told:
            return None
        root.told = True
        return ReplayBound(root.recording.name, root.ordinal)

    def of(self, session: SessionId) -> Lane:
        """The lane a session was bound to. Raises `RecordingError` for one that never called a model."""
        lane = self._live.get(session)
        if lane is None:
            raise RecordingError(f"session {session} has called no model yet, so no recording is bound to it")
        return lane

    # ------------------------------------------------------------ roots

    def _root(self, caller: Caller) -> _Root:
        assert caller.session is not None
        session = caller.session if caller.root is None else caller.root
        root = self._live_roots.get(session)
        if root is None:
            if caller.bound is not None:
                root = _Root(self._named(caller.bound.lane), caller.bound.ordinal, told=True)
            elif caller.path:
                raise RecordingError(f"session {caller.session} is a child of {session}, which has called no model"
                                     " yet: there is no recording to look for its address in")
            else:
                root = self._next(session)
            self._live_roots[session] = root
        return root

    def _named(self, name: str) -> Recording:
        for root in self._roots:
            if root.name == name:
                return root
        known = ", ".join(root.name for root in self._roots)
        raise RecordingError(
            f"the session's log binds it to the recorded session {name}, which is no root of this replay directory"
            f" (its roots: {known}); replay it with the directory it began with", lane=name)

    def _next(self, session: SessionId) -> _Root:
        if self._repeat:
            recording = self._roots[self._new % len(self._roots)]
        else:
            taken = {id(root.recording) for root in self._live_roots.values()}
            free = next((root for root in self._roots if id(root) not in taken), None)
            if free is None:
                raise RecordingError(
                    f"session {session} is root session {len(self._live_roots) + 1} of this process, and the"
                    f" recording has {len(self._roots)}; set ACP_REPLAY_SESSIONS=repeat to serve every new session"
                    " the whole recording again", recorded=len(self._roots))
            recording = free
        self._new += 1
        return _Root(recording, self._new - 1, told=False)

    def _no_lane(self, caller: Caller, root: Recording) -> RecordingError:
        known = [lane.title for (owner, _), lane in self._lanes.items() if owner == id(root)]
        lost = [recording.file_name for recording in self.unaddressed]
        also = f"; recorded without an address: {', '.join(lost)}" if lost else ""
        return RecordingError(
            f"session {caller.session} stands at {address(caller.path)}, and nothing is recorded there; recorded"
            f" are {', '.join(known)}{also}", address=address(caller.path))

"""What a script's steps wait for: answers, updates, files, turns and events in stored logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from replay import steps
from replay.cut import Mark
from replay.exchange import Exchange
from replay.failures import AgentGone, ScriptError, Stuck
from replay.paths import map_strings
from replay.stored import GrowingLog
from replay.updates import Joined, Search
from replay.workspace import Workspace

NO_LOG = (
    "the agent stored no log of this session where ACP_SESSION_STORE said; steps that wait for turns and "
    "events need one: with another agent use waitForUpdate or waitForFile"
)


class OpenPrompt(Struct):
    """A prompt that was sent. `since` is the wire's position before it."""

    request: int
    name: str | UnsetType
    since: int
    awaited: bool = False


class OpenSession(Struct):
    """A session of the script. `seen` is the wire's position after the last update that was waited for; `inherited` is
    the number of turns that a fork began with.
    """

    id: str
    prompts: list[OpenPrompt] = []
    seen: int = 0
    inherited: int = 0

    @property
    def turns(self) -> int:
        """The number of the turn that the last prompt begins; before any prompt that of the last inherited one."""
        return self.inherited + len(self.prompts)


class Waits:
    """Waits of one run. Each raises `Stuck` or `AgentGone` when what it waits for does not come."""

    def __init__(self, exchange: Exchange, ground: Workspace) -> None:
        self._exchange = exchange
        self._ground = ground
        self._store = ground.growing_store()
        self._requests: dict[str, int] = {}

    def file(self, path: str, seconds: float | None) -> None:
        """Until a file of the workspace exists."""
        file = self._ground.directory / path
        self._exchange.wait(lambda: file.exists() or None, f"the file {path} in the workspace", seconds)

    def request(self, step: steps.WaitForRequest) -> None:
        """Until the agent has sent one more request of a method than was waited for before."""
        count = self._requests[step.method] = self._requests.get(step.method, 0) + 1
        self._exchange.wait(lambda: self._exchange.requests(step.method) >= count or None,
                            f"request number {count} of {step.method}", seconds_of(step))

    def update(self, session: OpenSession, step: steps.WaitForUpdate) -> None:
        """Until an update like the step's was seen."""
        pattern: dict[str, Any] = (
            {"sessionUpdate": step.update} if isinstance(step.update, str)
            else map_strings(step.update, self._ground.expand))
        text = None if step.text is UNSET else step.text
        search = Search(pattern, text, self._exchange.updates, session.id, session.seen)
        words = "" if text is None else f" with the text {text!r}"
        what = f"an update like {msgspec.json.encode(pattern).decode()}{words}"
        session.seen = self._exchange.wait(search.found, what, seconds_of(step))

    def message(self, session: OpenSession, text: str, since: int, seconds: float | None) -> None:
        """Until a whole message of the agent's is this text."""
        joined = Joined("agent_message_chunk", self._exchange.updates, session.id, since)
        self._exchange.wait(lambda: text in joined.messages() or None, f"the agent message {text!r}", seconds)

    # -- stored logs

    def turn_start(self, session: OpenSession, turn: int, seconds: float | None) -> None:
        """Until the log says that a turn with this or a later number began."""
        self._stored(session, lambda log: log.turn >= turn, f"the start of turn {turn} in the session's log", seconds)

    def ended_turns(self, session: str) -> int:
        """How many turns of a session have ended, as far as its log says."""
        log = self._store.log(session)
        return 0 if log is None else log.turn - log.open

    def turn_end(self, session: OpenSession, step: steps.WaitForTurnEnd) -> None:
        """Until the last turn is closed; with a prompt open, one that may be that prompt's."""
        def closed(log: GrowingLog) -> bool:
            begun = log.turn >= session.turns or not self._has_open_prompt(session)
            return begun and log.turn > 0 and not log.open

        self._stored(session, closed, "the end of the last turn in the session's log", seconds_of(step))

    def child_turn_end(self, session: OpenSession, step: steps.WaitForSubagentTurnEnd) -> None:
        """Until a child's last turn is closed."""
        def closed(_: GrowingLog) -> bool:
            children = self._store.descendants(session.id)[step.child - 1 :]
            return bool(children) and children[0].turn >= step.minimum_turn and not children[0].open

        what = f"the end of turn {step.minimum_turn} of child {step.child}"
        self._stored(session, closed, what, seconds_of(step))

    def marks(self, session: OpenSession, marks: Sequence[Mark]) -> None:
        """Until sessions below this one are as far as the marks say."""
        def left() -> Mark | None:
            logs = self._store.below(session.id)
            return next((mark for mark in marks if not mark.reached(logs.get(mark.path))), None)

        self._exchange.wait(lambda: True if left() is None else None, "; ".join(map(str, marks)))

    def event(self, session: OpenSession, kind: str, seconds: float | None) -> None:
        """Until an event of this type stands after the last turn's end."""
        self._stored(session, lambda log: log.since_end is not None and kind in log.since_end,
                     f"an event {kind} after the last turn's end in the session's log", seconds)

    def _stored(
        self, session: OpenSession, holds: Callable[[GrowingLog], bool], what: str, seconds: float | None,
    ) -> None:
        """Until a session's log is in a state; an agent that stores none is found out as soon as can be."""
        def look() -> bool | None:
            idle = not self._has_open_prompt(session)  # asked first: by the time of an answer the log is written
            log = self._store.log(session.id)
            if log is None and idle and session.prompts:
                raise ScriptError(f"{what} cannot be waited for: {NO_LOG}", self._exchange.scene())
            return True if log is not None and holds(log) else None

        try:
            self._exchange.wait(look, what, seconds)
        except (Stuck, AgentGone) as failure:
            if self._store.log(session.id) is None:
                raise ScriptError(f"{failure.problem}; {NO_LOG}", failure.scene) from None
            raise

    def _has_open_prompt(self, session: OpenSession) -> bool:
        return not all(self._exchange.answered(prompt.request) for prompt in session.prompts)


def seconds_of(step: steps.Step) -> float | None:
    """How long a step may wait, if it says so."""
    return None if step.timeout_ms is UNSET else step.timeout_ms / 1000

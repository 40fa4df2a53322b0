"""The replay provider: answers model calls from recordings, and opens no connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct

from acp_agent.errors import AgentError, ModelError, RecordingError
from acp_agent.providers.base import Caller, ModelInfo, ModelRequest, Prepared, RetryPolicy, Route
from acp_agent.session.events import (
    BlockStart,
    Chunk,
    Failure,
    Finish,
    ModelConfig,
    TextDelta,
)
from replay.lanes import Lane
from replay.pace import Pace, Recorded, schedule
from replay.rows import ChunkRow, HeaderRow, Piece, RetryRow
from replay.script import Call, Chunks, Hang, Held, Throw, Unfinished, as_pieces

if TYPE_CHECKING:
    from replay.engine import Replay

UNKNOWN_MODEL = ModelConfig("replay", "recorded")
"""The route of a call whose recording does not say which model answered."""

_UNKNOWN = f"{UNKNOWN_MODEL.provider}/{UNKNOWN_MODEL.model}"

HANG_START = as_pieces([BlockStart(0, "text"), TextDelta(0, "partial")])
"""What a `hang` streams before it hangs."""


class _HeaderConfig(Struct):
    config: ModelConfig


class _Header(Struct):
    header: _HeaderConfig


_header = msgspec.json.Decoder(_Header).decode


class ReplayProvider:
    """Serves the calls of `replay`'s lanes (see `acp_agent.providers.base.Provider`)."""

    def __init__(self, replay: Replay, pace: Pace) -> None:
        self._replay = replay
        self._pace = pace
        self._anonymous: dict[str, int] = {}
        """How many calls of each purpose were made without a session."""
        self._configs: dict[int, ModelConfig] = {}
        self._policy: RetryPolicy | None = None
        self._models: tuple[ModelInfo, ...] | None = None

    def models(self) -> Sequence[ModelInfo]:
        """The models that the recordings name, the first root's first one in front; none where they cannot be used.

        Whichever is chosen, each call is answered as it was recorded.
        """
        if self._models is None:
            try:
                self._models = tuple(self._named())
            except RecordingError:
                return ()
        return self._models

    def _named(self) -> Iterator[ModelInfo]:
        lanes = self._replay.lanes
        seen: set[str] = set()
        for lane in (lanes.primary, *lanes):
            for row in (row for _, row in lane.recording.own_rows() if isinstance(row, HeaderRow)):
                config = self._config(row, lane)
                model = f"{config.provider}/{config.model}"
                # What stands for a model that no recording named is none: a replay of a replay offers no more than it.
                if model not in seen | {_UNKNOWN}:
                    seen.add(model)
                    yield ModelInfo(model, config.model)

    def prepare(self, caller: Caller) -> Prepared:
        """Bind the caller to its lane and find its call. Loads the recording on first use.

        Raises `RecordingError` where the recording is faulty, or holds no lane or no call for the caller.
        """
        lane = self._replay.lanes.bind(caller)
        ordinal = self._anonymous.get(caller.purpose, 0) if caller.session is None else caller.ordinal
        if lane.at(caller.purpose, ordinal) is None:
            lane.take(caller.purpose, ordinal, caller.session)  # counts it as one too many, and raises
        route = self._route(lane.call(caller.purpose, ordinal, caller.session), lane)
        note = self._replay.lanes.note(caller)
        return Prepared(route, () if note is None else (note,))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        """The recorded answer. Which one is decided here and now, not when the stream is first consumed."""
        try:
            call = self._take(request)
        except AgentError as error:
            return _failing(error)
        return self._play(call, request.caller)

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:
        """A call is made again where the recorded one was: the delay is the recorded one at recorded pace, else 0.

        Where an override leaves open what was recorded, the usual policy decides, if there is a call to serve.
        """
        caller = request.caller
        lane = self._replay.lanes.bind(caller)
        ordinal = caller.ordinal if caller.session is not None else self._anonymous.get(caller.purpose, 0) - 1
        this, following = lane.at(caller.purpose, ordinal), lane.at(caller.purpose, ordinal + 1)
        if this is None or following is None:
            return None
        if this.turn is None or following.turn is None:
            if RetryPolicy().delay(failure, retry, 0.0) is None:
                return None
        elif (this.turn, this.step) != (following.turn, following.step):
            return None
        return self._recorded_delay(lane, request.turn, request.step, retry)

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy the recorded retries name, else the default one."""
        if self._policy is None:
            rows = (row for lane in self._replay.lanes for _, row in lane.recording.own_rows())
            named = (_policy(row.data.policy_key) for row in rows if isinstance(row, RetryRow))
            self._policy = next(named, RetryPolicy())
        return self._policy

    async def aclose(self) -> None:
        """Nothing is held: the receipt is written when the replay itself is closed."""

    # ------------------------------------------------------------ playing

    def _take(self, request: ModelRequest) -> Call:
        caller = request.caller
        lane = self._replay.lanes.bind(caller)
        ordinal = caller.ordinal
        if caller.session is None:
            ordinal = self._anonymous.get(caller.purpose, 0)
            self._anonymous[caller.purpose] = ordinal + 1
        call = lane.take(caller.purpose, ordinal, caller.session)
        if lane.recording.placeholders or self._replay.override_placeholders(lane):
            from replay.placeholders import fill_action  # most recordings have none

            return msgspec.structs.replace(call, action=fill_action(call.action, request.messages))
        return call

    async def _play(self, call: Call, caller: Caller) -> AsyncGenerator[Sequence[Chunk], None]:
        action = call.action
        if isinstance(action, Unfinished):
            raise RecordingError(action.message)
        pieces = HANG_START if isinstance(action, Hang) else action.pieces
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for due, batch in schedule(pieces, self._pace, call.asked):
            wait = begun + due - loop.time() if due else 0.0
            if wait > 0:
                await asyncio.sleep(wait)
            yield batch
            await asyncio.sleep(0)  # lets a cancel in
        match action:
            case Throw(_, message, code):
                raise ModelError(message, code)
            case Hang(ready_file):
                if ready_file is not None:
                    _touch(caller.cwd, ready_file)
                await loop.create_future()
            case Held():
                await loop.create_future()
            case Chunks() if not _finished(pieces):
                raise ModelError("the stream ended without a finish chunk", "TRANSPORT")

    def _route(self, call: Call, lane: Lane) -> Route:
        """Which model the recording says answered."""
        config = UNKNOWN_MODEL if call.header is None else self._config(call.header, lane)
        return Route(config, UNSET if call.context is None else call.context.data.context_window)

    def _config(self, row: HeaderRow, lane: Lane) -> ModelConfig:
        known = self._configs.get(id(row))
        if known is None:
            try:
                known = self._configs[id(row)] = _header(row.data).header.config
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                file = lane.recording.file
                raise RecordingError(f"{file}: broken request/header: {error}; restore it from the original log",
                                     file=file) from None
        return known

    def _recorded_delay(self, lane: Lane, turn: int, step: int, retry: int) -> int:
        if not isinstance(self._pace, Recorded):
            return 0
        for _, row in lane.recording.own_rows():
            if isinstance(row, RetryRow):
                data = row.data
                if (data.turn, data.step, data.retry) == (turn, step, retry):
                    return round(data.delay_ms)
        return 0


async def _failing(error: AgentError) -> AsyncGenerator[Sequence[Chunk], None]:
    """A stream that fails when it is consumed."""
    for failure in (error,):
        raise failure
    yield ()  # makes this a generator


def _finished(pieces: Sequence[Piece]) -> bool:
    last = pieces[-1] if pieces else None
    return isinstance(last, ChunkRow) and isinstance(last.data.chunk, Finish)


def _touch(cwd: str, name: str) -> None:
    """Make an empty file, leaving one that exists as it is. A link may not lead out of the directory."""
    root = os.path.realpath(cwd)
    if not os.path.realpath(Path(cwd, name)).startswith(root.rstrip("/") + "/"):
        raise RecordingError(f"a hang's ready file {name} leads out of {cwd}; name a file inside it")
    try:
        Path(cwd, name).touch()
    except OSError as error:
        raise RecordingError(f"a hang's ready file {name} cannot be made in {cwd}: {error.strerror}") from None


def _policy(key: str) -> RetryPolicy:
    """The retry policy a log names (format reference 1.4, `policyKey`)."""
    try:
        mode, retries, codes, first, longest, jitter = msgspec.json.decode(
            key, type=tuple[str, int, tuple[str, ...], int, int, int | float])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RetryPolicy()
    return RetryPolicy(mode, retries, codes, first, longest, jitter)

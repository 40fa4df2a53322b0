"""The scripted provider: `ACP_MODEL=scripted/FILE` answers model calls from a file that people write by hand.

Which call is served follows from address, purpose and ordinal alone, as in a replay; there is no cursor.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import ModelError
from acp_agent.ids import SessionId
from acp_agent.providers.base import MAIN, Caller, ModelInfo, ModelRequest, Prepared, RetryPolicy, Route
from acp_agent.providers.script_grammar import Address, Hang, Script, ScriptCall, ScriptError, ScriptLane, Send, Throw
from acp_agent.providers.script_parser import parse_script
from acp_agent.session.events import Chunk, Failure, ModelConfig, ReplayBound

PROVIDER = "scripted"
"""The provider's name in `ACP_MODEL` and in logs."""

BATCH = 64
"""Chunks handed over at a time: many enough to be quick, few enough that a cancel gets in soon."""

POLL_SECONDS = 0.005
"""How often a `wait` looks for its file."""


class _Root(Struct):
    """A live root session: which of the script's roots it is, and whether its log says so."""

    number: int
    told: bool


class ScriptedProvider:
    """Serves the calls of one script (see `acp_agent.providers.base.Provider`).

    The file is read once, when the first call is made. A failed call is made again at once, as often as the usual
    policy says, so a script takes no longer than its gates.
    """

    retry_policy = RetryPolicy(initial_delay_ms=0, jitter=0.0)

    def __init__(self, file: Path, log: Callable[[str], None]) -> None:
        """`log` is told, once, why a script cannot be used."""
        self._file = file
        self._log = log
        self._script: Script | None = None
        self._error: ScriptError | None = None
        self._roots: dict[SessionId, _Root] = {}
        self._anonymous: dict[str, int] = {}
        """How many calls of each purpose were made without a session."""

    def models(self) -> Sequence[ModelInfo]:
        """The script's one model. None while the script cannot be used: it may be mended before the first call."""
        if self._script is None and self._error is None:
            with suppress(ScriptError):
                self._script = _load(self._file)
        if self._script is None:
            return ()
        name = self._script.model
        return (ModelInfo(f"{PROVIDER}/{name}", name),)

    def prepare(self, caller: Caller) -> Prepared:
        """See `Provider`. Raises `ScriptError` where the script is faulty or holds no call for the caller."""
        script = self._loaded()
        self._call(caller, self._ordinal(caller))
        note = self._note(script, caller)
        route = Route(ModelConfig(PROVIDER, script.model), script.window)
        return Prepared(route, () if note is None else (note,))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        """See `Provider`. Which call is served is decided here and now, not when the stream is first consumed.

        Raises `ScriptError` as `prepare` does.
        """
        caller = request.caller
        call = self._call(caller, self._ordinal(caller))
        if caller.session is None:
            self._anonymous[caller.purpose] = self._ordinal(caller) + 1
        return _play(call, self._loaded().file, caller.cwd)

    def retry_delay(self, request: ModelRequest, failure: Failure, retry: int) -> int | None:
        """0, or None where the usual policy gives up, where the script says `final`, and where no call is left."""
        caller = request.caller
        ordinal = self._ordinal(caller) - (caller.session is None)  # its call has been counted
        lane = self._lane(caller)
        failed, following = lane.at(caller.purpose, ordinal), lane.at(caller.purpose, ordinal + 1)
        if failed is None or following is None or (isinstance(failed.end, Throw) and failed.end.final):
            return None
        return None if self.retry_policy.delay(failure, retry, 0) is None else 0

    async def aclose(self) -> None:
        """Nothing is held."""

    # ------------------------------------------------------------ which call

    def _loaded(self) -> Script:
        if self._script is None:
            if self._error is None:
                try:
                    self._script = _load(self._file)
                    return self._script
                except ScriptError as error:
                    self._error = error
                    self._log(error.message)
            raise self._error.with_traceback(None)
        return self._script

    def _ordinal(self, caller: Caller) -> int:
        return self._anonymous.get(caller.purpose, 0) if caller.session is None else caller.ordinal

    def _call(self, caller: Caller, ordinal: int) -> ScriptCall:
        lane = self._lane(caller)
        call = lane.at(caller.purpose, ordinal)
        if call is not None:
            return call
        of = "" if caller.purpose == MAIN else f"{caller.purpose} "
        raise self._refused(
            f"{of}call {ordinal + 1} of {_who(caller)}: lane {lane.address} has"
            f" {len(lane.calls.get(caller.purpose, ()))}; add a `call` to it, or let its last one `repeat`")

    def _lane(self, caller: Caller) -> ScriptLane:
        script = self._loaded()
        address = Address(self._root_number(script, caller), caller.path)
        lane = script.lanes.get(address)
        if lane is None:
            raise self._refused(f"{_who(caller)} stands at {address}, and the script has no such lane; its lanes:"
                                f" {', '.join(map(str, script.lanes))}")
        return lane

    def _root_number(self, script: Script, caller: Caller) -> int:
        """Which of the script's roots the caller belongs to; settled by a root session's first call."""
        session = caller.root or caller.session
        if script.roots == 1 or session is None:
            return 1
        root = self._roots.get(session)
        if root is None:
            root = self._roots[session] = self._bind(script, caller)
        return root.number

    def _bind(self, script: Script, caller: Caller) -> _Root:
        numbers = {str(Address(number)): number for number in range(1, script.roots + 1)}
        if caller.bound is not None:
            number = numbers.get(caller.bound.lane)
            if number is None:
                raise self._refused(f"the log of {_who(caller)} binds it to {caller.bound.lane}, which is no root of"
                                    f" this script; its roots: {', '.join(numbers)}")
            return _Root(number, told=True)
        if caller.path:
            raise self._refused(f"{_who(caller)} is a child of {caller.root}, which has called no model yet: there is"
                                " no telling which root's lanes are meant")
        taken = {root.number for root in self._roots.values()}
        free = [number for number in numbers.values() if number not in taken]
        if not free:
            raise self._refused(
                f"{_who(caller)} is root session {len(self._roots) + 1} of this process, and the script has lanes for"
                f" {script.roots}; add `lane root {script.roots + 1}`, or keep one root lane, which serves every root")
        return _Root(free[0], told=False)

    def _note(self, script: Script, caller: Caller) -> ReplayBound | None:
        """Which root this is, for its log, once: a session opened again keeps its lane."""
        root = None if caller.session is None or caller.path else self._roots.get(caller.session)
        if script.roots == 1 or root is None or root.told:
            return None
        root.told = True
        return ReplayBound(str(Address(root.number)), root.number - 1)

    def _refused(self, message: str) -> ScriptError:
        return ScriptError(message, file=str(self._file))


def _load(file: Path) -> Script:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ScriptError(f"the model script cannot be read: {error.strerror}; ACP_MODEL=scripted/FILE names it",
                          file=str(file)) from None
    return parse_script(data, str(file))


def _who(caller: Caller) -> str:
    return "a request without a session" if caller.session is None else f"session {caller.session}"


# ---------------------------------------------------------------- playing


async def _play(call: ScriptCall, file: str, cwd: str) -> AsyncGenerator[Sequence[Chunk], None]:
    for move in call.moves:
        if isinstance(move, Send):
            for at in range(0, len(move.chunks), BATCH):
                yield move.chunks[at : at + BATCH]
                await asyncio.sleep(0)  # lets a cancel in
        else:
            await _appears(os.path.join(cwd, move.file))  # noqa: PTH118  # asked 200 times a second
    match call.end:
        case Throw() as failure:
            raise ModelError(failure.message, failure.code, retry_after_ms=failure.retry_after_ms,
                             status=failure.status)
        case Hang(ready_file):
            if ready_file is not None:
                _touch(ready_file, file, call.line, cwd)
            await asyncio.get_running_loop().create_future()


async def _appears(path: str) -> None:
    while not os.path.exists(path):  # noqa: ASYNC110, PTH110  # a file tells nobody that it exists now
        await asyncio.sleep(POLL_SECONDS)


def _touch(name: str, file: str, line: int, cwd: str) -> None:
    """Make an empty file, leaving one that exists as it is."""
    try:
        Path(cwd, name).touch()
    except OSError as error:
        raise ScriptError(f"the ready file {name} cannot be made in {cwd}: {error.strerror}", file=file,
                          line=line) from None

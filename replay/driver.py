"""Plays a scenario with any ACP agent: starts the command in a fresh workspace and is its client, step by step.

The agent is told what it needs through variables that ours knows and others ignore: where to store sessions,
what to replay, in which permission mode. Nothing is waited for by time, only for frames, files, stored events and
exits, each within the time limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from replay.artefacts import Artefacts
from replay.client_side import ClientSide
from replay.exchange import Exchange
from replay.failures import CannotStart, RunFailed, ScriptError
from replay.player import Player
from replay.scenario import Scenario
from replay.steps import op_of
from replay.transports import Transport, TransportName, end_processes, open_transport
from replay.workspace import Workspace

TIMEOUT = 30.0
"""Seconds that one wait may take unless a step says otherwise."""


def play(
    scenario: Scenario, command: Sequence[str], *, root: Path, transport: TransportName = "pipe",
    timeout: float = TIMEOUT, recording: Path | None = None, extra_env: Mapping[str, str] | None = None,
) -> Artefacts:
    """Play a scenario to its end and harvest what it left.

    command    starts the agent; its program and the files it names may be relative to the current directory
    root       a directory for this run alone, made if need be: workspace, home, stored sessions lie in it
    timeout    seconds, for each wait
    recording  what `ACP_REPLAY_DIR` names
    extra_env  beats the variables the driver sets; the scenario's own `settings.env` beats both

    At the end of the script the agent's input is closed and its exit awaited; no process of the run is left, on
    failure neither. Raises `RunFailed` in one of its forms; what was stored until then stays in `root`.
    """
    ground = _prepare(root, scenario)
    environ = ground.environment(scenario.permission_mode, recording, extra_env or {}, scenario.settings.env)
    agent = open_transport(
        transport, command, cwd=ground.directory, env=environ, stderr=ground.stderr_file)
    exchange = Exchange(agent, timeout, ground.stderr)
    client = ClientSide(scenario, ground, exchange)
    with _no_process_left(agent, client, ground):
        status = _run(scenario, exchange, client, Player(scenario, ground, exchange, client, agent))
    return Artefacts(
        wire=exchange.wire(), logs=ground.logs(), files=ground.difference(), stderr=ground.stderr(), status=status,
        receipt=ground.receipt(), workspace=ground.spellings, home=str(ground.home),
    )  # fmt: skip


def _prepare(root: Path, scenario: Scenario) -> Workspace:
    try:
        return Workspace.make(root, scenario.seed)
    except OSError as error:
        raise CannotStart(f"cannot make the run's directories in {root}: {error}") from None


@contextlib.contextmanager
def _no_process_left(agent: Transport, client: ClientSide, ground: Workspace) -> Iterator[None]:
    try:
        yield
    finally:
        client.close()
        end_processes(agent, ground.marks())
        agent.close()


def _run(scenario: Scenario, exchange: Exchange, client: ClientSide, player: Player) -> int:
    for number, step in enumerate(scenario.steps, 1):
        with _at(f"{scenario.file}: step {number} ({op_of(step)})"):
            player.do(step)
            _check(client, exchange)
    with _at(f"{scenario.file}: after the last step"):
        client.release_held()
        status = exchange.end()
        _check(client, exchange)
    return status


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except RunFailed as failure:
        failure.where = failure.where or where
        raise


def _check(client: ClientSide, exchange: Exchange) -> None:
    if client.problems:
        raise ScriptError("; ".join(client.problems), exchange.scene())



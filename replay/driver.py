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
from replay.packed import packed_logs
from replay.player import Player
from replay.processes import Processes
from replay.receipts import joined
from replay.scenario import Scenario
from replay.steps import op_of
from replay.transports import TransportName
from replay.workspace import StoreName, Workspace

TIMEOUT = 30.0
"""Seconds that one wait may take unless a step says otherwise."""


def play(
    scenario: Scenario, command: Sequence[str], *, root: Path, transport: TransportName = "pipe",
    timeout: float = TIMEOUT, recording: Path | None = None, extra_env: Mapping[str, str] | None = None,
    store: StoreName = "jsonl",
) -> Artefacts:
    """Play a scenario to its end and harvest what it left.

    command    starts the agent; its program and the files it names may be relative to the current directory
    root       a directory for this run alone, made if need be: workspace, home, stored sessions lie in it
    timeout    seconds, for each wait
    recording  what `ACP_REPLAY_DIR` names
    extra_env  beats the variables the driver sets; the scenario's own `settings.env` beats both
    store      how an agent that knows `ACP_SESSION_STORE` is to store its sessions; logs in a database are taken out of
               it with the agent's own `sessions` command

    At the end of the script the agent's input is closed and its exit awaited; no process of the run is left, on
    failure neither. Raises `RunFailed` in one of its forms; what was stored until then stays in `root`.
    """
    ground = _prepare(root, scenario, store)

    def environ(process: int) -> Mapping[str, str]:
        return ground.environment(
            scenario.permission_mode, recording, extra_env or {}, scenario.settings.env, process=process)

    agent = Processes(transport, command, ground, environ)
    exchange = Exchange(agent.current, timeout, ground.stderr)
    client = ClientSide(scenario, ground, exchange)
    with _no_process_left(agent, client):
        status = _run(scenario, exchange, client, Player(scenario, ground, exchange, client, agent))
    logs = ground.logs() if store == "jsonl" else packed_logs(command, ground, environ(agent.count))
    return Artefacts(
        wire=exchange.wire(), logs=logs, files=ground.difference(), stderr=ground.stderr(), status=status,
        receipt=joined(ground.receipts(agent.count)), workspace=ground.spellings, home=str(ground.home),
        restarts=tuple(exchange.restarts),
    )  # fmt: skip


def _prepare(root: Path, scenario: Scenario, store: StoreName) -> Workspace:
    try:
        return Workspace.make(root, scenario.seed, store)
    except OSError as error:
        raise CannotStart(f"cannot make the run's directories in {root}: {error}") from None


@contextlib.contextmanager
def _no_process_left(agent: Processes, client: ClientSide) -> Iterator[None]:
    try:
        yield
    finally:
        client.close()
        agent.leave()


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



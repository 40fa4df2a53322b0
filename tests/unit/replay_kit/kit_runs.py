"""Runs for the snapshot kit's tests: what a real agent left behind, as `Artefacts`."""

from __future__ import annotations

from pathlib import Path

from replay.artefacts import Artefacts, FileState, HarvestedLog, WireLine
from tests.conftest import Workbench
from tests.support.client import AgentProcess


def seed_files(workspace: Path) -> dict[str, bytes]:
    """The files of a workspace with their content."""
    return {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


def changes(workspace: Path, before: dict[str, bytes]) -> tuple[FileState, ...]:
    """What happened to a workspace since `before`."""
    after = seed_files(workspace)
    gone = [FileState(path, None) for path in before if path not in after]
    made = [FileState(path, data, (workspace / path).stat().st_mode) for path, data in after.items()
            if before.get(path) != data]
    return (*made, *gone)


def harvested(bench: Workbench, process: AgentProcess, before: dict[str, bytes] | None = None) -> Artefacts:
    """What a run of an agent that has ended left behind. `before` is what the workspace held."""
    receipt = bench.home / "receipt.json"
    return Artefacts(
        wire=tuple(WireLine("agent" if entry.sender == "agent" else "client", entry.raw.rstrip(b"\n"))
                   for entry in process.transcript),
        logs=tuple(HarvestedLog(path, path.read_bytes()) for path in bench.store.rglob("*.jsonl")),
        files=changes(bench.workspace, before or {}),
        stderr=process.stderr,
        status=process.process.returncode,
        receipt=receipt.read_bytes() if receipt.exists() else None,
        workspace=(str(bench.workspace),),
        home=str(bench.home),
    )  # fmt: skip


def environ(bench: Workbench, **more: str) -> dict[str, str]:
    """Settings of a snapshot run: tools run, nobody is asked, a receipt is written."""
    return {"ACP_REPLAY_TOOLS": "live", "ACP_PERMISSION_MODE": "full-access",
            "ACP_REPLAY_RECEIPT": str(bench.home / "receipt.json")} | more

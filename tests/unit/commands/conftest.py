from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commands.bench import CommandBench


@pytest.fixture
def sessions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandBench:
    """Runs subcommands on a store in memory."""
    return CommandBench(capsys, tmp_path)

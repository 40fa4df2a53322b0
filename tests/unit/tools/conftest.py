from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tools.tool_session import ToolSession


@pytest.fixture
def session(tmp_path: Path) -> ToolSession:
    """A confined session in an empty directory."""
    cwd = tmp_path / "workspace"
    cwd.mkdir()
    return ToolSession(cwd, tmp_path / "spill")

"""Fixtures for tests in which clients that others wrote meet our agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import npm
from tests.clients.meeting import Meeting
from tests.conftest import PASSED


@pytest.fixture(scope="session")
def clients() -> npm.Npm:
    """The clients from npm."""
    return npm.installed()


@pytest.fixture
def meeting(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Meeting]:
    """A place for a client and our agent; what passed between them is judged when the test passed."""
    made = Meeting(tmp_path)
    try:
        yield made
        if request.node.stash.get(PASSED, False):
            made.judge()
    finally:
        made.abandon()

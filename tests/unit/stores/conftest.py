"""The stores that the contract suite runs over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.store_builders import KINDS, Bench


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A place to store sessions in, of each kind. What a test leaves open is closed."""
    bench = Bench(request.param, tmp_path / "store")
    yield bench
    await bench.aclose()

"""Directories of stores: made once, however many make them at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from acp_agent.stores.files import make_private


def test_a_directory_that_many_make_at_once_is_made(tmp_path: Path) -> None:
    def make(number: int) -> int:
        start.wait()
        return make_private(tmp_path / str(number) / "a" / "b")

    for number in range(100):
        start = threading.Barrier(6)
        with ThreadPoolExecutor(6) as threads:
            assert max(threads.map(make, [number] * 6)) > 0
        assert (tmp_path / str(number) / "a" / "b").stat().st_mode & 0o777 == 0o700

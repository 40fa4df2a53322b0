"""Long lists of JSONL sessions: what was read once is known, and known wrongly it does no harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.session.codec import encode_header
from acp_agent.stores import jsonl_created, layout
from acp_agent.stores.jsonl import JsonlStore
from tests.support.store_builders import listed, root_header, stored, turn

pytestmark = pytest.mark.anyio


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that is opened for reading."""
    opened: list[str] = []
    real = os.open

    def count(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not flags & (os.O_WRONLY | os.O_RDWR):
            opened.append(str(path))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", count)
    return opened


async def sessions(root: Path, *names: str) -> None:
    for at, name in enumerate(names):
        await stored(JsonlStore(root), root_header(name, created=100 + at), turn(1, 0))


async def test_a_second_list_opens_the_pages_own_logs_only(tmp_path: Path, openings: list[str]) -> None:
    await sessions(tmp_path, *(f"s{at}" for at in range(20)))
    store = JsonlStore(tmp_path)
    assert len((await store.list(limit=2)).sessions) == 2
    openings.clear()
    assert [one.id for one in (await store.list(limit=2)).sessions] == ["s19", "s18"]
    assert len({path for path in openings if path.endswith(layout.MAIN_LOG)}) == 2


async def test_a_list_reads_no_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await sessions(tmp_path, "long")
    log = tmp_path / "--w--" / "long" / layout.MAIN_LOG
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"nonsense\n" * 200_000 + b"".join(lines[1:]))
    read: list[int] = []
    real = os.pread

    def count(fd: int, size: int, at: int) -> bytes:
        data = real(fd, size, at)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", count)
    page = await JsonlStore(tmp_path).list()
    assert [(one.id, one.updated_at) for one in page.sessions] == [("long", turn(1, 0)[-1].time)]
    assert sum(read) < 200_000


async def test_a_last_line_of_any_length_tells_the_time(tmp_path: Path) -> None:
    await sessions(tmp_path, "s")
    log = tmp_path / "--w--" / "s" / layout.MAIN_LOG
    for size in (10, 65_000, 66_000, 300_000):
        record = b'{"type":"novelty","seq":0,"time":%d,"data":"%s","ignorable":true}\n' % (size, b"x" * size)
        log.write_bytes(encode_header(root_header("s", created=100)) + record + b'{"type":"half')
        assert [one.updated_at for one in (await JsonlStore(tmp_path).list()).sessions] == [size]


async def test_what_much_reading_found_is_kept_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openings: list[str],
) -> None:
    monkeypatch.setattr(jsonl_created, "WORTH", 5)
    await sessions(tmp_path, *"abcd")
    await JsonlStore(tmp_path).list()
    assert not (tmp_path / jsonl_created.FILE).exists(), "few sessions are read again"
    await sessions(tmp_path, *"efg")
    (tmp_path / f".{jsonl_created.FILE}.1.new").touch()
    await JsonlStore(tmp_path).list()
    assert {path.name for path in tmp_path.iterdir()} == {jsonl_created.FILE, "--w--"}
    assert (tmp_path / jsonl_created.FILE).stat().st_mode & 0o777 == 0o600
    before = [one.id for one in (await JsonlStore(tmp_path).list()).sessions]
    openings.clear()
    assert [one.id for one in (await JsonlStore(tmp_path).list(limit=1)).sessions] == before[:1]
    assert len({path for path in openings if path.endswith(layout.MAIN_LOG)}) == 1


@pytest.mark.parametrize("text", [b"", b"\x00", b"[]", b'{"--w--/a":1}'])
async def test_a_kept_file_that_is_none_is_no_obstacle(tmp_path: Path, text: bytes) -> None:
    await sessions(tmp_path, *"abc")
    (tmp_path / jsonl_created.FILE).write_bytes(text)
    assert await listed(JsonlStore(tmp_path)) == ["c", "b", "a"]


@pytest.mark.parametrize("wrong", [0, 101, 10**15])
@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_what_is_kept_wrongly_is_found_out(tmp_path: Path, wrong: int, limit: int) -> None:
    await sessions(tmp_path, *"abc")
    known = {f"--w--/{name}": ((tmp_path / "--w--" / name).stat().st_ino, wrong) for name in "abc"}
    known["--w--/gone"] = (1, 10**15)
    (tmp_path / jsonl_created.FILE).write_bytes(msgspec.json.encode(known))
    for _ in range(4):  # each finds out about the sessions it met
        store = JsonlStore(tmp_path)
        met = await listed(store, limit=limit)
        assert len(set(met)) == len(met)
        assert await listed(store, limit=limit) in (met, ["c", "b", "a"])
    assert await listed(JsonlStore(tmp_path), limit=limit) == ["c", "b", "a"]


async def test_a_session_made_anew_under_the_same_id_has_its_new_place(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await sessions(tmp_path, *"abc")
    assert await listed(store) == ["c", "b", "a"]
    other = JsonlStore(tmp_path)
    await other.delete(root_header("a").id)
    await stored(other, root_header("a", created=500), turn(1, 0))
    await other.delete(root_header("c").id)
    await stored(other, root_header("c", created=1), turn(1, 0))
    assert await listed(store) == ["a", "b", "c"]


async def test_a_list_of_one_directory_looks_into_no_other(tmp_path: Path, openings: list[str]) -> None:
    await sessions(tmp_path, "here")
    await stored(JsonlStore(tmp_path), root_header("there", cwd="/v"), turn(1, 0))
    await stored(JsonlStore(tmp_path), root_header("near", cwd="/w:"), turn(1, 0))
    openings.clear()
    assert await listed(JsonlStore(tmp_path), cwd="/w") == ["here"]
    assert not any("--v--" in path for path in openings)
    assert await listed(JsonlStore(tmp_path), cwd="/nowhere") == []


async def test_a_store_that_cannot_be_written_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_created, "WORTH", 1)
    await sessions(tmp_path, *"ab")
    (tmp_path / jsonl_created.FILE).mkdir()
    assert await listed(JsonlStore(tmp_path)) == ["b", "a"]

"""Numbers that not every JSON reader keeps exact are refused with the same words wherever a log is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import Raw

from acp_agent.errors import LogDamaged
from acp_agent.session.codec import MAX_SAFE, Reader, Record, decode_header, encode_header, pack
from acp_agent.stores.base import Store
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.stores.mending import found_record
from tests.support.store_builders import (
    ROOT,
    Bench,
    continued,
    exported,
    listed,
    root_header,
    stored,
    tree_of,
    turn,
)

pytestmark = pytest.mark.anyio

LARGE = [MAX_SAFE + 1, 2**63 - 1, 2**63, 2**64, 10**30]
SPAWNED = (b'{"type":"session","version":0,"id":"child","createdAt":1,"cwd":"/w","parentSession":"root",'
           b'"origin":"subagent","delegationDepth":1,"spawn":{"callId":"c","index":0}}')
ROW = (b'{"type":"text-chunks","seq0":0,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,2],'
       b'"texts":["a","b","c"]}}')
ROWS = [b'{"type":"turn/start","seq":0,"time":9,"data":{"turn":1}}', ROW, ROW.replace(b"text-", b"reasoning-"),
        b'{"type":"assistant/chunk","seq":0,"time":9,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,'
        b'"text":"a"}}}', b'{"type":"novelty/appeared","seq":0,"time":9,"data":{},"ignorable":true}']


@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize(("name", "written"), [
    ("createdAt", b'"createdAt":1'), ("delegationDepth", b'"delegationDepth":1'), ("seedLength", b'"createdAt":1'),
    ("spawn.index", b'"index":0'),
])
def test_a_headers_numbers_are_safe_integers(name: str, written: bytes, number: int) -> None:
    assert decode_header(with_number(name, written, MAX_SAFE), "log").id == "child"
    beyond = f"log:1: the header's {name} is beyond the safe integers ({number})"
    with pytest.raises(LogDamaged, match=re.escape(beyond)):
        decode_header(with_number(name, written, number), "log")
    with pytest.raises(LogDamaged, match=re.escape(f"log:1: the header's {name} is negative (-1)")):
        decode_header(with_number(name, written, -1), "log")


def with_number(name: str, written: bytes, number: int) -> bytes:
    key = name.rpartition(".")[2].encode()
    instead = b'"%s":%d' % (key, number)
    return SPAWNED.replace(written, written + b"," + instead if key not in written else instead, 1)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("number", [*LARGE, -MAX_SAFE - 1, -(2**63), -(10**30)])
def test_a_records_time_is_a_safe_integer_however_it_is_read(row: bytes, number: int) -> None:
    line = row.replace(b":9,", b":%d," % number, 1)
    says = re.escape(f"log:2: the time {number} leaves the range of safe integers")
    with pytest.raises(LogDamaged, match=says):
        list(Reader("log").read(line))
    with pytest.raises(LogDamaged, match=says):
        Reader("log").settle(line + b"\n")
    with pytest.raises(LogDamaged, match=says):
        list(Reader("log").records(line))


@pytest.mark.parametrize("number", [MAX_SAFE, -MAX_SAFE])
def test_the_largest_times_are_read(number: int) -> None:
    line = ROWS[0].replace(b":9,", b":%d," % number, 1)
    assert [event.time for event in Reader("log").read(line)] == [number]
    assert [event.time for event in Reader("log").settle(line + b"\n")] == [number]


def test_a_repair_drops_a_record_whose_time_is_none() -> None:
    found = found_record("row 0", Record("turn/start", 0, MAX_SAFE + 1, Raw(b'{"turn":1}')), "db")
    assert found.records == ()
    assert found.reason == ("dropped, for it is damaged: the time 9007199254740992 leaves the range of safe integers")


@pytest.mark.parametrize("number", LARGE)
async def test_no_store_takes_in_such_a_log(bench: Bench, tmp_path: Path, number: int) -> None:
    if bench.kind == "memory":
        pytest.skip("memory takes in no files")
    body = pack(turn(1, 0))
    large = encode_header(root_header()).replace(b'"createdAt":1', b'"createdAt":%d' % number)
    await not_adopted(bench.open(), tmp_path, large + body, "0.jsonl:1: the header's createdAt is beyond the safe")
    late = re.sub(rb'"time":\d+', b'"time":%d' % number, body, count=1)
    late = encode_header(root_header()) + late
    await not_adopted(bench.open(), tmp_path, late, f"0.jsonl:2: the time {number} leaves")


async def not_adopted(store: Store, tmp_path: Path, log: bytes, says: str) -> None:
    with pytest.raises(LogDamaged, match=re.escape(says)):
        await store.adopt(tree_of(tmp_path / "in", log))
    assert await listed(store) == []


async def test_the_largest_creation_time_is_listed_page_by_page_and_goes_on(bench: Bench) -> None:
    store = bench.open()
    for name in ("a", "b", "c"):
        await stored(store, root_header(name, created=MAX_SAFE), turn(1, 0))
    assert await listed(store, limit=1) == ["a", "b", "c"]
    await continued(bench.open(), "a", turn(2, len(turn(1, 0))))
    assert b'"createdAt":9007199254740991' in await exported(store, "a")


async def test_a_stored_log_of_such_a_time_is_named_in_a_list_and_stands_in_nobodys_way(tmp_path: Path) -> None:
    await stored(JsonlStore(tmp_path), root_header("sound"), turn(1, 0))
    await stored(JsonlStore(tmp_path), root_header(), turn(1, 0))
    (log,) = tmp_path.glob(f"*/{ROOT}/session.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"createdAt":1', b'"createdAt":%d' % 2**63, 1))
    page = await JsonlStore(tmp_path).list(limit=1)
    assert [one.id for one in page.sessions] == ["sound"]
    assert [one.name for one in page.refused] == [ROOT]
    assert "createdAt is beyond the safe integers" in page.refused[0].reason

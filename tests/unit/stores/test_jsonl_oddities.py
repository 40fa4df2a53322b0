"""Whatever lies where a log should be is named, with what to do about it, and stands in no other session's way."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import LogDamaged, SessionHeld, SessionNotFound, StoreError
from acp_agent.ids import SessionId
from acp_agent.stores import jsonl_reading, jsonl_repair, layout
from acp_agent.stores.base import Page
from acp_agent.stores.jsonl import JsonlStore
from tests.support.store_builders import ROOT, child_header, exported, root_header, stored, turn

pytestmark = pytest.mark.anyio

ODD = SessionId("odd")


def change(old: bytes, new: bytes) -> Callable[[Path], None]:
    def make(log: Path) -> None:
        data = log.read_bytes()
        assert old in data
        log.write_bytes(data.replace(old, new, 1))

    return make


def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def replace(log: Path) -> None:
        log.unlink()
        make(log)

    return replace


REPAIRED = ":[0-9]+: .*; `acp-agent sessions repair odd` keeps what is sound and a backup of all$"

LISTED_AS_REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a directory": (instead(Path.mkdir), "a directory, not a session log; move it away"),
    "a pipe": (instead(os.mkfifo), "a pipe, not a session log; move it away"),
    "a loop": (instead(lambda log: log.symlink_to(log)), "cannot be read: .*symbolic links; make it readable"),
    "a link to nothing": (instead(lambda log: log.symlink_to("gone")), "link that leads nowhere; bring back"),
    "a device": (instead(lambda log: log.symlink_to("/dev/zero")), "a device, not a session log"),
    "empty": (lambda log: log.write_bytes(b""), "the log is empty; move it away"),
    "half a header": (lambda log: log.write_bytes(log.read_bytes()[:20]), "no complete header line"),
    "a newer format": (change(b'"version":0', b'"version":1'), ":1: log format 1 is not supported.*upgrade"),
    "nulls": (lambda log: log.write_bytes(bytes(4096)), "no complete header line"),
    "nulls and a line end": (lambda log: log.write_bytes(bytes(4096) + b"\n"),
                             ":1: the session header.*put back a copy, or move the log away"),
    "a negative time": (change(b'"createdAt":', b'"createdAt":-'), ":1: .*negative.*put back a copy, or move"),
    "another one's id": (change(b'"id":"odd"', b'"id":"other"'), ":1: the header names session 'other'.*rename"),
    "another directory's": (change(b'"cwd":"/w"', b'"cwd":"/v"'), ":1: the header's cwd is '/v', whose.*--v--"),
    "a child's": (change(b'"delegationDepth":0', b'"parentSession":"root","delegationDepth":1'), ":1: .*a child's"),
    "no line at the end": (lambda log: log.write_bytes(log.read_bytes() + b"nonsense\n"), REPAIRED),
    "no text at the end": (lambda log: log.write_bytes(log.read_bytes() + b'{"type":"a\xff"}\n'), REPAIRED),
    "nulls at the end": (lambda log: log.write_bytes(log.read_bytes() + bytes(5000) + b"\n"), REPAIRED),
}


@pytest.mark.parametrize("kind", LISTED_AS_REFUSED)
async def test_what_is_no_log_is_refused_by_name_and_all_others_stay_usable(tmp_path: Path, kind: str) -> None:
    make, reason = LISTED_AS_REFUSED[kind]
    store = JsonlStore(tmp_path)
    for name in ("before", "odd", "zafter"):
        await stored(store, root_header(name, created=3), turn(1, 0))
    log = tmp_path / "--w--" / "odd" / layout.MAIN_LOG
    make(log)
    before = log.read_bytes() if log.is_file() else os.lstat(log).st_mode
    told = ""
    with anyio.fail_after(20):
        for lister in (JsonlStore(tmp_path), store):
            page = await lister.list()
            assert [one.id for one in page.sessions] == ["before", "zafter"]
            assert [one.name for one in page.refused] == ["odd"]
            told = page.refused[0].reason
            assert str(log) in told
        deeds: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.inspect(ODD), lambda: store.load(ODD), lambda: store.tree(ODD), lambda: exported(store, ODD)]
        if reason is not REPAIRED:
            deeds += [lambda: store.repair(ODD), lambda: store.repair(ODD, dry_run=True)]
        for deed in deeds:
            with pytest.raises(LogDamaged, match=reason) as caught:
                await deed()
            assert caught.value.message == told, "not the same words everywhere"
        opened = await store.load(SessionId("before"))
        await opened.appender.aclose()
    assert (log.read_bytes() if log.is_file() else os.lstat(log).st_mode) == before
    assert not (log.parent / layout.LOCK).exists(), "a refused load gives up the tree"


@pytest.mark.parametrize("kind", LISTED_AS_REFUSED)
async def test_whatever_lies_there_can_be_deleted(tmp_path: Path, kind: str) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header("odd"), turn(1, 0))
    LISTED_AS_REFUSED[kind][0](tmp_path / "--w--" / "odd" / layout.MAIN_LOG)
    await store.delete(ODD)
    assert list((tmp_path / "--w--").iterdir()) == []
    assert (await store.list()).refused == []


@pytest.mark.parametrize("kind", LISTED_AS_REFUSED)
async def test_an_odd_child_stands_in_nobodys_way(tmp_path: Path, kind: str) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    for name in ("child", "odd", "other"):
        await stored(store, child_header(name), turn(1, 0), ROOT)
    if kind in {"another directory's", "a child's", "another one's id"}:
        return  # these are about roots: a child's id and cwd are its own
    LISTED_AS_REFUSED[kind][0](tmp_path / "--w--" / ROOT / layout.child_log(2))
    with anyio.fail_after(20):
        again = JsonlStore(tmp_path)
        assert [one.id for one in await again.tree(ROOT)] == [ROOT, "child", "other"]
        assert (await again.inspect(SessionId("other"))).header == child_header("other")
        opened = await again.load(ROOT)
        assert again.create(child_header("new"), ROOT).path.name == layout.child_log(4)
        await opened.appender.aclose()


async def test_a_childs_log_that_is_a_roots_is_refused(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    await stored(store, child_header(), turn(1, 0), ROOT)
    log = tmp_path / "--w--" / ROOT / layout.child_log(1)
    log.write_bytes((tmp_path / "--w--" / ROOT / layout.MAIN_LOG).read_bytes())
    assert [one.id for one in await store.tree(ROOT)] == [ROOT]
    with pytest.raises(SessionNotFound):
        await JsonlStore(tmp_path).inspect(child_header().id)


async def test_a_child_whose_parent_is_not_in_its_tree_is_refused(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    await stored(store, child_header(parent="stranger"), turn(1, 0), ROOT)
    assert [one.id for one in await store.tree(ROOT)] == [ROOT]
    with pytest.raises(LogDamaged, match="the parent 'stranger', which is not in the tree of 'root'"):
        await store.load(child_header().id)


async def test_one_id_in_two_working_directories_is_refused_naming_both(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    (tmp_path / "--v--").mkdir()
    (tmp_path / "--w--" / ROOT).rename(tmp_path / "moved")
    await stored(JsonlStore(tmp_path), root_header(), turn(1, 0))
    (tmp_path / "moved").rename(tmp_path / "--v--" / ROOT)
    for deed in (store.load, store.inspect, store.delete, store.repair, store.tree):
        with pytest.raises(LogDamaged) as caught:
            await deed(ROOT)
        assert str(tmp_path / "--v--" / ROOT) in caught.value.message
        assert str(tmp_path / "--w--" / ROOT) in caught.value.message


async def refused(store: JsonlStore) -> Page:
    page = await store.list()
    assert [one.id for one in page.sessions] == [ROOT]
    return page


async def test_odd_directories_are_told_or_passed_over(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    project = tmp_path / "--w--"
    (project / "empty").mkdir()
    (project / "notes.txt").write_text("not a session")
    (project / ".abc.deleted").mkdir()
    (tmp_path / "--file--").touch()
    (tmp_path / "other").mkdir()
    assert (await refused(store)).refused == []
    (project / "loop").symlink_to(project / "loop")
    (tmp_path / "--loop--").symlink_to(tmp_path / "--loop--")
    (project / "headless").mkdir()
    (project / "headless" / "session.1.jsonl").touch()
    page = await refused(store)
    assert sorted(one.name for one in page.refused) == [str(tmp_path / "--loop--"), "headless", "loop"]
    assert "the root's log is missing beside its children's" in " ".join(one.reason for one in page.refused)


async def test_a_session_deleted_while_it_is_listed_is_just_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = JsonlStore(tmp_path)
    for name in ("a", "b", "c"):
        await stored(store, root_header(name), turn(1, 0))
    await store.list()
    from acp_agent.stores import jsonl_listing

    real = jsonl_listing.summarise

    def summarise(path: Path) -> Any:
        if path.parent.name == "a":
            (tmp_path / "--w--" / "b").rename(tmp_path / "gone")
        return real(path)

    monkeypatch.setattr(jsonl_listing, "summarise", summarise)
    page = await store.list()
    assert ([one.id for one in page.sessions], page.refused) == (["a", "c"], [])


async def test_a_lock_that_is_no_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    (tmp_path / "--w--" / ROOT / layout.LOCK).mkdir()
    with pytest.raises(StoreError, match="cannot be opened for writing: Is a directory"):
        await store.load(ROOT)
    assert len((await store.inspect(ROOT)).events) == len(turn(1, 0))


async def test_damage_is_told_with_its_line_and_what_repairs_it(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    log = tmp_path / "--w--" / ROOT / layout.MAIN_LOG
    first, second, third, rest = log.read_bytes().split(b"\n", 3)
    log.write_bytes(b"\n".join([first, second, b"\x00" * len(third), rest]))
    with pytest.raises(LogDamaged, match=r":3: .*`acp-agent sessions repair root` keeps what is sound") as caught:
        await store.load(ROOT)
    assert (caught.value.file, caught.value.line) == (str(log), 3)
    report = await store.repair(ROOT)
    assert report.backup is not None
    assert report.backup.read_bytes() == b"\n".join([first, second, b"\x00" * len(third), rest])
    assert report.backup.suffix != ".jsonl"
    await (await store.load(ROOT)).appender.aclose()
    assert log.read_bytes().startswith(first + b"\n" + second + b"\n")
    assert log.read_bytes().endswith(rest)
    assert sorted(path.name for path in log.parent.iterdir()) == sorted([report.backup.name, layout.MAIN_LOG])


async def test_a_dry_run_tells_of_a_session_that_another_one_writes_to(tmp_path: Path) -> None:
    """It changes nothing, so it needs no lock: not even one that nobody holds."""
    store = JsonlStore(tmp_path)
    await stored(store, root_header(), turn(1, 0))
    directory = tmp_path / "--w--" / ROOT
    log = directory / layout.MAIN_LOG
    sound = await store.repair(ROOT, dry_run=True)
    assert (sound.kept, list(sound.changes), sound.backup) == (len(turn(1, 0)), [], None)
    opened = await store.load(ROOT)
    before = log.read_bytes()
    for looking in (JsonlStore(tmp_path), store):
        assert await looking.repair(ROOT, dry_run=True) == sound
    with log.open("ab") as file:
        file.write(b"nonsense\n")
    told = await JsonlStore(tmp_path).repair(ROOT, dry_run=True)
    assert [change.split(":")[0] for change in told.changes] == [f"line {len(before.splitlines()) + 1}"]
    with pytest.raises(SessionHeld):
        await JsonlStore(tmp_path).repair(ROOT)
    assert log.read_bytes() == before + b"nonsense\n"
    await opened.appender.aclose()
    changed = directory.stat().st_mtime_ns
    assert await JsonlStore(tmp_path).repair(ROOT, dry_run=True) == told
    assert directory.stat().st_mtime_ns == changed, "a lock was made"


async def test_a_dry_run_does_not_take_a_line_that_is_being_written_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stored(JsonlStore(tmp_path), root_header(), turn(1, 0))
    log = tmp_path / "--w--" / ROOT / layout.MAIN_LOG
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    real = jsonl_reading.open_log

    def open_log(path: Path) -> int:
        fd = real(path)
        if opened:
            log.write_bytes(whole)
        opened.append(fd)
        return fd

    opened: list[int] = []
    monkeypatch.setattr(jsonl_repair, "open_log", open_log)
    assert (await JsonlStore(tmp_path).repair(ROOT, dry_run=True)).changes == []
    assert len(opened) == 2

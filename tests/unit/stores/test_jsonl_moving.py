"""Trees that come and go: whole or not at all, whenever the process is killed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.errors import SessionHeld, StoreError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import Event, TurnStart
from acp_agent.stores import layout
from acp_agent.stores.base import Tree
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.stores.locks import TreeLock
from tests.support.store_builders import CHILD, ROOT, child_header, export_tree, root_header, stored, title, turn

pytestmark = pytest.mark.anyio

PROJECT = Path(__file__).parents[3]
PICTURE = b"picture"
DIGEST = BlobId(hashlib.sha256(PICTURE).hexdigest())


async def a_tree(store: JsonlStore) -> None:
    """A root with a child and a blob."""
    root = store.create(root_header(), ROOT)
    for event in turn(1, 0):
        root.append(event)
    assert await store.put_blob(ROOT, PICTURE) == DIGEST
    await root.write()
    await stored(store, child_header(), turn(1, 0), ROOT)
    await root.aclose()


async def outside(tmp_path: Path) -> Tree:
    """The same tree outside any store."""
    store = JsonlStore(tmp_path / "source")
    await a_tree(store)
    return await export_tree(store, ROOT, tmp_path / "outside")


def below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


WHOLE = {"session.jsonl", "session.1.jsonl", f"blobs/{DIGEST}"}

# Runs one deed on the store and is killed at the n-th of the calls that change the file system.
KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from acp_agent.stores.base import Tree
from acp_agent.stores.jsonl import JsonlStore

left = int(sys.argv[1])
def counted(name):
    real = getattr(os, name)
    def call(*args, **kwargs):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*args, **kwargs)
    setattr(os, name, call)
for name in ("mkdir", "rename", "unlink", "rmdir", "write", "fsync", "open"):
    counted(name)
store = JsonlStore(Path(sys.argv[2]))
deed = sys.argv[3]
if deed == "delete":
    anyio.run(store.delete, "root")
else:
    blobs = {Path(name).name: Path(name) for name in sys.argv[6:]}
    anyio.run(store.adopt, Tree([Path(sys.argv[4]), Path(sys.argv[5])], blobs))
"""


def killed_at(count: int, *args: str) -> bool:
    """Whether the deed was cut; False when it ended before."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(count), *args], cwd=PROJECT, timeout=60,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode in {0, -9}, done.stderr.decode()
    return done.returncode != 0


async def test_a_killed_delete_leaves_the_session_whole_or_gone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    await a_tree(JsonlStore(source))
    whole = below(source)
    outcomes = set()
    for count in range(0, 60, 3):
        root = tmp_path / f"store{count}"
        shutil.copytree(source, root)
        cut = killed_at(count, str(root), "delete")
        store = JsonlStore(root)
        names = [one.id for one in (await store.list()).sessions]
        assert names == [one.id for one in (await store.list()).sessions]
        outcomes.add((cut, len(names)))
        if names:
            opened = await store.load(ROOT)
            await opened.appender.aclose()
            assert below(root) == whole, count
        else:
            await stored(store, root_header("next"), turn(1, 0))
            await store.delete(SessionId("next"))
            assert list((root / "--w--").iterdir()) == [], count
        if not cut:
            break
    assert outcomes == {(True, 1), (True, 0), (False, 0)}


async def test_a_killed_adoption_takes_in_all_or_nothing(tmp_path: Path) -> None:
    tree = await outside(tmp_path)
    given = [str(path) for path in (*tree.logs, *tree.blobs.values())]
    outcomes = set()
    for count in range(0, 90, 4):
        root = tmp_path / f"store{count}"
        cut = killed_at(count, str(root), "adopt", *given)
        store = JsonlStore(root)
        names = [one.id for one in (await store.list()).sessions]
        outcomes.add((cut, len(names)))
        if not names:
            assert await store.adopt(tree) == ROOT
        assert [path.name for path in (root / "--w--").iterdir()] == [ROOT], count
        opened = await store.load(ROOT)
        await opened.appender.aclose()
        assert set(below(root / "--w--" / ROOT)) == WHOLE, count
        if not cut:
            break
    assert {(True, 0), (False, 1)} <= outcomes


async def test_what_is_adopted_is_the_same_bytes_and_private(tmp_path: Path) -> None:
    tree = await outside(tmp_path)
    store = JsonlStore(tmp_path / "store")
    before = os.umask(0)
    try:
        await store.adopt(tree)
    finally:
        os.umask(before)
    directory = tmp_path / "store" / "--w--" / ROOT
    assert below(directory) == below(tmp_path / "source" / "--w--" / ROOT)
    for path in (directory, *directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert store.exists(CHILD)
    assert [one.id for one in await store.tree(CHILD)] == [ROOT, CHILD]


async def test_a_tree_on_its_way_is_left_alone_and_a_killed_ones_is_removed(tmp_path: Path) -> None:
    tree = await outside(tmp_path)
    project = tmp_path / "store" / "--w--"
    for name in (".1.deleted", ".2.adopting", ".3.deleted", ".keep"):
        (project / name / "blobs").mkdir(parents=True)
        (project / name / "session.jsonl").touch()
    (project / ".4.deleted").symlink_to(tmp_path / "outside")
    held = TreeLock.take(project / ".3.deleted" / layout.LOCK, ROOT)
    await JsonlStore(tmp_path / "store").adopt(tree)
    assert sorted(path.name for path in project.iterdir()) == [".3.deleted", ".keep", ROOT]
    assert len(list((tmp_path / "outside").iterdir())) == 3, "a link is removed, not what it leads to"
    held.release()


async def test_a_failed_adoption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = await outside(tmp_path)
    store = JsonlStore(tmp_path / "store")
    real = os.write
    wrote: list[int] = []

    def write(fd: int, data: bytes) -> int:
        wrote.append(fd)
        if len(wrote) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StoreError, match="cannot be taken in: No space left on device; the disk is full; free some "
                                         "space"):
        await store.adopt(tree)
    assert len(wrote) == 3
    assert list((tmp_path / "store" / "--w--").iterdir()) == []
    assert await store.adopt(tree) == ROOT


async def test_a_session_that_somebody_begins_meanwhile_is_not_taken_over(tmp_path: Path) -> None:
    tree = await outside(tmp_path)
    store, other = JsonlStore(tmp_path / "store"), JsonlStore(tmp_path / "store")
    begun = other.create(root_header(), ROOT)
    await other.put_blob(ROOT, PICTURE)
    with pytest.raises(SessionHeld):
        await store.adopt(tree)
    begun.append(Event(0, 1, TurnStart(1)))
    await begun.aclose()
    with pytest.raises(StoreError, match="stored already"):
        await store.adopt(tree)
    assert len((await store.inspect(ROOT)).events) == 1


async def test_a_directory_in_which_a_killed_process_stored_nothing_is_no_obstacle(tmp_path: Path) -> None:
    tree = await outside(tmp_path)
    directory = tmp_path / "store" / "--w--" / ROOT
    (directory / "blobs").mkdir(parents=True)
    for name in ("lock", ".session.jsonl.12.new", "blobs/.34.new"):
        (directory / name).touch()
    assert await JsonlStore(tmp_path / "store").adopt(tree) == ROOT
    assert set(below(directory)) == WHOLE


async def test_unfinished_files_are_never_listed_and_go_when_the_tree_is_opened(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await a_tree(store)
    directory = tmp_path / "--w--" / ROOT
    for name in (".session.jsonl.1.new", ".session.2.jsonl.1.new", "blobs/.x.1.new"):
        (directory / name).write_bytes(b"half")
    assert [one.id for one in (await store.list()).sessions] == [ROOT]
    assert [one.id for one in await store.tree(ROOT)] == [ROOT, CHILD]
    assert await store.blobs(ROOT) == [DIGEST]
    await (await store.load(ROOT)).appender.aclose()
    assert set(below(directory)) == WHOLE


async def test_deleting_takes_blobs_and_spilled_output_with_it(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await a_tree(store)
    opened = await store.load(ROOT)
    spilled = store.spill_directory(ROOT) / "deep"
    spilled.mkdir(parents=True)
    (spilled / "text").touch()
    with pytest.raises(StoreError, match="open here"):
        await store.delete(ROOT)
    await opened.appender.aclose()
    await store.delete(ROOT)
    assert list((tmp_path / "--w--").iterdir()) == []
    assert not store.exists(CHILD)


async def test_a_session_is_not_deleted_while_a_descendant_is_open_here(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await a_tree(store)
    opened = await store.load(CHILD)
    assert opened.root == ROOT
    with pytest.raises(StoreError, match="a descendant that is open here"):
        await store.delete(ROOT)
    with pytest.raises(StoreError, match="is a child in the tree of 'root'"):
        await JsonlStore(tmp_path).delete(CHILD)
    await opened.appender.aclose()
    await store.delete(ROOT)


async def test_a_delete_that_cannot_rename_leaves_all_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = JsonlStore(tmp_path)
    await a_tree(store)
    before = below(tmp_path)

    def fail(source: object, target: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(StoreError, match="cannot be deleted: Read-only file system; make"):
            await store.delete(ROOT)
    assert below(tmp_path) == before
    await store.delete(ROOT)


async def test_content_is_private_shared_by_the_tree_and_checked(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await a_tree(store)
    path = tmp_path / "--w--" / ROOT / "blobs" / DIGEST
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await store.blob(CHILD, DIGEST) == PICTURE
    path.write_bytes(b"PICTURE")
    with pytest.raises(StoreError, match="not what was stored"):
        await store.blob(ROOT, DIGEST)
    opened = await store.load(CHILD)
    assert await store.put_blob(CHILD, PICTURE) == DIGEST
    assert await store.blob(ROOT, DIGEST) == PICTURE, "keeping it again mends it"
    await opened.appender.aclose()


async def test_content_of_a_session_that_never_began_goes_with_it(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    appender = store.create(root_header(), ROOT)
    await store.put_blob(ROOT, PICTURE)
    assert await store.blob(ROOT, DIGEST) == PICTURE
    other = JsonlStore(tmp_path)
    other.create(root_header(), ROOT)
    with pytest.raises(SessionHeld):
        await other.put_blob(ROOT, PICTURE)
    await appender.aclose()
    assert list((tmp_path / "--w--").iterdir()) == []


async def test_a_late_title_is_listed_wherever_it_stands(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "store")
    first = turn(1, 0, title="early", text="x" * 9)
    await stored(store, root_header(), first)

    async def listed() -> list[str | None]:
        fresh = JsonlStore(tmp_path / "store")
        return [one.title for one in (await fresh.list()).sessions]

    assert await listed() == ["early"]
    opened = await store.load(ROOT)
    seq = opened.count

    def add(events: list[Event]) -> None:
        nonlocal seq
        for event in events:
            opened.appender.append(event)
        seq += len(events)

    def padding() -> None:
        for number in range(2):
            add(turn(2 + number, seq, text="y" * 20000))

    padding()
    await opened.appender.write()
    assert await listed() == ["early"]
    add([title(seq, "late")])
    await opened.appender.write()
    assert await listed() == ["late"]
    padding()
    await opened.appender.aclose()
    assert await listed() == ["late"]
    tree = await export_tree(store, ROOT, tmp_path / "tree")
    other = JsonlStore(tmp_path / "other")
    await other.adopt(tree)
    assert [one.title for one in (await other.list()).sessions] == ["late"]
    (tmp_path / "store" / "--w--" / ROOT / layout.TITLE).write_bytes(b"\x00")
    assert await listed() == ["early"]

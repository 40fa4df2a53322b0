"""Trees outside the store: what is read from a path, and what a pack holds. With the commands around them."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_agent.errors import LogDamaged, StoreError
from acp_agent.ids import SessionId
from acp_agent.session import codec
from acp_agent.stores.base import Tree
from acp_agent.stores.packing import read_tree, write_tree
from tests.support.memory_store import MemoryStore, digest
from tests.unit.commands.bench import CommandBench
from tests.unit.commands.test_showing import family
from tests.wire.recordings import Log, says, step, tool, write
from tests.wire.recordings import call as answer


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


# ---------------------------------------------------------------- from a path


def test_a_directory_is_a_tree_root_first_children_by_number(tmp_path: Path) -> None:
    root = Log("r").turn("Go.", says("Yes."))
    children = [root.spawned(f"c{number}", None) for number in range(1, 12)]
    write(tmp_path, root, *children)
    (tmp_path / "stdout.jsonl").write_text('{"jsonrpc":"2.0"}\n')
    (tmp_path / "notes.jsonl").write_text("no JSON\n")
    (tmp_path / "output").mkdir()
    tree = read_tree(tmp_path)
    assert [path.name for path in tree.logs] == ["session.jsonl", *(f"session.{n}.jsonl" for n in range(1, 12))]
    assert tree.blobs == {}


def test_the_root_is_known_by_its_header_and_not_by_its_name(tmp_path: Path) -> None:
    root = Log("r").turn("Go.", says("Yes."))
    write(tmp_path, root.spawned("c", "x"), root)
    assert [path.name for path in read_tree(tmp_path).logs] == ["session.1.jsonl", "session.jsonl"]


def test_blobs_are_files_named_by_a_digest(tmp_path: Path) -> None:
    write(tmp_path, Log("r"))
    name = digest(b"image")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / name).write_bytes(b"image")
    for other in (".new", name.upper(), name[:-1]):
        (tmp_path / "blobs" / other).write_bytes(b"")
    assert read_tree(tmp_path).blobs == {name: tmp_path / "blobs" / name}


def test_a_file_is_one_log_alone(tmp_path: Path) -> None:
    write(tmp_path, *family())
    assert read_tree(tmp_path / "session.jsonl") == Tree((tmp_path / "session.jsonl",), {})
    with pytest.raises(StoreError, match="only children are here, of 'root-of-all'"):
        read_tree(tmp_path / "session.1.jsonl")


def test_what_is_no_tree_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: it cannot be read: No such file or directory"):
        read_tree(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="no session log is here; name a log file or a directory"):
        read_tree(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(StoreError, match="neither a file nor a directory"):
        read_tree(tmp_path / "pipe.jsonl")
    write(tmp_path, Log("one"), Log("two"))
    with pytest.raises(StoreError, match=r"2 root sessions \('one', 'two'\) lie in this directory"):
        read_tree(tmp_path)


@pytest.mark.parametrize(("text", "reason"), [
    (b"", "the log is empty"), (b'{"type":"session"', "the log has no complete header line"),
    (b"{}\n", "the first line is not a session header"), (b"\xff\xfe\n", "the session header is malformed"),
    (b'{"type":"session","version":9}\n', "log format 9 is not supported"),
])
def test_a_log_without_a_header_is_damaged(tmp_path: Path, text: bytes, reason: str) -> None:
    write(tmp_path, Log("one"))
    (tmp_path / "session.1.jsonl").write_bytes(text)
    for path in (tmp_path, tmp_path / "session.1.jsonl"):
        with pytest.raises(LogDamaged, match=reason):
            read_tree(path)


# ---------------------------------------------------------------- import


def test_whole_trees_are_taken_in_and_a_taken_id_is_refused(sessions: CommandBench, tmp_path: Path) -> None:
    tree, alone = write(tmp_path / "tree", *family()), write(tmp_path / "alone", Log("alone"))
    done = sessions("import", tree, tmp_path / "nowhere", alone / "session.jsonl", tree)
    assert done.status == 1
    assert done.out == [
        f"imported root-of-all from {tree} with 4 children", f"imported alone from {alone}/session.jsonl"]
    assert len(done.err) == 2
    assert done.err[0].startswith(f"acp-agent: {tmp_path}/nowhere: it cannot be read")
    assert "taken" in done.err[1]
    assert sessions("import", write(tmp_path / "other", Log("other"))).status == 0


# ---------------------------------------------------------------- export


def test_an_export_is_the_exact_log_and_never_over_another_file(
    sessions: CommandBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = sessions.keep(*family())
    out = tmp_path / "out.jsonl"
    assert sessions("export", "root-of-all", "--output", out) == (0, [], [])
    assert out.read_bytes() == (directory / "session.jsonl").read_bytes()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sessions("export", "root-of-all").out == out.read_text().splitlines()
    out.write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    for taken in ("out.jsonl", "dangling", ".", ""):
        done = sessions("export", "root-of-all", f"--output={taken}")
        assert (done.status, done.out) == (1, [])
        assert "exists and is left as it is" in done.err[0]
    assert out.read_text() == "mine"
    gone = sessions("export", "root-of-all", "--output", tmp_path / "gone" / "out.jsonl")
    assert (gone.status, gone.err) == (1, [f"acp-agent: {tmp_path}/gone/out.jsonl: it cannot be written: No such file "
                                           "or directory"])
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "dangling", "kept-0"}


# ---------------------------------------------------------------- delete and repair


def test_what_was_deleted_is_named_with_its_children(sessions: CommandBench) -> None:
    sessions.keep(*family())
    sessions.keep(Log("alone").turn("Hi.", says("Hi.")))
    done = sessions("delete", "alone", "nobody", "child-1", "root-of-all", "alone")
    assert done.status == 1
    assert done.out == ["deleted alone", "deleted root-of-all and its children child-1, child-2, deep-1, the-fork"]
    assert "the id 'nobody'" in done.err[0]
    assert "is a descendant of 'root-of-all'" in done.err[1]
    assert len(done.err) == 2
    assert not sessions.store.disk.logs


def test_a_sound_session_needs_no_repair(sessions: CommandBench) -> None:
    sessions.keep(Log("alone").turn("Hi.", says("Hi.")))
    for words in ((), ("--dry-run",)):
        assert sessions("repair", "alone", *words) == (0, ["alone: nothing is wrong with its 10 events"], [])


# ---------------------------------------------------------------- pack


def test_a_pack_holds_the_whole_tree_and_goes_back_into_a_store(sessions: CommandBench, tmp_path: Path) -> None:
    directory = sessions.keep(*family())
    sessions.store.disk.blobs[SessionId("root-of-all")] = {digest(b"image"): b"image"}
    out = tmp_path / "deep" / "pack"
    assert sessions("pack", "child", out).err == [
        "acp-agent: 'child' begins the ids of 2 sessions: child-1, child-2; write more of the id"]
    done = sessions("pack", "child-1", out)
    assert done == (0, [f"packed child-1 into {out}: 5 logs, 1 blob"], [])
    blob = f"blobs/{digest(b'image')}"
    logs = ["session.1.jsonl", "session.2.jsonl", "session.3.jsonl", "session.4.jsonl", "session.jsonl"]
    assert names(out) == ["blobs", blob, *logs]
    assert all((out / log).read_bytes() == (directory / log).read_bytes() for log in logs)
    assert {stat.S_IMODE((out / name).stat().st_mode) for name in (*logs, blob)} == {0o600}
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    before, sessions.store = sessions.store, MemoryStore()
    assert sessions("import", out).status == 0
    assert {name: log.text() for name, log in sessions.store.disk.logs.items()} == {
        name: log.text() for name, log in before.disk.logs.items()}
    assert sessions.store.disk.blobs == before.disk.blobs


def test_a_pack_is_written_into_an_empty_directory_and_over_nothing(sessions: CommandBench, tmp_path: Path) -> None:
    sessions.keep(Log("alone").turn("Hi.", says("Hi.")))
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    number = (tmp_path / "empty").stat().st_ino
    assert sessions("pack", "alone", tmp_path / "empty").status == 0
    assert (tmp_path / "empty").stat().st_ino == number, "somebody may work in it"
    for taken, why in (("full", "is not empty"), ("file", "a file is here"), ("empty", "is not empty"),
                       ("file/x", "a file is here"), ("full/mine/x/y", "a file is here")):
        done = sessions("pack", "alone", tmp_path / taken)
        assert (done.status, done.out) == (1, [])
        assert why in done.err[0]
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "full", "file", "kept-0"}
    assert names(tmp_path / "full") == ["mine"]
    assert names(tmp_path / "empty") == ["session.jsonl"]


def test_a_pack_that_would_not_replay_is_written_and_the_problem_told(sessions: CommandBench, tmp_path: Path) -> None:
    cut = answer(tool("c", "bash", command="x"))[:-1]
    sessions.keep(Log("cut-short").turn("Go.", step(cut), end="open"))
    out = tmp_path / "pack"
    done = sessions("pack", "cut-short", out)
    assert done.status == 1
    assert done.out == [f"packed cut-short into {out}: 1 log"]
    assert done.err[-1] == f"acp-agent: {out} was written, but cannot be replayed as it is"
    assert f"{out}/session.jsonl:" in done.err[0]
    assert names(out) == ["session.jsonl"]


class Growing(MemoryStore):
    """A store in which another process begins a child while the root's log is read."""

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        if SessionId("late") not in self.disk.logs:
            root = self.disk.logs[SessionId("r")]
            header = codec.decode_header(Log("r").spawned("late", "x").lines()[0].encode(), "late")
            appender = self.create(header, root.header.id)
            appender.append(root.events[0])
            await appender.write()
        async for piece in super().export(session_id):
            yield piece


def test_a_child_that_appears_meanwhile_is_packed_too(tmp_path: Path) -> None:
    store = Growing()
    asyncio.run(store.adopt(Tree([write(tmp_path / "kept", Log("r").turn("Go.", says("."))) / "session.jsonl"], {})))
    tree = asyncio.run(write_tree(store, SessionId("r"), tmp_path / "pack")).tree
    assert [path.name for path in tree.logs] == ["session.jsonl", "session.1.jsonl"]
    assert b'"late"' in tree.logs[1].read_bytes()


class PartlyDamaged(MemoryStore):
    """A store in which some logs turn out to be damaged when they are read."""

    damaged: tuple[str, ...] = ()

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        if session_id in self.damaged:
            raise LogDamaged("no JSON", file=session_id, line=2)
        async for piece in super().export(session_id):
            yield piece


def test_damaged_relatives_are_left_out_and_named(sessions: CommandBench, tmp_path: Path) -> None:
    sessions.store = store = PartlyDamaged()
    sessions.keep(*family())
    store.damaged = ("child-2",)
    done = sessions("pack", "root-of-all", tmp_path / "one")
    assert done == (1, [f"packed root-of-all into {tmp_path}/one: 4 logs"], [
        "acp-agent: child-2:2: no JSON", f"acp-agent: {tmp_path}/one was written without what is damaged or missing"])
    assert names(tmp_path / "one") == ["session.1.jsonl", "session.2.jsonl", "session.3.jsonl", "session.jsonl"]
    shown = sessions("show", "root-of-all")
    assert (shown.status, shown.err) == (1, ["acp-agent: child-2:2: no JSON"])
    assert "│ All done." in shown.out
    assert "│ │ I am two." not in shown.out
    assert sessions("pack", "child-2", tmp_path / "two") == (1, [], ["acp-agent: child-2:2: no JSON"])
    assert not (tmp_path / "two").exists()
    store.damaged = ("root-of-all",)
    done = sessions("pack", "deep-1", tmp_path / "three")
    assert done.status == 1
    assert done.err[0] == "acp-agent: root-of-all:2: no JSON"
    assert "put the parent's log beside it" in done.err[1]
    assert names(tmp_path / "three") == [f"session.{number}.jsonl" for number in range(1, 5)]
    assert "│ Deepest." in sessions("show", "deep-1").out


class Failing(MemoryStore):
    """A store whose logs break off while they are read."""

    async def export(self, session_id: SessionId) -> AsyncIterator[bytes]:
        yield b"half\n"
        raise LogDamaged("no JSON", file="session.jsonl", line=2)


def test_nothing_is_left_of_a_pack_or_an_export_that_failed(sessions: CommandBench, tmp_path: Path) -> None:
    sessions.store = Failing()
    sessions.keep(Log("alone").turn("Hi.", says("Hi.")))
    for words in (("pack", "alone", tmp_path / "pack"), ("export", "alone", "--output", tmp_path / "log"),
                  ("show", "alone")):
        done = sessions(words[0], *words[1:])
        assert (done.status, done.out, done.err) == (1, [], ["acp-agent: session.jsonl:2: no JSON"])
    assert names(tmp_path) == ["kept-0", "kept-0/session.jsonl"]

"""Reading and writing descriptors of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import socket
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from acp_agent.rpc.reader import Reader
from acp_agent.rpc.stdio import Kind, kind_of
from acp_agent.rpc.writer import HIGH_WATER, Writer


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


def blocking(fd: int) -> bool:
    return os.get_blocking(fd)


class Collector:
    """Everything a reader delivered, and a way to wait for it."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = asyncio.Event()
        self.ends = 0
        self._grown = asyncio.Event()

    def on_data(self, chunk: bytes) -> None:
        assert chunk
        assert not self.ends
        self.data += chunk
        self._grown.set()

    def on_end(self) -> None:
        self.ends += 1
        self.ended.set()

    async def until(self, wanted: bytes) -> None:
        while wanted not in self.data:
            self._grown.clear()
            await self._grown.wait()


@contextlib.contextmanager
def reading(fd: int) -> Iterator[tuple[Reader, Collector]]:
    reader, collector = Reader(fd), Collector()
    reader.open(collector.on_data, collector.on_end)
    try:
        yield reader, collector
    finally:
        reader.close()


# ---------------------------------------------------------------- kinds


def test_descriptors_are_told_apart(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    master, slave = pty.openpty()
    one, other = socket.socketpair()
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        kinds = [kind_of(fd) for fd in (read_end, slave, one.fileno(), file, null)]
        assert kinds == [Kind.PIPE, Kind.TERMINAL, Kind.SOCKET, Kind.FILE, Kind.DEVICE]
    finally:
        one.close()
        other.close()
        for fd in (read_end, write_end, master, slave, file, null):
            os.close(fd)


# ---------------------------------------------------------------- reading


def test_a_pipe_is_read_as_it_comes_and_to_its_end() -> None:
    async def test() -> None:
        read_end, write_end = os.pipe()
        with reading(read_end) as (reader, got):
            assert reader.kind is Kind.PIPE
            os.write(write_end, b"one")
            await got.until(b"one")
            os.write(write_end, b"two")
            await got.until(b"two")
            os.close(write_end)
            await got.ended.wait()
        assert (got.data, got.ends) == (b"onetwo", 1)

    run(test)


def test_reading_leaves_the_description_others_share_blocking() -> None:
    async def test() -> None:
        read_end, write_end = os.pipe()
        shared = os.dup(read_end)
        with reading(read_end) as (_, got):
            os.write(write_end, b"x")
            await got.until(b"x")
            assert blocking(shared)
        os.close(shared)
        os.close(write_end)

    run(test)


def test_a_socket_is_read_to_its_end() -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        with reading(ours.detach()) as (reader, got):
            assert reader.kind is Kind.SOCKET
            theirs.sendall(b"hello")
            theirs.close()
            await got.ended.wait()
        assert got.data == b"hello"

    run(test)


@pytest.mark.parametrize("size", [0, 1, 65_536, 300_000])
def test_a_regular_file_is_read_in_pieces_with_room_for_others_between(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "script").write_bytes(content)

    async def test() -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        with reading(os.open(tmp_path / "script", os.O_RDONLY)) as (reader, got):
            assert reader.kind is Kind.FILE
            await got.ended.wait()
        counting.cancel()
        assert (got.data == content, got.ends) == (True, 1)
        assert turns >= size // 65_536

    run(test)


def test_dev_null_is_at_its_end_at_once() -> None:
    async def test() -> None:
        with reading(os.open(os.devnull, os.O_RDONLY)) as (_, got):
            await got.ended.wait()
        assert got.data == b""

    run(test)


def test_a_paused_reader_delivers_nothing_until_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(b"x" * 200_000)

    async def test() -> None:
        reader = Reader(os.open(tmp_path / "script", os.O_RDONLY))
        chunks: list[int] = []
        ended = asyncio.Event()

        def pause_once(chunk: bytes) -> None:
            chunks.append(len(chunk))
            if len(chunks) == 1:
                reader.pause()

        reader.open(pause_once, ended.set)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(chunks) == 1
        reader.resume()
        reader.pause()
        reader.resume()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(chunks) < 4, "two chains of callbacks read at once"
        await ended.wait()
        reader.close()
        assert sum(chunks) == 200_000

    run(test)


def test_a_reset_connection_is_an_end_of_input() -> None:
    async def test() -> None:
        server = socket.create_server(("127.0.0.1", 0))
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        server.close()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with reading(ours.detach()) as (_, got):
            theirs.close()
            await got.ended.wait()
        assert got.data == b""

    run(test)


def test_closing_a_reader_twice_is_fine() -> None:
    async def test() -> None:
        read_end, write_end = os.pipe()
        os.close(write_end)
        with reading(read_end) as (reader, _):
            reader.close()

    run(test)


# ---------------------------------------------------------------- terminal


@contextlib.asynccontextmanager
async def terminal() -> AsyncIterator[tuple[int, int, Collector]]:
    """Both ends of a terminal whose slave is being read."""
    master, slave = pty.openpty()
    kept = os.dup(slave)
    with reading(slave) as (reader, got):
        assert reader.kind is Kind.TERMINAL
        yield master, kept, got
    os.close(master)
    os.close(kept)


async def shown(master: int, wanted: bytes) -> bytes:
    """Read what the terminal shows until `wanted` is there."""
    seen = b""
    loop = asyncio.get_running_loop()
    while wanted not in seen:
        readable = asyncio.Event()
        loop.add_reader(master, readable.set)
        await readable.wait()
        loop.remove_reader(master)
        seen += os.read(master, 65_536)
    return seen


def test_a_terminal_gets_a_hint_and_keeps_its_echo(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with terminal() as (master, _, got):
            os.write(master, b"hello\n")
            await got.until(b"hello\n")
            assert b"hello" in await shown(master, b"hello")

    run(test)
    hint = capsys.readouterr().err
    assert "Ctrl-D" in hint
    assert "JSON" in hint


def test_a_line_over_4096_bytes_pasted_into_a_terminal_survives() -> None:
    line = b'{"text":"' + b"0123456789" * 3_000 + b'"}\n'

    async def test() -> None:
        async with terminal() as (master, _, got):
            os.set_blocking(master, False)
            rest = line
            while rest:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(master, rest):]
                with contextlib.suppress(BlockingIOError):
                    os.read(master, 65_536)  # the echo, or the terminal stops for it
                await asyncio.sleep(0)
            await got.until(b"\n")
            assert got.data == line

    run(test)


@pytest.mark.parametrize(("typed", "received"), [
    (b"abx\x7fc\n", b"abc\n"), (b"abx\bc\n", b"abc\n"), ("aé\x7fb\n".encode(), b"ab\n"),
    ("a🙂\x7fb\n".encode(), b"ab\n"), (b"wrong\x15right\n", b"right\n"), (b"\x7f\x7fa\n", b"a\n"),
    (b"one\n\x7ftwo\n", b"one\ntwo\n"),
])
def test_keys_that_edit_a_line_work(typed: bytes, received: bytes) -> None:
    async def test() -> None:
        async with terminal() as (master, _, got):
            os.write(master, typed)
            os.write(master, b"\x04")
            await got.ended.wait()
            assert got.data == received

    run(test)


def test_backspace_removes_the_character_from_the_screen() -> None:
    async def test() -> None:
        async with terminal() as (master, _, got):
            os.write(master, b"ab\x7f\n")
            await got.until(b"a\n")
            assert b"\b \b" in await shown(master, b"\b \b")

    run(test)


def test_ctrl_d_ends_the_input_and_keeps_an_unfinished_line() -> None:
    async def test() -> None:
        async with terminal() as (master, _, got):
            os.write(master, b"one\ntwo\x04three")
            await got.ended.wait()
            assert (got.data, got.ends) == (b"one\ntwo", 1)

    run(test)


def test_a_terminal_that_hangs_up_is_an_end_of_input() -> None:
    async def test() -> None:
        master, slave = pty.openpty()
        with reading(slave) as (_, got):
            os.close(master)
            await got.ended.wait()

    run(test)


def test_a_terminal_gets_its_settings_back() -> None:
    async def test() -> None:
        master, slave = pty.openpty()
        kept = os.dup(slave)
        before = termios.tcgetattr(kept)
        with reading(slave):
            during = termios.tcgetattr(kept)
            assert not during[3] & termios.ICANON
            assert during[3] & termios.ECHO
            assert during[3] & termios.ISIG
        assert termios.tcgetattr(kept) == before
        os.close(master)
        os.close(kept)

    run(test)


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def writing(fd: int, on_broken: Callable[[], None] = lambda: None) -> Iterator[Writer]:
    writer = Writer(fd)
    writer.open(on_broken)
    try:
        yield writer
    finally:
        writer.close()


class Sink:
    """The client's end: reads only when told to."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.data = b""

    async def take_until(self, complete: Callable[[bytes], bool]) -> None:
        while not complete(self.data):
            with contextlib.suppress(BlockingIOError):
                self.data += os.read(self.fd, 20_000)
            await asyncio.sleep(0)


def pipe_pair() -> tuple[int, int]:
    return os.pipe()


def socket_pair() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return theirs.detach(), ours.detach()


def terminal_pair() -> tuple[int, int]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    return master, slave


both_ends = pytest.mark.parametrize("make_pair", [pipe_pair, socket_pair, terminal_pair])


def frames(count: int, size: int = 100) -> list[bytes]:
    return [b"%d:" % number + b"x" * size + b"\n" for number in range(count)]


@both_ends
@pytest.mark.parametrize("reopen", [True, False])
def test_a_slow_client_bounds_the_queue_and_gets_everything_in_order(
    make_pair: Callable[[], tuple[int, int]], reopen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reopen:
        monkeypatch.setattr(Writer, "_reopen", lambda self: False)

    async def test() -> None:
        theirs, ours = make_pair()
        shared = os.dup(ours)
        sent = frames(5_000)
        with writing(ours) as writer:
            peak = 0
            stuck = asyncio.Event()

            async def produce() -> None:
                nonlocal peak
                for frame in sent:
                    writer.send(frame)
                    peak = max(peak, writer.queued)
                    if writer.queued > HIGH_WATER:
                        stuck.set()
                    await writer.drain()
                await writer.flush()

            producing = asyncio.create_task(produce())
            # The client reads nothing until the producer cannot go on.
            await stuck.wait()
            assert not producing.done()
            assert blocking(shared)
            sink = Sink(theirs)
            await sink.take_until(lambda data: len(data) == sum(map(len, sent)))
            await producing
            assert sink.data == b"".join(sent)
            assert peak <= HIGH_WATER + len(sent[0]) + 10
            assert writer.queued == 0
        os.close(theirs)
        os.close(shared)

    run(test)


@both_ends
def test_a_frame_larger_than_any_buffer_passes_whole(make_pair: Callable[[], tuple[int, int]]) -> None:
    async def test() -> None:
        theirs, ours = make_pair()
        frame = os.urandom(400_000).hex().encode() + b"\n"
        with writing(ours) as writer:
            writer.send(frame)
            writer.send(b"after\n")
            sink = Sink(theirs)
            await sink.take_until(lambda data: data.endswith(b"after\n"))
            await writer.flush()
            assert sink.data == frame + b"after\n"
        os.close(theirs)

    run(test)


def test_what_is_queued_in_one_turn_leaves_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    plain = Writer._write_plainly

    def counted(self: Writer, data: memoryview) -> int:
        writes.append(len(data))
        return plain(self, data)

    monkeypatch.setattr(Writer, "_write_plainly", counted)

    async def test() -> None:
        theirs, ours = os.pipe()
        with writing(ours) as writer:
            for frame in frames(100):
                writer.send(frame)
            assert writes == []
            await writer.flush()
            assert len(writes) == 1
            # More than 64 KiB do not wait for the turn's end.
            writer.send(b"x" * 10 + b"\n")
            writer.send(b"y" * HIGH_WATER + b"\n")
            assert len(writes) > 1
        os.close(theirs)

    run(test)


def test_what_is_sent_now_leaves_at_once_and_in_order() -> None:
    async def test() -> None:
        theirs, ours = os.pipe()
        with writing(ours) as writer:
            writer.send(b"one\n")
            writer.send_now(b"two\n")
            assert os.read(theirs, 100) == b"one\ntwo\n"
            writer.send(b"x" * 300_000)
            await asyncio.sleep(0)
            writer.send_now(b"last\n")
            sink = Sink(theirs)
            await sink.take_until(lambda data: data.endswith(b"last\n"))
            assert len(sink.data) == 300_005
        os.close(theirs)

    run(test)


def test_a_regular_file_is_written_to(tmp_path: Path) -> None:
    async def test() -> None:
        with writing(os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)) as writer:
            for frame in frames(5_000):
                writer.send(frame)
            await writer.flush()
        assert (tmp_path / "out").read_bytes() == b"".join(frames(5_000))

    run(test)


def test_dev_null_takes_everything() -> None:
    async def test() -> None:
        with writing(os.open(os.devnull, os.O_WRONLY)) as writer:
            writer.send(b"x\n")
            await writer.flush()
            assert not writer.broken

    run(test)


def test_a_full_device_counts_as_a_client_that_is_gone() -> None:
    async def test() -> None:
        broken = asyncio.Event()
        with writing(os.open("/dev/full", os.O_WRONLY), broken.set) as writer:
            writer.send(b"x\n")
            await writer.flush()
            assert writer.broken
            await broken.wait()

    run(test)


@pytest.mark.parametrize("make_pair", [pipe_pair, socket_pair])
def test_a_client_that_goes_is_reported_once_and_nobody_waits_for_it(
    make_pair: Callable[[], tuple[int, int]]
) -> None:
    async def test() -> None:
        theirs, ours = make_pair()
        reports: list[str] = []
        reported = asyncio.Event()

        def gone() -> None:
            reports.append("gone")
            reported.set()

        with writing(ours, gone) as writer:
            writer.send(b"x" * 500_000)
            waiting = [asyncio.create_task(writer.drain()), asyncio.create_task(writer.flush())]
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            os.close(theirs)
            await asyncio.gather(*waiting)
            await reported.wait()
            assert writer.broken
            writer.send(b"y" * 500_000)
            assert writer.queued == 0
            await writer.drain()
            await writer.flush()
        assert reports == ["gone"]

    run(test)


def test_an_idle_writer_notices_that_the_reader_of_its_pipe_is_gone() -> None:
    async def test() -> None:
        theirs, ours = os.pipe()
        gone = asyncio.Event()
        with writing(ours, gone.set) as writer:
            os.close(theirs)
            await gone.wait()
            assert writer.broken

    run(test)


def test_a_cancelled_wait_does_not_hurt_the_others() -> None:
    async def test() -> None:
        theirs, ours = os.pipe()
        with writing(ours) as writer:
            writer.send(b"x" * 300_000)
            first, second = asyncio.create_task(writer.flush()), asyncio.create_task(writer.flush())
            await asyncio.sleep(0)
            first.cancel()
            await Sink(theirs).take_until(lambda data: len(data) == 300_000)
            await second
            assert first.cancelled()
        os.close(theirs)

    run(test)


def test_a_written_batch_is_not_kept_in_memory() -> None:
    async def test() -> None:
        with writing(os.open(os.devnull, os.O_WRONLY)) as writer:
            writer.send(b"x" * 1_000_000)
            await writer.flush()
            assert writer._rest.obj == b""

    run(test)

"""Lines out of bytes."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.rpc.frames import Frame, FrameSplitter, Oversized

LIMIT = 12

stream_bytes = st.lists(
    st.sampled_from([b"{", b"}", b"\n", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xef\xbb\xbf", "é\u2028".encode(),
                     "\x85".encode(), b"0123456789", b"\x00", b"\xff"]),
    max_size=40,
).map(b"".join)


def split(chunks: list[bytes], limit: int = LIMIT) -> list[Frame]:
    splitter = FrameSplitter(limit)
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return frames + splitter.finish()


def cut(data: bytes, points: list[int]) -> list[bytes]:
    bounds = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def expected(data: bytes) -> list[Frame]:
    """The same rules, said the slow and obvious way."""
    frames: list[Frame] = []
    for number, line in enumerate(data.split(b"\n")):
        if len(line) > LIMIT:
            frames.append(Oversized(len(line)))
            continue
        if number == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\r")
        if line.strip(b" \t\r\n\v\f"):
            frames.append(line)
    return frames


@given(stream_bytes, st.lists(st.integers(min_value=0, max_value=500), max_size=20))
def test_any_chunking_gives_the_lines_of_the_whole(data: bytes, points: list[int]) -> None:
    assert split(cut(data, points)) == expected(data)


@given(stream_bytes)
def test_single_bytes_give_the_lines_of_the_whole(data: bytes) -> None:
    assert split([data[index:index + 1] for index in range(len(data))]) == expected(data)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    text = f"a{separator}b".encode()
    assert split([text + b"\n"]) == [text]


def test_blank_lines_and_one_carriage_return_go_away() -> None:
    assert split([b"\n\r\n  \n\t\r\nabc\r\nde\r\r\n"]) == [b"abc", b"de\r"]


def test_a_byte_order_mark_is_dropped_at_the_very_start_only() -> None:
    assert split([b"\xef", b"\xbb", b"\xbfab\n\xef\xbb\xbfcd\n"]) == [b"ab", b"\xef\xbb\xbfcd"]
    assert split([b"\n\xef\xbb\xbfab\n"]) == [b"\xef\xbb\xbfab"]


def test_the_unterminated_last_line_comes_at_the_end() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(b"one\ntwo") == [b"one"]
    assert splitter.finish() == [b"two"]
    assert splitter.finish() == []


def test_a_line_of_exactly_the_limit_passes_and_one_more_does_not() -> None:
    assert split([b"x" * LIMIT + b"\n" + b"y" * (LIMIT + 1) + b"\nnext\n"]) == [
        b"x" * LIMIT, Oversized(LIMIT + 1), b"next"]


def test_a_line_over_the_limit_is_not_kept_in_memory() -> None:
    import tracemalloc

    splitter = FrameSplitter(limit=100_000)
    chunk = b"x" * 50_000
    tracemalloc.start()
    try:
        for _ in range(200):
            assert splitter.feed(chunk) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000
    assert splitter.feed(b"\nnext\n") == [Oversized(10_000_000), b"next"]


def test_a_64_mib_line_in_64_kib_pieces_takes_time_linear_in_its_length() -> None:
    def seconds(pieces: int) -> float:
        splitter = FrameSplitter()
        piece = b"x" * 65_536
        start = time.process_time()
        for _ in range(pieces):
            splitter.feed(piece)
        (line,) = splitter.feed(b"\n")
        assert isinstance(line, bytes)
        assert len(line) == pieces * 65_536
        return time.process_time() - start

    seconds(64)  # warms up the allocator
    # Quadratic cost would make this factor 256.
    assert seconds(1024) < 64 * max(seconds(64), 0.002)

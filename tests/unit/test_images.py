"""Images are known by their bytes, and only whole ones of a kind and size that models take get in."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.images import MAX_BYTES, MAX_SIDE, BadImage, Image, examine
from tests.support.images import GIF, JPEG, KINDS, PNG, WEBP, WEBP_ALPHA, WEBP_LOSSLESS

every = pytest.mark.parametrize("kind", KINDS)


@every
def test_an_image_is_known_with_its_size(kind: str) -> None:
    data, media_type, width, height = KINDS[kind]
    assert examine(data) == Image(media_type, width, height)


@every
def test_no_part_of_an_image_passes_for_one(kind: str) -> None:
    data = KINDS[kind][0]
    for size in range(len(data)):
        with pytest.raises(BadImage):
            examine(data[:size])


@every
def test_what_cameras_and_tools_add_behind_an_image_does_no_harm(kind: str) -> None:
    data, media_type, width, height = KINDS[kind]
    assert examine(data + b"\0" * 7 + b"and more") == Image(media_type, width, height)


@every
def test_an_image_of_too_many_bytes_is_refused_with_both_numbers(kind: str) -> None:
    data = KINDS[kind][0]
    assert examine(data + bytes(MAX_BYTES - len(data)))
    with pytest.raises(BadImage, match=f"{MAX_BYTES + 1} bytes.*{MAX_BYTES} at most; send a smaller one"):
        examine(data + bytes(MAX_BYTES + 1 - len(data)))


def png(width: int, height: int) -> bytes:
    """A PNG that claims to be of this size."""
    header = b"IHDR" + struct.pack(">II", width, height) + PNG[24:29]
    return PNG[:12] + header + struct.pack(">I", zlib.crc32(header)) + PNG[33:]


def jpeg(width: int, height: int) -> bytes:
    at = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:at] + struct.pack(">HH", height, width) + JPEG[at + 4 :]


def gif(width: int, height: int) -> bytes:
    return GIF[:6] + struct.pack("<HH", width, height) + GIF[10:]


def webp(width: int, height: int) -> bytes:
    return WEBP_ALPHA[:24] + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little") + WEBP_ALPHA[30:]


@pytest.mark.parametrize("make", [png, jpeg, gif, webp])
def test_a_size_that_no_model_takes_is_refused_however_few_bytes_claim_it(make: Callable[[int, int], bytes]) -> None:
    assert (examine(make(MAX_SIDE, 2)).width, examine(make(9, MAX_SIDE)).height) == (MAX_SIDE, MAX_SIDE)
    for width, height in ((MAX_SIDE + 1, 2), (9, MAX_SIDE + 1), (65535, 65535)):
        with pytest.raises(BadImage, match=f"{width} x {height} pixels.*longer than {MAX_SIDE}; send a smaller one"):
            examine(make(width, height))


@pytest.mark.parametrize("make", [png, jpeg])
def test_an_image_without_pixels_is_refused(make: Callable[[int, int], bytes]) -> None:
    for width, height in ((0, 4), (4, 0)):
        with pytest.raises(BadImage, match="no pixels"):
            examine(make(width, height))


def test_a_frame_larger_than_its_gif_counts() -> None:
    at = GIF.index(b",") + 1
    with pytest.raises(BadImage, match=r"65541 x 2 pixels"):
        examine(GIF[:at] + struct.pack("<HHHH", 6, 0, 65535, 2) + GIF[at + 8 :])


@pytest.mark.parametrize("data", [
    b"", b"x", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"BM" + bytes(60), b"%PDF-1.7", b"II*\0" + bytes(60),
    b"RIFF\x10\0\0\0WAVEfmt " + bytes(8),
], ids=["nothing", "a letter", "svg", "bmp", "pdf", "tiff", "wav"])
def test_what_is_no_image_of_a_known_kind_is_refused_naming_the_kinds(data: bytes) -> None:
    with pytest.raises(BadImage, match="no PNG, JPEG, GIF or WebP"):
        examine(data)


BROKEN = {
    "a png whose bytes were changed": PNG[:45] + b"!" + PNG[46:],
    "a png without a picture": PNG[:33] + PNG[-12:],
    "a png that begins with another part": PNG[:8] + PNG[33:],
    "a jpeg without a picture": b"\xff\xd8\xff\xd9",
    "a jpeg with noise between its segments": JPEG[:20] + b"noise" + JPEG[20:],
    "a jpeg whose segment has no length": b"\xff\xd8\xff\xe0\0\0" + JPEG[2:],
    "a gif without a picture": GIF[: GIF.index(b",")] + b";",
    "a gif with an unknown block": GIF[: GIF.index(b",")] + b"?" + GIF[GIF.index(b",") :],
    "a webp without a picture": b"RIFF" + struct.pack("<I", 22) + WEBP_ALPHA[8:30],
    "a webp whose first part is unknown": WEBP.replace(b"VP8 ", b"VP9 "),
    "a webp whose picture has another mark": WEBP_LOSSLESS[:20] + b"?" + WEBP_LOSSLESS[21:],
    "a webp with a part longer than itself": WEBP[:16] + struct.pack("<I", 2**32 - 1) + WEBP[20:],
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_image_is_refused_saying_what_is_wrong(what: str) -> None:
    with pytest.raises(BadImage, match="it is a broken image/") as caught:
        examine(BROKEN[what])
    assert f"image/{what.split()[1]}" in str(caught.value)


BOMBS = {
    "a png of empty parts": PNG[:33] + (b"\0\0\0\0teXt" + struct.pack(">I", zlib.crc32(b"teXt"))) * 400_000,
    "a png part of four gigabytes": PNG[:33] + b"\xff\xff\xff\xffIDAT",
    "a jpeg of fill bytes": b"\xff\xd8" + b"\xff" * (MAX_BYTES - 2),
    "a jpeg scan of fill bytes": JPEG[:-2] + b"\xff" * (MAX_BYTES - 1000),
    "a jpeg of restart markers": JPEG[:-2] + b"\xff\xd0" * (MAX_BYTES // 2 - 1000),
    "a jpeg of bare markers": b"\xff\xd8" + b"\xff\x01" * (MAX_BYTES // 2 - 2),
    "a gif of one-byte pieces": GIF[: GIF.index(b",")] + b"!\xfe" + b"\1x" * (MAX_BYTES // 2 - 100),
    "a webp of empty parts": b"RIFF" + struct.pack("<I", MAX_BYTES - 8) + WEBP_ALPHA[8:30] + b"ABC\0\0\0\0\0" * 655_355,
}


@pytest.mark.parametrize("what", BOMBS)
def test_what_is_made_to_be_slow_to_read_is_still_read_in_no_time(what: str) -> None:
    begun = time.process_time()
    with pytest.raises(BadImage):
        examine(BOMBS[what])
    assert time.process_time() - begun < 5


@given(st.sampled_from([kind[0] for kind in KINDS.values()]), st.integers(0, 700), st.binary(max_size=8))
def test_no_damage_makes_examining_fail_in_another_way(data: bytes, at: int, noise: bytes) -> None:
    at %= len(data)
    try:
        image = examine(data[:at] + noise + data[at + len(noise) :])
    except BadImage:
        return
    assert 0 < image.width <= MAX_SIDE
    assert 0 < image.height <= MAX_SIDE

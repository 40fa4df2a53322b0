"""Images, as far as an agent must understand them: what they are, how large, and whether they are whole.

Pixels are never decoded. An image that a model would refuse must not get into a session, where it would fail
every later turn; so it is looked at when it comes in.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NoReturn

from msgspec import Struct

MAX_BYTES = 5 * 1024 * 1024
"""Of one image; what model servers take (Anthropic's limit, the lowest)."""

MAX_SIDE = 8000
"""Pixels of an image's longer side; as above."""

KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types of the images that models take."""


class BadImage(Exception):
    """An image that no model could be given; the message says why, in words for the user."""


class Image(Struct, frozen=True):
    """A whole image of a known kind. `width` and `height` are pixels."""

    media_type: str
    width: int
    height: int


def examine(data: bytes) -> Image:
    """What `data` is. Raises `BadImage` for an unknown, broken, cut or too large image."""
    if len(data) > MAX_BYTES:
        raise BadImage(f"it has {len(data)} bytes, and an image may have {MAX_BYTES} at most; send a smaller one")
    image = _sniff(data)
    if not (image.width and image.height):
        _broken(image.media_type, "it has no pixels")
    if max(image.width, image.height) > MAX_SIDE:
        raise BadImage(f"it is {image.width} x {image.height} pixels, and no side may be longer than {MAX_SIDE}; "
                       "send a smaller one")
    return image


def _sniff(data: bytes) -> Image:
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png(data)
        if data.startswith(b"\xff\xd8"):
            return _jpeg(data)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return _gif(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError):
        raise BadImage("it is cut short") from None
    raise BadImage("it is no PNG, JPEG, GIF or WebP image")


def _broken(media_type: str, why: str) -> NoReturn:
    raise BadImage(f"it is a broken {media_type}: {why}")


def _within(data: bytes, end: int) -> int:
    """`end`, where the data reaches that far."""
    if end > len(data):
        raise BadImage("it is cut short")
    return end


def _png(data: bytes) -> Image:
    """Walks the chunks, each with its checksum, to IEND (PNG specification, section 5)."""
    at, size, pixels = 8, (0, 0), False
    while True:
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        if zlib.crc32(data[at + 4 : at + 8 + length]) != checksum:
            _broken("image/png", f"the checksum of the part at byte {at} does not fit")
        if at == 8:
            if kind != b"IHDR" or length != 13:
                _broken("image/png", "it does not begin with its header")
            size = struct.unpack_from(">II", data, at + 8)
        pixels = pixels or kind == b"IDAT"
        if kind == b"IEND":
            if not pixels:
                _broken("image/png", "it has no picture")
            return Image("image/png", *size)
        at += 12 + length


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers whose segment holds the size: SOF0..SOF15 without DHT, JPG and DAC."""

_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
"""JPEG markers that stand in the data of a scan, and have no segment."""

_MARKER = re.compile(rb"\xff+([^\x00\xff])")
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""What ends a scan's data: a marker that is neither a stuffed byte nor a restart."""


def _jpeg(data: bytes) -> Image:
    """Walks the segments and scans to the end marker (ITU-T T.81, annex B)."""
    at, size = 2, (0, 0)
    while True:
        found = _MARKER.match(data, at)
        if found is None:
            if data[at] == 0xFF and not data[at:].strip(b"\xff"):
                raise BadImage("it is cut short")
            _broken("image/jpeg", f"there is no marker at byte {at}")
        (marker,), at = found[1], found.end()
        if marker == 0xD9:
            if not any(size):
                _broken("image/jpeg", "it has no picture")
            return Image("image/jpeg", *size)
        if marker in _BARE:
            _broken("image/jpeg", f"the marker before byte {at} belongs into a scan")
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            _broken("image/jpeg", f"the segment at byte {at} has no length")
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            size = (width, height)
        at = _within(data, at + length)
        if marker == 0xDA:
            end = _AFTER_SCAN.search(data, at)
            at = _within(data, len(data) + 1) if end is None else end.start()


def _gif(data: bytes) -> Image:
    """Walks the blocks to the trailer (GIF89a specification)."""
    width, height, packed = struct.unpack_from("<HHB", data, 6)
    at, pictures = 13 + _colours(packed), 0
    while (kind := data[at]) != 0x3B:
        if kind == 0x21:
            at = _gif_data(data, at + 2)
        elif kind == 0x2C:
            left, top, wide, high, packed = struct.unpack_from("<HHHHB", data, at + 1)
            width, height, pictures = max(width, left + wide), max(height, top + high), pictures + 1
            at = _gif_data(data, at + 10 + _colours(packed) + 1)
        else:
            _broken("image/gif", f"the block at byte {at} is unknown")
    if not pictures:
        _broken("image/gif", "it has no picture")
    return Image("image/gif", width, height)


def _colours(packed: int) -> int:
    """Bytes of the colour table that a header announces."""
    return 3 << (packed & 7) + 1 if packed & 0x80 else 0


def _gif_data(data: bytes, at: int) -> int:
    """Where the pieces that begin at a byte have ended."""
    while length := data[at]:
        at += 1 + length
    return at + 1


def _webp(data: bytes) -> Image:
    """Walks the chunks (RFC 9649): the first one has the size, a later one may have the picture."""
    end = _within(data, 8 + _little(data, 4, 4))
    at, size, pictures = 12, (0, 0), 0
    while at < end:
        kind, length = data[at : at + 4], _little(data, at + 4, 4)
        if at + 8 + length > end:
            _broken("image/webp", f"the chunk at byte {at} is longer than the image")
        if at == 12:
            size = _webp_size(kind, data[at + 8 : at + 8 + length])
        pictures += kind in (b"VP8 ", b"VP8L", b"ANMF")
        at += 8 + length + length % 2
    if not pictures:
        _broken("image/webp", "it has no picture")
    return Image("image/webp", *size)


def _webp_size(kind: bytes, chunk: bytes) -> tuple[int, int]:
    if kind == b"VP8X":
        return _little(chunk, 4, 3) + 1, _little(chunk, 7, 3) + 1
    if kind == b"VP8L" and chunk[:1] == b"\x2f":
        bits = _little(chunk, 1, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and chunk[3:6] == b"\x9d\x01\x2a":
        return _little(chunk, 6, 2) & 0x3FFF, _little(chunk, 8, 2) & 0x3FFF
    _broken("image/webp", "its first chunk is unknown")


def _little(data: bytes, at: int, size: int) -> int:
    """An integer, lowest byte first."""
    return int.from_bytes(data[at : _within(data, at + size)], "little")
